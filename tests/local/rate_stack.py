"""A pipeline with a rate of starts. `python -m tests.local.rate_stack` synthesises it.

The context value `code` is a folder for the processor's code.
"""

import shutil
from pathlib import Path

import aws_cdk as cdk

from cdk_intake_ledger import ConcurrencyOptions, IntakePipeline, Processor
from tests.local.recorded import ROOT, effects_table
from tests.synth.build import new_app

STACK, RATE, BURST = "Rate", 2, 4


def main() -> None:
    app = new_app()
    code = Path(app.node.get_context("code"))
    shutil.copy(ROOT / "tests" / "local" / "processors" / "counting_starts.py", code)
    stack = cdk.Stack(app, STACK)
    effects = effects_table(stack)
    made = IntakePipeline(
        stack,
        "Pipeline",
        processor=Processor.from_asset(
            code, entrypoint="counting_starts:process", environment={"EFFECTS_TABLE": effects.table_name}
        ),
        concurrency=ConcurrencyOptions(max_rate=RATE, max_burst=BURST),
        removal_policy=cdk.RemovalPolicy.DESTROY,
    )
    effects.grant_write_data(made)
    cdk.CfnOutput(stack, "Bucket", value=made.bucket.bucket_name)
    cdk.CfnOutput(stack, "EffectsTable", value=effects.table_name)
    app.synth()


if __name__ == "__main__":
    main()
