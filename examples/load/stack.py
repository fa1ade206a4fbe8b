"""The loader's stack: `OrdersStack` is the part to copy.

`StandStack` adds the naive consumer, and a queue that receives S3's messages. `python -m examples.load.stack`
synthesises it. The demonstration passes the connection strings as CDK context.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import aws_cdk as cdk
from aws_cdk import aws_lambda_event_sources as sources
from aws_cdk import aws_s3 as s3
from examples.harness.stand import add_tap, function_by_hand, new_app, queue_by_hand, stage_code, this_machine
from examples.harness.world import SETTLE_SECONDS
from examples.load.material import PREFIX

from cdk_intake_ledger import AuditOptions, ConcurrencyOptions, IntakePipeline, IntakeQueue, Processor, RetryOptions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from constructs import Construct

FUNCTIONS = "examples/load/functions"
STACK = "Load"
NAIVE_TIMEOUT = 4
"""In seconds."""
DESTROY = cdk.RemovalPolicy.DESTROY


class OrdersStack(cdk.Stack):
    """A pipeline that loads CSV files into PostgreSQL. `times` are options of `IntakePipeline`."""

    def __init__(self, scope: Construct, id: str, *, processor: Processor, **times: Any) -> None:
        super().__init__(scope, id)
        queue_times = times.pop("queue_times", {})
        self.orders = IntakePipeline(
            self,
            "Orders",
            processor=processor,
            filters=[s3.NotificationKeyFilter(prefix=PREFIX)],
            deletes=True,
            queue=IntakeQueue(self, "Queue", removal_policy=DESTROY, **queue_times),
            removal_policy=DESTROY,
            **times,
        )
        for name, value in {
            "BucketName": self.orders.bucket.bucket_name,
            "QueueUrl": self.orders.queue.queue_url,
            "DeadLetterQueueUrl": self.orders.dead_letter_queue.queue_url,
            "LedgerTable": self.orders.table.table_name,
            "ConsumerFunction": self.orders.function.function_name,
            "AuditFunction": self.orders.audit_function.function_name,
        }.items():
            cdk.CfnOutput(self, name, value=value)


def stand(stack: cdk.Stack, bucket: s3.IBucket, naive: Processor) -> None:
    """Add a naive consumer, and a queue that receives S3's messages. The demonstration forwards them with faults."""
    add_tap(stack)
    queue = queue_by_hand(stack, "Naive", NAIVE_TIMEOUT, receives=5)
    handler = "examples.load.functions.doomed.handler"
    function = function_by_hand(
        stack, "NaiveConsumer", handler, NAIVE_TIMEOUT, like=naive, environment=naive.environment or {}
    )
    function.add_event_source(sources.SqsEventSource(queue, batch_size=1))
    bucket.grant_read(function)


def processor(code: Path, environment: Mapping[str, str]) -> Processor:
    """Take the staged code, with wheels for this machine, because functions of the local AWS run on it."""
    return Processor.from_asset(
        code, entrypoint="examples.load.functions.doomed:process", environment=environment, **this_machine()
    )


def short_times() -> dict[str, Any]:
    """Options for a demonstration. Production uses the defaults."""
    return {
        "processing_timeout": cdk.Duration.seconds(4),
        # One message in a batch: the death of a worker delays one file, and the run is short.
        "concurrency": ConcurrencyOptions(batch_size=1, clock_skew=cdk.Duration.seconds(1)),
        # Little more than the lease, so that the message of a dead worker returns soon.
        "queue_times": {"visibility_timeout": cdk.Duration.seconds(20)},
        "retry": RetryOptions(min_backoff=cdk.Duration.seconds(1), max_backoff=cdk.Duration.seconds(5)),
        "audit": AuditOptions(settle_time=cdk.Duration.seconds(SETTLE_SECONDS)),
    }


def main() -> None:
    app = new_app()
    context = app.node.try_get_context
    code = stage_code(Path(context("code")), FUNCTIONS, requirements=f"{FUNCTIONS}/requirements.txt")
    naive = processor(code, {"ORDERS": context("naive"), "FAULTS": context("faults")})
    if context("withLedger") == "yes":
        ledger = processor(code, {"ORDERS": context("ledger"), "FAULTS": context("faults")})
        stack = OrdersStack(app, STACK, processor=ledger, **short_times())
        stand(stack, stack.orders.bucket, naive)
    else:
        alone = cdk.Stack(app, STACK)
        bucket = s3.Bucket(alone, "Bucket", versioned=True, enforce_ssl=True, removal_policy=DESTROY)
        cdk.CfnOutput(alone, "BucketName", value=bucket.bucket_name)
        stand(alone, bucket, naive)
    app.synth()


if __name__ == "__main__":
    main()
