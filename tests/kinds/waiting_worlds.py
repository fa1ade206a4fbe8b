"""Search small worlds of one key whose messages wait, by their visibility and as delayed copies.

The consumer, the ledger and the requests to SQS are the real ones, and the queue is that of the kit, with its delays,
receives and retention. Each step is an invocation, an upload, a person, or time. Time passes while no message is
visible, up to the next visible one. A worker may die before and after each request. It may also pause there, while
its lease ends and another worker handles the visible messages. The number of messages in flight may change at any time.
"""

import copy
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from intake_ledger import NotYet
from intake_ledger.aws.bucket import Bucket
from intake_ledger.aws.queues import Queues
from intake_ledger.consumer.consumer import Consumer
from intake_ledger.consumer.services import Services
from intake_ledger.events.parser import own_message
from intake_ledger.keyed.key_lock import KeyLock
from intake_ledger.kinds.messages import Messages
from intake_ledger.kinds.objects import Objects
from intake_ledger.ledger.dynamodb_table import LedgerTable
from intake_ledger.ledger.ledger import Ledger, LedgerOptions
from intake_ledger.messages.settings import MessageSettings, MessageSourceType
from intake_ledger.processor.object_change import Commit
from intake_ledger.protocol.change import Origin
from intake_ledger.protocol.row import Ordering, Retention, Row, RowKey, Status, row_key, success_key
from intake_ledger.protocol.settings import ConsumerSettings
from intake_ledger.protocol.verdict import Policy
from intake_ledger.runners.inline import Inline
from intake_ledger_testing.events import s3_notification
from intake_ledger_testing.memory_s3 import MemoryS3
from intake_ledger_testing.memory_sqs import MAX_MESSAGE_BYTES, MemorySQS, QueuedMessage
from tests.protocol.execution_worlds import CountedClient, DiedError, Result, search
from tests.protocol.strict_store import StrictDynamoDB
from tests.settings import CONSUMER
from tests.unit.consumer.test_consumer import Context, FakeTelemetry
from tests.unit.support import HOUR, MINUTE, SECOND, Clock

if TYPE_CHECKING:
    from intake_ledger.kinds import Kind

KEY, QUEUE, DEAD = "k", "queue", "dlq"
KEPT = 10 * HOUR
"""The retention of the queue."""
RETRY_SECONDS = 2 * 3600
LEASE = 3 * MINUTE


class Budget(NamedTuple):
    """The faults that may happen."""

    puts: int = 1
    """Messages, or uploads with their events."""
    deliveries: int = 1
    waits: int = 1
    """Times that the processor raises NotYet. Afterwards it commits."""
    fails: int = 0
    deaths: int = 0
    pauses: int = 0
    refusals: int = 0
    """Copies that SQS does not take."""
    crowds: int = 1
    """Changes of the number of messages in flight, from few to many and back."""
    asks: int = 0
    purges: int = 0
    repeats: int = 0
    """Messages that their sender sends again later."""
    retries: int = 0
    """People who ask to try again now."""
    others: int = 0
    """People who ask to try another key now. Copies of this one are judged too."""


WORLDS: dict[str, tuple[str, Budget]] = {
    "copies: objects, deaths": ("objects", Budget(waits=2, deaths=2)),
    "copies: objects, duplicates": ("objects", Budget(deliveries=2, waits=2, deaths=1, others=1)),
    "copies: objects, overwritten": ("objects", Budget(puts=2, waits=1, deaths=1, crowds=2)),
    "copies: objects, pauses": ("objects", Budget(waits=1, pauses=1)),
    "copies: objects, the queue deletes": ("objects", Budget(deliveries=2, waits=5, crowds=2, others=1)),
    "copies: objects, refused": ("objects", Budget(deliveries=2, waits=2, refusals=2)),
    "copies: objects, asked for": ("objects", Budget(waits=1, asks=1, deaths=1)),
    "copies: objects, retried by a person": ("objects", Budget(waits=2, retries=1, deaths=1)),
    "copies: messages, deaths": ("messages", Budget(waits=2, deaths=2)),
    "copies: messages, two of a key": ("messages", Budget(puts=2, waits=1, deaths=1)),
    "copies: messages, sent again": ("messages", Budget(waits=2, repeats=1, deaths=1)),
    "copies: messages, purged and sent again": ("messages", Budget(deliveries=2, waits=2, purges=1, repeats=1)),
    "copies: messages, the queue deletes": ("messages", Budget(deliveries=2, waits=6, crowds=2)),
    "copies: messages, failures": ("messages", Budget(waits=1, fails=1, deaths=1)),
    "copies: messages, refused": ("messages", Budget(waits=3, refusals=2, crowds=2)),
}


@dataclass
class World:
    """Everything that can matter later."""

    kind: str
    left: Budget
    clock: Clock = field(default_factory=Clock)
    sent: int = 0
    owners: int = 0
    crowded: bool = False
    done: list[str] = field(default_factory=list)
    """The committed effects, in order."""
    asked: int = 0
    purged: bool = False
    """True until the sender sends the message again: its content is nowhere."""
    bad: str = ""

    def __post_init__(self) -> None:
        self.s3 = MemoryS3(clock=self.clock)
        self.store = StrictDynamoDB()
        self.sqs = MemorySQS(
            clock=self.clock,
            visibility_seconds=LEASE // SECOND + 60,
            queue_url=QUEUE,
            dead_letter_url=DEAD,
            retention_seconds=KEPT // SECOND,
        )

    # --- for the search

    @property
    def queue(self) -> list[QueuedMessage]:
        return self.sqs.messages

    def running(self) -> int:
        """No executions."""
        return 0

    def use(self, **used: int) -> None:
        self.left = self.left._replace(**{name: getattr(self.left, name) - count for name, count in used.items()})

    @property
    def settings(self) -> ConsumerSettings:
        messages = self.kind == "messages"
        return replace(
            CONSUMER,
            bucket="messages:orders" if messages else CONSUMER.bucket,
            ordering=Ordering.EVERY_VERSION if messages else Ordering.LATEST,
            deletes=not messages,
            queue_url=QUEUE,
            dlq_url=DEAD,
            max_attempts=4,
            min_backoff_seconds=HOUR // SECOND,
            max_backoff_seconds=2 * HOUR // SECOND,
            max_hold_seconds=round(KEPT * 0.75) // SECOND,
            max_wait_seconds=7 * 86_400,
            in_flight_limit=1,
        )

    def row_of(self, number: int) -> Row | None:
        settings = self.settings
        identity = f"v#{number}" if self.kind == "messages" else None
        place = row_key(settings.pipeline, settings.ordering, settings.bucket, KEY, identity)
        return LedgerTable(cast("Any", self.store), CONSUMER.table).get(place)

    def rows(self) -> list[Row | None]:
        """The rows of all that was sent."""
        numbers = range(1, self.sent + 1) if self.kind == "messages" else range(min(1, self.sent))
        return [self.row_of(number) for number in numbers]

    def send(self, number: int) -> None:
        """Send a message of the key, as often as S3 or its sender does."""
        if self.kind == "messages":
            body = f'{{"order": "{KEY}", "event": "{number}"}}'
        else:
            version = self.s3.put(KEY, str(number).encode()).version_id
            body = s3_notification(self.settings.bucket, KEY, version_id=version, etag="e", size=1)
        for _ in range(self.left.deliveries):
            self.sqs.send(body)

    def state(self) -> object:
        """The world, with times from now on, and without names that make no difference."""
        now = self.clock()
        rows = [one for one in self.rows() if one is not None]
        messages = sorted(self.sqs.messages, key=lambda one: int(one.id.rpartition("-")[2]))
        ranks = {one.id: number for number, one in enumerate(messages)}
        fences = sorted({one.fence for one in rows})
        return (
            self.left,
            self.crowded,
            self.purged,
            tuple(
                (
                    one.status,
                    fences.index(one.fence),
                    one.attempts,
                    one.is_live(now),
                    max((one.retry_at or 0) - now, 0),
                    ranks.get(one.waiter_id or "", one.waiter_id and -1),
                    now - one.waiter_sent_at if one.waiter else 0,
                )
                for one in rows
            ),
            tuple((one.body, one.receives, max(one.visible_at - now, 0), now - one.sent_at) for one in messages),
            tuple(_carried(one, ranks, now) for one in messages),
            tuple(self.done),
            len(self.sqs.dead_letters),
            self.bad,
        )

    def rest(self) -> str:
        """The violation when nothing moves any more."""
        most = self.sent * self.left.deliveries + 6
        if len(self.sqs.messages) > most:
            return f"storm: {len(self.sqs.messages)} messages"
        if self.sqs.expired:
            return "the queue has deleted a message that waits"
        if self.left.puts or self.queue:
            return ""
        statuses = [one.status if one else None for one in self.rows()]
        fine = self.purged or all(one is Status.PROCESSED for one in statuses)
        if not fine:
            return f"lost: the rows are {statuses}"
        if self.asked and not any(one and one.served_reprocess_id for one in self.rows()):
            return "a request of a person was swallowed"
        return ""


def _carried(message: QueuedMessage, ranks: dict[str, int], now: int) -> object:
    """The past of a copy, from now on."""
    text = message.attributes.get("intake_wait")
    if text is None:
        return None
    sent, receives, due, _, names = json.loads(str(text))
    return now - sent, receives, max(due - now, 0), tuple(ranks.get(name, name) for name in names)


Step = tuple[str, Callable[[World], None]]


def steps(w: World) -> Iterator[Step]:
    """Each step from here, with each fault of a worker."""
    if w.left.puts:
        yield "a message is sent", _send
    if w.left.repeats and w.sent and w.kind == "messages":
        yield "its sender sends it again", _repeat
    if w.left.purges and w.queue:
        yield "the queue is purged", _purge
    if w.left.crowds:
        yield f"{'few' if w.crowded else 'many'} messages are in flight", _crowd
    if w.left.asks and w.sent and w.kind == "objects":
        yield "a person asks to reprocess", _ask
    row = w.row_of(1)
    if w.left.retries and row is not None and row.status is Status.FAILED and row.retry_at:
        yield "a person asks to try again now", _retry
    if w.left.others and row is not None and row.status is Status.FAILED:
        yield "a person asks to try another key now", _retry_other
    visible = [one for one in w.sqs.messages if one.visible_at <= w.clock()]
    for place, message in enumerate(visible):
        if any(one.body == message.body and _same(one, message) for one in visible[:place]):
            continue
        label = f"a worker handles {message.id}"
        yield label, partial(_handle, name=message.id)
        if w.left.waits:
            yield f"{label}: NotYet", partial(_handle, name=message.id, end="waits")
        if w.left.fails:
            yield f"{label}: it fails", partial(_handle, name=message.id, end="fails")
        if w.left.refusals:
            yield f"{label}: NotYet, and SQS takes no copy", partial(_refused, name=message.id)
        if not (w.left.deaths or w.left.pauses):
            continue
        for end in ["commits"] + ["waits"] * bool(w.left.waits):
            requests = work(copy.deepcopy(w), message.id, end=end)[0]
            for number in range(requests):
                for after in (False, True):
                    if w.left.deaths:
                        said = f"{label}: {end}, and dies {'after' if after else 'before'} request {number}"
                        yield said, partial(_dies, name=message.id, end=end, number=number, after=after)
                if w.left.pauses:
                    yield (
                        f"{label}: {end}, and pauses before request {number}",
                        partial(_pauses, name=message.id, end=end, number=number),
                    )
    times = [one.visible_at for one in w.sqs.messages if one.visible_at > w.clock()]
    if times and not visible:
        yield "time passes", lambda x: x.clock.advance(min(times) - x.clock())


def _same(one: QueuedMessage, other: QueuedMessage) -> bool:
    return (one.receives, one.sent_at, one.attributes) == (other.receives, other.sent_at, other.attributes)


def _send(w: World) -> None:
    w.sent += 1
    w.send(w.sent)
    w.use(puts=1)


def _purge(w: World) -> None:
    w.use(purges=1)
    w.purged = True
    w.sqs.purge()


def _repeat(w: World) -> None:
    w.use(repeats=1)
    w.purged = False
    w.clock.advance(1)
    w.sqs.send(f'{{"order": "{KEY}", "event": "1"}}')


def _crowd(w: World) -> None:
    w.use(crowds=1)
    w.crowded = not w.crowded


def _ask(w: World) -> None:
    w.use(asks=1)
    w.asked += 1
    w.sqs.send(own_message(Origin.REPROCESS, w.settings.bucket, KEY, reprocess_id=f"{1:026}"))


def _retry(w: World) -> None:
    """Like `intake-ledger retry --waiting`."""
    w.use(retries=1)
    w.clock.advance(1)
    settings = w.settings
    _set_now(
        w,
        row_key(settings.pipeline, settings.ordering, settings.bucket, KEY, "v#1" if w.kind == "messages" else None),
        "retry_at",
    )
    _set_now(w, success_key(settings.pipeline), "retry_now_at")
    if w.kind == "objects":
        w.sqs.send(own_message(Origin.AUDIT, settings.bucket, KEY))


def _retry_other(w: World) -> None:
    w.use(others=1)
    w.clock.advance(1)
    _set_now(w, success_key(w.settings.pipeline), "retry_now_at")


def _set_now(w: World, key: RowKey, name: str) -> None:
    w.store.update_item(
        TableName=CONSUMER.table,
        Key={"pk": {"S": key.pk}, "sk": {"S": key.sk}},
        UpdateExpression="SET #name = :now",
        ExpressionAttributeNames={"#name": name},
        ExpressionAttributeValues={":now": {"N": str(w.clock())}},
    )


def _handle(w: World, name: str, end: str = "commits") -> None:
    if end != "commits":
        w.use(**{end: 1})
    work(w, name, end=end)


def _refused(w: World, name: str) -> None:
    w.use(refusals=1)
    w.sqs.queue_bytes = 10
    work(w, name, end="waits")
    w.sqs.queue_bytes = MAX_MESSAGE_BYTES


def _dies(w: World, name: str, end: str, number: int, *, after: bool) -> None:
    w.use(deaths=1)

    def fault(place: int, is_after: bool) -> None:
        if (place, is_after) == (number, after):
            raise DiedError

    try:
        work(w, name, fault, end=end)
    except DiedError:
        return


def _pauses(w: World, name: str, end: str, number: int) -> None:
    """Another worker handles the visible messages after the lease and the visibility timeout."""
    w.use(pauses=1)

    def fault(place: int, is_after: bool) -> None:
        if place == number and not is_after:
            w.clock.advance(LEASE + 5 * MINUTE)
            for message in [one for one in w.sqs.messages if one.visible_at <= w.clock()]:
                work(w, message.id, end="commits")

    work(w, name, fault, end=end)


class _SQS:
    """The queue, with as many messages in flight as the world says."""

    def __init__(self, w: World) -> None:
        self._w = w

    def __getattr__(self, name: str) -> Any:
        return getattr(self._w.sqs, name)

    def get_queue_attributes(self, **_: Any) -> dict[str, Any]:
        return {"Attributes": {"ApproximateNumberOfMessagesNotVisible": str(int(self._w.crowded))}}


def work(w: World, name: str, fault: Callable[[int, bool], None] = lambda _, __: None, *, end: str) -> tuple[int, bool]:
    """Handle one message. Returns the number of requests, and whether the message is acknowledged."""
    found = [one for one in w.sqs.messages if one.id == name]
    if not found:
        return 0, False
    records = w.sqs.receive(1, lambda visible: [one for one in visible if one.id == name])
    if not records:
        return 0, False
    count = [0]

    def process(given: Any) -> Commit:
        if end == "waits":
            raise NotYet("the rates", retry_in=RETRY_SECONDS)
        if end == "fails":
            raise ValueError("no")
        w.done.append(str(getattr(given, "version_id", None) or getattr(given, "identity", "")))
        return Commit("done")

    consumer = make_consumer(w, process, partial(CountedClient, count=count, fault=fault))
    answer = consumer.handle({"Records": records}, cast("Any", Context(w.clock, w.clock() + LEASE)))
    acknowledged = not answer["batchItemFailures"]
    if acknowledged:
        w.sqs.delete([name])
    return count[0], acknowledged


def make_consumer(w: World, process: Callable[[Any], Commit], line: Callable[[Any], Any]) -> Consumer:
    """The real consumer and ledger of one worker."""

    def owner() -> str:
        w.owners += 1
        return f"w{w.owners}"

    settings = w.settings
    table, bucket = LedgerTable(line(w.store), CONSUMER.table), Bucket(lambda: line(w.s3), settings.bucket)
    policy = Policy.of(settings)
    options = LedgerOptions(settings.pipeline, settings.ordering, policy, 6 * HOUR)
    kind: Kind = Objects(settings, bucket)
    if w.kind == "messages":
        lock = KeyLock(table, settings.pipeline, Retention(settings.retention_seconds), clock=w.clock)
        kind = Messages(MessageSettings(settings, MessageSourceType.SQS, "order", "event"), lock)
    ledger = Ledger(table, kind.look, options, clock=w.clock, new_owner=owner, guards=kind.guards)
    queues = Queues(lambda: line(_SQS(w)), QUEUE, DEAD, shortened=kind.shortened)
    services = Services(settings, ledger, bucket, queues, cast("Any", _Telemetry()), w.clock, lambda: 1.0)
    return Consumer(services, kind, Inline(process))


class _Telemetry(FakeTelemetry):
    def log_error(self, text: str, message_id: str, error: Exception) -> None:
        """Copies may be refused, and an overtaken worker may be fenced."""


def explore(name: str, *, states: int = 10**6) -> Result:
    """Search all worlds from here."""
    kind, budget = WORLDS[name]
    return search(cast("Any", World(kind, budget)), cast("Any", steps), states=states)
