"""A key in S3: its states, and the reports of their changes in the form that all parts of the runtime use."""

import hashlib
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

RESTORED = "ObjectRestore:Completed"
"""S3's name for the event that an archived object was restored."""
TAGGED = "ObjectTagging:Put"
"""S3's name for the event that a version has new tags."""
EXPIRED = "LifecycleExpiration:"
"""The beginning of S3's names for the events of lifecycle rules."""
_NO_VERSION = frozenset({None, "", "null"})
"""The ways in which S3 says that an object has no version: absent, empty and `null`."""
_MARKER_ENDS = ("/", "_$folder$")
"""The ends of the keys of directory markers, which are empty objects for folders. The console of S3 and s3a write
`folder/`, EMR's former file system `folder_$folder$`."""


class StateKind(StrEnum):
    """The kinds of states."""

    OBJECT = "object"
    MARKER = "marker"
    """The newest version is a delete marker."""
    ABSENT = "absent"
    """There is nothing: never uploaded, or everything permanently deleted."""
    DELETED = "deleted"
    """One version was permanently deleted. Only `Ordering.EVERY_VERSION` knows this state, which never changes again.
    """


def real_version(version_id: str | None) -> str | None:
    """The version id. None for each way in which S3 says that there is none."""
    return None if version_id in _NO_VERSION else version_id


def bare_etag(etag: str | None) -> str | None:
    """The ETag without the quotes of HTTP. None if there is none."""
    return (etag or "").strip('"') or None


@dataclass(frozen=True, slots=True)
class State:
    """One state of one key. Two states are the same if their `identity` is.

    S3 spells "no version" in three ways, and quotes ETags. Both become the same in `__post_init__`.
    """

    kind: StateKind
    version_id: str | None = None
    etag: str | None = None
    size: int | None = None
    created_at: int | None = None
    """S3's Last-Modified in epoch milliseconds, a multiple of 1,000. For a multipart object it is the *start* of its
    upload."""
    identity: str = field(init=False, compare=False, repr=False)
    """The state's name in the ledger: `v#<version id>`, `e#<etag>` without versions, `d#<version id>`, `absent`."""
    removed: bool = field(init=False, compare=False, repr=False)
    """True if S3 answers a read of the key with "not found"."""

    def __post_init__(self) -> None:
        # `frozen` forbids the assignment.
        if self.version_id in _NO_VERSION:
            object.__setattr__(self, "version_id", None)
        if self.etag is not None:
            object.__setattr__(self, "etag", self.etag.strip('"') or None)
        object.__setattr__(self, "identity", identity_of(self.kind, self.version_id, self.etag))
        object.__setattr__(self, "removed", self.kind is not StateKind.OBJECT)


def identity_of(kind: StateKind, version_id: str | None, etag: str | None) -> str:
    """The identity of a state; see `State.identity`."""
    if kind is StateKind.DELETED:
        return f"d#{version_id}"
    if version_id is not None and kind is not StateKind.ABSENT:
        return f"v#{version_id}"
    # The delete marker of a bucket whose versioning is suspended has no id. It cannot be told from an absent object.
    return f"e#{etag}" if kind is StateKind.OBJECT else "absent"


ABSENT = State(StateKind.ABSENT)


def requested_state(kind: object, version_id: str | None, etag: str | None, size: int | None) -> State | None:
    """The state that a request or an input names; see docs/processor.md. None: it names no state of an object."""
    if kind == "created" and (version_id or etag):
        return State(StateKind.OBJECT, version_id, etag, size)
    if kind == "removed":
        return State(StateKind.MARKER if version_id else StateKind.ABSENT, version_id)
    if kind == "deleted" and version_id:
        return State(StateKind.DELETED, version_id)
    return None


class Skipped(StrEnum):
    """Why a state without a row is skipped. The names are those of the audit's report."""

    DIRECTORY_MARKERS = "directoryMarkers"
    EXCLUDED = "excluded"


def may_be_directory_marker(key: str) -> bool:
    """True if the key is one of a directory marker. An object with such a key may have content, too.

    Consumer, audit, sets and CLI use this and the next predicates, so that none of them resubmits what another skips.
    """
    return key.endswith(_MARKER_ENDS)


def is_directory_marker(key: str, size: int | None) -> bool:
    """True if an object of this size is a directory marker. None: its size is not known."""
    return size == 0 and may_be_directory_marker(key)


def is_skipped_marker(key: str, state: State, *, every_version: bool) -> bool:
    """True if a pipeline without `directory_markers` skips this state, unless it has a row.

    In LATEST a key without a row was never processed, so its removal is skipped too. In EVERY_VERSION each removal
    has another row than the versions of the key.
    """
    if state.kind is StateKind.MARKER:
        return not every_version and may_be_directory_marker(key)
    return state.kind is StateKind.OBJECT and is_directory_marker(key, state.size)


class Origin(StrEnum):
    """The sender of a message."""

    S3 = "s3"
    EVENTBRIDGE = "eventbridge"
    CLOUDTRAIL = "cloudtrail"
    """CloudTrail, which reports a call of S3's API and names no state that can be claimed."""
    AUDIT = "audit"
    REPROCESS = "reprocess"
    LATE = "late"
    """An overtaken worker. It may have written over the result of its successor."""
    PART = "part"
    """A pipeline that finished a change of an object, which may be a part of this set of files."""
    TAG = "tag"
    """S3, directly or through EventBridge, which reports that a version has new tags. It wakes work that waits for
    one."""
    GROUP = "group"
    """A worker whose attempt on another key of the group has ended. The next key of the group may be free to go on."""
    EXECUTION = "execution"
    """Step Functions. An execution that processed a change has ended."""


class EndedExecution(NamedTuple):
    """The execution that an event of Step Functions reports. No decision uses its status."""

    name: str
    fence: int
    redriven: bool
    """True unless the event says that it was never redriven. Its effect may have come after a later claim."""


@dataclass(frozen=True, slots=True)
class Change:
    """One report that an object was created or removed."""

    bucket: str
    key: str
    origin: Origin
    event_name: str
    body: str
    """A message body with this report only. A copy in the dead-letter queue has it, and it can be sent again."""
    state: State | None = None
    """The state in the report. None: the report has none, and the consumer only looks at S3."""
    reported_as_new: bool = False
    """True if the sender reports this state as new. Then a key without a row may be claimed without a look at S3."""
    reports_removal: bool = False
    """True if S3 reports that the key, or one version of it, was removed."""
    sequencer: str | None = None
    """S3's sequencer, for operators. No decision uses it."""
    event_id: str | None = field(default=None, compare=False)
    """The name of S3's event, for operators: the ID of the request in a notification, or of EventBridge's event. Copies
    of one event have the same. None for other messages: the identity of a keyed message is its name."""
    event_time: int | None = None
    """Epoch milliseconds. It is used for the age of the message only."""
    reprocess_id: str | None = None
    """A ULID in canonical form. A later request has a greater one."""
    rejected_fence: int | None = None
    """On a copy from the dead-letter queue: the fence of its rejection."""
    bare_copy_id: str | None = None
    """On such a copy without room for its fence: the ID of its message."""
    parts: tuple[str, ...] = ()
    """On a wake of a set: the keys of the parts whose messages were finished."""
    waiter: str | None = None
    """On a wake of a set: its message, as a row names it; see `Row.waiter`."""
    waiter_ids: tuple[str, ...] = ()
    """On a wake of a set: the IDs by which a row may name its message."""
    execution: "EndedExecution | None" = None
    """The execution that has ended, if Step Functions reports this."""
    must_equal: bool = False
    """True if the content of a copy must be that of the state that was processed; see `content_differs`."""
    letter_ms: int | None = None
    """The time for which its dead letter is kept, in milliseconds, if nothing else has its content. None: S3 has it."""

    @property
    def identity(self) -> str | None:
        """The identity of the state in the report. None: the report has no state."""
        return self.state.identity if self.state else None

    @property
    def is_event(self) -> bool:
        """True if S3 reports a change of the key, directly or through EventBridge. Other messages only wake it."""
        return self.origin in (Origin.S3, Origin.EVENTBRIDGE)

    def reports_upload_since(self, time: int) -> bool:
        """True if S3 reports that the object was uploaded at this time or later, in epoch milliseconds."""
        uploaded = self.is_event and not self.restored and self.state is not None and not self.state.removed
        return uploaded and self.event_time is not None and self.event_time >= time

    def shows_unprocessed(self, time: int) -> bool:
        """True if this shows that the object was not processed, for a key without a row.

        The row of an object that was processed after its event, or after its rejection, would still be there. `time` is
        the present time without the retention, in epoch milliseconds.
        """
        return self.rejected_fence is not None or self.reports_upload_since(time)

    @property
    def expired(self) -> bool:
        """True if this reports that a lifecycle rule removed the object or a version of it."""
        return self.event_name.startswith(EXPIRED)

    @property
    def restored(self) -> bool:
        """True if this reports that an archived object can be read again."""
        return self.event_name == RESTORED

    @property
    def asked_for(self) -> bool:
        """True if a person sent this: a reprocess request, or a copy from the dead-letter queue."""
        return self.reprocess_id is not None or self.rejected_fence is not None


def state_key(pipeline: str, bucket: str, key: str, identity: str, first_claimed_at: int) -> str:
    """The idempotency key of a state of an object or of a set. `first_claimed_at` is the row's, in epoch milliseconds.

    A state that returns is another change. Only retries keep that time.
    """
    name = "\n".join((pipeline, bucket, key, identity, str(first_claimed_at)))
    return hashlib.sha256(name.encode()).hexdigest()[:32]
