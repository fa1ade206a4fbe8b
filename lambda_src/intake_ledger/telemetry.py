"""One structured log line and one metric per decision, by Powertools. No object content, no secrets."""

from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from threading import Lock

from intake_ledger.changes import Change
from intake_ledger.ledger import Answer, Claim
from intake_ledger.loglines import FrequentLine, LogLines
from intake_ledger.powertools import Logger, Metrics, MetricUnit
from intake_ledger.rows import Row
from intake_ledger.verdicts import Verdict


class Outcome(StrEnum):
    """What became of an accepted claim."""

    COMMITTED = "Committed"
    FAILED = "Failed"
    REJECTED = "Rejected"
    FENCED = "Fenced"
    GONE = "Gone"


class Telemetry:
    """The consumer's voice."""

    def __init__(self) -> None:
        self._logger = Logger(logger_formatter=LogLines())
        self._decided = FrequentLine(self._logger.name, self.decided.__code__)
        self._committed = FrequentLine(self._logger.name, self.ended.__code__)
        self._metrics = Metrics()
        self._counts: Counter[str] = Counter()
        """Of this invocation. Powertools is told of each name once: a call for each record is not free."""
        self._lock = Lock()

    def decided(self, change: Change, answer: Answer, *, now: int) -> None:
        """The ledger has answered a change."""
        row = answer.claim.row if answer.claim else answer.row
        # `Rejected` is an outcome: a duplicate of what was rejected long ago must not wake anybody.
        self._count("AlreadyRejected" if answer.verdict is Verdict.REJECTED else answer.verdict.title())
        lag_ms = None if change.event_time is None else now - change.event_time
        said = {"verdict": answer.verdict, "why": answer.why, "lag_ms": lag_ms}
        self._decided.write("verdict", _names(change) | said | _standing(row))

    def ended(self, claim: Claim, outcome: Outcome, why: str | None = None, *, took_ms: int) -> None:
        """An accepted claim has come to an end."""
        self._count(outcome.value)
        # What was processed is the state that S3 showed, which need not be the message's.
        said = {"version_id": claim.state.version_id, "why": why, "took_ms": took_ms}
        extra = _names(claim.change) | said | _standing(claim.row)
        if outcome is Outcome.COMMITTED:
            self._committed.write(outcome.lower(), extra)
        else:
            self._logger.warning(outcome.lower(), extra=extra)

    def exhausted(self, change: Change, row: Row) -> None:
        """Attempts that never came back were rejected in their place."""
        self._count(Outcome.REJECTED.value)
        self._logger.warning("rejected", extra=_names(change) | {"why": row.reason} | _standing(row))

    def unparseable(self, why: str, message_id: str) -> None:
        """A message was none of ours; it is in the dead-letter queue."""
        self._count("Unparseable")
        self._logger.error("unparseable", extra={"why": why, "message_id": message_id})

    def ignored(self, why: str) -> None:
        """A message asked for nothing."""
        self._logger.info("ignored", extra={"why": why})

    def troubled(self, what: str, message_id: str, error: Exception) -> None:
        """AWS did not answer, or there is a bug of ours. The message will come again."""
        self._count("Troubled")
        self._logger.error(what, exc_info=error, extra={"message_id": message_id})

    def downstream_out(self, why: str | None, *, pause_ms: int) -> None:
        """The breaker has opened: so many different keys have failed in a row."""
        self._logger.error("downstream out", extra={"why": why, "pause_ms": pause_ms})

    def downstream_back(self) -> None:
        """The breaker has closed."""
        self._logger.info("downstream back")

    def held_back(self) -> None:
        """The breaker had a message given back."""
        self._count("BreakerOpen")

    def process_ends(self, keys: Sequence[str]) -> None:
        """The processors of these keys overran in threads, which nothing but the end of the process can stop."""
        said = {"keys": keys, "why": "a thread that is frozen with the environment would wake up in a later invocation"}
        self._logger.error("the process ends", extra=said)

    def flush(self) -> None:
        """Write the metrics of this invocation."""
        with self._lock:
            for name, count in self._counts.items():
                self._metrics.add_metric(name, unit=MetricUnit.Count, value=count)
            if self._counts:
                self._metrics.flush_metrics()
            self._counts.clear()

    def _count(self, name: str) -> None:
        with self._lock:
            self._counts[name] += 1


def _names(change: Change) -> dict[str, object]:
    return {
        "bucket": change.bucket,
        "key": change.key,
        "version_id": change.state.version_id if change.state else None,
        "sequencer": change.sequencer,
        "event_name": change.event_name,
    }


def _standing(row: Row | None) -> dict[str, object]:
    return {"attempt": row.attempts, "round": row.rounds, "fence": row.fence} if row else {}
