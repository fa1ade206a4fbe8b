"""Intakes of keyed messages for the fault runs, in the stack of the others."""

from pathlib import Path

import aws_cdk as cdk
from constructs import Construct

from cdk_intake_ledger import MessageIntake, MessageSource, Processor, RetryOptions

PROCESSORS = Path(__file__).resolve().parents[1] / "processors"


def add_messages(scope: Construct, *, downstream: str, proxy: str) -> None:
    """Add an intake of SQS and one of a FIFO queue, whose requests to DynamoDB go through the proxy."""
    environment = {"DOWNSTREAM_URL": downstream, "AWS_ENDPOINT_URL_DYNAMODB": proxy}
    processor = Processor.from_asset(PROCESSORS, entrypoint="delivering:process_message", environment=environment)
    # Enough for workers to meet; each more would take from the others of this machine.
    sources = {"Messages": MessageSource.sqs(max_concurrency=2), "Fifo": MessageSource.fifo(max_concurrency=2)}
    for name, source in sources.items():
        intake = MessageIntake(
            scope,
            name,
            source=source,
            key="key",
            identity="identity",
            processor=processor,
            processing_timeout=cdk.Duration.seconds(5),
            clock_skew=cdk.Duration.seconds(1),
            retry=RetryOptions(
                max_attempts=4, min_backoff=cdk.Duration.seconds(1), max_backoff=cdk.Duration.seconds(2)
            ),
            removal_policy=cdk.RemovalPolicy.DESTROY,
        )
        for what, value in {
            "Bucket": f"messages:{intake.pipeline_name}",
            "QueueUrl": intake.queue.queue_url,
            "DeadLetterQueueUrl": intake.dead_letter_queue.queue_url,
            "Table": intake.table.table_name,
            "Function": intake.consumer_function.function_name,
        }.items():
            cdk.CfnOutput(scope, f"{name}{what}", value=value)
