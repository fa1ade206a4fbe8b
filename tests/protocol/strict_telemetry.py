"""A telemetry that refuses each report. Searches and simulations override the reports that they expect."""

from collections.abc import Sequence
from typing import NoReturn, override

from intake_ledger.ledger.ledger import Claim
from intake_ledger.observability.telemetry import Telemetry
from intake_ledger.protocol.change import Change
from intake_ledger.protocol.reasons import OutcomeKind, Reason
from intake_ledger.protocol.row import Row, RowCounts
from intake_ledger.protocol.verdict import Ruling


class StrictTelemetry(Telemetry):
    """Raises an AssertionError at each report."""

    @override
    def decided(self, change: Change, answer: Claim | Ruling, *, now: int) -> None:
        _refuse("decided")

    @override
    def ended(self, claim: Claim, outcome: OutcomeKind, reason: Reason | None = None, *, duration_ms: int) -> None:
        _refuse("ended")

    @override
    def rejected_rows(self, claim: Claim, counts: RowCounts) -> None:
        _refuse("rejected_rows")

    @override
    def late_write(self, claim: Claim) -> None:
        _refuse("late_write")

    @override
    def waited_too_long(self) -> None:
        _refuse("waited_too_long")

    @override
    def waits_long(self, claim: Claim) -> None: ...

    @override
    def removed_unprocessed(self, change: Change, row: Row | None) -> None:
        _refuse("removed_unprocessed")

    @override
    def exhausted(self, change: Change, row: Row) -> None:
        _refuse("exhausted")

    @override
    def unparseable(self, reason: Reason, message_id: str) -> None:
        _refuse(f"unparseable: {reason}")

    @override
    def filtered_out(self, change: Change) -> None:
        _refuse("filtered_out")

    @override
    def ignored(self, why: str) -> None:
        _refuse(f"ignored: {why}")

    @override
    def withdrawn(self, change: Change | None, operation: str, message_id: str) -> None: ...

    @override
    def log_error(self, text: str, message_id: str, error: Exception) -> None:
        raise AssertionError(f"unexpected report: {text}: {error!r}") from error

    @override
    def downstream_out(self, reason: Reason | None, *, pause_ms: int) -> None:
        _refuse("downstream_out")

    @override
    def downstream_back(self) -> None:
        _refuse("downstream_back")

    @override
    def waits_as_copy(self, age_ms: int) -> None: ...

    @override
    def held_back(self) -> None:
        _refuse("held_back")

    @override
    def process_ends(self, keys: Sequence[str]) -> None:
        _refuse("process_ends")

    @override
    def flush(self) -> None:
        """Nothing is written, so there is nothing to flush."""


def _refuse(report: str) -> NoReturn:
    raise AssertionError(f"unexpected report: {report}")
