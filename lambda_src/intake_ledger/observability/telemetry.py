"""The reports of the consumer: one log line and one metric per decision. Any library may write them."""

from collections.abc import Sequence

from intake_ledger.ledger.ledger import Claim
from intake_ledger.protocol.change import Change
from intake_ledger.protocol.reasons import OutcomeKind, Reason
from intake_ledger.protocol.row import Row, RowCounts
from intake_ledger.protocol.verdict import Ruling

OLDEST_CLAIM_AGE = "OldestClaimAge"
"""The metric that the consumer and each audit write."""


class Telemetry:
    """Log lines and metrics of the consumer. A library for them overrides what it writes.

    No method may quote the content of an object, or a secret.
    """

    def decided(self, change: Change, answer: Claim | Ruling, *, now: int) -> None:
        """Report the ledger's verdict on a change. `now` is in epoch milliseconds."""

    def ended(self, claim: Claim, outcome: OutcomeKind, reason: Reason | None = None, *, duration_ms: int) -> None:
        """Report the end of an attempt on a claim."""

    def rejected_rows(self, claim: Claim, counts: RowCounts) -> None:
        """Report the rejected rows of a file that was committed without them."""

    def late_write(self, claim: Claim) -> None:
        """Report that an overtaken worker may have written after its successor. The state is processed again."""

    def waited_too_long(self) -> None:
        """Count a change that was rejected because something was missing for all of `max_wait`."""

    def waits_long(self, claim: Claim) -> None:
        """Count a change whose wait becomes long before its next look."""

    def removed_unprocessed(self, change: Change, row: Row | None) -> None:
        """Report that an object was removed before it was processed.

        Args:
            change: the change whose message shows it.
            row: the row before the removal, with the reason of its last failure. None: there was none.

        """

    def exhausted(self, change: Change, row: Row) -> None:
        """Report that a change was rejected whose attempts all ended without an outcome."""

    def unparseable(self, reason: Reason, message_id: str) -> None:
        """Report a message that cannot be handled. It is in the dead-letter queue."""

    def filtered_out(self, change: Change) -> None:
        """Report a message about a key that the pipeline's filters leave out. Nothing was done."""

    def excluded(self, change: Change) -> None:
        """Report a message about a key that `exclude` leaves out. It has no row, and nothing was done."""

    def ignored(self, why: str) -> None:
        """Report a message without work, such as S3's test event."""

    def withdrawn(self, change: Change | None, operation: str, message_id: str) -> None:
        """Report a message of an operation that a person has stopped. Nothing was claimed.

        Args:
            change: the change, if the message reports nothing else.
            operation: the ID of the operation.
            message_id: of the message.

        """

    def log_error(self, text: str, message_id: str, error: Exception) -> None:
        """Report an error of AWS or of this package. The message is delivered again."""

    def downstream_out(self, reason: Reason | None, *, pause_ms: int) -> None:
        """Report that the circuit breaker has opened."""

    def downstream_back(self) -> None:
        """Report that the circuit breaker has closed."""

    def held_back(self) -> None:
        """Count a message that the circuit breaker holds back."""

    def waits_as_copy(self, age_ms: int) -> None:
        """Report the age of the oldest message of a batch that waits as a delayed copy."""

    def process_ends(self, keys: Sequence[str]) -> None:
        """Report that the process ends, because the processors of these keys still run after their limit."""

    def flush(self) -> None:
        """Write the metrics of this invocation."""
