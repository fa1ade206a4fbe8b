"""What a team may choose, beside the resources themselves."""

from dataclasses import dataclass, field
from enum import Enum

from aws_cdk import Duration


class Ordering(Enum):
    """Which changes of a key are processed."""

    LATEST = "LATEST"
    """The downstream shall reflect the newest state of each key: a version that was overtaken is not processed."""

    EVERY_VERSION = "EVERY_VERSION"
    """Each uploaded version is processed once, in any order; two versions of one key may run at the same time."""


@dataclass(frozen=True, kw_only=True)
class RetryOptions:
    """How often one state of one object is tried, and how long to wait in between.

    The count is the ledger's own: only tries that reached the processor use it up, not throttles, busy keys, or a batch
    that a neighbour brought down. The wait doubles with each try, with jitter.
    """

    max_attempts: int = 8
    """Tries before the message is copied to the dead-letter queue and the row becomes REJECTED; 2 to 50."""

    min_backoff: Duration = field(default_factory=lambda: Duration.seconds(15))
    """The wait after the first failure; 15 seconds when omitted."""

    max_backoff: Duration = field(default_factory=lambda: Duration.minutes(15))
    """The longest wait; 15 minutes when omitted."""


@dataclass(frozen=True, kw_only=True)
class AuditOptions:
    """How the audit looks for objects that S3 never told anyone about."""

    interval: Duration = field(default_factory=lambda: Duration.days(1))
    """The time between two runs, in whole minutes; one day when omitted."""

    settle_time: Duration = field(default_factory=lambda: Duration.hours(1))
    """How long a fresh object is left alone, since its event may still be on its way; one hour when omitted. It should
    exceed the longest backlog that the queue is expected to have."""

    look_back: Duration = field(default_factory=lambda: Duration.days(14))
    """How old an object may be and still be compared with the ledger; 14 days when omitted. Multipart uploads carry the
    date at which they began, hence more than the seven days after which an unfinished one is removed."""

    budget: int = 10_000
    """The number of messages that one run may send; what is left over waits for the next run; 10,000 when omitted."""
