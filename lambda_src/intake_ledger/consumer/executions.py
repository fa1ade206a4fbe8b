"""The part of the consumer that lets executions of a state machine process the claims.

A claim starts one execution, and its message returns to the queue. The messages of the key ask Step Functions how the
execution stands, and the one that sees its end records the outcome, under the fence of the claim.
"""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import cast

from botocore.exceptions import ClientError

from intake_ledger.consumer.batch import RESERVE_SECONDS
from intake_ledger.consumer.failures import Outcome
from intake_ledger.consumer.object_call import Progress, Started, StartRefused
from intake_ledger.consumer.services import Services
from intake_ledger.events import own_message
from intake_ledger.executions import (
    Action,
    Execution,
    StateMachine,
    commit_of,
    decide,
    execution_input,
    execution_name,
    is_refused,
    is_throttled,
    poll_ms,
)
from intake_ledger.ledger import AWS_ERRORS, Claim, ExecutionLedger
from intake_ledger.protocol import Change, Fenced, Origin, OutcomeKind, Row, Ruling, Status, Verdict

UNKNOWN_SECONDS = 20
"""The wait after a request to Step Functions that failed."""
START_WAITS = (0.5, 1.0, 2.0, 4.0)
"""Seconds before a throttled start is sent again, within the invocation. The next delivery is minutes later."""
MAX_JUDGEMENTS = 4
"""A row that changes between the answer of Step Functions and the write is judged again this number of times."""


@dataclass(frozen=True, slots=True)
class EndedClaim(Claim):
    """A claim whose execution has ended. Its outcome is to be recorded."""

    execution: Execution | None = None


class Executions:
    """Starts the executions of claims, and decides about rows whose execution may run. It is the `ProcessorCall`."""

    package = ""
    writes = False

    def __init__(
        self, services: Services, machine: StateMachine, *, sleep: Callable[[float], object] = time.sleep
    ) -> None:
        self._settings = services.settings
        if not isinstance(services.ledger, ExecutionLedger):
            raise TypeError("a state machine as the processor needs an ExecutionLedger")
        self._ledger = services.ledger
        self._queues = services.queues
        self._telemetry = services.telemetry
        self._clock = services.clock
        self._jitter = services.jitter
        self._sleep = sleep
        self._machine = machine
        self._limit_ms = machine.settings.execution_seconds * 1000
        self._longest_task_ms = machine.settings.longest_task_seconds * 1000

    def __call__(
        self,
        claim: Claim,
        progress: Progress,
        *,
        limit: AbstractContextManager[None],  # noqa: ARG002 - an execution has a limit of its own
        remaining_seconds: Callable[[], float],
    ) -> object:
        """Start the execution of a claim, or give the outcome of one that has ended.

        Raises:
            Started: It was started, or it is unknown whether it was.
            StartRefused: It was not started, at least not by this call.

        """
        progress.begun = True
        if isinstance(claim, EndedClaim) and claim.execution is not None:
            return commit_of(claim.execution)
        name = execution_name(claim.key, claim.row.fence)
        given = execution_input(claim, pipeline=self._settings.pipeline, ordering=self._settings.ordering)
        try:
            self._start(name, given, remaining_seconds)
        except Exception as error:
            self._telemetry.log_error("an execution could not be started", name, error)
            if is_refused(error):
                # Other keys may be started while Step Functions throttles. No key may while it refuses the role.
                raise StartRefused(error, healthy=None if is_throttled(error) else False) from error
            raise Started(UNKNOWN_SECONDS) from error
        raise Started(poll_ms(0, self._limit_ms) / 1000)

    def _start(self, name: str, given: str, remaining_seconds: Callable[[], float]) -> None:
        """Start an execution. A throttled start is repeated while there is time: it is the same request."""
        for wait in START_WAITS:
            try:
                return self._machine.start(name, given)
            except ClientError as error:
                pause = wait * (0.5 + self._jitter())
                if not is_throttled(error) or remaining_seconds() < pause + RESERVE_SECONDS:
                    raise
                self._sleep(pause)
        return self._machine.start(name, given)

    def is_judged(self, change: Change) -> bool:
        """True if the end of an execution is reported that this pipeline has started. Its change is to be judged.

        If it was redriven, its effect may have come after a later claim. The row records that, and a message of its own
        wakes the key: the event would record it again at each delivery. Without a redrive, a later claim begins only
        after the execution and its tasks have ended.
        """
        ended = change.execution
        if ended is None or change.bucket != self._settings.bucket:
            return False
        key = self._ledger.key_of(change)
        if ended.name != execution_name(key, ended.fence):
            return False
        if ended.redriven and (state := change.state) is not None:
            row = Row(Status.PROCESSING, ended.fence, state.version_id, state.etag, state.size, state.kind)
            claim = Claim(key, change, state, row, None)
            if self._ledger.report_late_write(claim):
                self._telemetry.late_write(claim)
                self._queues.wake(own_message(Origin.LATE, change.bucket, change.key))
                return False
        return True

    def resolve(self, change: Change, ruling: Ruling, lease_ms: int) -> Claim | Ruling:
        """Decide about a row that is BUSY because its execution may run.

        Returns:
            A claim whose execution has ended, or is to be started. Otherwise a ruling. The row of a BUSY one has the
            time at which to ask again.

        """
        answer: Claim | Ruling = ruling
        for _ in range(MAX_JUDGEMENTS):
            if isinstance(answer, Claim) or answer.verdict is not Verdict.BUSY:
                return answer
            if answer.row is None or not answer.row.unfinished:
                return answer
            try:
                return self._decided(change, answer, lease_ms)
            except Fenced:
                # Another worker has recorded the outcome, or has taken the claim over.
                answer = self._ledger.claim(change, lease_ms=lease_ms)
                self._telemetry.decided(change, answer, now=self._clock())
        return answer

    def _decided(self, change: Change, ruling: Ruling, lease_ms: int) -> Claim | Ruling:
        row = cast("Row", ruling.row)
        name = execution_name(self._ledger.key_of(change), row.fence)
        try:
            execution = self._machine.describe(name)
        except AWS_ERRORS as error:
            self._telemetry.log_error("Step Functions did not describe an execution", name, error)
            return _until(row, ruling, self._clock() + UNKNOWN_SECONDS * 1000)
        decision = decide(row, execution, now=self._clock(), longest_task_ms=self._longest_task_ms)
        claim = Claim.of_row(self._ledger.key_of(change), change, row, row, decision.action.value)
        if decision.action is Action.WAIT:
            return _until(row, ruling, decision.until)
        if decision.action is Action.FINISH:
            return EndedClaim(claim.key, change, claim.state, row, row, claim.why, execution)
        if decision.action in (Action.EXTEND, Action.RESUME):
            return _until(row, ruling, self._keep(claim, decision.action, lease_ms))
        answer: Claim | Ruling
        if decision.action is Action.START:
            answer = self._ledger.take_over(claim, lease_ms=lease_ms)
        else:
            answer = self._ledger.claim_ended(change, lease_ms=lease_ms, ended=row.fence)
        self._telemetry.decided(change, answer, now=self._clock())
        return answer

    def _keep(self, claim: Claim, action: Action, lease_ms: int) -> int:
        """Extend the lease of an execution that runs. Returns the time of the next poll, in epoch milliseconds."""
        now = self._clock()
        wait = poll_ms(max(now - claim.row.updated_at, 0), self._limit_ms)
        if action is Action.RESUME:
            self._ledger.resume(claim, lease_ms=wait + lease_ms)
        else:
            self._ledger.extend(claim, lease_ms=wait + lease_ms)
        return now + wait

    @staticmethod
    def is_finished(change: Change, claim: Claim, outcome: Outcome) -> bool:
        """True if nothing remains to be judged for the change after this attempt.

        The execution of an earlier state may have ended. The state of the change is judged then.
        """
        if not isinstance(claim, EndedClaim):
            return not outcome.judge_again
        same = change.identity == claim.state.identity and not change.asked_for
        return outcome.kind is OutcomeKind.COMMITTED and same


def _until(row: Row, ruling: Ruling, at: int) -> Ruling:
    """The ruling BUSY until this time, in epoch milliseconds."""
    return replace(ruling, row=replace(row, lease_until=at))
