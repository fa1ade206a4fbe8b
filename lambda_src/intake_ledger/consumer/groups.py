"""Claim the new messages of a batch in one request, and write the commits of several messages in another."""

from itertools import islice

from intake_ledger.consumer.attempt import Attempts
from intake_ledger.consumer.batch import RESERVE_SECONDS, Batch, ProcessingTime, ids_of
from intake_ledger.consumer.circuit_breaker import CircuitBreaker
from intake_ledger.consumer.failures import Failures
from intake_ledger.consumer.message_handler import misdirected
from intake_ledger.consumer.services import Services
from intake_ledger.events import Message
from intake_ledger.ledger import BATCH_STATEMENTS
from intake_ledger.protocol import Change, OutcomeKind

HOLD_MS = 1_000
"""A commit that was held for this time is written before another processor starts."""


class Groups:
    """Claims new messages together, and writes the commits that a batch holds."""

    def __init__(
        self,
        services: Services,
        attempts: Attempts,
        failures: Failures,
        breaker: CircuitBreaker,
        *,
        processing_time: ProcessingTime,
    ) -> None:
        self._settings = services.settings
        self._ledger = services.ledger
        self._telemetry = services.telemetry
        self._clock = services.clock
        self._attempts = attempts
        self._failures = failures
        self._breaker = breaker
        self._processing_time = processing_time

    def claim(self, batch: Batch) -> None:
        """Claim as many new messages in one request as can surely be started in time.

        A message that was received before is claimed alone, just before it is processed. A neighbour may have ended the
        worker then, and must not use up the attempts of the others.
        """
        fitting = self._processing_time.fits(batch.spare_ms(RESERVE_SECONDS)) * self._settings.threads
        if not fitting or self._breaker.is_open:
            return
        fresh = {
            message: change
            for message in batch.messages
            if message.receives == 1 and (change := message.only_change) is not None and self._takes(change)
        }
        changes = dict(islice(fresh.items(), fitting))
        if not changes:
            return
        try:
            answers = self._ledger.claim_together(list(changes.values()), lease_ms=batch.lease_ms)
        except Exception as error:  # noqa: BLE001 - then each is claimed alone
            self._telemetry.log_error("a group could not be claimed", ids_of(changes), error)
            return
        batch.answers = {
            message: answer for message, answer in zip(changes, answers, strict=True) if answer is not None
        }
        for message, answer in batch.answers.items():
            self._telemetry.decided(changes[message], answer, now=self._clock())

    def _takes(self, change: Change) -> bool:
        return self._settings.wants(change.key) and not misdirected(change, self._settings, self._clock())

    def may_wait(self, message: Message, batch: Batch) -> bool:
        """True if the processor of this message may start before the held commits are written.

        A message that was received before may have ended its worker. Slow processors gain nothing by held commits.
        """
        young = self._clock() - batch.held[0].since < HOLD_MS
        return young and len(batch.held) < BATCH_STATEMENTS and batch.is_claimed(message)

    def commit(self, batch: Batch) -> None:
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
