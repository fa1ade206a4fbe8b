"""The loader's stack: `OrdersStack` is the part to copy.

`StandStack` adds the naive consumer, and a queue that receives S3's messages. `python -m examples.load.stack`
synthesises it. The demonstration passes the connection strings as CDK context.
"""

from __future__ import annotations

import platform
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_lambda_event_sources as sources
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sqs as sqs
from examples.demo.world import SETTLE_SECONDS
from examples.load.material import PREFIX

from cdk_intake_ledger import AuditOptions, ConcurrencyOptions, IntakePipeline, IntakeQueue, Processor, RetryOptions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from constructs import Construct

ROOT = Path(__file__).resolve().parents[2]
FUNCTIONS = Path(__file__).parent / "functions"
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
    tap = sqs.Queue(stack, "Tap")
    tap.add_to_resource_policy(
        iam.PolicyStatement(
            actions=["sqs:SendMessage"],
            principals=[iam.ServicePrincipal("s3.amazonaws.com")],
            resources=[tap.queue_arn],
            conditions={"StringEquals": {"aws:SourceAccount": stack.account}},
        )
    )
    dead_letters = sqs.Queue(stack, "NaiveDeadLetters")
    queue = sqs.Queue(
        stack,
        "NaiveQueue",
        visibility_timeout=cdk.Duration.seconds(6 * NAIVE_TIMEOUT),
        dead_letter_queue=sqs.DeadLetterQueue(queue=dead_letters, max_receive_count=5),
    )
    code = naive.code
    assert isinstance(code, lambda_.Code)
    function = lambda_.Function(
        stack,
        "NaiveConsumer",
        runtime=naive.runtime,
        architecture=naive.architecture,
        memory_size=512,
        timeout=cdk.Duration.seconds(NAIVE_TIMEOUT),
        handler="examples.load.functions.doomed.handler",
        code=code,
        environment=naive.environment,
    )
    function.add_event_source(sources.SqsEventSource(queue, batch_size=1))
    bucket.grant_read(function)
    for name, value in {
        "TapQueueUrl": tap.queue_url,
        "NaiveQueueUrl": queue.queue_url,
        "NaiveDeadLetterQueueUrl": dead_letters.queue_url,
        "NaiveFunction": function.function_name,
    }.items():
        cdk.CfnOutput(stack, name, value=value)


def processor(code: Path, environment: Mapping[str, str]) -> Processor:
    """Take the staged code, with wheels for this machine, because functions of the local AWS run on it."""
    is_arm = platform.machine() in ("arm64", "aarch64")
    return Processor.from_asset(
        code,
        entrypoint="examples.load.functions.doomed:process",
        environment=environment,
        runtime=getattr(lambda_.Runtime, f"PYTHON_3_{sys.version_info.minor}"),
        architecture=lambda_.Architecture.ARM_64 if is_arm else lambda_.Architecture.X86_64,
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


def stage_code(directory: Path) -> Path:
    """Copy the code of the functions with its package names in the repository. `requirements.txt` goes to the top."""
    target = directory / "examples" / "load" / "functions"
    shutil.copytree(FUNCTIONS, target, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
    (target / "requirements.txt").replace(directory / "requirements.txt")
    return directory


def main() -> None:
    # Omit CDK's validation of the template, which takes seven seconds. Tests do it.
    app = cdk.App(builtin_cloud_formation_validation=False)
    context = app.node.try_get_context
    code = stage_code(Path(context("code")))
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
