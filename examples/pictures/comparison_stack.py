"""The stack of the comparison: consumers of the same pictures, each with its own bucket, queue and output bucket.

`python -m examples.pictures.comparison_stack` synthesises it. The command passes the folder of the code, the address of
the gate, and the Python of the local AWS as CDK context.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import aws_cdk as cdk
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_lambda_event_sources as sources
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sqs as sqs
from examples.pictures.columns import LOCKS, Column
from examples.pictures.stack import PREFIX

from cdk_intake_ledger import AuditOptions, ConcurrencyOptions, IntakePipeline, Processor, RetryOptions

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).resolve().parents[2]
STACK = "PicturesComparison"
SETTLE_SECONDS = 2
"""The settle time of the audits in seconds."""
PROCESSING_SECONDS = 2
MOST_WORKERS = 3
USUAL_SECONDS = 2
"""The timeout of the usual consumer. Other numbers of it follow AWS's recommendations."""
LOCK_SECONDS = 6
"""The timeout of a consumer with a published lock. It covers a slow first request: what times out there keeps its lock,
so no other fault of the key would be seen."""
DESTROY = cdk.RemovalPolicy.DESTROY


class ComparisonStack(cdk.Stack):
    """The columns of the montage, and a queue that receives all events of S3."""

    def __init__(
        self,
        scope: cdk.App,
        id: str,
        *,
        code: Path,
        gate_url: str,
        python: str,
        machine: str,
        columns: Sequence[Column],
    ) -> None:
        super().__init__(scope, id)
        self._code = code
        self._runtime = getattr(lambda_.Runtime, f"PYTHON_{python.replace('.', '_')}")
        self._architecture = lambda_.Architecture.ARM_64 if machine == "arm64" else lambda_.Architecture.X86_64
        # The functions reach S3 through the gate.
        self._environment = {"GATE_URL": gate_url, "AWS_ENDPOINT_URL_S3": gate_url}
        for column in columns:
            if column.by_hand:
                self._by_hand(column)
            else:
                self._pipeline(column)
        tap = sqs.Queue(self, "Tap")
        tap.add_to_resource_policy(
            iam.PolicyStatement(
                actions=["sqs:SendMessage"],
                principals=[iam.ServicePrincipal("s3.amazonaws.com")],
                resources=[tap.queue_arn],
                conditions={"StringEquals": {"aws:SourceAccount": self.account}},
            )
        )
        cdk.CfnOutput(self, "TapQueueUrl", value=tap.queue_url)

    def _pipeline(self, column: Column) -> None:
        copies = s3.Bucket(self, f"{column.construct}Copies", removal_policy=DESTROY)
        pipeline = IntakePipeline(
            self,
            column.construct,
            processor=self._processor(column, copies),
            deletes=True,
            processing_timeout=cdk.Duration.seconds(PROCESSING_SECONDS),
            concurrency=ConcurrencyOptions(max_concurrency=MOST_WORKERS, clock_skew=cdk.Duration.seconds(1)),
            retry=RetryOptions(min_backoff=cdk.Duration.seconds(1), max_backoff=cdk.Duration.seconds(4)),
            audit=AuditOptions(settle_time=cdk.Duration.seconds(SETTLE_SECONDS)),
            removal_policy=DESTROY,
        )
        if column is Column.FENCED:
            pipeline.grant_output(copies, PREFIX)
        else:
            copies.grant_read_write(pipeline)
        self._outputs(column, pipeline.bucket, pipeline.queue, copies)
        cdk.CfnOutput(self, f"{column.construct}Audit", value=pipeline.audit_function.function_name)
        cdk.CfnOutput(self, f"{column.construct}Table", value=pipeline.table.table_name)
        cdk.CfnOutput(self, f"{column.construct}Function", value=pipeline.function.function_name)

    def _by_hand(self, column: Column) -> None:
        """Make the usual resources: a queue with six times the function's timeout and a dead-letter queue."""
        pictures = s3.Bucket(self, f"{column.construct}Pictures", versioned=True, removal_policy=DESTROY)
        copies = s3.Bucket(self, f"{column.construct}Copies", removal_policy=DESTROY)
        dead_letters = sqs.Queue(self, f"{column.construct}DeadLetters")
        queue = sqs.Queue(
            self,
            f"{column.construct}Queue",
            visibility_timeout=cdk.Duration.seconds(6 * USUAL_SECONDS),
            dead_letter_queue=sqs.DeadLetterQueue(queue=dead_letters, max_receive_count=5),
        )
        processor = self._processor(column, copies)
        code = processor.code
        assert isinstance(code, lambda_.Code)
        function = lambda_.Function(
            self,
            f"{column.construct}Consumer",
            runtime=processor.runtime,
            architecture=processor.architecture,
            memory_size=processor.memory_size,
            timeout=cdk.Duration.seconds(LOCK_SECONDS if column in LOCKS else USUAL_SECONDS),
            handler="examples.pictures.functions."
            + (f"watched_locks.{column}" if column in LOCKS else "watched_usual.handler"),
            code=code,
            environment=processor.environment,
        )
        if column in LOCKS:
            key = dynamodb.Attribute(name="id", type=dynamodb.AttributeType.STRING)
            table = dynamodb.TableV2(self, f"{column.construct}Locks", partition_key=key, removal_policy=DESTROY)
            table.grant_read_write_data(function)
            function.add_environment("LOCK_TABLE", table.table_name)
        # One message in a batch: a slow picture does not delay or fail others. As many workers as a pipeline has.
        function.add_event_source(
            sources.SqsEventSource(
                queue, batch_size=1, max_concurrency=MOST_WORKERS, report_batch_item_failures=column in LOCKS
            )
        )
        pictures.grant_read(function)
        copies.grant_read_write(function)
        self._outputs(column, pictures, queue, copies)

    def _processor(self, column: Column, copies: s3.Bucket) -> Processor:
        return Processor.from_asset(
            self._code,
            # The functions without a ledger have a handler of their own.
            entrypoint=f"examples.pictures.functions.watched:{Column.PLAIN if column.by_hand else column}",
            environment={"OUTPUT_BUCKET": copies.bucket_name, "COLUMN": column} | self._environment,
            runtime=self._runtime,
            architecture=self._architecture,
        )

    def _outputs(self, column: Column, pictures: s3.IBucket, queue: sqs.IQueue, copies: s3.IBucket) -> None:
        cdk.CfnOutput(self, f"{column.construct}PicturesBucket", value=pictures.bucket_name)
        cdk.CfnOutput(self, f"{column.construct}QueueUrl", value=queue.queue_url)
        cdk.CfnOutput(self, f"{column.construct}CopiesBucket", value=copies.bucket_name)


def stage_code(directory: Path) -> Path:
    """Copy the code of the functions with its package names, and put the requirements into its root."""
    source, target = ROOT / "examples" / "pictures", directory / "examples" / "pictures"
    for name in ("processor", "functions"):
        shutil.copytree(source / name, target / name, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
    shutil.copyfile(ROOT / "examples" / "published_locks.py", directory / "examples" / "published_locks.py")
    (target / "processor" / "requirements.txt").rename(directory / "requirements.txt")
    return directory


def main() -> None:
    # Omit CDK's validation of the template, which takes seven seconds. Tests do it.
    app = cdk.App(builtin_cloud_formation_validation=False)
    context = app.node.get_context
    ComparisonStack(
        app,
        STACK,
        code=stage_code(Path(context("code"))),
        gate_url=context("gateUrl"),
        python=context("python"),
        machine=context("machine"),
        columns=[Column(name) for name in context("columns").split()],
    )
    app.synth()


if __name__ == "__main__":
    main()
