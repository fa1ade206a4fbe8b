"""One report of a change in a bucket, in the form that all parts of the runtime use."""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from intake_ledger.protocol.object_state import State

RESTORED = "ObjectRestore:Completed"
"""S3's name for the event that an archived object was restored."""

EXPIRED = "LifecycleExpiration:"
"""The beginning of S3's names for the events of lifecycle rules."""


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
    wake_id: str | None = None
    """On a wake of a set: the ID of its message."""
    execution: "EndedExecution | None" = None
    """The execution that has ended, if Step Functions reports this."""

    @property
    def identity(self) -> str | None:
        """The identity of the state in the report. None: the report has no state."""
        return self.state.identity if self.state else None

    @property
    def is_event(self) -> bool:
        """True if S3 reports this, directly or through EventBridge. The pipeline sends the other messages."""
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
