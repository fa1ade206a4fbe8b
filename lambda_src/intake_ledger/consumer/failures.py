"""Waits of messages, and copies in the dead-letter queue."""

import math
from dataclasses import replace
from functools import partial
from urllib.parse import quote

from intake_ledger.consumer.circuit_breaker import CircuitBreaker, least_wait_ms
from intake_ledger.consumer.ending import Facts, Stage, growing_wait
from intake_ledger.consumer.services import Services
from intake_ledger.events import Message, Unparseable
from intake_ledger.observability import describe
from intake_ledger.protocol import (
    REMOVED_UNPROCESSED,
    Change,
    Copied,
    CopyRefused,
    Reason,
    ReasonCode,
    Row,
    Status,
    after_copy,
)

_LAST_SECONDS = 60
"""The longest wait of a message that its source deletes soon."""


class Failures:
    """Chooses when messages are delivered again, and sends copies of the others to the dead-letter queue."""

    def __init__(self, services: Services, breaker: CircuitBreaker) -> None:
        self._settings = services.settings
        self._ledger = services.ledger
        self._queues = services.queues
        self._telemetry = services.telemetry
        self._clock = services.clock
        self._jitter = services.jitter
        self._breaker = breaker

    def facts(self, message: Message, stage: Stage, package: str) -> Facts:
        """The facts on which the end of an attempt on this message depends."""
        return Facts(
            settings=self._settings,
            now=self._clock(),
            stage=stage,
            package=package,
            given_up=self.is_given_up(message),
            last_try_at=message.last_try_at,
            # In a shard no good record can show that the downstream works: the bad ones hold it back.
            out=self._breaker.is_open and not message.in_shard,
            held_seconds=partial(self._held_seconds, message),
            backoff=self.backoff,
        )

    def copy(self, change: Change, message: Message, row: Row, reason: str, code: str) -> Copied:
        """Send the copy of a rejected change. A refusal is a result, so that the row can say why."""
        try:
            return Copied(message.id, self._dead_letter(change, message, row, reason, code))
        except CopyRefused as refused:
            self._telemetry.log_error("the copy of a rejected message could not be sent", message.id, refused)
            text = describe(refused, self._settings.reasons)
            refusal = Reason(ReasonCode.DEAD_LETTER_REFUSED, f"{text}. It was rejected: {reason}")
            wait = growing_wait(row, self._clock(), self.backoff)
            retry_at = self._clock() + math.ceil(self.in_time(message, wait)) * 1000
            return Copied(message.id, refusal=refusal, retry_at=retry_at)

    def exhaust(self, change: Change, message: Message, seen: Row) -> Row | None:
        """Reject a change whose attempts all ended without an outcome. None: another worker took the row meanwhile.

        The row is FAILED if the dead-letter queue has not taken the copy.
        """
        after = self._ledger.exhausted_row(change, seen)
        copied = self.copy(change, message, after, after.reason or "", after.reason_code or "")
        after = after_copy(after, copied)
        return after if self._ledger.exhaust(change, seen, after) else None

    def keep_copy(self, change: Change, message: Message, row: Row | None) -> None:
        """Send the copy of a rejection back to the dead-letter queue: its object was removed, so it cannot run."""
        known = f": {row.reason}" if row is not None and row.reason else ""
        reason = Reason(ReasonCode.REMOVED_UNPROCESSED, f"{REMOVED_UNPROCESSED.text}, so it cannot run{known}")
        version = change.state.version_id if change.state else None
        row = replace(row or Row(Status.REJECTED, 0), fence=change.rejected_fence or 0, version_id=version)
        self._dead_letter(change, message, row, reason.text, reason.code)

    def refuse(self, refused: Unparseable, message: Message) -> Reason:
        """Send records that the consumer cannot handle to the dead-letter queue. Returns the reason."""
        count = refused.records
        why = refused.why if count == 1 else f"{count} records cannot be handled, the first one: {refused.why}"
        attributes: dict[str, str | int | None] = {
            "reason": why[:1024],
            "reason_code": refused.code.value,
            "pipeline": self._settings.pipeline,
            "unreadable_records": count,
        }
        self._queues.dead_letter(refused.body, attributes, message.group)
        return Reason(refused.code, why)

    def backoff(self, attempts: int) -> float:
        """Seconds until the next attempt: exponential, from half to the whole of a step.

        The jitter keeps changes that failed together from coming back together.
        """
        step = self._settings.min_backoff_seconds * 2.0 ** min(attempts - 1, 30)
        return min(step, self._settings.max_backoff_seconds) * (0.5 + self._jitter() / 2)

    def is_given_up(self, message: Message) -> bool:
        """True if the message is older than `max_hold`. It is no longer held back."""
        age_ms = 0 if message.sent_at is None else self._clock() - message.sent_at
        return age_ms >= self._settings.max_hold_seconds * 1000

    def is_last_delivery(self, message: Message) -> bool:
        """True if the source of the message may delete it before another attempt, and no audit would find it again."""
        return message.last_try_at is not None and message.last_try_at <= self._clock()

    def may_not_return(self, message: Message, seconds: float) -> bool:
        """True if the source of the message may delete it before it comes again after this wait, or after the next one.

        Its key may be held for hours, or its execution may run or be refused. No audit would find it again.
        """
        if not self.is_last_delivery(message) or message.deleted_at is None:
            return False
        left = (message.deleted_at - self._clock()) / 1000
        return left <= 2 * max(seconds, _LAST_SECONDS)

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

    def _held_seconds(self, message: Message) -> float:
        return max(self._breaker.held_ms(), self.least_wait_ms(message)) / 1000

    def _dead_letter(self, change: Change, message: Message, row: Row, reason: str, code: str) -> str | None:
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
        return self._queues.dead_letter(change.body, attributes, message.group)
