"""One report of a change in a bucket, in the form that all parts of the runtime use."""

from dataclasses import dataclass
from enum import StrEnum

from intake_ledger.protocol.object_state import State

RESTORED = "ObjectRestore:Completed"
"""S3's name for the event that an archived object was restored."""


class Origin(StrEnum):
    """Who sent the message."""

    S3 = "s3"
    EVENTBRIDGE = "eventbridge"
    AUDIT = "audit"
    REPROCESS = "reprocess"
    LATE = "late"
    """A worker that was overtaken: it may have written over what came after it."""


@dataclass(frozen=True, slots=True)
class Change:
    """One report that an object was created or removed."""

    bucket: str
    key: str
    origin: Origin
    event_name: str
    body: str
    """This one report as a message body of its own, for the dead-letter queue: it can be sent again as it is."""
    state: State | None = None
    """The state that the report names; None when it names none, so that it merely wakes."""
    reported_as_new: bool = False
    """Whether the sender reports this state as new, so that a key never seen may be claimed without asking S3 first."""
    reports_removal: bool = False
    """Whether S3 reports that the key, or one version of it, was removed."""
    sequencer: str | None = None
    """As S3 sent it, for operators. No decision uses it."""
    event_time: int | None = None
    """Epoch milliseconds; only ever used for a message's age."""
    reprocess_id: str | None = None
    """A ULID in canonical form: greater means asked for later."""
    rejected_fence: int | None = None
    """The mark on a copy from the dead-letter queue: the fence of the rejection that it belongs to."""

    @property
    def identity(self) -> str | None:
        """The identity of the state that the report names, if it names one."""
        return self.state.identity if self.state else None

    @property
    def is_event(self) -> bool:
        """Whether S3 reports this, directly or through EventBridge. The others are the pipeline's own messages."""
        return self.origin in (Origin.S3, Origin.EVENTBRIDGE)

    @property
    def restored(self) -> bool:
        """Whether this reports that an archived object can be read again."""
        return self.event_name == RESTORED

    @property
    def asked_for(self) -> bool:
        """Whether a person sent this: to reprocess, or by moving a copy back from the dead-letter queue."""
        return self.reprocess_id is not None or self.rejected_fence is not None
