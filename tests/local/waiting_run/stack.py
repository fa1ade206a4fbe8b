"""A pipeline whose queue is handled by workers. `python -m tests.local.waiting_run.stack` synthesises it.

The context value `code` is a folder for the processor's code.
"""

import shutil
from pathlib import Path

import aws_cdk as cdk

from cdk_intake_ledger import IntakePipeline, Processor
from tests.local.recorded import ROOT, effects_table
from tests.local.waiting_run import RETRY_SECONDS, STACK
from tests.synth.build import new_app


def main() -> None:
    app = new_app()
    code = Path(app.node.get_context("code"))
    shutil.copy(ROOT / "tests" / "local" / "processors" / "waiting.py", code)
    stack = cdk.Stack(app, STACK)
    effects = effects_table(stack)
    made = IntakePipeline(
        stack,
        "Pipeline",
        processor=Processor.from_asset(
            code,
            entrypoint="waiting:process",
            environment={"EFFECTS_TABLE": effects.table_name, "RETRY_SECONDS": str(RETRY_SECONDS)},
        ),
        removal_policy=cdk.RemovalPolicy.DESTROY,
    )
    effects.grant_write_data(made)
    for name, value in {
        "Bucket": made.bucket.bucket_name,
        "EffectsTable": effects.table_name,
        "Function": made.function.function_name,
        "Queue": made.queue.queue_url,
    }.items():
        cdk.CfnOutput(stack, name, value=value)
    app.synth()


if __name__ == "__main__":
    main()
