"""The demonstration around the fan-out: a hand-written consumer, and a bus on which events are lost and replayed.

The local AWS has two limits here. Its S3 events have no version IDs, and an archive does not record them. Therefore the
demonstration takes S3's events from a queue (`Tap`), adds the version IDs, and puts them on a separate bus. Rules of
that bus send each event to the consumers in the form in which EventBridge delivers S3's events. The archive of that bus
records them, and EventBridge's own `StartReplay` replays them. On AWS, an archive of the default bus does all of this.

`python -m examples.fanout.stand` synthesises the stack.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import aws_cdk as cdk
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_lambda_event_sources as sources
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sqs as sqs
from examples.fanout.stack import WORKERS, FanOut, processor, uploads_bucket
from examples.fanout.world import BUS_SOURCE, STACK
from examples.harness.stand import function_by_hand, new_app, queue_by_hand

if TYPE_CHECKING:
    from collections.abc import Mapping

    from constructs import Construct

FUNCTIONS = Path(__file__).parent / "functions"
HANDWRITTEN_TIMEOUT = 5
"""In seconds."""


class StandStack(cdk.Stack):
    """The fan-out and a hand-written consumer of the same events. The fan-out can be omitted."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        databases: Mapping[str, str],
        kill_keys: str,
        with_ledger: bool,
    ) -> None:
        super().__init__(scope, id)
        self._environment = {"KILL_KEYS": kill_keys}
        self._bucket = uploads_bucket(self)
        self._bus = events.EventBus(self, "Bus", event_bus_name=f"{id}-events")
        if with_ledger:
            fan_out = FanOut(
                self,
                bucket=self._bucket,
                functions=FUNCTIONS,
                environment=self._environment | {"DATABASE": databases["ledger"]},
            )
            for name, pipeline in fan_out.pipelines.items():
                self._forward(name, pipeline.queue)
                for output, value in {
                    "QueueUrl": pipeline.queue.queue_url,
                    "DeadLetterQueueUrl": pipeline.dead_letter_queue.queue_url,
                    "Function": pipeline.function.function_name,
                    "Audit": pipeline.audit_function.function_name,
                }.items():
                    cdk.CfnOutput(self, f"{name}{output}", value=value)
            cdk.CfnOutput(self, "LedgerTable", value=fan_out.archive.table.table_name)
        self._handwritten(databases["handwritten"])
        self._tap()
        cdk.CfnOutput(self, "BucketName", value=self._bucket.bucket_name)
        cdk.CfnOutput(self, "BusArn", value=self._bus.event_bus_arn)

    def _handwritten(self, database: str) -> None:
        """Make the usual resources: a rule, a queue with a dead-letter queue, and a function."""
        queue = queue_by_hand(self, "Handwritten", HANDWRITTEN_TIMEOUT, receives=3)
        taken = processor(FUNCTIONS, "doomed:process", {})
        environment = self._environment | {"DATABASE": database}
        function = function_by_hand(
            self, "Handwritten", "handwritten.handler", HANDWRITTEN_TIMEOUT, like=taken, environment=environment
        )
        function.add_event_source(sources.SqsEventSource(queue, max_concurrency=WORKERS))
        self._bucket.grant_read(function)
        # The pipelines do this too. Without them it is the only place.
        resource = self._bucket.node.default_child
        assert isinstance(resource, s3.CfnBucket)
        resource.add_property_override(
            "NotificationConfiguration.EventBridgeConfiguration.EventBridgeEnabled", value=True
        )
        events.Rule(self, "HandwrittenRule", event_pattern=self._uploads(), targets=[targets.SqsQueue(queue)])
        self._forward("Handwritten", queue)

    def _forward(self, name: str, queue: sqs.IQueue) -> None:
        """Send the bus's events to a queue, in the form of S3's events. `PutEvents` refuses the source `aws.s3`."""
        event = events.RuleTargetInput.from_object(
            {
                "version": "0",
                "id": events.EventField.event_id,
                "detail-type": events.EventField.detail_type,
                "source": "aws.s3",
                "account": events.EventField.account,
                "time": events.EventField.time,
                "region": events.EventField.region,
                "detail": events.EventField.from_path("$.detail"),
            }
        )
        events.Rule(
            self,
            f"{name}FromBus",
            event_bus=self._bus,
            event_pattern=events.EventPattern(source=[BUS_SOURCE]),
            targets=[targets.SqsQueue(queue, message=event)],
        )

    def _tap(self) -> None:
        queue = sqs.Queue(self, "Tap")
        events.Rule(self, "TapRule", event_pattern=self._uploads(), targets=[targets.SqsQueue(queue)])
        cdk.CfnOutput(self, "TapQueueUrl", value=queue.queue_url)

    def _uploads(self) -> events.EventPattern:
        return events.EventPattern(
            source=["aws.s3"],
            detail_type=["Object Created", "Object Deleted"],
            detail={"bucket": {"name": [self._bucket.bucket_name]}},
        )


def main() -> None:
    app = new_app()
    context = app.node.try_get_context
    StandStack(
        app,
        STACK,
        databases={"ledger": context("ledgerDatabase"), "handwritten": context("handwrittenDatabase")},
        kill_keys=context("killKeys"),
        with_ledger=context("withLedger") == "yes",
    )
    app.synth()


if __name__ == "__main__":
    main()
