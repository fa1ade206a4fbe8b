"""Write the commits of several messages in one request."""

from intake_ledger.consumer.attempt import Attempts
from intake_ledger.consumer.batch import Batch
from intake_ledger.consumer.failures import Failures
from intake_ledger.consumer.services import Services
from intake_ledger.events import Message
from intake_ledger.ledger import BATCH_STATEMENTS
from intake_ledger.observability import OutcomeKind

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
        held = {one.claim.key: one for one in batch.held}
        batch.held.clear()
        alone = self._ledger.commit_together([(one.claim, one.commit.identity) for one in held.values()])
        for one in [held.pop(claim.key) for claim in alone]:
            try:
                outcome = self._attempts.commit(one.claim, one.commit, one.message, one.duration_ms)
            except Exception as error:  # noqa: BLE001 - its lease runs out, and the message comes again
                self._telemetry.log_error("a commit could not be written", one.message.id, error)
                batch.finish(one.message, self._failures.backoff(one.message.receives))
                continue
            batch.finish(one.message, outcome.retry_after)
        for one in held.values():
            self._telemetry.ended(one.claim, OutcomeKind.COMMITTED, duration_ms=one.duration_ms)
