"""Telemetry of a local pipeline: it counts verdicts and outcomes."""

import logging
from collections import Counter
from typing import Protocol, override

from botocore.exceptions import ClientError

from intake_ledger.aws.queues import NotDone
from intake_ledger.ledger.ledger import Claim
from intake_ledger.observability.telemetry import Telemetry
from intake_ledger.protocol.change import Change
from intake_ledger.protocol.errors import Fenced, LibraryError
from intake_ledger.protocol.reasons import OutcomeKind, Reason
from intake_ledger.protocol.row import Row
from intake_ledger.protocol.verdict import Ruling, content_differs

_LOG = logging.getLogger("intake_ledger")


class Counters(Protocol):
    """The counters of a local pipeline."""

    verdicts: Counter[str]
    outcomes: Counter[str]
    late_writes: int
    removed_unprocessed: int


class OutcomeCounter(Telemetry):
    """Counts verdicts and outcomes. Errors that only a defect can cause are raised."""

    def __init__(self, pipeline: Counters) -> None:
        self._pipeline = pipeline

    @override
    def decided(self, change: Change, answer: Claim | Ruling, *, now: int) -> None:
        self._pipeline.verdicts[answer.verdict.value] += 1
        if isinstance(answer, Ruling) and content_differs(change, answer):
            _LOG.warning("%s: a message with other content has the same identity, and takes no effect", change.key)

    @override
    def ended(self, claim: Claim, outcome: OutcomeKind, reason: Reason | None = None, *, duration_ms: int) -> None:
        self._pipeline.outcomes[outcome.value] += 1
        level = logging.WARNING if outcome in (OutcomeKind.FAILED, OutcomeKind.REJECTED) else logging.INFO
        _LOG.log(level, "%s: %s%s", claim.change.key, outcome.value, f", {reason.text}" if reason else "")

    @override
    def late_write(self, claim: Claim) -> None:
        self._pipeline.late_writes += 1

    @override
    def removed_unprocessed(self, change: Change, row: Row | None) -> None:
        self._pipeline.removed_unprocessed += 1

    @override
    def exhausted(self, change: Change, row: Row) -> None:
        self._pipeline.outcomes[OutcomeKind.REJECTED.value] += 1

    @override
    def log_error(self, text: str, message_id: str, error: Exception) -> None:
        # An overtaken worker can neither release its claim nor change the visibility of its message.
        is_counted = isinstance(error, LibraryError) and error.metric != ""
        if not is_counted and not isinstance(error, Fenced | ClientError | NotDone):
            raise error
