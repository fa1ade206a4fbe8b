"""The ledger: insert, or look and swap.

Timeline of a claim (F is the row's fence; all writes are conditional, none reads first):

    a new key           insert F ─────────► processor ─► commit F
    anything else       insert refused: the old row ─► judge ─► HEAD ─► judge ─► swap F+1 ─► processor ─► commit F+1
    a worker that died  its lease runs out; the message comes back and swaps in F+1; the dead one's F is refused

Every decision is made by `intake_ledger.verdicts` on a row that was read; the write that follows requires the row to be
that one still. A refused write is not an error: the row that refused it is judged in its turn.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from intake_ledger import rows
from intake_ledger.changes import Change
from intake_ledger.errors import Fenced
from intake_ledger.rows import Ordering, Row, RowKey
from intake_ledger.states import State, StateKind
from intake_ledger.table import LedgerTable, Refused, still_held, still_seen
from intake_ledger.verdicts import Policy, Verdict, judge_row, judge_state

MAX_JUDGEMENTS = 5
"""Each further one means that somebody else won the row in between; then it is theirs for a while."""


class Looks(Protocol):
    """What the ledger asks of S3; `intake_ledger.bucket.Bucket` is the real one."""

    def look(self, key: str) -> State: ...

    def created_at(self, key: str, marker: State) -> int | None: ...


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


@dataclass(frozen=True, slots=True)
class LedgerOptions:
    """What one pipeline's ledger is told once."""

    pipeline: str
    ordering: Ordering
    policy: Policy
    late_after_ms: int
    """An event older than this may belong to a row that has expired: it is not trusted to be new."""

    @property
    def retention_seconds(self) -> int:
        return self.policy.retention_ms // 1000


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
    ) -> None:
        self._table = table
        self._bucket = bucket
        self._options = options
        self._clock = clock
        self._new_owner = new_owner

    def claim(self, changes: Sequence[Change], *, lease_ms: int) -> list[Answer]:
        """Answer each change, in their order. A claim excludes all others for `lease_ms` milliseconds."""
        return [self._claim(change, lease_ms) for change in changes]

    def _claim(self, change: Change, lease_ms: int) -> Answer:  # noqa: PLR0911 - one return per way to end
        if self._options.ordering is Ordering.EVERY_VERSION and change.state is None:
            key = rows.row_key(self._options.pipeline, self._options.ordering, change.bucket, change.key, "absent")
            return Answer(Verdict.STALE, "a removal that names no version: EVERY_VERSION has no row for it", key)
        owner = self._new_owner()
        key = rows.row_key(self._options.pipeline, self._options.ordering, change.bucket, change.key, change.identity)
        attempt = _Attempt(change, key, owner, lease_ms)
        seen: Row | None = None
        if self._is_new(change) and change.state is not None:
            answer = self._write(attempt, change.state, None, "a new key")
            if isinstance(answer, Answer):
                return answer
            row = answer.row
        else:
            row = self._table.get(key)
        for _ in range(MAX_JUDGEMENTS):
            ruling = judge_row(row, change, owner=owner, now=self._clock())
            if ruling is not None:
                if ruling.verdict is Verdict.ACCEPTED and row is not None:
                    return Answer(ruling.verdict, ruling.why, key, _own_claim(key, change, row, seen), seen)
                return Answer(ruling.verdict, ruling.why, key, row=row)
            state = self._state(change, row)
            ruling = judge_state(row, change, state, now=self._clock(), policy=self._options.policy)
            if ruling.verdict not in (Verdict.ACCEPTED, Verdict.SETTLED):
                return Answer(ruling.verdict, ruling.why, key, row=row)
            answer = self._write(attempt, state, row, ruling.why)
            if isinstance(answer, Answer):
                return answer
            seen, row = row, answer.row
        return Answer(Verdict.BUSY, "the row changed at every try", key, row=row)

    def _is_new(self, change: Change) -> bool:
        """Whether the change may be claimed without asking anybody, if there is no row."""
        late = change.event_time is None or change.event_time < self._clock() - self._options.late_after_ms
        return change.vouched and not change.asked_for and not late

    def _state(self, change: Change, row: Row | None) -> State:
        """The state to bring about: what S3 shows, or in EVERY_VERSION what the message names."""
        if self._options.ordering is Ordering.EVERY_VERSION and change.state is not None:
            return change.state
        state = self._bucket.look(change.key)
        if row is None and state.kind is StateKind.MARKER:
            # Only a key without a row is judged by its state's age.
            return replace(state, created_at=self._bucket.created_at(change.key, state))
        return state

    def _write(self, attempt: "_Attempt", state: State, seen: Row | None, why: str) -> "Answer | Refused":
        """Swap in a claim (or a settled removal) for the row that was judged; without one, insert it."""
        now, policy, change, key = self._clock(), self._options.policy, attempt.change, attempt.key
        settle = state.removed and not policy.deletes
        if settle:
            row = rows.settled(seen, change, state, now=now, retention_seconds=self._options.retention_seconds)
        else:
            row = rows.claimed(seen, change, state, owner=attempt.owner, now=now, lease_until=now + attempt.lease_ms)
        try:
            if seen is None:
                self._table.insert(key, row)
            else:
                self._table.update(key, seen, row, still_seen(seen, now))
        except Refused as refused:
            return refused
        if settle:
            return Answer(Verdict.SETTLED, why, key, row=seen)
        return Answer(Verdict.ACCEPTED, why, key, Claim(key, change, state, row, seen), seen)

    def commit(self, claim: Claim, commit: str | None = None) -> None:
        """Make the claimed state the committed one. `commit` is the downstream's name for the effect.

        Raises:
            Fenced: The claim is no longer this attempt's; whoever holds it now decides.

        """
        after = rows.committed(claim.row, commit, now=self._clock(), retention_seconds=self._options.retention_seconds)
        try:
            self._table.update(claim.key, claim.row, after, still_held(claim.row))
        except Refused as refused:
            if refused.row is not None and refused.row.committed_fence == claim.row.fence:
                return  # our own commit, repeated by the SDK after its answer was lost
            raise _fenced(claim) from None

    def abandon(self, claim: Claim, reason: str) -> None:
        """Settle the row with nothing committed by this claim: its version is gone, and only it mattered.

        Raises:
            Fenced: As for `commit`.

        """
        options = self._options
        self._end(
            claim, rows.abandoned(claim.row, reason, now=self._clock(), retention_seconds=options.retention_seconds)
        )

    def fail(self, claim: Claim, reason: str, *, retry_at: int | None = None) -> None:
        """Record a failure that will be tried again, by whatever message comes after `retry_at` (epoch milliseconds).

        Raises:
            Fenced: As for `commit`.

        """
        pipeline, now = self._options.pipeline, self._clock()
        self._end(claim, rows.failed(claim.row, reason, pipeline=pipeline, now=now, retry_at=retry_at))

    def reject(self, claim: Claim, reason: str) -> None:
        """Record a failure for good; the copy for the dead-letter queue was sent *before*, with `claim.row.fence`.

        Raises:
            Fenced: As for `commit`.

        """
        self._end(claim, rows.rejected(claim.row, reason, pipeline=self._options.pipeline, now=self._clock()))

    def exhausted_row(self, seen: Row) -> Row:
        """What `exhaust` will write over the row of an EXHAUSTED answer: the dead-letter queue's copy quotes it."""
        return rows.exhausted(seen, pipeline=self._options.pipeline, now=self._clock())

    def exhaust(self, key: RowKey, seen: Row, after: Row) -> bool:
        """Reject in the place of attempts that never came back; the copy for the dead-letter queue was sent *before*.

        False: somebody else took the row meanwhile, and the change has to be judged again.
        """
        try:
            self._table.update(key, seen, after, still_seen(seen, self._clock()))
        except Refused:
            return False
        return True

    def release(self, claim: Claim) -> None:
        """Give back a claim under which nothing was begun, as if it had never been made.

        Raises:
            Fenced: As for `commit`.

        """
        if claim.seen is not None:
            self._end(claim, rows.released(claim.row, claim.seen))
            return
        try:
            self._table.delete(claim.key, still_held(claim.row))
        except Refused as refused:
            if refused.row is not None:
                raise _fenced(claim) from None

    def _end(self, claim: Claim, after: Row) -> None:
        try:
            self._table.update(claim.key, claim.row, after, still_held(claim.row))
        except Refused as refused:
            row = refused.row
            if row is not None and (row.fence, row.status, row.owner) == (after.fence, after.status, after.owner):
                return  # our own write, repeated by the SDK
            raise _fenced(claim) from None


def _own_claim(key: RowKey, change: Change, row: Row, seen: Row | None) -> Claim:
    """The claim that a row shows to be this attempt's own."""
    return Claim(key, change, State(row.kind, row.version_id, row.etag, row.size), row, seen)


def _fenced(claim: Claim) -> Fenced:
    return Fenced(f"fence {claim.row.fence} of {claim.key.pk} was overtaken: its lease had run out")
