"""One production bucket's measured reality, in virtual time, through the real consumer and the real audit.

Measured (see `../docs/protocol.md`): 104 hours, 507,706 notifications for 507,549 keys; 154 keys were notified twice or
three times, 62 ms to 22,162 s apart. Added on top: overwrites, removals, losses, deaths of workers at any call, and an
hour in which the downstream fails every call.

Every worker is a thread, but only one runs at a time: each call to AWS takes virtual time, and meanwhile others run. So
a run is deterministic for its seed, and workers overlap as they would.
"""

import heapq
import math
import random
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any, cast

from cdk_intake_ledger.testing import MemoryDynamoDB
from intake_ledger.audit.budget import OwnBudget
from intake_ledger.audit.diff import Window
from intake_ledger.audit.look import Look
from intake_ledger.audit.one_function import AuditInOneFunction
from intake_ledger.audit.report import Report
from intake_ledger.aws.bucket import Bucket
from intake_ledger.aws.queues import Queues
from intake_ledger.consumer.consumer import Consumer
from intake_ledger.consumer.services import Services
from intake_ledger.ledger.dynamodb_table import LedgerTable
from intake_ledger.ledger.ledger import Claim, LedgerOptions
from intake_ledger.processor.object_change import ObjectChange
from intake_ledger.protocol.change import Change
from intake_ledger.protocol.errors import ObjectReadError
from intake_ledger.protocol.reasons import OutcomeKind, Reason
from intake_ledger.protocol.row import Ordering, Row, RowCounts
from intake_ledger.protocol.verdict import Policy, Ruling
from intake_ledger_testing.consumers import object_consumer, object_ledger
from intake_ledger_testing.events import s3_notification
from intake_ledger_testing.memory_s3 import MemoryS3, Version
from tests.protocol.packed import PackedItems
from tests.protocol.strict_store import StrictDynamoDB
from tests.protocol.strict_telemetry import StrictTelemetry
from tests.settings import AUDIT, CONSUMER

HOUR, DAY = 3_600_000, 86_400_000
START = 1_800_000_000_000
FUNCTION_TIMEOUT = 70_000
VISIBILITY = 220_000
_OBJECT = b"content"


@dataclass(frozen=True)
class Measured:
    """The production bucket, whole or scaled down; the gaps between duplicates are always the measured extremes'."""

    keys: int = 507_549
    twice: int = 151
    thrice: int = 3
    hours: float = 104
    least_gap_ms: int = 62
    greatest_gap_ms: int = 22_162_000

    @property
    def notifications(self) -> int:
        return self.keys + self.twice + 2 * self.thrice


@dataclass(frozen=True)
class Misfortune:
    """Faults and changes to add: shares of keys, of notifications and of calls."""

    overwritten: float = 0.01
    removed: float = 0.002
    lost: float = 0.001
    deaths: float = 0.0002
    cut: float = 0.001
    outage_hours: float = 1


@dataclass
class Tally:
    """Counts of a run."""

    notifications: int = 0
    lost: int = 0
    deaths: int = 0
    cuts: int = 0
    redelivered: int = 0
    dead_lettered: int = 0
    audited: int = 0
    resubmitted: int = 0
    verdicts: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    breaker: Counter[str] = field(default_factory=Counter)
    requests: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    """Violations: changes that were lost, processed twice or stale."""


class Killed(KeyboardInterrupt):
    """The worker dies here."""


@dataclass(order=True)
class _Message:
    visible_at: int
    id: int
    body: str = field(compare=False)
    receives: int = field(default=0, compare=False)
    receipt: int = field(default=0, compare=False)


class Simulation:
    """One run. `clock` is virtual; `schedule` and `wait` are how it passes."""

    def __init__(self, measured: Measured, misfortune: Misfortune, *, workers: int = 8, seed: int = 1) -> None:
        self.measured, self.misfortune = measured, misfortune
        self.random = random.Random(seed)
        self.takes_ms = 20, 400
        """Processing time of one object in milliseconds: minimum and maximum."""
        self.clock = START
        self.tally = Tally()
        self.s3 = MemoryS3(clock=lambda: self.clock)
        self.table = StrictDynamoDB()
        self.table.items = PackedItems()
        self.queue: list[_Message] = []
        self.in_flight: dict[int, _Message] = {}
        self.downstream: dict[str, int] = {}
        self.begun: set[tuple[str, int]] = set()
        self.excused: set[tuple[str, int]] = set()
        self.half: dict[str, int] = {}
        """Versions of which the downstream has only half, by key."""
        self._agenda: list[tuple[int, int, Callable[[], None]]] = []
        self._order = 0
        self.workers = workers
        self._idle = [_Worker(self, f"w{number}") for number in range(workers)]
        self._outage = (START + 50 * HOUR, START + 50 * HOUR + int(misfortune.outage_hours * HOUR))
        if measured.hours < 60:
            self._outage = (START, START + int(misfortune.outage_hours * HOUR))

    # Time

    def schedule(self, when: int, what: Callable[[], None]) -> None:
        """Have something happen at a time, in epoch milliseconds."""
        self._order += 1
        heapq.heappush(self._agenda, (max(when, self.clock), self._order, what))

    def run(self) -> Tally:
        """Run all events, then audit until nothing is left, and compare the result with S3."""
        self._plan()
        end = START + int(self.measured.hours * HOUR)
        for hours in range(24, int(self.measured.hours) + 24, 24):
            self.schedule(START + hours * HOUR, self._audit)
        self._spend()
        self.clock = max(self.clock, end) + 2 * HOUR
        for _ in range(3):
            before = self.tally.resubmitted
            self._audit()
            self._spend()
            self.clock += 2 * HOUR
            if self.tally.resubmitted == before:
                break
        self._compare()
        self.tally.requests.update(self.table.requests)
        for worker in self._idle:
            worker.stop()
        return self.tally

    def _spend(self) -> None:
        while self._agenda:
            self.clock, _, what = heapq.heappop(self._agenda)
            what()

    # S3

    def _plan(self) -> None:
        end = int(self.measured.hours * HOUR)
        names = [f"in/{number:07}" for number in range(self.measured.keys)]
        often = self.random.sample(names, self.measured.twice + self.measured.thrice)
        extra = dict.fromkeys(often[: self.measured.twice], 1) | dict.fromkeys(often[self.measured.twice :], 2)
        gaps = [self.measured.least_gap_ms, self.measured.greatest_gap_ms]
        for name in names:
            when = START + self.random.randrange(end)
            self.schedule(when, self._upload(name, extra.get(name, 0), gaps))
            again = self.random.random()
            if again < self.misfortune.overwritten:
                for _ in range(self.random.randint(1, 4)):
                    # Some follow at once, so that their notifications cross.
                    when += int(math.exp(self.random.uniform(math.log(10), math.log(6 * HOUR))))
                    self.schedule(when, self._upload(name, 0, gaps))
            elif again < self.misfortune.overwritten + self.misfortune.removed:
                self.schedule(when + self.random.randrange(1, DAY), self._upload(name, 0, gaps, marker=True))

    def _upload(self, name: str, extra: int, gaps: list[int], *, marker: bool = False) -> Callable[[], None]:
        def happen() -> None:
            version = self.s3.delete(name) if marker else self.s3.put(name, _OBJECT)
            body = _notification(name, cast("Version", version), self.clock)
            self.tally.notifications += 1
            if self.random.random() < self.misfortune.lost:
                self.tally.lost += 1
            else:
                self._send(body, self.clock + self._latency())
            low, high = math.log(self.measured.least_gap_ms), math.log(self.measured.greatest_gap_ms)
            for _ in range(extra):
                gap = gaps.pop() if gaps else int(math.exp(self.random.uniform(low, high)))
                self.tally.notifications += 1
                self._send(body, self.clock + self._latency() + gap)

        return happen

    def _latency(self) -> int:
        """Usually within seconds, sometimes minutes."""
        return int(self.random.lognormvariate(math.log(800), 1))

    # SQS and Lambda

    def _send(self, body: str, when: int) -> None:
        self._order += 1
        self._enqueue(_Message(when, self._order, body))

    def _enqueue(self, message: _Message) -> None:
        heapq.heappush(self.queue, message)
        self.schedule(message.visible_at, self._poll)

    def _poll(self) -> None:
        while self._idle and self.queue and self.queue[0].visible_at <= self.clock:
            batch: list[_Message] = []
            while self.queue and self.queue[0].visible_at <= self.clock and len(batch) < 10:
                message = heapq.heappop(self.queue)
                message.receives += 1
                message.receipt += 1
                message.visible_at = self.clock + VISIBILITY
                self.in_flight[message.id] = message
                batch.append(message)
            worker = self._idle.pop()
            worker.begin(batch)

    def finished(self, worker: "_Worker", batch: list[_Message], failed: set[str] | None) -> None:
        """A worker is free again. `failed` is None when it died: then all come back after their visibility."""
        self._idle.append(worker)
        for message in batch:
            del self.in_flight[message.id]
            if failed is None or str(message.id) in failed:
                self.tally.redelivered += 1
                self._enqueue(message)
        self._poll()

    # The downstream

    def process(self, change: ObjectChange) -> str:
        """The team's processor: it keeps the newest version's number of each key."""
        number = _number(change.version_id)
        if self._outage[0] <= self.clock < self._outage[1]:
            raise ConnectionError("the downstream is out")
        this = change.key, number
        if this in self.begun and this not in self.excused:
            self.tally.wrong.append(f"{change.key}: version {number} processed twice")
        if number < self.downstream.get(change.key, 0):
            self.tally.wrong.append(f"{change.key}: version {number} applied after {self.downstream[change.key]}")
        self.begun.add(this)
        self.excused.discard(this)
        self.half.pop(change.key, None)
        if change.kind == "created" and not _whole(change):
            # A careless processor: it catches the error and delivers the bytes that came.
            self.half[change.key] = number
            self.excused.add(this)
        self.downstream[change.key] = number
        return str(number)

    def _compare(self) -> None:
        for name, versions in self.s3.keys.items():
            number = _number(versions[-1].version_id)
            if self.downstream.get(name) != number:
                self.tally.wrong.append(f"{name}: S3 holds {number}, the downstream {self.downstream.get(name)}")
        self.tally.wrong += [f"{name}: the downstream has half of {number}" for name, number in self.half.items()]
        if self.tally.dead_lettered:
            self.tally.wrong.append(f"{self.tally.dead_lettered} messages dead-lettered, and none deserved it")

    # The audit

    def _audit(self) -> None:
        s3 = cast("Any", self.s3)
        table = cast("Any", self.table)
        look = Look(
            AUDIT,
            LedgerTable(table, "table"),
            Bucket(lambda: s3, "bucket"),
            sqs=cast("Any", _SQS(self)),
            clock=lambda: self.clock,
            budget=OwnBudget(AUDIT.budget),
            heads=1,
        )
        report = Report("run", self.clock)
        window = Window(settled_before=self.clock - HOUR, known_since=self.clock - 14 * DAY)
        audit = AuditInOneFunction(AUDIT, s3, table, look, lambda: self.clock, readers=1)
        audit.run(report, window, remaining_ms=lambda: 10**9)
        self.tally.audited += report.checked
        self.tally.resubmitted += report.resubmitted


class _Worker:
    """One execution environment: a thread that runs while, and only while, it is its turn."""

    def __init__(self, simulation: Simulation, name: str) -> None:
        self._simulation = simulation
        self._name = name
        self._go, self._paused = threading.Semaphore(0), threading.Semaphore(0)
        self._batch: list[_Message] | None = []
        self._owners = 0
        self._effect: tuple[str, int] | None = None
        self._deadline = 0
        self._consumer = self._make()
        self._thread = threading.Thread(target=self._live, daemon=True)
        self._thread.start()

    def begin(self, batch: list[_Message]) -> None:
        self._batch = batch
        self._deadline = self._simulation.clock + FUNCTION_TIMEOUT
        self._resume()

    def stop(self) -> None:
        self._batch = None
        self._go.release()
        self._thread.join()

    def pause(self, milliseconds: int) -> None:
        """Called in the worker's thread: others run until this time has passed, or the worker dies meanwhile."""
        simulation = self._simulation
        if simulation.random.random() < simulation.misfortune.deaths:
            raise Killed
        simulation.schedule(simulation.clock + milliseconds, self._resume)
        self._paused.release()
        self._go.acquire()

    def get_remaining_time_in_millis(self) -> int:
        """Lambda's context."""
        return max(self._deadline - self._simulation.clock, 0)

    def _resume(self) -> None:
        self._go.release()
        self._paused.acquire()

    def _live(self) -> None:
        while True:
            self._go.acquire()
            batch = self._batch
            if batch is None:
                return
            simulation = self._simulation
            try:
                answer = self._consumer.handle({"Records": [_record(one) for one in batch]}, self)
                failed = {one["itemIdentifier"] for one in answer["batchItemFailures"]}
            except Killed:
                simulation.tally.deaths += 1
                if self._effect is not None:
                    simulation.excused.add(self._effect)
                failed = None
            self._effect = None
            # In the scheduler's turn, so that a worker never starts another.
            simulation.schedule(simulation.clock, partial(simulation.finished, self, batch, failed))
            self._paused.release()

    def _make(self) -> Consumer:
        simulation = self._simulation
        s3, sqs = cast("Any", _SlowS3(simulation, self)), cast("Any", _SQS(simulation))
        bucket = Bucket(lambda: s3, "bucket")
        options = LedgerOptions("p", Ordering.LATEST, Policy(12, 35 * DAY, deletes=True), 6 * HOUR)
        table = LedgerTable(cast("Any", _Slow(simulation.table, self)), "table")
        ledger = object_ledger(table, bucket, options, clock=lambda: simulation.clock, new_owner=self._owner)
        return object_consumer(
            Services(
                CONSUMER,
                ledger,
                bucket,
                Queues(lambda: sqs, "queue", "dlq"),
                telemetry=_Counting(simulation.tally, self),
                clock=lambda: simulation.clock,
                jitter=simulation.random.random,
            ),
            self._process,
        )

    def _owner(self) -> str:
        self._owners += 1
        return f"{self._name}.{self._owners}"

    def _process(self, change: ObjectChange) -> str:
        self.pause(self._simulation.random.randint(*self._simulation.takes_ms))
        identity = self._simulation.process(change)
        self._effect = change.key, int(identity)
        return identity

    def committed(self) -> None:
        """A death from here on repeats nothing."""
        self._effect = None


class _Slow:
    """DynamoDB as a worker sees it: each call takes a few milliseconds, before it takes effect or after."""

    def __init__(self, table: MemoryDynamoDB, worker: _Worker) -> None:
        self._table = table
        self._worker = worker

    def __getattr__(self, operation: str) -> Callable[..., Any]:
        def call(**arguments: Any) -> Any:
            self._worker.pause(3)
            answer = getattr(self._table, operation)(**arguments)
            self._worker.pause(2)
            return answer

        return call


class _SlowS3:
    """S3 as a worker sees it: each call takes a while, and some connections end in the middle of the object."""

    def __init__(self, simulation: Simulation, worker: _Worker) -> None:
        self._simulation = simulation
        self._worker = worker

    def get_object(self, **arguments: Any) -> dict[str, Any]:
        self._worker.pause(20)
        simulation = self._simulation
        simulation.tally.requests["GetObject"] += 1
        answer = simulation.s3.get_object(**arguments)
        if simulation.random.random() < simulation.misfortune.cut:
            simulation.tally.cuts += 1
            simulation.s3.cut()
        return answer

    def head_object(self, **arguments: Any) -> dict[str, Any]:
        self._worker.pause(15)
        self._simulation.tally.requests["HeadObject"] += 1
        return self._simulation.s3.head_object(**arguments)


class _SQS:
    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation

    def get_queue_attributes(self, **_: Any) -> dict[str, Any]:
        """Few messages are in flight."""
        return {"Attributes": {"ApproximateNumberOfMessagesNotVisible": "0"}}

    def change_message_visibility_batch(self, **arguments: Any) -> dict[str, Any]:
        self._simulation.tally.requests["ChangeMessageVisibilityBatch"] += 1
        for entry in arguments["Entries"]:
            message = self._simulation.in_flight[int(entry["ReceiptHandle"].partition("/")[0])]
            message.visible_at = self._simulation.clock + entry["VisibilityTimeout"] * 1000
        return {}

    def send_message(self, **arguments: Any) -> None:
        if arguments["QueueUrl"] == "queue":
            self._simulation._send(arguments["MessageBody"], self._simulation.clock)
        else:
            self._simulation.tally.dead_lettered += 1

    def send_message_batch(self, **arguments: Any) -> dict[str, Any]:
        for entry in arguments["Entries"]:
            self._simulation._send(entry["MessageBody"], self._simulation.clock)
        return {}


class _Counting(StrictTelemetry):
    def __init__(self, tally: Tally, worker: _Worker) -> None:
        """Count instead of logging."""
        self._tally = tally
        self._worker = worker

    def decided(self, change: Change, answer: Claim | Ruling, *, now: int) -> None:
        self._tally.verdicts[answer.verdict] += 1

    def ended(self, claim: Claim, outcome: OutcomeKind, reason: Reason | None = None, *, duration_ms: int) -> None:
        self._tally.outcomes[outcome] += 1
        if outcome is OutcomeKind.COMMITTED:
            self._worker.committed()

    def rejected_rows(self, claim: Claim, counts: RowCounts) -> None: ...

    def late_write(self, claim: Claim) -> None:
        self._tally.outcomes["LateWrites"] += 1

    def removed_unprocessed(self, change: Change, row: Row | None) -> None:
        self._tally.outcomes["RemovedUnprocessed"] += 1

    def exhausted(self, change: Change, row: Row) -> None:
        self._tally.outcomes[OutcomeKind.REJECTED] += 1

    def unparseable(self, reason: Reason, message_id: str) -> None:
        self._tally.wrong.append(f"unparseable: {reason}")

    def log_error(self, text: str, message_id: str, error: Exception) -> None:
        self._tally.wrong.append(f"{text}: {error!r}")

    def downstream_out(self, reason: Reason | None, *, pause_ms: int) -> None:
        self._tally.breaker["opened"] += 1

    def downstream_back(self) -> None:
        self._tally.breaker["closed"] += 1

    def waits_as_copy(self, age_ms: int) -> None: ...

    def held_back(self) -> None:
        self._tally.breaker["given back"] += 1


def _whole(change: ObjectChange) -> bool:
    try:
        return len(change.open().read()) == len(_OBJECT)
    except ObjectReadError:
        return False


def _record(message: _Message) -> dict[str, Any]:
    return {
        "messageId": str(message.id),
        "receiptHandle": f"{message.id}/{message.receipt}",
        "body": message.body,
        "attributes": {"ApproximateReceiveCount": str(message.receives)},
    }


def _number(version_id: str | None) -> int:
    """Grows over the whole bucket: later is larger."""
    return int(str(version_id).rpartition("-")[2])


def _notification(key: str, version: Version, at: int) -> str:
    return s3_notification(
        "bucket",
        key,
        event="ObjectRemoved:DeleteMarkerCreated" if version.content is None else "ObjectCreated:Put",
        version_id=version.version_id,
        etag=version.etag,
        sequencer=f"{_number(version.version_id):016X}",
        time=datetime.fromtimestamp(at / 1000, UTC),
    )
