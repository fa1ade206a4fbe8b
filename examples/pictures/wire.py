"""The wire between S3 and the queues. It forwards S3's own messages, and duplicates, delays and loses some of them."""

from __future__ import annotations

import random
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from examples.harness.tap import Tap
from examples.pictures.script import Event

if TYPE_CHECKING:
    from collections.abc import Sequence

    from examples.pictures.columns import Column
    from examples.pictures.world import World

DELAY_SECONDS = 2.0


@dataclass
class Wire:
    """Receives the messages of all buckets. Call `pump` often."""

    world: World
    seed: int
    counts: Counter[str] = field(default_factory=Counter)
    """The number of messages by their fate, for each queue."""
    _fates: dict[tuple[str, ...], Event] = field(default_factory=dict)
    """By bucket, key and version ID of an event."""
    _late: list[tuple[Column, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._tap: Tap[tuple[Column, str]] = Tap(self.world.aws, self.world.outputs["TapQueueUrl"])
        self._columns = {self.world.pictures(column): column for column in self.world.columns}

    def put_in_between(self) -> None:
        """Let all buckets notify the queue of the wire. It forwards the messages to the queues of the columns."""
        for bucket in self._columns:
            self._tap.put_in_between(bucket)

    def expect(self, column: Column, key: str, version_id: str, fate: Event) -> None:
        """Set the fate of the message about one operation."""
        self._fates[self.world.pictures(column), key, version_id] = fate

    @property
    def idle(self) -> bool:
        """True if each message has been forwarded or lost, except the repetitions."""
        return not self._fates and self._tap.is_idle

    def pump(self) -> None:
        """Receive messages and forward those that are due."""
        self._tap.receive(self._claim)
        self._forward(self._tap.due())

    def repeat(self) -> None:
        """Deliver the repetitions, in any order."""
        late, self._late = self._late, []
        random.Random(self.seed).shuffle(late)
        self._forward(late)

    def _claim(self, identity: tuple[str, ...], body: str) -> bool:
        fate = self._fates.pop(identity[:3], None)
        if fate is None:
            return False
        column = self._columns[identity[0]]
        if column is self.world.columns[-1]:
            self.counts[fate] += 1
        if fate is Event.LOST:
            return True
        due = time.monotonic() + (DELAY_SECONDS if fate is Event.DELAYED else 0)
        # The delayed one is also duplicated.
        for _ in range(2 if fate in (Event.TWICE, Event.DELAYED) else 1):
            self._tap.wait(due, (column, body))
        if fate is Event.REPEATED:
            self._late.append((column, body))
        return True

    def _forward(self, messages: Sequence[tuple[Column, str]]) -> None:
        by_column: dict[Column, list[str]] = defaultdict(list)
        for column, body in messages:
            by_column[column].append(body)
        for column, bodies in by_column.items():
            self._tap.send(self.world.queue(column), bodies)
