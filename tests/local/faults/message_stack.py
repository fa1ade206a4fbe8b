"""Intakes of keyed messages for the fault runs, in the stack of the others."""

from collections.abc import Collection
from pathlib import Path

import aws_cdk as cdk
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_events as events
from aws_cdk import aws_kinesis as kinesis
from constructs import Construct

from cdk_intake_ledger import MessageIntake, MessageSource, MonitoringOptions, Processor, RetryOptions
from tests.local.faults.copies import wait_as_copies

PROCESSORS = Path(__file__).resolve().parents[1] / "processors"
EVENT_SOURCE = "faults"
"""The source in the events of the bus."""
SHARDS = 2
STREAM_BATCH = 20
"""Records in one invocation: few, so that a shard has several batches."""
MESSAGES = ("Messages", "Fifo", "Events", "Kinesis", "Changes")


def add_messages(scope: Construct, *, downstream: str, proxy: str, lines: Collection[str]) -> None:
    """Add an intake for each of these lines, whose requests to DynamoDB go through the proxy."""
    environment = {"DOWNSTREAM_URL": downstream, "AWS_ENDPOINT_URL_DYNAMODB": proxy}
    processor = Processor.from_asset(PROCESSORS, entrypoint="delivering:process_message", environment=environment)
    for name, (source, of, place) in _sources(scope).items():
        if name not in lines:
            continue
        intake = MessageIntake(
            scope,
            name,
            source=source,
            key=f"{place}key",
            identity=f"{place}identity",
            processor=processor,
            processing_timeout=cdk.Duration.seconds(5),
            clock_skew=cdk.Duration.seconds(1),
            retry=RetryOptions(
                max_attempts=4, min_backoff=cdk.Duration.seconds(1), max_backoff=cdk.Duration.seconds(2)
            ),
            removal_policy=cdk.RemovalPolicy.DESTROY,
            monitoring=MonitoringOptions(alarms=[]),
        )
        wait_as_copies(name, intake.function)
        for what, value in {
            "Bucket": f"messages:{intake.name}",
            "QueueUrl": intake.queue.queue_url,
            "DeadLetterQueueUrl": intake.dead_letter_queue.queue_url,
            "Table": intake.table.table_name,
            "Function": intake.function.function_name,
            "Source": of,
        }.items():
            cdk.CfnOutput(scope, f"{name}{what}", value=value)


def _sources(scope: Construct) -> dict[str, tuple[MessageSource, str, str]]:
    """Return each source, the name of its stream, table or bus, and where a message has its key."""
    bus = events.EventBus(scope, "Bus")
    stream = kinesis.Stream(scope, "Stream", shard_count=SHARDS, removal_policy=cdk.RemovalPolicy.DESTROY)
    table = dynamodb.Table(
        scope,
        "Items",
        partition_key=dynamodb.Attribute(name="key", type=dynamodb.AttributeType.STRING),
        stream=dynamodb.StreamViewType.NEW_IMAGE,
        billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
        removal_policy=cdk.RemovalPolicy.DESTROY,
    )
    pattern = events.EventPattern(source=[EVENT_SOURCE])
    # Enough for workers to meet; each more would take from the others of this machine.
    return {
        "Messages": (MessageSource.sqs(max_concurrency=2), "-", ""),
        "Fifo": (MessageSource.fifo(max_concurrency=2), "-", ""),
        "Events": (
            MessageSource.event_bridge(pattern, event_bus=bus, max_concurrency=2),
            bus.event_bus_name,
            "detail.",
        ),
        "Kinesis": (MessageSource.kinesis(stream, batch_size=STREAM_BATCH), stream.stream_name, ""),
        "Changes": (
            MessageSource.dynamodb(table, batch_size=STREAM_BATCH),
            table.table_name,
            "dynamodb.NewImage.",
        ),
    }
