"""An intake of each source."""

from pathlib import Path
from typing import Any

import aws_cdk as cdk
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_events as events
from aws_cdk import aws_kinesis as kinesis
from constructs import Construct

from cdk_intake_ledger import IntakeLedger, MessageIntake, MessageSource, Processor, RetryOptions
from tests.local.recorded import effects_table

STACK = "Messages"
CODE = Path(__file__).parents[1] / "processors" / "messages"


class MessageStack(cdk.Stack):
    """Five intakes with one ledger."""

    def __init__(self, scope: Construct, id: str) -> None:
        super().__init__(scope, id)
        effects = effects_table(self)
        ledger = IntakeLedger(self, "Ledger", removal_policy=cdk.RemovalPolicy.DESTROY)
        stream = kinesis.Stream(self, "Stream", shard_count=1, removal_policy=cdk.RemovalPolicy.DESTROY)
        changes = dynamodb.Table(
            self,
            "Changes",
            partition_key=dynamodb.Attribute(name="order_id", type=dynamodb.AttributeType.STRING),
            stream=dynamodb.StreamViewType.NEW_IMAGE,
            billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
            removal_policy=cdk.RemovalPolicy.DESTROY,
        )
        bus = events.EventBus(self, "Bus")
        image = "dynamodb.NewImage."
        sources = {
            "Sqs": (MessageSource.sqs(), ""),
            "Fifo": (MessageSource.fifo(), ""),
            "Kinesis": (MessageSource.kinesis(stream), ""),
            "DynamoDb": (MessageSource.dynamodb(changes), image),
            "EventBridge": (
                MessageSource.event_bridge(events.EventPattern(source=["shop"]), event_bus=bus),
                "detail.",
            ),
        }
        outputs: dict[str, Any] = {
            "Effects": effects.table_name,
            "Ledger": ledger.table.table_name,
            "Stream": stream.stream_name,
            "Changes": changes.table_name,
            "Bus": bus.event_bus_name,
        }
        for name, (source, prefix) in sources.items():
            intake = MessageIntake(
                self,
                name,
                source=source,
                key=f"{prefix}order_id",
                identity=f"{prefix}event_id",
                processor=Processor.from_asset(
                    CODE, entrypoint="effects:process", environment={"EFFECTS_TABLE": effects.table_name}
                ),
                processing_timeout=cdk.Duration.seconds(5),
                clock_skew=cdk.Duration.seconds(2),
                retry=RetryOptions(
                    max_attempts=3, min_backoff=cdk.Duration.seconds(1), max_backoff=cdk.Duration.seconds(1)
                ),
                ledger=ledger,
                removal_policy=cdk.RemovalPolicy.DESTROY,
            )
            effects.grant(intake, "dynamodb:GetItem", "dynamodb:PutItem")
            outputs |= {
                f"{name}Function": intake.function.function_name,
                f"{name}Queue": intake.queue.queue_url,
                f"{name}DeadLetters": intake.dead_letter_queue.queue_url,
            }
        for name, value in outputs.items():
            cdk.CfnOutput(self, f"Out{name}", value=value)
