"""Run the long form on a new local AWS: `python -m tests.local.audit_run [OBJECTS]`, or `make audit-run`."""

import sys
import tempfile
import time
from pathlib import Path

from cdk_intake_ledger.testing import LocalAws
from tests.local.audit_run import STACK
from tests.local.audit_run.scenario import run

ROOT = Path(__file__).resolve().parents[3]


def main() -> int:
    """Print the results. The exit code is 1 if a check fails."""
    objects = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    with LocalAws() as aws, tempfile.TemporaryDirectory() as code:
        app = f"{sys.executable} -m tests.local.audit_run.stack"
        outputs = aws.deploy(app, STACK, context={"code": code}, cwd=ROOT)[STACK]
        started = time.monotonic()
        outcome = run(aws, outputs, objects, timeout=1_800)
    lost = len(outcome.lost.findings)
    print(f"{objects:,} objects, {lost:,} changes that S3 told nobody of, {time.monotonic() - started:.0f} s")
    print(f"while cut off:  {'; '.join(outcome.while_cut_off['delivery'])}")
    print(f"one run found:  {outcome.looked['summary']}")
    print(f"after a kill:   {outcome.finished['summary']}")
    print(f"the next run:   {outcome.second['summary']}")
    problems = outcome.problems()
    print("\n".join(f"WRONG: {one}" for one in problems) or "all of it, and nothing else")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
