"""A catalogue of API models that follows the files in a bucket: `cdk deploy --app "python3 -m examples.catalogue.app"`.

Upload `models/<service>/service-2.json.gz` files, and look at the table.
"""

from pathlib import Path

from aws_cdk import App, CfnOutput, Duration, Environment, RemovalPolicy, Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_s3 as s3
from constructs import Construct

from cdk_intake_ledger import AuditOptions, ConcurrencyOptions, IntakePipeline, Processor, RetryOptions

CODE = Path(__file__).parent / "processor"


class CatalogueStack(Stack):
    """A pipeline whose processor keeps one row for each service in a separate table.

    Each option has the meaning and the default of the same option of `IntakePipeline`.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        processing_timeout: Duration | None = None,
        retry: RetryOptions | None = None,
        concurrency: ConcurrencyOptions | None = None,
        audit: AuditOptions | None = None,
        removal_policy: RemovalPolicy = RemovalPolicy.RETAIN,
        env: Environment | None = None,
    ) -> None:
        super().__init__(scope, id, env=env)
        self.catalogue = dynamodb.Table(
            self,
            "Catalogue",
            partition_key=dynamodb.Attribute(name="service", type=dynamodb.AttributeType.STRING),
            billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
            point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification(
                point_in_time_recovery_enabled=True
            ),
            removal_policy=removal_policy,
        )
        self.models = IntakePipeline(
            self,
            "Models",
            processor=self.processor(),
            filters=self.filters(),
            deletes=True,
            processing_timeout=processing_timeout,
            retry=retry,
            concurrency=concurrency,
            audit=audit,
            removal_policy=removal_policy,
        )
        self.catalogue.grant(
            self.models, "dynamodb:DeleteItem", "dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:UpdateItem"
        )

        CfnOutput(self, "BucketName", value=self.models.bucket.bucket_name)
        CfnOutput(self, "QueueUrl", value=self.models.queue.queue_url)
        CfnOutput(self, "DeadLetterQueueUrl", value=self.models.dead_letter_queue.queue_url)
        CfnOutput(self, "LedgerTable", value=self.models.table.table_name)
        CfnOutput(self, "ConsumerFunction", value=self.models.function.function_name)
        CfnOutput(self, "AuditFunction", value=self.models.audit_function.function_name)
        CfnOutput(self, "CatalogueTable", value=self.catalogue.table_name)

    def filters(self) -> list[s3.NotificationKeyFilter]:
        """Filters for the keys of the pipeline. A subclass may choose others."""
        return [s3.NotificationKeyFilter(suffix=".json.gz")]

    def processor(self) -> Processor:
        """The processor for each change. A subclass may choose another."""
        return Processor.from_asset(
            CODE,
            entrypoint="catalogue:process",
            environment={"CATALOGUE_TABLE": self.catalogue.table_name},
        )


if __name__ == "__main__":
    app = App()
    CatalogueStack(app, "Catalogue")
    app.synth()
