"""Draw worlds by seed, play them, and shrink the ones that fail: `python -m tests.pairs.search --minutes 5`."""

import argparse
import logging
import random
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple, cast

from botocore.exceptions import ClientError

from intake_ledger.audit import one_function
from intake_ledger.ledger import dynamodb_table
from intake_ledger.ledger.dynamodb_table import LedgerTable
from intake_ledger.protocol.row import Row, RowKey
from tests.pairs.features import ALWAYS, FEATURES, KINDS, OPTIONS, fits, make_world
from tests.pairs.world import TURNS, WITH_REQUESTS, Fault, Sleeper, Step, Violation, World

FAULTS = ("die", "die", "die after", "refuse", "lose", "busy", "pause", "pause", "sleep", "sleep")
WAKES = ("wake", "wake again")
OF_SLEEPERS = ("refuse", "lose", "busy", "pause", "sleep")
"""Faults of a worker that has been woken. Its effect may be late, so it does not die."""
MOST_OPTIONS, MOST_STEPS = 3, 22
ROLES = ("kind", "runner", "host")
"""A world has one feature of each of them."""
_made: dict[tuple[str, ...], World] = {}
"""The world that `draw` made last to see whether the kit takes its features. `play` plays it."""


class Script(NamedTuple):
    """A world to play."""

    features: tuple[str, ...]
    steps: tuple[Step, ...]

    def __repr__(self) -> str:
        steps = "".join(f"        {one!r},\n" for one in self.steps)
        return f"Script(\n    {self.features!r},\n    (\n{steps}    ),\n)"


def draw(seed: int, wanted: Sequence[str] = ()) -> Script:
    """The world of a seed. It has the features that are wanted, and further ones at random.

    Raises:
        ValueError: The features that are wanted never meet.

    """
    if not may_meet(tuple(wanted)):
        raise ValueError(f"no world has the features {', '.join(wanted)}")
    chance = random.Random(seed)
    while True:
        given = {FEATURES[one].role: one for one in wanted}
        kind = given.get("kind") or chance.choice(KINDS).name
        runner = given.get("runner") or chance.choices(["inline", "remote", "machine", "durable"], [5, 1, 3, 2])[0]
        host = given.get("host") or chance.choices(["lambda", "worker"], [4, 1])[0]
        options = {one for one in wanted if FEATURES[one].role == "option"}
        more = chance.randint(0 if wanted else 1, MOST_OPTIONS - min(len(options), MOST_OPTIONS - 1))
        options.update(chance.sample([one.name for one in OPTIONS], more))
        names = (kind, runner, host, *sorted(options))
        if _fits(names):
            break
    actions = [one for name in names for one in FEATURES[name].actions]
    actions += [one for one in ALWAYS.actions if one not in TURNS]
    steps = [_step(chance, actions, chance.random() < 0.7) for _ in range(chance.randint(5, MOST_STEPS))]
    if chance.random() < 0.5:
        place = chance.randint(0, len(steps))
        steps[place:place] = _crossing(chance, actions, (*FEATURES[kind].actions,))
    return Script(names, tuple(steps))


@cache
def may_meet(wanted: tuple[str, ...]) -> bool:
    """True if a world has these features. Further options never help: what a feature needs is a kind or a runner."""
    options = sorted(one for one in wanted if FEATURES[one].role == "option")
    places = product(*([one.name for one in FEATURES.values() if one.role == role] for role in ROLES))
    return any(set(wanted) <= {*place, *options} and _fits((*place, *options)) for place in places)


def _fits(names: tuple[str, ...]) -> bool:
    """True if the features may meet, and the kit takes them."""
    if not fits(names):
        return False
    _made.clear()
    try:
        _made[names] = make_world(names)
    except ValueError:
        return False
    return True


def _crossing(chance: random.Random, actions: Sequence[str], work: Sequence[str]) -> Iterator[Step]:
    """Two workers that stand still while the other one works, each with a thing of the same key or group."""

    def some(names: Sequence[str], most: int) -> Iterator[Step]:
        for _ in range(chance.randint(0, most)):
            yield Step(chance.choice(names), chance.randrange(12), chance.randrange(24))

    for name in work:
        yield Step(name, chance.randrange(12), chance.randrange(24))
    for number in range(2):
        kind = "sleep" if not number or chance.random() < 0.5 else chance.choice(FAULTS)
        inner = tuple(some(actions, 3)) if kind == "pause" else ()
        fault = Fault(kind, _place(chance), inner) if not number or chance.random() < 0.7 else None
        yield Step(TURNS[number], number, chance.randrange(24), fault)
        yield from some(work, 2)
        yield from some(actions, 1)
        if chance.random() < 0.6:
            yield Step("time", chance.choice((1, 2, 3, 3, 3, 4)))
    yield Step(WAKES[0], chance.randrange(2), 0, _fault(chance, actions, 1, OF_SLEEPERS))
    yield from some(TURNS, 2)


def _step(chance: random.Random, actions: Sequence[str], faulty: bool, depth: int = 0) -> Step:
    name = chance.choice(TURNS) if chance.random() < 0.4 else chance.choice(actions)
    fault = None
    if faulty and (name in WITH_REQUESTS or name in WAKES) and depth < 2:
        fault = _fault(chance, actions, depth, OF_SLEEPERS if name in WAKES else FAULTS)
    return Step(name, chance.randrange(12), chance.randrange(24), fault)


def _fault(chance: random.Random, actions: Sequence[str], depth: int, kinds: Sequence[str]) -> Fault | None:
    """In each second case, a fault at any request."""
    if chance.random() < 0.5:
        return None
    kind = chance.choice(kinds)
    steps = [_step(chance, actions, True, depth + 1) for _ in range(chance.randint(1, 4) if kind == "pause" else 0)]
    if steps and chance.random() < 0.5:
        steps.append(Step("turn", chance.randrange(12), chance.randrange(24)))
    if steps and chance.random() < 0.5:
        steps.insert(0, Step("time", 3, 0))
    return Fault(kind, _place(chance), tuple(steps))


def _place(chance: random.Random) -> int:
    return chance.randint(1, 14) if chance.random() < 0.5 else -chance.choice((0, 0, 0, 1, 1, 2, 3, 4))


def play(script: Script) -> str:
    """Play a world to its rest. Returns the broken promise, or an empty text."""
    world = _made.pop(script.features, None) or make_world(script.features)
    real, mine, real_pause = time.sleep, threading.current_thread(), dynamodb_table.pause

    def sleep(seconds: float) -> None:
        """The time of the world passes."""
        one = threading.current_thread()
        if one is mine or isinstance(one, Sleeper):
            world.clock.advance(round(seconds * 1000))
        else:
            real(seconds)

    time.sleep = dynamodb_table.pause = cast("Any", sleep)
    report = LedgerTable.report_late_write

    def reported(table: LedgerTable, key: RowKey, row: Row) -> None:
        try:
            report(table, key, row)
        except ClientError:
            world.notes.add("unreported")
            raise

    LedgerTable.report_late_write = reported  # type: ignore[method-assign, assignment]
    audit: Any = one_function
    folder, join = audit.TemporaryDirectory, audit.SqliteJoin
    # A database in memory is made faster than a file.
    audit.TemporaryDirectory, audit.SqliteJoin = lambda **_: nullcontext(""), lambda _: join(Path(":memory:"))
    try:
        for step in script.steps:
            world.step(step)
        world.come_to_rest()
        return world.said or next((said for one in world.features for said in one.judge(world)), "")
    except Violation as found:
        return world.said or str(found)
    except Exception as error:  # noqa: BLE001 - the code under search must raise none
        if world.said:
            return world.said
        where = traceback.extract_tb(error.__traceback__)
        runtime = [f"{one.filename.rpartition('/')[2]}:{one.lineno}" for one in where if "/tests/" not in one.filename]
        return f"it raises {error!r} at {' '.join(runtime[-4:])}"
    finally:
        world.end_sleepers()
        time.sleep, dynamodb_table.pause = real, real_pause
        LedgerTable.report_late_write = report  # type: ignore[method-assign]
        audit.TemporaryDirectory, audit.SqliteJoin = folder, join


def class_of(said: str) -> str:
    """A violation without its names and numbers, to tell two kinds of violations apart."""
    return " ".join(word for word in said.split() if word.isalpha())[:60]


def shrink(script: Script, said: str) -> tuple[Script, str]:
    """Drop features, steps and faults one after the other while the world still fails in the same way."""
    wanted = class_of(said)
    again = True
    while again:
        again = False
        for smaller in _smaller(script):
            told = _try(smaller)
            if told and class_of(told) == wanted:
                script, said, again = smaller, told, True
                break
    return script, said


def _try(script: Script) -> str:
    try:
        return play(script)
    except ValueError:
        return ""


def _smaller(script: Script) -> Iterator[Script]:
    names, steps = script
    for place in range(len(steps)):
        yield Script(names, (*steps[:place], *steps[place + 1 :]))
    for name in names[3:]:
        less = tuple(one for one in names if one != name)
        if fits(less):
            yield Script(less, steps)
    for old, new in (("durable", "machine"), ("machine", "inline"), ("remote", "inline"), ("worker", "lambda")):
        other = tuple(new if one == old else one for one in names)
        if old in names and fits(other):
            yield Script(other, steps)
    for place, step in enumerate(steps):
        for less_step in _smaller_steps(step):
            yield Script(names, (*steps[:place], less_step, *steps[place + 1 :]))


def _smaller_steps(step: Step) -> Iterator[Step]:
    if step.fault is not None:
        yield step._replace(fault=None)
        fault = step.fault
        for place in range(len(fault.steps)):
            yield step._replace(fault=fault._replace(steps=(*fault.steps[:place], *fault.steps[place + 1 :])))
        for place, inner in enumerate(fault.steps):
            for less in _smaller_steps(inner):
                inside = (*fault.steps[:place], less, *fault.steps[place + 1 :])
                yield step._replace(fault=fault._replace(steps=inside))
    for less_a in {0, step.a % 3} - {step.a}:
        yield step._replace(a=less_a) if less_a < step.a else step
    for less_b in {0, step.b % 6} - {step.b}:
        yield step._replace(b=less_b) if less_b < step.b else step


def search(seeds: Iterable[int], seconds: float, *, most: int = 1) -> tuple[int, list[tuple[int, Script, str]]]:
    """Play worlds for a processor time. Returns their number and the ones that fail."""
    until, number, found = time.process_time() + seconds, 0, list[tuple[int, Script, str]]()
    for seed in seeds:
        if time.process_time() > until or len(found) >= most:
            break
        number += 1
        script = draw(seed)
        if said := play(script):
            found.append((seed, script, said))
    return number, found


def first_seed() -> int:
    """The first seed of the day."""
    return int(datetime.now(UTC).strftime("%Y%m%d000000"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=1)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--most", type=int, default=10)
    asked = parser.parse_args()
    logging.disable(logging.CRITICAL)
    first = asked.seed if asked.seed is not None else first_seed()
    began = time.process_time()
    number, found = search(iter(range(first, first + 10**6)), asked.minutes * 60, most=asked.most)
    spent = time.process_time() - began
    print(f"{number} worlds, {1000 * spent / max(number, 1):.1f} ms each, {len(found)} fail")
    kinds = Counter(class_of(said) for _, _, said in found)
    for kind, times in kinds.most_common():
        print(f"{times:4} {kind}")
    told = set[str]()
    for seed, script, said in found:
        if class_of(said) in told:
            continue
        told.add(class_of(said))
        small, said_of_it = shrink(script, said)
        print(f"\nseed {seed}: {said_of_it}\n{small!r}", flush=True)
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
