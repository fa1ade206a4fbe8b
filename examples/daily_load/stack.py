"""The stack of the daily load. `python -m examples.daily_load.stack` synthesises it.

The CDK context `withoutLedger` puts a hand-written loader in the place of the pipeline and the sets.
"""

from pathlib import Path

import aws_cdk as cdk
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_s3_notifications as notifications
from constructs import Construct
from examples.by_hand import ByHand

from cdk_intake_ledger import AuditOptions, FileSets, IntakePipeline, Processor, SetForm

STACK = "DailyLoad"
PROCESSOR, FUNCTIONS = (Path(__file__).parent / name for name in ("processor", "functions"))
FILES = s3.NotificationKeyFilter(prefix="days/")
DESTROY = cdk.RemovalPolicy.DESTROY


class DailyLoadStack(cdk.Stack):
    """A pipeline that checks files, and a set for each manifest of a day."""

    def __init__(self, scope: Construct, id: str, *, with_ledger: bool = True) -> None:
        super().__init__(scope, id)
        self.loads = dynamodb.Table(
            self,
            "Loads",
            partition_key=dynamodb.Attribute(name="load", type=dynamodb.AttributeType.STRING),
            billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
            removal_policy=DESTROY,
        )
        outputs = self._sets() if with_ledger else self._by_hand()
        for name, value in {**outputs, "LoadsTable": self.loads.table_name}.items():
            cdk.CfnOutput(self, f"{name}Name", value=value)

    def _sets(self) -> dict[str, str]:
        files = IntakePipeline(
            self,
            "Files",
            processor=Processor.from_asset(PROCESSOR, entrypoint="loading:check"),
            filters=[FILES],
            # Short, so that the example's audit finds a lost event at once.
            audit=AuditOptions(settle_time=cdk.Duration.seconds(1)),
            removal_policy=DESTROY,
        )
        days = FileSets(
            self,
            "Days",
            pipeline=files,
            form=SetForm.manifest("days/*/manifest.json"),
            processor=Processor.from_asset(
                PROCESSOR, entrypoint="loading:load", environment={"LOADS_TABLE": self.loads.table_name}
            ),
            deadline=cdk.Duration.hours(6),
            removal_policy=DESTROY,
        )
        self.loads.grant(days, "dynamodb:UpdateItem")
        return {"Bucket": files.bucket.bucket_name, "Audit": files.audit_function.function_name}

    def _by_hand(self) -> dict[str, str]:
        bucket = s3.Bucket(self, "Files", removal_policy=DESTROY)
        loader = ByHand(
            self,
            "ByHand",
            code=FUNCTIONS,
            handler="by_hand.handler",
            environment={"LOADS_TABLE": self.loads.table_name},
            timeout=cdk.Duration.seconds(3),
        )
        bucket.add_event_notification(s3.EventType.OBJECT_CREATED, notifications.SqsDestination(loader.queue), FILES)
        bucket.grant_read(loader.function)
        self.loads.grant(loader.function, "dynamodb:PutItem")
        return {"Bucket": bucket.bucket_name}


def main() -> None:
    app = cdk.App()
    DailyLoadStack(app, STACK, with_ledger=app.node.try_get_context("withoutLedger") is None)
    app.synth()


if __name__ == "__main__":
    main()
