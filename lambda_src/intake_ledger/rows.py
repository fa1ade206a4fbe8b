"""One row of the ledger, and every way in which it may change. Pure: the conditions under which a change may be written
are in `intake_ledger.ledger`.

            claimed                      committed
    (no row) ────────► PROCESSING ─────────────────────────► PROCESSED ──► (expires)
                       ▲   │  │ └───── rejected ──► REJECTED ──┐  │
                       │   │  └ failed ► FAILED ───────────────┤  │
                       └───┴── claimed ◄───────────────────────┴──┘

A row is *settled* when it is PROCESSED: nothing may have touched the downstream since its commit.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any

from intake_ledger.changes import Change
from intake_ledger.states import State, StateKind, identity_of

MAX_REASON_BYTES = 256
"""A longer reason would make every later write of the row cost more than one write unit of 1 KB."""
MAX_COMMIT_BYTES = 256
_SORT_KEY_BYTES = 1024  # DynamoDB's limit of a sort key
_DAY_SECONDS = 86_400


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


@dataclass(frozen=True, slots=True)
class Row:
    """A row, without its key. Times are epoch milliseconds, except `expires_at`: DynamoDB's TTL wants seconds."""

    status: Status
    fence: int
    """Grows with every claim and starts from the clock, so that it does not restart when a row has expired."""
    version_id: str | None = None
    etag: str | None = None
    size: int | None = None
    kind: StateKind = StateKind.OBJECT
    sequencer: str | None = None
    event_name: str | None = None
    attempts: int = 1
    rounds: int = 0
    """How often the state was taken up again after a rejection."""
    lease_until: int | None = None
    owner: str | None = None
    """Unique per attempt."""
    committed_version: str | None = None
    """The identity of the state that was last committed."""
    committed_sequencer: str | None = None
    committed_fence: int | None = None
    commit: str | None = None
    """What the processor returned."""
    reason: str | None = None
    retry_at: int | None = None
    """On FAILED rows: no message may try again before, or a duplicate would use the budget up twice as fast."""
    rejected_at: int | None = None
    rejected_fence: int | None = None
    reprocess_id: str | None = None
    """The request that the current claim serves."""
    reprocessed_id: str | None = None
    """The newest request that was served."""
    first_seen_at: int = 0
    """When the state was first claimed; retries keep it."""
    updated_at: int = 0
    expires_at: int | None = None
    """Only settled rows expire: a reason or half-done work is never forgotten. It never decides anything."""
    attention: str | None = None
    """The pipeline's name, on FAILED and REJECTED rows only: the key of the sparse index."""

    @property
    def identity(self) -> str:
        """The identity of the state that was last claimed."""
        return identity_of(self.kind, self.version_id, self.etag)

    @property
    def settled(self) -> bool:
        return self.status is Status.PROCESSED

    @property
    def unsettled(self) -> bool:
        """Whether an attempt may have left something half done downstream."""
        return self.status in (Status.PROCESSING, Status.FAILED)

    def has_committed(self, identity: str | None) -> bool:
        """Whether the state was committed, and nothing may have touched the downstream since."""
        return self.settled and identity is not None and self.committed_version == identity

    def is_live(self, now: int) -> bool:
        """Whether somebody holds the row."""
        return self.status is Status.PROCESSING and self.lease_until is not None and self.lease_until > now


_ROW_FIELDS = tuple(field.name for field in fields(Row))
_ENUMS: dict[str, type[StrEnum]] = {"status": Status, "kind": StateKind}


def attributes(row: Row) -> dict[str, Any]:
    """The row as DynamoDB attributes by name; what is None is left out."""
    return {name: value for name in _ROW_FIELDS if (value := getattr(row, name)) is not None}


def from_attributes(found: Mapping[str, Any]) -> Row | None:
    """The row that these attributes are; None when there is no status: an audit's mark alone is no row.

    Rows of older releases may lack attributes and those of newer ones have more: both are understood.
    """
    if "status" not in found:
        return None
    known = {name: found[name] for name in _ROW_FIELDS if name in found}
    for name, enum in _ENUMS.items():
        if name in known:
            known[name] = enum(known[name])
    return Row(**{"fence": 0, **known})


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
    base = seen or Row(Status.PROCESSING, fence=now - 1)
    reprocess_ids = [one for one in (change.reprocess_id, base.reprocess_id if again else None) if one]
    return replace(
        base,
        status=Status.PROCESSING,
        fence=base.fence + 1,
        version_id=state.version_id,
        etag=state.etag,
        size=state.size,
        kind=state.kind,
        # A message that wakes us for another state than its own brings the wrong sequencer.
        sequencer=change.sequencer if change.identity == state.identity else None,
        event_name=change.event_name,
        attempts=base.attempts + 1 if retry else 1,
        rounds=base.rounds + 1 if resumed else base.rounds if retry else 0,
        lease_until=lease_until,
        owner=owner,
        reason=base.reason if retry or resumed else None,
        retry_at=None,
        rejected_at=base.rejected_at if retry or resumed else None,
        rejected_fence=base.rejected_fence if retry or resumed else None,
        reprocess_id=max(reprocess_ids, default=None),
        first_seen_at=base.first_seen_at if retry or resumed else now,
        updated_at=now,
        expires_at=None,
        attention=None,
    )


def committed(row: Row, commit: str | None, *, now: int, retention_seconds: int) -> Row:
    """The claimed row after its commit: settled, and due to expire a day after the retention."""
    reprocess_ids = [one for one in (row.reprocess_id, row.reprocessed_id) if one]
    return replace(
        row,
        status=Status.PROCESSED,
        lease_until=None,
        owner=None,
        committed_version=row.identity,
        committed_sequencer=row.sequencer,
        committed_fence=row.fence,
        commit=cut(commit, MAX_COMMIT_BYTES),
        reason=None,
        rejected_at=None,
        rejected_fence=None,
        reprocess_id=None,
        reprocessed_id=max(reprocess_ids, default=None),
        updated_at=now,
        expires_at=now // 1000 + retention_seconds + _DAY_SECONDS,
        attention=None,
    )


def abandoned(row: Row, reason: str, *, now: int, retention_seconds: int) -> Row:
    """The claimed row when its version is gone for good: settled, but what was committed stays what it was."""
    return replace(
        committed(row, row.commit, now=now, retention_seconds=retention_seconds),
        committed_version=row.committed_version,
        committed_sequencer=row.committed_sequencer,
        committed_fence=row.committed_fence,
        reason=cut(reason, MAX_REASON_BYTES),
    )


def settled(seen: Row | None, change: Change, state: State, *, now: int, retention_seconds: int) -> Row:
    """The row after a removal that no processor has to hear of: claimed and committed in one step."""
    row = claimed(seen, change, state, owner="", now=now, lease_until=now)
    return replace(committed(row, None, now=now, retention_seconds=retention_seconds), attempts=0)


def failed(row: Row, reason: str, *, pipeline: str, now: int, retry_at: int | None = None) -> Row:
    """The claimed row after a failure that will be tried again, not before `retry_at` (epoch milliseconds)."""
    return replace(
        row,
        status=Status.FAILED,
        lease_until=None,
        owner=None,
        reason=cut(reason, MAX_REASON_BYTES),
        retry_at=retry_at,
        updated_at=now,
        attention=pipeline,
    )


def rejected(row: Row, reason: str, *, pipeline: str, now: int) -> Row:
    """The claimed row after a failure for good."""
    return replace(
        failed(row, reason, pipeline=pipeline, now=now),
        status=Status.REJECTED,
        rejected_at=now,
        rejected_fence=row.fence,
    )


def exhausted(seen: Row, *, pipeline: str, now: int) -> Row:
    """The row whose last attempt never came back, rejected in its place with the last error that is known."""
    reason = seen.reason or "the worker died or timed out at every attempt"
    return rejected(replace(seen, fence=seen.fence + 1), reason, pipeline=pipeline, now=now)


def released(row: Row, seen: Row) -> Row:
    """The row as it was judged, for a claim under which nothing was begun; only the fence stays ahead."""
    return replace(seen, fence=row.fence, lease_until=None)
