"""What the tests of the runtime share: a clock, an S3 in memory, events as AWS writes them, DynamoDB in moto."""

import hashlib
import io
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from typing import TYPE_CHECKING, Any, Protocol, cast
from urllib.parse import quote_plus

from intake_ledger.changes import Change, Origin, own_message, parse_message
from intake_ledger.completeness import Completeness
from intake_ledger.errors import ObjectGone
from intake_ledger.ledger import Answer, Claim, Ledger, LedgerOptions
from intake_ledger.object_stream import ObjectStream
from intake_ledger.rows import Ordering, Row, RowKey, row_key
from intake_ledger.states import ABSENT, State, StateKind
from intake_ledger.table import LedgerTable
from intake_ledger.verdicts import Policy, Verdict

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

BUCKET = "uploads"
PIPELINE = "Catalogue-Models"
KEY = "in/a b+ä.csv"
SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000
START = 1_795_000_000_000
"""Where the clock of every test begins, in epoch milliseconds."""
RETENTION = 35 * DAY
LATE_AFTER = 6 * HOUR
LEASE = 3 * MINUTE
MAX_ATTEMPTS = 3
MARKER_ETAG = "d41d8cd98f00b204e9800998ecf8427e"


@dataclass(slots=True)
class Clock:
    """Epoch milliseconds that only move when a test says so."""

    now: int = START

    def __call__(self) -> int:
        return self.now

    def advance(self, milliseconds: int) -> None:
        self.now += milliseconds


@dataclass(slots=True)
class Bytes:
    """One version of a key, or its delete marker."""

    state: State
    data: bytes = b""


@dataclass(slots=True)
class FakeS3:
    """One bucket: what the ledger looks at and the processor opens. Versions have ids unless `versioned` is off."""

    clock: Clock
    versioned: bool = True
    keys: dict[str, list[Bytes]] = field(default_factory=dict)
    looks: list[str] = field(default_factory=list)
    after_look: list[Callable[[], object]] = field(default_factory=list)
    """Each runs once, after a look has been answered: what happens between a look and the write that follows it."""
    before_open: list[Callable[[], object]] = field(default_factory=list)
    """Each runs once, when a version is asked for: what happens between a claim and the bytes, or what S3 refuses."""
    streams: list[ObjectStream] = field(default_factory=list)
    """Everything that was opened, in order."""
    _ids: "count[int]" = field(default_factory=lambda: count(1))
    name: str = BUCKET

    def put(self, key: str, data: bytes | str) -> State:
        """Upload; the state that S3 then shows."""
        content = data.encode() if isinstance(data, str) else data
        state = State(
            StateKind.OBJECT, self._new_id(), hashlib.md5(content).hexdigest(), len(content), self._last_modified()
        )
        self._add(key, Bytes(state, content))
        return state

    def mark_deleted(self, key: str) -> State:
        """Delete without a version id: a delete marker in a versioned bucket, nothing left in another."""
        if not self.versioned:
            self.keys.pop(key, None)
            return ABSENT
        state = State(StateKind.MARKER, self._new_id(), created_at=self._last_modified())
        self._add(key, Bytes(state))
        return state

    def delete_version(self, key: str, state: State) -> None:
        """Delete one version, or one marker, for good."""
        self.keys[key] = [one for one in self.keys[key] if one.state != state]

    def look(self, key: str) -> State:
        self.looks.append(key)
        shown = self.keys.get(key) or [Bytes(ABSENT)]
        state = shown[-1].state
        if self.after_look:
            self.after_look.pop(0)()
        # As HEAD answers: of a marker, the id alone.
        return State(StateKind.MARKER, state.version_id) if state.kind is StateKind.MARKER else state

    def created_at(self, key: str, marker: State) -> int | None:
        for one in self.keys[key]:
            if one.state.version_id == marker.version_id:
                return one.state.created_at
        raise ObjectGone(f"{key}: S3 no longer holds {marker.identity}")

    def shows_removal(self, key: str, removal: State) -> bool:
        self.looks.append(key)
        kinds = {one.state.version_id: one.state.kind for one in self.keys.get(key, ())}
        return kinds.get(removal.version_id, StateKind.DELETED) is removal.kind

    def open(self, key: str, state: State) -> ObjectStream:
        if self.before_open:
            self.before_open.pop(0)()
        if state.removed:
            raise ValueError(f"{key} was removed, there is nothing to open")
        for one in self.keys.get(key, ()):
            if one.state.kind is StateKind.OBJECT and one.state.identity == state.identity:
                self.streams.append(ObjectStream(io.BytesIO(one.data), len(one.data)))
                return self.streams[-1]
        raise ObjectGone(f"{key}: S3 no longer holds {state.identity}")

    def _add(self, key: str, one: Bytes) -> None:
        self.keys[key] = [*self.keys.get(key, []), one] if self.versioned else [one]

    def _new_id(self) -> str | None:
        return f"v{next(self._ids):031d}" if self.versioned else None

    def _last_modified(self) -> int:
        return self.clock() // 1000 * 1000


def iso(milliseconds: int) -> str:
    """As S3 writes a time."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


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
    """One record of an S3 notification, with the fields that S3 gives this kind of event."""
    item: dict[str, Any] = {"key": quote_plus(key)}
    if state.kind is StateKind.OBJECT and event.startswith("ObjectCreated"):
        item |= {"size": state.size, "eTag": state.etag}
    if event.endswith("DeleteMarkerCreated"):
        item["eTag"] = MARKER_ETAG
    if state.version_id is not None:
        item["versionId"] = state.version_id
    if sequencer is not None:
        item["sequencer"] = sequencer
    return {
        "eventVersion": version,
        "eventSource": "aws:s3",
        "awsRegion": "eu-central-1",
        "eventTime": iso(at),
        "eventName": event,
        "userIdentity": {"principalId": "AWS:AROAEXAMPLE"},
        "requestParameters": {"sourceIPAddress": "192.0.2.1"},
        "responseElements": {"x-amz-request-id": "79104EXAMPLEB723", "x-amz-id-2": "IOWQ4fDEXAMPLEQM"},
        "s3": {
            "s3SchemaVersion": "1.0",
            "configurationId": "intake",
            "bucket": {"name": bucket, "ownerIdentity": {"principalId": "A3I5X"}, "arn": f"arn:aws:s3:::{bucket}"},
            "object": item,
        },
    }


def notification(*records: Mapping[str, Any]) -> str:
    """The body of an S3 notification."""
    return json.dumps({"Records": records})


def eventbridge(
    key: str,
    state: State,
    *,
    created: bool = True,
    at: int = START,
    bucket: str = BUCKET,
    reason: str = "PutObject",
    deletion_type: str | None = None,
    sequencer: str | None = "0055AED6DCD90281E5",
) -> str:
    """An EventBridge event of S3: its key is raw, its time has seconds only."""
    said = {
        "key": key,
        "size": state.size,
        "etag": state.etag,
        "version-id": state.version_id,
        "sequencer": sequencer,
    }
    item = {name: value for name, value in said.items() if value is not None}
    detail: dict[str, Any] = {"version": "0", "bucket": {"name": bucket}, "object": item, "reason": reason}
    if deletion_type is not None:
        detail["deletion-type"] = deletion_type
    return json.dumps(
        {
            "version": "0",
            "id": "17793124-05d4-b198-2fde-7ededc63b103",
            "detail-type": "Object Created" if created else "Object Deleted",
            "source": "aws.s3",
            "account": "111122223333",
            "time": iso(at)[:-5] + "Z",
            "region": "eu-central-1",
            "detail": detail | {"request-id": "N4N7GDK58NMKJ12R", "requester": "111122223333"},
        }
    )


def sns(body: str) -> str:
    """The body inside an SNS envelope."""
    return json.dumps({"Type": "Notification", "MessageId": "22b80b92", "TopicArn": "arn:aws:sns:x", "Message": body})


def one_change(body: str, *, rejected_fence: int | None = None) -> Change:
    """The only change in a body."""
    [change] = parse_message(body, rejected_fence=rejected_fence)
    assert isinstance(change, Change), change
    return change


def created(state: State, *, key: str = KEY, at: int = START, sequencer: str | None = "0055AED6DCD90281E5") -> Change:
    """S3's notification of an upload."""
    return one_change(notification(record(key, state, at=at, sequencer=sequencer)))


def marked(state: State, *, key: str = KEY, at: int = START) -> Change:
    """S3's notification of a delete marker."""
    return one_change(notification(record(key, state, "ObjectRemoved:DeleteMarkerCreated", at=at)))


def deleted(state: State, *, key: str = KEY, at: int = START) -> Change:
    """S3's notification of a permanent deletion, or of a delete marker's removal: it cannot be told which."""
    return one_change(notification(record(key, state, "ObjectRemoved:Delete", at=at)))


def audited(state: State, *, key: str = KEY) -> Change:
    """The audit's wake-up message."""
    return one_change(own_message(Origin.AUDIT, BUCKET, key, state))


def reprocess(ulid: str, *, key: str = KEY, state: State | None = None) -> Change:
    """A person's request to reprocess."""
    return one_change(own_message(Origin.REPROCESS, BUCKET, key, state, reprocess_id=ulid))


def redriven(change: Change, rejected_fence: int) -> Change:
    """The copy of a change that was moved back from the dead-letter queue."""
    return one_change(change.body, rejected_fence=rejected_fence)


def create_table(client: "DynamoDBClient", name: str) -> None:
    """The ledger's table as the construct defines it: keys, sparse index and TTL."""
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
    """A DynamoDB client on a bad line: it can lose answers, so that the SDK sends again, or be down."""

    client: "DynamoDBClient"
    lose: int = 0
    """How many of the next writes are carried out and then sent again, as the SDK does when no answer came."""
    down: Exception | None = None
    requests: list[str] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        real = getattr(self.client, name)

        def call(*plain: Any, **arguments: Any) -> Any:
            if self.down is not None:
                raise self.down
            self.requests.append(name)
            if self.lose and name in ("put_item", "update_item", "delete_item"):
                self.lose -= 1
                real(*plain, **arguments)
            return real(*plain, **arguments)

        return call


@dataclass(frozen=True, slots=True)
class Complete:
    """What a ledger knows that has a row of every object that was processed."""

    since: int = 0

    def begin(self) -> None: ...

    def complete_since(self) -> int:
        return self.since


@dataclass(slots=True)
class World:
    """One pipeline's ledger over real DynamoDB requests (moto), with an S3 and a clock in the test's hand."""

    clock: Clock
    s3: FakeS3
    wire: Wire
    table: LedgerTable
    table_name: str
    ordering: Ordering
    deletes: bool = True
    late_after: int = LATE_AFTER
    keeps_rows: bool = False
    """Whether the row of an object stays as long as the object."""
    completeness: Completeness | None = None
    """A ledger that may have forgotten objects, when omitted."""
    _owners: "count[int]" = field(default_factory=lambda: count(1))

    @property
    def policy(self) -> Policy:
        return Policy(MAX_ATTEMPTS, RETENTION, self.deletes, self.keeps_rows)

    def new_owner(self) -> str:
        return f"owner-{next(self._owners)}"

    @property
    def ledger(self) -> Ledger:
        """A worker's own ledger: several of them meet in the table only."""
        options = LedgerOptions(PIPELINE, self.ordering, self.policy, self.late_after)
        return Ledger(
            self.table,
            self.s3,
            options,
            clock=self.clock,
            new_owner=self.new_owner,
            completeness=self.completeness,
        )

    def key(self, change: Change) -> RowKey:
        return row_key(PIPELINE, self.ordering, change.bucket, change.key, change.identity)

    def row(self, change: Change) -> Row | None:
        return self.table.get(self.key(change))

    def known(self, change: Change) -> Row:
        """The row, which is there."""
        row = self.row(change)
        assert row is not None
        return row

    def item(self, change: Change) -> dict[str, Any]:
        """The row as DynamoDB stores it, typed."""
        key = self.key(change)
        answer = self.wire.client.get_item(TableName=self.table_name, Key={"pk": {"S": key.pk}, "sk": {"S": key.sk}})
        return cast("dict[str, Any]", answer.get("Item", {}))

    def expire(self, change: Change) -> None:
        """What DynamoDB's TTL sweep does."""
        key = self.key(change)
        self.wire.client.delete_item(TableName=self.table_name, Key={"pk": {"S": key.pk}, "sk": {"S": key.sk}})

    def answer(self, change: Change, *, lease: int = LEASE) -> Answer:
        return self.ledger.claim(change, lease_ms=lease)

    def verdict(self, change: Change) -> Verdict:
        return self.answer(change).verdict

    def accept(self, change: Change, *, lease: int = LEASE) -> Claim:
        """The claim on a change that has to be ACCEPTED."""
        answer = self.answer(change, lease=lease)
        assert answer.verdict is Verdict.ACCEPTED, answer
        assert answer.claim is not None
        return answer.claim

    def process(self, change: Change, commit: str | None = None) -> Claim:
        """Claim and commit."""
        claim = self.accept(change)
        self.ledger.commit(claim, commit)
        return claim

    def fail(self, change: Change, reason: str = "downstream is out", *, retry_in: int | None = None) -> Claim:
        """Claim and fail; `retry_in` (milliseconds) is how long every message for the state then has to wait."""
        claim = self.accept(change)
        self.ledger.fail(claim, reason, retry_at=None if retry_in is None else self.clock() + retry_in)
        return claim

    def reject(self, change: Change, reason: str = "not a CSV") -> Claim:
        claim = self.accept(change)
        self.ledger.reject(claim, reason)
        return claim

    def die(self, change: Change) -> Claim:
        """Claim, and never be heard of again; the lease has run out."""
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
