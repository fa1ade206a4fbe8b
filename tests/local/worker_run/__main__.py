"""Run the long form on a new local AWS: `python -m tests.local.worker_run`, or `make worker-run`."""

import sys
import tempfile
import time
from pathlib import Path

from cdk_intake_ledger.testing import LocalAws
from tests.local.worker_run import STACK
from tests.local.worker_run.scenario import FULL, SHORT, run

ROOT = Path(__file__).resolve().parents[3]


def main() -> int:
    """Print the results. The exit code is 1 if a promise is broken."""
    plan = SHORT if "--short" in sys.argv else FULL
    with LocalAws() as aws, tempfile.TemporaryDirectory() as code:
        app = f"{sys.executable} -m tests.local.worker_run.stack"
        outputs = aws.deploy(app, STACK, context={"code": code}, cwd=ROOT)[STACK]
        started = time.monotonic()
        outcome = run(aws, outputs, Path(code), plan)
        seconds = time.monotonic() - started
    print(
        f"{plan.objects} objects, {plan.kills} SIGKILLs, {plan.stops} SIGTERMs in {seconds:.0f} s: "
        f"{len(outcome.lost)} lost, {len(outcome.double)} double effects, {outcome.repeated_runs} repeated runs"
    )
    problems = outcome.problems()
    print("\n".join(f"WRONG: {problem}" for problem in problems) or "right")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
