"""What a team may choose, beside the resources themselves."""

from dataclasses import dataclass, field
from enum import Enum

from aws_cdk import Duration
from aws_cdk import aws_s3 as s3

from cdk_intake_ledger.options.audit_scale import AuditScale
from intake_ledger.protocol.row import Ordering
from intake_ledger.protocol.settings import Delivery, Reasons

__all__ = ["AuditOptions", "Delivery", "Existing", "Ordering", "Reasons", "RetryOptions"]


@dataclass(frozen=True, kw_only=True)
class RetryOptions:
    """How often one state of one object is tried, and how long to wait in between.

    The count is the ledger's own: only tries that reached the processor use it up, not throttles, busy keys, or a batch
    that a neighbour brought down. The wait doubles with each try, with jitter.
    """

    max_attempts: int = 12
    """Tries before the message is copied to the dead-letter queue and the row becomes REJECTED, 2 to 50; 12 when
    omitted."""

    min_backoff: Duration = field(default_factory=lambda: Duration.seconds(15))
    """The wait after the first failure, 1 second to 12 hours (the longest that SQS can hide a message); 15 seconds when
    omitted."""

    max_backoff: Duration = field(default_factory=lambda: Duration.minutes(30))
    """The longest wait, up to 12 hours; 30 minutes when omitted: twelve attempts then outlast an hour of the
    downstream's absence."""

    max_wait: Duration | None = None
    """How long a change may wait whose processor raises `NotYet`. Then it is rejected. At least a minute, and at most
    three quarters of the queue's retention, which it is when omitted: 3 days of 4."""


class Existing(Enum):
    """What becomes of the objects that were in a bucket of the team's own before the pipeline."""

    BASELINE = "BASELINE"
    """They are left alone, and so is what becomes of them, until they are overwritten or removed."""
    BACKFILL = "BACKFILL"
    """Each is processed once, at the rate of `AuditOptions.backfill_rate`."""


@dataclass(frozen=True, kw_only=True)
class AuditOptions:
    """How the audit looks for objects that S3 never told anyone about."""

    interval: Duration = field(default_factory=lambda: Duration.days(1))
    """The time between two runs, in whole minutes, up to 365 days; one day when omitted."""

    settle_time: Duration = field(default_factory=lambda: Duration.hours(1))
    """How long a fresh object is left alone, since its event may still be on its way; one hour when omitted. It should
    exceed the longest backlog that the queue is expected to have."""

    look_back: Duration = field(default_factory=lambda: Duration.days(14))
    """How old an object may be and still be compared with the ledger; 14 days when omitted. Multipart uploads carry the
    date at which they began, hence more than the seven days after which an unfinished one is removed. The audit of a
    ledger that has kept the row of every object since its first day compares all objects, however old."""

    budget: int = 10_000
    """The number of messages that one run may send; what is left over waits for the next run; 10,000 when omitted."""

    resubmit_rate: int = 100
    """The number of messages that a run in parts sends in a second, 1 to 5,000; 100 when omitted. After a large loss,
    raise it with the `budget`."""

    scale: AuditScale = field(default_factory=AuditScale.one)
    """How a run goes through the bucket: in one function when omitted, which is right for some ten million objects;
    `AuditScale.shards(...)` and `AuditScale.inventory(...)` are for more."""

    existing: Existing = Existing.BASELINE
    """What becomes of objects that were in the bucket before the pipeline; they are left alone when omitted."""

    backfill_rate: int = 3
    """The number of messages that `Existing.BACKFILL` sends in a second, 1 to 5,000; 3 when omitted, which is 10,800 an
    hour. An audit in one function sends those of a quarter of an hour at once, less what waits in the queue, and reads
    the bucket each time. Give a rate that needs less than 0.9 of the ledger's retention."""

    report_bucket: s3.IBucket | None = None
    """Where the report of each run is written, as JSON with the run's day and id in its key. When omitted, reports are
    only logged and returned; with a `report_prefix` alone, they go into the intake bucket."""

    report_prefix: str | None = None
    """What the reports' keys begin with, before the pipeline's name; `audit/` when omitted. In the intake bucket it
    must be outside of what the filters take in, or each report would be processed."""
