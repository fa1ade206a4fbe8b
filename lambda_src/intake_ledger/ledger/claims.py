"""The ledger: insert, or look and swap.

Timeline of a claim (F is the row's fence; all writes are conditional, none reads first):

    a new key           insert F ─────────► processor ─► commit F
    anything else       insert refused: the old row ─► judge ─► HEAD ─► judge ─► swap F+1 ─► processor ─► commit F+1
    a worker that died  its lease runs out; the message comes back and swaps in F+1; the dead one's F is refused

`intake_ledger.protocol.verdict` decides on a row that was read. The write requires that the row is unchanged. A refused
write is not an error: the ledger judges the row that refused it.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import batched
from typing import Protocol, cast

from botocore.exceptions import BotoCoreError, ClientError

from intake_ledger.ledger.completeness import Completeness, Incomplete
from intake_ledger.ledger.dynamodb_table import (
    BATCH_STATEMENTS,
    SETTLED,
    ConditionFailed,
    LedgerTable,
    lease_owned,
    no_late_writes,
    not_overwritten,
    row_unchanged,
)
from intake_ledger.ledger.transactions import Element
from intake_ledger.protocol import row as rows
from intake_ledger.protocol.change import Change
from intake_ledger.protocol.errors import Fenced, ObjectGone, Overwritten
from intake_ledger.protocol.object_state import State, StateKind
from intake_ledger.protocol.reasons import Reason
from intake_ledger.protocol.row import Ordering, Retention, Row, RowKey
from intake_ledger.protocol.verdict import Policy, Verdict, judge_row, judge_state

MIN_GROUP = 2
"""So many new keys are claimed, and so many claims committed, together."""

MAX_JUDGEMENTS = 5
"""Each further one means that somebody else won the row in between; then it is theirs for a while."""

_UNANSWERED = (BotoCoreError, ClientError)
"""AWS has refused a request, or could not be reached."""


class Looks(Protocol):
    """What the ledger asks of S3; `intake_ledger.aws.bucket.Bucket` is the real one."""

    @property
    def name(self) -> str: ...

    def look(self, key: str) -> State: ...

    def created_at(self, key: str, marker: State) -> int | None: ...

    def shows_removal(self, key: str, removal: State) -> bool: ...


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to process one state of one object."""

    key: RowKey
    change: Change
    state: State
    row: Row
    """As this claim wrote it."""
    seen: Row | None
    """As it was judged before."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The verdict on one change. `claim` goes with ACCEPTED; `row` is the row that was judged, where there was one."""

    verdict: Verdict
    why: str
    key: RowKey
    claim: Claim | None = None
    row: Row | None = None


@dataclass(frozen=True, slots=True)
class _Attempt:
    change: Change
    key: RowKey
    owner: str
    lease_ms: int
    new: bool
    """Whether it may be claimed without asking anybody, if there is no row."""


@dataclass(frozen=True, slots=True)
class LedgerOptions:
    """What one pipeline's ledger is told once."""

    pipeline: str
    ordering: Ordering
    policy: Policy
    max_event_age_ms: int
    """An event older than this may belong to a row that has expired: it is not trusted to be new."""

    @property
    def retention(self) -> Retention:
        return Retention(self.policy.retention_ms // 1000, self.policy.keeps_rows)


class Ledger:
    """Claims and their outcomes.

    `clock` gives epoch milliseconds, `new_owner` a text that no other attempt has. Every method raises botocore's
    ClientError (or a connection error) when AWS does not answer; then nothing may be acknowledged.
    """

    def __init__(
        self,
        table: LedgerTable,
        bucket: Looks,
        options: LedgerOptions,
        *,
        clock: Callable[[], int],
        new_owner: Callable[[], str],
        completeness: Completeness | None = None,
    ) -> None:
        self._table = table
        self._bucket = bucket
        self._options = options
        self._clock = clock
        self._new_owner = new_owner
        self._completeness = completeness or Incomplete()

    def claim(self, change: Change, *, lease_ms: int) -> Answer:
        """Answer one change. A claim excludes all others for `lease_ms` milliseconds."""
        self._completeness.begin()
        return self._claim(self._attempt(change, lease_ms))

    def claim_together(self, changes: Sequence[Change], *, lease_ms: int) -> list[Answer | None]:
        """Answer those that report new keys, in few requests, since boto's cost is per request.

        None stands for each that is better claimed alone: it must be looked up anyway, shares its key with an earlier
        one, is the only one, or AWS did not answer for it. Raises what AWS raises, where it answered for none.
        """
        self._completeness.begin()
        attempts = [self._attempt(change, lease_ms) for change in changes]
        together: dict[RowKey, _Attempt] = {}
        for attempt in attempts:
            if attempt.new:
                together.setdefault(attempt.key, attempt)
        answers: dict[str, Answer] = {}
        if len(together) >= MIN_GROUP:
            for few in batched(together.values(), BATCH_STATEMENTS):
                try:
                    answers |= self._claim_few(few)
                except _UNANSWERED:
                    if not answers:
                        raise
                    break  # what was claimed before stays claimed
        return [answers.get(attempt.owner) for attempt in attempts]

    def _claim_few(self, few: Sequence["_Attempt"]) -> dict[str, Answer]:
        """By owner: insert what is new in one request, read what is not in another, and judge that as always."""
        wanted = {one.key: self._wanted(one, cast("State", one.change.state), None) for one in few}
        written = self._table.insert_many({key: row for key, (row, _) in wanted.items()})
        answers: dict[str, Answer] = {}
        refused = []
        for one in few:
            if one.key in written:
                row, settle = wanted[one.key]
                state = cast("State", one.change.state)
                answers[one.owner] = self._answer(one, state, row, None, "a new key", settle=settle)
            else:
                refused.append(one)
        # From here on an error must not cost the others their claims.
        with suppress(*_UNANSWERED):
            found = self._table.get_items([one.key for one in refused]) if refused else {}
            for one in refused:
                # An audit's mark alone is no row: the single insert takes its place.
                if (row_found := rows.from_attributes(found.get(one.key, {}))) is not None:
                    answers[one.owner] = self._judge(one, row_found)
        return answers

    def _attempt(self, change: Change, lease_ms: int) -> "_Attempt":
        options = self._options
        key = rows.row_key(options.pipeline, options.ordering, change.bucket, change.key, change.identity or "absent")
        return _Attempt(change, key, self._new_owner(), lease_ms, self._is_new(change))

    def _claim(self, attempt: "_Attempt") -> Answer:
        change = attempt.change
        if self._options.ordering is Ordering.EVERY_VERSION and change.state is None:
            why = "a removal that names no version: EVERY_VERSION has no row for it"
            return Answer(Verdict.STALE, why, attempt.key)
        if attempt.new and change.state is not None:
            answer = self._write(attempt, change.state, None, "a new key")
            return answer if isinstance(answer, Answer) else self._judge(attempt, answer.row)
        return self._judge(attempt, self._table.get(attempt.key))

    def _judge(self, attempt: "_Attempt", row: Row | None) -> Answer:
        """Judge the row, look where that does not settle it, and swap; judge again when the swap is refused."""
        change, key = attempt.change, attempt.key
        seen: Row | None = None
        for _ in range(MAX_JUDGEMENTS):
            ruling = judge_row(row, change, owner=attempt.owner, now=self._clock())
            if ruling is not None:
                if ruling.verdict is Verdict.ACCEPTED and row is not None:
                    return Answer(ruling.verdict, ruling.why, key, _own_claim(key, change, row, seen), seen)
                return Answer(ruling.verdict, ruling.why, key, row=row)
            state = self._state(change, row)
            if state is None:
                return Answer(Verdict.STALE, "S3 does not show the removal that is reported", key, row=row)
            complete_since = self._completeness.complete_since() if row is None else None
            ruling = judge_state(
                row, change, state, now=self._clock(), policy=self._options.policy, complete_since=complete_since
            )
            if ruling.verdict not in (Verdict.ACCEPTED, Verdict.SETTLED):
                return Answer(ruling.verdict, ruling.why, key, row=row)
            answer = self._write(attempt, state, row, ruling.why)
            if isinstance(answer, Answer):
                return answer
            seen, row = row, answer.row
        return Answer(Verdict.BUSY, "the row changed at every try", key, row=row)

    def _is_new(self, change: Change) -> bool:
        # A removal is never believed without a look: a forged or replayed message would remove an object that is there.
        if change.state is None or change.state.removed:
            return False
        late = change.event_time is None or change.event_time < self._clock() - self._options.max_event_age_ms
        return change.reported_as_new and not change.asked_for and not late

    def _state(self, change: Change, row: Row | None) -> State | None:
        """The state to bring about: what S3 shows, or in EVERY_VERSION what the message names. None: a removal that S3
        does not show.
        """
        if self._options.ordering is Ordering.EVERY_VERSION and change.state is not None:
            return change.state if self._is_shown(change.key, change.state, row) else None
        state = self._bucket.look(change.key)
        for _ in range(MAX_JUDGEMENTS):
            if row is not None or state.kind is not StateKind.MARKER:
                break
            # Only a key without a row is judged by its state's age.
            try:
                return replace(state, created_at=self._bucket.created_at(change.key, state))
            except ObjectGone:
                state = self._bucket.look(change.key)
        return state

    def _is_shown(self, key: str, state: State, row: Row | None) -> bool:
        """Whether S3 shows the state that a message names. A version is opened before the processor starts, and a row
        of a removal was made after a look, so both need none here.
        """
        if not state.removed or (row is not None and row.kind is state.kind):
            return True
        if not self._bucket.shows_removal(key, state):
            return False
        if state.kind is StateKind.DELETED and self._options.policy.keeps_rows:
            self._let_expire(key, state)
        return True

    def _let_expire(self, key: str, deleted: State) -> None:
        """Let the row of a version expire that was deleted for good."""
        options = self._options
        identity = replace(deleted, kind=StateKind.OBJECT).identity
        row_key = rows.row_key(options.pipeline, options.ordering, self._bucket.name, key, identity)
        with suppress(ConditionFailed):  # there is none, or it is still in work
            self._table.mark(
                row_key, {"expires_at": options.retention.expires_at(deleted.kind, self._clock())}, SETTLED
            )

    def _write(self, attempt: "_Attempt", state: State, seen: Row | None, why: str) -> "Answer | ConditionFailed":
        """Swap in a claim (or a settled removal) for the row that was judged; without one, insert it."""
        row, settle = self._wanted(attempt, state, seen)
        try:
            if seen is None:
                self._table.insert(attempt.key, row)
            else:
                self._table.update(attempt.key, seen, row, row_unchanged(seen, row.updated_at))
        except ConditionFailed as refused:
            return refused
        return self._answer(attempt, state, row, seen, why, settle=settle)

    def _wanted(self, attempt: "_Attempt", state: State, seen: Row | None) -> tuple[Row, bool]:
        """The row to write, and whether it is settled by that: a removal that the processor does not hear of."""
        now, policy, change = self._clock(), self._options.policy, attempt.change
        if state.removed and not policy.deletes:
            return rows.settled(seen, change, state, now=now, retention=self._options.retention), True
        until = now + attempt.lease_ms
        return rows.claimed(seen, change, state, owner=attempt.owner, now=now, lease_until=until), False

    def _answer(
        self, attempt: "_Attempt", state: State, row: Row, seen: Row | None, why: str, *, settle: bool
    ) -> Answer:
        """The answer to an attempt whose row was written."""
        if settle:
            return Answer(Verdict.SETTLED, why, attempt.key, row=seen)
        claim = Claim(attempt.key, attempt.change, state, row, seen)
        return Answer(Verdict.ACCEPTED, why, attempt.key, claim, seen)

    def commit(self, claim: Claim, commit: str | None = None, transact: Sequence[Element] = ()) -> None:
        """Make the claimed state the committed one. `commit` is the downstream's name for the effect, `transact` what
        else is to be written, all of it together or nothing.

        Raises:
            Fenced: The claim is no longer this attempt's; whoever holds it now decides.
            Overwritten: It is, but another state was written late. Fail the claim: it has to be processed again.
            TransactionRefused: `transact` is in the way; nothing was written.

        """
        after = self._committed(claim, commit, transactional=bool(transact))
        try:
            if transact:
                token, held = str(claim.row.lease_owner), lease_owned(claim.row)
                self._table.update_with(claim.key, claim.row, after, held, transact, token=token)
            else:
                self._table.update(claim.key, claim.row, after, not_overwritten(claim.row))
        except ConditionFailed as refused:
            if refused.row is not None and refused.row.committed_fence == claim.row.fence:
                return  # our own commit, repeated by the SDK after its answer was lost
            if _owns(claim, refused.row):
                raise Overwritten("an overtaken worker may have written another state after this effect") from None
            raise _fenced(claim) from None

    def commit_together(self, commits: Sequence[tuple[Claim, str | None]]) -> list[Claim]:
        """`commit` claims on different keys in few requests; those come back that have still to be committed alone.

        That tells why: the claim may be another's by now, or an answer was lost, or AWS did not take the request.
        """
        left: list[Claim] = []
        for few in batched(commits, BATCH_STATEMENTS):
            written: set[RowKey] = set()
            if len(few) >= MIN_GROUP:
                with suppress(*_UNANSWERED):
                    written = self._table.commit_many(
                        {claim.key: (claim.row, self._committed(claim, commit)) for claim, commit in few}
                    )
            left += [claim for claim, _ in few if claim.key not in written]
        return left

    def _committed(self, claim: Claim, commit: str | None, *, transactional: bool = False) -> Row:
        retention = self._options.retention
        return rows.committed(claim.row, commit, now=self._clock(), retention=retention, transactional=transactional)

    def report_late_write(self, claim: Claim) -> bool:
        """Record that the processor of an overtaken claim may have written downstream after its successor.

        False: nothing has to be repaired. In EVERY_VERSION a row has one state only, and writing it again does no harm.
        """
        if self._options.ordering is Ordering.EVERY_VERSION:
            return False
        try:
            self._table.report_late_write(claim.key, claim.row)
        except ConditionFailed:
            return False
        return True

    def abandon(self, claim: Claim, reason: Reason) -> None:
        """Settle the row with nothing committed by this claim: its version is gone, and only it mattered.

        Raises:
            Fenced: As for `commit`.

        """
        self._end(claim, rows.abandoned(claim.row, reason, now=self._clock(), retention=self._options.retention))

    def fail(
        self,
        claim: Claim,
        reason: Reason,
        *,
        retry_at: int | None = None,
        counted: bool = True,
        s3_error: str | None = None,
    ) -> None:
        """Record a failure that will be tried again, by whatever message comes after `retry_at` (epoch milliseconds).
        One that is not `counted` spends nothing of the budget. `s3_error` is S3's code, where it refused the object.

        Raises:
            Fenced: As for `commit`.

        """
        now, review = self._clock(), self._review_partition(claim.key)
        row = claim.row if counted else replace(claim.row, attempts=claim.row.attempts - 1)
        self._end(
            claim, rows.failed(row, reason, review_partition=review, now=now, retry_at=retry_at, s3_error=s3_error)
        )

    def wait(self, claim: Claim, reason: Reason, *, retry_at: int) -> None:
        """Record that something is missing which the processor needs, and that it is tried again at `retry_at`.

        Raises:
            Fenced: As for `commit`.

        """
        partition = rows.waiting_partition(self._options.pipeline)
        self._end(claim, rows.waiting(claim.row, reason, partition=partition, now=self._clock(), retry_at=retry_at))

    def reject(self, claim: Claim, reason: Reason, *, s3_error: str | None = None) -> None:
        """Record a failure for good; the copy for the dead-letter queue was sent *before*, with `claim.row.fence`.

        Raises:
            Fenced: As for `commit`.

        """
        review = self._review_partition(claim.key)
        after = rows.rejected(claim.row, reason, review_partition=review, now=self._clock(), s3_error=s3_error)
        self._end(claim, after)

    def exhausted_row(self, key: RowKey, seen: Row) -> Row:
        """What `exhaust` will write over the row of an EXHAUSTED answer: the dead-letter queue's copy quotes it."""
        return rows.exhausted(seen, review_partition=self._review_partition(key), now=self._clock())

    def exhaust(self, key: RowKey, seen: Row, after: Row) -> bool:
        """Reject in the place of attempts that never came back; the copy for the dead-letter queue was sent *before*.

        False: somebody else took the row meanwhile, and the change has to be judged again.
        """
        try:
            self._table.update(key, seen, after, row_unchanged(seen, self._clock()))
        except ConditionFailed:
            return False
        return True

    def release(self, claim: Claim) -> None:
        """Give back a claim under which nothing was begun, as if it had never been made.

        Raises:
            Fenced: As for `commit`.

        """
        if claim.seen is not None:
            self._put_back(claim, rows.released(claim.row, claim.seen))
            return
        try:
            self._table.delete(claim.key, lease_owned(claim.row))
        except ConditionFailed as refused:
            if refused.row is not None:
                raise _fenced(claim) from None

    def last_success(self) -> int | None:
        """When any execution environment last told of a success, in epoch milliseconds; None when none ever did."""
        return self._table.last_success(self._success_key())

    def tell_success(self, at: int) -> None:
        """Tell the other execution environments that a processor has succeeded."""
        self._table.tell_success(self._success_key(), at)

    def _success_key(self) -> RowKey:
        # No row has it: those begin with a bucket's name and a slash. Without a status, no audit takes it for one.
        return RowKey(f"{self._options.pipeline}#downstream", "last_success")

    def _review_partition(self, key: RowKey) -> str:
        return rows.review_partition(self._options.pipeline, key)

    def _put_back(self, claim: Claim, after: Row) -> None:
        if after.expires_at is not None:
            # A late write that came meanwhile has to be repaired before the row may expire.
            with suppress(ConditionFailed):
                self._table.update(claim.key, claim.row, after, no_late_writes(claim.row))
                return
            after = replace(after, expires_at=None)
        self._end(claim, after)

    def _end(self, claim: Claim, after: Row) -> None:
        try:
            self._table.update(claim.key, claim.row, after, lease_owned(claim.row))
        except ConditionFailed as refused:
            row = refused.row
            if row is not None and (row.fence, row.status, row.lease_owner) == (
                after.fence,
                after.status,
                after.lease_owner,
            ):
                return  # our own write, repeated by the SDK
            raise _fenced(claim) from None


def _own_claim(key: RowKey, change: Change, row: Row, seen: Row | None) -> Claim:
    """The claim that a row shows to be this attempt's own."""
    return Claim(key, change, State(row.kind, row.version_id, row.etag, row.size), row, seen)


def _owns(claim: Claim, row: Row | None) -> bool:
    """Whether the row shows that the claim still holds."""
    return row is not None and (row.fence, row.lease_owner, row.status) == (
        claim.row.fence,
        claim.row.lease_owner,
        claim.row.status,
    )


def _fenced(claim: Claim) -> Fenced:
    return Fenced(f"fence {claim.row.fence} of {claim.key.pk} was overtaken: its lease had run out")
