"""A stack with an intake of each source, for the tests of synthesis, cdk-nag, cfn-lint and checkov."""

from typing import Any

from aws_cdk import App, Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_events as events
from aws_cdk import aws_kinesis as kinesis
from constructs import Construct

from cdk_intake_ledger import MessageIntake, MessageSource
from tests.synth.build import processor

PATTERN = events.EventPattern(source=["shop"], detail_type=["Order placed"])


def changes_table(scope: Construct, id: str = "Changes", *, stream: bool = True) -> dynamodb.Table:
    return dynamodb.Table(
        scope,
        id,
        partition_key=dynamodb.Attribute(name="order_id", type=dynamodb.AttributeType.STRING),
        stream=dynamodb.StreamViewType.NEW_IMAGE if stream else None,
        billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
        point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification(
            point_in_time_recovery_enabled=True
        ),
    )


def record_stream(scope: Construct, id: str = "Records", **options: Any) -> kinesis.Stream:
    return kinesis.Stream(scope, id, encryption=kinesis.StreamEncryption.MANAGED, **options)


def messages(scope: Construct, id: str, source: MessageSource, **options: Any) -> MessageIntake:
    inside = {"dynamodb": "dynamodb.Keys.", "eventbridge": "detail."}.get(source.kind.value, "")
    defaults: dict[str, Any] = {"key": f"{inside}order_id", "identity": f"{inside}event_id", "processor": processor()}
    if source.table is not None:
        defaults["identity"] = "eventID"
    return MessageIntake(scope, id, source=source, **(defaults | options))


def message_intakes(app: App) -> Stack:
    """An intake of each source."""
    stack = Stack(app, "Messages")
    messages(stack, "Sqs", MessageSource.sqs())
    messages(stack, "Fifo", MessageSource.fifo())
    messages(stack, "Kinesis", MessageSource.kinesis(record_stream(stack)))
    messages(stack, "DynamoDb", MessageSource.dynamodb(changes_table(stack)))
    messages(stack, "EventBridge", MessageSource.event_bridge(PATTERN))
    return stack
