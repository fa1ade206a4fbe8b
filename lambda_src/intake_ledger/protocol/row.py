"""One row of the ledger, and every way in which it may change. Pure: the conditions under which a change may be written
are in `intake_ledger.ledger.claims`.

            claimed                      committed
    (no row) ────────► PROCESSING ─────────────────────────► PROCESSED ──► (expires)
                       ▲   │  │ └───── rejected ──► REJECTED ──┐  │
                       │   │  └ failed ► FAILED ───────────────┤  │
                       └───┴── claimed ◄───────────────────────┴──┘

A row is *settled* when it is PROCESSED and no other state was written late: nothing may have touched the downstream
since its commit. An overtaken worker that may have written after its successor adds its state to `late_writes`.
"""

import hashlib
import zlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any

from intake_ledger.protocol.change import Change
from intake_ledger.protocol.object_state import State, StateKind, identity_of
from intake_ledger.protocol.reasons import Reason, ReasonCode

MAX_REASON_BYTES = 256
"""A longer reason would make every later write of the row cost more than one write unit of 1 KB."""
MAX_COMMIT_BYTES = 256
_SORT_KEY_BYTES = 1024  # DynamoDB's limit of a sort key
_DAY_SECONDS = 86_400
FORMAT = 1
"""Of the rows that this release writes."""
REVIEW_PARTITIONS = 20
"""Partition keys of one pipeline in the index `needs_review`. DynamoDB takes 1,000 write units a second for each, and a
failure costs two: one for the row that enters the index, one when it leaves."""


class Ordering(StrEnum):
    """What a pipeline promises about several versions of one key."""

    LATEST = "LATEST"
    """The downstream comes to reflect the newest state of each key; versions overwritten meanwhile are skipped."""
    EVERY_VERSION = "EVERY_VERSION"
    """Each version is processed, in any order."""


class Status(StrEnum):
    """What became of the row's last claim."""

    PROCESSING = "PROCESSING"
    PROCESSED = "PROCESSED"
    FAILED = "FAILED"
    """It will be tried again."""
    REJECTED = "REJECTED"
    """It will not, unless a person asks; `reason` says why."""
    LATER_FORMAT = "LATER_FORMAT"
    """A later release wrote the row, which this one can neither judge nor replace. No row is ever stored with this."""


STORED_STATUSES = tuple(status for status in Status if status is not Status.LATER_FORMAT)


@dataclass(frozen=True, slots=True)
class RowKey:
    """The row's primary key."""

    pk: str
    sk: str


def row_key(pipeline: str, ordering: Ordering, bucket: str, key: str, identity: str | None) -> RowKey:
    """Where a change is kept: one row per key in LATEST, one per state (`identity`) in EVERY_VERSION.

    A bucket's name has no slash and a pipeline's has no `@`, so no key can be taken for another's.
    """
    sk = f"{pipeline}@latest" if ordering is Ordering.LATEST else f"{pipeline}@{identity}"
    if len(sk.encode()) > _SORT_KEY_BYTES:
        # A version id may have 1,024 bytes itself.
        sk = f"{pipeline}@h#{hashlib.sha256(sk.encode()).hexdigest()}"
    return RowKey(f"{bucket}/{key}", sk)


def review_partitions(pipeline: str) -> list[str]:
    """Every partition key of the pipeline's FAILED and REJECTED rows in the index `needs_review`."""
    return [f"{pipeline}#{number}" for number in range(REVIEW_PARTITIONS)]


def review_partition(pipeline: str, key: RowKey) -> str:
    """The partition key that one row has in the index `needs_review` while it is FAILED or REJECTED."""
    return f"{pipeline}#{zlib.crc32(f'{key.pk} {key.sk}'.encode()) % REVIEW_PARTITIONS}"


def waiting_partition(pipeline: str) -> str:
    """The partition key of the pipeline's waiting rows in the index `needs_review`. They are no failures."""
    return f"{pipeline}#waiting"


@dataclass(frozen=True, slots=True)
class Retention:
    """How long a settled row stays."""

    seconds: int
    keeps_objects: bool = False
    """Whether the row of an object stays as long as the object. Then only committed removals expire."""

    def expires_at(self, kind: StateKind, now: int) -> int | None:
        """When the row of a committed state expires, in epoch seconds; a day after the retention. None: never."""
        if self.keeps_objects and kind is StateKind.OBJECT:
            return None
        return now // 1000 + self.seconds + _DAY_SECONDS


@dataclass(frozen=True, slots=True)
class Row:
    """A row, without its key. Times are epoch milliseconds, except `expires_at`: DynamoDB's TTL wants seconds."""

    status: Status
    fence: int
    """Grows with every claim and is never below the time of the claim, so that it does not go back when a row has
    expired or was restored from a backup."""
    version_id: str | None = None
    etag: str | None = None
    size: int | None = None
    kind: StateKind = StateKind.OBJECT
    sequencer: str | None = None
    event_name: str | None = None
    attempts: int = 1
    redrive_count: int = 0
    """How often the state was taken up again after a rejection."""
    lease_until: int | None = None
    lease_owner: str | None = None
    """Unique per attempt."""
    committed_state: str | None = None
    """The identity of the state that was last committed."""
    committed_fence: int | None = None
    transactional: int | None = None
    """1 when the last commit was one transaction with the processor's own writes; otherwise absent."""
    late_writes: frozenset[str] = frozenset()
    """Identities of the states that overtaken workers may have written downstream. A claim removes those that it read.
    """
    commit_id: str | None = None
    """What the processor returned: the downstream's own name for the effect."""
    reason: str | None = None
    reason_code: str | None = None
    """The `ReasonCode` of `reason`. Rows of earlier releases lack it. A later release may have written another code."""
    s3_error: str | None = None
    """S3's error code, where the reason is that S3 refused to let the object be read."""
    retry_at: int | None = None
    """On FAILED rows: no message may try again before, or a duplicate would use the budget up twice as fast."""
    rejected_fence: int | None = None
    reprocess_id: str | None = None
    """The request that the current claim serves."""
    served_reprocess_id: str | None = None
    """The newest request that was served."""
    first_claimed_at: int = 0
    """When the state was first claimed, greater with each new one: part of the idempotency key. Retries keep it, unless
    another state was written late since."""
    waiting_since: int | None = None
    """When the processor first raised `NotYet` for this state. Retries keep it, so that a wait has an end."""
    updated_at: int = 0
    expires_at: int | None = None
    """Only settled rows expire: a reason or half-done work is never forgotten. It never decides anything. See
    `Retention`."""
    needs_review: str | None = None
    """On FAILED and REJECTED rows only: the partition key of the sparse index, as `review_partition` gives it."""
    format: int = FORMAT
    """The version of this list of attributes."""

    @property
    def identity(self) -> str:
        """The identity of the state that was last claimed."""
        return identity_of(self.kind, self.version_id, self.etag)

    @property
    def settled(self) -> bool:
        return is_settled(self.status, self.committed_state, self.late_writes)

    @property
    def unsettled(self) -> bool:
        """Whether an attempt may have left something half done downstream."""
        return self.status in (Status.PROCESSING, Status.FAILED)

    def has_committed(self, identity: str | None) -> bool:
        """Whether the state was committed, and nothing may have touched the downstream since."""
        return self.settled and identity is not None and self.committed_state == identity

    def is_live(self, now: int) -> bool:
        """Whether somebody holds the row."""
        return self.status is Status.PROCESSING and self.lease_until is not None and self.lease_until > now


def is_settled(status: str, committed_state: str | None, late_writes: Collection[str]) -> bool:
    """Whether nothing but the committed state may have been written downstream since the commit."""
    return status == Status.PROCESSED and all(state == committed_state for state in late_writes)


_ROW_FIELDS = tuple(field.name for field in fields(Row))
_ENUMS: dict[str, type[StrEnum]] = {"status": Status, "kind": StateKind}
_KNOWN: dict[str, frozenset[str]] = {
    "status": frozenset(STORED_STATUSES),
    "kind": frozenset(StateKind),
}
"""The values that this release stores."""
# A union as it is, and of `frozenset[str]` the set.
_TYPES: dict[str, Any] = {
    field.name: str if field.name in _ENUMS else getattr(field.type, "__origin__", field.type) for field in fields(Row)
}


def attributes(row: Row) -> dict[str, Any]:
    """The row as DynamoDB attributes by name. None and empty sets are left out."""
    return {name: value for name in _ROW_FIELDS if (value := getattr(row, name)) not in (None, frozenset())}


def from_attributes(found: Mapping[str, Any]) -> Row | None:
    """The row that these attributes are; None when there is no status: an audit's mark alone is no row.

    Rows of older releases may lack attributes, and those of this format may have more: both are understood. A row of a
    later format has the status LATER_FORMAT, and what can be read of it is for people.
    """
    if "status" not in found and "format" not in found:
        return None
    known = {name: found[name] for name in _ROW_FIELDS if name in found}
    if not is_readable(known):
        return _unreadable(known)
    for name, enum in _ENUMS.items():
        if name in known:
            known[name] = enum(known[name])
    return Row(**{"fence": 0, **known})


def is_readable(found: Mapping[str, Any]) -> bool:
    """Whether this release knows the format of a row with these attributes, and may judge and replace it."""
    return (
        found.get("format", FORMAT) == FORMAT
        and "status" in found
        and all(found[name] in values for name, values in _KNOWN.items() if isinstance(found.get(name), str))
        and all(isinstance(found[name], _TYPES[name]) for name in _ROW_FIELDS if name in found)
    )


def _unreadable(found: Mapping[str, Any]) -> Row:
    """A row of a later format. Attributes of another type than this release's are left out."""
    kept = {name: value for name, value in found.items() if name not in _ENUMS and isinstance(value, _TYPES[name])}
    return Row(**{"fence": 0, "format": FORMAT + 1, **kept, "status": Status.LATER_FORMAT})


def cut(text: str | None, limit: int) -> str | None:
    """The text, shortened to `limit` bytes of UTF-8."""
    if text is None:
        return None
    # What is no valid Unicode could not be written at all.
    encoded = text.encode("utf-8", "replace")
    if len(encoded) <= limit:
        return encoded.decode()
    ellipsis = "…"
    return encoded[: limit - len(ellipsis.encode())].decode("utf-8", "ignore") + ellipsis


def claimed(seen: Row | None, change: Change, state: State, *, owner: str, now: int, lease_until: int) -> Row:
    """The row while an attempt works on `state`; `seen` is the row that was judged."""
    again = seen is not None and seen.identity == state.identity
    retry = again and seen is not None and seen.unsettled
    resumed = again and seen is not None and seen.status is Status.REJECTED
    base = seen or Row(Status.PROCESSING, fence=0)
    # A downstream that knows the idempotency key must not drop the write that repairs another state's late one.
    same_key = (retry or resumed) and not base.late_writes - {state.identity}
    reprocess_ids = [one for one in (change.reprocess_id, base.reprocess_id if again else None) if one]
    return replace(
        base,
        status=Status.PROCESSING,
        fence=_next_fence(base, now),
        version_id=state.version_id,
        etag=state.etag,
        size=state.size,
        kind=state.kind,
        # A message that wakes us for another state than its own brings the wrong sequencer.
        sequencer=change.sequencer if change.identity == state.identity else None,
        event_name=change.event_name,
        attempts=base.attempts + 1 if retry else 1,
        redrive_count=base.redrive_count + 1 if resumed else base.redrive_count if retry else 0,
        lease_until=lease_until,
        lease_owner=owner,
        reason=base.reason if retry or resumed else None,
        reason_code=base.reason_code if retry or resumed else None,
        s3_error=base.s3_error if retry or resumed else None,
        retry_at=None,
        rejected_fence=base.rejected_fence if retry or resumed else None,
        reprocess_id=max(reprocess_ids, default=None),
        first_claimed_at=base.first_claimed_at if same_key else max(now, base.first_claimed_at + 1),
        waiting_since=base.waiting_since if retry else None,
        late_writes=frozenset(),
        updated_at=now,
        expires_at=None,
        needs_review=None,
    )


def _next_fence(seen: Row, now: int) -> int:
    """Greater than the row's. A row that was restored from a backup has an old fence, so the time counts too."""
    return max(seen.fence + 1, now)


def committed(row: Row, commit: str | None, *, now: int, retention: Retention, transactional: bool = False) -> Row:
    """The claimed row after its commit: settled, and due to expire as the retention says."""
    reprocess_ids = [one for one in (row.reprocess_id, row.served_reprocess_id) if one]
    return replace(
        row,
        status=Status.PROCESSED,
        lease_until=None,
        lease_owner=None,
        committed_state=row.identity,
        committed_fence=row.fence,
        commit_id=cut(commit, MAX_COMMIT_BYTES),
        transactional=1 if transactional else None,
        reason=None,
        reason_code=None,
        s3_error=None,
        rejected_fence=None,
        reprocess_id=None,
        served_reprocess_id=max(reprocess_ids, default=None),
        waiting_since=None,
        updated_at=now,
        expires_at=retention.expires_at(row.kind, now),
        needs_review=None,
    )


def abandoned(row: Row, reason: Reason, *, now: int, retention: Retention) -> Row:
    """The claimed row when its version is gone for good: settled, but what was committed stays what it was."""
    return replace(
        committed(row, row.commit_id, now=now, retention=retention),
        expires_at=retention.expires_at(StateKind.DELETED, now),
        committed_state=row.committed_state,
        committed_fence=row.committed_fence,
        transactional=row.transactional,
        reason=cut(reason.text, MAX_REASON_BYTES),
        reason_code=reason.code.value,
    )


def settled(seen: Row | None, change: Change, state: State, *, now: int, retention: Retention) -> Row:
    """The row after a removal that no processor has to hear of: claimed and committed in one step."""
    row = claimed(seen, change, state, owner="", now=now, lease_until=now)
    return replace(committed(row, None, now=now, retention=retention), attempts=0)


def failed(
    row: Row,
    reason: Reason,
    *,
    review_partition: str,
    now: int,
    retry_at: int | None = None,
    s3_error: str | None = None,
) -> Row:
    """The claimed row after a failure that will be tried again, not before `retry_at` (epoch milliseconds).

    `review_partition` is the row's partition key in the index `needs_review`.
    """
    return replace(
        row,
        status=Status.FAILED,
        lease_until=None,
        lease_owner=None,
        reason=cut(reason.text, MAX_REASON_BYTES),
        reason_code=reason.code.value,
        s3_error=s3_error,
        retry_at=retry_at,
        updated_at=now,
        needs_review=review_partition,
    )


def waiting(row: Row, reason: Reason, *, partition: str, now: int, retry_at: int) -> Row:
    """The claimed row while something that the processor needs is not there yet. The attempt is not counted."""
    return replace(
        failed(row, reason, review_partition=partition, now=now, retry_at=retry_at),
        attempts=row.attempts - 1,
        waiting_since=now if row.waiting_since is None else row.waiting_since,
    )


def rejected(row: Row, reason: Reason, *, review_partition: str, now: int, s3_error: str | None = None) -> Row:
    """The claimed row after a failure for good."""
    return replace(
        failed(row, reason, review_partition=review_partition, now=now, s3_error=s3_error),
        status=Status.REJECTED,
        rejected_fence=row.fence,
        waiting_since=None,
    )


def exhausted(seen: Row, *, review_partition: str, now: int) -> Row:
    """The row whose last attempt never came back, rejected in its place with the last error that is known."""
    text = seen.reason or "the worker died or timed out at every attempt"
    return rejected(
        replace(seen, fence=_next_fence(seen, now)),
        Reason(ReasonCode.ATTEMPTS_EXHAUSTED, text),
        review_partition=review_partition,
        now=now,
        s3_error=seen.s3_error,
    )


def released(row: Row, seen: Row) -> Row:
    """The row as it was judged, for a claim under which nothing was begun; only the fence stays ahead."""
    return replace(seen, fence=row.fence, lease_until=None, late_writes=seen.late_writes | row.late_writes)
