"""The row of the ledger: its columns, each way in which they change, and their item in DynamoDB. All as pure functions.

            claimed                      committed
    (no row) ────────► PROCESSING ─────────────────────────► PROCESSED ──► (expires)
                       ▲   │  │ └───── rejected ──► REJECTED ──┐  │
                       │   │  └ failed ► FAILED ───────────────┤  │
                       └───┴── claimed ◄───────────────────────┴──┘

A row may also become PROCESSED without a commit. Then `settled_as` has the name: see `Settlement`.
`reopened` makes a REJECTED row FAILED, so that it is claimed again. `intake_ledger.ledger` writes each change with its
condition.

A row is *settled* when it is PROCESSED and no other state was written late. Then no other attempt may have written
downstream since its commit. An overtaken worker that may have written after its successor adds its state to
`late_writes`.

A worker may work on its claim until its invocation ends. The lease is longer than that by the difference that the
clocks of two workers may have. Therefore no other worker claims the row while the first one still runs.

`now`, `lease_until` and `retry_at` are epoch milliseconds. `review_partition` is the row's partition key in the index
`needs_review`.
"""

import hashlib
import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any, NamedTuple

from intake_ledger.protocol.change import Change, Origin, State, StateKind, identity_of
from intake_ledger.protocol.handover import kept_result
from intake_ledger.protocol.reasons import TAG_CODES, Reason, ReasonCode

FORMAT = 1
"""The format of the rows that this release writes."""
LEASE_ENDED = "(attribute_not_exists(#lease_until) OR #lease_until <= :now)"
"""The DynamoDB condition for `not lease_is_live(lease_until, now)`."""
MAX_REASON_BYTES = 256
"""With a longer reason, every later write of the row would cost more than one write unit of 1 KB."""
MAX_NAME_BYTES = 256
"""The bytes of `commit_id` that lines and events show. A row keeps all of it."""
MAX_SPENT_MESSAGES = 8
"""Duplicates of earlier messages are not delivered any more."""
_BEFORE_START = (ReasonCode.GROUP_HELD, ReasonCode.MAX_RATE, ReasonCode.TAG_MISSING)
"""Reasons of waits whose processor has not begun. `NotYet` is the processor's own."""
MAX_UNTAGGED = 100
"""The oldest versions after these lose their tag, so that a row keeps below 4 KB while S3 refuses all tags. A version
is added by each commit of the key, and each one tags them all."""
_DAY_SECONDS = 86_400
_SORT_KEY_BYTES = 1024  # DynamoDB's limit of a sort key
_S3_KEY_BYTES = 1024
_REJECTS_END = ".rejects.jsonl"
REVIEW_INDEX = "needs_review"
"""The sparse index of rows that failed, wait, are rejected, dismissed or removed unprocessed, or have rejected rows in
their files, by `updated_at`.
"""
REVIEW_PARTITIONS = 20
"""Partition keys of one pipeline in the index `needs_review`. DynamoDB takes 1,000 write units a second for each, and a
failure costs two: one for the row that enters the index, one when it leaves."""


class Ordering(StrEnum):
    """The promise of a pipeline about several versions of one key."""

    LATEST = "LATEST"
    """The downstream reflects the newest state of each key in the end. Versions that are overwritten before they are
    processed are skipped."""
    EVERY_VERSION = "EVERY_VERSION"
    """Each version is processed, in any order."""


@dataclass(frozen=True, slots=True)
class RowKey:
    """The row's primary key."""

    pk: str
    sk: str


class Status(StrEnum):
    """The outcome of the row's last claim."""

    PROCESSING = "PROCESSING"
    PROCESSED = "PROCESSED"
    FAILED = "FAILED"
    """It is retried."""
    REJECTED = "REJECTED"
    """It is not retried, unless a person asks for it. `reason` says why."""
    LATER_FORMAT = "LATER_FORMAT"
    """A later release wrote the row. This release can neither judge nor replace it. No row is stored with this."""


class Settlement(StrEnum):
    """The ways in which a row becomes PROCESSED without a commit. Each has its name in the row."""

    REMOVAL = "removal"
    """The object was removed after its last state was processed. The processor is not told."""
    REMOVED_UNSEEN = "removed_unseen"
    """S3 shows a delete marker, and the key had no row: the object was removed before its first delivery, or after its
    row had expired. In a ledger that tells the processor of removals, there never was an object to the downstream."""
    REMOVED_UNPROCESSED = "removed_unprocessed"
    """The object was removed before it was processed, or before a request to process it again was served. The row keeps
    the reason and the attempts."""


class CallMark(StrEnum):
    """How a state is given to a processor that takes several changes in one call."""

    TOGETHER = "together"
    """The claim was made for a call with other changes. If no outcome follows, the call has died."""
    ALONE = "alone"
    """Such a call has died. The state is given alone until its commit, so that each death is that of one change."""


DISMISSED = "#dismissed"
"""The end of the partition key of dismissed rows in the index `needs_review`."""
STORED_STATUSES = tuple(status for status in Status if status is not Status.LATER_FORMAT)


@dataclass(frozen=True, slots=True)
class Row:
    """A row, without its key. Times are epoch milliseconds, except `expires_at`: DynamoDB's TTL needs seconds."""

    status: Status
    fence: int
    """Grows with every claim and is never below the time of the claim. Therefore it does not go back when a row has
    expired or was restored from a backup."""
    version_id: str | None = None
    etag: str | None = None
    size: int | None = None
    kind: StateKind = StateKind.OBJECT
    sequencer: str | None = None
    event_name: str | None = None
    event_id: str | None = None
    """The event that woke the attempt, as `Change.event_id`. The claim is for the state that S3 shows, which the event
    need not name. No decision uses it."""
    attempts: int = 1
    redrive_count: int = 0
    """The number of times that the state was processed again after a rejection."""
    lease_until: int | None = None
    lease_owner: str | None = None
    """Unique per attempt."""
    committed_state: str | None = None
    """The identity of the state that was last committed."""
    committed_fence: int | None = None
    committed_at: int | None = None
    """The time at which this state was first committed. A commit of the same state, after a reprocess, keeps it."""
    transactional: int | None = None
    """1 when the last commit was one transaction with the processor's writes. Otherwise absent."""
    late_writes: frozenset[str] = frozenset()
    """Identities of the states that overtaken workers may have written downstream. A claim removes the states
    that it read."""
    commit_id: str | None = None
    """The downstream's name for the effect, or its result, as the processor returned it: see `kept_result`."""
    read_rows: int | None = None
    """The rows of the file that the last commit with rejected rows has read, good and bad."""
    rejected_rows: int | None = None
    """The rejected ones among them. The output with them stays until another commit replaces or removes it, and so does
    this number. None: there are none. See `rejects_may_exist`."""
    processor_version: str | None = None
    """The version of the processor's code that made the last commit. None: it is not known. No decision uses it."""
    content: str | None = None
    """With `same_content`: a fence, the time at which the content of `committed_state` was last processed, and its
    digest, separated by spaces. It holds while the fence is the row's: each claim renews it, or knows that an attempt
    may have begun since the commit. So a release that does not know it cannot leave a wrong one. See `held_content`."""
    tags_pending: str | None = None
    """The IDs of committed versions that may lack the tag of `after_commit`, separated by spaces. The write of a commit
    adds its own. They stay until S3 has taken their tags, and the row does not expire before. No verdict uses it."""
    tagged_at: int | None = None
    """The time at which the version of `committed_state` had got the tag. None: it has none, or a new commit of the
    same state has not looked at it yet."""
    settled_as: str | None = None
    """The `Settlement` of a row that is PROCESSED without a commit. A later release may have written another name."""
    kept_state: str | None = None
    """On rows that are settled as REMOVAL: the version that the downstream still has. The columns of its commit stay,
    and it is the committed state again if it comes back. None: it has none for certain."""
    kept_fence: int | None = None
    """The `committed_fence` of `kept_state`. A release that does not know these columns leaves them in the row, and
    changes `committed_fence`."""
    unprocessed_state: str | None = None
    """On rows that are settled as REMOVED_UNPROCESSED: the identity of the state that was not processed."""
    reason: str | None = None
    reason_code: str | None = None
    """The `ReasonCode` of `reason`. A later release may have written another code."""
    s3_error: str | None = None
    """S3's error code, if S3 refused the read of the object."""
    pending_reason: str | None = None
    """On FAILED rows: the reason of a rejection that waits, because the dead-letter queue does not take the copy. Then
    `reason` says why. On PROCESSING rows: a person has ended the work of this fence for good."""
    pending_reason_code: str | None = None
    """The code of `pending_reason`."""
    retry_at: int | None = None
    """On FAILED rows: no message may retry before this time. Otherwise a duplicate would use the budget up twice as
    fast."""
    rejected_fence: int | None = None
    bare_copy_digest: str | None = None
    """On REJECTED rows: the digest of the copy's body, if the copy in the dead-letter queue has no attributes."""
    spent_messages: str | None = None
    """The IDs of messages that are not this copy, separated by spaces: the rejected messages, and copies without
    attributes that have opened the row before."""
    opened: int | None = None
    """How often a person has opened the rejected message with other content. None: never. No other content takes such
    a row before its end."""
    same_key: str | None = None
    """Digests of earlier contents of a message that had the idempotency key of its identity, separated by spaces."""
    waiter: str | None = None
    """On unfinished rows: the ID of the message that comes again and continues the work, and the time at which it was
    first sent, in epoch milliseconds. Other messages need not wait then. None: it is not known which one comes again.
    """
    execution: str | None = None
    """The answer to the start of an execution, if its name alone does not find it. It names the fence, so the answer to
    an earlier start says nothing."""
    call_mark: str | None = None
    """The `CallMark` of the state. None: it is given alone, and no call with it has died."""
    reprocess_id: str | None = None
    """The request that the current claim serves."""
    served_reprocess_id: str | None = None
    """The newest request that was served."""
    first_claimed_at: int = 0
    """The time at which the state was first claimed. It is part of the idempotency key, and grows with each new state.
    Retries keep it, unless another state was written late in between."""
    waiting_since: int | None = None
    """The time at which this state first waited for `NotYet` or an option. Retries keep it, so that a wait ends."""
    updated_at: int = 0
    expires_at: int | None = None
    """Only settled rows expire, so that no reason and no half-done work is forgotten. No decision uses it. See
    `Retention`."""
    needs_review: str | None = None
    """The partition key of the sparse index, as `review_partition` gives it for FAILED and REJECTED rows. A person may
    move a REJECTED row to the partition of dismissed rows. Other partitions have the rows of objects that were removed
    unprocessed, and the committed rows of files with rejected rows. No verdict depends on it."""
    format: int = FORMAT
    """The version of this list of attributes."""

    @property
    def state(self) -> State:
        """The state that was last claimed. Its time in S3 is not in the row."""
        return State(self.kind, self.version_id, self.etag, self.size)

    @property
    def identity(self) -> str:
        """The identity of the state that was last claimed."""
        return identity_of(self.kind, self.version_id, self.etag)

    @property
    def key_content(self) -> str | None:
        """The digest in the idempotency key of a message. None: the key is that of its identity.

        A content that a person opens has another key than the ones before, and the same one whenever it is opened.
        """
        return self.etag if self.opened and self.etag not in (self.same_key or "").split() else None

    @property
    def file_rows(self) -> list[int | None] | None:
        """The rows of the file that the last commit has read, and the rejected ones. None: it has rejected none."""
        return [self.read_rows, self.rejected_rows] if self.rejected_rows else None

    @property
    def waiter_id(self) -> str | None:
        """The ID in `waiter`."""
        return self.waiter.partition(" ")[0] if self.waiter else None

    @property
    def waiter_sent_at(self) -> int:
        """The time in `waiter`. 0: there is none."""
        time = (self.waiter or "").partition(" ")[2]
        return int(time) if time.isdecimal() else 0

    @property
    def settled(self) -> bool:
        return is_settled(self.status, self.committed_state, self.late_writes)

    @property
    def unfinished(self) -> bool:
        """True if an attempt may have left unfinished work downstream."""
        return self.status in (Status.PROCESSING, Status.FAILED)

    @property
    def died_together(self) -> bool:
        """True if the last claim was for a call with other changes, and has no outcome. After its lease, it died."""
        return self.status is Status.PROCESSING and self.call_mark == CallMark.TOGETHER

    @property
    def runs_alone(self) -> bool:
        """True if no call with other changes may have the state."""
        return self.call_mark == CallMark.ALONE or self.died_together

    @property
    def spent_attempts(self) -> int:
        """The attempts that count. A call that died spends none: any of its changes may be the cause."""
        return self.attempts - 1 if self.died_together else self.attempts

    @property
    def start_refused(self) -> bool:
        """True if the work of the claim could not be started. No worker has died with it."""
        return self.status is Status.PROCESSING and self.reason_code == ReasonCode.START_REFUSED

    @property
    def waits(self) -> bool:
        """True if the last attempt waits. Its execution was never started, or has succeeded and cannot run again."""
        codes = ReasonCode.NOT_YET, ReasonCode.GROUP_HELD, ReasonCode.MAX_RATE, ReasonCode.TAG_MISSING
        return self.status is Status.FAILED and self.reason_code in codes

    @property
    def waits_for_group(self) -> bool:
        """True if the last attempt found its group held."""
        return self.status is Status.FAILED and self.reason_code == ReasonCode.GROUP_HELD

    @property
    def lacks_tag(self) -> bool:
        """True if the state waits for the tag of `ready_when`, or was rejected without it."""
        ended = self.status in (Status.FAILED, Status.REJECTED)
        return ended and ReasonCode.TAG_MISSING in (self.reason_code, self.pending_reason_code)

    @property
    def in_line(self) -> bool:
        """True if the change has waited for its place in the line of `max_rate`."""
        return self.status is Status.FAILED and self.reason_code == ReasonCode.MAX_RATE

    @property
    def dismissed(self) -> bool:
        """True if a person has dismissed the rejection. The next claim ends this."""
        return self.status is Status.REJECTED and (self.needs_review or "").endswith(DISMISSED)

    @property
    def removal_told(self) -> bool:
        """True if the processor was told of the last removal, and no attempt on another state has begun since.

        The downstream has nothing then, whatever removes the key again.
        """
        return self.settled and self.settled_as is None and self.kind in (StateKind.MARKER, StateKind.ABSENT)

    @property
    def downstream_version(self) -> str | None:
        """The identity of the version that the downstream has for certain: no attempt has begun since its commit.

        None: it may have something else, or the state has no version, so that other bytes may have the same name.
        """
        if self.settled_as is None:
            known = self.settled and self.kind is StateKind.OBJECT and self.version_id is not None
            return self.committed_state if known else None
        late = self.late_writes - {self.committed_state, self.kept_state}
        kept = self.status is Status.PROCESSED and not late and self.kept_fence == self.committed_fence
        return self.kept_state if kept else None

    def undoes_removal(self, change: Change, state: State) -> bool:
        """True if the state came back, and the processor was not told that it was removed."""
        known = self.settled_as is not None and self.downstream_version == state.identity
        return known and not self.is_newer_request(change)

    @property
    def never_begun(self) -> bool:
        """True if no attempt on a state of the key has begun, as far as the row and those before it know."""
        unseen = self.settled_as == Settlement.REMOVED_UNSEEN
        # Any attempt leaves its count or another reason.
        lost = self.removed_unprocessed and not self.attempts and self.reason_code == ReasonCode.REMOVED_UNPROCESSED
        return self.settled and (unseen or lost)

    @property
    def removed_unprocessed(self) -> bool:
        """True if the object was removed before it was processed. The next claim ends this."""
        return self.status is Status.PROCESSED and self.settled_as == Settlement.REMOVED_UNPROCESSED

    @property
    def held_content(self) -> str | None:
        """Time and digest in `content`, if the downstream has it for certain: no attempt has begun since its commit.

        None: it may have something else, or it is not known.
        """
        fence, _, known = (self.content or "").partition(" ")
        unbegun = self.settled if self.status is Status.PROCESSED else self._was_not_begun
        return known if fence == str(self.fence) and unbegun else None

    @property
    def _was_not_begun(self) -> bool:
        """True if the last attempt has ended before its processor began, and none has written late since."""
        waits = self.status is Status.FAILED and self.reason_code in _BEFORE_START
        return waits and not self.late_writes - {self.committed_state}

    @property
    def untagged(self) -> list[str]:
        """The versions in `tags_pending`."""
        return (self.tags_pending or "").split()

    def is_newer_request(self, change: Change) -> bool:
        """True if the change is a request to process again that is newer than the last one that was served."""
        return change.reprocess_id is not None and change.reprocess_id > (self.served_reprocess_id or "")

    def is_bare_copy(self, message_id: str, digest: str) -> bool:
        """True if a message without attributes stands for the copy of this rejection.

        SQS gives a redriven message a new ID. A message with a known ID is SQS's own duplicate.
        """
        spent = (self.spent_messages or "").split()
        return self.bare_copy_digest == digest and message_id not in ("", *spent)

    def has_committed(self, identity: str | None) -> bool:
        """True if the state was committed, and no other attempt may have written downstream since."""
        return self.settled and identity is not None and self.committed_state == identity

    def is_live(self, now: int) -> bool:
        """True if an attempt holds the row. `now` is in epoch milliseconds."""
        return self.status is Status.PROCESSING and lease_is_live(self.lease_until, now)


def is_settled(status: str, committed_state: str | None, late_writes: Collection[str]) -> bool:
    """True if no state but the committed one may have been written downstream since the commit."""
    return status == Status.PROCESSED and all(state == committed_state for state in late_writes)


def lease_length[Number: (int, float)](time_left: Number, clock_skew: Number) -> Number:
    """The time for which a claim excludes others. All three times have the same unit.

    Args:
        time_left: the rest of the worker's invocation. At most, this is the timeout of its function.
        clock_skew: the largest difference between the clocks of two workers.

    """
    return time_left + clock_skew


def lease_is_live(lease_until: int | None, now: int) -> bool:
    """True while the lease excludes other workers. Both times are epoch milliseconds."""
    return lease_until is not None and lease_until > now


class Retention(NamedTuple):
    """The time for which a settled row stays."""

    seconds: int
    keeps_rows: bool = False
    """True if the row of an object stays as long as the object. Then only committed removals expire."""
    forgets_rejects: bool = False
    """True if a row with rejected rows expires as others. Each state has its own row then (EVERY_VERSION)."""
    rejects_partition: str = ""
    """The partition key of rows with rejected rows, in the index `needs_review`."""

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


class RowCounts(NamedTuple):
    """The rows of a file whose processor reads them with `on_error`, at the commit."""

    read: int
    rejected: int
    """0: the output with the rejected rows of an earlier attempt was removed."""


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


def claimed(
    seen: Row | None,
    change: Change,
    state: State,
    *,
    owner: str,
    now: int,
    lease_until: int,
    call_mark: str | None = None,
) -> Row:
    """The row while an attempt works on `state`. `seen` is the row that was judged."""
    if seen is None:
        return _first_claim(change, state, owner=owner, now=now, lease_until=lease_until, call_mark=call_mark)
    identity, base = state.identity, seen
    again = seen.identity == identity
    retry = again and seen.unfinished
    resumed = again and seen.status is Status.REJECTED
    other = again and None not in (seen.etag, state.etag) and seen.etag != state.etag
    # A downstream that knows the idempotency key must not drop the write that repairs another state's late one.
    same_key = (retry or resumed) and not base.late_writes - {identity}
    # A wake goes on with the wait of another message. It reports no change of the key.
    goes_on = retry and change.origin in (Origin.GROUP, Origin.TAG)
    fence = _next_fence(base, now)
    known = base.held_content if base.content is not None else None
    return replace(
        base,
        status=Status.PROCESSING,
        fence=fence,
        content=f"{fence} {known}" if known else None,
        version_id=state.version_id,
        etag=state.etag,
        size=state.size,
        kind=state.kind,
        sequencer=base.sequencer if goes_on else _sequencer(change, state),
        event_name=base.event_name if goes_on else change.event_name,
        event_id=base.event_id if goes_on else change.event_id,
        attempts=base.spent_attempts + 1 if retry else 1,
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
        opened=(base.opened or 0) + 1 if resumed and other else base.opened if again else None,
        same_key=_with(base.same_key, base.etag) if other and not base.opened else base.same_key if again else None,
        waiter=change.waiter,
        call_mark=CallMark.ALONE if again and base.runs_alone else call_mark,
        reprocess_id=max(change.reprocess_id or "", (base.reprocess_id if again else None) or "") or None,
        first_claimed_at=base.first_claimed_at if same_key else max(now, base.first_claimed_at + 1),
        waiting_since=base.waiting_since if retry else None,
        late_writes=frozenset(),
        updated_at=now,
        expires_at=None,
        needs_review=None,
        settled_as=None,
        kept_state=None,
        kept_fence=None,
        unprocessed_state=None,
    )


def _first_claim(change: Change, state: State, *, owner: str, now: int, lease_until: int, call_mark: str | None) -> Row:
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
        event_id=change.event_id,
        lease_until=lease_until,
        lease_owner=owner,
        waiter=change.waiter,
        call_mark=call_mark,
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
    counts: RowCounts | None = None,
    content: str | None = None,
    tags: bool = False,
) -> Row:
    """The claimed row after its commit: settled, and with the time at which it expires.

    `tags` is true if the version gets a tag after the commit. The reason of the row says if the result was not kept.
    `content` is the time and the digest of the content. None: they are not known.
    `counts` is None if the attempt neither wrote nor removed an output with rejected rows.
    """
    identity = identity_of(row.kind, row.version_id, row.etag)
    pending = row.tags_pending
    if tags and row.kind is StateKind.OBJECT and row.version_id is not None:
        pending = " ".join([*dict.fromkeys([*row.untagged, row.version_id])][-MAX_UNTAGGED:])
    again = row.committed_state == identity
    kept, problem = kept_result(commit)
    after = replace(
        row,
        status=Status.PROCESSED,
        lease_until=None,
        lease_owner=None,
        committed_state=identity,
        committed_fence=row.fence,
        committed_at=now if not again or row.committed_at is None else row.committed_at,
        commit_id=kept,
        content=f"{row.fence} {content}" if content else None,
        transactional=1 if transactional else None,
        processor_version=processor_version,
        reason=truncate(problem, MAX_REASON_BYTES) if problem else None,
        reason_code=ReasonCode.RESULT_NOT_KEPT.value if problem else None,
        s3_error=None,
        rejected_fence=None,
        spent_messages=None,
        bare_copy_digest=None,
        waiter=None,
        call_mark=None,
        reprocess_id=None,
        served_reprocess_id=max(row.reprocess_id or "", row.served_reprocess_id or "") or None,
        waiting_since=None,
        tags_pending=pending,
        tagged_at=None,
        updated_at=now,
        expires_at=None if pending else retention.expires_at(row.kind, now),
        needs_review=None,
    )
    return _with_counts(after, counts, retention) if counts is not None or after.rejected_rows else after


def committed_again(row: Row, *, now: int, retention: Retention, tags: bool = False) -> Row:
    """The claimed row after the commit of a version with the committed content, without a call of the processor.

    What the row says about the last call stays, and so does the time at which the content was processed.
    """
    after = committed(
        row,
        row.commit_id,
        now=now,
        retention=retention,
        transactional=bool(row.transactional),
        processor_version=row.processor_version,
        content=(row.content or "").partition(" ")[2],
        tags=tags,
    )
    reason = f"same content as version {(row.committed_state or '').partition('#')[2]}"
    return replace(after, reason=truncate(reason, MAX_REASON_BYTES), reason_code=ReasonCode.SAME_CONTENT.value)


def tagged(row: Row, done: Sequence[str], *, now: int, retention: Retention) -> Row:
    """The row after S3 has taken the tags of these versions, or has shown that there is nothing to tag any more.

    A settled row expires from now on, since nothing is left to do.
    """
    left = " ".join(version for version in row.untagged if version not in done) or None
    refused = row.reason_code in TAG_CODES
    after = replace(
        row,
        tags_pending=left,
        reason=None if refused else row.reason,
        reason_code=None if refused else row.reason_code,
    )
    if (row.kept_state or row.committed_state) in {identity_of(StateKind.OBJECT, version, None) for version in done}:
        after = replace(after, tagged_at=now)
    if left or row.status is not Status.PROCESSED:
        return after
    if row.late_writes - {row.committed_state}:
        return after  # it has to be repaired before it may expire
    kind = StateKind.DELETED if row.settled_as else row.kind
    # The row of a version that was permanently deleted may have an expiry already.
    expires_at = row.expires_at or retention.expires_at(kind, now)
    return _with_counts(replace(after, expires_at=expires_at), None, retention)


def untagged(row: Row, reason: Reason) -> Row:
    """The committed row with the reason why a version of it has no tag yet. Other reasons stay."""
    replaced = row.reason is None or row.reason_code in (*TAG_CODES, ReasonCode.SAME_CONTENT)
    if row.status is not Status.PROCESSED or not replaced:
        return row
    return replace(row, reason=truncate(reason.text, MAX_REASON_BYTES), reason_code=reason.code.value)


def _with_counts(row: Row, counts: RowCounts | None, retention: Retention) -> Row:
    """The committed row with the rejected rows of its file.

    A new state of a key whose row has expired would not find the output with the rejected rows of the state before. So
    the row stays as long as the output, and is listed also after a removal that leaves the output.
    """
    if counts is not None:
        read, rejected = (counts.read, counts.rejected) if counts.rejected else (None, None)
        row = replace(row, read_rows=read, rejected_rows=rejected)
    if not row.rejected_rows:
        return row
    row = replace(row, needs_review=row.needs_review or retention.rejects_partition)
    return row if retention.forgets_rejects else replace(row, expires_at=None)


def rejects_may_exist(seen: Row | None) -> bool:
    """True if an attempt before this claim may have written the output with rejected rows, or may still write it.

    Each attempt writes it before its commit. So each commit after an attempt without a commit replaces or removes the
    output. What it writes has a higher fence, and keeps a late worker of that attempt from writing.
    """
    if seen is None:
        return False
    committed_last = seen.status is Status.PROCESSED and seen.settled_as is None
    return bool(seen.rejected_rows) or not committed_last


def abandoned(row: Row, reason: Reason, *, seen: Row | None, now: int, retention: Retention, partition: str) -> Row:
    """The claimed row when its version no longer exists: settled. The committed state stays the same.

    `seen` has the last attempt that began. `partition` is that of rows of objects that were removed unprocessed, in the
    index `needs_review`.
    """
    after = replace(
        committed(row, row.commit_id, now=now, retention=retention),
        expires_at=None if row.tags_pending else retention.expires_at(StateKind.DELETED, now),
        committed_state=row.committed_state,
        committed_fence=row.committed_fence,
        committed_at=row.committed_at,
        transactional=row.transactional,
        processor_version=row.processor_version,
        tagged_at=row.tagged_at,
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

    If the processor was told of the removal before, the row keeps that commit. A repetition or a late report of it is
    still recognized then. If it was not told, the row keeps the commit of the version that the downstream still has,
    unless the removal serves a request to process again.

    `partition` is that of rows of objects that were removed unprocessed, in the index `needs_review`. `of_version` is
    true in EVERY_VERSION, in which the row of a removal is not the row of the object.
    """
    if seen is not None and seen.removal_told and not seen.is_newer_request(change):
        return _with_counts(_settled_at(seen, change, state, now=now, retention=retention), None, retention)
    row = claimed(seen, change, state, owner="", now=now, lease_until=now)
    after = replace(committed(row, None, now=now, retention=retention), attempts=0, settled_as=Settlement.REMOVAL)
    if of_version:
        return after
    if (lost := unprocessed_state(seen, change, now=now, retention=retention)) is not None:
        after = replace(after, rejected_fence=change.rejected_fence)
        return _removed_unprocessed(after, seen, lost, REMOVED_UNPROCESSED, partition)
    if seen is None or seen.settled_as == Settlement.REMOVED_UNSEEN:
        return replace(after, settled_as=Settlement.REMOVED_UNSEEN)
    if seen.downstream_version is None or seen.is_newer_request(change):
        return after
    return replace(
        after,
        kept_state=seen.downstream_version,
        kept_fence=seen.committed_fence,
        committed_fence=seen.committed_fence,
        committed_at=seen.committed_at,
        transactional=seen.transactional,
        commit_id=seen.commit_id,
        processor_version=seen.processor_version,
        tagged_at=seen.tagged_at,
        reason=seen.reason,
        reason_code=seen.reason_code,
        first_claimed_at=seen.first_claimed_at,
    )


def _settled_at(seen: Row, change: Change, state: State, *, now: int, retention: Retention) -> Row:
    """The settled row with another state, which the processor is not called for. The other columns stay."""
    return replace(
        seen,
        fence=_next_fence(seen, now),
        version_id=state.version_id,
        etag=state.etag,
        size=state.size,
        kind=state.kind,
        sequencer=_sequencer(change, state),
        committed_state=state.identity,
        late_writes=frozenset(),
        expires_at=None if seen.tags_pending else retention.expires_at(state.kind, now),
    )


def removal_undone(seen: Row, change: Change, state: State, *, now: int, retention: Retention) -> Row:
    """The row after the version that the downstream still has came back: its commit is the last one again."""
    after = replace(
        _settled_at(seen, change, state, now=now, retention=retention),
        event_name=change.event_name,
        event_id=change.event_id,
        updated_at=now,
        needs_review=None,
        settled_as=None,
        kept_state=None,
        kept_fence=None,
    )
    return _with_counts(after, None, retention)


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
    waiter: str | None = None,
) -> Row:
    """The claimed row after a failure that is retried, but not before `retry_at`. `waiter` is as in `Row`."""
    return replace(
        row,
        status=Status.FAILED,
        lease_until=None,
        lease_owner=None,
        reason=truncate(reason.text, MAX_REASON_BYTES),
        reason_code=reason.code.value,
        s3_error=s3_error,
        retry_at=retry_at,
        waiter=waiter or row.waiter,
        # The call has answered for the state.
        call_mark=None if row.call_mark == CallMark.TOGETHER else row.call_mark,
        updated_at=now,
        needs_review=review_partition,
    )


def broken(seen: Row, reason: Reason, *, review_partition: str, now: int) -> Row:
    """The claimed row after a person has taken it from its worker. The attempt counts, and no later one has to wait.

    A call with other changes has died then, and spends no attempt. The fence is raised, so that a late worker is
    overtaken before another attempt has claimed the row.
    """
    mark = CallMark.ALONE if seen.runs_alone else None
    row = replace(seen, attempts=seen.spent_attempts, call_mark=mark)
    after = failed(row, reason, review_partition=review_partition, now=now)
    return replace(after, fence=_next_fence(seen, now))


def ended(seen: Row, reason: Reason, *, review_partition: str, now: int, may_run: bool) -> Row:
    """The row whose work a person has ended for good. The next message about its state rejects it, with its copy.

    While its execution may run, only the wish is recorded, under the fence of the row. A later claim drops it. A row
    whose execution was not started is taken as by `broken`.
    """
    if seen.status is Status.PROCESSING and not may_run:
        seen = broken(seen, reason, review_partition=review_partition, now=now)
    return replace(
        seen,
        pending_reason=truncate(reason.text, MAX_REASON_BYTES),
        pending_reason_code=reason.code.value,
        retry_at=now if seen.status is Status.FAILED else None,
    )


def waiting(row: Row, reason: Reason, *, partition: str, now: int, retry_at: int, waiter: str | None = None) -> Row:
    """The claimed row while the processor waits for a missing thing. The attempt is not counted."""
    return replace(
        failed(row, reason, review_partition=partition, now=now, retry_at=retry_at, waiter=waiter),
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
        pending_reason=None,
        pending_reason_code=None,
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


def exhausted(seen: Row, change: Change, *, review_partition: str, now: int) -> Row:
    """The row whose last attempt ended without an outcome, rejected with the last error that is known."""
    text = seen.pending_reason or seen.reason or "the worker died or timed out at every attempt"
    row = rejected(
        replace(
            seen,
            fence=_next_fence(seen, now),
            etag=copied_content(seen, change),
            waiter=None,
        ),
        Reason(ReasonCode.ATTEMPTS_EXHAUSTED, text),
        review_partition=review_partition,
        now=now,
        s3_error=seen.s3_error,
    )
    return replace(row, reason_code=seen.pending_reason_code or row.reason_code)


def copied_content(row: Row, change: Change) -> str | None:
    """The digest of a rejected row: that of its copy, whose content is that of `change`. Others get a copy too."""
    state = change.state if change.state is not None and change.state.identity == row.identity else None
    return (state.etag if state else None) or row.etag


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
    return _with(row.spent_messages, message_id)


def _with(names: str | None, name: str | None) -> str | None:
    """The newest names of a column, with one more. None: there are none."""
    found = dict.fromkeys([*(names or "").split(), *([name] if name else [])])
    return " ".join([*found][-MAX_SPENT_MESSAGES:]) or None


def released(row: Row, seen: Row) -> Row:
    """The row as it was judged, for a claim whose processor was not started. Only the fence stays ahead."""
    late = seen.late_writes | row.late_writes
    return replace(seen, fence=row.fence, lease_until=None, late_writes=late, content=row.content)


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


def row_key(pipeline: str, ordering: Ordering, bucket: str, key: str, identity: str | None) -> RowKey:
    """The primary key of a change's row: one row per key in LATEST, one per state (`identity`) in EVERY_VERSION.

    A bucket's name has no slash and a pipeline's has no `@`. Therefore two objects never have the same row.
    """
    sk = f"{pipeline}@latest" if ordering is Ordering.LATEST else f"{pipeline}@{identity}"
    if len(sk.encode()) > _SORT_KEY_BYTES:
        # A version id alone may have 1,024 bytes.
        sk = f"{pipeline}@h#{hashlib.sha256(sk.encode()).hexdigest()}"
    return RowKey(f"{bucket}/{key}", sk)


def success_key(pipeline: str) -> RowKey:
    """The key of the item with the last success of all workers. No row has such a key: its key has a slash."""
    return RowKey(f"{pipeline}#downstream", "last_success")


def breaker_key(pipeline: str) -> RowKey:
    """The key of the item that shows the circuit breaker's state to people."""
    return RowKey(f"{pipeline}#downstream", "breaker")


def rate_key(pipeline: str, name: str = "") -> RowKey:
    """The key of the item that limits the starts of a pipeline. It is alone in its partition, because it is hot.

    `name` is that of a `Rate` of `once`.
    """
    return RowKey(f"{pipeline}#rate/{name}" if name else f"{pipeline}#rate", "starts")


def pause_key(pipeline: str) -> RowKey:
    """The key of the item that says who has paused the consumer, and why."""
    return RowKey(f"{pipeline}#downstream", "pause")


def group_key(pipeline: str, group: str) -> RowKey:
    """The key of the lock of a group (`exclusive_by`). No row has such a key: no bucket has a `#` in its name."""
    return RowKey(f"{pipeline}#group/{group}", f"{pipeline}@lock")


def group_line(pipeline: str) -> str:
    """The beginning of the sort keys of the keys that wait for a group, in the partition of its lock."""
    return f"{pipeline}@waits/"


def forgotten_key(pipeline: str, pk: str) -> RowKey:
    """The key of the marker of a forgotten key, whose rows had this partition key. It has a hash of both only."""
    return RowKey(f"{pipeline}#forgotten", hashlib.sha256(f"{pipeline}\n{pk}".encode()).hexdigest())


def newest_forgotten_key(pipeline: str) -> RowKey:
    """The key of the item that says when a key was last forgotten."""
    return RowKey(f"{pipeline}#forgotten", "newest")


def operations_partition(pipeline: str) -> str:
    """The partition key of the records of operations, and of their requests. No row has such a key."""
    return f"{pipeline}#operations"


def review_partitions(pipeline: str) -> list[str]:
    """All partition keys of the pipeline's FAILED and REJECTED rows in the index `needs_review`."""
    return [f"{pipeline}#{number}" for number in range(REVIEW_PARTITIONS)]


def review_partition(pipeline: str, key: RowKey) -> str:
    """The partition key of one row in the index `needs_review` while the row is FAILED or REJECTED."""
    return f"{pipeline}#{zlib.crc32(f'{key.pk} {key.sk}'.encode()) % REVIEW_PARTITIONS}"


def waiting_partition(pipeline: str) -> str:
    """The partition key of the pipeline's waiting rows in the index `needs_review`. These rows did not fail."""
    return f"{pipeline}#waiting"


def dismissed_partition(pipeline: str) -> str:
    """The partition key of the pipeline's dismissed rows in the index `needs_review`. They need no review."""
    return f"{pipeline}{DISMISSED}"


def rejects_place(place: str, key: str, version: str | None) -> tuple[str, str]:
    """The bucket and the key of the output with the rejected rows of an object or a set.

    Args:
        place: the bucket's name, a slash, and the beginning of the keys.
        key: of the object or the set.
        version: the identity of the version with EVERY_VERSION. None: the output is that of the newest state.

    """
    bucket, _, prefix = place.partition("/")
    name = f"{key}{_REJECTS_END}" if version is None else f"{key}/{version}{_REJECTS_END}"
    if len(f"{prefix}{name}".encode()) > _S3_KEY_BYTES:
        name = hashlib.sha256(name.encode()).hexdigest() + _REJECTS_END
    return bucket, f"{prefix}{name}"


def rejected_rows_partition(pipeline: str) -> str:
    """The partition key of settled rows with rejected rows, in the index `needs_review`."""
    return f"{pipeline}#rejected_rows"


def removed_partition(pipeline: str) -> str:
    """The partition key of rows of objects that were removed unprocessed, in the index `needs_review`."""
    return f"{pipeline}#removed"


_ROW_FIELDS = tuple(field.name for field in fields(Row))
_ENUMS: dict[str, type[StrEnum]] = {"status": Status, "kind": StateKind}
_KNOWN: dict[str, frozenset[str]] = {
    "status": frozenset(STORED_STATUSES),
    "kind": frozenset(StateKind),
}
"""The values that this release stores."""
# For unions: the union. For `frozenset[str]`: the set.
_TYPES: dict[str, Any] = {
    field.name: str if field.name in _ENUMS else getattr(field.type, "__origin__", field.type) for field in fields(Row)
}


def row_attributes(row: Row) -> dict[str, Any]:
    """The row as attributes by name. None and empty sets are left out."""
    return {name: value for name in _ROW_FIELDS if (value := getattr(row, name)) not in (None, frozenset())}


def row_difference(before: Row, after: Row) -> tuple[dict[str, Any], list[str]]:
    """The attributes to set, and the names of those to remove, in an update from one row to the other.

    There is one at least: DynamoDB refuses an update without one, and checks no condition. `late_writes` is left out:
    an update adds and deletes elements of this set, and keeps those of other workers.
    """
    new = {
        name: value
        for name in _ROW_FIELDS
        if name != "late_writes" and (value := getattr(after, name)) != getattr(before, name)
    } or {"fence": after.fence}
    return {name: value for name, value in new.items() if value is not None}, [
        name for name, value in new.items() if value is None
    ]


def row_from_attributes(item: Mapping[str, Any]) -> Row | None:
    """Make a row of an item's attributes. None: the item has no status. An audit's mark alone is not a row.

    Rows of older releases may lack attributes, and rows of this format may have more. Both can be read. A row of a
    later format gets the status LATER_FORMAT, and people may read the other attributes.
    """
    if "status" not in item and "format" not in item:
        return None
    known = {name: item[name] for name in _ROW_FIELDS if name in item}
    if not is_readable(known):
        return _unreadable(known)
    for name, enum in _ENUMS.items():
        if name in known:
            known[name] = enum(known[name])
    return Row(**{"fence": 0, **known})


def is_readable(item: Mapping[str, Any]) -> bool:
    """True if this release knows the format of a row with these attributes. Then it may judge and replace the row."""
    return (
        item.get("format", FORMAT) == FORMAT
        and "status" in item
        and all(item[name] in values for name, values in _KNOWN.items() if isinstance(item.get(name), str))
        and all(isinstance(item[name], _TYPES[name]) for name in _ROW_FIELDS if name in item)
    )


def _unreadable(item: Mapping[str, Any]) -> Row:
    """A row of a later format. Attributes of another type than in this release are left out."""
    kept = {name: value for name, value in item.items() if name not in _ENUMS and isinstance(value, _TYPES[name])}
    return Row(**{"fence": 0, "format": FORMAT + 1, **kept, "status": Status.LATER_FORMAT})


def to_dynamodb[Name](attributes: Mapping[Name, Any]) -> dict[Name, Any]:
    """The attributes in DynamoDB's typed form."""
    return {
        name: {"SS": sorted(value)}
        if isinstance(value, frozenset)
        else {"N": str(value)}
        if isinstance(value, int)
        else {"S": str(value)}
        for name, value in attributes.items()
    }


def from_dynamodb(item: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes of an item as text, whole numbers and sets of texts.

    Attributes of other types stay in DynamoDB's typed form, because a later release may have stored them.
    """
    return {name: _value(typed) for name, typed in item.items()}


def _value(typed: Mapping[str, Any]) -> Any:
    if "S" in typed:
        return typed["S"]
    # int() also takes spaces and underscores, and fails for a number such as 1E+3.
    if "N" in typed and typed["N"].removeprefix("-").isdecimal():
        return int(typed["N"])
    if "SS" in typed:
        return frozenset(typed["SS"])
    return typed
