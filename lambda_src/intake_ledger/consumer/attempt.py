"""One attempt at a claimed change: run the processor, and write into the ledger how it ended."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace

from botocore.exceptions import ClientError

from intake_ledger.aws import s3_refusal
from intake_ledger.consumer.batch import ProcessingTime
from intake_ledger.consumer.deadline import Overrun
from intake_ledger.consumer.downstream import Downstream
from intake_ledger.consumer.failures import Failures, Outcome
from intake_ledger.consumer.object_call import ProcessorCall, Progress, Started, StartRefused
from intake_ledger.consumer.services import Services
from intake_ledger.events import Message, own_message
from intake_ledger.ledger import Claim
from intake_ledger.observability import describe, text_of
from intake_ledger.processor import Commit, as_commit
from intake_ledger.protocol import (
    Fenced,
    InvalidEffectError,
    LibraryError,
    NotBegun,
    NotYet,
    ObjectGone,
    Ordering,
    Origin,
    OutcomeKind,
    OutputReserved,
    Overwritten,
    Reason,
    ReasonCode,
    Ruling,
    Status,
    TransactionRefused,
    Unprocessable,
    code_of,
    invalid_effect_of,
    keeps_copy,
    remaining_seconds,
)

Guard = Callable[[Claim, float], AbstractContextManager[None]]
"""Makes a context that limits the processor inside it to these seconds."""


class Attempts:
    """Runs the processor on claims, and reports each outcome to ledger, telemetry and circuit breaker."""

    def __init__(
        self,
        services: Services,
        call: ProcessorCall,
        failures: Failures,
        downstream: Downstream,
        *,
        guard: Guard,
        processing_time: ProcessingTime,
    ) -> None:
        self._settings = services.settings
        self._ledger = services.ledger
        self._queues = services.queues
        self._telemetry = services.telemetry
        self._clock = services.clock
        self._call = call
        self._guard = guard
        self._failures = failures
        self._downstream = downstream
        self._processing_time = processing_time

    def run(self, claim: Claim, message: Message, *, hold: bool = False) -> Outcome:
        """Run the processor on the claim.

        With `hold`, a commit without `transact` is returned instead of written. The caller passes it to `commit`.
        Raises the errors of AWS requests. The message then comes again.
        """
        started, progress = self._clock(), Progress()
        try:
            outcome = self._run(claim, message, started, progress, hold=hold)
        except Fenced as fenced:
            outcome = self._overtaken(claim, fenced, begun=progress.begun)
        now = self._clock()
        self._processing_time.add(now - started)
        if outcome.commit is None:
            self._report(claim, outcome, message, now - started)
        else:
            outcome = replace(outcome, duration_ms=now - started)
        self._downstream.ended(claim.change.key, outcome.healthy, outcome.reason, now)
        return outcome

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

    def commit(self, claim: Claim, commit: Commit, message: Message, duration_ms: int) -> Outcome:
        """Write a commit that was held. `duration_ms` is the time of its attempt."""
        try:
            outcome = self._commit(claim, commit, message)
        except Fenced as fenced:
            outcome = self._overtaken(claim, fenced, begun=True)
        self._report(claim, outcome, message, duration_ms)
        return outcome

    def overran(self, claim: Claim, message: Message) -> Outcome:
        """Record that the processor has overrun its limit, while it still runs. FENCED: it ended meanwhile."""
        try:
            outcome = self._overran(claim, message)
        except Fenced as fenced:
            outcome = self._overtaken(claim, fenced, begun=True)
        self._report(claim, outcome, message, self._settings.processing_timeout_seconds * 1000)
        return outcome

    def _run(self, claim: Claim, message: Message, started: int, progress: Progress, *, hold: bool) -> Outcome:
        limit = self._settings.processing_timeout_seconds
        try:
            returned = self._call(
                claim,
                progress,
                limit=self._guard(claim, limit),
                remaining_seconds=lambda: remaining_seconds(limit, self._clock() - started),
            )
            commit = as_commit(returned)
        except (Unprocessable, NotYet) as decision:
            return self._judged(claim, message, decision)
        except (Started, StartRefused) as elsewhere:
            return self._elsewhere(claim, message, elsewhere)
        except ObjectGone:
            return self._gone(claim, begun=progress.begun)
        except KeyboardInterrupt:  # the process has to end
            raise
        except BaseException as error:  # noqa: BLE001 - an exit or a cancelled task is a failure too
            return self._raised(claim, message, error, begun=progress.begun)
        if hold and not commit.transact:
            return Outcome(OutcomeKind.COMMITTED, healthy=True, commit=commit)
        return self._commit(claim, commit, message)

    def _elsewhere(self, claim: Claim, message: Message, start: Started | StartRefused) -> Outcome:
        """Leave the claim to the work that was started outside of this attempt, or to a later start."""
        if isinstance(start, Started):
            return Outcome(OutcomeKind.STARTED, retry_after=start.retry_after)
        reason = self._reason(start.error, ReasonCode.START_REFUSED)
        return self._failures.postpone(claim, message, reason, healthy=start.healthy)

    def _raised(self, claim: Claim, message: Message, error: BaseException, *, begun: bool) -> Outcome:
        """End the claim after an error. `begun`: the processor had started."""
        if (invalid := invalid_effect_of(error)) is not None:
            return self._judged(claim, message, invalid)
        if not begun and s3_refusal(error) is None:
            # The object is not the cause, so this counts no attempt.
            self._ledger.release(claim)
            raise LibraryError("S3 could not open the object", detail=repr(error)) from error
        if _is_overrun(error):
            return self._overran(claim, message)
        # The processor may send other requests to AWS than the read of the object.
        reads = not begun or (isinstance(error, ClientError) and getattr(error, "operation_name", "") == "GetObject")
        s3_error = s3_refusal(error) if reads else None
        return self._failures.fail(
            claim,
            message,
            self._reason(error, ReasonCode.S3_REFUSED if s3_error else _code_of_other(error)),
            counted=not isinstance(error, NotBegun | OutputReserved),
            # Another object has the output for a moment. That says nothing about the downstream.
            begun=begun and not isinstance(error, OutputReserved),
            s3_error=s3_error,
        )

    def _judged(self, claim: Claim, message: Message, decision: Unprocessable | NotYet | InvalidEffectError) -> Outcome:
        """End the claim as the processor has decided, or as its malformed effect decides."""
        if isinstance(decision, NotYet):
            return self._failures.wait(claim, message, decision)
        if isinstance(decision, InvalidEffectError):
            # Another attempt would repeat the effects, and would end in the same way.
            return self._failures.reject(claim, message, self._reason(decision))
        # The processor gives this text as the reason, so it is kept.
        text = text_of(decision) or "the processor gave no reason"
        return self._failures.reject(claim, message, Reason(ReasonCode.UNPROCESSABLE, text))

    def _commit(self, claim: Claim, commit: Commit, message: Message) -> Outcome:
        try:
            self._ledger.commit(claim, commit.identity, commit.transact)
        except Overwritten as overwritten:
            # The next claim reads the late write and repeats the effect. It comes at once, and counts no attempt.
            reason = self._reason(overwritten)
            self._ledger.fail(claim, reason, counted=False)
            return Outcome(OutcomeKind.FAILED, reason, 0, healthy=True)
        except InvalidEffectError as malformed:
            return self._judged(claim, message, malformed)
        except TransactionRefused as refused:
            return self._failures.fail(claim, message, self._reason(refused), counted=not refused.passing)
        return Outcome(OutcomeKind.COMMITTED, healthy=True)

    def _gone(self, claim: Claim, *, begun: bool) -> Outcome:
        """End a claim whose version vanished. `begun`: the processor had started and may have written something."""
        reason = Reason(ReasonCode.OBJECT_GONE, f"S3 no longer holds {claim.state.identity}")
        if self._settings.ordering is Ordering.EVERY_VERSION:
            # The message is only about this version.
            return self._version_gone(claim, reason, begun=begun)
        if begun:
            self._ledger.fail(claim, reason)
        else:
            self._ledger.release(claim)
        return Outcome(OutcomeKind.GONE, reason, judge_again=True)

    def _version_gone(self, claim: Claim, reason: Reason, *, begun: bool) -> Outcome:
        seen, change = claim.seen, claim.change
        open_ = seen is not None and (seen.unfinished or seen.status is Status.REJECTED)
        if begun or open_:
            self._ledger.abandon(claim, reason, begun=begun)
        else:
            self._ledger.release(claim)
        young = self._clock() - self._settings.retention_seconds * 1000
        if begun or open_ or (seen is None and change.reports_upload_since(young)):
            self._telemetry.removed_unprocessed(change, claim.row if begun else seen)
        if keeps_copy(change, seen, unprocessed=open_):
            self._failures.keep_copy(change, seen)
        return Outcome(OutcomeKind.GONE, reason)

    def _overran(self, claim: Claim, message: Message) -> Outcome:
        limit = self._settings.processing_timeout_seconds
        text = f"the processor ran longer than its limit of {limit} s"
        return self._failures.fail(claim, message, Reason(ReasonCode.PROCESSOR_TIMEOUT, text))

    def _overtaken(self, claim: Claim, fenced: Fenced, *, begun: bool) -> Outcome:
        """End a claim whose row another attempt has. `begun`: the effects may have come in the wrong order."""
        late = begun and self._call.writes and self._ledger.report_late_write(claim)
        reason = Reason(ReasonCode.LEASE_LOST, str(fenced))
        return Outcome(OutcomeKind.FENCED, reason, self._failures.backoff(claim.row.attempts), late_write=late)

    def _reason(self, error: BaseException, code: ReasonCode | None = None) -> Reason:
        """Describe the error without the content that it may quote. The code follows from its type if it is omitted."""
        text = describe(error, self._settings.reasons, processor_package=self._call.package)
        return Reason(code or code_of(error, ReasonCode.PROCESSOR_ERROR), text)

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


def _code_of_other(error: BaseException) -> ReasonCode | None:
    """The code of an error whose type would name an event of this claim, and that the processor has raised."""
    # The processor has used another ledger. This claim is still owned, or the write of its end shows that it is not.
    return ReasonCode.PROCESSOR_ERROR if isinstance(error, Fenced) else None


def _is_overrun(error: BaseException) -> bool:
    """True if the processor overran its limit. Task groups of asyncio wrap the errors that are raised inside them."""
    return isinstance(error, Overrun) or (isinstance(error, BaseExceptionGroup) and error.subgroup(Overrun) is not None)
