"""One row of the ledger. `row_changes` has each way in which a row may change.

A row is *settled* when it is PROCESSED and no other state was written late. Then no other attempt may have written
downstream since its commit. An overtaken worker that may have written after its successor adds its state to
`late_writes`.
"""

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum

from intake_ledger.protocol.lease import lease_is_live
from intake_ledger.protocol.object_state import StateKind, identity_of
from intake_ledger.protocol.reasons import ReasonCode

FORMAT = 1
"""The format of the rows that this release writes."""


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
    row had expired."""
    REMOVED_UNPROCESSED = "removed_unprocessed"
    """The object was removed before it was processed, or before a request to process it again was served. The row keeps
    the reason and the attempts."""


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
    """The downstream's name for the effect, as the processor returned it."""
    processor_version: str | None = None
    """The version of the processor's code that made the last commit. None: it is not known. No decision uses it."""
    settled_as: str | None = None
    """The `Settlement` of a row that is PROCESSED without a commit. A later release may have written another name."""
    unprocessed_state: str | None = None
    """On rows that are settled as REMOVED_UNPROCESSED: the identity of the state that was not processed."""
    reason: str | None = None
    reason_code: str | None = None
    """The `ReasonCode` of `reason`. A later release may have written another code."""
    s3_error: str | None = None
    """S3's error code, if S3 refused the read of the object."""
    pending_reason: str | None = None
    """On FAILED rows: the reason of a rejection that waits, because the dead-letter queue does not take the copy. Then
    `reason` says why."""
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
    wake_id: str | None = None
    """On unfinished rows of sets: the ID of the wake that comes again and continues the work. Other wakes need not
    wait then. None: another message continues it."""
    reprocess_id: str | None = None
    """The request that the current claim serves."""
    served_reprocess_id: str | None = None
    """The newest request that was served."""
    first_claimed_at: int = 0
    """The time at which the state was first claimed. It is part of the idempotency key, and grows with each new state.
    Retries keep it, unless another state was written late in between."""
    waiting_since: int | None = None
    """The time at which the processor first raised `NotYet` for this state. Retries keep it, so that a wait ends."""
    updated_at: int = 0
    expires_at: int | None = None
    """Only settled rows expire, so that no reason and no half-done work is forgotten. No decision uses it. See
    `Retention`."""
    needs_review: str | None = None
    """The partition key of the sparse index, as `review_partition` gives it for FAILED and REJECTED rows. A person may
    move a REJECTED row to the partition of dismissed rows. Another partition has the
    rows of objects that were removed unprocessed. No verdict depends on it."""
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
    def unfinished(self) -> bool:
        """True if an attempt may have left unfinished work downstream."""
        return self.status in (Status.PROCESSING, Status.FAILED)

    @property
    def start_refused(self) -> bool:
        """True if the work of the claim could not be started. No worker has died with it."""
        return self.status is Status.PROCESSING and self.reason_code == ReasonCode.START_REFUSED

    @property
    def waits(self) -> bool:
        """True if the last attempt waits. Its execution was never started, or has succeeded and cannot run again."""
        return self.status is Status.FAILED and self.reason_code == ReasonCode.NOT_YET

    @property
    def dismissed(self) -> bool:
        """True if a person has dismissed the rejection. The next claim ends this."""
        return self.status is Status.REJECTED and (self.needs_review or "").endswith(DISMISSED)

    @property
    def removed_unprocessed(self) -> bool:
        """True if the object was removed before it was processed. The next claim ends this."""
        return self.status is Status.PROCESSED and self.settled_as == Settlement.REMOVED_UNPROCESSED

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
