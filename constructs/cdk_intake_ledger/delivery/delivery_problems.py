"""Chooses a delivery mode, and finds reasons why a bucket cannot deliver events to a pipeline."""

from collections.abc import Iterator, Sequence

from aws_cdk import Stack, Token
from aws_cdk import aws_s3 as s3
from constructs import Construct, IConstruct

from cdk_intake_ledger.checks.registry import Problem
from cdk_intake_ledger.checks.rules.bucket_rules import (
    BUCKET_IN_SAME_ENVIRONMENT,
    S3_DELIVERY_IN_SAME_STACK,
)
from cdk_intake_ledger.delivery.bucket_notifications import (
    in_stack_of,
    overlap_problems,
    owned_resource,
    resource_notifications,
)
from cdk_intake_ledger.delivery.imported_buckets import import_problems
from cdk_intake_ledger.delivery.key_filters import KeyPattern
from cdk_intake_ledger.options.options import Delivery


def default_delivery_mode(bucket: s3.IBucket, resource: s3.CfnBucket | None, scope: IConstruct) -> Delivery:
    """The delivery mode for an existing bucket, if the options do not set one."""
    in_other_stack = resource is not None and not in_stack_of(bucket, scope)
    return Delivery.EVENTBRIDGE if in_other_stack else Delivery.S3


def bucket_problems(
    bucket: s3.IBucket, scope: Construct, filters: Sequence[KeyPattern], delivery: Delivery | None
) -> Iterator[Problem]:
    """Check that an existing bucket can deliver events.

    Args:
        bucket: the bucket.
        scope: the pipeline.
        filters: the pipeline's.
        delivery: the option.

    """
    resource = owned_resource(bucket)
    if delivery is Delivery.EXISTING:
        return
    if delivery is not Delivery.EVENTBRIDGE and (resource is None or in_stack_of(bucket, scope)):
        yield from overlap_problems(resource_notifications(resource), filters)
    if resource is None and delivery is not Delivery.EVENTBRIDGE:
        yield from import_problems(bucket, scope, filters)
    # An imported bucket of another account can send events, if its owner allows it.
    for name in ("account", "region") if resource is not None else ("region",):
        theirs = str(getattr(bucket.env if resource is None else Stack.of(bucket), name))
        ours = str(getattr(Stack.of(scope), name))
        if theirs != ours and not Token.is_unresolved(theirs) and not Token.is_unresolved(ours):
            yield BUCKET_IN_SAME_ENVIRONMENT.problem(name=name, theirs=theirs, ours=ours)
    if delivery is Delivery.S3 and resource is not None and not in_stack_of(bucket, scope):
        yield S3_DELIVERY_IN_SAME_STACK.problem()
