"""Write the telemetry with Powertools: structured log lines, and metrics in the embedded metric format."""

import sys
from collections import Counter
from collections.abc import Sequence
from threading import Lock
from typing import override

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import MetricUnit

from intake_ledger.ledger.ledger import Claim
from intake_ledger.observability.error_text import describe, stack_of
from intake_ledger.observability.log_lines import ChangeFormatter, ChangeLines
from intake_ledger.observability.telemetry import OLDEST_CLAIM_AGE, Telemetry
from intake_ledger.protocol.change import Change, Origin
from intake_ledger.protocol.errors import LibraryError
from intake_ledger.protocol.reasons import OutcomeKind, Reason, ReasonCode, code_of
from intake_ledger.protocol.row import Row, RowCounts, RowKey, Status
from intake_ledger.protocol.settings import Reasons
from intake_ledger.protocol.verdict import VERDICT_METRICS, Ruling, Verdict, content_differs

_VERDICT = "verdict"
_GOOD = frozenset({OutcomeKind.COMMITTED, OutcomeKind.STARTED})
_RECOVERS = (Origin.AUDIT, Origin.REPROCESS)
"""Origins of messages that recover work. No event reports them."""
_TAKES_OVER = frozenset({Verdict.ACCEPTED, Verdict.EXHAUSTED, Verdict.SETTLED})
"""Verdicts after which the row that was judged is replaced."""


class PowertoolsTelemetry(Telemetry):
    """Writes the consumer's log lines and metrics.

    Each verdict is in one line. The line of an ordinary claim is the line of its end.

    `reasons` says whether log lines may have tracebacks with the messages of exceptions.
    """

    _oldest_wait = "OldestWait"
    """The metric of the age of each wait that an attempt looked at."""

    def __init__(self, reasons: Reasons = Reasons.TYPES) -> None:
        self._reasons = reasons
        formatter = ChangeFormatter(frozenset({_VERDICT, *(outcome.lower() for outcome in _GOOD)}))
        self._logger = Logger(logger_formatter=formatter)
        self._verdicts = ChangeLines(self._logger, PowertoolsTelemetry.decided)
        self._ends = ChangeLines(self._logger, PowertoolsTelemetry.ended)
        self._metrics = Metrics()
        self._counts: Counter[str] = Counter()
        """The counts of this invocation. Powertools gets each name once, because a call for each record takes time."""
        self._times: list[tuple[str, int]] = []
        """Names of metrics, and milliseconds."""
        self._oldest_claim_ms: int | None = None
        """The greatest age of a claim without an outcome that this invocation has met, in milliseconds."""
        self._claims: dict[tuple[RowKey, int], tuple[Claim, int]] = {}
        """Ordinary claims of this invocation that have not ended, and their times. The key has the claim's fence."""
        self._lock = Lock()

    @override
    def decided(self, change: Change, answer: Claim | Ruling, *, now: int) -> None:
        self._count(VERDICT_METRICS[answer.verdict])
        if answer.verdict is Verdict.FORGOTTEN:
            # The line of any other verdict names the key.
            self._logger.info(_VERDICT, extra={"verdict": answer.verdict, "why": answer.why})
            return
        if isinstance(answer, Ruling) and content_differs(change, answer):
            self._count("IdentityCollisions")
        if (age_ms := _duplicate_age_ms(change, answer, now)) is not None:
            self._time("DuplicateAge", age_ms)
        if (claim_age_ms := _claim_age_ms(answer, now)) is not None:
            with self._lock:
                self._oldest_claim_ms = max(claim_age_ms, self._oldest_claim_ms or 0)
        if isinstance(answer, Claim) and (change.origin in _RECOVERS or change.rejected_fence is not None):
            self._count("Recovering")
        if isinstance(answer, Claim) and _is_ordinary(answer):
            with self._lock:
                self._claims[answer.key, answer.row.fence] = answer, now
        else:
            self._log_verdict(change, answer, now, duplicate_age_ms=age_ms)
        if repeats := _repeats(answer):
            for name in repeats:
                self._count(name)
            # This attempt may end the worker, as the last attempt did. Its counts would be lost then.
            self._flush_metrics()

    @override
    def ended(self, claim: Claim, outcome: OutcomeKind, reason: Reason | None = None, *, duration_ms: int) -> None:
        self._count(outcome.value)
        # The processor gets the state that S3 shows, which may be another state than the message's.
        fields = {"version_id": claim.state.version_id, **_reason_fields(reason), "duration_ms": duration_ms}
        with self._lock:
            claimed = self._claims.pop((claim.key, claim.row.fence), None)
        if claimed is not None:
            fields |= _verdict_fields(claim.change, claim, claimed[1])
            if claim.change.state is not None and claim.change.identity != claim.state.identity:
                fields["message_version_id"] = claim.change.state.version_id
        if outcome is OutcomeKind.COMMITTED and claim.change.event_time is not None:
            # The clocks of S3 and of the worker may differ.
            lag_ms = max(0, claim.row.updated_at + duration_ms - claim.change.event_time)
            fields["commit_lag_ms"] = lag_ms
            self._time("CommitLag", lag_ms)
        if outcome is OutcomeKind.WAITING and (since := self._waiting_since(claim.row)) is not None:
            self._time(self._oldest_wait, max(0, claim.row.updated_at + duration_ms - since))
        fields = _change_fields(claim.change) | fields | _row_fields(claim.row)
        if outcome in _GOOD:
            self._ends.write(outcome.lower(), fields)
        else:
            self._logger.warning(outcome.lower(), extra=fields)

    @override
    def rejected_rows(self, claim: Claim, counts: RowCounts) -> None:
        self._count("RejectedRows", counts.rejected)
        fields = {"version_id": claim.state.version_id, "rejected": counts.rejected, "read": counts.read}
        self._logger.warning("rejected rows", extra=_change_fields(claim.change) | fields | _row_fields(claim.row))

    @override
    def late_write(self, claim: Claim) -> None:
        self._count("LateWrites")
        extra = _change_fields(claim.change) | {"version_id": claim.state.version_id} | _row_fields(claim.row)
        self._logger.warning("late write", extra=extra)

    @override
    def waited_too_long(self) -> None:
        self._count("WaitedTooLong")

    @override
    def waits_long(self, claim: Claim) -> None:
        self._count("LongWaits")

    @override
    def removed_unprocessed(self, change: Change, row: Row | None) -> None:
        self._count("RemovedUnprocessed")
        fields = {"reason": row.reason, "reason_code": row.reason_code} if row else {}
        self._logger.warning("removed unprocessed", extra=_change_fields(change) | fields | _row_fields(row))

    @override
    def exhausted(self, change: Change, row: Row) -> None:
        self._count(OutcomeKind.REJECTED.value)
        fields = {"reason": row.reason, "reason_code": row.reason_code}
        self._logger.warning("rejected", extra=_change_fields(change) | fields | _row_fields(row))

    @override
    def unparseable(self, reason: Reason, message_id: str) -> None:
        self._count("UnreadableMessages")
        self._logger.error("unparseable", extra={**_reason_fields(reason), "message_id": message_id})

    @override
    def filtered_out(self, change: Change) -> None:
        self._count("FilteredOut")
        self._logger.warning("filtered out", extra=_change_fields(change))

    @override
    def excluded(self, change: Change) -> None:
        self._count("Excluded")
        self._logger.info("excluded", extra=_change_fields(change))

    @override
    def ignored(self, why: str) -> None:
        self._logger.info("ignored", extra={"why": why})

    @override
    def withdrawn(self, change: Change | None, operation: str, message_id: str) -> None:
        fields = _change_fields(change) if change else {}
        self._logger.info("withdrawn", extra={**fields, "operation": operation, "message_id": message_id})

    @override
    def log_error(self, text: str, message_id: str, error: Exception) -> None:
        self._count("ConsumerErrors")
        if isinstance(error, LibraryError) and error.metric:
            self._count(error.metric)
        # A traceback has the messages of all causes, which may quote content.
        traceback = error if self._reasons is Reasons.FULL else None
        reason = Reason(code_of(error, ReasonCode.CONSUMER_ERROR), describe(error, self._reasons))
        fields = {"message_id": message_id, **_reason_fields(reason), "stack": stack_of(error)}
        self._logger.error(text, exc_info=traceback, extra=fields)

    @override
    def downstream_out(self, reason: Reason | None, *, pause_ms: int) -> None:
        self._logger.error("downstream out", extra={**_reason_fields(reason), "pause_ms": pause_ms})

    @override
    def downstream_back(self) -> None:
        self._logger.info("downstream back")

    @override
    def held_back(self) -> None:
        self._count("BreakerOpen")

    @override
    def waits_as_copy(self, age_ms: int) -> None:
        self._count("Copies")
        self._time("OldestCopy", age_ms)

    @override
    def process_ends(self, keys: Sequence[str]) -> None:
        fields = {
            "keys": keys,
            "reason_code": ReasonCode.PROCESSOR_TIMEOUT.value,
            "reason": "a thread that is frozen with the environment would wake up in a later invocation",
        }
        self._logger.error("the process ends", extra=fields)

    @override
    def flush(self) -> None:
        with self._lock:
            claims = list(self._claims.values())
            self._claims.clear()
        # They were released, or an error of AWS kept their end from being recorded.
        for claim, now in claims:
            self._log_verdict(claim.change, claim, now)
        self._flush_metrics()

    def _waiting_since(self, row: Row) -> int | None:
        """The time since when the work waits, in epoch milliseconds. None: this look is the first."""
        return row.waiting_since

    def _log_verdict(self, change: Change, answer: Claim | Ruling, now: int, **more: int | None) -> None:
        fields = _change_fields(change) | _verdict_fields(change, answer, now) | more
        if (lapsed := _lapsed(answer)) is not None:
            # The worker that died has written no line about its claim, if the claim was an ordinary one.
            names = ("fence", "version_id", "updated_at")
            fields["lapsed"] = {"attempt": lapsed.attempts, **{name: getattr(lapsed, name) for name in names}}
        self._verdicts.write(_VERDICT, fields | _row_fields(answer.row))

    def _flush_metrics(self) -> None:
        with self._lock:
            for name, milliseconds in self._times:
                self._metrics.add_metric(name, unit=MetricUnit.Milliseconds, value=milliseconds)
            if self._oldest_claim_ms is not None:
                self._metrics.add_metric(OLDEST_CLAIM_AGE, unit=MetricUnit.Milliseconds, value=self._oldest_claim_ms)
            # At the end: Powertools writes when a metric has 100 values, and warns of a write without metrics.
            for name, count in self._counts.items():
                self._metrics.add_metric(name, unit=MetricUnit.Count, value=count)
            if self._counts:
                self._metrics.flush_metrics()
                sys.stdout.flush()
            self._counts.clear()
            self._times.clear()
            self._oldest_claim_ms = None

    def _count(self, name: str, number: int = 1) -> None:
        with self._lock:
            self._counts[name] += number

    def _time(self, name: str, milliseconds: int) -> None:
        with self._lock:
            self._times.append((name, milliseconds))


def _is_ordinary(claim: Claim) -> bool:
    """True if nothing about the key was open, and no person asked for the claim."""
    return (claim.seen is None or claim.seen.settled) and not claim.change.asked_for


def _repeats(answer: Claim | Ruling) -> list[str]:
    """Metrics of an attempt after the first, and of a lease that ended without an outcome."""
    retries = ["Retries"] if isinstance(answer, Claim) and answer.row.attempts > 1 else []
    return retries + (["LapsedLeases"] if _lapsed(answer) is not None else [])


def _lapsed(answer: Claim | Ruling) -> Row | None:
    """The row of a worker that died, if its lease ended without an outcome and this answer replaces it."""
    seen = answer.seen if isinstance(answer, Claim) else answer.row
    if answer.verdict not in _TAKES_OVER or seen is None or seen.status is not Status.PROCESSING:
        return None
    # The release of a claim writes such a row without its lease, so that the row counts once.
    return seen if seen.lease_until and not seen.start_refused else None


def _claim_age_ms(answer: Claim | Ruling, now: int) -> int | None:
    """Milliseconds since the claim that this message found without an outcome. None: it found none."""
    seen = answer.seen if isinstance(answer, Claim) else answer.row
    if seen is None or seen.status is not Status.PROCESSING:
        return None
    # The clocks of two workers may differ.
    return max(0, now - seen.updated_at)


def _duplicate_age_ms(change: Change, answer: Claim | Ruling, now: int) -> int | None:
    """Milliseconds from the commit of a state to a further message about it. None if the row has no such time.

    A row with a reason was changed after its commit, by an attempt whose version no longer existed. A repeated request
    to reprocess is not a copy of an event.
    """
    row = answer.row
    if answer.verdict is not Verdict.DUPLICATE or row is None or row.reason is not None or change.reprocess_id:
        return None
    # The clocks of two workers may differ.
    return max(0, now - row.updated_at)


def _reason_fields(reason: Reason | None) -> dict[str, object]:
    return {"reason": reason.text if reason else None, "reason_code": reason.code.value if reason else None}


def _verdict_fields(change: Change, answer: Claim | Ruling, now: int) -> dict[str, object]:
    event_age_ms = None if change.event_time is None else now - change.event_time
    return {"verdict": answer.verdict, "why": answer.why, "event_age_ms": event_age_ms}


def _change_fields(change: Change) -> dict[str, object]:
    return {
        "bucket": change.bucket,
        "key": change.key,
        "version_id": change.state.version_id if change.state else None,
        "sequencer": change.sequencer,
        "event_name": change.event_name,
        "event_id": change.event_id,
    }


def _row_fields(row: Row | None) -> dict[str, object]:
    return {"attempt": row.attempts, "redrive_count": row.redrive_count, "fence": row.fence} if row else {}
