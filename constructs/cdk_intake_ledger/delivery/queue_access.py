"""Lets AWS services send messages to the queues of a pipeline."""

import json
from typing import Any

from aws_cdk import Stack, Token
from aws_cdk import aws_events as events
from aws_cdk import aws_iam as iam
from aws_cdk.region_info import RegionInfo
from constructs import Construct

from cdk_intake_ledger.checks.registry import Rule
from cdk_intake_ledger.checks.reporting import warn
from cdk_intake_ledger.checks.rules.key_network_rules import KEY_POLICY_UNKNOWN
from cdk_intake_ledger.checks.rules.queue_rules import QUEUE_POLICY_UNKNOWN
from cdk_intake_ledger.queue import IntakeQueue
from cdk_intake_ledger.resources.key_access import QUEUE_KEY_ACTIONS

NO_EVENTS = "no event arrives, and S3 refuses the notification"
"""The effect of a key whose policy lacks the statement of the service that sends."""


def allow_service(
    scope: Construct,
    queue: IntakeQueue,
    service: str,
    conditions: dict[str, dict[str, str]],
    *,
    key_conditions: dict[str, dict[str, str]],
    dead_letters: bool = False,
) -> None:
    """Let an AWS service send to the queue, and use the queue's key.

    CDK cannot extend the policy of an imported queue or key. A warning then shows the statement that it needs.

    Args:
        scope: the pipeline, which gets the warnings.
        queue: the pipeline's.
        service: the service principal, such as `s3.amazonaws.com`.
        conditions: conditions of the queue's statement, as IAM writes them.
        key_conditions: conditions of the key's statement.
        dead_letters: whether the service also sends to the dead-letter queue; it does not when omitted.

    """
    principal = iam.ServicePrincipal(service)
    for target in (queue.queue, queue.dead_letter_queue) if dead_letters else (queue.queue,):
        statement = iam.PolicyStatement(
            actions=["sqs:SendMessage"], principals=[principal], resources=[target.queue_arn], conditions=conditions
        )
        add_statement(scope, target, statement, QUEUE_POLICY_UNKNOWN)
    keys = (queue.encryption_key, queue.dead_letter_key if dead_letters else None)
    for key in {key.node.path: key for key in keys if key is not None}.values():
        statement = iam.PolicyStatement(
            actions=list(QUEUE_KEY_ACTIONS),
            principals=[principal],
            resources=["*"],
            conditions=key_conditions,
        )
        add_statement(scope, key, statement, KEY_POLICY_UNKNOWN, effect=NO_EVENTS)


def allow_rule(scope: Construct, queue: IntakeQueue, rule_arn: str | None) -> None:
    """Let a rule of EventBridge send to both queues.

    Args:
        scope: in the rule's stack. It gets the warnings.
        queue: the queues.
        rule_arn: the rule's. None lets each rule of the account send, where this ARN would make a cycle of resources.

    """
    stack = Stack.of(scope)
    account = {"StringEquals": {"aws:SourceAccount": stack.account}}
    if rule_arn is not None:
        source = {"ArnEquals": {"aws:SourceArn": rule_arn}}
    else:
        source = {"ArnLike": {"aws:SourceArn": stack.format_arn(service="events", resource="rule", resource_name="*")}}
    # With the rule's ARN, key, queue and rule would depend on each other.
    allow_service(scope, queue, "events.amazonaws.com", account | source, key_conditions=account, dead_letters=True)


def rule_target(queue: IntakeQueue) -> events.CfnRule.TargetProperty:
    """The queue as the target of a rule."""
    return events.CfnRule.TargetProperty(
        id="Queue",
        arn=queue.queue.queue_arn,
        # EventBridge drops an event after a day of failed attempts if the target has no dead-letter queue.
        dead_letter_config=events.CfnRule.DeadLetterConfigProperty(arn=queue.dead_letter_queue.queue_arn),
    )


def add_statement(
    scope: Construct, resource: Any, statement: iam.PolicyStatement, imported: Rule, **values: str
) -> None:
    """Add a statement to the policy of a queue or key, or warn if it is imported.

    Args:
        scope: the pipeline, which gets the warning.
        resource: the queue or key.
        statement: the statement.
        imported: the rule of the warning, with the values `path` and `statement`.
        values: its other values.

    """
    if not resource.add_to_resource_policy(statement).statement_added:
        text = statement_text(scope, statement)
        warn(scope, imported, path=resource.node.path, statement=text, **values)


def statement_text(scope: Construct, statement: iam.PolicyStatement) -> str:
    """A statement as JSON. Names that only CloudFormation knows are written as `${AWS::AccountId}`.

    Args:
        scope: the pipeline. The region of its stack gives the partition, if it is known.
        statement: the statement.

    """
    stack = Stack.of(scope)
    text = json.dumps(_as_text(stack.resolve(statement.to_statement_json())))
    partition = None if Token.is_unresolved(stack.region) else RegionInfo.get(stack.region).partition
    return text.replace("${AWS::Partition}", partition) if partition else text


def _as_text(resolved: Any) -> Any:
    match resolved:
        case {"Ref": str(name)}:
            return f"${{{name}}}"
        case {"Fn::GetAtt": [str(name), str(attribute)]}:
            return f"${{{name}.{attribute}}}"
        case {"Fn::Join": [str(between), list(parts)]}:
            return between.join(str(_as_text(part)) for part in parts)
        case dict():
            return {name: _as_text(value) for name, value in resolved.items()}
        case list():
            return [_as_text(value) for value in resolved]
    return resolved
