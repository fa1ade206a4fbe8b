"""One consumer of any kind, with any runner, on any host: the testing kit, and the steps that all cells share."""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, cast

from cdk_intake_ledger.testing import Killed, LocalMessages, LocalPipeline, LocalRunner, LocalSets, LocalWorker
from intake_ledger import NotYet, Unprocessable
from intake_ledger.events.parser import own_message
from intake_ledger.kinds.sets import Sets
from intake_ledger.ledger.dynamodb_table import LedgerTable
from intake_ledger.messages.row_check import check_requests
from intake_ledger.protocol.change import Origin, State, StateKind
from intake_ledger.protocol.commit_tag import CommitTag
from intake_ledger.protocol.row import Ordering, Row, rate_key, row_key, success_key
from intake_ledger.protocol.settings import ConsumerSettings, environment_of
from intake_ledger.protocol.settings_durable import DurableSettings
from intake_ledger.protocol.settings_executions import ExecutionSettings
from intake_ledger.protocol.ulids import ulid
from intake_ledger.requests.check import RequestCheck, RequestFindings
from intake_ledger.requests.record import Command, Entry, RequestBatch, batch_item, batch_key
from intake_ledger.requests.redriven import Redriven, packed
from intake_ledger.requests.stop import Stop
from intake_ledger_cli.aws.dead_letters import DeadLetterMessage
from intake_ledger_testing.local_worker import HOLD_SECONDS
from intake_ledger_testing.memory_shard import MemoryShard
from intake_ledger_testing.memory_step_functions import MemoryExecution
from tests.known import known
from tests.settings import CONSUMER
from tests.unit.support import HOUR, SECOND

if TYPE_CHECKING:
    from intake_ledger.observability.telemetry import Telemetry

KEY = "a/manifest.json"
"""The key of an object, a set and a message."""
RUNNERS, HOSTS = ("inline", "remote", "machine", "durable"), ("lambda", "worker")
LATER = ("machine", "durable")
"""The runners whose work answers later."""
PLACES = {"machine": ExecutionSettings, "durable": DurableSettings}
"""Their settings."""
LEASE_SECONDS = 130 + 120
Process = LocalWorker
__all__ = ["FORMS", "HOLD_SECONDS", "HOSTS", "KEY", "LEASE_SECONDS", "RUNNERS", "Call", "Cell", "Killed", "Process"]


MOST_TURNS = 12_000
"""Turns of a run, after which a cell never comes to rest. A record of a stream that always fails takes half of them."""


class Form(NamedTuple):
    """A kind, and its differences within the runtime."""

    kind: str
    ordering: Ordering = Ordering.LATEST
    source: str = ""


FORMS = {
    "objects": Form("objects"),
    "every version": Form("objects", Ordering.EVERY_VERSION),
    "sets": Form("sets"),
    "messages": Form("messages", Ordering.EVERY_VERSION, "sqs"),
    "FIFO messages": Form("messages", Ordering.EVERY_VERSION, "fifo"),
    "stream records": Form("messages", Ordering.EVERY_VERSION, "kinesis"),
}
"""The kinds by name."""


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
    per_call: int = 1
    """The most things in one call of the processor."""
    execution_days: float = 0.25
    """The limit of an execution."""
    keep_rejects: bool = False
    """The stack has named a place for rejected rows, if the kind has one."""
    exclusive_by: str = ""
    """The groups of keys. There are none when omitted."""
    parts_die: bool = False
    """The workers of the pipeline of the parts may die too."""
    max_wait: int = 72 * 3600
    """Seconds."""
    max_rate: float | None = None
    """Starts per second."""
    after_commit: CommitTag | None = None
    """The tag of committed versions."""
    deletes: bool = False
    """The processor of objects is told of removals."""
    answers: list[dict[str, Any]] = field(default_factory=list)
    """The next answers, as in docs/processor.md. `{"fail": text}` fails. A commit when there are no more."""
    inside: Callable[[Any], object] = lambda _: None
    """Runs inside each call, before its effect and its answer."""
    calls: list[Call] = field(default_factory=list)
    given: list[Any] = field(default_factory=list)
    """The arguments of processors in this process."""
    effects: dict[str, Call] = field(default_factory=dict)
    """The downstream: the effect of the highest fence, by key. In EVERY_VERSION, by key and version."""
    on_list: Callable[[], object] = lambda: None
    """Runs before a list is stored."""
    on_start: Callable[[], object] = lambda: None
    """Runs before StartExecution is sent."""
    operation: str = ""
    """The ID of the last redrive or reprocess."""
    telemetry: "Telemetry | None" = None
    """Counts verdicts and outcomes when omitted."""
    kit: dict[str, Any] = field(default_factory=dict)
    """Further options of `LocalPipeline`, `LocalMessages` or `LocalSets`."""

    def __post_init__(self) -> None:
        self.kind, self.ordering, self._source = FORMS[self.name]
        self._numbers = count()
        options: Any = {"runner": LocalRunner(self.runner), "worker": self.host == "worker", "max_attempts": 3}
        options |= self.kit
        self.local: LocalPipeline | LocalMessages | LocalSets
        self.shard = MemoryShard(clock=lambda: 0)
        process: Any = self._process
        if self.per_call > 1:
            options["max_per_call"], process = self.per_call, self._process_together
        if self.kind == "messages":
            self.local = LocalMessages(process, key="order", identity="event", source=self._source, **options)
            self.shard = self.local._shard
        elif self.kind == "sets":
            options["keep_rejects"] = self.keep_rejects
            self.local = LocalSets(self._process, manifest="**/manifest.json", **options)
        else:
            options |= {"keep_rejects": self.keep_rejects, "deletes": self.deletes}
            self.local = LocalPipeline(process, ordering=self.ordering, **options)
        local: Any = self.local
        local._environment |= environment_of(
            ConsumerSettings,
            keeps_rows=self.ordering is Ordering.LATEST,
            max_wait_seconds=self.max_wait,
            max_rate=self.max_rate,
            after_commit=json.dumps([self.after_commit.key, self.after_commit.value]) if self.after_commit else None,
            in_flight_limit=1 if self.crowded else self.in_flight_limit,
            # The consumer refuses groups of messages.
            exclusive_by=self.exclusive_by if self.exclusive_by and self.kind != "messages" else None,
        )
        local._sqs._in_flight = self.in_flight_limit
        seconds, settings = round(self.execution_days * 86_400), PLACES.get(self.runner)
        if settings is not None:
            local._environment |= environment_of(settings, execution_seconds=seconds)
        put = local._outputs.put_object
        local._outputs.put_object = lambda **request: self._put_noted(put, request)
        counter = local._make_telemetry
        local._make_telemetry = lambda: self.telemetry or counter()
        operation = "invoke" if self.runner == "durable" else "start_execution"
        ended = local._ended
        setattr(local._elsewhere, operation, lambda **request: self._start_noted(operation, request))
        local._ended = lambda body: None if self.lost_events else ended(body)
        self.clock, self.sqs, self.s3 = self.local.clock, self.local._sqs, self.local._s3
        self.dynamodb, self.machine = self.local._dynamodb, cast("Any", self.local.executions)
        self.later = self.local._runner.answers_later
        self.settings = self.local._settings
        self.most_running = 0
        self.process = self.start()

    def _put_noted(self, put: Callable[..., Any], request: dict[str, Any]) -> Any:
        if self.kind == "sets" and request["Bucket"] == "lists":
            self.on_list()
            stored = self.lists.get(request["Key"].removesuffix(".json"))
            assert stored in (None, request["Body"]), "a version has one list"
        return put(**request)

    def _start_noted(self, operation: str, request: dict[str, Any]) -> Any:
        self.on_start()
        return getattr(self.local.executions, operation)(**request)

    # --- steps of a test

    def submit(self, event: str = "1", *, parts: tuple[str, ...] = ("a/1", "a/2"), sends: bool = True) -> None:
        """Send an object, a message or a complete set. Without `sends`, its message is lost."""
        if isinstance(self.local, LocalMessages):
            if not sends:
                raise DoesNotApply
            self.duplicate(event)
            return
        if isinstance(self.local, LocalSets):
            for key in parts:
                self.put_part(key, event)
            self.put_part(KEY, json.dumps([f"/{key}" for key in parts]))
        else:
            self.local.put(KEY, event)
        if not sends:
            self.sqs.purge()

    def submit_key(self, key: str) -> None:
        """Send an object, a message, or a set of one part, with another key."""
        if isinstance(self.local, LocalMessages):
            self.local.send({"order": key, "event": "1"}, group=key)
        elif isinstance(self.local, LocalSets):
            self.put_part(f"{key}.part", "1")
            self.put_part(key, json.dumps([f"/{key}.part"]))
        else:
            self.local.put(key, "1")

    def row_of(self, key: str) -> Row:
        """The row of the newest thing with this key."""
        assert not isinstance(self.local, LocalMessages)
        return known(self.local.row(key))

    def retry_now(self) -> None:
        """Ask to try the thing again now, as `intake-ledger retry --waiting` does for messages."""
        row, pipeline = self.known(), self.settings.pipeline
        place = row_key(pipeline, self.ordering, self.settings.bucket, KEY, row.identity)
        for key, name in ((place, "retry_at"), (success_key(pipeline), "retry_now_at")):
            self.dynamodb.update_item(
                TableName=self.settings.table,
                Key={"pk": {"S": key.pk}, "sk": {"S": key.sk}},
                UpdateExpression="SET #name = :now",
                ExpressionAttributeNames={"#name": name},
                ExpressionAttributeValues={":now": {"N": str(self.clock())}},
            )

    def submit_reversed(self) -> None:
        """The event of the second thing of the key comes first, and that of the first one after it was handled."""
        if self._source in ("fifo", "kinesis"):
            raise DoesNotApply
        if self.kind != "messages":
            self.submit("1", sends=False)
        self.submit("2")
        self.run()
        self.duplicate("1")
        self.run()

    def put_part(self, key: str, content: str = "1") -> None:
        """Upload an object of the parts' pipeline, which commits it and wakes the set."""
        assert isinstance(self.local, LocalSets)
        self.local.put(key, content)
        death, self.local._death = self.local._death, None
        if death and self.parts_die:
            self.local._death = death
        before = len(self.local.requests)
        self.local.parts.run()
        if death and not self.parts_die:
            number, after = death
            self.local._death = number + len(self.local.requests) - before, after

    def duplicate(self, event: str = "1") -> None:
        """Report the present thing again. An `event` of objects is the number of its upload."""
        if isinstance(self.local, LocalMessages):
            self.local.send({"order": KEY, "event": event}, group=KEY)
        elif isinstance(self.local, LocalSets):
            self.local.wake(KEY)
        else:
            version = self._version(event)
            self.local._notify(KEY, "ObjectCreated:Put", version.version_id, version)

    def correct(self) -> None:
        """Send other content under the name of the first thing: a newer version, or a message with its identity."""
        if isinstance(self.local, LocalMessages):
            self.local.send({"order": KEY, "event": "1", "pieces": 2}, group=KEY)
        else:
            self.submit("2")

    def die(self) -> NoReturn:
        """End the process of the first worker: not even its `finally` reaches AWS."""
        self.process.die()
        raise AssertionError

    def turn(self, process: Process | None = None) -> int:
        """Handle the visible messages, ten at most. Returns the number of messages that were handled."""
        process = process or self.process
        try:
            return self.local.turn(process)
        finally:
            self.most_running = max(self.most_running, len(self.running()))
            if self.process.connection.dead:
                self.process = self.start()

    def end(self, execution: MemoryExecution, answer: dict[str, Any] | None = None) -> None:
        """End an execution."""
        if answer:
            self.answers.insert(0, answer)
        self.local.end(execution)

    def use_up(self, seconds: int) -> None:
        """Take all starts of this time from now on, as other workers of a pipeline with a rate do."""
        key = rate_key(self.settings.pipeline)
        table = LedgerTable(cast("Any", self.dynamodb), self.settings.table)
        table.write(key, {"starts_until": (self.clock() + seconds * SECOND) * 1_000})

    def lose(self) -> None:
        """Delete all messages, as a purge does."""
        self.sqs.purge()
        self.shard.records.clear()

    def redrive(self) -> None:
        """Move the messages of the dead-letter queue back to the queue, as `intake-ledger retry` does."""
        every_version = self.ordering is Ordering.EVERY_VERSION
        letters = [
            DeadLetterMessage(
                "", one.body, {name: {"StringValue": str(value)} for name, value in one.attributes.items()}, "", 0
            )
            for one in self.sqs.dead_letters
        ]
        entries = [entry for one in letters if (entry := one.entry(every_version=every_version)) is not None]
        request_id = ulid(self.clock(), next(self._numbers))
        self._record(Command.REDRIVE, request_id, entries)
        self.sqs.dead_letters = [
            replace(one, attributes=_plain(packed(request_id, Redriven("", one.attributes).typed) or {}))
            for one in self.sqs.dead_letters
        ]
        self.local.redrive()
        self.operation = request_id

    def reprocess(self, event: str = "1", *, keys: Sequence[str] = (KEY,)) -> None:
        """Ask to process the present states again, as `intake-ledger retry --again` does."""
        if self.kind == "messages":
            raise DoesNotApply
        self.operation, entries = ulid(self.clock(), next(self._numbers)), list[Entry]()
        for key in keys:
            state = None
            if self.ordering is Ordering.EVERY_VERSION:
                version = self._version(event, key)
                state = State(StateKind.OBJECT, version.version_id, version.etag, len(version.content or b""))
            entries.append(Entry(key, state=state))
        self._record(Command.REPROCESS, self.operation, entries)
        for one in entries:
            body = own_message(Origin.REPROCESS, self.settings.bucket, one.key, one.state, reprocess_id=self.operation)
            self.sqs.send(body)

    def stop(self) -> None:
        """Stop the last redrive or reprocess, as `intake-ledger` does."""
        stop = Stop(self.operation, self.clock(), "me", "the wrong fix")
        LedgerTable(cast("Any", self.dynamodb), self.settings.table).write(stop.key(self.settings.pipeline), stop.item)

    def _record(self, command: Command, request_id: str, entries: list[Entry]) -> None:
        batch = RequestBatch(request_id, "1", command, self.clock(), entries)
        table = LedgerTable(cast("Any", self.dynamodb), self.settings.table)
        table.write(batch_key(self.settings.pipeline, batch), batch_item(batch, made_at=self.clock()))

    def check_requests(self) -> RequestFindings:
        """Look at the requests of people that are two hours old, as the audit of the kind does."""
        client, services, kind = cast("Any", self.dynamodb), self.process.services, self.process.kind
        if isinstance(self.local, LocalMessages):
            now = self.clock()
            return check_requests(client, self.settings, services.queues, now=now, has_time=lambda: True)

        def look(key: str, state: State | None, row: Row | None) -> State:
            return kind.reader.look(key, row) if isinstance(kind, Sets) else services.bucket.look_at(key, state)

        check = RequestCheck(client, services.queues, self.settings, clock=self.clock, look=look)
        return check.run(check.due(self.clock() - 2 * HOUR), has_time=lambda: True)

    def check(self) -> list[str]:
        """Run the audit of the kind, or its check of rows. Returns the keys of its findings."""
        if isinstance(self.local, LocalMessages):
            return self.local.check_rows()
        return self.local.audit() if isinstance(self.local, LocalSets) else self.local.run_audit()

    @property
    def lists(self) -> dict[str, bytes]:
        """The lists of parts of sets, by version."""
        assert isinstance(self.local, LocalSets)
        return self.local.lists

    @property
    def source_messages(self) -> int:
        """The number of messages that no one has finished."""
        return self.local.waiting

    @property
    def expired(self) -> int:
        """The number of messages that the source deleted before they were finished."""
        return self.local.expired

    @property
    def outcomes(self) -> Counter[str]:
        """The outcomes of claims."""
        return self.local.outcomes

    @property
    def verdicts(self) -> Counter[str]:
        """The verdicts of the ledger."""
        return self.local.verdicts

    @property
    def late_writes(self) -> int:
        """The number of late writes that workers have reported."""
        return self.local.late_writes

    @property
    def begun(self) -> int:
        """The number of calls, or of executions."""
        return len(self.machine.executions) if self.later else len(self.calls)

    def running(self) -> list[MemoryExecution]:
        """The executions that run."""
        return self.local.running()

    def run(self, *, hours: float = 24 * 30, minutes: int = 1) -> None:
        """Handle messages until the queue is empty, or for these hours. An execution takes some minutes."""
        until, due, turns = self.clock() + int(hours * HOUR), dict[str, int](), count(1)
        while self.clock() < until:
            while self.turn():
                assert next(turns) < MOST_TURNS, "messages come back again and again"
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
        if isinstance(self.local, LocalMessages):
            return self.local.row(KEY, event)
        if self.name == "every version" and isinstance(self.local, LocalPipeline):
            return self.local.row(KEY, self._version(event).version_id)
        return self.local.row(KEY)

    def known(self, event: str = "1") -> Row:
        return known(self.row(event))

    def start(self) -> Process:
        """A new worker, or a new execution environment."""
        return self.local.new_worker()

    # --- the processor

    def _process_together(self, things: Any) -> Any:
        """Each thing ends by its own result."""
        results: dict[str, Any] = {}
        for given in things:
            try:
                results[given.idempotency_key] = self._process(given)
            except Exception as error:  # noqa: BLE001 - it is the result
                results[given.idempotency_key] = error
        return results

    def _process(self, given: Any) -> Any:
        call = _call_of(given)
        self.calls.append(call)
        if self.runner == "inline":
            self.given.append(given)
        if not self.later:
            self.inside(given)
        self._land(call)
        answer = self.answers.pop(0) if self.answers else {"commit": "done"}
        if "fail" in answer:
            raise ValueError(answer["fail"])
        if self.runner != "inline":
            return answer
        if "unprocessable" in answer:
            raise Unprocessable(answer["unprocessable"])
        if "notYet" in answer:
            raise NotYet(answer["notYet"], retry_in=cast("Any", answer.get("retryInSeconds")))
        return answer["commit"]

    def _land(self, call: Call) -> None:
        """Write the effect, unless a later attempt has written. In EVERY_VERSION, each version has an effect."""
        place = f"{call.key}@{call.state}" if self.name == "every version" else call.key
        if (there := self.effects.get(place)) is None or there.fence <= call.fence:
            self.effects[place] = call

    def _version(self, event: str, key: str = KEY) -> Any:
        versions = self.s3.keys[key]
        return versions[min(int(event), len(versions)) - 1]


@dataclass
class Refusing(Cell):
    """A cell whose processor rejects its work while `refuses` is true."""

    refuses: bool = True

    def _process(self, given: Any) -> Any:
        self.answers = [{"unprocessable": "no invoice"} if self.refuses else {"commit": "done"}]
        return super()._process(given)


def _call_of(given: Any) -> Call:
    if isinstance(given, Mapping):
        return Call(given["key"], given["idempotencyKey"], given["attempt"], given["fence"], given["versionId"])
    state = next(getattr(given, name) for name in ("identity", "version", "version_id") if hasattr(given, name))
    return Call(given.key, given.idempotency_key, given.attempt, given.fence, state)


def _plain(attributes: dict[str, dict[str, str]]) -> dict[str, str | int]:
    """Attributes as the queue in memory has them."""
    return {
        name: int(one["StringValue"]) if one["DataType"] == "Number" else one["StringValue"]
        for name, one in attributes.items()
    }
