"""Bad files and outages in virtual time, through the real consumer: `python -m tests.protocol.breaker_runs`.

Steady good traffic, some files on which the processor always fails, and outages in which it fails on every file. The
questions: do good files wait because of bad ones? Is each bad file dead-lettered with its reason? Does an outage
dead-letter a good file, and how long after its end is each good file committed?

Each execution environment is a `Consumer`. It handles one batch after another on a separate virtual clock. Each call
to AWS and each file takes virtual time. The tests use the `short` runs. The others take minutes.
"""

import argparse
import heapq
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import product
from typing import Any, NamedTuple, cast

from cdk_intake_ledger.testing import MemoryDynamoDB
from intake_ledger.aws.bucket import Bucket
from intake_ledger.aws.queues import Queues
from intake_ledger.consumer.consumer import Consumer
from intake_ledger.consumer.services import Services
from intake_ledger.ledger.dynamodb_table import LedgerTable
from intake_ledger.ledger.ledger import Claim, LedgerOptions
from intake_ledger.processor.object_change import ObjectChange
from intake_ledger.protocol.change import Change
from intake_ledger.protocol.reasons import OutcomeKind, Reason
from intake_ledger.protocol.row import Ordering, Row
from intake_ledger.protocol.verdict import Policy, Ruling
from intake_ledger_testing.consumers import object_consumer, object_ledger
from intake_ledger_testing.events import s3_notification
from intake_ledger_testing.memory_s3 import MemoryS3, Version
from tests.protocol.strict_store import StrictDynamoDB
from tests.protocol.strict_telemetry import StrictTelemetry
from tests.settings import CONSUMER

SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000
START = 1_800_000_000_000
FUNCTION_TIMEOUT, VISIBILITY = 130 * SECOND, 280 * SECOND
RETENTION, MAX_RECEIVES = 4 * DAY, 1_000
BATCH = 10
DYNAMODB_MS, S3_MS, SQS_MS = 5, 20, 10
TAKES_MS = 20, 120
"""Processing time of a file that fails or succeeds, in milliseconds: minimum and maximum."""


class Run(NamedTuple):
    """One world."""

    bad: int
    environments: int
    outage_hours: float = 0
    good_every_ms: int = 2 * SECOND
    hours: float = 4
    """Hours in which files arrive. With an outage, they count from its end."""
    arrive_within_ms: int = 10 * MINUTE
    """Bad files arrive within this time."""
    failing_takes_ms: int = 50
    """Duration of a processor call during the outage."""
    life_ms: int = 45 * MINUTE
    """Life of an execution environment."""
    seed: int = 1

    @property
    def outage(self) -> tuple[int, int]:
        """Its begin and its end, in epoch milliseconds."""
        begin = START + 20 * MINUTE
        return begin, begin + int(self.outage_hours * HOUR)

    @property
    def end(self) -> int:
        """When the last file arrives."""
        return (self.outage[1] if self.outage_hours else START) + int(self.hours * HOUR)


@dataclass(order=True, slots=True)
class _Message:
    visible_at: int
    id: int
    key: str = field(compare=False)
    body: str = field(compare=False)
    sent_at: int = field(compare=False)
    receives: int = field(default=0, compare=False)


@dataclass
class Found:
    """Results of a run. Times are in milliseconds."""

    run: Run
    uploaded: dict[str, int] = field(default_factory=dict)
    committed: dict[str, int] = field(default_factory=dict)
    dead_lettered: dict[str, int] = field(default_factory=dict)
    reasons: Counter[str] = field(default_factory=Counter)
    calls: Counter[str] = field(default_factory=Counter)
    breaker: Counter[str] = field(default_factory=Counter)
    most_receives: int = 0
    wrong: list[str] = field(default_factory=list)

    def delays(self, since: int = 0) -> list[int]:
        """Return the sorted delays of good files that were uploaded since then. A file without commit waits 10**12."""
        good = ((key, at) for key, at in self.uploaded.items() if key.startswith("good") and at >= since)
        return sorted(self.committed.get(key, 10**12) - at for key, at in good)

    @property
    def good_p99_ms(self) -> int:
        """Without an outage, of all good files. With an outage, of the files uploaded after the time to catch up."""
        delays = self.delays(self.run.outage[1] + self.catch_up_limit_ms if self.run.outage_hours else 0)
        return delays[int(len(delays) * 0.99)]

    @property
    def bad_dead_lettered(self) -> int:
        return sum(key.startswith("bad") for key in self.dead_lettered)

    @property
    def good_dead_lettered(self) -> int:
        return sum(key.startswith("good") for key in self.dead_lettered)

    @property
    def last_bad_ms(self) -> int:
        """When the last bad file is in the dead-letter queue, counted from the first upload."""
        return max((at for key, at in self.dead_lettered.items() if key.startswith("bad")), default=START) - START

    @property
    def back_ms(self) -> int:
        """Time from the end of the outage to the first commit of a good file."""
        end = self.run.outage[1]
        return min((at for at in self.committed.values() if at >= end), default=10**12) - end

    @property
    def caught_up_ms(self) -> int:
        """Time from the end of the outage to the commit of the last good file that was uploaded before."""
        end = self.run.outage[1]
        held = [key for key, at in self.uploaded.items() if key.startswith("good") and at < end]
        return max(max((self.committed.get(key, 10**12) for key in held), default=end) - end, 0)

    @property
    def catch_up_limit_ms(self) -> int:
        """Two minutes, and the time that the environments need for one attempt at each file that was held."""
        begin, end = self.run.outage
        held = sum(begin <= at < end for at in self.uploaded.values())
        each = DYNAMODB_MS * 3 + S3_MS * 2 + SQS_MS + sum(TAKES_MS) / 2
        return 2 * MINUTE + int(held * each / self.run.environments)

    def problems(self) -> list[str]:
        """Return the goals that the run misses."""
        found = self.wrong[:5]
        if self.good_p99_ms >= 2 * MINUTE:
            found.append(f"good files wait {self.good_p99_ms / SECOND:,.0f} s (p99)")
        if self.bad_dead_lettered != self.run.bad:
            found.append(f"{self.run.bad - self.bad_dead_lettered} bad files are not dead-lettered")
        if self.good_dead_lettered:
            found.append(f"{self.good_dead_lettered} good files are dead-lettered")
        if self.run.outage_hours and self.caught_up_ms > self.catch_up_limit_ms:
            found.append(f"files of the outage are committed {self.caught_up_ms / SECOND:,.0f} s after its end")
        return found


class World:
    """One run: SQS and Lambda around as many consumers as there are environments."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.random = random.Random(run.seed)
        self.found = Found(run)
        self.table = StrictDynamoDB()
        self.s3 = MemoryS3(clock=lambda: START)
        self.queue: list[_Message] = []
        self.in_flight: dict[str, _Message] = {}
        self.uploads = self._uploads()

    def go(self) -> Found:
        """Until the queue is empty."""
        run, idle = self.run, [Environment(self, n) for n in range(self.run.environments)]
        busy: list[tuple[int, int, Environment]] = []
        left = iter(self.uploads)
        upcoming = next(left, None)
        order, deadline = 0, run.end + RETENTION + DAY
        now = START
        while now < deadline:
            while upcoming is not None and upcoming.visible_at <= now:
                heapq.heappush(self.queue, upcoming)
                upcoming = next(left, None)
            while busy and busy[0][0] <= now:
                idle.append(heapq.heappop(busy)[2])
            batch = self._receive(now) if idle else []
            if batch:
                # Lambda prefers none; so each of them has to find out by itself that the downstream is out, or back.
                environment = idle.pop(self.random.randrange(len(idle)))
                until = environment.handle(batch, now)
                order += 1
                heapq.heappush(busy, (until, order, environment))
                continue
            times = [busy[0][0]] if busy else []
            if upcoming is not None:
                times.append(upcoming.visible_at)
            if self.queue and idle:
                times.append(self.queue[0].visible_at)
            if not times:
                break
            now = max(min(times), now)
        for message in self.queue:
            self.found.wrong.append(f"{message.key} is still in the queue")
        return self.found

    def _uploads(self) -> list[_Message]:
        run, made = self.run, []
        for number, at in enumerate(range(START, run.end, run.good_every_ms)):
            made.append((at + self.random.randrange(run.good_every_ms), f"good{number}"))
        # With an outage, half of them arrive before it and half at its begin.
        begin = run.outage[0] - run.arrive_within_ms // 2 if run.outage_hours else START
        made += [(begin + self.random.randrange(run.arrive_within_ms), f"bad{number}") for number in range(run.bad)]
        messages = []
        for number, (at, key) in enumerate(sorted(made)):
            self.found.uploaded[key] = at
            messages.append(_Message(at + 500, number, key, _notification(key, at, self.s3.put(key, b"")), at + 500))
        return messages

    def _receive(self, now: int) -> list[_Message]:
        batch: list[_Message] = []
        while self.queue and self.queue[0].visible_at <= now and len(batch) < BATCH:
            message = heapq.heappop(self.queue)
            message.receives += 1
            self.found.most_receives = max(self.found.most_receives, message.receives)
            if message.receives > MAX_RECEIVES:
                self.found.wrong.append(f"{message.key} was received {MAX_RECEIVES} times")
                self.found.dead_lettered[message.key] = now
            elif now - message.sent_at > RETENTION:
                self.found.wrong.append(f"{message.key} was dropped by SQS")
            else:
                message.visible_at = now + VISIBILITY
                self.in_flight[str(message.id)] = message
                batch.append(message)
        return batch

    def returned(self, batch: list[_Message], failed: set[str]) -> None:
        for message in batch:
            del self.in_flight[str(message.id)]
            if str(message.id) in failed:
                heapq.heappush(self.queue, message)


class Environment:
    """One execution environment, which is replaced when it has lived for long enough."""

    def __init__(self, world: World, number: int) -> None:
        self.world, self.number = world, number
        self.now = self.until = START
        self._born = START
        self._owners = 0
        self._consumer = self._make()

    def handle(self, batch: list[_Message], now: int) -> int:
        """Handle a batch; the time at which it is done."""
        if now - self._born > self.world.run.life_ms:
            self._born, self._consumer = now, self._make()
        self.now = now
        self.until = now + FUNCTION_TIMEOUT
        answer = self._consumer.handle({"Records": [_record(one) for one in batch]}, self)
        self.world.returned(batch, {one["itemIdentifier"] for one in answer["batchItemFailures"]})
        return self.now

    def get_remaining_time_in_millis(self) -> int:
        """Lambda's context."""
        return max(self.until - self.now, 0)

    def process(self, change: ObjectChange) -> str:
        """The team's processor."""
        world, (begin, end) = self.world, self.world.run.outage
        if begin <= self.now < end:
            self.now += world.run.failing_takes_ms
            world.found.calls["during the outage"] += 1
            raise RuntimeError("the downstream is out")
        self.now += world.random.randint(*TAKES_MS)
        if change.key.startswith("bad"):
            world.found.calls["bad"] += 1
            raise RuntimeError("bad file")
        world.found.committed[change.key] = self.now
        return "done"

    def _make(self) -> Consumer:
        world = self.world
        sqs, s3 = _SQS(self), _Slow(self, world.s3, S3_MS)
        bucket = Bucket(lambda: cast("Any", s3), "bucket")
        options = LedgerOptions("p", Ordering.LATEST, Policy(12, 35 * DAY, deletes=False), 6 * HOUR)
        table = LedgerTable(cast("Any", _Slow(self, world.table, DYNAMODB_MS)), "table")
        return object_consumer(
            Services(
                SETTINGS,
                object_ledger(table, bucket, options, clock=lambda: self.now, new_owner=self._owner),
                bucket,
                Queues(lambda: cast("Any", sqs), "queue", "dlq"),
                telemetry=_Counting(world.found),
                clock=lambda: self.now,
                jitter=world.random.random,
            ),
            self.process,
        )

    def _owner(self) -> str:
        self._owners += 1
        return f"e{self.number}.{self._owners}"


SETTINGS = replace(CONSUMER, deletes=False)


class _Slow:
    """A DynamoDB or S3 client whose calls take this number of milliseconds."""

    def __init__(self, environment: Environment, service: MemoryDynamoDB | MemoryS3, takes_ms: int) -> None:
        self._environment = environment
        self._service = service
        self._takes_ms = takes_ms

    def __getattr__(self, operation: str) -> Callable[..., Any]:
        call = getattr(self._service, operation)

        def slow(**arguments: Any) -> Any:
            self._environment.now += self._takes_ms
            return call(**arguments)

        return slow


class _SQS:
    def __init__(self, environment: Environment) -> None:
        self._environment = environment

    def change_message_visibility(self, **arguments: Any) -> None:
        self._environment.now += SQS_MS
        self._hide(arguments)

    def get_queue_attributes(self, **_: Any) -> dict[str, Any]:
        """Few messages are in flight."""
        return {"Attributes": {"ApproximateNumberOfMessagesNotVisible": "0"}}

    def change_message_visibility_batch(self, **arguments: Any) -> dict[str, Any]:
        self._environment.now += SQS_MS
        for entry in arguments["Entries"]:
            self._hide(entry)
        return {}

    def send_message(self, **arguments: Any) -> None:
        self._environment.now += SQS_MS
        found = self._environment.world.found
        marks = {name: one["StringValue"] for name, one in arguments["MessageAttributes"].items()}
        found.dead_lettered[marks["key"]] = self._environment.now
        found.reasons[marks.get("reason", "")] += 1
        if not marks.get("reason"):
            found.wrong.append(f"{marks['key']} is dead-lettered without a reason")

    def _hide(self, entry: dict[str, Any]) -> None:
        message = self._environment.world.in_flight[entry["ReceiptHandle"]]
        message.visible_at = self._environment.now + entry["VisibilityTimeout"] * SECOND


class _Counting(StrictTelemetry):
    def __init__(self, found: Found) -> None:
        """Count instead of logging."""
        self._found = found

    def decided(self, change: Change, answer: Claim | Ruling, *, now: int) -> None: ...
    def ended(self, claim: Claim, outcome: OutcomeKind, reason: Reason | None = None, *, duration_ms: int) -> None: ...
    def exhausted(self, change: Change, row: Row) -> None: ...

    def downstream_out(self, reason: Reason | None, *, pause_ms: int) -> None:
        self._found.breaker["opened"] += 1

    def downstream_back(self) -> None:
        self._found.breaker["closed"] += 1

    def waits_as_copy(self, age_ms: int) -> None: ...

    def held_back(self) -> None:
        self._found.breaker["given back"] += 1


def _record(message: _Message) -> dict[str, Any]:
    return {
        "messageId": str(message.id),
        "receiptHandle": str(message.id),
        "body": message.body,
        "attributes": {"ApproximateReceiveCount": str(message.receives), "SentTimestamp": str(message.sent_at)},
    }


def _notification(key: str, at: int, version: Version) -> str:
    time = datetime.fromtimestamp(at / 1000, UTC)
    return s3_notification("bucket", key, version_id=version.version_id, etag=version.etag, size=0, time=time)


def table() -> list[Run]:
    """The issue's worlds."""
    runs = []
    for bad, environments in product((30, 100, 300, 1_000), (1, 5, 20)):
        runs.append(Run(bad, environments))
        runs.append(Run(bad, environments, outage_hours=1, good_every_ms=5 * SECOND))
        runs.append(Run(bad, environments, outage_hours=8, good_every_ms=15 * SECOND))
    return runs


HEAD = (
    "| bad files | environments | outage | good p99 | bad in DLQ | last after | good in DLQ | first commit | caught up "
    "| calls in outage | receives |\n| ---: | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
)


def line(found: Found) -> str:
    """A run as a line of the table."""
    run, outage = found.run, bool(found.run.outage_hours)
    return (
        f"| {run.bad:,} | {run.environments} | {f'{run.outage_hours:g} h' if outage else '-'} "
        f"| {_told(found.good_p99_ms)} | {found.bad_dead_lettered:,} | {_told(found.last_bad_ms)} "
        f"| {found.good_dead_lettered:,} "
        f"| {_told(found.back_ms) if outage else '-'} | {_told(found.caught_up_ms) if outage else '-'} "
        f"| {found.calls['during the outage']:,} | {found.most_receives} |"
    )


def _told(milliseconds: int) -> str:
    if milliseconds > 10**11:
        return "never"
    if milliseconds < 10 * MINUTE:
        return f"{milliseconds / SECOND:,.0f} s"
    return f"{milliseconds / MINUTE:,.0f} min" if milliseconds < 3 * HOUR else f"{milliseconds / HOUR:,.1f} h"


def go(run: Run) -> Found:
    """Run one world to its end."""
    return World(run).go()


def main() -> int:
    """The whole table; the exit code is 1 when a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bad", type=int, nargs="+")
    parser.add_argument("--outage", type=float, nargs="+")
    parser.add_argument("--environments", type=int, nargs="+")
    asked = parser.parse_args()
    runs = [
        run
        for run in table()
        if run.bad in (asked.bad or [run.bad])
        and run.outage_hours in (asked.outage or [run.outage_hours])
        and run.environments in (asked.environments or [run.environments])
    ]
    started, missed = time.monotonic(), 0
    print(HEAD)
    with ProcessPoolExecutor() as pool:
        for found in pool.map(go, runs):
            print(line(found), flush=True)
            for problem in found.problems():
                missed += 1
                print(f"    MISSED: {problem}", flush=True)
    print(f"{len(runs)} runs, {missed} goals missed ({time.monotonic() - started:.0f} s)")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
