"""The client: it plays all rounds against the consumers, many rounds at the same time."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from examples.pictures.columns import LOCKS, Column
from examples.pictures.gate import Place
from examples.pictures.script import Action, Worker, picture

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from examples.pictures.gate import Gate
    from examples.pictures.script import Round, Step, Story
    from examples.pictures.wire import Wire
    from examples.pictures.world import World

AT_ONCE = 14
"""The number of rounds that are played at the same time. With many late workers at once, the circuit breaker of the
ledger's consumers would take the output bucket for a downstream that is out, and pause."""
GIVE_UP_SECONDS = 240.0
"""The longest time for which a round waits for a consumer."""
PATIENCE_SECONDS = 60.0
"""The longest time for which a round waits for the usual consumer, whose message may be in its dead-letter queue."""
Condition = tuple[str, "Callable[[], list[Place]]"]
"""Its text, and the outputs that it still waits for."""


@dataclass(frozen=True)
class Client:
    """Uploads and deletes pictures, and arms the faults."""

    world: World
    wire: Wire
    gate: Gate

    def play(self, rounds: Sequence[Round], show: Callable[[int], None]) -> None:
        """Play all rounds, and forward all messages about them.

        Raises:
            TimeoutError: a condition of a round was not fulfilled in time.

        """
        waiting = mixed(rounds)
        playing: list[_Playing] = []
        done = 0
        while waiting or playing or not self.wire.idle:
            self.wire.pump()
            while waiting and len(playing) < AT_ONCE:
                one = waiting.pop(0)
                playing.append(_Playing(one.key, self._round(one)))
            still = [one for one in playing if one.goes_on()]
            done += len(playing) - len(still)
            playing = still
            show(done)
            time.sleep(0.05)

    def _round(self, one: Round) -> Iterator[Condition]:
        """Do the operations of a round. Yields the conditions to wait for."""
        places = [Place(column, one.key) for column in self.world.columns]  # the usual consumer first
        waits = list(places)
        for step in one.steps:
            written = {place: self.gate.written[place] for place in waits}
            held = {place: self.gate.held[place] for place in waits}
            self._arm(places, step)
            for column in self.world.columns:
                self._operate(column, one, step)
            if step.worker is Worker.LATE:
                yield "the workers are late", partial(_missing, self.gate.held, held, time.monotonic())
                # The usual consumer's queue hides the message of its late worker for some time.
                del written[places[0]]
            if step.worker is not Worker.LIVES:
                # Their lock stays with this worker.
                waits = [place for place in waits if place.column not in LOCKS]
                for place in [place for place in written if place.column in LOCKS]:
                    del written[place]
            if step.settle:
                yield "the outputs are written", partial(_missing, self.gate.written, written, time.monotonic())

    def _arm(self, places: Sequence[Place], step: Step) -> None:
        for place in places:
            match step.worker:
                case Worker.LATE:
                    self.gate.hold_next(place)
                case Worker.KILLED_BEFORE:
                    self.gate.kill_next(place, "before")
                case Worker.KILLED_AFTER:
                    self.gate.kill_next(place, "after")

    def _operate(self, column: Column, one: Round, step: Step) -> None:
        s3 = self.world.aws.client("s3")
        target = {"Bucket": self.world.pictures(column), "Key": one.key}
        if step.action is Action.DELETE:
            answer = s3.delete_object(**target)
        else:
            answer = s3.put_object(**target, Body=picture(one.number, step.action), ContentType="image/png")
        self.wire.expect(column, one.key, answer["VersionId"], step.event)


def mixed(rounds: Sequence[Round]) -> list[Round]:
    """Return the rounds with each story spread evenly over the whole."""
    sizes = Counter(one.story for one in rounds)
    seen: Counter[Story] = Counter()
    places: list[tuple[float, Round]] = []
    for one in rounds:
        places.append(((seen[one.story] + 0.5) / sizes[one.story], one))
        seen[one.story] += 1
    return [one for _, one in sorted(places, key=lambda place: (place[0], place[1].number))]


def _missing(counts: Counter[Place], before: Mapping[Place, int], since: float) -> list[Place]:
    """Return the outputs whose count has not grown. Consumers without a ledger have limited time."""
    missing = [place for place, count in before.items() if counts[place] <= count]
    impatient = time.monotonic() > since + PATIENCE_SECONDS
    return [] if impatient and all(place.column.by_hand for place in missing) else missing


class _Playing:
    """A round that waits for a condition."""

    def __init__(self, key: str, steps: Iterator[Condition]) -> None:
        self._key = key
        self._steps = steps
        self._next()

    def goes_on(self) -> bool:
        """Do the next operations if their condition holds. Return false at the end of the round."""
        while self._condition and not (missing := self._condition[1]()):
            self._next()
        if self._condition and time.monotonic() > self._deadline:
            columns = ", ".join(place.column for place in missing)
            raise TimeoutError(
                f"{self._key}: after {GIVE_UP_SECONDS:.0f} s still waiting until {self._condition[0]}: {columns}"
            )
        return self._condition is not None

    def _next(self) -> None:
        self._condition = next(self._steps, None)
        self._deadline = time.monotonic() + GIVE_UP_SECONDS
