"""A pipeline whose queue is handled by workers outside of Lambda.

`python -m tests.local.worker_run.stack` synthesises it alone, with the folder for its processor's code as the context
value `code`.
"""

from pathlib import Path

import aws_cdk as cdk
from constructs import Construct

from cdk_intake_ledger import ConcurrencyOptions, IntakePipeline, Processor, RetryOptions
from tests.local.recorded import effects_table, put_code
from tests.local.worker_run import STACK
from tests.synth.build import new_app


class WorkedStack(cdk.Stack):
    """The construct as it is, with short times."""

    def __init__(self, scope: Construct, id: str, *, code: Path) -> None:
        super().__init__(scope, id)
        effects = effects_table(self)
        made = IntakePipeline(
            self,
            "Pipeline",
            processor=Processor.from_asset(
                code, entrypoint="working:process", environment={"EFFECTS_TABLE": effects.table_name}
            ),
            processing_timeout=cdk.Duration.seconds(20),
            concurrency=ConcurrencyOptions(clock_skew=cdk.Duration.seconds(1)),
            retry=RetryOptions(min_backoff=cdk.Duration.seconds(1), max_backoff=cdk.Duration.seconds(2)),
            removal_policy=cdk.RemovalPolicy.DESTROY,
        )
        effects.grant_write_data(made)
        for name, value in {
            "Bucket": made.bucket.bucket_name,
            "Table": made.table.table_name,
            "EffectsTable": effects.table_name,
            "Function": made.function.function_name,
        }.items():
            cdk.CfnOutput(self, name, value=value)


def main() -> None:
    app = new_app()
    code = Path(app.node.get_context("code"))
    put_code(code)
    WorkedStack(app, STACK, code=code)
    app.synth()


if __name__ == "__main__":
    main()
