"""One structured log line and one metric per decision, by Powertools. No object content, no secrets."""

import sys
from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from threading import Lock

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import MetricUnit

from intake_ledger.ledger.claims import Answer, Claim
from intake_ledger.observability.error_text import describe, stack_of
from intake_ledger.protocol.change import Change
from intake_ledger.protocol.reasons import Reason, ReasonCode, code_of
from intake_ledger.protocol.row import Row, Status
from intake_ledger.protocol.settings import Reasons
from intake_ledger.protocol.verdict import Verdict


class OutcomeKind(StrEnum):
    """The ways in which an attempt on a claim ends. The values are metric names."""

    COMMITTED = "Committed"
    FAILED = "Failed"
    REJECTED = "Rejected"
    FENCED = "Fenced"
    GONE = "VersionGone"
    WAITING = "Waiting"
    """Something is missing that the processor needs: it said `NotYet`."""


_METRICS = {
    Verdict.DUPLICATE: "Duplicates",
    # `Rejected` counts changes that are rejected now. An alarm watches it, so a duplicate of one must not count there.
    Verdict.REJECTED: "AlreadyRejected",
    Verdict.SETTLED: "RemovalsRecorded",
    Verdict.LATER_FORMAT: "LaterFormat",
}
"""The metric of a verdict, where it is not the verdict's own name."""


_TAKES_OVER = frozenset({Verdict.ACCEPTED, Verdict.EXHAUSTED, Verdict.SETTLED})
"""Verdicts after which the row that was judged is replaced."""


class Telemetry:
    """Writes the consumer's log lines and metrics."""

    def __init__(self, reasons: Reasons = Reasons.TYPES) -> None:
        self._reasons = reasons
        self._logger = Logger()
        self._metrics = Metrics()
        self._counts: Counter[str] = Counter()
        """Of this invocation. Powertools is told of each name once: a call for each record is not free."""
        self._lock = Lock()

    def decided(self, change: Change, answer: Answer, *, now: int) -> None:
        """Report the ledger's verdict on a change."""
        row = answer.claim.row if answer.claim else answer.row
        self._count(_METRICS.get(answer.verdict) or answer.verdict.title())
        event_age_ms = None if change.event_time is None else now - change.event_time
        said = {"verdict": answer.verdict, "reason": answer.why, "event_age_ms": event_age_ms}
        self._logger.info("verdict", extra=_names(change) | said | _standing(row))
        if repeats := _repeats(answer):
            for name in repeats:
                self._count(name)
            # The worker may die in this attempt, as the last one did. Nothing that it counted would be written then.
            self.flush()

    def ended(self, claim: Claim, outcome: OutcomeKind, reason: Reason | None = None, *, duration_ms: int) -> None:
        """Report the end of an attempt on a claim."""
        self._count(outcome.value)
        # What was processed is the state that S3 showed, which need not be the message's.
        fields = {"version_id": claim.state.version_id, **_reason_fields(reason), "duration_ms": duration_ms}
        extra = _names(claim.change) | fields | _standing(claim.row)
        write = self._logger.info if outcome is OutcomeKind.COMMITTED else self._logger.warning
        write(outcome.lower(), extra=extra)

    def late_write(self, claim: Claim) -> None:
        """A worker that was overtaken may have written after its successor: the current state is processed again."""
        self._count("LateWrites")
        extra = _names(claim.change) | {"version_id": claim.state.version_id} | _standing(claim.row)
        self._logger.warning("late write", extra=extra)

    def waited_too_long(self) -> None:
        """A change was rejected since something that its processor needed was missing for too long."""
        self._count("WaitedTooLong")

    def exhausted(self, change: Change, row: Row) -> None:
        """Attempts that never came back were rejected in their place."""
        self._count(OutcomeKind.REJECTED.value)
        fields = {"reason": row.reason, "reason_code": row.reason_code}
        self._logger.warning("rejected", extra=_names(change) | fields | _standing(row))

    def unparseable(self, reason: Reason, message_id: str) -> None:
        """Report a message that cannot be handled. It is in the dead-letter queue."""
        self._count("UnreadableMessages")
        self._logger.error("unparseable", extra={**_reason_fields(reason), "message_id": message_id})

    def filtered_out(self, change: Change) -> None:
        """A message was about a key that the pipeline's filters leave out. Nothing was done."""
        self._count("FilteredOut")
        self._logger.warning("filtered out", extra=_names(change))

    def ignored(self, why: str) -> None:
        """Report a message without work, such as S3's test event."""
        self._logger.info("ignored", extra={"reason": why})

    def troubled(self, what: str, message_id: str, error: Exception) -> None:
        """Report an error of AWS or of this package. The message comes again."""
        self._count("ConsumerErrors")
        # A traceback has the messages of all causes, which may quote content.
        traceback = error if self._reasons is Reasons.FULL else None
        reason = Reason(code_of(error, ReasonCode.CONSUMER_ERROR), describe(error, self._reasons))
        fields = {"message_id": message_id, **_reason_fields(reason), "stack": stack_of(error)}
        self._logger.error(what, exc_info=traceback, extra=fields)

    def downstream_out(self, reason: Reason | None, *, pause_ms: int) -> None:
        """Report that the circuit breaker has opened."""
        self._logger.error("downstream out", extra={**_reason_fields(reason), "pause_ms": pause_ms})

    def downstream_back(self) -> None:
        """Report that the circuit breaker has closed."""
        self._logger.info("downstream back")

    def held_back(self) -> None:
        """Count a message that the circuit breaker holds back."""
        self._count("BreakerOpen")

    def process_ends(self, keys: Sequence[str]) -> None:
        """The processors of these keys overran in threads, which nothing but the end of the process can stop."""
        said = {
            "keys": keys,
            "reason": "a thread that is frozen with the environment would wake up in a later invocation",
        }
        self._logger.error("the process ends", extra=said)

    def flush(self) -> None:
        """Write the metrics of this invocation."""
        with self._lock:
            for name, count in self._counts.items():
                self._metrics.add_metric(name, unit=MetricUnit.Count, value=count)
            if self._counts:
                self._metrics.flush_metrics()
                sys.stdout.flush()
            self._counts.clear()

    def _count(self, name: str) -> None:
        with self._lock:
            self._counts[name] += 1


def _repeats(answer: Answer) -> list[str]:
    """The metrics of an attempt that is not the first, and of a lease that ended without an outcome."""
    found = []
    if answer.claim is not None and answer.claim.row.attempts > 1:
        found.append("Retries")
    seen = answer.row
    # A claim that is released puts such a row back without its lease, so that it counts once.
    if answer.verdict in _TAKES_OVER and seen is not None and seen.status is Status.PROCESSING and seen.lease_until:
        found.append("LapsedLeases")
    return found


def _reason_fields(reason: Reason | None) -> dict[str, object]:
    return {"reason": reason.text if reason else None, "reason_code": reason.code.value if reason else None}


def _names(change: Change) -> dict[str, object]:
    return {
        "bucket": change.bucket,
        "key": change.key,
        "version_id": change.state.version_id if change.state else None,
        "sequencer": change.sequencer,
        "event_name": change.event_name,
    }


def _standing(row: Row | None) -> dict[str, object]:
    return {"attempt": row.attempts, "redrive_count": row.redrive_count, "fence": row.fence} if row else {}
