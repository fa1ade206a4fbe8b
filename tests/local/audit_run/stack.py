"""A pipeline to lose events of: the construct as it is, with a settle time of a second.

`python -m tests.local.audit_run.stack` synthesises it alone, with the folder for its processor's code as the context
value `code`.
"""

from pathlib import Path

import aws_cdk as cdk
from aws_cdk import aws_s3 as s3
from constructs import Construct

from cdk_intake_ledger import AuditOptions, ConcurrencyOptions, IntakePipeline
from tests.local.audit_run import STACK
from tests.local.recorded import effects_table, put_code, recording
from tests.synth.build import new_app


class AuditedStack(cdk.Stack):
    """A pipeline whose audit writes its reports into the intake bucket."""

    def __init__(self, scope: Construct, id: str, *, code: Path) -> None:
        super().__init__(scope, id)
        effects = effects_table(self)
        processor = recording(code, effects)
        made = IntakePipeline(
            self,
            "Pipeline",
            processor=processor,
            filters=[s3.NotificationKeyFilter(prefix="in/")],
            deletes=True,
            processing_timeout=cdk.Duration.seconds(10),
            concurrency=ConcurrencyOptions(clock_skew=cdk.Duration.seconds(1)),
            audit=AuditOptions(settle_time=cdk.Duration.seconds(1), report_prefix="audit/"),
            removal_policy=cdk.RemovalPolicy.DESTROY,
        )
        effects.grant(made, "dynamodb:PutItem")
        for name, value in {
            "Bucket": made.bucket.bucket_name,
            "QueueUrl": made.queue.queue_url,
            "Table": made.table.table_name,
            "EffectsTable": effects.table_name,
            "AuditFunction": made.audit_function.function_name,
        }.items():
            cdk.CfnOutput(self, name, value=value)


def main() -> None:
    app = new_app()
    code = Path(app.node.get_context("code"))
    put_code(code)
    AuditedStack(app, STACK, code=code)
    app.synth()


if __name__ == "__main__":
    main()
