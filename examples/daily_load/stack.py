"""The stack of the daily load. `python -m examples.daily_load.stack` synthesises it."""

from pathlib import Path

import aws_cdk as cdk
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_s3 as s3
from constructs import Construct

from cdk_intake_ledger import FileSets, IntakePipeline, Processor, SetForm

STACK = "DailyLoad"
PROCESSOR = Path(__file__).parent / "processor"
DESTROY = cdk.RemovalPolicy.DESTROY


class DailyLoadStack(cdk.Stack):
    """A pipeline that checks files, and a set for each manifest of a day."""

    def __init__(self, scope: Construct, id: str) -> None:
        super().__init__(scope, id)
        loads = dynamodb.Table(
            self,
            "Loads",
            partition_key=dynamodb.Attribute(name="load", type=dynamodb.AttributeType.STRING),
            billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
            removal_policy=DESTROY,
        )
        files = IntakePipeline(
            self,
            "Files",
            processor=Processor.from_asset(PROCESSOR, entrypoint="loading:check"),
            filters=[s3.NotificationKeyFilter(prefix="days/")],
            removal_policy=DESTROY,
        )
        days = FileSets(
            self,
            "Days",
            pipeline=files,
            form=SetForm.manifest("days/*/manifest.json"),
            processor=Processor.from_asset(
                PROCESSOR, entrypoint="loading:load", environment={"LOADS_TABLE": loads.table_name}
            ),
            deadline=cdk.Duration.hours(6),
            removal_policy=DESTROY,
        )
        loads.grant(days, "dynamodb:UpdateItem")
        for name, value in {"Bucket": files.bucket.bucket_name, "LoadsTable": loads.table_name}.items():
            cdk.CfnOutput(self, f"{name}Name", value=value)


def main() -> None:
    app = cdk.App()
    DailyLoadStack(app, STACK)
    app.synth()


if __name__ == "__main__":
    main()
