"""Helpers for tests of the runtime: a clock, an in-memory S3, events in AWS's formats, and a ledger's table."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from typing import TYPE_CHECKING, Any, Protocol, cast

from cdk_intake_ledger.testing import MemoryDynamoDB
from intake_ledger.aws.bucket import Bucket
from intake_ledger.events.parser import own_message, parse_message
from intake_ledger.ledger.dynamodb_table import LedgerTable, execute_batch, send_write
from intake_ledger.ledger.ledger import Claim, Ledger, LedgerOptions
from intake_ledger.ledger.row_history import RowHistory
from intake_ledger.processor.object_stream import ObjectStream
from intake_ledger.protocol.change import ABSENT, Change, Origin, State, StateKind
from intake_ledger.protocol.reasons import Reason, ReasonCode
from intake_ledger.protocol.row import Ordering, Row, RowKey, row_key
from intake_ledger.protocol.verdict import Policy, Ruling, Verdict
from intake_ledger_testing.consumers import object_ledger
from intake_ledger_testing.events import eventbridge_event, s3_notification
from intake_ledger_testing.memory_s3 import MemoryS3

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

BUCKET = "uploads"
PIPELINE = "Catalogue-Models"
KEY = "in/a b+ä.csv"
SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000
START = 1_795_000_000_000
"""The start of each test's clock in epoch milliseconds."""
RETENTION = 35 * DAY
LATE_AFTER = 6 * HOUR
LEASE = 3 * MINUTE
MAX_ATTEMPTS = 3
MARKER_ETAG = "d41d8cd98f00b204e9800998ecf8427e"


@dataclass(slots=True)
class Clock:
    """A clock in epoch milliseconds, which only the test advances."""

    now: int = START

    def __call__(self) -> int:
        return self.now

    def advance(self, milliseconds: int) -> None:
        self.now += milliseconds


class FakeS3(Bucket):
    """The runtime's `Bucket` with the in-memory S3. Hooks run between its requests."""

    def __init__(self, clock: Clock, *, versioned: bool = True) -> None:
        self.memory = MemoryS3(clock=clock, versioned=versioned)
        super().__init__(lambda: cast("Any", self.memory), BUCKET)
        self.looks: list[str] = []
        self.after_look: list[Callable[[], object]] = []
        """Hooks that run once each, after a HEAD and before the next write."""
        self.before_open: list[Callable[[], object]] = []
        """Hooks that run once each, before a version is opened. They may raise S3's errors."""
        self.streams: list[ObjectStream] = []
        """All opened streams, in order."""

    def put(self, key: str, data: bytes | str) -> State:
        """Upload an object, and return the state that S3 then shows."""
        made = self.memory.put(key, data.encode() if isinstance(data, str) else data)
        return State(StateKind.OBJECT, made.version_id, made.etag, len(made.content or b""), _ms(made.modified))

    def mark_deleted(self, key: str) -> State:
        """Delete without a version ID, and return the delete marker, or ABSENT without versioning."""
        made = self.memory.delete(key)
        return State(StateKind.MARKER, made.version_id, created_at=_ms(made.modified)) if made else ABSENT

    def delete_version(self, key: str, state: State) -> None:
        """Permanently delete one version or delete marker."""
        self.memory.delete_version(key, state.version_id)

    def look(self, key: str) -> State:
        self.looks.append(key)
        state = super().look(key)
        if self.after_look:
            self.after_look.pop(0)()
        return state

    def shows_removal(self, key: str, removal: State) -> bool:
        self.looks.append(key)
        return super().shows_removal(key, removal)

    def open(self, key: str, state: State) -> ObjectStream:
        if self.before_open:
            self.before_open.pop(0)()
        self.streams.append(super().open(key, state))
        return self.streams[-1]


def _ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)


def record(
    key: str,
    state: State,
    event: str = "ObjectCreated:Put",
    *,
    at: int = START,
    bucket: str = BUCKET,
    sequencer: str | None = "0055AED6DCD90281E5",
    version: str = "2.1",
) -> dict[str, Any]:
    """Return a record of an S3 notification with the fields that S3 sends for this event."""
    seen = state if event.startswith("ObjectCreated") else State(StateKind.ABSENT)
    body = s3_notification(
        bucket,
        key,
        event=event,
        version_id=state.version_id,
        etag=MARKER_ETAG if event.endswith("DeleteMarkerCreated") else seen.etag,
        size=seen.size,
        sequencer=sequencer,
        time=datetime.fromtimestamp(at / 1000, UTC),
    )
    [found] = json.loads(body)["Records"]
    return cast("dict[str, Any]", found | {"eventVersion": version})


def notification(*records: Mapping[str, Any]) -> str:
    """Return the body of an S3 notification."""
    return json.dumps({"Records": records})


def eventbridge(
    key: str, state: State, event: str = "ObjectCreated:PutObject", *, at: int = START, bucket: str = BUCKET
) -> str:
    """Return an S3 event of EventBridge. Its key is not encoded, and its time has a precision of seconds."""
    return eventbridge_event(
        bucket,
        key,
        event=event,
        version_id=state.version_id,
        etag=state.etag,
        size=state.size,
        sequencer="0055AED6DCD90281E5",
        time=datetime.fromtimestamp(at / 1000, UTC),
    )


def sns(body: str) -> str:
    """Return the body in an SNS envelope."""
    return json.dumps({"Type": "Notification", "MessageId": "22b80b92", "TopicArn": "arn:aws:sns:x", "Message": body})


def one_change(body: str, *, rejected_fence: int | None = None) -> Change:
    """Parse the only change in a body."""
    [change] = parse_message(body, rejected_fence=rejected_fence)
    assert isinstance(change, Change), change
    return change


def created(state: State, *, key: str = KEY, at: int = START, sequencer: str | None = "0055AED6DCD90281E5") -> Change:
    """Return the change of an upload."""
    return one_change(notification(record(key, state, at=at, sequencer=sequencer)))


def marked(state: State, *, key: str = KEY, at: int = START) -> Change:
    """Return the change of a delete marker."""
    return one_change(notification(record(key, state, "ObjectRemoved:DeleteMarkerCreated", at=at)))


def deleted(state: State, *, key: str = KEY, at: int = START) -> Change:
    """Return the change of a permanent deletion. S3 sends the same event when a delete marker is removed."""
    return one_change(notification(record(key, state, "ObjectRemoved:Delete", at=at)))


def audited(state: State, *, key: str = KEY) -> Change:
    """Return the change of the audit's message."""
    return one_change(own_message(Origin.AUDIT, BUCKET, key, state))


def reprocess(ulid: str, *, key: str = KEY, state: State | None = None) -> Change:
    """Return the change of a request to reprocess."""
    return one_change(own_message(Origin.REPROCESS, BUCKET, key, state, reprocess_id=ulid))


def redriven(change: Change, rejected_fence: int) -> Change:
    """Return the change of a redriven message."""
    return one_change(change.body, rejected_fence=rejected_fence)


def make_reason(text: str, code: ReasonCode = ReasonCode.PROCESSOR_ERROR) -> Reason:
    """A reason with any code, for tests that look at its text only."""
    return Reason(code, text)


def create_table(client: "DynamoDBClient", name: str) -> None:
    """Create the ledger's table with the keys, the index and the TTL of the construct."""
    client.create_table(
        TableName=name,
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
        AttributeDefinitions=[
            {"AttributeName": "pk", "AttributeType": "S"},
            {"AttributeName": "sk", "AttributeType": "S"},
            {"AttributeName": "needs_review", "AttributeType": "S"},
            {"AttributeName": "updated_at", "AttributeType": "N"},
        ],
        BillingMode="PAY_PER_REQUEST",
        GlobalSecondaryIndexes=[
            {
                "IndexName": "needs_review",
                "KeySchema": [
                    {"AttributeName": "needs_review", "KeyType": "HASH"},
                    {"AttributeName": "updated_at", "KeyType": "RANGE"},
                ],
                "Projection": {"ProjectionType": "ALL"},
            }
        ],
    )
    client.update_time_to_live(TableName=name, TimeToLiveSpecification={"Enabled": True, "AttributeName": "expires_at"})


@dataclass(slots=True)
class Wire:
    """A DynamoDB client with a bad connection: it can lose responses, so that the SDK retries, or raise an error."""

    client: "DynamoDBClient"
    lose: int = 0
    """The number of next writes that are executed twice, as by the SDK after a lost response."""
    down: Exception | None = None
    requests: list[str] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        real = getattr(self.client, name)

        def call(*plain: Any, **arguments: Any) -> Any:
            if self.down is not None:
                raise self.down.with_traceback(None)
            self.requests.append(name)
            if self.lose and name in ("put_item", "update_item", "delete_item"):
                self.lose -= 1
                real(*plain, **arguments)
            return real(*plain, **arguments)

        return call


@dataclass(frozen=True, slots=True)
class AllRows(RowHistory):
    """The record of a ledger that has a row for each processed object."""

    since: int = 0

    def all_rows_since(self) -> int:
        return self.since

    def is_complete(self) -> bool:
        return self.since == 0


@dataclass(slots=True)
class World:
    """A pipeline's ledger with the test's S3 and clock."""

    clock: Clock
    s3: FakeS3
    wire: Wire
    table: LedgerTable
    table_name: str
    ordering: Ordering
    deletes: bool = True
    late_after: int = LATE_AFTER
    keeps_rows: bool = False
    """True if a row lives as long as its object."""
    directory_markers: bool = False
    row_history: RowHistory | None = None
    """Without it, the ledger may have lost rows."""
    _owners: "count[int]" = field(default_factory=lambda: count(1))

    @property
    def policy(self) -> Policy:
        return Policy(
            MAX_ATTEMPTS,
            RETENTION,
            self.deletes,
            self.keeps_rows,
            directory_markers=self.directory_markers,
            every_version=self.ordering is Ordering.EVERY_VERSION,
        )

    def new_owner(self) -> str:
        return f"owner-{next(self._owners)}"

    @property
    def ledger(self) -> Ledger:
        """Return a new worker's ledger. Workers share only the table."""
        options = LedgerOptions(PIPELINE, self.ordering, self.policy, self.late_after)
        return object_ledger(
            self.table,
            self.s3,
            options,
            clock=self.clock,
            new_owner=self.new_owner,
            row_history=self.row_history,
        )

    def key(self, change: Change) -> RowKey:
        return row_key(PIPELINE, self.ordering, change.bucket, change.key, change.identity)

    def row(self, change: Change) -> Row | None:
        return self.table.get(self.key(change))

    def known(self, change: Change) -> Row:
        """Return the row, which must exist."""
        row = self.row(change)
        assert row is not None
        return row

    def item(self, change: Change) -> dict[str, Any]:
        """Return the row in DynamoDB's JSON."""
        key = self.key(change)
        place: Any = {"TableName": self.table_name, "Key": {"pk": {"S": key.pk}, "sk": {"S": key.sk}}}
        answer = self.wire.client.get_item(**place, ConsistentRead=True)
        return cast("dict[str, Any]", answer.get("Item", {}))

    def expire(self, change: Change) -> None:
        """Delete the row, as TTL does."""
        key = self.key(change)
        request = {"TableName": self.table_name, "Key": {"pk": {"S": key.pk}, "sk": {"S": key.sk}}}
        send_write(self.wire.client.delete_item, request)

    def answer(self, change: Change, *, lease: int = LEASE) -> Claim | Ruling:
        return self.ledger.claim(change, lease_ms=lease)

    def verdict(self, change: Change) -> Verdict:
        return self.answer(change).verdict

    def accept(self, change: Change, *, lease: int = LEASE) -> Claim:
        """Claim a change, which must be ACCEPTED."""
        answer = self.answer(change, lease=lease)
        assert isinstance(answer, Claim), answer
        return answer

    def process(self, change: Change, commit: str | None = None) -> Claim:
        """Claim and commit."""
        claim = self.accept(change)
        self.ledger.commit(claim, commit)
        return claim

    def fail(self, change: Change, reason: str = "downstream is out", *, retry_in: int | None = None) -> Claim:
        """Claim and fail. `retry_in` is the delay of all messages for the state in milliseconds."""
        claim = self.accept(change)
        self.ledger.fail(claim, make_reason(reason), retry_at=None if retry_in is None else self.clock() + retry_in)
        return claim

    def reject(self, change: Change, reason: str = "not a CSV") -> Claim:
        claim = self.accept(change)
        self.ledger.reject(claim, make_reason(reason))
        return claim

    def die(self, change: Change) -> Claim:
        """Claim, and let the lease end without an outcome."""
        claim = self.accept(change)
        self.clock.advance(LEASE + 1)
        return claim


class MakeWorld(Protocol):
    """The fixture `make_world`: a pipeline's ledger over an empty table."""

    def __call__(
        self,
        ordering: Ordering = ...,
        *,
        deletes: bool = ...,
        versioned: bool = ...,
        late_after: int = ...,
    ) -> World: ...


def execute_without_partiql(
    table: LedgerTable, keys: Iterable[RowKey], statements: Sequence[Any], *_: Any
) -> dict[RowKey, str | None]:
    """Replaces `LedgerTable._execute`, because moto cannot run PartiQL. The in-memory table executes the statements."""
    store, codes = MemoryDynamoDB(), dict[RowKey, str | None]()
    for key, statement in zip(keys, statements, strict=True):
        place: Any = {"TableName": table.name, "Key": {"pk": {"S": key.pk}, "sk": {"S": key.sk}}}
        old = table._client.get_item(**place).get("Item")
        store.items = {(key.pk, key.sk): old} if old else {}
        [codes[key]] = execute_batch(cast("Any", store), [statement])
        if codes[key] is None:
            table._client.put_item(TableName=table.name, Item=store.items[key.pk, key.sk])
    return codes
