"""Search small worlds in which executions process the changes, with the real consumer and ledger.

One key, one queue, DynamoDB, S3 and Step Functions or a durable function in memory. Each step is an invocation of a
worker, a step of an execution, an upload, or time. A worker may die at each of its requests. It may also pause there,
while its lease ends and another worker handles a message. The search is breadth-first, so the first violation has the
shortest trace.
"""

import copy
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from botocore.exceptions import ClientError

from intake_ledger.aws.bucket import Bucket
from intake_ledger.consumer.consumer import Consumer
from intake_ledger.consumer.services import Services
from intake_ledger.events.parser import parse_message
from intake_ledger.executions.decide import OVERTAKEN
from intake_ledger.executions.durable_function import DurableFunction
from intake_ledger.executions.state_machine import StateMachine
from intake_ledger.kinds.objects import Objects
from intake_ledger.ledger.dynamodb_table import LedgerTable
from intake_ledger.ledger.ledger import LedgerOptions
from intake_ledger.protocol.change import Change
from intake_ledger.protocol.errors import Fenced
from intake_ledger.protocol.row import Row, Status, row_key
from intake_ledger.protocol.settings_durable import DurableSettings
from intake_ledger.protocol.settings_executions import ExecutionSettings
from intake_ledger.protocol.verdict import Policy
from intake_ledger.runners.later import Later
from intake_ledger_testing.consumers import object_ledger
from intake_ledger_testing.events import s3_notification, sqs_event
from intake_ledger_testing.memory_durable_functions import FUNCTION, MemoryDurableExecution, MemoryDurableFunctions
from intake_ledger_testing.memory_s3 import MemoryS3
from intake_ledger_testing.memory_step_functions import MACHINE, MemoryExecution, MemoryStepFunctions
from tests.protocol.strict_store import StrictDynamoDB
from tests.settings import CONSUMER
from tests.unit.consumer.test_consumer import Context, FakeTelemetry
from tests.unit.support import HOUR, MINUTE, Clock

if TYPE_CHECKING:
    from intake_ledger.aws.queues import Queues

KEY = "a.csv"
LONGEST_TASK = 24 * HOUR
LAPSE = 2 * HOUR
EVENT_AGE_SECONDS = 3 * 3600
"""Longer than each lease and each backoff, and shorter than the longest task."""


class DiedError(KeyboardInterrupt):
    """The worker dies here. The consumer lets this error pass, as it does when its process ends."""


class ExecutionWorld(NamedTuple):
    """The faults that may happen."""

    puts: int = 1
    deliveries: int = 1
    deaths: int = 0
    pauses: int = 0
    losses: int = 0
    """Lost events of Step Functions."""
    fails: int = 0
    poison: int = 0
    aborts: int = 0
    """Executions that are aborted or time out while a task runs on."""
    redrives: int = 0
    refusals: int = 0
    """Starts that are refused."""
    durable: bool = False
    """A durable function does the work. No events come of it."""
    queued: int = 0
    """Accepted starts that wait in Lambda's queue, which may drop them."""
    stops: bool = False
    """Executions are stopped when a newer version comes. A task of each runs on."""
    removals: int = 0
    """Permanent deletions of the newest of two versions."""
    incomplete: bool = False
    """A set is woken before its last part comes."""
    collisions: bool = False
    """Both messages have one identity, and other fingerprints."""
    forgets: int = 0
    """A person has the key forgotten, also while a worker pauses. That worker may die soon after it."""


WORLDS = {
    "executions, deaths": ExecutionWorld(deaths=2, losses=1),
    "executions, overwrites": ExecutionWorld(puts=2, deaths=1, losses=2),
    "executions, pauses": ExecutionWorld(pauses=1, losses=1),
    "executions, pauses and overwrites": ExecutionWorld(puts=2, pauses=1),
    "executions, duplicates": ExecutionWorld(puts=2, deliveries=2, losses=1),
    "executions, failures": ExecutionWorld(puts=2, fails=1, losses=1),
    "executions, poison": ExecutionWorld(puts=2, poison=1, losses=1),
    "executions, aborted with a task": ExecutionWorld(puts=2, aborts=1),
    "executions, redriven": ExecutionWorld(puts=2, fails=1, redrives=1),
    "executions, refused": ExecutionWorld(puts=2, refusals=2, losses=1),
    "durable, deaths": ExecutionWorld(deaths=2, durable=True),
    "durable, overwrites": ExecutionWorld(puts=2, deaths=1, durable=True),
    "durable, pauses and overwrites": ExecutionWorld(puts=2, pauses=1, durable=True),
    "durable, failures": ExecutionWorld(puts=2, deliveries=2, fails=1, durable=True),
    "durable, stopped while it writes": ExecutionWorld(puts=2, aborts=1, durable=True),
    "durable, refused": ExecutionWorld(puts=2, refusals=2, durable=True),
    "durable, queued starts": ExecutionWorld(puts=2, queued=2, durable=True),
    "durable, queued starts and deaths": ExecutionWorld(queued=1, deaths=1, durable=True),
    "durable, queued starts and pauses": ExecutionWorld(queued=1, pauses=1, durable=True),
    "executions, stopped and deaths": ExecutionWorld(puts=2, deaths=1, losses=1, stops=True),
    "executions, stopped and pauses": ExecutionWorld(puts=2, pauses=1, stops=True),
    "executions, stopped for a version that vanishes": ExecutionWorld(puts=2, removals=1, losses=1, stops=True),
    "durable, stopped and deaths": ExecutionWorld(puts=2, deaths=1, durable=True, stops=True),
    "durable, stopped and pauses": ExecutionWorld(puts=2, pauses=1, durable=True, stops=True),
    "durable, stopped for a version that vanishes": ExecutionWorld(puts=3, removals=1, durable=True, stops=True),
}


class Result(NamedTuple):
    """The first violation with its steps, or the number of states."""

    violation: str
    trace: list[str]
    states: int


@dataclass
class World:
    """Everything that can matter later."""

    left: ExecutionWorld
    clock: Clock = field(default_factory=Clock)
    queue: list[str] = field(default_factory=list)
    phases: dict[str, int] = field(default_factory=dict)
    """1 after the effect of an execution."""
    tasks: list[str] = field(default_factory=list)
    """Versions that tasks of closed executions may still write."""
    downstream: str = ""
    redriven: bool = False
    rejected: list[str] = field(default_factory=list)
    owners: int = 0
    taken: int = 0
    """The number of deliveries to another worker while the first one pauses."""
    receipts_end: bool = False
    """True if the first worker cannot acknowledge the message after that."""
    bad: str = ""

    def __post_init__(self) -> None:
        self.s3 = MemoryS3(clock=self.clock)
        self.store = StrictDynamoDB()
        self.machine: Any = MemoryStepFunctions(clock=self.clock)
        if self.left.durable:
            self.machine = MemoryDurableFunctions(clock=self.clock)
            self.machine.event_age_seconds = EVENT_AGE_SECONDS
        self.machine.stopped = self.stopped

    def use(self, **budget: int) -> None:
        """Use up a part of the budget."""
        self.left = self.left._replace(**{name: getattr(self.left, name) - used for name, used in budget.items()})

    @property
    def row(self) -> Row | None:
        place = row_key(CONSUMER.pipeline, CONSUMER.ordering, CONSUMER.bucket, KEY, None)
        return LedgerTable(cast("Any", self.store), CONSUMER.table).get(place)

    @property
    def current(self) -> str:
        version = self.s3.current(KEY)
        return str(version.version_id) if version else ""

    def upload(self) -> None:
        """Upload a version, and report it."""
        version = self.s3.put(KEY, str(self.left.puts).encode()).version_id
        body = s3_notification(CONSUMER.bucket, KEY, version_id=version, etag="e", size=1)
        self.queue += [body] * self.left.deliveries

    def stopped(self, execution: MemoryExecution) -> None:
        """The consumer has stopped an execution."""
        if execution.given["versionId"] == self.current:
            self.bad = "the execution of the current version is stopped"
        if not self.phases.get(execution.name):
            self.tasks.append(execution.given["versionId"])
        if not self.left.durable:
            self.queue += self.reported(self.machine.event(execution.name))

    def consumer(self, outside: "Outside") -> Consumer:
        """The real consumer of one worker."""
        return make_consumer(outside)

    def event(self, body: str) -> dict[str, Any]:
        """The event that a worker gets."""
        return sqs_event(body)

    def returned(self, body: str) -> str:
        """The message when it comes again."""
        return body

    def reported(self, body: str) -> list[str]:
        """The messages about an execution that has ended."""
        return [] if self.left.durable else [body]

    def forget(self) -> None:
        """A person has the key forgotten."""

    def rest(self) -> str:
        """Errors when nothing moves any more, and attempts that no failure has spent."""
        failed = sum(
            one.status not in ("RUNNING", "SUCCEEDED") and one.error != OVERTAKEN
            for one in self.machine.executions.values()
        )
        if self.left.stops and self.row is not None and self.row.attempts > 1 + failed:
            return "a stop has spent an attempt"
        return at_rest(self)

    def dead_letter(self, body: str, attributes: Any) -> str:
        """The name of a copy in the dead-letter queue."""
        if any(not isinstance(part, Change) or part.execution for part in parse_message(body)):
            self.bad = "a copy is no message of the object, so its redrive would be lost"
        return str(attributes["version_id"])

    def can_begin(self, execution: MemoryExecution) -> bool:
        """False if the execution fails before its effect."""
        return True

    @property
    def queued(self) -> dict[str, MemoryDurableExecution]:
        """The starts in Lambda's queue."""
        if not self.left.durable:
            return {}
        there = self.machine.executions
        return {name: one for name, one in self.machine.all.items() if name not in there}

    def running(self) -> int:
        """The number of executions that run."""
        return sum(one.status == "RUNNING" for one in self.machine.executions.values())

    def look(self, before: int) -> None:
        """See if a worker has started a second execution. `before` it, this number ran."""
        after = self.running()
        if after > 1 and not self.redriven and after > before:
            self.bad = "two executions of the key run at the same time"

    def state(self) -> object:
        """The world without the times and names that make no difference."""
        row, now = self.row, self.clock()
        names = sorted(self.machine.executions, key=_fence)
        fences = sorted({_fence(name) for name in names} | ({row.fence} if row else set()))
        seen = kept = None
        if row is not None:
            busy = row.is_live(now), (row.retry_at or 0) > now, bool(row.lease_until)
            names_of = row.version_id, row.committed_state, row.late_writes, row.rejected_fence is not None
            seen = row.status, fences.index(row.fence), row.attempts, busy, names_of
        executions = tuple(
            (
                fences.index(_fence(one.name)),
                one.given["versionId"],
                one.status,
                self.phases.get(one.name),
                _rests(one, now),
            )
            for one in (self.machine.executions[name] for name in names)
        )
        age = EVENT_AGE_SECONDS * 1000
        executions += tuple(
            (_fence(name), one.given["versionId"], "QUEUED", (one.accepted_at + age - now) // LAPSE, False)
            for name, one in self.queued.items()
        )
        if row is not None and row.execution:
            at, _, arn = row.execution.partition(" ")
            kept = f"-{row.fence}/" in arn, max((int(at) + age - now) // LAPSE, -1)
        queue = tuple(sorted(_label(body, fences) for body in self.queue))
        facts = self.current, self.downstream, tuple(sorted(self.tasks)), self.redriven, tuple(self.rejected)
        return self.left, seen, kept, executions, queue, facts, self.bad


def _fence(name: str) -> int:
    return int(name.rpartition("-")[2])


def _rests(execution: MemoryExecution, now: int) -> bool:
    return execution.status in ("ABORTED", "STOPPED") and now < (execution.stopped_at or 0) + LONGEST_TASK


def _label(body: str, fences: list[int]) -> str:
    content = json.loads(body)
    if "detail" in content:
        return f"end of {fences.index(_fence(content['detail']['name']))} {content['detail']['redriveCount']}"
    if "intakeLedger" in content:
        return "wake"
    return f"event of {content['Records'][0]['s3']['object']['versionId']}"


Step = tuple[str, Callable[[World], None]]


def steps(w: World) -> Iterator[Step]:
    """Each step from here, with each fault of a worker."""
    yield from plain_steps(w)
    for body in dict.fromkeys(w.queue):
        if not (w.left.deaths or w.left.pauses or w.left.forgets):
            continue
        label = f"a worker handles {short(body)}"
        requests = work(copy.deepcopy(w), body)
        for number in range(requests):
            if w.left.deaths:
                yield f"{label}, and dies before request {number}", _dying(body, number, after=False)
                yield f"{label}, and dies after request {number}", _dying(body, number, after=True)
            if w.left.pauses:
                yield from _pauses(label, body, number)
            if w.left.forgets and not w.left.puts:
                yield from _forgotten_meanwhile(label, body, number, requests)


def plain_steps(w: World) -> Iterator[Step]:
    """Each step without a fault of a worker."""
    if w.left.puts:
        yield "an upload", _upload
    for body in dict.fromkeys(w.queue):
        yield f"a worker handles {short(body)}", partial(_handle, body=body)
        if w.left.refusals:
            yield f"a worker handles {short(body)}, and a start is refused", partial(_refused, body=body)
        if w.left.queued:
            yield f"a worker handles {short(body)}, and a start is queued", partial(_queued, body=body)
    for name, one in w.queued.items():
        yield f"the queued start of {one.given['versionId']} begins", partial(_begin, name=name)
        yield f"the queued start of {one.given['versionId']} is dropped", partial(_drop, name=name)
    for name, execution in w.machine.executions.items():
        label = f"execution {execution.given['versionId']}"
        if execution.status == "RUNNING":
            if not w.can_begin(execution):
                yield from _ends(w, name, f"{label} cannot begin:", "FAILED", {})
            elif not w.phases.get(name):
                yield f"{label} writes", partial(_write, name=name)
            else:
                yield from _ends(w, name, label, "SUCCEEDED", {})
            if w.left.fails:
                yield from _ends(w, name, f"{label} fails:", "FAILED", {"fails": 1})
            if w.left.poison and execution.given["versionId"] in ("version-1", "1"):
                yield from _ends(w, name, f"{label} is poisoned:", "FAILED", {"poison": 1}, "Unprocessable")
            if w.left.aborts:
                yield from _ends(w, name, f"{label} with a task:", "ABORTED", {"aborts": 1})
        elif execution.status == "FAILED" and w.left.redrives:
            yield f"{label} is redriven", partial(_redrive, name=name)
    for version in dict.fromkeys(w.tasks):
        yield f"a task writes {version}", partial(_task, version=version, writes=True)
        yield f"a task of {version} ends", partial(_task, version=version, writes=False)
    if w.left.removals and len(w.s3.keys.get(KEY, ())) > 1:
        yield "the newest version is deleted", _remove
    if w.left.forgets and not w.left.puts:
        yield "a person has the key forgotten", lambda x: x.forget()
    row, now = w.row, w.clock()
    if row is not None and (row.is_live(now) or (row.retry_at or 0) > now):
        yield "leases and waits end", lambda x: x.clock.advance(LAPSE)
    if not w.tasks and any(_rests(one, now) for one in w.machine.executions.values()):
        yield "the time of the longest task is over", lambda x: x.clock.advance(LONGEST_TASK)


def short(body: str) -> str:
    """The message in a few words."""
    content = json.loads(body)
    if "detail" in content:
        return f"the end of {content['detail']['name'][-4:]}"
    if "event" in content:
        return f"message {content['event']}"
    return "a wake" if "intakeLedger" in content else f"{content['Records'][0]['s3']['object']['versionId']}"


def _upload(w: World) -> None:
    w.upload()
    w.use(puts=1)


def _remove(w: World) -> None:
    """Delete the newest version permanently. S3's event reports it."""
    version = w.current
    w.s3.delete_version(KEY, version)
    w.queue.append(s3_notification(CONSUMER.bucket, KEY, event="ObjectRemoved:Delete", version_id=version))
    w.use(removals=1)


def _ends(w: World, name: str, label: str, status: str, used: dict[str, int], error: str = "") -> Iterator[Step]:
    def end(x: World, lost: int) -> None:
        x.use(**used, losses=lost)
        if status == "ABORTED" and not x.phases.get(name):
            x.tasks.append(x.machine.executions[name].given["versionId"])
        named = "STOPPED" if x.left.durable and status == "ABORTED" else status
        body = x.machine.end(name, named, output={"commit": "done"}, error=error)
        x.queue += [] if lost else x.reported(body)

    yield f"{label} ends {status}", lambda x: end(x, 0)
    if w.left.losses:
        yield f"{label} ends {status}, and its event is lost", lambda x: end(x, 1)


def _write(w: World, name: str) -> None:
    version = w.machine.executions[name].given["versionId"]
    w.phases[name] = 1
    row = w.row
    if not w.redriven and row is not None and row.fence > _fence(name):
        w.bad = f"the execution of {version} writes after a later claim"
    w.downstream = version


def _redrive(w: World, name: str) -> None:
    w.machine.redrive(name)
    w.use(redrives=1)
    w.phases[name] = 0
    w.redriven = True


def _task(w: World, version: str, *, writes: bool) -> None:
    w.tasks.remove(version)
    if writes:
        w.downstream = version


def _dying(body: str, number: int, *, after: bool) -> Callable[[World], None]:
    def die(w: World) -> None:
        w.use(deaths=1)
        w.queue.remove(body)

        def fault(place: int, is_after: bool) -> None:
            if (place, is_after) == (number, after):
                raise DiedError

        try:
            acknowledged = bool(work(w, body, fault, acknowledges=True))
        except DiedError:
            acknowledged = False
        if not acknowledged:
            w.queue.append(w.returned(body))

    return die


def _pauses(label: str, body: str, number: int) -> Iterator[Step]:
    """A worker pauses before a request. Its lease ends, its message comes again, and another step happens."""

    def take_over(x: World, rounds: int, *, ends: bool) -> None:
        """Another worker handles the same message, and the execution that it starts ends."""
        x.use(pauses=1)

        def fault(place: int, is_after: bool) -> None:
            if place != number or is_after:
                return
            for _ in range(rounds):
                x.clock.advance(LAPSE)
                x.taken += 1
                work(x, body)
                for name, one in list(x.machine.executions.items()):
                    if ends and one.status == "RUNNING":
                        _write(x, name)
                        x.queue += x.reported(x.machine.end(name, "FAILED"))

        _handle(x, body, fault)

    yield (
        f"{label}, and pauses before request {number}: another worker handles it",
        lambda x: take_over(x, 1, ends=False),
    )
    yield f"{label}, and pauses before request {number}: others start and fail", lambda x: take_over(x, 2, ends=True)


def _forgotten_meanwhile(label: str, body: str, number: int, requests: int) -> Iterator[Step]:
    """A worker pauses before a request while a person has the key forgotten, and may die before a later one."""

    def forget(x: World, dies: int) -> None:
        x.queue.remove(body)

        def fault(place: int, is_after: bool) -> None:
            if place == dies and not is_after:
                raise DiedError
            if place == number and not is_after:
                x.clock.advance(LAPSE)
                x.forget()

        try:
            acknowledged = bool(work(x, body, fault, acknowledges=True))
        except DiedError:
            acknowledged = False
        if not acknowledged:
            x.queue.append(x.returned(body))

    text = f"{label}, and pauses before request {number}: a person has the key forgotten"
    yield text, lambda x: forget(x, -1)
    for dies in range(number + 1, requests + 3):
        yield f"{text}, and it dies before request {dies}", partial(forget, dies=dies)


def _handle(w: World, body: str, fault: Callable[[int, bool], None] = lambda _, __: None) -> None:
    w.queue.remove(body)
    taken = w.taken
    if not work(w, body, fault, acknowledges=True) or (w.receipts_end and w.taken > taken):
        w.queue.append(w.returned(body))


def _refused(w: World, body: str) -> None:
    w.use(refusals=1)
    refusal = ClientError(
        {"Error": {"Code": "AccessDeniedException"}}, "Invoke" if w.left.durable else "StartExecution"
    )
    w.machine.refuse_starts = lambda: refusal
    _handle(w, body)
    w.machine.refuse_starts = lambda: None


def _queued(w: World, body: str) -> None:
    """A start of this invocation waits in Lambda's queue. If there is none, it is as if it had not waited."""
    before = len(w.queued)
    w.machine.queue_seconds = 2 * EVENT_AGE_SECONDS
    _handle(w, body)
    w.machine.queue_seconds = 0
    w.use(queued=len(w.queued) - before)


def _begin(w: World, name: str) -> None:
    running = w.running()
    w.machine.all[name].starts_at = w.clock()
    w.look(running)


def _drop(w: World, name: str) -> None:
    """The queue drops a start at its longest age, and not before. The consumer waits for a minute more."""
    w.clock.now = max(w.clock.now, w.machine.all[name].accepted_at + EVENT_AGE_SECONDS * 1000 + MINUTE)
    assert name not in w.machine.executions


class CountedClient:
    """A client whose requests are counted."""

    def __init__(self, client: Any, count: list[int], fault: Callable[[int, bool], None]) -> None:
        self._client, self._count, self._fault = client, count, fault

    def __getattr__(self, name: str) -> Any:
        request = getattr(self._client, name)

        def call(**arguments: Any) -> Any:
            number = self._count[0]
            self._count[0] += 1
            self._fault(number, False)
            try:
                return request(**arguments)
            finally:
                self._fault(number, True)

        return call


class MemoryQueues:
    def __init__(self, w: World) -> None:
        self._w = w

    def in_flight(self) -> int:
        """Few messages are in flight."""
        return 0

    def deliver_later(self, *_: Any, **__: Any) -> None:
        """Each message may be received at any time."""

    def wake(self, body: str) -> None:
        if not self._w.redriven:
            self._w.bad = "a late write is recorded, and each execution ended before the next claim"
        self._w.queue.append(body)

    def dead_letter(self, body: str, attributes: Any, group: str) -> None:
        self._w.rejected = sorted({*self._w.rejected, self._w.dead_letter(body, attributes)})


def work(
    w: World, body: str, fault: Callable[[int, bool], None] = lambda _, __: None, *, acknowledges: bool = False
) -> int:
    """Run the real consumer on one message. Returns its requests, or whether it acknowledges the message."""
    count = [0]

    def owner() -> str:
        w.owners += 1
        return f"w{w.owners}"

    dynamodb, s3, machine = (CountedClient(one, count, fault) for one in (w.store, w.s3, w.machine))
    services = Outside(dynamodb, s3, machine, MemoryQueues(w), w.clock, owner, w.left.durable, w.left.stops)
    running = w.running()
    answer = w.consumer(services).handle(w.event(body), cast("Any", Context(w.clock, w.clock() + 3 * MINUTE)))
    w.look(running)
    return not answer["batchItemFailures"] if acknowledges else count[0]


class Outside(NamedTuple):
    """Everything that a worker gets from outside."""

    dynamodb: Any
    s3: Any
    machine: Any
    queues: Any
    clock: Callable[[], int]
    owner: Callable[[], str]
    durable: bool = False
    stops: bool = False


def make_consumer(outside: Outside) -> Consumer:
    """The real consumer and ledger of one worker."""
    policy = Policy(9, CONSUMER.retention_seconds * 1000, deletes=True, executions=True)
    bucket = Bucket(lambda: outside.s3, CONSUMER.bucket)
    ledger = object_ledger(
        LedgerTable(outside.dynamodb, CONSUMER.table),
        bucket,
        LedgerOptions(CONSUMER.pipeline, CONSUMER.ordering, policy, 6 * HOUR),
        clock=outside.clock,
        new_owner=outside.owner,
    )
    queues = cast("Queues", outside.queues)
    services = Services(CONSUMER, ledger, bucket, queues, cast("Any", _Telemetry()), outside.clock, lambda: 1.0)
    return Consumer(services, Objects(CONSUMER, bucket), Later(services, place_of(outside)))


def place_of(outside: Outside) -> StateMachine | DurableFunction:
    """The place of the executions, as one worker reaches it."""
    # An execution that must end before a task could have ended is not stopped.
    limit = 30 * 86_400 if outside.stops else 6 * 3600
    if outside.durable:
        durable = DurableSettings(FUNCTION, limit, LONGEST_TASK // 1000, EVENT_AGE_SECONDS, outside.stops)
        return DurableFunction(lambda: outside.machine, durable, CONSUMER.table, outside.clock)
    return StateMachine(lambda: outside.machine, ExecutionSettings(MACHINE, limit, LONGEST_TASK // 1000, outside.stops))


class _Telemetry(FakeTelemetry):
    def log_error(self, text: str, message_id: str, error: Exception) -> None:
        """Worlds inject refused starts only, so each other error of AWS is a defect."""
        if isinstance(error, ClientError) and error.operation_name in ("StartExecution", "Invoke"):
            return
        if isinstance(error, Fenced) and "has not kept" in text:
            return
        raise AssertionError(f"{text}: {error!r}") from error


def at_rest(w: World) -> str:
    """Errors when nothing moves any more. Empty if something moves."""
    running = any(one.status == "RUNNING" for one in w.machine.executions.values())
    if w.left.puts or w.queue or w.queued or running or w.tasks:
        return ""
    row = w.row
    if row is None:
        return "there is no row" if w.current else ""
    if row.status is Status.REJECTED:
        fine = row.version_id == w.current and w.current in w.rejected
        return "" if fine else f"lost: {w.current} is current, and {row.version_id} is rejected"
    if not row.settled or row.committed_state != f"v#{w.current}":
        return f"lost: {w.current} is current, and the row is {row.status} {row.committed_state}"
    return "" if w.downstream == w.current else f"the downstream has {w.downstream}, current is {w.current}"


def explore(world: ExecutionWorld, *, states: int = 10**6) -> Result:
    """Search all worlds from here."""
    return search(World(world), steps, states=states)


def search[W: World](
    first: W, moves: Callable[[W], Iterator[tuple[str, Callable[[W], None]]]], *, states: int = 10**6
) -> Result:
    """Search all worlds from this one, with these steps."""
    worlds: list[tuple[W, int, str]] = [(first, -1, "")]
    known = {first.state(): 0}
    before: dict[int, list[int]] = {}
    for here, (w, _, _) in enumerate(worlds):
        violation = w.bad or w.rest()
        if violation:
            return Result(violation, _trace(worlds, here), len(worlds))
        label = "a step"
        try:
            for label, step in moves(w):
                following = copy.deepcopy(w)
                step(following)
                if (state := following.state()) not in known:
                    known[state] = len(worlds)
                    worlds.append((following, here, label))
                before.setdefault(known[state], []).append(here)
        except AssertionError as error:  # a report or a request that no world expects
            return Result(str(error), [*_trace(worlds, here), label], len(worlds))
        if len(worlds) > states:
            return Result("", [], len(worlds))
    rest = [place for place, (w, _, _) in enumerate(worlds) if not (w.left.puts or w.queue or w.running())]
    reached = set(rest)
    while rest:
        fresh = set(before.get(rest.pop(), ())) - reached
        reached |= fresh
        rest += fresh
    if lost := [place for place in range(len(worlds)) if place not in reached]:
        return Result("no path leads to rest", _trace(worlds, lost[0]), len(worlds))
    return Result("", [], len(worlds))


def _trace[W: World](worlds: list[tuple[W, int, str]], here: int) -> list[str]:
    trace: list[str] = []
    while here > 0:
        _, before, label = worlds[here]
        trace.append(label)
        here = before
    return trace[::-1]
