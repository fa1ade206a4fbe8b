"""A pipeline with a rate of starts. `python -m tests.local.pipelines.rate_stack` synthesises it.

The context value `code` is a folder for the processor's code.
"""

from pathlib import Path

import aws_cdk as cdk

from cdk_intake_ledger import ConcurrencyOptions
from tests.local.recorded import pipeline_with_effects
from tests.synth.build import new_app

STACK, RATE, BURST = "Rate", 2, 4


def main() -> None:
    app = new_app()
    rate = ConcurrencyOptions(max_rate=RATE, max_burst=BURST)
    code = Path(app.node.get_context("code"))
    pipeline_with_effects(cdk.Stack(app, STACK), code, "counting_starts", concurrency=rate)
    app.synth()


if __name__ == "__main__":
    main()
