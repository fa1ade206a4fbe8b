"""Search every order of steps of a pipeline and the sets of its objects.

The real consumers of parts and of sets run against DynamoDB, S3 and SQS in memory, and stop before each request. The
search tries every order of uploads, deliveries, requests, deaths and ends of leases. A worker is a function of its
message and of the answers so far, so each step runs it from its start. In each state the search checks the promises of
docs/protocol.md. When only waiting messages are left, it lets time pass, delivers them, and checks the end.
"""

import io
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, cast

from botocore.exceptions import ClientError
from botocore.response import StreamingBody

from intake_ledger import FileSet, ObjectChange, Rejects
from intake_ledger.aws.bucket import Bucket
from intake_ledger.aws.queues import Queues
from intake_ledger.consumer.consumer import Consumer
from intake_ledger.consumer.services import Services
from intake_ledger.consumer.set_wakes import SetWakes
from intake_ledger.kinds.sets import Sets
from intake_ledger.ledger.dynamodb_table import LedgerTable
from intake_ledger.ledger.ledger import Ledger, LedgerOptions
from intake_ledger.protocol.change import Change, StateKind
from intake_ledger.protocol.reasons import OutcomeKind, Reason
from intake_ledger.protocol.row import Row, Status, row_from_attributes
from intake_ledger.protocol.row import from_dynamodb as plain
from intake_ledger.protocol.settings import ConsumerSettings
from intake_ledger.protocol.verdict import Policy
from intake_ledger.runners.inline import Inline
from intake_ledger.set_members.forms import FormKind, FormSettings, SetTarget
from intake_ledger.set_members.membership import Membership
from intake_ledger.set_members.wakes import Wakes
from intake_ledger.sets.settings import SetSettings
from intake_ledger_testing.consumers import object_consumer, object_ledger
from intake_ledger_testing.events import s3_notification, sqs_record
from intake_ledger_testing.memory_outputs import MemoryOutputs
from intake_ledger_testing.memory_s3 import MemoryS3
from intake_ledger_testing.memory_sqs import DEAD_LETTER_URL, QUEUE_URL
from tests.protocol.strict_store import StrictDynamoDB
from tests.protocol.strict_telemetry import StrictTelemetry
from tests.settings import CONSUMER
from tests.unit.support import BUCKET, HOUR, START

MANIFEST = FormSettings(FormKind.MANIFEST, "s/m")
MARKER = FormSettings(FormKind.MARKER, "s/m")
QUIET = FormSettings(FormKind.QUIET, "s/", quiet_seconds=600)
PARTS, SETS = "parts", "sets"
_FUNCTION_MS = 130_000
_ROUNDS = 12
"""Hours that pass at the end. A set that is incomplete then waits forever."""
_ANSWERED_AT_ONCE = {"get_object", "change_message_visibility_batch"}
"""Requests whose answer no other step can change. Scripts delete no version for good."""


def settings_of(pipeline: str) -> ConsumerSettings:
    """The settings of either pipeline."""
    return replace(
        CONSUMER,
        pipeline=pipeline,
        bucket=BUCKET,
        table="ledger",
        queue_url=QUEUE_URL,
        dlq_url=DEAD_LETTER_URL,
        deletes=False,
        keeps_rows=True,
        max_attempts=4,
        max_backoff_seconds=900,
        # As `set_settings` does.
        directory_markers=pipeline == SETS,
    )


class Scenario(NamedTuple):
    """A world: S3's operations in order, and the numbers of faults."""

    script: str
    """`a`, `b`: upload a part. `!a`: with a bad row. `m:ab`: a manifest or marker with these parts. `-a`: delete."""
    form: FormSettings = MANIFEST
    deaths: int = 0
    duplicates: int = 0
    ticks: int = 0
    """The number of hours that pass. Leases end."""
    workers: int = 2
    """The largest number of workers at the same time."""


class Message(NamedTuple):
    """A message of either queue."""

    name: str
    pipeline: str
    body: str
    receives: int = 0
    asleep: bool = False
    """True until time passes."""


class Request(NamedTuple):
    """A request that has no answer yet."""

    service: str
    operation: str
    arguments: Mapping[str, Any]


class Answer(NamedTuple):
    """The answer to a request, as text for comparisons, and the time at which it came."""

    now: int
    text: str
    value: Any


class Worker(NamedTuple):
    """A worker that stopped before a request, or has ended."""

    message: Message
    began: int
    history: tuple[Answer, ...]
    pending: Request | None
    acknowledged: bool | None
    least: tuple[int, tuple[tuple[str, int], ...]]
    """The number of manifests and of committed versions when it began, by part."""

    @property
    def key(self) -> tuple[Any, ...]:
        return (self.message, self.began, tuple((one.now, one.text) for one in self.history), self.least)


class Given(NamedTuple):
    """The argument of one call of the processor of sets."""

    version: str
    manifest: str | None
    parts: tuple[tuple[str, str | None], ...]


class ViolationError(Exception):
    """A promise does not hold."""


class _Pause(KeyboardInterrupt):
    def __init__(self, request: Request) -> None:
        super().__init__(request)
        self.request = request


@dataclass
class World:
    """One state of everything."""

    now: int = START
    items: dict[tuple[str, str], Any] = field(default_factory=dict)
    objects: dict[str, list[Any]] = field(default_factory=dict)
    made: int = 0
    outputs: dict[tuple[str, str], Any] = field(default_factory=dict)
    """The outputs with rejected rows."""
    done: int = 0
    """The operations of the script so far."""
    messages: tuple[Message, ...] = ()
    workers: tuple[Worker, ...] = ()
    deaths: int = 0
    duplicates: int = 0
    ticks: int = 0
    sent: int = 0
    committed: tuple[tuple[str, str], ...] = ()
    """The versions of parts that were committed, in order."""
    given: tuple[Given, ...] = ()
    commits: tuple[str, ...] = ()
    """The committed versions of the set, in order."""
    truths: tuple[Any, ...] = ()
    """The states that the set has had, in order."""

    def copy(self) -> "World":
        return replace(self, items=dict(self.items), objects=dict(self.objects), outputs=dict(self.outputs))

    def key(self) -> Any:
        return (
            self.now,
            repr(sorted(self.items.items())),
            repr(sorted(self.outputs.items())),
            self.done,
            tuple(sorted(self.messages)),
            tuple(sorted(worker.key for worker in self.workers)),
            (self.deaths, self.duplicates, self.ticks),
            (self.committed, self.given[-1:], tuple(sorted(Counter(self.commits).items())), self.truths),
        )


class _Silent(StrictTelemetry):
    def decided(self, change: Change, answer: Any, *, now: int) -> None: ...
    def ended(self, claim: Any, outcome: OutcomeKind, reason: Reason | None = None, *, duration_ms: int) -> None: ...
    def rejected_rows(self, claim: Any, counts: Any) -> None: ...
    def late_write(self, claim: Any) -> None: ...
    def removed_unprocessed(self, change: Change, row: Any) -> None: ...
    def flush(self) -> None: ...


class _Port:
    """Answers from the history, in order, and then stops the worker."""

    def __init__(self, worker: Worker) -> None:
        self._history = worker.history
        self._position = 0
        self._now = worker.began
        self._name = f"{worker.message.name}.{worker.message.receives}"
        self._owners = 0

    def now(self) -> int:
        return self._now

    def new_owner(self) -> str:
        self._owners += 1
        return f"{self._name}.{self._owners}"

    def call(self, service: str, operation: str, arguments: Mapping[str, Any]) -> Any:
        if self._position == len(self._history):
            raise _Pause(Request(service, operation, arguments))
        answer = self._history[self._position]
        self._position += 1
        self._now = answer.now
        if isinstance(answer.value, ClientError):
            raise answer.value
        if operation == "get_object":
            content = answer.value
            return {
                "Body": StreamingBody(cast("Any", io.BytesIO(content)), len(content)),
                "ContentLength": len(content),
            }
        return answer.value


class _Client:
    def __init__(self, port: _Port, service: str) -> None:
        self._port = port
        self._service = service

    def __getattr__(self, operation: str) -> Any:
        return lambda **arguments: self._port.call(self._service, operation, arguments)


class _Context:
    def get_remaining_time_in_millis(self) -> int:
        return _FUNCTION_MS


class SetSearch:
    """Searches one scenario."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.script = scenario.script.split()
        self.states = 0
        self._outcomes: dict[Any, Request | bool] = {}
        self.calls = 0
        """The calls of the set's processor, over all states."""
        parts = sorted({word[-1] for word in self.script if word[0] != "m"} - {"m"})
        self.parts = [f"s/{part}" for part in parts]
        self.set_key = "s/" if scenario.form is QUIET else "s/m"
        self.rejects = "!" in scenario.script
        own = replace(settings_of(SETS), rejects="outputs/") if self.rejects else settings_of(SETS)
        self.settings = SetSettings(own, scenario.form, replace(own, pipeline=PARTS))

    def search(self) -> list[str] | None:
        """Visit every state. Returns the steps to a violation, or None if all promises hold."""
        first = World()
        self._observe(first)
        seen = {first.key()}
        stack: list[tuple[World, tuple[Any, ...]]] = [(first, ())]
        try:
            while stack:
                world, trace = stack.pop()
                self.states += 1
                following = list(self._steps(world, trace))
                if not following:
                    self._drain(world, trace)
                for after, label in following:
                    key = after.key()
                    if key not in seen:
                        seen.add(key)
                        stack.append((after, (trace, label)))
        except ViolationError as violation:
            why, steps = violation.args
            return [*_flat(steps), f"VIOLATED: {why}"]
        except AssertionError as error:  # a report that no world expects
            return [f"VIOLATED: {error}"]
        return None

    def _steps(self, world: World, trace: tuple[Any, ...]) -> Iterator[tuple[World, str]]:
        scenario = self.scenario
        if world.done < len(self.script):
            yield self._operate(world), self.script[world.done]
        if len(world.workers) < scenario.workers:
            for message in world.messages:
                if not message.asleep:
                    yield self._receive(world, message, trace), f"{message.name} is received"
                    if world.duplicates < scenario.duplicates:
                        yield self._receive(world, message, trace, twice=True), f"{message.name} is received, and stays"
        for worker in world.workers:
            name = worker.message.name
            assert worker.pending is not None
            yield self._advance(world, worker, trace), f"{name}: {worker.pending.operation}"
            if world.deaths < scenario.deaths:
                yield self._die(world, worker), f"{name} dies before {worker.pending.operation}"
        if world.ticks < scenario.ticks:
            after = self._tick(world)
            after.ticks += 1
            yield after, "an hour passes"

    def _operate(self, world: World) -> World:
        after = world.copy()
        word = self.script[after.done]
        after.done += 1
        s3 = self._s3(after)
        key = f"s/{word.lstrip('-!')[0]}"
        if word.startswith("-"):
            version, event = s3.delete(key), "ObjectRemoved:DeleteMarkerCreated"
            assert version is not None
        else:
            content = "x" if word.startswith("!") else json.dumps(list(word.partition(":")[2]))
            version = s3.put(key, content.encode())
            event = "ObjectCreated:Put"
        after.objects, after.made = s3.keys, s3._made
        body = s3_notification(
            BUCKET, key, event=event, version_id=version.version_id, etag=version.etag, size=1, sequencer="00",
            time=version.modified,
        )  # fmt: skip
        self._send(after, PARTS, body, f"event {after.done} ({word})")
        self._observe(after)
        return after

    def _receive(self, world: World, message: Message, trace: tuple[Any, ...], *, twice: bool = False) -> World:
        after = world.copy()
        received = message._replace(receives=message.receives + 1)
        rest = [one for one in after.messages if one is not message]
        after.duplicates += twice
        after.messages = tuple([*rest, received] if twice else rest)
        least = (len(self._versions(after, self.set_key)), tuple(Counter(key for key, _ in after.committed).items()))
        worker = Worker(received, after.now, (), None, None, least)
        after.workers = (*after.workers, worker)
        self._continue(after, worker, trace)
        return after

    def _advance(self, world: World, worker: Worker, trace: tuple[Any, ...]) -> World:
        after = world.copy()
        answer = self._answer(after, worker, trace)
        further = worker._replace(history=(*worker.history, answer))
        after.workers = tuple(further if one is worker else one for one in after.workers)
        self._observe(after, trace)
        self._continue(after, further, trace)
        return after

    def _continue(self, world: World, worker: Worker, trace: tuple[Any, ...]) -> None:
        """Run the worker to its next request, and end it if it has returned."""
        now = worker
        while True:
            result = self._outcome(now)
            if isinstance(result, Request) and result.operation in _ANSWERED_AT_ONCE:
                now = now._replace(pending=result)
                now = now._replace(history=(*now.history, self._answer(world, now, trace)))
                continue
            break
        if isinstance(result, Request):
            stopped = now._replace(pending=result)
            world.workers = tuple(stopped if one is worker else one for one in world.workers)
            return
        world.workers = tuple(one for one in world.workers if one is not worker)
        if not result:
            world.messages = (*world.messages, worker.message._replace(asleep=True))

    def _die(self, world: World, worker: Worker) -> World:
        after = world.copy()
        after.deaths += 1
        after.workers = tuple(one for one in after.workers if one is not worker)
        after.messages = (*after.messages, worker.message._replace(asleep=True))
        return after

    def _tick(self, world: World) -> World:
        after = world.copy()
        after.now += HOUR
        after.messages = tuple(message._replace(asleep=False) for message in after.messages)
        return after

    def _drain(self, world: World, trace: tuple[Any, ...]) -> None:
        """Let time pass and deliver the other messages, one after the other. Then check the end."""
        for _ in range(_ROUNDS):
            if not world.messages:
                break
            world = self._tick(world)
            for message in world.messages:
                world = self._receive(world, message, trace)
                while world.workers:
                    world = self._advance(world, world.workers[0], trace)
            while fresh := [message for message in world.messages if not message.asleep]:
                world = self._receive(world, fresh[0], trace)
                while world.workers:
                    world = self._advance(world, world.workers[0], trace)
        self._check_end(world, trace)

    def _outcome(self, worker: Worker) -> Request | bool:
        """The next request of the worker, or whether it has acknowledged its message. Many worlds have this worker."""
        known = worker.key[:3]
        if known not in self._outcomes:
            self._outcomes[known] = self._run(worker)
        return self._outcomes[known]

    def _run(self, worker: Worker) -> Request | bool:
        port = _Port(worker)
        consumer = self._set_consumer(port) if worker.message.pipeline == SETS else self._part_consumer(port)
        record = sqs_record(worker.message.body, message_id=worker.message.name, receives=worker.message.receives)
        try:
            answer = consumer.handle({"Records": [record]}, _Context())
        except _Pause as pause:
            return pause.request
        return not answer["batchItemFailures"]

    def _part_consumer(self, port: _Port) -> Consumer:
        settings = settings_of(PARTS)
        bucket = Bucket(lambda: cast("Any", _Client(port, "s3")), BUCKET)
        table = LedgerTable(cast("Any", _Client(port, "dynamodb")), "ledger")
        ledger = object_ledger(table, bucket, _options(settings), clock=port.now, new_owner=port.new_owner)
        wakes = Wakes(
            [SetTarget(SETS, "sets", self.scenario.form)],
            Membership(cast("Any", _Client(port, "dynamodb")), "ledger", BUCKET),
            bucket=BUCKET,
            send=lambda url, body: port.call("sqs", "send_message", {"QueueUrl": url, "MessageBody": body}),
        )
        services = self._services(port, settings, ledger, bucket)
        return object_consumer(
            services, _do_nothing, sets=SetWakes(settings, services.telemetry, wakes, clock=port.now)
        )

    def _set_consumer(self, port: _Port) -> Consumer:
        bucket = Bucket(lambda: cast("Any", _Client(port, "s3")), BUCKET)
        client = cast("Any", _Client(port, "dynamodb"))
        table, membership = LedgerTable(client, "ledger"), Membership(client, "ledger", BUCKET)
        outputs = cast("Any", _Client(port, "output"))
        kind = Sets(self.settings, table, bucket, membership, port.now, output_client=lambda: outputs)
        options = _options(self.settings.consumer)
        ledger = Ledger(table, kind.look, options, clock=port.now, new_owner=port.new_owner)

        def process(files: FileSet) -> None:
            parts = tuple((part.key, part.version_id) for part in files.parts)
            manifest = files.manifest.version_id if files.manifest else None
            port.call("processor", "call", {"given": Given(files.version, manifest, parts)})
            for part in files.parts if self.rejects else ():
                list(part.json_lines(on_error=Rejects(max_share=None)))

        services = self._services(port, self.settings.consumer, ledger, bucket)
        return Consumer(services, kind, Inline(process))

    def _services(self, port: _Port, settings: Any, ledger: Ledger, bucket: Bucket) -> Services:
        queues = Queues(lambda: cast("Any", _Client(port, "sqs")), "own", "dead letters")
        return Services(settings, ledger, bucket, queues, _Silent(), clock=port.now, jitter=lambda: 0.5)

    def _answer(self, world: World, worker: Worker, trace: tuple[Any, ...]) -> Answer:
        """Carry out the request of the worker in the world."""
        request = worker.pending
        assert request is not None
        value: Any = {}
        try:
            if request.service == "dynamodb":
                store = StrictDynamoDB(world.items)
                value = getattr(store, request.operation)(**request.arguments)
                world.items = dict(store.items)
            elif request.service == "s3":
                value = getattr(self._s3(world), request.operation)(**request.arguments)
                if request.operation == "get_object":
                    value = value["Body"].read(1_000_000)
            elif request.service == "output":
                outputs = MemoryOutputs(lambda: world.now)
                outputs.objects = world.outputs
                value = getattr(outputs, request.operation)(**request.arguments)
            elif request.service == "processor":
                self._give(world, worker, request.arguments["given"], trace)
            elif request.operation == "send_message" and request.arguments["QueueUrl"] != "dead letters":
                pipeline = SETS if request.arguments["QueueUrl"] == "sets" else worker.message.pipeline
                self._send(world, pipeline, request.arguments["MessageBody"], f"wake by {worker.message.name[:7]}")
        except ClientError as refused:
            return Answer(world.now, f"{refused} {refused.response.get('Item')}", refused)
        return Answer(world.now, repr(value), value)

    def _give(self, world: World, worker: Worker, given: Given, trace: tuple[Any, ...]) -> None:
        """The processor of sets is called."""
        self.calls += 1
        for earlier in world.given:
            if (earlier.version == given.version) != (earlier[1:] == given[1:]):
                raise ViolationError(f"one name for two sets, or two for one: {earlier}, {given}", trace)
        world.given = (*world.given, given)
        least_manifest, least = worker.least[0], dict(worker.least[1])
        manifests = self._versions(world, self.set_key)
        if given.manifest is None:
            least_manifest, manifests = 0, [None]
        if given.manifest not in manifests or manifests.index(given.manifest) + 1 < least_manifest:
            raise ViolationError(f"G2: manifest {given.manifest} is over", trace)
        for key, version in given.parts:
            versions = [own for name, own in world.committed if name == key]
            if version not in versions:
                raise ViolationError(f"G2: {version} of {key} was not committed", trace)
            last = len(versions) - versions[::-1].index(str(version))
            if last < least.get(key, 0):
                raise ViolationError(f"G2: {version} of {key} was replaced before the look", trace)

    def _observe(self, world: World, trace: tuple[Any, ...] = ()) -> None:
        """Record the commits of parts, and the true state of the set."""
        for key in (*self.parts, self.set_key):
            row = self._row(world, PARTS, key)
            if row is None or row.committed_state is None or key == self.set_key:
                continue
            entry = (key, row.committed_state.removeprefix("v#"))
            if entry != next((one for one in reversed(world.committed) if one[0] == key), None):
                world.committed = (*world.committed, entry)
        truth = self._truth(world)
        if not world.truths or world.truths[-1] != truth:
            world.truths = (*world.truths, truth)
        row = self._row(world, SETS, self.set_key)
        if row is not None and row.committed_fence is not None:
            commit = f"{row.committed_fence} {row.committed_state}"
            if "complete-" in commit and commit not in world.commits:
                world.commits = (*world.commits, commit)
                self._check_commits(world, trace)

    def _check_commits(self, world: World, trace: tuple[Any, ...]) -> None:
        versions = {one.version: (one.manifest, one.parts) for one in world.given}
        for state, number in Counter(commit.partition(" ")[2] for commit in world.commits).items():
            if state.removeprefix("v#").startswith("incomplete"):
                raise ViolationError("an incomplete set was committed", trace)
            contents = versions.get(state.removeprefix("v#"))
            if contents is None:
                raise ViolationError(f"{state} was committed and never processed", trace)
            if number > world.truths.count(contents):
                raise ViolationError(f"G3: {state} was committed {number} times", trace)

    def _truth(self, world: World) -> Any:
        """The set by S3 and by the commits: its manifest and its parts. None: it is incomplete or removed."""
        present = {key: own[-1] for key, own in world.objects.items() if own and own[-1].content is not None}
        names = [key for key in self.parts if key in present]
        manifest = None
        if self.scenario.form.kind is not FormKind.QUIET:
            if self.set_key not in present:
                return None
            manifest = present[self.set_key].version_id
            if self.scenario.form.kind is FormKind.MANIFEST:
                names = [f"s/{part}" for part in json.loads(present[self.set_key].content)]
        elif not names:
            return None
        parts = []
        for key in names:
            version = next((own for name, own in reversed(world.committed) if name == key), None)
            content = next((own.content for own in world.objects.get(key, []) if own.version_id == version), None)
            if content is None:
                return None
            parts.append((key, version))
        return manifest, tuple(parts)

    def _check_end(self, world: World, trace: tuple[Any, ...]) -> None:
        """G4. A row that ends settled without a commit says so."""
        rows = [self._row(world, pipeline, key) for pipeline in (SETS, PARTS) for key in (self.set_key, *world.objects)]
        for one in rows:
            if one is not None and one.kind is not StateKind.OBJECT and one.settled and one.settled_as is None:
                raise ViolationError("a removal is settled, and its row does not say so", trace)
        if self.rejects:
            self._check_rejects(world, trace)
        truth = self._truth(world)
        row = self._row(world, SETS, self.set_key)
        versions = world.objects.get(self.set_key, [])
        if self._lost_parts_only(world, truth):
            if row is None or not row.settled:
                raise ViolationError("G4: a finished set that lost parts is not at rest", trace)
        elif truth is not None:
            if not world.given or world.given[-1][1:] != truth:
                raise ViolationError(f"G4: the last set that was given is {world.given[-1:]}, not {truth}", trace)
            if row is None or not row.settled or row.committed_state != f"v#{world.given[-1].version}":
                raise ViolationError("G4: the present set is not the committed one", trace)
            if world.messages:
                raise ViolationError(f"no rest: {world.messages}", trace)
        elif versions and versions[-1].content is not None and (row is None or row.status is not Status.FAILED):
            raise ViolationError("G4: an incomplete set is not shown as waiting", trace)

    def _check_rejects(self, world: World, trace: tuple[Any, ...]) -> None:
        """The output has the rejected rows of the committed set, or there is none."""
        contents = {one.version_id: one.content for own in world.objects.values() for one in own}
        bad = {version for _, version in world.given[-1].parts if contents[version] == b"x"} if world.given else set()
        output = world.outputs.get(("outputs", f"{self.set_key}.rejects.jsonl"))
        rows = [] if output is None or output.removed else output.content.splitlines()
        found = {json.loads(row)["version_id"] for row in rows}
        row = self._row(world, SETS, self.set_key)
        if found != bad or (row is not None and row.settled and bool(row.rejected_rows) != bool(bad)):
            raise ViolationError(f"the rejected rows are those of {found}, and the bad parts are {bad}", trace)

    def _lost_parts_only(self, world: World, truth: Any) -> bool:
        """True if the set was finished and then lost parts, so that its processor is not called again.

        With a manifest it is incomplete. A marker's folder is empty.
        """
        present = world.objects.get(self.set_key, [])
        if self.scenario.form.kind is FormKind.QUIET or not world.commits or present[-1].content is None:
            return False
        last = world.given[-1]
        if last.manifest != present[-1].version_id or (truth is not None and truth[1]):
            return False
        contents = {(key, one.version_id): one.content for key, own in world.objects.items() for one in own}
        for key, version in last.parts:
            now = next(own for name, own in reversed(world.committed) if name == key)
            if now != version and contents[key, now] is not None:
                return False
        return bool(last.parts)

    def _row(self, world: World, pipeline: str, key: str) -> Row | None:
        item = world.items.get((f"{BUCKET}/{key}", f"{pipeline}@latest"))
        return None if item is None else row_from_attributes(plain(item))

    def _versions(self, world: World, key: str) -> list[str | None]:
        return [version.version_id for version in world.objects.get(key, [])]

    def _s3(self, world: World) -> MemoryS3:
        s3 = MemoryS3(clock=lambda: world.now)
        s3.keys, s3._made = dict(world.objects), world.made
        return s3

    def _send(self, world: World, pipeline: str, body: str, name: str) -> None:
        # Wakes are alike. Their number would make equal states different.
        number = sum(message.name.startswith(name) for message in world.messages)
        number += sum(worker.message.name.startswith(name) for worker in world.workers)
        world.messages = (*world.messages, Message(f"{name} {number}" if number else name, pipeline, body))


def _do_nothing(_: ObjectChange) -> None:
    """The processor of the parts."""


def _options(settings: Any) -> LedgerOptions:
    policy = Policy(50, settings.retention_seconds * 1000, settings.deletes, settings.keeps_rows)
    return LedgerOptions(settings.pipeline, settings.ordering, policy, settings.max_event_age_seconds * 1000)


def _flat(trace: Sequence[Any]) -> list[str]:
    steps: list[str] = []
    while trace:
        trace, label = trace
        steps.append(label)
    return steps[::-1]


SHORT: dict[str, Scenario] = {
    "sets: a part, then the manifest": Scenario("a m:a"),
    "sets: the manifest, then its part": Scenario("m:a a"),
    "sets: deaths, a replaced part": Scenario("a m:a a", deaths=1, workers=1),
}
"""The worlds that each test run searches."""

WORLDS: dict[str, Scenario] = SHORT | {
    "sets: deaths": Scenario("m:a a", deaths=1),
    "sets: rejected rows": Scenario("!a m:a a", deaths=1, workers=1),
    "sets: rejected rows, a bad part comes": Scenario("a m:a !a", deaths=1, workers=1),
    "sets: deaths, a marker": Scenario("a m", MARKER, deaths=1),
    "sets: deaths, a quiet folder": Scenario("a b", QUIET, deaths=1, ticks=1, workers=1),
    "sets: deaths and time, a replaced part": Scenario("a m:a a", deaths=1, ticks=1, workers=1),
    "sets: duplicates": Scenario("m:a a", duplicates=1),
    "sets: two parts": Scenario("m:ab a b"),
    "sets: a replaced part": Scenario("a m:a a"),
    "sets: a deleted part": Scenario("a m:a -a"),
    "sets: a deleted part that comes back": Scenario("a m:a -a a", workers=1),
    "sets: a marker whose parts are removed": Scenario("a b m -a", MARKER, workers=1),
    "sets: a marker whose only part is removed": Scenario("a m -a", MARKER, workers=1, deaths=1),
    "sets: a quiet folder whose part is removed": Scenario("a b -a", QUIET, workers=1, ticks=1),
    "sets: a newer manifest": Scenario("a m:a m:a"),
    "sets: a manifest without one of its parts": Scenario("a m:ab m:a", workers=1, deaths=1),
    "sets: slow workers": Scenario("a m:a", ticks=1),
    "sets: slow workers, a replaced part": Scenario("a m:a a", ticks=2, workers=1),
    "sets: a marker": Scenario("a m a", MARKER),
    "sets: a quiet folder": Scenario("a", QUIET, ticks=2),
}
"""The worlds that `make prove` searches."""


def explore(name: str) -> tuple[bool, str]:
    """Search one world to its end. Returns whether all promises hold, and the text to print."""
    search = SetSearch(WORLDS[name])
    found = search.search()
    if found is None:
        return True, f"{name}: holds, {search.states:,} states"
    steps = "\n".join(f"    {number:2}. {step}" for number, step in enumerate(found, 1))
    return False, f"{name}: {found[-1]}\n{steps}"
