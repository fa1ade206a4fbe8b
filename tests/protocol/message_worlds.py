"""Search every order of the requests of several workers of a message intake, on the code that runs in Lambda.

Each step runs a worker from its start with the answers so far, and stops it at its next request. The search then
carries that request out, lets the processor fail, lets the worker die, repeats a request whose answer was lost, takes a
worker's claim by hand, or lets all leases end. After each step these promises are checked:

- Of one key, one live processor runs at most. A processor whose lease has ended is not live.
- A committed message stays committed, so it takes effect once. Its commit has the highest fence of its key.
- The fence of a key grows with each attempt.
- In FIFO queues and streams, no message starts before the earlier ones of its key are finished.
- A message leaves its queue or its shard only if its row is finished, and a rejected one has its copy.
- A worker that returns holds no lock.
- A message whose processor returns malformed writes is called again only after a death or the end of a lease.
- A copy that is moved back opens its row, unless another copy is left.
- With a fingerprint, one content of an identity reaches its processor. A message with another content leaves its queue
  only after a copy with the reason `identity_collides`. Copies with equal contents do not collide.
- No message of a rejected identity leaves its queue unless a copy with its content is in the dead-letter queue.
- A content that a person opens has another idempotency key than the contents before it. Each content keeps its key.
- No copy of the dead-letter queue is acknowledged after another content of its identity was committed.
"""

import base64
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

from botocore.exceptions import ClientError

from intake_ledger.aws.bucket import Bucket
from intake_ledger.aws.queues import Queues
from intake_ledger.consumer.consumer import Consumer
from intake_ledger.consumer.services import Services
from intake_ledger.keyed.key_lock import KeyLock
from intake_ledger.kinds.messages import Messages
from intake_ledger.ledger.dynamodb_table import LedgerTable
from intake_ledger.ledger.ledger import Ledger, LedgerOptions, break_claim
from intake_ledger.messages.keyed_message import KeyedMessage
from intake_ledger.messages.reader import MessageReader
from intake_ledger.messages.settings import MessageSettings, MessageSourceType
from intake_ledger.processor.object_change import Commit
from intake_ledger.protocol.errors import Unprocessable
from intake_ledger.protocol.reasons import Reason, ReasonCode
from intake_ledger.protocol.row import Ordering, Row, RowKey
from intake_ledger.protocol.verdict import Policy
from intake_ledger.runners.inline import Inline
from intake_ledger_testing.memory_sqs import DEAD_LETTER_URL, QUEUE_URL
from intake_ledger_testing.outcome_counter import OutcomeCounter
from tests.protocol.explorer import Result
from tests.protocol.strict_store import StrictDynamoDB
from tests.settings import CONSUMER
from tests.unit.messages.support import INVOCATION_MS, SOURCE_NAME, kinesis, sqs
from tests.unit.support import HOUR, START

_STREAM = MessageSourceType.KINESIS
_FINISHED = ("PROCESSED", "REJECTED")
_WRITES = ("put_item", "update_item", "delete_item")


class MessageWorld(NamedTuple):
    """The messages and the faults of one search."""

    messages: str
    """A key and an identity for each message, such as `ka kb`. A message that occurs twice is a copy. With a third
    letter, such as `ka1 ka2`, the third letters are the contents."""
    source: MessageSourceType = MessageSourceType.SQS
    deliveries: int = 3
    """The number of batches that Lambda delivers in all."""
    failures: int = 0
    """The number of calls of the processor that fail."""
    crashes: int = 0
    lapses: int = 0
    """The number of times that all leases end. Workers go on after it, and their messages come again."""
    losses: int = 0
    """The number of lost answers."""
    max_attempts: int = 3
    malformed: str = ""
    """The identities whose processor returns malformed writes."""
    rejects: int = 0
    """The number of calls of the processor that raise `Unprocessable`."""
    breaks: int = 0
    """The number of claims that a person takes from a worker, which goes on."""
    redrives: int = 0
    """The number of copies that a person moves back from the dead-letter queue. Of a standard queue only."""
    refusals: int = 0
    """The number of copies that the dead-letter queue does not take."""
    fingerprint: bool = False
    """The fingerprint compares the contents."""
    expires: bool = False
    """With the leases, all messages of the dead-letter queue end."""
    bare: bool = False
    """No message leaves room for attributes in its copy."""

    @property
    def names(self) -> list[tuple[str, str]]:
        return [(one[0], one[1]) for one in self.messages.split()]

    @property
    def contents(self) -> list[str]:
        """The content of each message."""
        return [one[2:] for one in self.messages.split()]

    @property
    def cost(self) -> float:
        """A guess at the effort of the search, on the scale of `prove.cost`."""
        faults = self.failures + self.crashes + self.lapses + self.losses + self.breaks
        faults += self.rejects + self.redrives + self.refusals
        return 3.0 ** (self.deliveries + len(self.names) + faults)

    @property
    def is_ordered(self) -> bool:
        return self.source is not MessageSourceType.SQS


SHORT: dict[str, MessageWorld] = {
    "messages of a key": MessageWorld("ka kb", failures=1, deliveries=2),
    "messages, a copy": MessageWorld("ka ka", losses=1, deliveries=2),
    "messages, a late worker": MessageWorld("ka kb", lapses=1, deliveries=2),
    "messages, a lock broken by hand": MessageWorld("ka kb", breaks=1, deliveries=2),
    "messages, a death": MessageWorld("ka", crashes=1, lapses=1, deliveries=2),
    "messages, FIFO": MessageWorld("ka kb", MessageSourceType.FIFO, failures=1, crashes=1, deliveries=2),
    "messages, a stream": MessageWorld("ka lb kc", _STREAM, failures=1, deliveries=2),
    "messages, malformed writes": MessageWorld("ka", crashes=1, lapses=1, malformed="a", deliveries=2),
    "messages, a redrive": MessageWorld("ka ka", rejects=1, redrives=1, deliveries=3),
    "messages, a bare copy": MessageWorld("ka", rejects=2, redrives=2, deliveries=3, bare=True),
    "messages, a refused copy": MessageWorld("ka", rejects=1, refusals=1, deliveries=3),
    "messages, other contents": MessageWorld("ka1 ka2", rejects=1, failures=1, deliveries=3),
    "messages, opened with other content": MessageWorld("ka1 ka2", rejects=1, redrives=1, deliveries=3),
    "messages, expired copies": MessageWorld("ka1 ka1", rejects=1, lapses=1, deliveries=2, expires=True),
    "messages, a fingerprint": MessageWorld("ka1 ka2", fingerprint=True, failures=1, deliveries=3),
}
FULL: dict[str, MessageWorld] = SHORT | {
    "messages of a key, deaths": MessageWorld("ka kb", crashes=1, failures=1, deliveries=2),
    "messages, a copy and a late worker": MessageWorld("ka ka", lapses=1, deliveries=2),
    "messages, a copy and a lock broken by hand": MessageWorld("ka ka", breaks=1, failures=1, deliveries=2),
    "messages, FIFO, a lock broken by hand": MessageWorld("ka kb", MessageSourceType.FIFO, breaks=1, deliveries=2),
    "messages, lost answers": MessageWorld("ka kb", losses=2, failures=1, deliveries=2),
    "messages, the last attempt": MessageWorld("ka", max_attempts=2, failures=2, deliveries=3),
    "messages, FIFO, a late worker": MessageWorld("ka kb", MessageSourceType.FIFO, lapses=1, failures=1, deliveries=2),
    "messages, a stream, a late worker": MessageWorld("ka kc", _STREAM, lapses=1, deliveries=2),
    "messages, a bare copy, deaths": MessageWorld("ka", rejects=1, redrives=1, crashes=1, deliveries=4, bare=True),
    "messages, a bare copy, FIFO": MessageWorld("ka kb", MessageSourceType.FIFO, rejects=1, bare=True, deliveries=2),
    "messages, a refused copy, deaths": MessageWorld("ka", rejects=1, refusals=1, crashes=1, lapses=1, deliveries=3),
    "messages, a fingerprint, deaths": MessageWorld("ka1 ka2", fingerprint=True, crashes=1, lapses=1, deliveries=3),
    "messages, a fingerprint, a copy": MessageWorld("ka1 ka1", fingerprint=True, failures=1, lapses=1, deliveries=3),
    "messages, a fingerprint, a late worker": MessageWorld("ka1 ka2", fingerprint=True, lapses=1, deliveries=3),
    "messages, a fingerprint, a refused copy": MessageWorld(
        "ka1 ka2", fingerprint=True, rejects=1, refusals=1, deliveries=3
    ),
    "messages, a fingerprint, FIFO": MessageWorld(
        "ka1 ka2", MessageSourceType.FIFO, fingerprint=True, failures=1, crashes=1, deliveries=3
    ),
    "messages, a fingerprint, a stream": MessageWorld(
        "ka1 kb1 ka2", _STREAM, fingerprint=True, failures=1, deliveries=2
    ),
    "messages, other contents, a redrive": MessageWorld("ka1 ka2", rejects=1, redrives=2, deliveries=4),
    "messages, opened with other content, deaths": MessageWorld(
        "ka1 ka2", rejects=1, redrives=1, crashes=1, deliveries=4
    ),
    "messages, opened with other content, a failure": MessageWorld(
        "ka1 ka2", rejects=1, redrives=1, failures=1, deliveries=4
    ),
    "messages, opened and rejected": MessageWorld("ka1 ka2", rejects=2, redrives=2, deliveries=4),
    "messages, opened with other content, a fingerprint": MessageWorld(
        "ka1 ka2", fingerprint=True, rejects=1, redrives=1, failures=1, deliveries=4
    ),
    "messages, other contents, deaths": MessageWorld("ka1 ka2", rejects=1, crashes=1, deliveries=3),
    "messages, other contents, the last attempt": MessageWorld(
        "ka1 ka2", max_attempts=2, failures=1, crashes=1, lapses=1, deliveries=3
    ),
    "messages, other contents, a refused copy": MessageWorld("ka1 ka2", rejects=1, refusals=2, deliveries=4),
    "messages, other contents, FIFO": MessageWorld(
        "ka1 ka2", MessageSourceType.FIFO, rejects=1, refusals=1, deliveries=3
    ),
    "messages, other contents, a stream": MessageWorld("ka1 kb1 ka2", _STREAM, rejects=1, refusals=1, deliveries=2),
    "messages, a stream, deaths": MessageWorld("ka kb", _STREAM, crashes=1, lapses=1, deliveries=2),
}


class _Answer(NamedTuple):
    tick: int
    value: Any
    error: Exception | None = None


_CLAIMS = ("put_item", "update_item")


class _Pause(KeyboardInterrupt):
    """Stops a worker at the first request without an answer."""


class _Request(NamedTuple):
    operation: str
    """A method of boto3's client, `send_message` or `process`."""
    argument: Any
    lease_until: int
    """The end of the lease that the worker wrote into a row last, in epoch milliseconds."""


@dataclass(frozen=True)
class _Worker:
    number: int
    batch: tuple[int, ...]
    """Places of its messages in the script."""
    started: int
    """The world's tick at its start."""
    history: tuple[_Answer, ...] = ()
    asked: "_Request | list[str] | None" = None
    """Its next request, or the ids that it returns."""


@dataclass(frozen=True)
class _State:
    items: Mapping[tuple[str, str], Any]
    workers: tuple[_Worker, ...]
    waiting: tuple[int, ...]
    """Places of the messages that Lambda may deliver."""
    copies: tuple[tuple[str, str, int], ...] = ()
    """Identities in the dead-letter queue, their contents, and the fences of their rejections: 0 for a copy without
    this attribute."""
    fences: tuple[tuple[str, int], ...] = ()
    """The highest fence that a processor of each key had."""
    begun: tuple[tuple[str, str], ...] = ()
    """The content of each identity whose processor was called."""
    keys: tuple[tuple[tuple[str, str], str], ...] = ()
    """The idempotency key of each identity and content whose processor was called."""
    opened: tuple[tuple[str, str], ...] = ()
    """Identities and contents with which a person has opened a rejection of other content."""
    tick: int = 0
    delivered: int = 0
    left: tuple[int, int, int, int] = (0, 0, 0, 0)
    """Failures, crashes, lapses and losses that may still happen."""
    breaks: int = 0
    broken: tuple[int, ...] = ()
    """Workers whose claims a person has taken."""
    rejects: int = 0
    redrives: int = 0
    refusals: int = 0

    @property
    def name(self) -> str:
        """Equal for states that go on in the same way."""
        workers = [(one.number, one.batch, one.started, _told(one.history)) for one in self.workers]
        rest = (
            self.waiting,
            self.copies,
            self.fences,
            self.begun,
            self.keys,
            self.opened,
            self.tick,
            self.delivered,
            self.left,
        )
        budgets = (self.breaks, self.broken, self.rejects, self.redrives, self.refusals)
        return repr((sorted(self.items.items()), workers, rest, budgets))

    @property
    def now(self) -> int:
        return START + self.tick * HOUR


def _told(history: Sequence[_Answer]) -> list[Any]:
    return [
        (one.tick, one.value, one.error.response if isinstance(one.error, ClientError) else type(one.error).__name__)
        for one in history
    ]


class _Violation(Exception):  # noqa: N818 - a finding
    """A promise is broken."""


class _Port:
    """Answers a worker's requests from its history, and stops it at the next one."""

    def __init__(self, worker: _Worker, world: MessageWorld) -> None:
        self._worker = worker
        self._malformed = world.malformed
        self._bare = world.bare
        self._position = 0
        self._owners = 0
        self._lease_until = 0
        self.asked: _Request | None = None
        self.verdicts: Counter[str] = Counter()
        self.outcomes: Counter[str] = Counter()
        self.late_writes = 0

    def now(self) -> int:
        tick = self._worker.history[self._position - 1].tick if self._position else self._worker.started
        return START + tick * HOUR

    def owner(self) -> str:
        self._owners += 1
        return f"w{self._worker.number}.{self._owners}"

    def call(self, operation: str, argument: Any) -> Any:
        if self.asked is None and self._position == len(self._worker.history):
            self.asked = _Request(operation, argument, self._lease_until)
        if self.asked is not None:
            # Also in the `finally` of the code that is stopped: its first request counts.
            raise _Pause
        written = argument.get("Item") or argument.get("ExpressionAttributeValues", {}) if operation in _CLAIMS else {}
        if (until := written.get("lease_until") or written.get(":lease_until")) is not None:
            self._lease_until = int(until["N"])
        answer = self._worker.history[self._position]
        self._position += 1
        if answer.error is not None:
            raise answer.error
        return answer.value

    def get_remaining_time_in_millis(self) -> int:
        """Nothing, if the invocation began before the leases ended: Lambda has ended it."""
        return INVOCATION_MS if self.now() < START + (self._worker.started + 1) * HOUR else 0

    def get_queue_attributes(self, **_: Any) -> dict[str, Any]:
        """Few messages are in flight."""
        return {"Attributes": {"ApproximateNumberOfMessagesNotVisible": "0"}}

    def change_message_visibility_batch(self, **_: Any) -> dict[str, Any]:
        return {}

    def send_message(self, **request: Any) -> None:
        attributes = request.get("MessageAttributes", {})
        if self._bare and attributes:
            raise ClientError({"Error": {"Code": "InvalidParameterValue"}}, "SendMessage")
        body = json.loads(request["MessageBody"])
        if "intakeLedger" in body:
            body = json.loads(base64.b64decode(body["intakeLedger"]["record"]["kinesis"]["data"]))
        fence = int(attributes.get("rejected_fence", {"StringValue": "0"})["StringValue"])
        self.call("send_message", (str(body["event"]), body.get("amount", ""), fence))

    def process(self, message: KeyedMessage) -> Commit:
        self.call("process", message)
        return Commit(transact=cast("Any", [5]) if message.identity in self._malformed else ())

    def __getattr__(self, operation: str) -> Any:
        return lambda **request: self.call(operation, request)


class _Counter(OutcomeCounter):
    def log_error(self, text: str, message_id: str, error: Exception) -> None:
        """Raise errors that only a defect can cause. By name, since a seeded copy has other classes."""
        if type(error).__name__ not in ("Fenced", "CopyRefused"):
            raise AssertionError(text) from error


class MessageSearch:
    """The search of one world."""

    def __init__(self, world: MessageWorld) -> None:
        self._world = world
        self._names = world.names
        self._contents = world.contents
        self._sent = len(self._names)
        """The number of messages that were sent. Those after them are copies that were moved back."""
        self._moved: dict[tuple[str, str, int, int], int] = {}
        """The place of a copy that was moved back, by its identity, content and fence, and the redrives before it."""
        self._digests: dict[int, str | None] = {}
        self._asked: dict[Any, _Request | list[str]] = {}
        self._settings = replace(
            CONSUMER,
            pipeline="orders",
            bucket=SOURCE_NAME,
            ordering=Ordering.EVERY_VERSION,
            deletes=False,
            max_attempts=world.max_attempts,
            min_backoff_seconds=0,
            max_backoff_seconds=0,
            processing_timeout_seconds=30,
        )

        self._intake = MessageSettings(
            self._settings,
            world.source,
            "order",
            "event",
            fingerprint="amount" if world.fingerprint else "",
            # An hour less counts, so that all are late after the leases have ended.
            letter_seconds=2 * HOUR // 1000 if world.expires else 14 * 24 * HOUR // 1000,
        )

    def explore(self) -> Result:
        """Search all orders, or until a promise is broken."""
        world = self._world
        left = (world.failures, world.crashes, world.lapses, world.losses)
        start = _State(
            {},
            (),
            tuple(range(self._sent)),
            left=left,
            breaks=world.breaks,
            rejects=world.rejects,
            redrives=world.redrives,
            refusals=world.refusals,
        )
        parents: dict[str, tuple[str, str] | None] = {start.name: None}
        waiting = [start]
        while waiting:
            state = waiting.pop()
            name = state.name
            try:
                for step, after in self._next(state):
                    if after.name not in parents:
                        parents[after.name] = name, step
                        waiting.append(after)
            except (_Violation, AssertionError) as violation:  # or a report or a request that no world expects
                trace, found = [], parents[name]
                while found is not None:
                    trace.append(found[1])
                    found = parents[found[0]]
                return Result(str(violation), trace[::-1], len(parents), complete=False)
        return Result("", [], len(parents), complete=True)

    def _next(self, state: _State) -> Iterator[tuple[str, _State]]:
        failures, crashes, lapses, losses = state.left
        if state.delivered < self._world.deliveries:
            yield from self._deliveries(state)
        for worker in state.workers:
            asked = cast("_Request | list[str]", worker.asked)
            others = replace(state, workers=tuple(one for one in state.workers if one is not worker))
            if isinstance(asked, list):
                yield f"{worker.number} returns {asked}", self._returned(others, worker, asked)
                continue
            yield f"{worker.number}: {asked.operation}", self._carried_out(others, worker, asked)
            if asked.operation == "process" and failures:
                after = replace(others, left=(failures - 1, crashes, lapses, losses))
                yield f"{worker.number}: it fails", self._answered(after, worker, asked, RuntimeError())
            if asked.operation == "process" and state.rejects:
                after = replace(others, rejects=state.rejects - 1)
                yield f"{worker.number}: it rejects", self._answered(after, worker, asked, Unprocessable("no"))
            if asked.operation == "send_message" and state.refusals:
                after = replace(others, refusals=state.refusals - 1)
                denied = ClientError({"Error": {"Code": "AccessDenied"}}, "SendMessage")
                yield f"{worker.number}: the copy is refused", self._answered(after, worker, asked, denied)
            if asked.operation in _WRITES and losses:
                after = replace(others, left=(failures, crashes, lapses, losses - 1))
                yield f"{worker.number}: {asked.operation} twice", self._carried_out(after, worker, asked, times=2)
            if crashes:
                again = self._again(others, worker)
                yield f"{worker.number} dies", replace(again, left=(failures, crashes - 1, lapses, losses))
        if state.redrives:
            for copy in state.copies:
                place = self._moved_back(*copy, state.redrives)
                rest = tuple(one for one in state.copies if one != copy)
                waiting = tuple(sorted({*state.waiting, place}))
                yield f"{copy} is moved back", replace(state, copies=rest, waiting=waiting, redrives=state.redrives - 1)
            yield from self._openings(state)
        for worker in state.workers if state.breaks else ():
            for claimed, row in self._claims(state, worker):
                store = StrictDynamoDB(cast("Any", state.items))
                table, reason = LedgerTable(cast("Any", store), "table"), Reason(ReasonCode.LOCK_BROKEN, "broken")
                break_claim(table, "orders", claimed, row, reason, now=state.now)
                broken = (*state.broken, worker.number)
                after = replace(state, items=store.items, breaks=state.breaks - 1, broken=broken)
                yield f"a person takes the claim of {worker.number}", self._again(after, worker)
        if lapses and (state.workers or state.items):
            after = replace(state, tick=state.tick + 1, left=(failures, crashes, lapses - 1, losses))
            for worker in state.workers:
                after = self._again(after, worker)
            yield "all leases end", replace(after, copies=()) if self._world.expires else after

    def _openings(self, state: _State) -> Iterator[tuple[str, _State]]:
        """A person opens a rejected row with the content of a copy."""
        for copy in state.copies:
            identity, content, fence = copy
            key = next(key for key, name in self._names if name == identity)
            row = state.items.get((f"{SOURCE_NAME}/{key}", f"orders@v#{identity}"), {})
            present = int(row.get("rejected_fence", {"N": "0"})["N"])
            if not content or present == fence or row.get("status", {}).get("S") != "REJECTED":
                continue
            place = self._moved_back(identity, content, present, state.redrives)
            waiting = tuple(sorted({*state.waiting, place}))
            rest = tuple(one for one in state.copies if one != copy)
            opened = tuple(sorted({*state.opened, (identity, content)}))
            after = replace(state, copies=rest, waiting=waiting, redrives=state.redrives - 1, opened=opened)
            yield f"{copy} opens {identity}", after

    def _claims(self, state: _State, worker: _Worker) -> Iterator[tuple[RowKey, Row]]:
        """The live claims of a worker."""
        table = LedgerTable(cast("Any", StrictDynamoDB(cast("Any", state.items))), "table")
        for name in state.items:
            row = table.get(RowKey(*name))
            if row is not None and row.is_live(state.now) and str(row.lease_owner).startswith(f"w{worker.number}."):
                yield RowKey(*name), row

    def _moved_back(self, identity: str, content: str, fence: int, redrives: int) -> int:
        """The place of a copy that a person moves back."""
        known = identity, content, fence, redrives
        if known not in self._moved:
            self._moved[known] = len(self._names)
            self._names.append(next(name for name in self._names if name[1] == identity))
            self._contents.append(content)
        return self._moved[known]

    def _deliveries(self, state: _State) -> Iterator[tuple[str, _State]]:
        """Lambda's next batches: one message of a standard queue, or all that are left in order."""
        batches = [state.waiting] if self._world.is_ordered else [(place,) for place in state.waiting]
        for batch in filter(None, batches):
            worker = self._asking(_Worker(state.delivered, batch, state.tick))
            rest = tuple(place for place in state.waiting if place not in batch)
            workers, delivered = (*state.workers, worker), state.delivered + 1
            yield (
                f"deliver {batch} to {worker.number}",
                replace(state, workers=workers, waiting=rest, delivered=delivered),
            )

    def _again(self, state: _State, worker: _Worker) -> _State:
        """The messages of the worker come again."""
        unfinished = [
            place
            for place in worker.batch
            if place >= self._sent
            or self._status(state, place) not in _FINISHED
            or self._has_other_content(state, place)
            or self._world.expires
        ]
        # In order: a group, or a shard, is delivered from its first message on.
        first = worker.batch if unfinished else ()
        return replace(state, waiting=tuple(sorted({*state.waiting, *first})))

    def _asking(self, worker: _Worker) -> _Worker:
        return replace(worker, asked=self._ask(worker))

    def _ask(self, worker: _Worker) -> _Request | list[str]:
        """The worker's next request, or the ids that it returns. Many states have this worker."""
        known = worker.number, worker.batch, worker.started, repr(_told(worker.history))
        if known not in self._asked:
            self._asked[known] = self._run(worker)
        return self._asked[known]

    def _run(self, worker: _Worker) -> _Request | list[str]:
        port = self._port(worker)
        consumer = self._consumer(port)
        try:
            answer = consumer.handle({"Records": [self._record(place) for place in worker.batch]}, port)
        except _Pause:
            assert port.asked is not None
            return port.asked
        return [one["itemIdentifier"] for one in answer["batchItemFailures"]]

    def _port(self, worker: _Worker) -> _Port:
        return _Port(worker, self._world)

    def _consumer(self, port: Any) -> Consumer:
        """The consumer of the world, whose requests go to the port."""
        settings, table = self._settings, LedgerTable(cast("Any", port), "table")
        policy = Policy(settings.max_attempts, settings.retention_seconds * 1000, deletes=False)
        options = LedgerOptions("orders", settings.ordering, policy, settings.max_event_age_seconds * 1000)
        bucket = Bucket(lambda: cast("Any", None), SOURCE_NAME)
        intake = self._intake
        lock = KeyLock(table, options.pipeline, options.retention, clock=port.now)
        return self._wired(port, Messages(intake, lock, sleep=lambda _: None), options, table, bucket, port.process)

    def _wired(
        self,
        port: Any,
        kind: Any,
        options: LedgerOptions,
        table: LedgerTable,
        bucket: Bucket,
        process: Callable[[Any], object],
    ) -> Consumer:
        """The consumer of a kind with the clock, the names and the queues of the port."""
        services = Services(
            self._settings,
            Ledger(table, kind.look, options, clock=port.now, new_owner=port.owner, guards=kind.guards),
            bucket,
            Queues(lambda: cast("Any", port), QUEUE_URL, DEAD_LETTER_URL, shortened=kind.shortened),
            _Counter(port),
            port.now,
            lambda: 0.0,
        )
        return Consumer(services, kind, Inline(process))

    def _record(self, place: int) -> dict[str, Any]:
        key, identity = self._names[place]
        content: dict[str, Any] = {"amount": self._contents[place]} if any(self._contents) else {}
        if self._world.source is MessageSourceType.KINESIS:
            return kinesis(key, identity, place, json.dumps({"order": key, "event": identity, **content}))
        record = sqs(key, identity, group="g", **content) | {"messageId": str(place)}
        fences = {number: fence for (_, _, fence, _), number in self._moved.items()}
        if fence := fences.get(place):
            record["messageAttributes"] = {"rejected_fence": {"stringValue": str(fence)}}
        elif place in fences and not self._world.bare:
            record["messageAttributes"] = {"reason_code": {"stringValue": "any"}}
        return record

    def _carried_out(self, state: _State, worker: _Worker, asked: _Request, times: int = 1) -> _State:
        """The state after a request, which is carried out again if its answer is lost."""
        if asked.operation == "process":
            return self._answered(state, worker, asked, None)
        if asked.operation == "send_message":
            identity, content, fence = asked.argument
            if fence == 0 and content and set(self._contents) == {content} and not self._world.expires:
                raise _Violation(f"{identity} collides with no message")
            copies = tuple(sorted({*state.copies, asked.argument}))
            return self._answered(replace(state, copies=copies), worker, asked, None)
        store, value, error = StrictDynamoDB(cast("Any", state.items)), None, None
        for _ in range(times):
            try:
                value, error = getattr(store, asked.operation)(**asked.argument), None
            except ClientError as refused:
                value, error = None, refused
        after = replace(state, items=store.items)
        self._check_rows(state, after, worker)
        return self._answered(after, worker, asked, error, value)

    def _answered(self, state: _State, worker: _Worker, asked: _Request, error: Any, value: Any = None) -> _State:
        answer = _Answer(state.tick, value, error)
        moved = self._asking(replace(worker, history=(*worker.history, answer)))
        if isinstance(moved.asked, _Request) and moved.asked.operation == "process":
            state = self._begun(state, moved.asked.argument)
        workers = sorted((*state.workers, moved), key=lambda one: one.number)
        return replace(state, workers=tuple(workers))

    def _begun(self, state: _State, message: KeyedMessage) -> _State:
        """The processor of a worker starts."""
        fences = dict(state.fences)
        if message.fence <= fences.get(message.key, 0):
            raise _Violation(f"the fence of {message.key} does not grow")
        fences[message.key] = message.fence
        begun = dict(state.begun)
        content = message.body.get("amount", "")
        chosen = not self._world.fingerprint or (message.identity, content) in state.opened
        if begun.setdefault(message.identity, content) != content and not chosen:
            raise _Violation(f"{message.identity} is processed with two contents")
        keys = dict(state.keys)
        others = {used for (one, other), used in keys.items() if one == message.identity and other != content}
        is_new = (message.identity, content) not in keys
        if keys.setdefault((message.identity, content), message.idempotency_key) != message.idempotency_key:
            raise _Violation(f"{message.identity} {content} has two idempotency keys")
        if is_new and (message.identity, content) in state.opened and message.idempotency_key in others:
            raise _Violation(f"{message.identity} {content} has the idempotency key of another content")
        _, crashes, lapses, _ = state.left
        ended = self._world.crashes - crashes + self._world.lapses - lapses
        if message.identity in self._world.malformed and message.attempt > 1 + ended:
            raise _Violation(f"the malformed effect of {message.identity} is tried again")
        workers = [one for one in state.workers if one.number not in state.broken]
        running = [one.asked for one in workers if isinstance(one.asked, _Request)]
        live = [one for one in running if one.operation == "process" and one.lease_until > state.now]
        if any(one.argument.key == message.key for one in live):
            raise _Violation(f"two live processors of {message.key}")
        for place, (key, identity) in enumerate(self._names):
            if self._world.is_ordered and (key, identity) == (message.key, message.identity):
                break
            if self._world.is_ordered and key == message.key and self._status(state, place) not in _FINISHED:
                raise _Violation(f"{message.identity} starts before {identity}")
        return replace(
            state,
            fences=tuple(sorted(fences.items())),
            begun=tuple(sorted(begun.items())),
            keys=tuple(sorted(keys.items())),
        )

    def _check_rows(self, before: _State, after: _State, worker: _Worker) -> None:
        """Check each row that a request has changed, and the fences of the locks."""
        for key in before.items.keys() | after.items.keys():
            old, new = before.items.get(key, {}), after.items.get(key, {})
            if key[1].endswith("@lock"):
                if int(new.get("fence", {}).get("N", 0)) < int(old.get("fence", {}).get("N", 0)):
                    raise _Violation("the fence of a lock goes back")
                continue
            was, now = (one.get("status", {}).get("S") for one in (old, new))
            if old != new and now == "PROCESSED" and worker.number in before.broken:
                raise _Violation(f"worker {worker.number} commits a claim that a person has taken")
            if was == "PROCESSED" and old != new:
                raise _Violation(f"the commit of {key[1]} is changed")
            if was != now == "PROCESSED":
                name = key[0].removeprefix(f"{SOURCE_NAME}/")
                if self._fence(worker, key[1].rpartition("#")[2]) != dict(before.fences)[name]:
                    raise _Violation(f"{key[1]} is committed after a later attempt on its key")

    def _fence(self, worker: _Worker, identity: str) -> int:
        """The fence of the worker's last processor call on this message."""
        for length in range(len(worker.history), -1, -1):
            asked = self._ask(replace(worker, history=worker.history[:length]))
            if isinstance(asked, _Request) and asked.operation == "process" and asked.argument.identity == identity:
                return int(asked.argument.fence)
        raise _Violation(f"{identity} is committed without its processor")

    def _returned(self, state: _State, worker: _Worker, failed: list[str]) -> _State:
        """Lambda deletes the messages that the worker does not return, or goes on in the shard."""
        for key, item in state.items.items():
            row = self._holder(state, key, item) if key[1].endswith("@lock") else {}
            mine = row.get("lease_owner", {}).get("S", "").startswith(f"w{worker.number}.")
            works = (
                row.get("status", {}).get("S") == "PROCESSING"
                and int(row.get("lease_until", {"N": 0})["N"]) > state.now
            )
            if mine and works and row["fence"] == item["holder_fence"]:
                raise _Violation(f"worker {worker.number} returns and holds the lock of {key[0]}")
        if self._world.source is MessageSourceType.KINESIS:
            lowest = int(failed[0]) if failed else len(self._names)
            again = [place for place in worker.batch if place >= lowest]
        else:
            again = [place for place in worker.batch if str(place) in failed]
        for place in set(worker.batch) - set(again):
            status = self._status(state, place)
            name, content = self._names[place], self._contents[place]
            # A copy that was moved back continues the work.
            if self._is_moved_back(state, name, content):
                continue
            if (name[1], content, 0) in state.copies or (content and self._has_copy(state, name[1], content)):
                continue
            is_told = status == "REJECTED" or place >= self._sent or self._world.fingerprint
            if is_told and self._has_other_content(state, place):
                raise _Violation(f"{name} is acknowledged, and its row has another content")
            if status not in _FINISHED:
                raise _Violation(f"{name} is acknowledged and {status}")
            if self._world.expires and worker.started < state.tick:
                continue  # the copy has ended since it was judged
            if status == "REJECTED" and name[1] not in (identity for identity, _, _ in state.copies):
                raise _Violation(f"{name} is rejected without a copy")
        waiting = {place for place in state.waiting if place not in worker.batch} | set(again)
        late = {place for place in state.waiting if place in worker.batch}
        # A copy that came again after a lapse stays: SQS takes no receipt handle of an earlier receive.
        return replace(state, waiting=tuple(sorted(waiting | late)))

    def _holder(self, state: _State, lock: tuple[str, str], item: Any) -> Any:
        """The row that a lock names."""
        return state.items.get((lock[0], item.get("holder", {}).get("S", "")), {})

    def _is_moved_back(self, state: _State, name: tuple[str, str], content: str) -> bool:
        """True if a copy of a message was moved back from the dead-letter queue and is not finished."""
        places = {*state.waiting, *(place for worker in state.workers for place in worker.batch)}
        moved = (place for place in places if place >= self._sent)
        return any((self._names[place], self._contents[place]) == (name, content) for place in moved)

    def _has_copy(self, state: _State, identity: str, content: str) -> bool:
        return any((one, text) == (identity, content) for one, text, _ in state.copies)

    def _has_other_content(self, state: _State, place: int) -> bool:
        key, identity = self._names[place]
        row = state.items.get((f"{SOURCE_NAME}/{key}", f"orders@v#{identity}"))
        return self._contents[place] != "" and row is not None and row["etag"]["S"] != self._digest(place)

    def _digest(self, place: int) -> str | None:
        """The digest of a message's content in its row."""
        if place not in self._digests:
            reader, record = MessageReader(self._intake), self._record(place)
            read = reader.from_stream if self._world.source is _STREAM else reader.from_queue
            change = read(record).only_change
            assert change is not None
            assert change.state is not None
            self._digests[place] = change.state.etag
        return self._digests[place]

    def _status(self, state: _State, place: int) -> str | None:
        key, identity = self._names[place]
        item = state.items.get((f"{SOURCE_NAME}/{key}", f"orders@v#{identity}"), {})
        status: str | None = item.get("status", {}).get("S")
        return status
