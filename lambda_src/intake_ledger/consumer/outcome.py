"""The outcome of an attempt."""

from dataclasses import dataclass

from intake_ledger.processor import Commit
from intake_ledger.protocol import OutcomeKind, Reason


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of an attempt on a claim, and the time until its message is delivered again."""

    kind: OutcomeKind
    reason: Reason | None = None
    retry_after: float | None = None
    """Seconds until SQS delivers the message again. None: it is finished, or `judge_again` is true."""
    judge_again: bool = False
    """The claimed version vanished. Judge the change again, by the state that S3 shows now."""
    healthy: bool | None = None
    """True: the downstream works. False: it may be out. None: the attempt does not show it."""
    waited_too_long: bool = False
    """The change was rejected because something that it needs was missing for all of `max_wait`."""
    commit: Commit | None = None
    """A commit that is not written yet. It is written together with others."""
    duration_ms: int = 0
    """The time of the attempt, if its commit is not written yet."""
    late_write: bool = False
    """The row now records that this attempt may have written after its successor. Wake the key."""
