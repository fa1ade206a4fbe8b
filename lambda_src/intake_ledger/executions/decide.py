"""What to do about a claim whose execution may run: a pure function of the answer about it, the row and the time.

The name of an execution is a function of the row, so that a repeated start is the same.

DescribeExecution or GetDurableExecution decides. The lease only says when a missing execution may be started again,
and an event of Step Functions only wakes the consumer.
"""

import hashlib
import re
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from intake_ledger.protocol.row import Row, RowKey, Status

MIN_POLL_MS = 30_000
_MAX_POLL_MS = 11 * 3_600_000
"""SQS hides a message for twelve hours at most."""
_DECIDED = ("SUCCEEDED", "FAILED")
RUNNING = "RUNNING"
QUEUED = "QUEUED"
"""The status of an execution that is not found, and whose start was accepted and may wait."""
ABORTED = "ABORTED"
STOPPED = (ABORTED, "TIMED_OUT")
"""An execution that was stopped may have tasks that still run."""
OVERTAKEN = "IntakeLedger.Overtaken"
"""The error of an execution that the consumer has stopped, because a newer state of its key came."""
_GROWTH = 1 / 16
"""A poll waits for this share of the execution's age, so that polls do not use up the queue's maxReceiveCount."""
_NAME = re.compile(r"[0-9a-f]{40}-\d{1,39}")
"""Step Functions takes 80 characters. The local AWS takes any name, so names are checked here."""


class Action(StrEnum):
    """The next step."""

    WAIT = "wait"
    """Return the message until the time of the decision."""
    EXTEND = "its execution runs"
    """It runs. Extend the lease until the next poll."""
    RESUME = "its execution was redriven and runs"
    """The failed execution runs again, because a person has redriven it. Take its row back."""
    START = "its execution was not started"
    """The worker died before it could start the execution. Start the same one again, with the same fence."""
    FINISH = "its execution has ended"
    """It has ended. Record its outcome."""
    CLAIM = "its execution has ended before"
    """Its outcome is recorded, or it never ran. Judge the change by S3's state."""


@dataclass(frozen=True, slots=True)
class Execution:
    """The answer of DescribeExecution, or of GetDurableExecution in the same words."""

    name: str
    status: str
    stopped_at: int | None = None
    """Epoch milliseconds. None while it runs."""
    output: str | None = None
    error: str | None = None
    cause: str | None = None
    kept: str | None = None
    """The text for the row to keep, so that the execution is found again."""

    @property
    def has_ended(self) -> bool:
        """False also for PENDING_REDRIVE, and for any status that a later Step Functions may have."""
        return self.status in (*_DECIDED, *STOPPED)


@dataclass(frozen=True, slots=True)
class Decision:
    """The next step, and for WAIT the time in epoch milliseconds at which to ask again."""

    action: Action
    until: int = 0


def execution_name(key: RowKey, fence: int) -> str:
    """The name of the only execution of this fence.

    Raises:
        ValueError: The fence is not a positive number.

    """
    name = f"{hashlib.sha256(f'{key.pk}\n{key.sk}'.encode()).hexdigest()[:40]}-{fence}"
    if not _NAME.fullmatch(name):
        raise ValueError(f"{fence} is not the fence of an execution")
    return name


def decide(row: Row, execution: Execution | None, *, now: int, longest_task_ms: int) -> Decision:
    """The next step for a row that is PROCESSING or FAILED.

    Args:
        row: the row, as it was read.
        execution: the execution of its fence. None: it does not exist.
        now: epoch milliseconds.
        longest_task_ms: the longest time for which a task may outlive its execution.

    """
    failed = row.status is Status.FAILED
    if execution is None or (failed and execution.status == QUEUED):
        if failed:
            return Decision(Action.CLAIM)
        return Decision(Action.WAIT, row.lease_until or now) if row.is_live(now) else Decision(Action.START)
    if execution.status in _DECIDED:
        return Decision(Action.CLAIM if failed else Action.FINISH)
    if execution.status in STOPPED:
        # A task of it may still write. The next claim must not begin before.
        rest = (now if execution.stopped_at is None else execution.stopped_at) + longest_task_ms
        if now < rest:
            return Decision(Action.WAIT, rest)
        return Decision(Action.CLAIM if failed else Action.FINISH)
    # RUNNING, PENDING_REDRIVE, and any status that a later Step Functions may have.
    return Decision(Action.RESUME if failed else Action.EXTEND)


def poll_ms(age_ms: int, limit_ms: int) -> int:
    """Milliseconds until the next look at a running execution, if no event wakes the consumer before.

    Args:
        age_ms: the time since its claim.
        limit_ms: the limit of an execution. One look comes at its end.

    """
    wait = min(max(MIN_POLL_MS, int(age_ms * _GROWTH)), _MAX_POLL_MS)
    left = limit_ms - age_ms
    return max(MIN_POLL_MS, min(wait, left)) if left > 0 else wait


def epoch_ms(moment: datetime | None) -> int | None:
    """A time of boto3 in epoch milliseconds."""
    return None if moment is None else int(moment.timestamp() * 1000)
