"""The stack to copy: a durable function that waits for a person, and a pipeline that starts it once for each attempt.

`python -m examples.approval.stack` synthesises it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import aws_cdk as cdk
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_s3 as s3

from cdk_intake_ledger import ConcurrencyOptions, IntakePipeline, Processor, RetryOptions

if TYPE_CHECKING:
    from constructs import Construct

FUNCTIONS = Path(__file__).parent / "functions"
STACK = "Approval"
LIMIT = cdk.Duration.days(14)


class ApprovalStack(cdk.Stack):
    """Invoices wait for a person. `options` are those of `IntakePipeline`."""

    def __init__(self, scope: Construct, id: str = STACK, **options: Any) -> None:
        super().__init__(scope, id)
        requests = dynamodb.Table(
            self,
            "Requests",
            partition_key=dynamodb.Attribute(name="invoice", type=dynamodb.AttributeType.STRING),
            sort_key=dynamodb.Attribute(name="fence", type=dynamodb.AttributeType.NUMBER),
            billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
            removal_policy=cdk.RemovalPolicy.DESTROY,
        )
        payments = s3.Bucket(self, "Payments", versioned=True, removal_policy=cdk.RemovalPolicy.DESTROY)
        self.approval = lambda_.Function(
            self,
            "Approval",
            # It has the SDK of durable functions.
            runtime=lambda_.Runtime.PYTHON_3_13,
            handler="invoice.handler",
            code=lambda_.Code.from_asset(str(FUNCTIONS)),
            # Of one invocation. An execution lives for days.
            timeout=cdk.Duration.seconds(30),
            durable_config=lambda_.DurableConfig(execution_timeout=LIMIT, retention_period=cdk.Duration.days(30)),
            # An execution that waits goes on with the code that has begun it.
            current_version_options=lambda_.VersionOptions(removal_policy=cdk.RemovalPolicy.RETAIN),
            environment={"REQUESTS_TABLE": requests.table_name, "PAYMENTS_BUCKET": payments.bucket_name},
        )
        self.pipeline = IntakePipeline(
            self,
            "Invoices",
            processor=Processor.from_durable_function(self.approval.current_version, timeout=LIMIT),
            **options,
        )
        self.approval.add_layers(self.pipeline.runtime_layer)
        self.pipeline.grant_read(self.approval)
        payments.grant_read_write(self.approval)
        requests.grant(self.approval, "dynamodb:PutItem")
        for name, value in {
            "Bucket": self.pipeline.bucket.bucket_name,
            "Requests": requests.table_name,
            "Payments": payments.bucket_name,
            "LedgerTable": self.pipeline.table.table_name,
            "Function": self.approval.function_name,
            "Version": self.approval.current_version.function_arn,
        }.items():
            cdk.CfnOutput(self, f"Out{name}", value=value)


SHORT: dict[str, Any] = {
    "processing_timeout": cdk.Duration.seconds(4),
    "concurrency": ConcurrencyOptions(clock_skew=cdk.Duration.seconds(1)),
    "retry": RetryOptions(max_attempts=3, min_backoff=cdk.Duration.seconds(1), max_backoff=cdk.Duration.seconds(2)),
    "removal_policy": cdk.RemovalPolicy.DESTROY,
}
"""Short times for the local AWS."""


def main() -> None:
    """Synthesise the stack of the demonstration."""
    app = cdk.App()
    ApprovalStack(app, **SHORT)
    app.synth()


if __name__ == "__main__":
    main()
