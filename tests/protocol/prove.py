"""The whole proof: `python -m tests.protocol.prove`, or `make prove`.

--scenario NAME ...   explore these only
--trace               replay the measured bucket only
--mutants [TEXT]      seed the defects only, those whose name has the text
--short               the short scenarios, as `make test` does
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import intake_ledger
from tests.protocol.explorer import Explorer, Result
from tests.protocol.mutants import MUTANTS, Mutant
from tests.protocol.scenarios import FULL, SHORT
from tests.protocol.simulation import Measured, Misfortune, Simulation

ROOT = Path(__file__).resolve().parents[2]


def explore(name: str) -> tuple[str, Result, float]:
    """Search one scenario to its end."""
    started = time.monotonic()
    return name, Explorer(FULL[name]).explore(), time.monotonic() - started


def tell(name: str, result: Result, seconds: float) -> str:
    """A violation with its trace, or the number of states."""
    if not result.violation:
        return f"{name}: holds, {result.states:,} states, {seconds:.0f} s"
    steps = "\n".join(f"    {number:2}. {step}" for number, step in enumerate(result.trace, 1))
    return f"{name}: VIOLATED: {result.violation}\n{steps}"


def explore_all(names: list[str]) -> bool:
    """Search these scenarios on all cores, the largest first by their faults."""
    states, wrong = 0, 0
    with ProcessPoolExecutor() as pool:
        for name, result, seconds in pool.map(explore, names):
            states += result.states
            wrong += bool(result.violation)
            print(tell(name, result, seconds), flush=True)
    print(f"{states:,} states in {len(names)} worlds, {wrong} violated")
    return not wrong


def seed(mutant: Mutant) -> tuple[Mutant, bool, str]:
    """Whether the defect is found, in a copy of the runtime, by what is said to find it."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "intake_ledger"
        shutil.copytree(Path(intake_ledger.__file__).parent, copy, ignore=shutil.ignore_patterns("__pycache__"))
        source = (copy / mutant.module).read_text()
        if source.count(mutant.old) != 1:
            return mutant, False, f"{mutant.module} has the text {source.count(mutant.old)} times: mend the mutant"
        (copy / mutant.module).write_text(source.replace(mutant.old, mutant.new))
        if mutant.found_by.startswith("tests/"):
            command = [sys.executable, "-m", "pytest", "-q", "-x", *mutant.found_by.split()]
        else:
            command = [sys.executable, "-m", "tests.protocol.prove", "--scenario", mutant.found_by]
        # The copy comes before the checkout's own on the path.
        environment = os.environ | {"PYTHONPATH": os.pathsep.join((folder, str(ROOT)))}
        run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    said = (run.stdout + run.stderr).strip().splitlines()
    finding = next((line for line in said if "VIOLATED" in line or line.startswith("FAILED")), None)
    # A run that breaks down in another way has found nothing.
    return mutant, run.returncode == 1 and finding is not None, finding or said[-1]


def seed_all(mutants: list[Mutant]) -> bool:
    """Seed every defect and tell who found it."""
    found = 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for mutant, killed, how in pool.map(seed, mutants):
            found += killed
            print(f"{'found    ' if killed else 'NOT FOUND'}  {mutant.name}: {how}", flush=True)
    print(f"{found} of {len(mutants)} seeded defects found")
    return found == len(mutants)


def replay() -> bool:
    """The measured bucket at its full size, in virtual time, with what it became counted."""
    started = time.monotonic()
    simulation = Simulation(Measured(), Misfortune())
    tally = simulation.run()
    print(
        f"{tally.notifications:,} notifications of {simulation.measured.keys:,} keys and their overwrites in "
        f"{simulation.measured.hours:.0f} hours of virtual time ({time.monotonic() - started:.0f} s): {tally.lost:,} "
        f"notifications lost, {tally.deaths:,} workers died, {tally.redelivered:,} messages came again"
    )
    for name, counts in (("verdicts", tally.verdicts), ("outcomes", tally.outcomes), ("requests", tally.requests)):
        print(f"  {name}: " + ", ".join(f"{what} {count:,}" for what, count in counts.most_common()))
    print(f"  the audit compared {tally.audited:,} keys and resubmitted {tally.resubmitted:,}")
    for wrong in tally.wrong[:20]:
        print(f"  WRONG: {wrong}")
    print(f"  {len(tally.wrong)} lost, repeated, stale or dead-lettered")
    return not tally.wrong


def main() -> int:
    """The command line; the exit code is 1 when anything is not as it must be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenario", nargs="+", choices=FULL, metavar="NAME")
    parser.add_argument("--mutants", nargs="?", const="", metavar="TEXT")
    parser.add_argument("--trace", action="store_true")
    parser.add_argument("--short", action="store_true")
    asked = parser.parse_args()
    everything = not (asked.scenario or asked.short or asked.trace or asked.mutants is not None)
    good = True
    if everything or asked.scenario or asked.short:
        good = explore_all(asked.scenario or list(SHORT if asked.short else FULL))
    if everything or asked.trace:
        good = replay() and good
    if everything or asked.mutants is not None:
        good = seed_all([one for one in MUTANTS if (asked.mutants or "") in one.name]) and good
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
