"""Record that a claim failed, waits or is rejected, and choose when its message is delivered again."""

import math
from dataclasses import dataclass, replace
from urllib.parse import quote

from intake_ledger.consumer.circuit_breaker import CircuitBreaker, least_wait_ms
from intake_ledger.consumer.services import Services
from intake_ledger.events import Message, Unparseable
from intake_ledger.ledger import Claim
from intake_ledger.observability import describe, text_of
from intake_ledger.processor import Commit
from intake_ledger.protocol import (
    MAX_RETRY_IN,
    REMOVED_UNPROCESSED,
    Change,
    Copied,
    CopyRefused,
    NotYet,
    OutcomeKind,
    Reason,
    ReasonCode,
    Row,
    Status,
    after_copy,
    wait_seconds,
)

_GROWTH = 1 / 16
"""A retry that counts no attempt waits for this share of the time since the first try. Only the queue's maxReceiveCount
ends such retries. In fourteen days, the longest that SQS keeps a message, there are fewer than 200 of them."""
_LAST_SECONDS = 60
"""The longest wait of a message that its source deletes soon."""
_RETRY_IN_SECONDS = 60
"""The wait after a `NotYet` that names none."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of an attempt on a claim, and the time until its message is delivered again."""

    kind: OutcomeKind
    reason: Reason | None = None
    retry_after: float | None = None
    """Seconds until SQS delivers the message again. None: it is finished, or `judge_again` is true."""
    judge_again: bool = False
    """The claimed version vanished. Judge the change again, by the state that S3 shows now."""
    healthy: bool | None = None
    """True: the downstream works. False: it may be out. None: the attempt does not show it."""
    waited_too_long: bool = False
    """The change was rejected because something that it needs was missing for all of `max_wait`."""
    commit: Commit | None = None
    """A commit that is not written yet. It is written together with others."""
    duration_ms: int = 0
    """The time of the attempt, if its commit is not written yet."""
    late_write: bool = False
    """The row now records that this attempt may have written after its successor. Wake the key."""


class Failures:
    """Writes failures into the ledger and the dead-letter queue."""

    def __init__(self, services: Services, breaker: CircuitBreaker) -> None:
        self._settings = services.settings
        self._ledger = services.ledger
        self._queues = services.queues
        self._telemetry = services.telemetry
        self._clock = services.clock
        self._jitter = services.jitter
        self._breaker = breaker

    def fail(
        self,
        claim: Claim,
        message: Message,
        reason: Reason,
        *,
        counted: bool = True,
        begun: bool = True,
        s3_error: str | None = None,
    ) -> Outcome:
        """Record a failure.

        Args:
            claim: the claim whose attempt failed.
            message: its message.
            reason: its text quotes no content of the object.
            counted: whether the failure counts as an attempt.
            begun: whether the failure says something about the downstream.
            s3_error: S3's code, if S3 refused the read of the object.

        """
        # While the downstream is out, a failure does not show that the file is bad. In a shard no good record can show
        # the opposite: the bad ones hold it back.
        out = begun and self._breaker.is_open and not message.in_shard
        given_up = self.is_given_up(message)
        if given_up and message.last_try_at is not None:
            # No audit would find it again, so it gets the rest of its attempts while its source still has it.
            out = False
        healthy = False if begun else None
        if counted and not out:
            if claim.row.attempts >= self._settings.max_attempts:
                return self.reject(claim, message, reason, healthy=healthy, s3_error=s3_error)
        elif given_up and message.last_try_at is None:
            return self.reject(claim, message, reason, healthy=healthy, s3_error=s3_error)
        now = self._clock()
        if out:
            wait = max(self._breaker.held_ms(), self.least_wait_ms(message)) / 1000
        elif counted:
            wait = self.backoff(claim.row.attempts)
        else:
            wait = self._growing_wait(claim.row)
        if message.last_try_at is not None:
            left = (message.last_try_at - now) / 1000
            if left <= 0:
                text = f"its source keeps it too short for another attempt: {reason.text}"
                return self.reject(claim, message, Reason(reason.code, text), healthy=healthy, s3_error=s3_error)
            if counted and not out:
                # Each of the attempts that are left gets an equal share of the time.
                share = left / (self._settings.max_attempts - claim.row.attempts)
                left = max(share - self._settings.processing_timeout_seconds, 0)
            wait = min(wait, left)
        # SQS counts whole seconds. The message must not come back before `retry_at`.
        delay = math.ceil(wait)
        self._ledger.fail(claim, reason, retry_at=now + delay * 1000, counted=counted and not out, s3_error=s3_error)
        return Outcome(OutcomeKind.FAILED, reason, delay, healthy=healthy)

    def postpone(self, claim: Claim, message: Message, reason: Reason, *, healthy: bool | None) -> Outcome:
        """Keep a claim whose work could not be started. The same start is tried again, and spends no attempt.

        It is never given up: no object is the cause, and the fence may not grow before this start is over.
        """
        wait = self._growing_wait(claim.row)
        if healthy is False and self._breaker.is_open:
            wait = max(self._breaker.held_ms(), self.least_wait_ms(message)) / 1000
        delay = math.ceil(wait)
        self._ledger.postpone(claim, reason, until=self._clock() + delay * 1000)
        return Outcome(OutcomeKind.START_REFUSED, reason, delay, healthy=healthy)

    def wait(self, claim: Claim, message: Message, missing: NotYet) -> Outcome:
        """Retry when the missing thing may be there. This says nothing about the downstream."""
        text = text_of(missing) or "the processor said NotYet and gave no reason"
        now = self._clock()
        waited_ms = 0 if claim.row.waiting_since is None else now - claim.row.waiting_since
        left_ms, limit = self._settings.max_wait_seconds * 1000 - waited_ms, "max_wait"
        if message.last_try_at is not None and message.last_try_at - now < left_ms:
            left_ms, limit = message.last_try_at - now, "the retention of its source"
        if left_ms <= 0:
            text = f"waited for {waited_ms / 3_600_000:.3g} hours ({limit}): {text}"
            return replace(self.reject(claim, message, Reason(ReasonCode.MAX_WAIT, text)), waited_too_long=True)
        # Waits grow, so that they do not use up the queue's maxReceiveCount. The last try is at the end of the time.
        wanted = max(wait_seconds(missing) or _RETRY_IN_SECONDS, waited_ms / 1000 * _GROWTH)
        delay = math.ceil(min(wanted, MAX_RETRY_IN, left_ms / 1000))
        reason = Reason(ReasonCode.NOT_YET, text)
        self._ledger.wait(claim, reason, retry_at=now + delay * 1000)
        return Outcome(OutcomeKind.WAITING, reason, delay)

    def reject(
        self,
        claim: Claim,
        message: Message,
        reason: Reason,
        *,
        healthy: bool | None = None,
        s3_error: str | None = None,
    ) -> Outcome:
        """Record a failure that is not retried."""
        # Send the copy first. If the worker dies in between, there are two copies and not none.
        copied = self._copy(claim.change, message, claim.row, reason.text, reason.code)
        self._ledger.reject(claim, reason, s3_error=s3_error, copied=copied)
        if copied.refusal is not None:
            delay = max(0, copied.retry_at - self._clock()) / 1000
            return Outcome(OutcomeKind.FAILED, copied.refusal, delay, healthy=healthy)
        return Outcome(OutcomeKind.REJECTED, reason, healthy=healthy)

    def exhaust(self, change: Change, message: Message, seen: Row) -> Row | None:
        """Reject a change whose attempts all ended without an outcome. None: another worker took the row meanwhile.

        The row is FAILED if the dead-letter queue has not taken the copy.
        """
        after = self._ledger.exhausted_row(change, seen)
        copied = self._copy(change, message, after, after.reason or "", after.reason_code or "")
        after = after_copy(after, copied)
        return after if self._ledger.exhaust(change, seen, after) else None

    def keep_copy(self, change: Change, row: Row | None) -> None:
        """Send the copy of a rejection back to the dead-letter queue: its object was removed, so it cannot run."""
        known = f": {row.reason}" if row is not None and row.reason else ""
        reason = Reason(ReasonCode.REMOVED_UNPROCESSED, f"{REMOVED_UNPROCESSED.text}, so it cannot run{known}")
        version = change.state.version_id if change.state else None
        row = replace(row or Row(Status.REJECTED, 0), fence=change.rejected_fence or 0, version_id=version)
        self._dead_letter(change, row, reason.text, reason.code)

    def refuse(self, refused: Unparseable) -> Reason:
        """Send records that the consumer cannot handle to the dead-letter queue. Returns the reason."""
        count = refused.records
        why = refused.why if count == 1 else f"{count} records cannot be handled, the first one: {refused.why}"
        attributes: dict[str, str | int | None] = {
            "reason": why[:1024],
            "reason_code": refused.code.value,
            "pipeline": self._settings.pipeline,
            "unreadable_records": count,
        }
        self._queues.dead_letter(refused.body, attributes)
        return Reason(refused.code, why)

    def backoff(self, attempts: int) -> float:
        """Seconds until the next attempt: exponential, from half to the whole of a step.

        The jitter keeps changes that failed together from coming back together.
        """
        step = self._settings.min_backoff_seconds * 2.0 ** min(attempts - 1, 30)
        return min(step, self._settings.max_backoff_seconds) * (0.5 + self._jitter() / 2)

    def _growing_wait(self, row: Row) -> float:
        """Seconds until a retry that counts no attempt."""
        return max(self.backoff(row.attempts), (self._clock() - row.first_claimed_at) / 1000 * _GROWTH)

    def is_given_up(self, message: Message) -> bool:
        """True if the message is older than `max_hold`. It is no longer held back."""
        age_ms = 0 if message.sent_at is None else self._clock() - message.sent_at
        return age_ms >= self._settings.max_hold_seconds * 1000

    def is_last_delivery(self, message: Message) -> bool:
        """True if the source of the message may delete it before another attempt, and no audit would find it again."""
        return message.last_try_at is not None and message.last_try_at <= self._clock()

    def in_time(self, message: Message, seconds: float) -> float:
        """The wait, shortened so that the message comes back for its last attempt while its source has it."""
        if message.last_try_at is None:
            return seconds
        left = (message.last_try_at - self._clock()) / 1000
        return min(seconds, left if left > 0 else _LAST_SECONDS)

    def least_wait_ms(self, message: Message) -> int:
        """The shortest wait of a message that is returned because the downstream is out, in milliseconds."""
        settings = self._settings
        return least_wait_ms(
            message.receives, max_receives=settings.max_receives, max_hold_ms=settings.max_hold_seconds * 1000
        )

    def _copy(self, change: Change, message: Message, row: Row, reason: str, code: str) -> Copied:
        """Send the copy of a rejected change. A refusal is a result, so that the row can say why."""
        try:
            return Copied(message.id, self._dead_letter(change, row, reason, code))
        except CopyRefused as refused:
            self._telemetry.log_error("the copy of a rejected message could not be sent", message.id, refused)
            text = describe(refused, self._settings.reasons)
            refusal = Reason(ReasonCode.DEAD_LETTER_REFUSED, f"{text}. It was rejected: {reason}")
            retry_at = self._clock() + math.ceil(self.in_time(message, self._growing_wait(row))) * 1000
            return Copied(message.id, refusal=refusal, retry_at=retry_at)

    def _dead_letter(self, change: Change, row: Row, reason: str, code: str) -> str | None:
        """Send the copy of a rejected change. Returns the digest of its body, if it has no attributes."""
        attributes: dict[str, str | int | None] = {
            "reason": reason[:1024],
            "reason_code": code,
            "pipeline": self._settings.pipeline,
            "bucket": change.bucket,
            "key": quote(change.key),
            "version_id": row.version_id,
            "attempts": row.attempts,
            "first_claimed_at": row.first_claimed_at,
            "rejected_fence": row.fence,
        }
        return self._queues.dead_letter(change.body, attributes)
