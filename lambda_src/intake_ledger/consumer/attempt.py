"""One attempt at a claimed change: run the processor, and write into the ledger how it ended.

`Failures` chooses when a message is delivered again, and sends copies of rejected ones to the dead-letter queue.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from urllib.parse import quote

from intake_ledger.consumer.batch import HeldCommit, ProcessingTime
from intake_ledger.consumer.circuit_breaker import CircuitBreaker, least_wait_ms
from intake_ledger.consumer.deadline import Overrun
from intake_ledger.consumer.downstream import Downstream
from intake_ledger.consumer.ending import Facts, Outcome, Stage, Unchanged, Write, call_died, ending, growing_wait
from intake_ledger.consumer.hooks import NO_HOOKS, Hooks
from intake_ledger.consumer.returns import renews
from intake_ledger.consumer.services import Services
from intake_ledger.events.parser import Message, Unparseable, body_unknown, own_message
from intake_ledger.kinds import Kind, Work
from intake_ledger.ledger.dynamodb_table import AWS_ERRORS
from intake_ledger.ledger.ledger import Claim
from intake_ledger.observability.error_text import describe
from intake_ledger.processor.object_change import Commit, as_commit
from intake_ledger.protocol.change import Change, Origin
from intake_ledger.protocol.errors import (
    CopyRefused,
    Fenced,
    InvalidEffectError,
    LateWriteFound,
    LibraryError,
    TransactionRefused,
)
from intake_ledger.protocol.handover import remaining_seconds
from intake_ledger.protocol.reasons import OutcomeKind, Reason, ReasonCode
from intake_ledger.protocol.row import (
    REMOVED_UNPROCESSED,
    Copied,
    Row,
    RowCounts,
    RowKey,
    Status,
    after_copy,
)
from intake_ledger.protocol.verdict import Ruling, is_another_message, may_be_another
from intake_ledger.runners import Run, Runner, Started

Limit = Callable[[Claim, float], AbstractContextManager[None]]
"""Makes a context that limits the processor inside it to these seconds."""
_LAST_SECONDS = 60
"""The longest wait of a message that its source deletes soon."""


@dataclass(slots=True, eq=False)
class Failures:
    """Chooses when messages are delivered again, and sends copies of the others to the dead-letter queue."""

    services: Services
    breaker: CircuitBreaker

    def facts(self, message: Message, stage: Stage, package: str) -> Facts:
        """The facts on which the end of an attempt on this message depends."""
        return Facts(
            settings=self.services.settings,
            now=self.services.clock(),
            stage=stage,
            package=package,
            given_up=self.is_given_up(message),
            last_try_at=message.last_try_at,
            renews=renews(message, self.services.settings),
            too_old=self.is_last_delivery(message),
            # In a shard no good record can show that the downstream works: the bad ones hold it back.
            out=self.breaker.is_open and not message.in_shard,
            held_seconds=partial(self._held_seconds, message),
            backoff=self.backoff,
        )

    def copy(self, change: Change, message: Message, row: Row, reason: str, code: str) -> Copied:
        """Send the copy of a rejected change. A refusal is a result, so that the row can say why.

        Another message with the identity of the row does not have its content. The copy has no body then, and the row
        waits for the message itself, which may have been purged.
        """
        other = is_another_message(change, row)
        if other:
            change = replace(change, body=body_unknown(change.key, str(row.version_id)))
        try:
            digest = self._dead_letter(change, message, row, reason, code)
        except CopyRefused as refused:
            self.services.telemetry.log_error("the copy of a rejected message could not be sent", message.id, refused)
            text = describe(refused, self.services.settings.reasons)
            refusal = Reason(ReasonCode.DEAD_LETTER_REFUSED, f"{text}. It was rejected: {reason}")
            wait = growing_wait(row, self.services.clock(), self.backoff)
            retry_at = self.services.clock() + math.ceil(self.in_time(message, wait)) * 1000
            return Copied(message.first_id, refusal=refusal, retry_at=retry_at)
        if not other:
            return Copied(message.first_id, digest)
        text = f"its copy has no body, since another message with its identity saw the end. It was rejected: {reason}"
        return Copied(
            message.first_id, refusal=Reason(ReasonCode.IDENTITY_COLLIDES, text), retry_at=self.services.clock()
        )

    def exhaust(self, change: Change, message: Message, seen: Row) -> Row | None:
        """Reject a change whose attempts all ended without an outcome. None: another worker took the row meanwhile.

        The row is FAILED if the dead-letter queue has not taken the copy.
        """
        after = self.services.ledger.exhausted_row(change, seen)
        copied = self.copy(change, message, after, after.reason or "", after.reason_code or "")
        after = after_copy(after, copied)
        return after if self.services.ledger.exhaust(change, seen, after) else None

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
            "pipeline": self.services.settings.pipeline,
            "unreadable_records": count,
            **(_names(refused.about) if refused.about is not None else {}),
        }
        self.services.queues.dead_letter(refused.body, attributes, message.group)
        return Reason(refused.code, why)

    def backoff(self, attempts: int) -> float:
        """Seconds until the next attempt: exponential, from half to the whole of a step.

        The jitter keeps changes that failed together from coming back together.
        """
        step = self.services.settings.min_backoff_seconds * 2.0 ** min(attempts - 1, 30)
        return min(step, self.services.settings.max_backoff_seconds) * (0.5 + self.services.jitter() / 2)

    def is_given_up(self, message: Message) -> bool:
        """True if the message is older than `max_hold`. It is no longer held back."""
        age_ms = 0 if message.sent_at is None else self.services.clock() - message.sent_at
        return age_ms >= self.services.settings.max_hold_seconds * 1000

    def is_last_delivery(self, message: Message) -> bool:
        """True if the source of the message may delete it before another attempt, and no audit would find it again.

        A copy gets no more time than its first message had.
        """
        return message.too_old_at is not None and message.too_old_at <= self.services.clock()

    def may_not_return(self, message: Message, seconds: float) -> bool:
        """True if the source of the message may delete it before it comes again after this wait, or after the next one.

        Its key may be held for hours, or its execution may run or be refused. No audit would find it again.
        """
        if message.last_try_at is None or message.deleted_at is None or message.last_try_at > self.services.clock():
            return False
        left = (message.deleted_at - self.services.clock()) / 1000
        return left <= 2 * max(seconds, _LAST_SECONDS)

    def in_time(self, message: Message, seconds: float) -> float:
        """The wait, shortened so that the message comes back for its last attempt while its source has it."""
        if message.last_try_at is None:
            return seconds
        left = (message.last_try_at - self.services.clock()) / 1000
        return min(seconds, left if left > 0 else _LAST_SECONDS)

    def least_wait_ms(self, message: Message) -> int:
        """The shortest wait of a message that is returned because the downstream is out, in milliseconds."""
        settings = self.services.settings
        return least_wait_ms(
            message.receives, max_receives=settings.max_receives, max_hold_ms=settings.max_hold_seconds * 1000
        )

    def _held_seconds(self, message: Message) -> float:
        return max(self.breaker.held_ms(), self.least_wait_ms(message)) / 1000

    def _dead_letter(self, change: Change, message: Message, row: Row, reason: str, code: str) -> str | None:
        """Send the copy of a rejected change. Returns the digest of its body, if it has no attributes."""
        attributes: dict[str, str | int | None] = {
            "reason": reason[:1024],
            "reason_code": code,
            "pipeline": self.services.settings.pipeline,
            **_names(change),
            "version_id": row.version_id,
            "attempts": row.attempts,
            "first_claimed_at": row.first_claimed_at,
            "rejected_fence": row.fence,
        }
        # The event of a tag means nothing to a release or a pipeline without `ready_when`, and a redrive would lose it.
        of_tag = change.origin is Origin.TAG
        body = own_message(Origin.AUDIT, change.bucket, change.key, row.state) if of_tag else change.body
        return self.services.queues.dead_letter(body, attributes, message.group)


def _names(change: Change) -> dict[str, str | int | None]:
    """The attributes of a dead letter that name its change."""
    version = change.state.version_id if change.state is not None else None
    return {"bucket": change.bucket, "key": quote(change.key), "version_id": version}


@dataclass(slots=True)
class _Attempt:
    ended: bool = False
    """The row shows how it ended, or that its work goes on elsewhere."""
    held: tuple[Claim, Commit] | None = None
    """Its commit, which is written later."""


@dataclass(slots=True, eq=False)
class Attempts:
    """Runs the processor on claims, and reports each outcome to ledger, telemetry and circuit breaker."""

    services: Services
    kind: Kind
    runner: Runner
    failures: Failures
    downstream: Downstream
    _: KW_ONLY
    limit: Limit
    processing_time: ProcessingTime
    hooks: Hooks = NO_HOOKS
    """The hooks of the options that are set."""

    def run(self, claim: Claim, message: Message, hold: Callable[[HeldCommit], None] | None = None) -> Outcome:
        """Run the processor on the claim.

        `hold` takes a commit without `transact`, which is written later by `commit`. None: it is written here.
        Raises the errors of AWS requests. The message then comes again.
        """
        started, limit = self.services.clock(), self.services.settings.processing_timeout_seconds
        run = Run(
            self.limit(claim, limit),
            lambda: remaining_seconds(limit, self.services.clock() - started),
            partial(self.before_start, claim, message) if self.hooks.before_start else None,
        )
        with self._letting_go(claim) as attempt:
            outcome = self._unless_overtaken(
                claim,
                message,
                lambda: self._run(claim, message, run, attempt if hold else None),
                begun=lambda: run.begun,
            )
            attempt.ended = True
        now = self.services.clock()
        if run.begun:
            self.processing_time.add(now - started)
        if hold is not None and attempt.held is not None:
            hold(HeldCommit(message, *attempt.held, now, now - started))
        else:
            self._report(claim, outcome, message, now - started)
            if self.hooks.settled:
                outcome = self._acted_on(claim, outcome, message)
        self.downstream.ended(claim.change.key, outcome.healthy, outcome.reason, now)
        if run.judge_again and not (run.unless_committed and outcome.kind is OutcomeKind.COMMITTED):
            return replace(outcome, judge_again=True)
        return outcome

    def before_start(self, claim: Claim, message: Message, place: int = 0) -> None:  # noqa: ARG002 - see `Run`
        """Ask the options for leave to start. Raises NotNow."""
        for ask in self.hooks.before_start:
            ask(claim, message)

    def before_call(self, claim: Claim, message: Message) -> Claim:
        """Ask the options about a change of a call, as both hooks. Its processor opens the object."""
        for ask in self.hooks.before_open:
            claim = ask(claim) or claim
        self.before_start(claim, message)
        return claim

    def settled(self, key: RowKey, change: Change, row: Row, message: Message) -> float | None:
        """Let the options act on a settled row. Returns the longest wait of one that is not done. None: all are."""
        waits = [wait for act in self.hooks.settled if (wait := act(key, change, row, message)) is not None]
        if not waits:
            return None
        message.waits_for_option = True
        return max(waits)

    def release(self, answer: Claim | Ruling | None, retry_after: float) -> float:
        """Release the claim, if there is one: its processor was not started. Returns the seconds until the retry."""
        if not isinstance(answer, Claim):
            return retry_after
        with self._letting_go(answer) as attempt:
            try:
                self.services.ledger.release(answer)
            except Fenced as fenced:
                reason = Reason(ReasonCode.LEASE_LOST, str(fenced))
                self.services.telemetry.ended(answer, OutcomeKind.FENCED, reason, duration_ms=0)
                retry_after = self.failures.backoff(answer.row.attempts)
            attempt.ended = True
        return retry_after

    def commit(
        self, claim: Claim, commit: Commit, message: Message, duration_ms: int, counts: RowCounts | None = None
    ) -> Outcome:
        """Write a commit that was held. `duration_ms` is the time of its attempt, and `counts` are as in `Run`."""
        with self._letting_go(claim) as attempt:
            outcome = self._unless_overtaken(claim, message, lambda: self._commit(claim, commit, message, counts))
            attempt.ended = True
        self._report(claim, outcome, message, duration_ms)
        return self._acted_on(claim, outcome, message) if self.hooks.settled else outcome

    def overran(self, claim: Claim, message: Message) -> Outcome:
        """Record that the processor has overrun its limit, while it still runs. FENCED: it ended meanwhile."""
        outcome = self._unless_overtaken(
            claim, message, lambda: self._settle(claim, message, Overrun(), Stage.PROCESSING)
        )
        self._report(claim, outcome, message, self.services.settings.processing_timeout_seconds * 1000)
        return outcome

    def settle(
        self, claim: Claim, message: Message, error: BaseException, stage: Stage, *, died: int = 0, duration_ms: int
    ) -> Outcome:
        """Write the end of one change of a call that had others too, and report it.

        Args:
            claim: the claim on the change.
            message: its message.
            error: its own error, or that of the whole call.
            stage: how far the call has come.
            died: the number of changes in the call, if the call died and its error names none of them.
            duration_ms: the time of the call.

        """
        begun = stage is not Stage.OPENING

        def end() -> Outcome:
            if isinstance(error, Fenced) and not begun:
                raise error
            if isinstance(error, Unchanged):
                return self._commit_again(claim, message)
            return self._settle(claim, message, error, stage, died=died)

        with self._letting_go(claim) as attempt:
            outcome = self._unless_overtaken(claim, message, end, begun=lambda: begun)
            attempt.ended = True
        self._report(claim, outcome, message, duration_ms)
        return self._acted_on(claim, outcome, message) if self.hooks.settled else outcome

    def _acted_on(self, claim: Claim, outcome: Outcome, message: Message) -> Outcome:
        """The outcome of a commit after the options have acted. Otherwise its message comes again for them."""
        if outcome.row is None:
            return outcome
        return replace(outcome, retry_after=self.settled(claim.key, claim.change, outcome.row, message))

    @contextmanager
    def _letting_go(self, claim: Claim) -> Iterator[_Attempt]:
        """Tell the ledger at the end of the block that the attempt is over, also if AWS did not answer."""
        attempt = _Attempt()
        try:
            yield attempt
        finally:
            if attempt.held is None:
                self.services.ledger.let_go(claim, ended=attempt.ended)

    def _unless_overtaken(
        self, claim: Claim, message: Message, end: Callable[[], Outcome], *, begun: Callable[[], bool] = lambda: True
    ) -> Outcome:
        """The outcome, or that of a claim whose row another attempt has.

        If the processor had begun, the effects of both may have come in the wrong order. That is not known if AWS did
        not answer, and the worker's message may be acknowledged by now.
        """

        def is_late() -> bool:
            return begun() and self.runner.writes and self.services.ledger.report_late_write(claim)

        try:
            return end()
        except AWS_ERRORS:
            if is_late():
                self._wake(claim, message)
            raise
        except Fenced as fenced:
            late = is_late()
            reason = Reason(ReasonCode.LEASE_LOST, str(fenced))
            wait = self.failures.backoff(claim.row.attempts)
            return Outcome(OutcomeKind.FENCED, reason=reason, retry_after=wait, late_write=late)

    def _run(self, claim: Claim, message: Message, run: Run, holder: _Attempt | None) -> Outcome:
        """Do the work of the claim, and write how it ended. `holder` takes a commit that may be written later."""
        try:
            claim, work = self._work(claim)
            returned = None if work is None else self.runner.start(claim, work, run)
            if isinstance(returned, Started):
                return Outcome(OutcomeKind.STARTED, retry_after=returned.retry_after)
            commit = as_commit(returned)
        except Unchanged:
            return self._commit_again(claim, message)
        except KeyboardInterrupt:  # the process has to end
            raise
        except BaseException as error:
            # An exit or a cancelled task is a failure too. A claim that was lost before its work began is none.
            if isinstance(error, Fenced) and not run.begun:
                raise
            return self._settle(claim, message, error, Stage.PROCESSING if run.begun else Stage.OPENING)
        if holder and not commit.transact and run.counts is None:
            holder.held = claim, commit
            return Outcome(OutcomeKind.COMMITTED, healthy=True)
        return self._commit(claim, commit, message, run.counts)

    def _work(self, claim: Claim) -> tuple[Claim, Work | None]:
        """The work of the claim. Raises NotYet if another key holds its guard. Also as `Option.before_open`."""
        if claim.held is not None:
            raise claim.held
        work = self.kind.work(claim)
        if work is not None:
            for ask in self.hooks.before_open:
                claim = ask(claim) or claim
        return claim, work

    def _commit(self, claim: Claim, commit: Commit, message: Message, counts: RowCounts | None = None) -> Outcome:
        try:
            row = self.services.ledger.commit(claim, commit.identity, commit.transact, counts=counts)
        except (LateWriteFound, InvalidEffectError, TransactionRefused) as refused:
            return self._settle(claim, message, refused, Stage.COMMITTING)
        note = Reason(ReasonCode(row.reason_code), row.reason) if row.reason and row.reason_code else None
        return Outcome(OutcomeKind.COMMITTED, healthy=True, counts=counts, reason=note, row=row)

    def _commit_again(self, claim: Claim, message: Message) -> Outcome:
        """Commit a version whose content is committed. This shows nothing about the downstream."""
        return replace(self._commit(replace(claim, same_content=True), Commit(), message), healthy=None)

    def _settle(self, claim: Claim, message: Message, error: BaseException, stage: Stage, *, died: int = 0) -> Outcome:
        """Write the end of an attempt that raised this error. `died` is as for `settle`."""
        facts = self.failures.facts(message, stage, self.runner.package)
        outcome = call_died(error, facts, size=died) if died else ending(claim, error, facts)
        ledger = self.services.ledger
        reason = outcome.reason
        if reason is None:
            ledger.release(claim)
            raise LibraryError("S3 could not open the object", detail=repr(error)) from error
        at = facts.now + int((outcome.retry_after or 0) * 1000)
        # An event of Step Functions does not come again for the key, nor does a message with other content.
        ends_here = claim.change.execution is not None or may_be_another(claim.change, claim.row)
        waiter = None if ends_here else message.waiter
        match outcome.write:
            case Write.RELEASE:
                ledger.release(claim)
            case Write.ABANDON:
                ledger.abandon(claim, reason, begun=stage is not Stage.OPENING)
            case Write.FAIL:
                retry_at = None if outcome.at_once else at
                ledger.fail(
                    claim,
                    reason,
                    retry_at=retry_at,
                    counted=outcome.counted,
                    s3_error=outcome.s3_error,
                    waiter=waiter if retry_at else None,
                    alone=outcome.alone,
                )
            case Write.POSTPONE:
                ledger.postpone(claim, reason, until=at)
            case Write.WAIT:
                ledger.wait(claim, reason, retry_at=at, waiter=waiter)
            case Write.REJECT:
                outcome = self._reject(claim, message, outcome, reason)
        if outcome.unprocessed:
            self.services.telemetry.removed_unprocessed(
                claim.change, claim.row if stage is not Stage.OPENING else claim.seen
            )
        if outcome.keeps_copy:
            self.failures.keep_copy(claim.change, message, claim.seen)
        return outcome

    def _reject(self, claim: Claim, message: Message, outcome: Outcome, reason: Reason) -> Outcome:
        """Record a failure that is not retried. If the dead-letter queue does not take the copy, the row waits for it.

        The copy is sent first. If the worker dies in between, there are two copies and not none.
        """
        copied = self.failures.copy(claim.change, message, claim.row, reason.text, reason.code)
        self.services.ledger.reject(claim, reason, s3_error=outcome.s3_error, copied=copied)
        if copied.refusal is None:
            return outcome
        delay = max(0, copied.retry_at - self.services.clock()) / 1000
        return replace(outcome, kind=OutcomeKind.FAILED, reason=copied.refusal, retry_after=delay)

    def _report(self, claim: Claim, outcome: Outcome, message: Message, duration_ms: int) -> None:
        """Report how a claim ended, and wake the key after a late write."""
        self.services.telemetry.ended(claim, outcome.kind, outcome.reason, duration_ms=duration_ms)
        if outcome.waited_too_long:
            self.services.telemetry.waited_too_long()
        if outcome.becomes_long:
            self.services.telemetry.waits_long(claim)
        if outcome.counts is not None and outcome.counts.rejected:
            self.services.telemetry.rejected_rows(claim, outcome.counts)
        if outcome.late_write:
            self._wake(claim, message)

    def _wake(self, claim: Claim, message: Message) -> None:
        """Let the key be processed again after a late write.

        The late worker's own message was delivered again when its lease ended, and may be acknowledged by now. The
        worker has no time left to process, because its lease lasted as long as its invocation.
        """
        self.services.telemetry.late_write(claim)
        try:
            self.services.queues.wake(own_message(Origin.LATE, claim.change.bucket, claim.change.key))
        except Exception as error:  # noqa: BLE001 - the row records it, and the audit finds it
            self.services.telemetry.log_error("a late write was recorded and its key not woken", message.id, error)
