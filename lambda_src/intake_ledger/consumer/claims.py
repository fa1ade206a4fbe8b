"""Claim changes: a group of new ones ahead, or one just before it is processed."""

from collections.abc import Iterable
from itertools import islice

from intake_ledger.consumer.batch import RESERVE_SECONDS, Batch
from intake_ledger.consumer.circuit_breaker import CircuitBreaker
from intake_ledger.consumer.failures import Failures
from intake_ledger.consumer.processing_time import ProcessingTime
from intake_ledger.consumer.services import Services
from intake_ledger.events import Message
from intake_ledger.ledger import Claim
from intake_ledger.protocol import Change, Fenced, Ordering, OutcomeKind, Reason, ReasonCode, Ruling, made_at


class Claims:
    """Claims changes for this execution environment, and releases claims whose processor was not started."""

    def __init__(
        self, services: Services, failures: Failures, breaker: CircuitBreaker, processing_time: ProcessingTime
    ) -> None:
        self._settings = services.settings
        self._ledger = services.ledger
        self._telemetry = services.telemetry
        self._clock = services.clock
        self._failures = failures
        self._breaker = breaker
        self._processing_time = processing_time

    def claim_together(self, batch: Batch) -> None:
        """Claim as many new messages in one request as can surely be started in time.

        A message that was received before is claimed alone, just before it is processed. A neighbour may have ended the
        worker then, and must not use up the attempts of the others.
        """
        if self._breaker.is_open:
            return
        fitting = self._processing_time.fits(batch.spare_ms(RESERVE_SECONDS)) * self._settings.concurrency
        if not fitting:
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

    def claim(self, change: Change, batch: Batch) -> Claim | Ruling:
        """Claim one change."""
        answer = self._ledger.claim(change, lease_ms=batch.lease_ms)
        self._telemetry.decided(change, answer, now=self._clock())
        return answer

    def release(self, answer: Claim | Ruling | None, retry_after: float) -> float:
        """Release the claim, if there is one: its processor was not started. Returns the seconds until the retry."""
        if not isinstance(answer, Claim):
            return retry_after
        try:
            self._ledger.release(answer)
        except Fenced as fenced:
            reason = Reason(ReasonCode.LEASE_LOST, str(fenced))
            self._telemetry.ended(answer, OutcomeKind.FENCED, reason, duration_ms=0)
            return self._failures.backoff(answer.row.attempts)
        return retry_after

    def misdirected(self, change: Change) -> Reason | None:
        """Why this pipeline cannot act on the change, or None if it can."""
        if change.bucket != self._settings.bucket:
            text = f"the event is about bucket {change.bucket!r}, this pipeline's is {self._settings.bucket!r}"
            return Reason(ReasonCode.WRONG_BUCKET, text)
        if change.state is None and not change.is_event and self._settings.ordering is Ordering.EVERY_VERSION:
            text = "the message names no version, which EVERY_VERSION requires: send it with a version ID"
            return Reason(ReasonCode.VERSION_MISSING, text)
        if change.reprocess_id is not None:
            ahead_ms = made_at(change.reprocess_id) - self._clock()
            if ahead_ms > self._settings.clock_skew_seconds * 1000:
                text = (
                    f"reprocess ID {change.reprocess_id} was made {ahead_ms // 1000} s in the future: each later "
                    "request for the key would count as served. Send the request again with a new ID"
                )
                return Reason(ReasonCode.REPROCESS_ID_AHEAD, text)
        return None

    def _takes(self, change: Change) -> bool:
        return self._settings.wants(change.key) and not self.misdirected(change)


def ids_of(messages: Iterable[Message]) -> str:
    """The ids of the messages, for one line of the log."""
    return ", ".join(message.id for message in messages)
