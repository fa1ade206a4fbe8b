"""Seed each defect of `defects.txt`, and count the worlds that it takes to find it: `python -m tests.pairs.measure`.

The table has the defects of `tests/protocol/seeded_defects.txt` that name two features, these features, and whether the
last measurement found the defect. Each world has the features, and further ones at random.
"""

import importlib
import logging
import os
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

from tests.pairs.defects import defects
from tests.protocol.mutants import MUTANTS
from tests.protocol.pool import Job, run_jobs
from tests.protocol.seeding import import_again, preload
from tests.seeds import Mutant
from tests.seeds import seed as copy_with

ROOT = Path(__file__).parents[2]
MOST = 6_000
CPU_SECONDS = int(os.environ.get("MEASURE_SECONDS") or 90)


def find(mutant: Mutant, features: tuple[str, ...]) -> tuple[bool, str]:
    """Play worlds with the defect until one fails."""
    logging.disable(logging.CRITICAL)
    folder = Path(tempfile.mkdtemp())
    copy_with(mutant, folder)
    import_again(folder)
    search = importlib.import_module("tests.pairs.search")
    stories = importlib.import_module("tests.pairs.stories").STORIES
    for number in range(MOST + 1):
        script = stories.get(mutant.name) if number == 0 else search.draw(number, features)
        if script is None:
            continue
        if (said := search.play(script)) and holds(repr(script)):
            return True, f"{number:5}  {mutant.name}: {said[:150]}"
    return False, f"    -  {mutant.name}"


def holds(script: str) -> bool:
    """True if a world holds without the defect. A new process has the code as it is."""
    code = f"from tests.pairs.search import *\nraise SystemExit(bool(play({script})))"
    # The variable leads to the copy with the defect.
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=env, capture_output=True, check=False)
    return not done.returncode


def main() -> int:
    text = sys.argv[1] if len(sys.argv) > 1 else ""
    known = {one.name: one for one in MUTANTS}
    jobs = [
        Job(name, partial(find, known[name], pair.features), cpu_seconds=CPU_SECONDS)
        for name, pair in defects().items()
        if text in name
    ]
    preload()
    found = 0
    for one in run_jobs(jobs, workers=int(os.environ.get("MEASURE_WORKERS") or 1)):
        found += one.passed
        print(one.told if not one.broken else f"    -  {one.job.name}: {one.told.splitlines()[-1]}", flush=True)
    print(f"{found} of {len(jobs)} found")
    return found < 0.9 * len(jobs)


if __name__ == "__main__":
    sys.exit(main())
