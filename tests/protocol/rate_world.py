"""Execution environments that take starts at a rate, in virtual time: with clocks that differ, pauses and deaths."""

import heapq
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple, cast

from botocore.exceptions import ClientError

from cdk_intake_ledger.testing import MemoryDynamoDB
from intake_ledger.ledger.dynamodb_table import LedgerTable
from intake_ledger.ledger.starts import Starts
from intake_ledger.protocol.rate import Rate
from intake_ledger.protocol.row import rate_key

BEGIN_MS = 1_800_000_000_000
BATCH = 10
_REDELIVERY_MS = 60_000


class Grant(NamedTuple):
    """A start that was taken. Times in milliseconds, except the slot."""

    slot_us: int
    """The start's own time on the timeline of the item."""
    at_ms: float
    """The true time."""
    clock_us: int
    """The time by the clock of the worker."""


@dataclass
class RateWorld:
    """Messages that all came at once, and the environments that start them."""

    rate: Rate
    messages: int
    seed: int
    environments: int = 20
    skew_ms: int = 500
    """Clocks differ from the true time by at most this."""
    pause_ms: int = 2_000
    """The longest pause of a worker between a start that it has taken and the processor."""
    work_ms: int = 200
    """The mean time of a processor."""
    death_share: float = 0.02
    """The share of starts whose worker dies before the processor. Its messages come again after their lease."""
    writes_a_second: int | None = None
    """DynamoDB throttles more of them."""
    arrival_ms: int = 0
    """Messages come within this time."""
    later: Rate | None = None
    """The rate of a deployment that replaces the environments one after the other, each at another time."""
    changed_ms: int = 0
    """The time at which it begins."""
    grants: list[Grant] = field(default_factory=list)
    started: dict[int, float] = field(default_factory=dict)
    """When each message was started first, in milliseconds of the true time."""
    starts: list[float] = field(default_factory=list)
    looks: int = 0
    """The number of times that a message was judged."""
    store: MemoryDynamoDB = field(default_factory=MemoryDynamoDB)

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        self.now = float(BEGIN_MS)
        self.store.busy = None
        self.key = rate_key("sim")
        self._second, self._writes = 0, 0
        self._queue: list[tuple[float, int, bool]] = []
        for number in range(self.messages):
            heapq.heappush(self._queue, (self.now + self.random.random() * self.arrival_ms, number, False))

    @property
    def utilisation(self) -> float:
        """The share of the rate that was granted between one fifth and four fifths of all first starts.

        At the beginning each message is judged once. At the end the messages of workers that died come late.
        """
        ends = sorted(self.started.values())
        begin, end = ends[len(ends) // 5], ends[len(ends) * 4 // 5]
        granted = sum(begin < one.at_ms <= end for one in self.grants)
        return granted / (self.rate.per_second * (end - begin) / 1_000)

    @property
    def writes(self) -> int:
        """The writes to the item."""
        return len(self.store.requests)

    def run(self) -> "RateWorld":
        """Run until each message has started."""
        events = [(self.now + self.random.random() * 1_000, number) for number in range(self.environments)]
        heapq.heapify(events)
        clocks = [self.environment(number) for number in range(self.environments)]
        while len(self.started) < self.messages:
            self.now, number = heapq.heappop(events)
            if self.is_replaced(number) and clocks[number].rate is not self.later:
                clocks[number] = self.environment(number)
            assert self.now < BEGIN_MS + 10 * 86_400_000, "it comes to no end"
            busy_ms, died = self._batch(clocks[number])
            if died:
                clocks[number] = self.environment(number)
            heapq.heappush(events, (self.now + max(busy_ms, 20 + 80 * self.random.random()), number))
        return self

    def is_replaced(self, number: int) -> bool:
        """True if the environment has the later rate."""
        return self.later is not None and self.now >= BEGIN_MS + self.changed_ms + number * 1_000

    def environment(self, number: int = 0) -> Starts:
        """Make an environment, whose clock differs."""
        skew = self.random.randint(-self.skew_ms, self.skew_ms)
        self._offset = 0.0

        def clock() -> int:
            return int(self.now + self._offset) + skew

        client = _Limited(self) if self.writes_a_second else self.store
        return Starts(
            LedgerTable(cast("Any", client), "ledger"),
            "sim",
            self.later if self.later is not None and self.is_replaced(number) else self.rate,
            clock=clock,
            jitter=self.random.random,
        )

    def _batch(self, starts: Starts) -> tuple[float, bool]:
        """Handle the messages that are visible, in turn. Returns the time that it took, and whether the worker died."""
        taken: list[tuple[float, int, bool]] = []
        while self._queue and self._queue[0][0] <= self.now and len(taken) < BATCH:
            taken.append(heapq.heappop(self._queue))
        self._offset = 0.0
        for place, (_, number, in_line) in enumerate(taken):
            self._offset += 5 + 20 * self.random.random()
            self.looks += 1
            at = starts.take(in_line=in_line)
            if at is not None:
                wait = max(-(-(at - starts._clock()) // 1_000), 0) * 1_000
                heapq.heappush(self._queue, (self.now + self._offset + wait, number, True))
                continue
            item = self.store.items[self.key.pk, self.key.sk]
            slot = int(item["starts_until"]["N"]) - self.rate.interval_us
            self.grants.append(Grant(slot, self.now + self._offset, starts._clock() * 1_000))
            if self.random.random() < self.death_share:
                for _, lost, _ in taken[place:]:
                    heapq.heappush(self._queue, (self.now + _REDELIVERY_MS, lost, False))
                return self._offset, True
            self._offset += self.random.random() ** 40 * self.pause_ms
            self.starts.append(self.now + self._offset)
            self.started.setdefault(number, self.now + self._offset)
            self._offset += self.random.expovariate(1 / self.work_ms)
        return self._offset, False

    def throttled(self) -> bool:
        """True if DynamoDB has no capacity for another write to the item in this second."""
        if (second := int(self.now // 1_000)) != self._second:
            self._second, self._writes = second, 0
        self._writes += 1
        return self.writes_a_second is not None and self._writes > self.writes_a_second


class _Limited:
    """The table, with a limit of writes."""

    def __init__(self, world: RateWorld) -> None:
        self._world = world

    def update_item(self, **request: Any) -> Mapping[str, Any]:
        if self._world.throttled():
            error: Any = {"Error": {"Code": "ProvisionedThroughputExceededException", "Message": "too many"}}
            raise ClientError(error, "UpdateItem")
        return self._world.store.update_item(**request)
