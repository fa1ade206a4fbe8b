"""Each way in which a row may change, as pure functions. `intake_ledger.ledger` writes them with their conditions.

            claimed                      committed
    (no row) ────────► PROCESSING ─────────────────────────► PROCESSED ──► (expires)
                       ▲   │  │ └───── rejected ──► REJECTED ──┐  │
                       │   │  └ failed ► FAILED ───────────────┤  │
                       └───┴── claimed ◄───────────────────────┴──┘

A row may also become PROCESSED without a commit. Then `settled_as` has the name: see `Settlement`.
`reopened` makes a REJECTED row FAILED, so that it is claimed again.

`now`, `lease_until` and `retry_at` are epoch milliseconds. `review_partition` is the row's partition key in the index
`needs_review`.
"""

from dataclasses import replace
from typing import NamedTuple

from intake_ledger.protocol.change import Change
from intake_ledger.protocol.object_state import State, StateKind, identity_of
from intake_ledger.protocol.reasons import Reason, ReasonCode
from intake_ledger.protocol.row import Row, Settlement, Status

MAX_REASON_BYTES = 256
"""With a longer reason, every later write of the row would cost more than one write unit of 1 KB."""
MAX_COMMIT_BYTES = 256
MAX_SPENT_MESSAGES = 8
"""Duplicates of earlier messages are not delivered any more."""
_DAY_SECONDS = 86_400


class Retention(NamedTuple):
    """The time for which a settled row stays."""

    seconds: int
    keeps_rows: bool = False
    """True if the row of an object stays as long as the object. Then only committed removals expire."""

    def expires_at(self, kind: StateKind, now: int) -> int | None:
        """The time at which the row of a committed state expires: a day after the retention.

        Args:
            kind: the kind of the committed state.
            now: epoch milliseconds.

        Returns:
            Epoch seconds, as DynamoDB's TTL needs them. None: the row does not expire.

        """
        if self.keeps_rows and kind is StateKind.OBJECT:
            return None
        return now // 1000 + self.seconds + _DAY_SECONDS


class Copied(NamedTuple):
    """The result of the request that sends the copy of a rejected message to the dead-letter queue."""

    message_id: str = ""
    """The ID of the rejected message."""
    bare_digest: str | None = None
    """The digest of the copy's body, if the copy has no attributes."""
    refusal: Reason | None = None
    """Why the queue has not taken the copy. None: it has."""
    retry_at: int = 0
    """The time of the next try then, in epoch milliseconds."""


def claimed(seen: Row | None, change: Change, state: State, *, owner: str, now: int, lease_until: int) -> Row:
    """The row while an attempt works on `state`. `seen` is the row that was judged."""
    if seen is None:
        return _first_claim(change, state, owner=owner, now=now, lease_until=lease_until)
    identity, base = state.identity, seen
    again = seen.identity == identity
    retry = again and seen.unfinished
    resumed = again and seen.status is Status.REJECTED
    # A downstream that knows the idempotency key must not drop the write that repairs another state's late one.
    same_key = (retry or resumed) and not base.late_writes - {identity}
    return replace(
        base,
        status=Status.PROCESSING,
        fence=_next_fence(base, now),
        version_id=state.version_id,
        etag=state.etag,
        size=state.size,
        kind=state.kind,
        sequencer=_sequencer(change, state),
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
        pending_reason=None,
        pending_reason_code=None,
        spent_messages=_spent(base, change.bare_copy_id) if retry or resumed else None,
        bare_copy_digest=base.bare_copy_digest if retry or resumed else None,
        wake_id=change.wake_id,
        reprocess_id=max(change.reprocess_id or "", (base.reprocess_id if again else None) or "") or None,
        first_claimed_at=base.first_claimed_at if same_key else max(now, base.first_claimed_at + 1),
        waiting_since=base.waiting_since if retry else None,
        late_writes=frozenset(),
        updated_at=now,
        expires_at=None,
        needs_review=None,
        settled_as=None,
        unprocessed_state=None,
    )


def _first_claim(change: Change, state: State, *, owner: str, now: int, lease_until: int) -> Row:
    """The row of the first claim of a key. Most changes are of new keys, so it takes no way by another row."""
    return Row(
        Status.PROCESSING,
        fence=max(1, now),
        version_id=state.version_id,
        etag=state.etag,
        size=state.size,
        kind=state.kind,
        sequencer=_sequencer(change, state),
        event_name=change.event_name,
        lease_until=lease_until,
        lease_owner=owner,
        wake_id=change.wake_id,
        reprocess_id=change.reprocess_id or None,
        first_claimed_at=max(1, now),
        updated_at=now,
    )


def _sequencer(change: Change, state: State) -> str | None:
    """The sequencer of the claimed state. A message that names another state has the wrong one."""
    return change.sequencer if change.identity == state.identity else None


def extended(row: Row, *, lease_until: int, owner: str | None = None) -> Row:
    """The claimed row with a later end of its lease. `owner` takes the claim over under the same fence."""
    row = replace(row, lease_until=lease_until, lease_owner=owner or row.lease_owner)
    # Its work runs, or is started now.
    return replace(row, reason=None, reason_code=None) if row.start_refused else row


def postponed(row: Row, reason: Reason, *, lease_until: int) -> Row:
    """The claimed row whose work could not be started. The same start is tried again after its lease."""
    return replace(
        row, lease_until=lease_until, reason=truncate(reason.text, MAX_REASON_BYTES), reason_code=reason.code.value
    )


def resumed(row: Row, *, owner: str, now: int, lease_until: int) -> Row:
    """The failed row of an execution that a person has redriven: it is processed again under the same fence."""
    return replace(
        row,
        status=Status.PROCESSING,
        lease_until=lease_until,
        lease_owner=owner,
        retry_at=None,
        updated_at=now,
        needs_review=None,
    )


def _next_fence(seen: Row, now: int) -> int:
    """A fence above the row's. A row that was restored from a backup has an old fence, so the time counts too."""
    return max(seen.fence + 1, now)


def committed(
    row: Row,
    commit: str | None,
    *,
    now: int,
    retention: Retention,
    transactional: bool = False,
    processor_version: str | None = None,
    note: Reason | None = None,
) -> Row:
    """The claimed row after its commit: settled, and with the time at which it expires.

    `note` says that information about the effect was not kept.
    """
    identity = identity_of(row.kind, row.version_id, row.etag)
    again = row.committed_state == identity
    return replace(
        row,
        status=Status.PROCESSED,
        lease_until=None,
        lease_owner=None,
        committed_state=identity,
        committed_fence=row.fence,
        committed_at=now if not again or row.committed_at is None else row.committed_at,
        commit_id=truncate(commit, MAX_COMMIT_BYTES),
        transactional=1 if transactional else None,
        processor_version=processor_version,
        reason=truncate(note.text, MAX_REASON_BYTES) if note else None,
        reason_code=note.code.value if note else None,
        s3_error=None,
        rejected_fence=None,
        spent_messages=None,
        bare_copy_digest=None,
        wake_id=None,
        reprocess_id=None,
        served_reprocess_id=max(row.reprocess_id or "", row.served_reprocess_id or "") or None,
        waiting_since=None,
        updated_at=now,
        expires_at=retention.expires_at(row.kind, now),
        needs_review=None,
    )


def abandoned(row: Row, reason: Reason, *, seen: Row | None, now: int, retention: Retention, partition: str) -> Row:
    """The claimed row when its version no longer exists: settled. The committed state stays the same.

    `seen` has the last attempt that began. `partition` is that of rows of objects that were removed unprocessed, in the
    index `needs_review`.
    """
    after = replace(
        committed(row, row.commit_id, now=now, retention=retention),
        expires_at=retention.expires_at(StateKind.DELETED, now),
        committed_state=row.committed_state,
        committed_fence=row.committed_fence,
        committed_at=row.committed_at,
        transactional=row.transactional,
        processor_version=row.processor_version,
    )
    return _removed_unprocessed(after, seen, row.identity, reason, partition)


def removal_recorded(
    seen: Row | None,
    change: Change,
    state: State,
    *,
    now: int,
    retention: Retention,
    partition: str,
    of_version: bool = False,
) -> Row:
    """The row after a removal that the processor is not told: claimed and committed in one step.

    `partition` is that of rows of objects that were removed unprocessed, in the index `needs_review`. `of_version` is
    true in EVERY_VERSION, in which the row of a removal is not the row of the object.
    """
    row = claimed(seen, change, state, owner="", now=now, lease_until=now)
    after = replace(committed(row, None, now=now, retention=retention), attempts=0, settled_as=Settlement.REMOVAL)
    if of_version:
        return after
    if (lost := unprocessed_state(seen, change, now=now, retention=retention)) is not None:
        after = replace(after, rejected_fence=change.rejected_fence)
        return _removed_unprocessed(after, seen, lost, REMOVED_UNPROCESSED, partition)
    if seen is None or seen.settled_as == Settlement.REMOVED_UNSEEN:
        return replace(after, settled_as=Settlement.REMOVED_UNSEEN)
    return after


REMOVED_UNPROCESSED = Reason(ReasonCode.REMOVED_UNPROCESSED, "removed before it was processed")
"""The reason of a row that has no other one."""


def unprocessed_state(seen: Row | None, change: Change, *, now: int, retention: Retention) -> str | None:
    """The identity of the state that was not processed when its object was removed. None: no such state is known.

    A row of the object says so. Without one, the event of an upload does: after a commit that is not older than the
    event, the key would still have its row.
    """
    if seen is None or (seen.status is Status.PROCESSED and seen.settled_as == Settlement.REMOVED_UNSEEN):
        shown = change.shows_unprocessed(now - retention.seconds * 1000)
        return (change.identity or "") if shown else None
    if seen.removed_unprocessed:
        return seen.unprocessed_state
    return seen.identity if seen.kind is StateKind.OBJECT and seen.status is not Status.PROCESSED else None


def _removed_unprocessed(after: Row, seen: Row | None, identity: str, reason: Reason, partition: str) -> Row:
    """The settled row with the reason and the attempts of the state that was not processed.

    `reason` is for a state that has none. The fence stays, so that the copy in the dead-letter queue is recognized.
    """
    text, code = (seen.reason, seen.reason_code) if seen and seen.reason else (reason.text, reason.code.value)
    if seen and seen.pending_reason:
        text, code = seen.pending_reason, seen.pending_reason_code
    return replace(
        after,
        attempts=seen.attempts if seen else 0,
        redrive_count=seen.redrive_count if seen else 0,
        rejected_fence=(seen.rejected_fence if seen else None) or after.rejected_fence,
        spent_messages=seen.spent_messages if seen else None,
        bare_copy_digest=seen.bare_copy_digest if seen else None,
        s3_error=seen.s3_error if seen else None,
        reason=truncate(text, MAX_REASON_BYTES),
        reason_code=code,
        settled_as=Settlement.REMOVED_UNPROCESSED,
        unprocessed_state=identity,
        needs_review=partition,
    )


def failed(
    row: Row,
    reason: Reason,
    *,
    review_partition: str,
    now: int,
    retry_at: int | None = None,
    s3_error: str | None = None,
) -> Row:
    """The claimed row after a failure that is retried, but not before `retry_at`."""
    return replace(
        row,
        status=Status.FAILED,
        lease_until=None,
        lease_owner=None,
        reason=truncate(reason.text, MAX_REASON_BYTES),
        reason_code=reason.code.value,
        s3_error=s3_error,
        retry_at=retry_at,
        updated_at=now,
        needs_review=review_partition,
    )


def waiting(row: Row, reason: Reason, *, partition: str, now: int, retry_at: int) -> Row:
    """The claimed row while the processor waits for a missing thing. The attempt is not counted."""
    return replace(
        failed(row, reason, review_partition=partition, now=now, retry_at=retry_at),
        attempts=row.attempts - 1,
        waiting_since=now if row.waiting_since is None else row.waiting_since,
    )


def rejected(row: Row, reason: Reason, *, review_partition: str, now: int, s3_error: str | None = None) -> Row:
    """The claimed row after a failure that is not retried."""
    return replace(
        failed(row, reason, review_partition=review_partition, now=now, s3_error=s3_error),
        status=Status.REJECTED,
        rejected_fence=row.fence,
        bare_copy_digest=None,
        waiting_since=None,
    )


def reopened(seen: Row, *, review_partition: str, now: int) -> Row:
    """The rejected row after a person has asked for another attempt. Its attempts are counted from the beginning.

    The fence stays, since no attempt has the row. The next claim raises it.
    """
    return replace(
        seen,
        status=Status.FAILED,
        attempts=0,
        redrive_count=seen.redrive_count + 1,
        retry_at=None,
        updated_at=now,
        needs_review=review_partition,
    )


def exhausted(seen: Row, *, review_partition: str, now: int) -> Row:
    """The row whose last attempt ended without an outcome, rejected with the last error that is known."""
    text = seen.pending_reason or seen.reason or "the worker died or timed out at every attempt"
    row = rejected(
        replace(seen, fence=_next_fence(seen, now), pending_reason=None, pending_reason_code=None),
        Reason(ReasonCode.ATTEMPTS_EXHAUSTED, text),
        review_partition=review_partition,
        now=now,
        s3_error=seen.s3_error,
    )
    return replace(row, reason_code=seen.pending_reason_code or row.reason_code)


def after_copy(row: Row, copied: Copied) -> Row:
    """The rejected row, with a note of its copy. FAILED, if the dead-letter queue has not taken the copy."""
    if copied.refusal is not None:
        return replace(
            row,
            status=Status.FAILED,
            rejected_fence=None,
            retry_at=copied.retry_at,
            reason=truncate(copied.refusal.text, MAX_REASON_BYTES),
            reason_code=copied.refusal.code.value,
            pending_reason=row.reason,
            pending_reason_code=row.reason_code,
        )
    if copied.bare_digest is not None:
        return replace(row, bare_copy_digest=copied.bare_digest, spent_messages=_spent(row, copied.message_id))
    return row


def _spent(row: Row, message_id: str | None) -> str | None:
    """The IDs of messages that cannot open the row, with one more. None: there are none."""
    ids = dict.fromkeys([*(row.spent_messages or "").split(), *([message_id] if message_id else [])])
    return " ".join([*ids][-MAX_SPENT_MESSAGES:]) or None


def released(row: Row, seen: Row) -> Row:
    """The row as it was judged, for a claim whose processor was not started. Only the fence stays ahead."""
    return replace(seen, fence=row.fence, lease_until=None, late_writes=seen.late_writes | row.late_writes)


def truncate(text: str | None, limit: int) -> str | None:
    """The text, shortened to `limit` bytes of UTF-8."""
    if text is None:
        return None
    # DynamoDB takes valid Unicode only.
    encoded = str.encode(text, "utf-8", "replace")
    if len(encoded) <= limit:
        return encoded.decode()
    ellipsis = "…"
    return encoded[: limit - len(ellipsis.encode())].decode("utf-8", "ignore") + ellipsis
