"""Reads CloudFormation resources at synthesis."""

from typing import Any

from aws_cdk import CfnResource, IResource, Stack, Token
from aws_cdk import aws_s3 as s3
from constructs import Construct


def properties_of(resource: CfnResource) -> dict[str, Any]:
    """The resolved properties of a resource. The CDK has no public function for properties that it computes late."""
    properties = Stack.of(resource).resolve(resource._cfn_properties)  # noqa: SLF001
    return properties if isinstance(properties, dict) else {}


def arn_identity(scope: Construct, arn: str, *, owned: bool) -> str:
    """A text that no other resource of the app has. An imported ARN that leaves account or region to the stack may be
    another resource in another environment.

    Args:
        scope: in the stack where the ARN is used.
        arn: the resource's.
        owned: whether the app makes the resource.

    """
    if owned:
        return arn
    stack = Stack.of(scope)
    if "AWS::" not in str(stack.resolve(arn)):  # such as {"Ref": "AWS::Region"}
        return arn
    known = not Token.is_unresolved(stack.account) and not Token.is_unresolved(stack.region)
    return f"{arn} in {f'{stack.account}/{stack.region}' if known else stack.node.path}"


def accounts_of(bucket: s3.IBucket, scope: Construct) -> dict[str, str] | None:
    """The accounts of a bucket (`theirs`) and of a pipeline (`ours`), or None if both are the same or one is unknown.

    Args:
        bucket: the bucket.
        scope: in the pipeline's stack.

    """
    theirs, ours = str(bucket.env.account), str(Stack.of(scope).account)
    if theirs == ours or Token.is_unresolved(theirs) or Token.is_unresolved(ours):
        return None
    return {"theirs": theirs, "ours": ours}


def environments_of(resource: IResource, scope: Construct) -> dict[str, str] | None:
    """Account and region of a resource (`theirs`) and of a consumer (`ours`), or None if no known part differs.

    Args:
        resource: the state machine or the function.
        scope: in the consumer's stack.

    """
    stack = Stack.of(scope)
    ours, theirs = (stack.account, stack.region), (str(resource.env.account), str(resource.env.region))
    known = [pair for pair in zip(ours, theirs, strict=True) if not any(map(Token.is_unresolved, pair))]
    if all(our == their for our, their in known):
        return None
    return {"ours": " ".join(ours), "theirs": " ".join(theirs)}


def outermost(stack: Stack) -> Stack:
    """The stack that contains a nested stack. The name of a nested stack begins with its name."""
    while (parent := stack.nested_stack_parent) is not None:
        stack = parent
    return stack
