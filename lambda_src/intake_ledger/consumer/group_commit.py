"""Write the commits of several messages in one request."""

from intake_ledger.consumer.attempt import Attempts
from intake_ledger.consumer.batch import Batch
from intake_ledger.consumer.failures import Failures
from intake_ledger.consumer.services import Services
from intake_ledger.events import Message
from intake_ledger.ledger import BATCH_STATEMENTS
from intake_ledger.protocol import OutcomeKind

HOLD_MS = 1_000
"""A commit that was held for this time is written before another processor starts."""


class GroupCommit:
    """Writes the commits that a batch holds."""

    def __init__(self, services: Services, attempts: Attempts, failures: Failures) -> None:
        self._ledger = services.ledger
        self._telemetry = services.telemetry
        self._clock = services.clock
        self._attempts = attempts
        self._failures = failures

    def may_wait(self, message: Message, batch: Batch) -> bool:
        """True if the processor of this message may start before the held commits are written.

        A message that was received before may have ended its worker. Slow processors gain nothing by held commits.
        """
        young = self._clock() - batch.held[0].since < HOLD_MS
        return young and len(batch.held) < BATCH_STATEMENTS and batch.is_claimed(message)

    def write(self, batch: Batch) -> None:
        """Write the held commits. Their messages are finished only then."""
        commits = {held.claim.key: held for held in batch.held}
        batch.held.clear()
        refused = self._ledger.commit_together([(held.claim, held.commit.identity) for held in commits.values()])
        for held in [commits.pop(claim.key) for claim in refused]:
            message = held.message
            try:
                outcome = self._attempts.commit(held.claim, held.commit, message, held.duration_ms)
            except Exception as error:  # noqa: BLE001 - its lease runs out, and the message comes again
                self._telemetry.log_error("a commit could not be written", message.id, error)
                batch.finish(message, self._failures.backoff(message.receives))
                continue
            batch.finish(message, outcome.retry_after)
        for held in commits.values():
            self._telemetry.ended(held.claim, OutcomeKind.COMMITTED, duration_ms=held.duration_ms)
