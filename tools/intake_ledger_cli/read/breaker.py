"""Judges the circuit breaker by the last success and the last failure that the ledger or CloudWatch show.

An environment of the consumer writes the breaker's record when its own breaker changes. After a deployment new
environments take the work, which had no open breaker and write nothing. So the record alone would stay open.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from intake_ledger_cli.aws.metrics import Metrics
from intake_ledger_cli.read.counting import Counts

_LATE_MS = 120_000
"""CloudWatch shows a metric up to two minutes later. A failure that is not older than that proves no outage."""
SILENT_MS = 90_000 + _LATE_MS
"""While a message is held back, one is tried at least once in one and a half of the longest pauses."""


class BreakerStatus(StrEnum):
    """The circuit breaker, as far as anything shows it."""

    CLOSED = "closed"
    OPEN = "open"
    UNKNOWN = "unknown"
    """It was open, and nothing was tried since."""


@dataclass(frozen=True, slots=True)
class BreakerState:
    """The circuit breaker. Times are in epoch milliseconds. The others are those of the worker that changed it last."""

    status: BreakerStatus
    opened_at: int | None = None
    next_probe_at: int | None = None
    """The time from which a message that was tried before is tried again. New uploads are tried at any time."""
    closed_at: int | None = None
    last_success_at: int | None = None
    last_failure_at: int | None = None
    last_seen_at: int | None = None
    """The time of the last sign of any attempt, or of a message that was held back."""
    reason: str = ""
    reason_code: str = ""


def judge(
    record: Mapping[str, Any], shared: Mapping[str, Any], metrics: Metrics | None, counts: Counts | None, now: int
) -> BreakerState:
    """Judge the breaker.

    Args:
        record: the item of the breaker.
        shared: the item with the last success that environments share.
        metrics: of the last hour. None if they may not be read.
        counts: of the rows that need review. None if they may not be read.
        now: epoch milliseconds.

    """
    opened_at = record.get("opened_at")
    success = _latest(shared.get("last_success_at"), record.get("closed_at"), metrics.committed_at if metrics else None)
    failure = _latest(metrics.failed_at if metrics else None, counts.failed.newest_at if counts else None)
    seen = _latest(success, failure, opened_at, metrics.held_back_at if metrics else None)
    if opened_at is None or (success is not None and success > opened_at and (failure or 0) - success <= _LATE_MS):
        status = BreakerStatus.CLOSED
    elif now - (seen or 0) > SILENT_MS:
        status = BreakerStatus.UNKNOWN
    else:
        status = BreakerStatus.OPEN
    return BreakerState(
        status,
        opened_at,
        record.get("next_probe_at"),
        record.get("closed_at"),
        success,
        _latest(failure, opened_at),
        seen,
        record.get("reason", ""),
        record.get("reason_code", ""),
    )


def _latest(*times: int | None) -> int | None:
    return max((int(one) for one in times if one is not None), default=None)
