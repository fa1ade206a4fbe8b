"""Two pipelines whose delivery is broken again and again: one by S3's notifications with a key, one by a rule."""

import aws_cdk as cdk
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_s3 as s3
from constructs import Construct

from cdk_intake_ledger import ConcurrencyOptions, Delivery, IntakePipeline, Processor
from tests.synth.build import PROCESSORS

STACK = "Watched"
DESTROY = cdk.RemovalPolicy.DESTROY


class WatchedStack(cdk.Stack):
    """`Keyed` has a separate bucket and an encryption key. EventBridge delivers to `Ruled`."""

    def __init__(self, scope: Construct, id: str) -> None:
        super().__init__(scope, id)
        key = kms.Key(self, "Key", removal_policy=DESTROY)
        self._pipeline(
            "Keyed",
            encryption_key=key,
            filters=[s3.NotificationKeyFilter(prefix="in/")],
            concurrency=ConcurrencyOptions(max_batching_window=cdk.Duration.seconds(1)),
        )
        self._pipeline("Ruled", delivery=Delivery.EVENTBRIDGE)
        code = lambda_.Code.from_inline("def handler(event, context):\n    return None\n")
        other = lambda_.Function(self, "Other", runtime=lambda_.Runtime.PYTHON_3_13, handler="index.handler", code=code)
        cdk.CfnOutput(self, "OtherFunction", value=other.function_name)
        cdk.CfnOutput(self, "KeyId", value=key.key_id)

    def _pipeline(self, id: str, **options: object) -> None:
        processor = Processor.from_asset(PROCESSORS / "orders", entrypoint="orders:process")
        made = IntakePipeline(self, id, processor=processor, removal_policy=DESTROY, **options)  # type: ignore[arg-type] # a few of its options
        for name, value in {
            "Bucket": made.bucket.bucket_name,
            "Function": made.function.function_name,
            "Audit": made.audit_function.function_name,
            "QueueUrl": made.queue.queue_url,
            "QueueArn": made.queue.queue_arn,
            "DeadLetterQueueUrl": made.dead_letter_queue.queue_url,
            "Table": made.table.table_name,
        }.items():
            cdk.CfnOutput(self, f"{id}{name}", value=value)
