"""One consumer of any kind, with any runner, on any host: the real code over AWS in memory."""

import io
import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, cast

from cdk_intake_ledger.testing import LambdaContext, MemoryDynamoDB
from intake_ledger import NotYet, Unprocessable
from intake_ledger.aws import Bucket, Queues
from intake_ledger.consumer import Consumer, Services
from intake_ledger.events import own_message
from intake_ledger.executions import StateMachine
from intake_ledger.kinds import Kind
from intake_ledger.ledger import Ledger, LedgerOptions, LedgerTable
from intake_ledger.messages import MessageSettings, MessageSourceType
from intake_ledger.protocol import (
    LAST_TRY_SHARE,
    ExecutionSettings,
    Ordering,
    Origin,
    Policy,
    Row,
    State,
    StateKind,
    WorkerSettings,
    last_try_seconds,
    row_key,
    success_key,
    ulid,
)
from intake_ledger.runners import Runner
from intake_ledger.set_members import FormKind, FormSettings, Membership, SetTarget, Wakes
from intake_ledger.sets import SetSettings
from intake_ledger.worker import Worker
from tests.inside.audits import AuditInOneFunction, Look, OwnBudget, Report, Window
from tests.inside.executions import Later
from tests.inside.kit import (
    DEAD_LETTER_URL,
    MACHINE,
    QUEUE_URL,
    MemoryExecution,
    MemoryS3,
    MemoryShard,
    MemorySQS,
    MemoryStepFunctions,
    OutcomeCounter,
    object_consumer,
    object_ledger,
    s3_notification,
)
from tests.inside.messages import KeyLock, Messages, RowCheck
from tests.inside.objects import IN_LAMBDA, Inline, Objects, Remote, remote_function
from tests.inside.sets import SetAudit, Sets, SetWakes, WaitingSets
from tests.inside.workers import WorkerHost, extensions_of, make_host, watched
from tests.settings import AUDIT, CONSUMER
from tests.unit.support import BUCKET, HOUR, SECOND, Clock

if TYPE_CHECKING:
    from intake_ledger.observability import Telemetry


class Form(NamedTuple):
    """A kind, and its differences within the runtime."""

    kind: str
    ordering: Ordering = Ordering.LATEST
    source: MessageSourceType = MessageSourceType.SQS


FORMS = {
    "objects": Form("objects"),
    "every version": Form("objects", Ordering.EVERY_VERSION),
    "sets": Form("sets"),
    "messages": Form("messages", Ordering.EVERY_VERSION),
    "FIFO messages": Form("messages", Ordering.EVERY_VERSION, MessageSourceType.FIFO),
    "stream records": Form("messages", Ordering.EVERY_VERSION, MessageSourceType.KINESIS),
}
"""The kinds by name."""
RUNNERS, HOSTS = ("inline", "remote", "machine"), ("lambda", "worker")
HOLD_SECONDS, FUNCTION_SECONDS, VISIBILITY_SECONDS = 60, 130, 280
LEASE_SECONDS = FUNCTION_SECONDS + CONSUMER.clock_skew_seconds
KEY = "a/manifest.json"
"""The key of an object, a set and a message."""


class Killed(KeyboardInterrupt):
    """The worker's process has ended. No code of the worker can catch it."""


class Call(NamedTuple):
    """One call of the processor, or one execution that has ended."""

    key: str
    idempotency_key: str
    attempt: int
    fence: int
    state: str = ""
    """The version of the object or of the set, or the identity of the message."""


class DoesNotApply(Exception):  # noqa: N818 - an answer, not an error
    """The step does not exist for this kind, runner or host."""


class Line:
    """The connection of one process to AWS."""

    def __init__(self, dies: Callable[[str], bool]) -> None:
        """Make the connection. `dies` gets the name of an operation before it, and an empty text after it."""
        self._dies = dies
        self.dead = False

    def passes(self, operation: str = "") -> None:
        """Raise `Killed` if the process is dead, or dies now."""
        self.dead = self.dead or self._dies(operation)
        if self.dead:
            raise Killed


class Wire:
    """AWS, as one worker reaches it: not at all, after it has died."""

    def __init__(self, client: Any, line: Line) -> None:
        self._client = client
        self._line = line

    def __getattr__(self, name: str) -> Any:
        def request(*plain: Any, **arguments: Any) -> Any:
            self._line.passes(name)
            try:
                return getattr(self._client, name)(*plain, **arguments)
            finally:
                self._line.passes()

        return request


class Process(NamedTuple):
    """A worker, or an execution environment."""

    consumer: Consumer
    kind: Kind
    line: Line
    services: Services
    worker: Worker | None
    host: WorkerHost | None


@dataclass
class Cell:
    """The cell. Processors answer at once. Executions run until `run` or a test ends them."""

    name: str = "objects"
    """The name of a kind in `FORMS`."""
    runner: str = "inline"
    host: str = "lambda"
    lost_events: bool = False
    crowded: bool = False
    """Many messages are in flight, so each wait is a delayed copy."""
    in_flight_limit: int = CONSUMER.in_flight_limit
    """The queue delivers nothing while this number of messages is in flight."""
    execution_days: float = 0.25
    """The limit of an execution."""
    answers: list[dict[str, Any]] = field(default_factory=list)
    """The next answers, as in docs/processor-json.md. `{"fail": text}` fails. A commit when there are no more."""
    inside: Callable[[Any], object] = lambda _: None
    """Runs inside each call, before its effect and its answer."""
    calls: list[Call] = field(default_factory=list)
    given: list[Any] = field(default_factory=list)
    """The arguments of processors in this process."""
    effects: dict[str, Call] = field(default_factory=dict)
    """The downstream: the effect of the highest fence, by key. In EVERY_VERSION, by key and version."""
    lists: dict[str, bytes] = field(default_factory=dict)
    """The lists of parts of sets, by version."""
    on_list: Callable[[], object] = lambda: None
    """Runs before a list is stored."""
    on_start: Callable[[], object] = lambda: None
    """Runs before StartExecution is sent."""
    telemetry: "Telemetry | None" = None
    """Counts verdicts and outcomes when omitted."""
    verdicts: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    late_writes: int = 0
    removed_unprocessed: int = 0
    dies: tuple[int, bool] | None = None
    """The number of the request at which the process that sends it dies. True: AWS has carried it out."""
    operations: list[str] = field(default_factory=list)
    """The requests of all processes."""

    def __post_init__(self) -> None:
        self.kind, ordering, self.source = FORMS[self.name]
        is_fifo = self.source is MessageSourceType.FIFO
        self.clock = Clock()
        self.s3 = MemoryS3(clock=self.clock)
        self.dynamodb = MemoryDynamoDB()
        queue_url, dead_letters = (f"{url}{'.fifo' if is_fifo else ''}" for url in (QUEUE_URL, DEAD_LETTER_URL))
        kept = last_try_seconds(CONSUMER.max_hold_seconds) / LAST_TRY_SHARE
        self.sqs = MemorySQS(
            clock=self.clock,
            visibility_seconds=VISIBILITY_SECONDS,
            queue_url=queue_url,
            in_flight=self.in_flight_limit,
            dead_letter_url=dead_letters,
            retention_seconds=kept if self.kind == "messages" else 14 * 86_400,
            fifo=is_fifo,
        )
        self.shard = MemoryShard(clock=self.clock, retention_seconds=kept)
        self.parts_queue = MemorySQS(clock=self.clock, visibility_seconds=VISIBILITY_SECONDS)
        self.machine = MemoryStepFunctions(clock=self.clock)
        self.most_running = 0
        self._owners = count(1)
        self.settings = replace(
            CONSUMER,
            pipeline="cell",
            bucket="messages:orders" if self.kind == "messages" else BUCKET,
            ordering=ordering,
            queue_url=queue_url,
            dlq_url=dead_letters,
            in_flight_limit=1 if self.crowded else self.in_flight_limit,
            deletes=False,
            keeps_rows=self.name in ("objects", "sets"),
            max_attempts=3,
            max_wait_seconds=72 * 3600,
        )
        self.process = self.start()

    # --- steps of a test

    def submit(self, event: str = "1", *, parts: tuple[str, ...] = ("a/1", "a/2"), sends: bool = True) -> None:
        """Send an object, a message or a complete set. Without `sends`, its message is lost."""
        if self.kind == "messages":
            if not sends:
                raise DoesNotApply
            self._send_message(event)
            return
        if self.kind == "sets":
            for key in parts:
                self.put_part(key, event)
            self.put_part(KEY, json.dumps([f"/{key}" for key in parts]))
        else:
            version = self.s3.put(KEY, event.encode())
            self.sqs.send(self._notification(KEY, version.version_id))
        if not sends:
            self.sqs.purge()

    def submit_key(self, key: str) -> None:
        """Upload an object with another key, and send its event."""
        version = self.s3.put(key, b"1")
        self.sqs.send(self._notification(key, version.version_id))

    def retry_now(self) -> None:
        """Ask to try the thing again now, as `intake-ledger retry-now` does for messages."""
        row = self.known()
        place = row_key("cell", self.settings.ordering, self.settings.bucket, KEY, row.identity)
        for key, name in ((place, "retry_at"), (success_key("cell"), "retry_now_at")):
            self.dynamodb.update_item(
                TableName="table",
                Key={"pk": {"S": key.pk}, "sk": {"S": key.sk}},
                UpdateExpression="SET #name = :now",
                ExpressionAttributeNames={"#name": name},
                ExpressionAttributeValues={":now": {"N": str(self.clock())}},
            )

    def submit_reversed(self) -> None:
        """The event of the second thing of the key comes first, and that of the first one after it was handled."""
        if self.source.is_stream or self.source is MessageSourceType.FIFO:
            raise DoesNotApply
        if self.kind != "messages":
            self.submit("1", sends=False)
        self.submit("2")
        self.run()
        self.duplicate("1")
        self.run()

    def put_part(self, key: str, content: str = "1") -> None:
        """Upload an object of the parts' pipeline, which commits it and wakes the set."""
        version = self.s3.put(key, content.encode())
        self.parts_queue.send(self._notification(key, version.version_id))
        while (visible := self.parts_queue.next_visible_at()) is not None:
            self.clock.now = max(self.clock.now, visible)
            batch = self.parts_queue.receive(10, lambda visible: visible)
            context = LambdaContext(FUNCTION_SECONDS, clock=lambda: self.clock() / 1000)
            try:
                self._parts_consumer().handle({"Records": batch}, context)
            except Killed:
                continue
            self.parts_queue.delete(one["messageId"] for one in batch)

    def duplicate(self, event: str = "1") -> None:
        """Report the present thing again. An `event` of objects is the number of its upload."""
        if self.kind == "messages":
            self._send_message(event)
        elif self.kind == "objects":
            versions = self.s3.keys[KEY]
            self.sqs.send(self._notification(KEY, versions[min(int(event), len(versions)) - 1].version_id))
        else:
            self.sqs.send(own_message(Origin.PART, BUCKET, KEY))

    def die(self) -> NoReturn:
        """End the process of the first worker: not even its `finally` reaches AWS."""
        self.process.line.dead = True
        raise Killed

    def turn(self, process: Process | None = None) -> int:
        """Handle the visible messages, ten at most. Returns the number of messages that were handled."""
        process = process or self.process
        try:
            return self._turn(process)
        except Killed:
            process.line.dead = True
            self.process = self.start()
            return 1
        finally:
            self.most_running = max(self.most_running, len(self.running()))

    def end(self, execution: MemoryExecution, answer: dict[str, Any] | None = None) -> None:
        """End an execution."""
        answer = answer or (self.answers.pop(0) if self.answers else {"commit": "done"})
        call = _call(execution.given)
        self.calls.append(call)
        self._land(call)
        failed = "fail" in answer
        status, details = ("FAILED", {"error": "Broken"}) if failed else ("SUCCEEDED", {"output": answer})
        body = self.machine.end(execution.name, status, **cast("Any", details))
        if not self.lost_events and self.kind != "messages":
            self.sqs.send(body)

    def lose(self) -> None:
        """Delete all messages, as a purge does."""
        self.sqs.purge()
        self.shard.records.clear()

    def redrive(self) -> None:
        """Move the messages of the dead-letter queue back to the queue."""
        self.sqs.redrive()

    def reprocess(self, event: str = "1") -> None:
        """Ask to process the present state again, as `intake-ledger reprocess` does."""
        if self.kind == "messages":
            raise DoesNotApply
        state = None
        if self.settings.ordering is Ordering.EVERY_VERSION:
            version = self.s3.keys[KEY][int(event) - 1]
            state = State(StateKind.OBJECT, version.version_id, version.etag, len(version.content or b""))
        request = ulid(self.clock(), next(self._owners))
        self.sqs.send(own_message(Origin.REPROCESS, BUCKET, KEY, state, reprocess_id=request))

    def check(self) -> list[str]:
        """Run the audit of the kind, or its check of rows. Returns the keys of its findings."""
        if self.kind == "messages":
            client, name = cast("Any", self.dynamodb), self.settings.bucket
            check = RowCheck(client, table="table", pipeline="cell", bucket=name, clock=self.clock)
            return check.run(lambda: 600.0).keys
        if self.kind == "sets":
            process = self.start()
            kind = cast("Sets", process.kind)
            waiting = WaitingSets(cast("Any", self.dynamodb), "table")
            audit = SetAudit(kind.settings, process.services, waiting, reader=kind.reader, rows=self._table())
            return audit.run(lambda: 600.0).woken
        return self._audit()

    @property
    def source_messages(self) -> int:
        """The number of messages that no one has finished."""
        return len(self.sqs.messages) + len(self.shard.records)

    @property
    def expired(self) -> int:
        """The number of messages that the source deleted before they were finished."""
        return len(self.sqs.expired) + len(self.shard.expired)

    @property
    def _execution_seconds(self) -> int:
        return round(self.execution_days * 86_400)

    @property
    def begun(self) -> int:
        """The number of calls, or of executions."""
        return len(self.machine.executions) if self.runner == "machine" else len(self.calls)

    def running(self) -> list[MemoryExecution]:
        """The executions that run."""
        return [one for one in self.machine.executions.values() if one.status == "RUNNING"]

    def run(self, *, hours: float = 24 * 30, minutes: int = 1) -> None:
        """Handle messages until the queue is empty, or for these hours. An execution takes some minutes."""
        until, due = self.clock() + int(hours * HOUR), dict[str, int]()
        while self.clock() < until:
            while self.turn():
                pass
            for one in self.running():
                due.setdefault(one.name, self.clock() + minutes * 60 * SECOND)
            times = [due[one.name] for one in self.running()]
            times += [one.visible_at for one in self.sqs.messages if one.visible_at > self.clock()]
            if (at := self.shard.next_at()) is not None:
                times.append(at)
            if not times:
                return
            self.clock.now = max(self.clock.now, min([*times, until]))
            for one in self.running():
                if due.get(one.name, until) <= self.clock() < until:
                    self.end(one)
        assert hours < 24 * 30, f"not quiet: {self.source_messages} messages"

    def row(self, event: str = "1") -> Row | None:
        """The row of the thing."""
        identity = f"v#{event}" if self.kind == "messages" else None
        if self.name == "every version":
            identity = f"v#{self.s3.keys[KEY][int(event) - 1].version_id}"
        return self._table().get(row_key("cell", self.settings.ordering, self.settings.bucket, KEY, identity))

    def known(self, event: str = "1") -> Row:
        row = self.row(event)
        assert row is not None
        return row

    # --- how a worker is made

    def start(self) -> Process:
        """A new worker, or a new execution environment."""
        line = Line(self._dies)
        sqs = Wire(self.sqs, line)
        settings = WorkerSettings(hold_seconds=HOLD_SECONDS, poll_seconds=0)
        host = make_host(settings, self.settings) if self.host == "worker" else None
        table, bucket = LedgerTable(cast("Any", Wire(self.dynamodb, line)), "table"), self._bucket(line)
        kind = self._kind(line, table, bucket)
        ledger = Ledger(
            table,
            kind.look,
            LedgerOptions(
                "cell", self.settings.ordering, Policy.of(self.settings, executions=self.runner == "machine"), 6 * HOUR
            ),
            clock=self.clock,
            new_owner=self._owner,
            guards=(*kind.guards, *(host or IN_LAMBDA).guards),
        )
        services = Services(
            self.settings,
            ledger,
            bucket,
            Queues(lambda: cast("Any", sqs), self.settings.queue_url, self.settings.dlq_url, shortened=kind.shortened),
            self.telemetry or OutcomeCounter(self),
            self.clock,
            lambda: 0.5,
            host=host or IN_LAMBDA,
        )
        runner = self._runner(services, host, line)
        if host is None:
            return Process(Consumer(services, kind, runner), kind, line, services, None, None)
        host.heartbeat.extensions = extensions_of(services, host)
        worker = Worker(services, kind, runner, settings, host.heartbeat, make_sqs=lambda: cast("Any", sqs))
        return Process(worker._consumer, kind, line, services, worker, host)

    def _dies(self, operation: str) -> bool:
        if operation:
            self.operations.append(operation)
        dies = self.dies == (len(self.operations), not operation)
        if dies:
            self.dies = None
        return dies

    def _kind(self, line: Line, table: LedgerTable, bucket: Bucket) -> Kind:
        if self.kind == "objects":
            return Objects(self.settings, bucket)
        if self.kind == "messages":
            retention = LedgerOptions(
                "cell", Ordering.EVERY_VERSION, Policy(3, 35 * 24 * HOUR, deletes=False), 0
            ).retention
            longest = self._execution_seconds * 1000 if self.runner == "machine" else None
            lock = KeyLock(table, "cell", retention, clock=self.clock, longest_work_ms=longest)
            settings = MessageSettings(self.settings, self.source, "order", "event")
            return Messages(settings, lock, sleep=self._sleep)
        form = FormSettings(FormKind.MANIFEST, "**/manifest.json")
        membership = Membership(cast("Any", Wire(self.dynamodb, line)), "table", BUCKET)
        settings_ = SetSettings(self.settings, form, "parts")
        return Sets(settings_, table, bucket, membership, self.clock, lists=cast("Any", Wire(self, line)))

    def _runner(self, services: Services, host: WorkerHost | None, line: Line) -> Runner:
        here = cast("Any", Wire(self, line))
        if self.runner == "machine":
            times = ExecutionSettings(MACHINE, self._execution_seconds, 2 * 3600)
            return Later(services, StateMachine(lambda: here, times), sleep=self._sleep)

        def watches(processor: Callable[[Any], Any]) -> Callable[[Any], Any]:
            return watched(processor, host.heartbeat) if host else processor

        if self.runner == "remote":
            return Remote(watches(remote_function(lambda: here, "function")))
        return Inline(watches(self._inline))

    # --- the processors

    def _inline(self, given: Any) -> object:
        self.given.append(given)
        state = given.identity if self.kind == "messages" else given.version if self.kind == "sets" else None
        call = Call(given.key, given.idempotency_key, given.attempt, given.fence, state or given.version_id)
        self.calls.append(call)
        self.inside(given)
        self._land(call)
        answer = self.answers.pop(0) if self.answers else {"commit": "done"}
        if "fail" in answer:
            raise ValueError(answer["fail"])
        if "unprocessable" in answer:
            raise Unprocessable(answer["unprocessable"])
        if "notYet" in answer:
            raise NotYet(answer["notYet"], retry_in=cast("Any", answer.get("retryInSeconds")))
        return answer["commit"]

    def invoke(self, **request: Any) -> dict[str, Any]:
        """Answer as boto3's client of Lambda."""
        given = json.loads(request["Payload"])
        call = _call(given)
        self.calls.append(call)
        self.inside(given)
        self._land(call)
        answer = self.answers.pop(0) if self.answers else {"commit": "done"}
        if "fail" in answer:
            error = json.dumps({"errorType": "Broken", "errorMessage": answer["fail"]})
            return {"FunctionError": "Unhandled", "Payload": io.BytesIO(error.encode())}
        return {"Payload": io.BytesIO(json.dumps(answer).encode())}

    def _land(self, call: Call) -> None:
        """Write the effect, unless a later attempt has written. In EVERY_VERSION, each version has an effect."""
        place = f"{call.key}@{call.state}" if self.name == "every version" else call.key
        if (there := self.effects.get(place)) is None or there.fence <= call.fence:
            self.effects[place] = call

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
        if records := self.sqs.receive(10, lambda visible: visible):
            failed = self._invoke(process, records)
            self.sqs.delete(one["messageId"] for one in records if one["messageId"] not in failed)
            return len(records)
        if shard := self.shard.receive(10):
            try:
                self.shard.passed(shard, self._invoke(process, shard))
            except Killed:
                self.shard.passed(shard, None)
                raise
        return len(shard)

    def _invoke(self, process: Process, records: list[dict[str, Any]]) -> list[str]:
        context = LambdaContext(FUNCTION_SECONDS, clock=lambda: self.clock() / 1000)
        answer = process.consumer.handle({"Records": records}, context)
        return [one["itemIdentifier"] for one in answer["batchItemFailures"]]

    def _send_message(self, event: str) -> None:
        body = json.dumps({"order": KEY, "event": event})
        if self.source.is_stream:
            self.shard.send(body, KEY)
        else:
            self.sqs.send(body, group=KEY)

    def _audit(self) -> list[str]:
        settings = replace(AUDIT, pipeline="cell", bucket=BUCKET, ordering=self.settings.ordering, deletes=False)
        s3, dynamodb, sqs = (cast("Any", one) for one in (self.s3, self.dynamodb, self.sqs))
        report = Report("run", self.clock())
        look = Look(
            replace(settings, queue_url=QUEUE_URL),
            self._table(),
            self._bucket(),
            sqs=sqs,
            clock=self.clock,
            budget=OwnBudget(1_000),
            heads=1,
        )
        window = Window(self.clock() - HOUR, self.clock() - 14 * 24 * HOUR)
        AuditInOneFunction(settings, s3, dynamodb, look, self.clock, readers=1).run(
            report, window, remaining_ms=lambda: 600_000
        )
        return [str(one["key"]) for one in report.findings]

    def _parts_consumer(self) -> Consumer:
        settings = replace(CONSUMER, pipeline="parts", bucket=BUCKET, deletes=False, keeps_rows=True)
        line = Line(self._dies)
        client, bucket = cast("Any", Wire(self.dynamodb, line)), self._bucket(line)
        options = LedgerOptions("parts", Ordering.LATEST, Policy.of(settings), 6 * HOUR)
        ledger = object_ledger(LedgerTable(client, "table"), bucket, options, clock=self.clock, new_owner=self._owner)
        queues = Queues(lambda: cast("Any", Wire(self.parts_queue, line)), QUEUE_URL, DEAD_LETTER_URL)
        services = Services(settings, ledger, bucket, queues, cast("Any", _Silent()), self.clock, lambda: 0.5)
        target = SetTarget("cell", "sets", FormSettings(FormKind.MANIFEST, "**/manifest.json"))
        woken = Wire(self.sqs, line)
        wakes = Wakes(
            [target], Membership(client, "table", BUCKET), bucket=BUCKET, send=lambda _, body: woken.send(body)
        )
        return object_consumer(
            services, lambda _: None, sets=SetWakes(settings, services.telemetry, wakes, clock=self.clock)
        )

    def _table(self) -> LedgerTable:
        return LedgerTable(cast("Any", self.dynamodb), "table")

    def _bucket(self, line: Line | None = None) -> Bucket:
        return Bucket(lambda: cast("Any", Wire(self.s3, line) if line else self.s3), BUCKET)

    def _notification(self, key: str, version_id: str | None) -> str:
        time = datetime.fromtimestamp(self.clock() / 1000, UTC)
        return s3_notification(BUCKET, key, version_id=version_id, etag="e", size=1, time=time)

    def _sleep(self, seconds: float) -> None:
        self.clock.advance(round(seconds * 1000))

    def _owner(self) -> str:
        return f"owner-{next(self._owners)}"


def _call(given: Mapping[str, Any]) -> Call:
    return Call(given["key"], given["idempotencyKey"], given["attempt"], given["fence"], given["versionId"])


class _Silent:
    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None
