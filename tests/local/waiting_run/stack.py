"""A pipeline whose queue is handled by workers. `python -m tests.local.waiting_run.stack` synthesises it.

The context value `code` is a folder for the processor's code.
"""

from pathlib import Path

import aws_cdk as cdk

from tests.local.recorded import pipeline_with_effects
from tests.local.waiting_run import STACK
from tests.synth.build import new_app


def main() -> None:
    app = new_app()
    stack = cdk.Stack(app, STACK)
    made = pipeline_with_effects(stack, Path(app.node.get_context("code")), "waiting")
    for name, value in {
        "Function": made.function.function_name,
        "Queue": made.queue.queue_url,
    }.items():
        cdk.CfnOutput(stack, name, value=value)
    app.synth()


if __name__ == "__main__":
    main()
