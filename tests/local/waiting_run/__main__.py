"""Run the long form on a new local AWS, with copies and without: `python -m tests.local.waiting_run`."""

import sys
import tempfile
from pathlib import Path

from cdk_intake_ledger.testing import LocalAws
from tests.local.recorded import ROOT
from tests.local.waiting_run import STACK
from tests.local.waiting_run.scenario import FULL, SHORT, run


def main() -> int:
    """Print the results. The exit code is 1 if a promise is broken."""
    plan = SHORT if "--short" in sys.argv else FULL
    wrong = []
    for copies in (False, True):
        with LocalAws() as aws, tempfile.TemporaryDirectory() as code:
            app = f"{sys.executable} -m tests.local.waiting_run.stack"
            outputs = aws.deploy(app, STACK, context={"code": code}, cwd=ROOT)[STACK]
            outcome = run(aws, outputs, Path(code), plan, copies=copies)
        print(
            f"{'copies' if copies else 'hidden messages'}: {plan.waiting} files wait, {outcome.ready} of {plan.ready} "
            f"ready ones ended in {outcome.seconds:.0f} s at a limit of {plan.limit} in flight, then "
            + ("nothing moved" if outcome.blocked else f"{outcome.ended} that waited ended")
            + f", {outcome.double} double effects",
            flush=True,
        )
        wrong += outcome.problems() if copies else []
    print("\n".join(f"WRONG: {problem}" for problem in wrong) or "right")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
