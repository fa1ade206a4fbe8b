"""One attempt at a claimed change: run the processor, and write into the ledger how it ended."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace

from intake_ledger.consumer.batch import ProcessingTime
from intake_ledger.consumer.deadline import Overrun
from intake_ledger.consumer.downstream import Downstream
from intake_ledger.consumer.ending import Outcome, Stage, Write, ending
from intake_ledger.consumer.failures import Failures
from intake_ledger.consumer.services import Services
from intake_ledger.events import Message, own_message
from intake_ledger.kinds import Kind
from intake_ledger.ledger import Claim
from intake_ledger.processor import Commit, as_commit
from intake_ledger.protocol import (
    Fenced,
    InvalidEffectError,
    LateWriteFound,
    LibraryError,
    Origin,
    OutcomeKind,
    Reason,
    ReasonCode,
    Ruling,
    TransactionRefused,
    remaining_seconds,
)
from intake_ledger.runners import Run, Runner, Started

Limit = Callable[[Claim, float], AbstractContextManager[None]]
"""Makes a context that limits the processor inside it to these seconds."""


@dataclass(slots=True)
class _Attempt:
    ended: bool = False
    """The row shows how it ended, or that its work goes on elsewhere."""
    held: bool = False
    """Its commit is written later."""


class Attempts:
    """Runs the processor on claims, and reports each outcome to ledger, telemetry and circuit breaker."""

    def __init__(
        self,
        services: Services,
        kind: Kind,
        runner: Runner,
        failures: Failures,
        downstream: Downstream,
        *,
        limit: Limit,
        processing_time: ProcessingTime,
    ) -> None:
        self._settings = services.settings
        self._ledger = services.ledger
        self._queues = services.queues
        self._telemetry = services.telemetry
        self._clock = services.clock
        self._kind = kind
        self._runner = runner
        self._limit = limit
        self._failures = failures
        self._downstream = downstream
        self._processing_time = processing_time

    def run(self, claim: Claim, message: Message, *, hold: bool = False) -> Outcome:
        """Run the processor on the claim.

        With `hold`, a commit without `transact` is returned instead of written. The caller passes it to `commit`.
        Raises the errors of AWS requests. The message then comes again.
        """
        started, limit = self._clock(), self._settings.processing_timeout_seconds
        run = Run(self._limit(claim, limit), lambda: remaining_seconds(limit, self._clock() - started))
        with self._letting_go(claim) as attempt:
            outcome = self._unless_overtaken(
                claim, lambda: self._run(claim, message, run, hold=hold), begun=lambda: run.begun
            )
            attempt.ended = True
            attempt.held = outcome.commit is not None
        now = self._clock()
        self._processing_time.add(now - started)
        if outcome.commit is None:
            self._report(claim, outcome, message, now - started)
        else:
            outcome = replace(outcome, duration_ms=now - started)
        self._downstream.ended(claim.change.key, outcome.healthy, outcome.reason, now)
        if run.judge_again and not (run.unless_committed and outcome.kind is OutcomeKind.COMMITTED):
            return replace(outcome, judge_again=True)
        return outcome

    def release(self, answer: Claim | Ruling | None, retry_after: float) -> float:
        """Release the claim, if there is one: its processor was not started. Returns the seconds until the retry."""
        if not isinstance(answer, Claim):
            return retry_after
        with self._letting_go(answer) as attempt:
            try:
                self._ledger.release(answer)
            except Fenced as fenced:
                reason = Reason(ReasonCode.LEASE_LOST, str(fenced))
                self._telemetry.ended(answer, OutcomeKind.FENCED, reason, duration_ms=0)
                retry_after = self._failures.backoff(answer.row.attempts)
            attempt.ended = True
        return retry_after

    def commit(self, claim: Claim, commit: Commit, message: Message, duration_ms: int) -> Outcome:
        """Write a commit that was held. `duration_ms` is the time of its attempt."""
        with self._letting_go(claim) as attempt:
            outcome = self._unless_overtaken(claim, lambda: self._commit(claim, commit, message))
            attempt.ended = True
        self._report(claim, outcome, message, duration_ms)
        return outcome

    def overran(self, claim: Claim, message: Message) -> Outcome:
        """Record that the processor has overrun its limit, while it still runs. FENCED: it ended meanwhile."""
        outcome = self._unless_overtaken(claim, lambda: self._settle(claim, message, Overrun(), Stage.PROCESSING))
        self._report(claim, outcome, message, self._settings.processing_timeout_seconds * 1000)
        return outcome

    @contextmanager
    def _letting_go(self, claim: Claim) -> Iterator[_Attempt]:
        """Tell the ledger at the end of the block that the attempt is over, also if AWS did not answer."""
        attempt = _Attempt()
        try:
            yield attempt
        finally:
            if not attempt.held:
                self._ledger.let_go(claim, ended=attempt.ended)

    def _unless_overtaken(
        self, claim: Claim, end: Callable[[], Outcome], *, begun: Callable[[], bool] = lambda: True
    ) -> Outcome:
        """The outcome, or that of a claim whose row another attempt has.

        If the processor had begun, the effects of both may have come in the wrong order.
        """
        try:
            return end()
        except Fenced as fenced:
            late = begun() and self._runner.writes and self._ledger.report_late_write(claim)
            reason = Reason(ReasonCode.LEASE_LOST, str(fenced))
            wait = self._failures.backoff(claim.row.attempts)
            return Outcome(OutcomeKind.FENCED, reason=reason, retry_after=wait, late_write=late)

    def _run(self, claim: Claim, message: Message, run: Run, *, hold: bool) -> Outcome:
        """Do the work of the claim, and write how it ended."""
        try:
            work = self._kind.work(claim)
            returned = None if work is None else self._runner.start(claim, work, run)
            if isinstance(returned, Started):
                return Outcome(OutcomeKind.STARTED, retry_after=returned.retry_after)
            commit = as_commit(returned)
        except KeyboardInterrupt:  # the process has to end
            raise
        except BaseException as error:
            # An exit or a cancelled task is a failure too. A claim that was lost before its work began is none.
            if isinstance(error, Fenced) and not run.begun:
                raise
            return self._settle(claim, message, error, Stage.PROCESSING if run.begun else Stage.OPENING)
        if hold and not commit.transact:
            return Outcome(OutcomeKind.COMMITTED, healthy=True, commit=commit)
        return self._commit(claim, commit, message)

    def _commit(self, claim: Claim, commit: Commit, message: Message) -> Outcome:
        try:
            self._ledger.commit(claim, commit.identity, commit.transact)
        except (LateWriteFound, InvalidEffectError, TransactionRefused) as refused:
            return self._settle(claim, message, refused, Stage.COMMITTING)
        return Outcome(OutcomeKind.COMMITTED, healthy=True)

    def _settle(self, claim: Claim, message: Message, error: BaseException, stage: Stage) -> Outcome:
        """Write the end of an attempt that raised this error."""
        facts = self._failures.facts(message, stage, self._runner.package)
        outcome, ledger = ending(claim, error, facts), self._ledger
        reason = outcome.reason
        if reason is None:
            ledger.release(claim)
            raise LibraryError("S3 could not open the object", detail=repr(error)) from error
        at = facts.now + int((outcome.retry_after or 0) * 1000)
        match outcome.write:
            case Write.RELEASE:
                ledger.release(claim)
            case Write.ABANDON:
                ledger.abandon(claim, reason, begun=stage is not Stage.OPENING)
            case Write.FAIL:
                retry_at = None if outcome.at_once else at
                ledger.fail(claim, reason, retry_at=retry_at, counted=outcome.counted, s3_error=outcome.s3_error)
            case Write.POSTPONE:
                ledger.postpone(claim, reason, until=at)
            case Write.WAIT:
                ledger.wait(claim, reason, retry_at=at)
            case Write.REJECT:
                outcome = self._reject(claim, message, outcome, reason)
        if outcome.unprocessed:
            self._telemetry.removed_unprocessed(claim.change, claim.row if stage is not Stage.OPENING else claim.seen)
        if outcome.keeps_copy:
            self._failures.keep_copy(claim.change, message, claim.seen)
        return outcome

    def _reject(self, claim: Claim, message: Message, outcome: Outcome, reason: Reason) -> Outcome:
        """Record a failure that is not retried. If the dead-letter queue does not take the copy, the row waits for it.

        The copy is sent first. If the worker dies in between, there are two copies and not none.
        """
        copied = self._failures.copy(claim.change, message, claim.row, reason.text, reason.code)
        self._ledger.reject(claim, reason, s3_error=outcome.s3_error, copied=copied)
        if copied.refusal is None:
            return outcome
        delay = max(0, copied.retry_at - self._clock()) / 1000
        return replace(outcome, kind=OutcomeKind.FAILED, reason=copied.refusal, retry_after=delay)

    def _report(self, claim: Claim, outcome: Outcome, message: Message, duration_ms: int) -> None:
        """Report how a claim ended, and wake the key after a late write.

        The late worker's own message was delivered again when its lease ended, and may be acknowledged by now. The
        worker has no time left to process, because its lease lasted as long as its invocation.
        """
        self._telemetry.ended(claim, outcome.kind, outcome.reason, duration_ms=duration_ms)
        if outcome.waited_too_long:
            self._telemetry.waited_too_long()
        if not outcome.late_write:
            return
        self._telemetry.late_write(claim)
        try:
            self._queues.wake(own_message(Origin.LATE, claim.change.bucket, claim.change.key))
        except Exception as error:  # noqa: BLE001 - the row records it, and the audit finds it
            self._telemetry.log_error("a late write was recorded and its key not woken", message.id, error)
