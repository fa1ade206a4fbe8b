"""Run the whole proof: `python -m tests.protocol.prove`, or `make prove`.

--minutes N           stop after N minutes and list the parts that did not run
--scenario NAME ...   explore only these
--trace               replay only the measured bucket
--mutants [TEXT]      seed only the defects, those with the text in their name
--executions          search only the worlds of executions
--short               the short scenarios, as `make test` does

The exit code is 0 if all that ran passed, 1 if something is violated or a seeded defect is not found, and 2 if the
search itself failed.
"""

import argparse
import os
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from textwrap import indent
from typing import NamedTuple

from tests.protocol import execution_sleepers, execution_worlds, message_worlds
from tests.protocol.explorer import Explorer, Result, Scenario
from tests.protocol.mutants import MUTANTS
from tests.protocol.pool import MEMORY, Ended, Job, run_jobs
from tests.protocol.scenarios import FULL, SHORT
from tests.protocol.seeding import preload, seed
from tests.protocol.set_search import SHORT as SHORT_SETS
from tests.protocol.set_search import WORLDS as SETS
from tests.protocol.set_search import explore as explore_sets
from tests.protocol.simulation import Measured, Misfortune, Simulation
from tests.seeds import Mutant

LIMIT_SECONDS = 600
"""Processor time of a seeded defect. Most take a few seconds, and a defect may keep a test from its end."""


class Part(NamedTuple):
    """One job of the proof: a world, a seeded defect or the replay."""

    kind: str
    job: Job


def tell(name: str, result: Result) -> str:
    """A violation with its steps, or the number of states."""
    if not result.violation:
        return f"{name}: holds, {result.states:,} states"
    steps = "\n".join(f"    {number:2}. {step}" for number, step in enumerate(result.trace, 1))
    raised = f"\n{indent(result.raised, ' ' * 4)}" if result.raised else ""
    return f"{name}: VIOLATED: {result.violation}\n{steps}{raised}"


def explore(name: str) -> tuple[bool, str]:
    """Search one scenario to its end."""
    if name in SETS:
        return explore_sets(name)
    messages = message_worlds.FULL.get(name)
    result = message_worlds.MessageSearch(messages).explore() if messages else Explorer(FULL[name]).explore()
    return not result.violation, tell(name, result)


def explore_executions(name: str) -> tuple[bool, str]:
    """Search one world of executions to its end."""
    sleepers = execution_sleepers.WORLDS.get(name)
    found = (
        execution_sleepers.explore(sleepers) if sleepers else execution_worlds.explore(execution_worlds.WORLDS[name])
    )
    result = Result(found.violation, found.trace, found.states, complete=True)
    return not found.violation, tell(name, result)


def find(mutant: Mutant) -> tuple[bool, str]:
    """Seed one defect."""
    found, how = seed(mutant, Path(tempfile.mkdtemp()))
    return found, f"{'found    ' if found else 'NOT FOUND'}  {mutant.name}: {how}"


def replay() -> tuple[bool, str]:
    """Simulate the measured bucket at its full size in virtual time, and count the results."""
    started = time.monotonic()
    simulation = Simulation(Measured(), Misfortune())
    tally = simulation.run()
    first = (
        f"{tally.notifications:,} notifications of {simulation.measured.keys:,} keys and their overwrites in "
        f"{simulation.measured.hours:.0f} hours of virtual time ({time.monotonic() - started:.0f} s): {tally.lost:,} "
        f"notifications lost, {tally.deaths:,} workers died, {tally.redelivered:,} messages came again"
    )
    lines = [first]
    for name, counts in (("verdicts", tally.verdicts), ("outcomes", tally.outcomes), ("requests", tally.requests)):
        lines.append(f"  {name}: " + ", ".join(f"{what} {count:,}" for what, count in counts.most_common()))
    lines.append(f"  the audit compared {tally.audited:,} keys and resubmitted {tally.resubmitted:,}")
    lines += [f"  WRONG: {wrong}" for wrong in tally.wrong[:20]]
    lines.append(f"  {len(tally.wrong)} lost, repeated, stale or dead-lettered")
    return not tally.wrong, "\n".join(lines)


def cost(scenario: Scenario) -> float:
    """A guess at the effort of a search, to begin with the cheap ones: each step and each fault multiplies it."""
    steps = len(scenario.script.split()) * scenario.deliveries + len(scenario.asks) * scenario.ask_deliveries
    faults = scenario.crashes + scenario.pauses + scenario.audits + scenario.slow + scenario.answers + scenario.losses
    return 3.0 ** (steps + faults + scenario.rejects + scenario.redrives + scenario.refusals + scenario.ticks)


def effort(name: str) -> float:
    """The cost of a search by its name."""
    if name in message_worlds.FULL:
        return message_worlds.FULL[name].cost
    return cost(FULL[name]) if name in FULL else 0


def plan(names: Sequence[str], mutants: Sequence[Mutant], *, trace: bool) -> list[Part]:
    """The cheap and telling parts come first: short worlds, seeded defects, the replay, the long worlds by cost."""
    worlds = [Part("world", Job(name, partial(explore, name), MEMORY)) for name in names]
    defects = [
        Part("seeded defect", Job(mutant.name, partial(find, mutant), cpu_seconds=LIMIT_SECONDS)) for mutant in mutants
    ]
    replays = [Part("replay", Job("the measured bucket", replay))] if trace else []
    worlds.sort(key=lambda part: effort(part.job.name))
    small = SHORT.keys() | SHORT_SETS.keys() | message_worlds.SHORT.keys()
    short = [part for part in worlds if part.job.name in small]
    return short + defects + replays + [part for part in worlds if part not in short]


def run(parts: Sequence[Part], until: float | None) -> int:
    """Run the parts, print how each one ended and then the sums. Returns the exit code."""
    kinds = {part.job: part.kind for part in parts}
    ended: list[Ended] = []
    with tempfile.TemporaryDirectory() as folder:
        # The jobs use subfolders, so files of a stopped job are removed with this folder.
        tempfile.tempdir = os.environ["TMPDIR"] = folder
        if any(part.kind == "seeded defect" for part in parts):
            preload()
        for one in run_jobs(list(kinds), until=until):
            ended.append(one)
            said = f"{one.job.name}: THE SEARCH FAILED: {one.told}" if one.broken else one.told
            first, *more = said.splitlines()
            effort = f"[{one.seconds:.1f} s, {one.megabytes:.0f} MB]"
            print("\n".join((f"{first} {effort}", *more)), flush=True)
    print()
    for kind in dict.fromkeys(kinds.values()):
        mine = [one for one in ended if kinds[one.job] == kind]
        passed = sum(one.passed for one in mine)
        most = max((one.megabytes for one in mine), default=0)
        seconds = sum(one.seconds for one in mine)
        total = sum(one == kind for one in kinds.values())
        print(f"{kind}s: {passed:,} of {total:,} passed, {seconds:,.0f} s of processor time, at most {most:,.0f} MB")
    done = {one.job for one in ended}
    for part in parts:
        if part.job not in done:
            print(f"not run: {part.kind} {part.job.name}")
    failed = [one for one in ended if not one.passed]
    for one in failed:
        print(f"failed: {kinds[one.job]} {one.job.name}")
    print(f"{len(ended) - len(failed)} passed, {len(failed)} failed")
    return 2 if any(one.broken for one in ended) else 1 if failed else 0


def main() -> int:
    """The command line."""
    started = time.monotonic()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, metavar="N")
    parser.add_argument("--scenario", nargs="+", choices=[*FULL, *SETS, *message_worlds.FULL], metavar="NAME")
    parser.add_argument("--mutants", nargs="?", const="", metavar="TEXT")
    parser.add_argument("--trace", action="store_true")
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--executions", action="store_true")
    asked = parser.parse_args()
    everything = not (asked.executions or asked.scenario or asked.short or asked.trace or asked.mutants is not None)
    small, large = [*SHORT, *SHORT_SETS, *message_worlds.SHORT], [*FULL, *SETS, *message_worlds.FULL]
    names = asked.scenario or (small if asked.short else large if everything else [])
    wanted = "" if everything else asked.mutants
    mutants = [] if wanted is None else [one for one in MUTANTS if wanted in one.name]
    # A process that is told to end stops its child processes, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(2))
    until = None if asked.minutes is None else started + asked.minutes * 60
    parts = plan(names, mutants, trace=everything or asked.trace)
    if everything or asked.executions:
        worlds = execution_worlds.WORLDS | execution_sleepers.WORLDS
        parts += [Part("execution world", Job(name, partial(explore_executions, name), MEMORY)) for name in worlds]
    return run(parts, until)


if __name__ == "__main__":
    sys.exit(main())
