"""The stack of the comparison: consumers of the same pictures, each with its own bucket, queue and output bucket.

`python -m examples.pictures.comparison_stack` synthesises it. The command passes the folder of the code and the address
of the gate as CDK context.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import aws_cdk as cdk
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_lambda_event_sources as sources
from aws_cdk import aws_s3 as s3
from examples.harness.stand import add_tap, function_by_hand, new_app, queue_by_hand, stage_code, this_machine
from examples.harness.world import SETTLE_SECONDS
from examples.pictures.columns import LOCKS, Column
from examples.pictures.stack import PREFIX

from cdk_intake_ledger import AuditOptions, ConcurrencyOptions, IntakePipeline, Processor, RetryOptions

if TYPE_CHECKING:
    from collections.abc import Sequence

CODE = ("examples/pictures/processor", "examples/pictures/functions", "examples/published_locks.py")
STACK = "PicturesComparison"
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
        columns: Sequence[Column],
    ) -> None:
        super().__init__(scope, id)
        self._code = code
        # The functions reach S3 through the gate.
        self._environment = {"GATE_URL": gate_url, "AWS_ENDPOINT_URL_S3": gate_url}
        for column in columns:
            if column.by_hand:
                self._by_hand(column)
            else:
                self._pipeline(column)
        add_tap(self)

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
        self._outputs(column, pipeline.bucket, copies)
        cdk.CfnOutput(self, f"{column.construct}QueueUrl", value=pipeline.queue.queue_url)
        cdk.CfnOutput(self, f"{column.construct}Audit", value=pipeline.audit_function.function_name)
        cdk.CfnOutput(self, f"{column.construct}Table", value=pipeline.table.table_name)

    def _by_hand(self, column: Column) -> None:
        """Add a consumer with its own buckets and queue."""
        pictures = s3.Bucket(self, f"{column.construct}Pictures", versioned=True, removal_policy=DESTROY)
        copies = s3.Bucket(self, f"{column.construct}Copies", removal_policy=DESTROY)
        queue = queue_by_hand(self, column.construct, USUAL_SECONDS, receives=5)
        processor = self._processor(column, copies)
        function = function_by_hand(
            self,
            f"{column.construct}Consumer",
            "examples.pictures.functions."
            + (f"watched_locks.{column}" if column in LOCKS else "watched_usual.handler"),
            LOCK_SECONDS if column in LOCKS else USUAL_SECONDS,
            like=processor,
            environment=processor.environment or {},
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
        self._outputs(column, pictures, copies)

    def _processor(self, column: Column, copies: s3.Bucket) -> Processor:
        return Processor.from_asset(
            self._code,
            # The functions without a ledger have a handler of their own.
            entrypoint=f"examples.pictures.functions.watched:{Column.PLAIN if column.by_hand else column}",
            environment={"OUTPUT_BUCKET": copies.bucket_name, "COLUMN": column} | self._environment,
            **this_machine(),
        )

    def _outputs(self, column: Column, pictures: s3.IBucket, copies: s3.IBucket) -> None:
        cdk.CfnOutput(self, f"{column.construct}PicturesBucket", value=pictures.bucket_name)
        cdk.CfnOutput(self, f"{column.construct}CopiesBucket", value=copies.bucket_name)


def main() -> None:
    app = new_app()
    context = app.node.get_context
    ComparisonStack(
        app,
        STACK,
        code=stage_code(Path(context("code")), *CODE, requirements=f"{CODE[0]}/requirements.txt"),
        gate_url=context("gateUrl"),
        columns=[Column(name) for name in context("columns").split()],
    )
    app.synth()


if __name__ == "__main__":
    main()
