"""One consumer of any kind, with any runner, on any host: the real code over AWS in memory."""

import io
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import count, product
from typing import Any, NamedTuple, NoReturn, cast

from cdk_intake_ledger.testing import LambdaContext, MemoryDynamoDB
from intake_ledger import NotYet, Unprocessable
from intake_ledger.aws import Bucket, Queues
from intake_ledger.consumer import Consumer, Services
from intake_ledger.events import own_message
from intake_ledger.executions import StateMachine
from intake_ledger.kinds import Kind
from intake_ledger.ledger import Ledger, LedgerOptions, LedgerTable
from intake_ledger.messages import MessageSettings, MessageSourceType
from intake_ledger.protocol import ExecutionSettings, Ordering, Origin, Policy, Row, WorkerSettings, row_key
from intake_ledger.runners import Runner
from intake_ledger.set_members import FormKind, FormSettings, Membership, SetTarget, Wakes
from intake_ledger.sets import SetSettings
from intake_ledger.worker import Worker
from tests.inside.executions import Later
from tests.inside.kit import (
    DEAD_LETTER_URL,
    MACHINE,
    QUEUE_URL,
    MemoryExecution,
    MemoryS3,
    MemorySQS,
    MemoryStepFunctions,
    OutcomeCounter,
    object_consumer,
    object_ledger,
    s3_notification,
)
from tests.inside.messages import KeyLock, Messages
from tests.inside.objects import IN_LAMBDA, Inline, Objects, Remote, remote_function
from tests.inside.sets import Sets, SetWakes
from tests.inside.workers import WorkerHost, extensions_of, make_host, watched
from tests.settings import CONSUMER
from tests.unit.support import BUCKET, HOUR, SECOND, Clock
from tests.unit.test_worker import PolledSQS

KINDS, RUNNERS, HOSTS = ("objects", "messages", "sets"), ("inline", "remote", "machine"), ("lambda", "worker")
REFUSED: set[tuple[str, str]] = set()
"""Each with its reason in `test_refused_cells`."""
CELLS = [cell for cell in product(KINDS, RUNNERS, HOSTS) if cell[:2] not in REFUSED]
HOLD_SECONDS, FUNCTION_SECONDS, VISIBILITY_SECONDS = 60, 130, 280
EXECUTION_SECONDS = 6 * 3600
LEASE_SECONDS = FUNCTION_SECONDS + CONSUMER.clock_skew_seconds
KEY = "a/manifest.json"
"""The key of an object, a set and a message."""


class Killed(KeyboardInterrupt):
    """The worker's process has ended. No code of the worker can catch it."""


class Call(NamedTuple):
    """One call of the processor, or one execution."""

    key: str
    idempotency_key: str
    attempt: int
    fence: int


class Wire:
    """AWS, as one worker reaches it: not at all, after it has died."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.dead = False

    def __getattr__(self, name: str) -> Any:
        def request(**arguments: Any) -> Any:
            if self.dead:
                raise Killed
            return getattr(self._client, name)(**arguments)

        return request


class Process(NamedTuple):
    """A worker, or an execution environment."""

    consumer: Consumer
    wire: Wire
    services: Services
    worker: Worker | None
    host: WorkerHost | None


@dataclass
class Cell:
    """The cell. Processors answer at once. Executions run until `run` or a test ends them."""

    kind: str = "objects"
    runner: str = "inline"
    host: str = "lambda"
    source: MessageSourceType = MessageSourceType.SQS
    lost_events: bool = False
    answers: list[dict[str, Any]] = field(default_factory=list)
    """The next answers, as in docs/processor-json.md. `{"fail": text}` fails. A commit when there are no more."""
    inside: Callable[[Any], object] = lambda _: None
    """Runs inside each call, before its answer."""
    calls: list[Call] = field(default_factory=list)
    given: list[Any] = field(default_factory=list)
    """The arguments of processors in this process."""
    lists: dict[str, bytes] = field(default_factory=dict)
    """The lists of parts of sets, by version."""
    on_list: Callable[[], object] = lambda: None
    """Runs before a list is stored."""
    on_start: Callable[[], object] = lambda: None
    """Runs before StartExecution is sent."""
    verdicts: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    late_writes: int = 0
    removed_unprocessed: int = 0

    def __post_init__(self) -> None:
        self.clock = Clock()
        self.s3 = MemoryS3(clock=self.clock)
        self.dynamodb = MemoryDynamoDB()
        self.sqs = PolledSQS(clock=self.clock, visibility_seconds=VISIBILITY_SECONDS)
        self.parts_queue = MemorySQS(clock=self.clock, visibility_seconds=VISIBILITY_SECONDS)
        self.machine = MemoryStepFunctions(clock=self.clock)
        self.most_running = 0
        self._owners = count(1)
        self.settings = replace(
            CONSUMER,
            pipeline="cell",
            bucket="messages:orders" if self.kind == "messages" else BUCKET,
            ordering=Ordering.EVERY_VERSION if self.kind == "messages" else Ordering.LATEST,
            queue_url=QUEUE_URL,
            dlq_url=DEAD_LETTER_URL,
            deletes=False,
            keeps_rows=self.kind != "messages",
            max_attempts=3,
            max_wait_seconds=72 * 3600,
        )
        self.process = self.start()

    # --- steps of a test

    def submit(self, event: str = "1", *, parts: tuple[str, ...] = ("a/1", "a/2")) -> None:
        """Send an object, a message or a complete set."""
        if self.kind == "messages":
            self.sqs.send(json.dumps({"order": KEY, "event": event}))
        elif self.kind == "objects":
            version = self.s3.put(KEY, event.encode())
            self.sqs.send(self._notification(KEY, version.version_id))
        else:
            for key in parts:
                self.put_part(key, event)
            self.put_part(KEY, json.dumps([f"/{key}" for key in parts]))

    def put_part(self, key: str, content: str = "1") -> None:
        """Upload an object of the parts' pipeline, which commits it and wakes the set."""
        version = self.s3.put(key, content.encode())
        self.parts_queue.send(self._notification(key, version.version_id))
        while batch := self.parts_queue.receive(10, lambda visible: visible):
            self._parts_consumer().handle({"Records": batch}, LambdaContext(600, clock=lambda: self.clock() / 1000))
            self.parts_queue.delete(one["messageId"] for one in batch)

    def duplicate(self, event: str = "1") -> None:
        """Report the present thing again."""
        if self.kind == "messages":
            self.sqs.send(json.dumps({"order": KEY, "event": event}))
        elif self.kind == "objects":
            current = self.s3.current(KEY)
            assert current is not None
            self.sqs.send(self._notification(KEY, current.version_id))
        else:
            self.sqs.send(own_message(Origin.PART, BUCKET, KEY))

    def die(self) -> NoReturn:
        """End the process of the first worker: not even its `finally` reaches AWS."""
        self.process.wire.dead = True
        raise Killed

    def turn(self, process: Process | None = None) -> int:
        """Handle the visible messages, ten at most. Returns the number of messages that were handled."""
        process = process or self.process
        try:
            return self._turn(process)
        except Killed:
            process.wire.dead = True
            self.process = self.start()
            return 1
        finally:
            self.most_running = max(self.most_running, len(self.running()))

    def end(self, execution: MemoryExecution, answer: dict[str, Any] | None = None) -> None:
        """End an execution."""
        given = execution.given
        answer = answer or (self.answers.pop(0) if self.answers else {"commit": "done"})
        self.calls.append(Call(given["key"], given["idempotencyKey"], given["attempt"], given["fence"]))
        failed = "fail" in answer
        status, details = ("FAILED", {"error": "Broken"}) if failed else ("SUCCEEDED", {"output": answer})
        body = self.machine.end(execution.name, status, **cast("Any", details))
        if not self.lost_events and self.kind != "messages":
            self.sqs.send(body)

    @property
    def begun(self) -> int:
        """The number of calls, or of executions."""
        return len(self.machine.executions) if self.runner == "machine" else len(self.calls)

    def running(self) -> list[MemoryExecution]:
        """The executions that run."""
        return [one for one in self.machine.executions.values() if one.status == "RUNNING"]

    def run(self, *, hours: float = 24 * 14, minutes: int = 1) -> None:
        """Handle messages until the queue is empty, or for these hours. An execution takes some minutes."""
        until, due = self.clock() + int(hours * HOUR), dict[str, int]()
        while self.clock() < until:
            while self.turn():
                pass
            for one in self.running():
                due.setdefault(one.name, self.clock() + minutes * 60 * SECOND)
            times = [due[one.name] for one in self.running()]
            if (visible := self.sqs.next_visible_at()) is not None:
                times.append(visible)
            if not times:
                return
            self.clock.now = max(self.clock.now, min([*times, until]))
            for one in self.running():
                if due.get(one.name, until) <= self.clock() < until:
                    self.end(one)
        assert hours < 24 * 14, f"not quiet: {len(self.sqs.messages)} messages"

    def row(self, event: str = "1") -> Row | None:
        """The row of the thing."""
        identity = f"v#{event}" if self.kind == "messages" else None
        place = row_key("cell", self.settings.ordering, self.settings.bucket, KEY, identity)
        return LedgerTable(cast("Any", self.dynamodb), "table").get(place)

    def known(self, event: str = "1") -> Row:
        row = self.row(event)
        assert row is not None
        return row

    # --- how a worker is made

    def start(self) -> Process:
        """A new worker, or a new execution environment."""
        wire = Wire(self.dynamodb)
        settings = WorkerSettings(hold_seconds=HOLD_SECONDS, poll_seconds=0)
        host = make_host(settings, self.settings) if self.host == "worker" else None
        kind = self._kind(wire)
        policy = Policy(
            self.settings.max_attempts,
            self.settings.retention_seconds * 1000,
            deletes=False,
            keeps_rows=self.settings.keeps_rows,
            executions=self.runner == "machine",
        )
        ledger = Ledger(
            LedgerTable(cast("Any", wire), "table"),
            kind.look,
            LedgerOptions("cell", self.settings.ordering, policy, 6 * HOUR),
            clock=self.clock,
            new_owner=self._owner,
            guards=(*kind.guards, *(host or IN_LAMBDA).guards),
        )
        queues = Queues(lambda: cast("Any", self.sqs), QUEUE_URL, DEAD_LETTER_URL, shortened=kind.shortened)
        services = Services(
            self.settings,
            ledger,
            self._bucket(),
            queues,
            OutcomeCounter(self),
            self.clock,
            lambda: 0.5,
            host=host or IN_LAMBDA,
        )
        runner = self._runner(services, host)
        if host is None:
            return Process(Consumer(services, kind, runner), wire, services, None, None)
        host.heartbeat.extensions = extensions_of(services, host)
        worker = Worker(services, kind, runner, settings, host.heartbeat, make_sqs=lambda: cast("Any", self.sqs))
        return Process(worker._consumer, wire, services, worker, host)

    def _kind(self, wire: Wire) -> Kind:
        table = LedgerTable(cast("Any", wire), "table")
        if self.kind == "objects":
            return Objects(self.settings, self._bucket())
        if self.kind == "messages":
            retention = LedgerOptions(
                "cell", Ordering.EVERY_VERSION, Policy(3, 35 * 24 * HOUR, deletes=False), 0
            ).retention
            longest = EXECUTION_SECONDS * 1000 if self.runner == "machine" else None
            lock = KeyLock(table, "cell", retention, clock=self.clock, longest_work_ms=longest)
            return Messages(MessageSettings(self.settings, self.source, "order", "event"), lock)
        form = FormSettings(FormKind.MANIFEST, "**/manifest.json")
        membership = Membership(cast("Any", wire), "table", BUCKET)
        return Sets(
            SetSettings(self.settings, form, "parts"), table, self._bucket(), membership, self.clock, lists=self
        )

    def _runner(self, services: Services, host: WorkerHost | None) -> Runner:
        if self.runner == "machine":
            times = ExecutionSettings(MACHINE, EXECUTION_SECONDS, 2 * 3600)
            return Later(services, StateMachine(lambda: self, times))

        def here(processor: Callable[[Any], Any]) -> Callable[[Any], Any]:
            return watched(processor, host.heartbeat) if host else processor

        if self.runner == "remote":
            return Remote(here(remote_function(lambda: cast("Any", self), "function")))
        return Inline(here(self._inline))

    # --- the processors

    def _inline(self, given: Any) -> str:
        self.given.append(given)
        self.calls.append(Call(given.key, given.idempotency_key, given.attempt, given.fence))
        self.inside(given)
        answer = self.answers.pop(0) if self.answers else {"commit": "done"}
        if "fail" in answer:
            raise ValueError(answer["fail"])
        if "unprocessable" in answer:
            raise Unprocessable(answer["unprocessable"])
        if "notYet" in answer:
            raise NotYet(answer["notYet"])
        return str(answer["commit"])

    def invoke(self, **request: Any) -> dict[str, Any]:
        """Answer as boto3's client of Lambda."""
        given = json.loads(request["Payload"])
        self.calls.append(Call(given["key"], given["idempotencyKey"], given["attempt"], given["fence"]))
        self.inside(given)
        answer = self.answers.pop(0) if self.answers else {"commit": "done"}
        if "fail" in answer:
            error = json.dumps({"errorType": "Broken", "errorMessage": answer["fail"]})
            return {"FunctionError": "Unhandled", "Payload": io.BytesIO(error.encode())}
        return {"Payload": io.BytesIO(json.dumps(answer).encode())}

    def start_execution(self, **request: Any) -> Any:
        """See `StepFunctions`."""
        self.on_start()
        return self.machine.start_execution(**request)

    def describe_execution(self, **request: Any) -> Any:
        """See `StepFunctions`."""
        return self.machine.describe_execution(**request)

    def place(self, version: str) -> dict[str, str]:
        """See `PartLists`."""
        return {"bucket": "lists", "key": f"{version}.json"}

    def put(self, version: str, content: bytes) -> None:
        """See `PartLists`."""
        self.on_list()
        assert self.lists.setdefault(version, content) == content, "a version has one list"

    # --- the rest

    def _turn(self, process: Process) -> int:
        if process.worker is not None:
            records = process.worker._receive()
            if records:
                process.worker._handle(records)
            return len(records)
        records = self.sqs.receive(10, lambda visible: visible)
        if records:
            context = LambdaContext(FUNCTION_SECONDS, clock=lambda: self.clock() / 1000)
            answer = process.consumer.handle({"Records": records}, context)
            failed = {one["itemIdentifier"] for one in answer["batchItemFailures"]}
            self.sqs.delete(one["messageId"] for one in records if one["messageId"] not in failed)
        return len(records)

    def _parts_consumer(self) -> Consumer:
        settings = replace(CONSUMER, pipeline="parts", bucket=BUCKET, deletes=False, keeps_rows=True)
        policy = Policy(3, 35 * 24 * HOUR, deletes=False, keeps_rows=True)
        table, client = LedgerTable(cast("Any", self.dynamodb), "table"), cast("Any", self.dynamodb)
        options = LedgerOptions("parts", Ordering.LATEST, policy, 6 * HOUR)
        ledger = object_ledger(table, self._bucket(), options, clock=self.clock, new_owner=self._owner)
        queues = Queues(lambda: cast("Any", self.parts_queue), QUEUE_URL, DEAD_LETTER_URL)
        services = Services(settings, ledger, self._bucket(), queues, cast("Any", _Silent()), self.clock, lambda: 0.5)
        target = SetTarget("cell", "sets", FormSettings(FormKind.MANIFEST, "**/manifest.json"))
        wakes = Wakes(
            [target], Membership(client, "table", BUCKET), bucket=BUCKET, send=lambda _, body: self.sqs.send(body)
        )
        return object_consumer(
            services, lambda _: None, sets=SetWakes(settings, services.telemetry, wakes, clock=self.clock)
        )

    def _bucket(self) -> Bucket:
        return Bucket(lambda: cast("Any", self.s3), BUCKET)

    def _notification(self, key: str, version_id: str | None) -> str:
        time = datetime.fromtimestamp(self.clock() / 1000, UTC)
        return s3_notification(BUCKET, key, version_id=version_id, etag="e", size=1, time=time)

    def _owner(self) -> str:
        return f"owner-{next(self._owners)}"


class _Silent:
    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None
