"""Random batches of many keys, with groups, commits together and threads, over an unreliable network.

The exploration (`tests/protocol`) tries every order of steps for one key. This test mixes batches: a message that is in
the batch twice, several records in one message, overwrites during processing, processors that fail, are interrupted or
reject, and workers that are replaced. In all cases, an attempt has a claim, a committed state is not processed again,
and in the end every state is committed. A record that cannot be parsed is copied once.
"""

import json
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, cast

import pytest
from botocore.exceptions import ConnectTimeoutError, ReadTimeoutError

from intake_ledger import Commit, ObjectChange, Unprocessable
from intake_ledger.consumer.batch import ProcessingTime
from intake_ledger.consumer.deadline import Overrun
from intake_ledger.protocol.row import Row, Status
from intake_ledger_testing.consumers import object_consumer
from tests.unit.consumer.test_consumer import Bench, Context, message
from tests.unit.consumer.test_groups import new_world
from tests.unit.support import MINUTE, SECOND, notification, record
from tests.unit.support import created as reported

KEYS = "abcdef"
ROUNDS = 40
TO_REST = 400
"""Deliveries after which everything has to be done once nothing fails any more."""


@dataclass(slots=True)
class Line:
    """A DynamoDB client that loses this share of the requests, half of them before and half after they took effect."""

    client: Any
    chance: random.Random
    losing: float = 0.0

    def __getattr__(self, name: str) -> Callable[..., Any]:
        request = getattr(self.client, name)

        def call(**arguments: Any) -> Any:
            drawn = self.chance.random()
            if drawn < self.losing / 2:
                raise ConnectTimeoutError(endpoint_url="dynamodb")
            answer = request(**arguments)
            if drawn < self.losing:
                raise ReadTimeoutError(endpoint_url="dynamodb")
            return answer

        return call


@dataclass(slots=True)
class Waiting:
    """A message in the queue."""

    body: str
    receives: int = 0
    visible_at: int = 0


@dataclass
class Intake:
    """One pipeline with its queue. Until it is `calm`, everything may fail."""

    chance: random.Random
    bench: Bench
    calm: bool = False
    queue: dict[str, Waiting] = field(default_factory=dict)
    committed: set[tuple[str, str]] = field(default_factory=set)
    wrong: list[str] = field(default_factory=list)
    bad: list[str] = field(default_factory=list)
    """Names of messages that have a record of an unknown version."""
    twice: set[str] = field(default_factory=set)
    """Messages that were in a batch twice."""
    _names: "count[int]" = field(default_factory=lambda: count(1))

    def __post_init__(self) -> None:
        self.world = self.bench.world
        self.store = self.world.wire.client
        self.line = Line(self.store, self.chance)
        self.world.wire.client = cast("Any", self.line)
        self.replace_worker()

    def replace_worker(self) -> None:
        """Another execution environment; its breaker and its pace are its own."""
        self.consumer = object_consumer(
            replace(self.bench.services(), jitter=self.chance.random),
            self.process,
            processing_time=ProcessingTime(10.0),
            end_process=lambda: self.wrong.append("the process was ended"),
        )

    def row(self, key: str) -> Row | None:
        """Read the row without the network's faults."""
        self.world.wire.client = self.store
        row = self.world.row(reported(self.world.s3.look(key), key=key))
        self.world.wire.client = cast("Any", self.line)
        return row

    def upload(self, key: str) -> None:
        """Its notification may bring another key's along, come twice, or never."""
        reports = [record(key, self.world.s3.put(key, str(self.chance.random())), at=self.world.clock())]
        other = self.chance.choice(KEYS)
        if self.chance.random() < 0.2 and self.world.s3.memory.current(other):
            reports.append(record(other, self.world.s3.look(other), at=self.world.clock()))
        for _ in range(self.chance.choice((0, 1, 1, 1, 1, 1, 1, 2))):
            name, found = f"m{next(self._names)}", list(reports)
            if self.chance.random() < 0.2:
                self.bad.append(name)
                found.insert(self.chance.randint(0, len(found)), record(key, self.world.s3.look(key), version=name))
            self.queue[name] = Waiting(notification(*found))

    def process(self, change: ObjectChange) -> Commit:
        row = self.row(change.key)
        if row is None or (row.status, row.fence) != (Status.PROCESSING, change.fence):
            self.wrong.append(f"{change} was processed without a claim: {row}")
        if (change.key, f"v#{change.version_id}") in self.committed:
            self.wrong.append(f"{change} was processed after its commit")
        self.world.clock.advance(self.chance.choice((0, 0, 500, 2 * SECOND, 20 * SECOND)))
        if self.calm:
            return Commit()
        if self.chance.random() < 0.15:
            self.upload(change.key)
        drawn = self.chance.random()
        for below, error in ((0.15, ValueError("no")), (0.2, Unprocessable("no")), (0.23, Overrun())):
            if drawn < below:
                raise error
        effect = {"Put": {"TableName": "effects", "Item": {"id": {"S": change.key}}}}
        return Commit(transact=[effect] if drawn < 0.3 else [])

    def deliver(self) -> None:
        """Deliver one batch of the visible messages, perhaps with one of them twice."""
        clock, queues = self.world.clock, self.bench.queues
        visible = [name for name, waiting in self.queue.items() if waiting.visible_at <= clock()]
        names = self.chance.sample(visible, min(8, len(visible)))
        if names and self.chance.random() < 0.3:
            names.append(self.chance.choice(names))
            self.twice.add(names[-1])
        records = []
        for name in names:
            self.queue[name].receives += 1
            records.append(message(self.queue[name].body, name, receives=self.queue[name].receives))
        queues.delays.clear()
        deadline = clock() + self.chance.choice((65, 70, 130)) * SECOND
        answer = self.consumer.handle({"Records": records}, Context(clock, deadline))
        given_back = {one["itemIdentifier"] for one in answer["batchItemFailures"]}
        for name in set(names):
            if name in given_back:
                self.queue[name].visible_at = clock() + round(queues.delays[f"handle-{name}"] * SECOND)
            else:
                del self.queue[name]
        for key in filter(self.world.s3.memory.current, KEYS):
            row = self.row(key)
            if row is not None and row.status is Status.PROCESSED:
                self.committed.add((key, str(row.committed_state)))


@pytest.mark.failure_mode("F22", "F26")
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("options", [{}, {"commit_together": True}, {"threads": 3}], ids=str)
def test_whatever_a_batch_is_made_of_everything_is_done_and_nothing_twice(seed: int, options: dict[str, Any]) -> None:
    """F22, F26, F27, G1, G3 and G4, for many keys at once."""
    chance = random.Random(seed)
    intake = Intake(chance, Bench(new_world(), **options))
    for _ in range(ROUNDS):
        if chance.random() < 0.7:
            intake.upload(chance.choice(KEYS))
        intake.line.losing = chance.choice((0.0, 0.0, 0.05, 0.2))
        intake.world.clock.advance(chance.choice((0, SECOND, 30 * SECOND)))
        intake.deliver()
        if chance.random() < 0.05:
            intake.replace_worker()
    intake.line.losing, intake.calm = 0.0, True
    for key in KEYS:
        last = intake.world.s3.put(key, "last")
        intake.queue[f"last of {key}"] = Waiting(notification(record(key, last, at=intake.world.clock())))
    deliveries = 0
    while intake.queue and deliveries < TO_REST:
        intake.world.clock.advance(2 * MINUTE)
        intake.deliver()
        deliveries += 1
    assert intake.wrong == []
    assert intake.queue == {}
    copies = Counter(json.loads(body)["Records"][0]["eventVersion"] for body, _ in intake.bench.queues.copies)
    assert intake.bad
    assert [name for name in intake.bad if not copies[name]] == []
    assert [name for name in intake.bad if copies[name] > 1 and name not in intake.twice] == []
    for key in KEYS:
        row = intake.row(key)
        assert row is not None
        assert row.has_committed(intake.world.s3.look(key).identity), row
