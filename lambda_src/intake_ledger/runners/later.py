"""The work is done elsewhere and answers later: an execution of a state machine, or anything that has a name.

A claim starts one execution, and its message returns to the queue. The messages of the key ask how the execution
stands. The first that sees its end records the outcome, under the fence of the claim.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Protocol, cast

from botocore.exceptions import ClientError

from intake_ledger.events.parser import own_message
from intake_ledger.executions.answer import commit_of
from intake_ledger.executions.decide import (
    ABORTED,
    MIN_POLL_MS,
    RUNNING,
    Action,
    Execution,
    decide,
    execution_name,
    poll_ms,
)
from intake_ledger.executions.state_machine import is_refused, is_throttled
from intake_ledger.ledger.dynamodb_table import AWS_ERRORS
from intake_ledger.ledger.ledger import Claim
from intake_ledger.protocol.change import Change, Origin
from intake_ledger.protocol.errors import EndedByPerson, Fenced, Unprocessable
from intake_ledger.protocol.row import Row, Status
from intake_ledger.protocol.utf8_json import json_text
from intake_ledger.protocol.verdict import Ruling, Verdict, is_another_message
from intake_ledger.runners import Run, Started, StartRefused

if TYPE_CHECKING:
    from intake_ledger.consumer.services import Services
    from intake_ledger.kinds import Work

RESERVE_SECONDS = 3.0
"""Time that a repeated start leaves to the answer to Lambda."""
UNKNOWN_SECONDS = 20
"""The wait after a request that failed."""
START_WAITS = (0.5, 1.0, 2.0, 4.0)
"""Seconds before a throttled start is sent again, within the invocation. The next delivery is minutes later."""
MAX_JUDGEMENTS = 4
"""A row that changes between an answer and the write is judged again this number of times."""


class Elsewhere(Protocol):
    """The place of the work. It knows names and texts, and neither rows nor kinds."""

    limit_ms: int
    """The limit of an execution."""
    longest_task_ms: int
    """The longest time for which a part of it runs on after it was stopped."""
    service: str
    """The service's name, for people."""
    most_bytes: int
    """The longest input."""
    stops_overtaken: bool
    """Stop an execution when a newer state of its key comes."""

    def start(self, name: str, given: str) -> str | None:
        """Start the execution with this name. If it was started before, that is a success.

        Returns:
            The text for the row to keep, so that the execution is found again. None: its name is enough.

        """

    def describe(self, name: str, kept: str | None) -> Execution | None:
        """The execution with this name. None: it was never started. `kept` is the text of its row."""

    def stop(self, name: str, kept: str | None) -> None:
        """Stop the execution with this name, with the error `OVERTAKEN`. A part of it may run on."""


@dataclass(frozen=True, slots=True)
class LaterClaim(Claim):
    """A claim that an earlier message made. `execution`: it has ended. None: it is to be started again."""

    execution: Execution | None = None
    continued: ClassVar = True


class Later:
    """Starts the executions of claims, and decides about rows whose execution may run."""

    package = ""
    writes = False

    def __init__(
        self, services: "Services", elsewhere: Elsewhere, *, sleep: Callable[[float], object] = time.sleep
    ) -> None:
        self._bucket = services.settings.bucket
        self._ledger = services.ledger
        if not self._ledger.outlived:
            raise TypeError("work that answers later needs a ledger with Policy(executions=True)")
        self._queues = services.queues
        self._telemetry = services.telemetry
        self._clock = services.clock
        self._jitter = services.jitter
        self._sleep = sleep
        self._elsewhere = elsewhere

    def start(self, claim: Claim, work: "Work", run: Run) -> object:
        """Start the execution of a claim, or give the outcome of an execution that has ended; see `Runner`."""
        if isinstance(claim, LaterClaim) and claim.execution is not None:
            # The execution of an earlier state may have ended. The state of the change is judged then.
            change = claim.change
            run.begun = run.judge_again = True
            same = change.identity == claim.state.identity and not is_another_message(change, claim.row)
            run.unless_committed = same and not change.asked_for
            try:
                return commit_of(claim.execution)
            except Exception as error:
                if (why := claim.row.pending_reason) is None:
                    raise
                raise EndedByPerson(why) from error
        name = execution_name(claim.key, claim.row.fence)
        with work, run.limit:
            request = work.request(repeated=isinstance(claim, LaterClaim))
        # A language whose numbers are floating-point may round the fence.
        request |= {"fenceText": str(request["fence"]), "intake": {"pk": claim.key.pk, "sk": claim.key.sk}}
        given, most = json_text(request, sort_keys=True), self._elsewhere.most_bytes
        run.begin()
        if (size := len(given.encode())) > most:
            service = self._elsewhere.service
            raise Unprocessable(f"the input of the execution has {size} bytes, {service} takes {most}")
        try:
            kept = self._start(name, given, run.remaining_seconds)
        except Exception as error:
            self._telemetry.log_error("an execution could not be started", name, error)
            if is_refused(error):
                # Other keys may be started while the service throttles. No key may while it refuses the role.
                raise StartRefused(error, healthy=None if is_throttled(error) else False) from error
            return Started(UNKNOWN_SECONDS)
        if kept is not None:
            self._keep_answer(claim, kept)
        return Started(poll_ms(0, self._elsewhere.limit_ms) / 1000)

    def _keep_answer(self, claim: Claim, kept: str) -> None:
        """Let the row keep the answer to a start. Without it, a later message finds the execution in another way."""
        try:
            self._ledger.keep_execution(claim, kept)
        except (Fenced, *AWS_ERRORS) as error:
            self._telemetry.log_error("the row has not kept the answer to a start", kept, error)

    def _start(self, name: str, given: str, remaining_seconds: Callable[[], float]) -> str | None:
        """Start an execution. A throttled start is repeated while there is time: it is the same request."""
        for wait in START_WAITS:
            try:
                return self._elsewhere.start(name, given)
            except ClientError as error:
                pause = wait * (0.5 + self._jitter())
                if not is_throttled(error) or remaining_seconds() < pause + RESERVE_SECONDS:
                    raise
                self._sleep(pause)
        return self._elsewhere.start(name, given)

    def concerns(self, change: Change) -> bool:
        """See `Runner`.

        If an execution was redriven, its effect may have come after a later claim. The row records that, and a message
        of its own wakes the key: the event would record it again at each delivery. Without a redrive, a later claim
        begins only after the execution and its tasks have ended.
        """
        ended = change.execution
        if ended is None or change.bucket != self._bucket:
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
        """Decide about a row that is BUSY because its execution may run; see `Runner`.

        Returns:
            A claim whose execution has ended, or is to be started. Otherwise a ruling. The row of a BUSY one has the
            time at which to ask again.

        """
        answer: Claim | Ruling = ruling
        for _ in range(MAX_JUDGEMENTS):
            if isinstance(answer, Claim) or answer.verdict is not Verdict.BUSY:
                return answer
            row = answer.row
            if row is None or not row.unfinished or row.waits:
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
        key = self._ledger.key_of(change)
        name = execution_name(key, row.fence)
        try:
            execution = self._elsewhere.describe(name, row.execution)
        except AWS_ERRORS as error:
            self._telemetry.log_error(f"{self._elsewhere.service} did not describe an execution", name, error)
            return _until(row, ruling, self._clock() + UNKNOWN_SECONDS * 1000)
        decision = decide(row, execution, now=self._clock(), longest_task_ms=self._elsewhere.longest_task_ms)
        claim = LaterClaim.of_row(key, change, row, row, decision.action.value)
        if decision.action is Action.WAIT:
            return _until(row, ruling, decision.until)
        if decision.action is Action.FINISH:
            return replace(claim, execution=execution)
        if decision.action in (Action.EXTEND, Action.RESUME):
            if execution is not None and execution.kept is not None:
                self._keep_answer(claim, execution.kept)
            until = self._keep(claim, decision.action, lease_ms)
            if decision.action is Action.EXTEND and self._stop_if_overtaken(claim, execution):
                until = min(until, self._clock() + MIN_POLL_MS)
            return _until(replace(row, waiter=change.waiter or row.waiter), ruling, until)
        answer: Claim | Ruling
        if decision.action is Action.START and row.pending_reason is not None:
            # A person has ended it before its start.
            return replace(claim, execution=Execution(name, ABORTED))
        if decision.action is Action.START and is_another_message(change, row):
            # The execution would get its content. Only the message that made the claim starts it.
            answer = replace(ruling, verdict=Verdict.REJECTED, why="a message with the same identity is not started")
        elif decision.action is Action.START:
            answer = self._ledger.take_over(claim, lease_ms=lease_ms)
        else:
            answer = self._ledger.claim_ended(change, lease_ms=lease_ms, ended=row.fence)
        self._telemetry.decided(change, answer, now=self._clock())
        return answer

    def _stop_if_overtaken(self, claim: Claim, execution: Execution | None) -> bool:
        """Stop an execution that runs, if its state is no longer current. True: it was asked to stop.

        Nothing depends on the answer. The next poll finds an execution that runs on. A state that is current again is
        processed again, without a lost attempt. An execution whose limit comes within `longest_task_ms` is not stopped:
        the newer state would begin no earlier.
        """
        if not self._elsewhere.stops_overtaken or execution is None or execution.status != RUNNING:
            return False
        age = self._clock() - claim.row.updated_at
        if self._elsewhere.limit_ms - age <= self._elsewhere.longest_task_ms:
            return False
        try:
            if not self._ledger.is_overtaken(claim):
                return False
            self._elsewhere.stop(execution.name, execution.kept or claim.row.execution)
        except AWS_ERRORS as error:
            self._telemetry.log_error("an overtaken execution was not stopped", execution.name, error)
            return False
        return True

    def _keep(self, claim: Claim, action: Action, lease_ms: int) -> int:
        """Extend the lease of an execution that runs. Returns the time of the next poll, in epoch milliseconds."""
        now = self._clock()
        wait = poll_ms(max(now - claim.row.updated_at, 0), self._elsewhere.limit_ms)
        if action is Action.RESUME:
            self._ledger.resume(claim, lease_ms=wait + lease_ms)
        else:
            self._ledger.extend(claim, lease_ms=wait + lease_ms)
        return now + wait


def _until(row: Row, ruling: Ruling, at: int) -> Ruling:
    """The ruling BUSY until this time, in epoch milliseconds."""
    return replace(ruling, row=replace(row, lease_until=at))
