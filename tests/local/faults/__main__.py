"""Run the fault runs on a new local AWS: `python -m tests.local.faults`, or `make faults`.

--short          the form that `make thorough` runs
--ten-minutes    larger than the short form: half of the faults of the full form
--times N        N runs, each on a new local AWS
--line NAME ...  only these pipelines
--defects [TEXT] seed instead each defect whose name has the text: the short form has to find it
"""

import argparse
import importlib.metadata
import os
import platform
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from cdk_intake_ledger.testing import LocalAws
from tests.local.faults import STACK
from tests.local.faults.defects import DEFECTS, seeded
from tests.local.faults.lines import LINES, run
from tests.local.faults.outcomes import Outcome
from tests.local.faults.sizes import FULL, SHORT, TEN_MINUTES, Sizes
from tests.local.faults.world import Sources
from tests.seeds import Mutant

ROOT = Path(__file__).resolve().parents[3]
TO_FIND_DEFECTS = replace(SHORT, always=1, timeout=150)
COLUMNS = ("sent", "processed", "repeated", "duplicates", "stale", "busy", "rejected", "lost", "innocents")


def deploy_and_run(sizes: Sizes, lines: Sequence[str], environment: dict[str, str] | None = None) -> list[Outcome]:
    """One run on a new local AWS; `environment` is added to that of the synthesis."""
    with LocalAws() as aws:
        sources = Sources(aws)
        with sources.running() as context:
            app = f"{sys.executable} -m tests.local.faults.stack"
            context |= {"lines": " ".join(lines)}
            outputs = aws.deploy(app, STACK, context=context, cwd=ROOT, environment=environment)[STACK]
            return run(sources, outputs, sizes, lines)


def table(outcomes: Sequence[Outcome]) -> str:
    """Return a line for each scenario, with its problems."""
    width = max(len(outcome.name) for outcome in outcomes)
    shown = ["  ".join(("".ljust(width), *COLUMNS, "seconds"))]
    for outcome in outcomes:
        numbers = (f"{getattr(outcome.report, column):,}".rjust(len(column)) for column in COLUMNS)
        shown.append("  ".join((outcome.name.ljust(width), *numbers, f"{outcome.seconds:7.0f}", outcome.told)))
        shown += (f"    WRONG: {problem}" for problem in outcome.report.problems[:20])
    return "\n".join(shown)


def seed_all(defects: Sequence[Mutant]) -> bool:
    """Return whether the short form finds every defect, each seeded alone."""
    found = 0
    for defect in defects:
        with seeded(defect) as folder:
            path = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))
            outcomes = deploy_and_run(TO_FIND_DEFECTS, [defect.found_by], {"PYTHONPATH": path})
        problems = [(one.name, problem) for one in outcomes for problem in one.report.problems]
        found += bool(problems)
        told = f"{len(problems)} problems, the first: {': '.join(problems[0])}" if problems else "NOT FOUND"
        print(f"{defect.name}: {told}", flush=True)
    print(f"{found} of {len(defects)} defects were found")
    return found == len(defects)


def machine() -> str:
    """Describe the machine for which the figures hold."""
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("ministack", "boto3"))
    return (
        f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}, Python {sys.version.split()[0]}, {versions}"
    )


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--short", action="store_const", const=SHORT, dest="sizes")
    asked.add_argument("--ten-minutes", action="store_const", const=TEN_MINUTES, dest="sizes")
    asked.add_argument("--times", type=int, default=1)
    asked.add_argument("--line", nargs="*", choices=tuple(LINES), default=())
    asked.add_argument("--defects", nargs="?", const="")
    told = asked.parse_args()
    print(machine(), flush=True)
    if told.defects is not None:
        return 0 if seed_all([defect for defect in DEFECTS if told.defects in defect.name]) else 1
    wrong = 0
    for number in range(1, told.times + 1):
        started = time.monotonic()
        outcomes = deploy_and_run(told.sizes or FULL, told.line)
        wrong += not all(outcome.report.right for outcome in outcomes)
        print(f"\nrun {number} of {told.times}, {time.monotonic() - started:.0f} s\n{table(outcomes)}", flush=True)
    print(f"\n{told.times - wrong} of {told.times} runs are right")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
