"""Give several claimed changes to one call of the processor, and end each of them by its own result.

See docs/protocol.md, "Several changes in one call". A change that has no result because its call died is not counted,
and is given alone from then on.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from intake_ledger.consumer.attempt import Attempts, Failures
from intake_ledger.consumer.batch import CLAIMED_RESERVE_SECONDS, RESERVE_SECONDS, Ahead, Batch, HeldCommit
from intake_ledger.consumer.consumer import Groups, InTurn
from intake_ledger.consumer.downstream import Downstream
from intake_ledger.consumer.ending import Outcome, Stage
from intake_ledger.consumer.services import Services
from intake_ledger.events.parser import Message
from intake_ledger.kinds import Kind, Work
from intake_ledger.ledger.ledger import Claim
from intake_ledger.processor.object_change import Commit, as_commit
from intake_ledger.protocol.change import Change
from intake_ledger.protocol.errors import WrongReturnError
from intake_ledger.protocol.handover import remaining_seconds
from intake_ledger.protocol.reasons import OutcomeKind
from intake_ledger.protocol.verdict import IN_TURN
from intake_ledger.runners import Ended, Run, SharedRunner


class Member(NamedTuple):
    """A change in a call."""

    message: Message
    claim: Claim
    work: Work | None
    """None: there is none, and the claim is committed."""


@dataclass(slots=True, eq=False)
class SharedCalls:
    """Claims changes of a batch for calls of several, and carries the calls out."""

    services: Services
    kind: Kind
    runner: SharedRunner
    attempts: Attempts
    failures: Failures
    downstream: Downstream
    groups: Groups
    in_turn: InTurn
    least: int = 2
    """The fewest changes of a call. Fewer run alone."""

    def run(self, batch: Batch) -> None:
        """Carry out calls until fewer than two changes are left for one. All other messages wait for their own turn.

        Messages that come first have their turn before.
        While the downstream is out, each change is tried alone: one failure then shows as much as a hundred.
        """
        self.in_turn.run(batch, [message for message in batch.messages if message.comes_first])
        joining = ((message, self._joins(message, batch)) for message in batch.messages)
        left = {message: change for message, change in joining if change is not None}
        while len(left) >= self.least and not self.downstream.breaker.is_open and batch.spare_ms(RESERVE_SECONDS) >= 0:
            members = self._fill(left, batch)
            if len(members) < self.least or batch.spare_ms(CLAIMED_RESERVE_SECONDS) < 0:
                # Each of them is started or released in its own turn.
                batch.ahead |= {member.message: Ahead(member.claim) for member in members}
                continue
            batch.returns.flush()
            self._call(members, batch)

    def _joins(self, message: Message, batch: Batch) -> Change | None:
        """The change of the message, if it may be in a call with others, as far as it shows. Its row may forbid it."""
        change, now = message.only_change, self.services.clock()
        if change is None or change.execution is not None or message.comes_first or message.due > now:
            return None
        # A last attempt has to show by itself how it ends.
        late = self.failures.is_given_up(message) or (message.last_try_at is not None and message.last_try_at <= now)
        return None if late else self.groups.admitted(message, batch)

    def _fill(self, left: dict[Message, Change], batch: Batch) -> list[Member]:
        """Claim the changes of the next call, and take them off those that are left for later calls.

        Messages that share a key are never in one call. Others take the places of those that were not claimed.
        """
        members, keys = list[Member](), set[str]()
        while (free := self.services.settings.max_per_call - len(members)) > 0:
            chosen = dict[Message, Change]()
            for message, change in left.items():
                if len(chosen) < free and change.key not in keys:
                    chosen[message] = change
                    keys.add(change.key)
            if not chosen:
                break
            for message in chosen:
                del left[message]
            members += self._claim(chosen, batch)
        return members

    def _claim(self, changes: Mapping[Message, Change], batch: Batch) -> list[Member]:
        """Claim the changes of a call. Rulings about the others are acted on in the turn of their messages."""
        members = []
        together = self.groups.claim(changes, batch, for_call=True)
        for (message, change), found in zip(changes.items(), together, strict=True):
            try:
                answer = found or self.services.ledger.claim(change, lease_ms=batch.lease_ms, for_call=True)
            except Exception as error:  # noqa: BLE001 - it is tried again in its own turn
                self.services.telemetry.log_error("a change could not be claimed", message.id, error)
                continue
            if not isinstance(answer, Claim) and answer.verdict in IN_TURN:
                continue
            self.services.telemetry.decided(change, answer, now=self.services.clock())
            if isinstance(answer, Claim):
                members.append(Member(message, answer, self.kind.work(answer)))
            else:
                batch.ahead[message] = Ahead(answer)
        return members

    def _call(self, members: Sequence[Member], batch: Batch) -> None:
        """Call the processor, and write how each change has ended. Commits come first, since others may take long."""
        started, limit = self.services.clock(), self.services.settings.processing_timeout_seconds
        worked = [member for member in members if member.work is not None]
        run = Run(
            self.attempts.limit(members[0].claim, limit),
            lambda: remaining_seconds(limit, self.services.clock() - started),
            partial(self._ask, worked) if self.attempts.hooks.before_open or self.attempts.hooks.before_start else None,
        )
        try:
            ends = self.runner.start_together([member.work for member in worked if member.work is not None], run)
        except BaseException:
            for member in members:
                self.services.ledger.let_go(member.claim, ended=False)
            raise
        duration_ms = self.services.clock() - started
        ended = {member.claim.key: (member, end) for member, end in zip(worked, ends, strict=True)}
        failed = list[tuple[Member, Ended]]()
        for claimed in members:
            member, end = ended.get(claimed.claim.key, (claimed, Ended()))
            if end.error is None:
                try:
                    commit = as_commit(end.returned)
                except WrongReturnError as wrong:
                    end.error = wrong
                else:
                    self._commit(member, commit, end, batch, duration_ms)
                    continue
            failed.append((member, end))
        if batch.held:
            self.groups.commit(batch)
        told = False
        for member, end in failed:
            outcome = self._fail(member, end, batch, duration_ms)
            # A call that died says something about the downstream once.
            if outcome is not None and not (end.died and told):
                change, told = member.claim.change, told or end.died > 0
                self.downstream.ended(change.key, outcome.healthy, outcome.reason, self.services.clock())

    def _ask(self, worked: list[Member], place: int) -> None:
        """Ask the options about the change at this place."""
        member = worked[place]
        worked[place] = member._replace(claim=self.attempts.before_call(member.claim, member.message))

    def _commit(self, member: Member, commit: Commit, end: Ended, batch: Batch, duration_ms: int) -> None:
        """Write a commit, or hold it until all results of the call are known: the sink has answered for all."""
        message, claim = member.message, member.claim
        if not commit.transact and end.counts is None and not self.kind.guards:
            batch.held.append(HeldCommit(message, claim, commit, self.services.clock(), duration_ms))
            batch.finish(message, None)
        else:
            self._end(member, batch, lambda: self.attempts.commit(claim, commit, message, duration_ms, end.counts))
        self.downstream.ended(claim.change.key, True, None, self.services.clock())

    def _fail(self, member: Member, end: Ended, batch: Batch, duration_ms: int) -> Outcome | None:
        """Write the end of a change without a commit. None: AWS did not take it."""
        stage, error = Stage.PROCESSING if end.begun else Stage.OPENING, end.error
        assert error is not None, "a change without an error is committed"
        settle = partial(self.attempts.settle, died=end.died, duration_ms=duration_ms)
        return self._end(member, batch, lambda: settle(member.claim, member.message, error, stage))

    def _end(self, member: Member, batch: Batch, write: Callable[[], Outcome]) -> Outcome | None:
        """Write an end, and finish its message. A change that is judged again has its own turn afterwards."""
        message = member.message
        try:
            outcome = write()
        except Exception as error:  # noqa: BLE001 - its lease runs out, and the message comes again
            self.services.telemetry.log_error("the end of a change could not be written", message.id, error)
            batch.finish(message, self.failures.in_time(message, self.failures.backoff(message.receives)))
            return None
        message.is_named |= outcome.retry_after is not None and outcome.kind is not OutcomeKind.FENCED
        if not outcome.judge_again:
            batch.finish(message, outcome.retry_after)
        return outcome
