"""The outcomes of attempts, and reason codes: why an attempt failed, or why a message was refused.

A reason has a stable code for programs and a text for people. Texts may change with each release. Codes may not,
because people redrive messages by code.
"""

from enum import StrEnum
from typing import NamedTuple

from intake_ledger.protocol.errors import (
    CopyRefused,
    EndedByPerson,
    ExecutionStopped,
    Fenced,
    GroupHeld,
    InvalidOutputError,
    InvalidTransactionError,
    LateWriteFound,
    NoSpaceError,
    NotBegun,
    NotYet,
    ObjectGone,
    ObjectReadError,
    RefusedByTag,
    RemoteTimeoutError,
    SchemaDrift,
    TagRefused,
    TagsFull,
    TooManyRejects,
    TransactionRefused,
    Unprocessable,
    WrongReturnError,
)


class OutcomeKind(StrEnum):
    """The ways in which an attempt on a claim ends. The values are metric names."""

    COMMITTED = "Committed"
    FAILED = "Failed"
    REJECTED = "Rejected"
    FENCED = "Fenced"
    GONE = "VersionGone"
    WAITING = "Waiting"
    """Something that the work needs is missing: the processor raised `NotYet`, or an option does not let it start."""
    STARTED = "Started"
    """An execution of the state machine was started. It goes on when the attempt has ended."""
    START_REFUSED = "StartRefused"
    """Step Functions refused to start the execution. The same start is tried again, and no attempt was counted."""
    OVERTAKEN = "Overtaken"
    """The execution was stopped, because a newer state of its key came. No attempt was counted."""


class ReasonCode(StrEnum):
    """The stable codes of reasons. A code is never renamed and never gets another meaning."""

    PROCESSOR_ERROR = "processor_error"
    """The processor raised an exception, or its Lambda function failed."""
    PROCESSOR_TIMEOUT = "processor_timeout"
    """The processor ran longer than `processing_timeout`, or its Lambda function reached its own timeout."""
    PROCESSOR_THROTTLED = "processor_throttled"
    """Lambda throttled the processor's function before it started. No attempt was counted."""
    WRONG_RETURN = "wrong_return"
    """The processor returned a value that is not a commit."""
    UNPROCESSABLE = "unprocessable"
    """The processor raised `Unprocessable`, or the content is malformed."""
    SCHEMA_DRIFT = "schema_drift"
    """A file lacks a column that `csv_rows(columns=...)` names, or has a new one."""
    TOO_MANY_REJECTS = "too_many_rejects"
    """More rows of a file are bad than `Rejects.max_share` allows."""
    NOT_YET = "not_yet"
    """The processor raised `NotYet`. The change waits."""
    GROUP_HELD = "group_held"
    """Another key of the group is in work, with `exclusive_by`. The change waits."""
    MAX_RATE = "max_rate"
    """`max_rate` had no start for the change. It waits, or was rejected at the end of `max_wait`."""
    TAG_MISSING = "tag_missing"
    """The version lacks the tag of `ready_when`. It waits, or was rejected at the end of `max_wait`."""
    TAG_REFUSES = "tag_refuses"
    """The tag of `ready_when` refuses the version, or the object has no version."""
    MAX_WAIT = "max_wait"
    """The processor still raised `NotYet` at the end of `max_wait`, or the group of the key was still in work."""
    ATTEMPTS_EXHAUSTED = "attempts_exhausted"
    """The worker of the last permitted attempt died or timed out. The text is the last known error."""
    TRANSACTION_REFUSED = "transaction_refused"
    """DynamoDB or the library refused the writes of `Commit(transact=...)`."""
    INVALID_TRANSACTION = "invalid_transaction"
    """The writes of a commit are malformed. No attempt of the same code can succeed."""
    INVALID_OUTPUT = "invalid_output"
    """An output is malformed or belongs to another object. No attempt of the same code can succeed."""
    RESULT_NOT_KEPT = "result_not_kept"
    """The row is committed without its result: a text above 16,384 bytes, or in a `once` block another value."""
    SAME_CONTENT = "same_content"
    """The row is committed without a call: its version has the content of the one that was committed before."""
    LATE_WRITE = "late_write"
    """An earlier worker may have written another state after this attempt's effect. The change is processed again."""
    LEASE_LOST = "lease_lost"
    """The lease ended, and another attempt claimed the row."""
    LOCK_BROKEN = "lock_broken"
    """A person has taken the claim from its worker with `intake-ledger release`. The attempt counts."""
    ENDED = "ended"
    """A person has ended the work for good with `intake-ledger release --end`."""
    OBJECT_GONE = "object_gone"
    """S3 no longer holds the claimed version."""
    REMOVED_UNPROCESSED = "removed_unprocessed"
    """The object was removed before it was processed."""
    READ_ERROR = "read_error"
    """The content that arrived from S3 is incomplete or altered."""
    S3_REFUSED = "s3_refused"
    """S3 refused to let the object be read: it is archived, or access is denied. `s3_error` has S3's code."""
    NO_SPACE = "no_space"
    """The temporary directory has not enough free space for the object."""
    UNPARSEABLE_MESSAGE = "unparseable_message"
    """The message is not an event that this release can parse."""
    WRONG_BUCKET = "wrong_bucket"
    """The message is about another bucket than the pipeline's."""
    VERSION_MISSING = "version_missing"
    """The message names no version, and the pipeline's ordering is EVERY_VERSION."""
    IDENTITY_COLLIDES = "identity_collides"
    """A message with its key and identity came before, with another fingerprint. If redriven: with other content."""
    IDENTITY_REJECTED = "identity_rejected"
    """A message with its key and identity was rejected. This one has other content, or the dead letter has expired."""
    REPROCESS_ID_AHEAD = "reprocess_id_ahead"
    """The time in the ID of the reprocess request is in the future by more than `clock_skew`."""
    DEAD_LETTER_REFUSED = "dead_letter_refused"
    """The dead-letter queue does not take the copy of a rejected state. The row is REJECTED when it does."""
    START_REFUSED = "start_refused"
    """Step Functions refused to start the execution, or throttled it. It is tried again. No attempt was counted."""
    OVERTAKEN = "overtaken"
    """The execution was stopped, because a newer state of its key came. No attempt was counted."""
    MAX_RECEIVES = "max_receives"
    """SQS moved the message to the dead-letter queue, because it reached `maxReceiveCount`."""
    TAG_REFUSED = "tag_refused"
    """The row is committed, and S3 has not taken the tag of `after_commit`. The tag is tried again."""
    TAGS_FULL = "tags_full"
    """The row is committed, and its version has ten tags, so there is no room for that of `after_commit`."""
    COPY_LOST = "copy_lost"
    """A person has redriven or dismissed and retried the message, and no queue has it. Its source may send it again."""
    CONSUMER_ERROR = "consumer_error"
    """A request to AWS failed, or the library did. The message returns, or is copied if it would expire."""


TAG_CODES = (ReasonCode.TAG_REFUSED, ReasonCode.TAGS_FULL)
"""Reasons of committed rows whose version has no tag yet."""


class Reason(NamedTuple):
    """Why an attempt failed, or why a message was refused."""

    code: ReasonCode
    text: str
    """For people. It quotes no content of the object unless the pipeline's `reasons` is FULL."""

    def __str__(self) -> str:
        return self.text


_CODES: tuple[tuple[type[BaseException], ReasonCode], ...] = (
    (SchemaDrift, ReasonCode.SCHEMA_DRIFT),
    (TooManyRejects, ReasonCode.TOO_MANY_REJECTS),
    (EndedByPerson, ReasonCode.ENDED),
    (RefusedByTag, ReasonCode.TAG_REFUSES),
    (Unprocessable, ReasonCode.UNPROCESSABLE),
    (GroupHeld, ReasonCode.GROUP_HELD),
    (NotYet, ReasonCode.NOT_YET),
    (ObjectGone, ReasonCode.OBJECT_GONE),
    (Fenced, ReasonCode.LEASE_LOST),
    (LateWriteFound, ReasonCode.LATE_WRITE),
    (ObjectReadError, ReasonCode.READ_ERROR),
    (NoSpaceError, ReasonCode.NO_SPACE),
    (InvalidTransactionError, ReasonCode.INVALID_TRANSACTION),
    (InvalidOutputError, ReasonCode.INVALID_OUTPUT),
    (TransactionRefused, ReasonCode.TRANSACTION_REFUSED),
    (NotBegun, ReasonCode.PROCESSOR_THROTTLED),
    (WrongReturnError, ReasonCode.WRONG_RETURN),
    (CopyRefused, ReasonCode.DEAD_LETTER_REFUSED),
    (TagsFull, ReasonCode.TAGS_FULL),
    (TagRefused, ReasonCode.TAG_REFUSED),
    (RemoteTimeoutError, ReasonCode.PROCESSOR_TIMEOUT),
    (ExecutionStopped, ReasonCode.OVERTAKEN),
)


def code_of(error: BaseException, otherwise: ReasonCode) -> ReasonCode:
    """The code of this library's own error, or `otherwise` for any other error."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), otherwise)


def matches_reason(wanted: str, code: str | None, text: str) -> bool:
    """True if a stored reason is the wanted one.

    Args:
        wanted: a reason code, or a part of the text in any case.
        code: the stored code. None or empty: only the text is known.
        text: the stored text.

    """
    if code and (wanted == code or wanted in ReasonCode):
        return wanted == code
    return wanted.casefold() in text.casefold()
