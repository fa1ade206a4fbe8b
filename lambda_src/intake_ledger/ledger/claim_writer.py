"""Claim a change: insert a row, or look and swap.

Timeline of a claim (F is the row's fence, and G a higher one; all writes are conditional, none reads first):

    a new key           insert F ─────────► processor ─► commit F
    the same event      insert refused: the row ─► judge_row: DUPLICATE
    an older event      insert refused: the row ─► judge_row ─► HEAD ─► judge_state: STALE
    anything else       insert refused: the row ─► judge_row ─► HEAD ─► judge_state ─► swap G ─► processor ─► commit G
    a worker that died  its lease ends; the message comes back and swaps in G; F of the dead worker is refused

`intake_ledger.protocol.verdict` decides on a row that was read. The write requires that the row is unchanged. A refused
write is not an error: the ledger judges the row that refused it.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import batched
from typing import NamedTuple, Protocol, cast

from intake_ledger.ledger.claim import Claim, LedgerOptions
from intake_ledger.ledger.completeness import Completeness
from intake_ledger.ledger.conditions import PROCESSED, ConditionFailed, lease_owned, row_unchanged
from intake_ledger.ledger.dynamodb_table import AWS_ERRORS, BATCH_STATEMENTS, LedgerTable
from intake_ledger.protocol import (
    Change,
    ObjectGone,
    Ordering,
    Row,
    RowKey,
    Ruling,
    State,
    StateKind,
    Verdict,
    judge_row,
    judge_state,
    may_be_directory_marker,
    removed_partition,
    row_changes,
    row_from_attributes,
    row_key,
)

MAX_JUDGEMENTS = 5
"""A row is judged again when another attempt changed it in between. After this number, that attempt keeps the row."""


class StateReader(Protocol):
    """The requests of the ledger to S3. `intake_ledger.aws.Bucket` sends them."""

    @property
    def name(self) -> str: ...

    def look_for(self, change: Change, row: Row | None) -> State: ...

    def created_at(self, key: str, marker: State) -> int | None: ...

    def shows_removal(self, key: str, removal: State) -> bool: ...


class _Request(NamedTuple):
    change: Change
    key: RowKey
    owner: str
    lease_ms: int
    new: bool
    """True if it may be claimed without a look at S3, if the key has no row."""
    ended: int | None = None
    """The fence of an execution that has ended."""


class ClaimWriter:
    """Judges changes, and writes the claims of those that may be processed."""

    def __init__(
        self,
        table: LedgerTable,
        bucket: StateReader,
        options: LedgerOptions,
        *,
        clock: Callable[[], int],
        new_owner: Callable[[], str],
        completeness: Completeness,
    ) -> None:
        """Take the arguments of `Ledger`."""
        self._table = table
        self._bucket = bucket
        self._options = options
        self._retention = options.retention
        self._clock = clock
        self._new_owner = new_owner
        self._completeness = completeness

    def claim_ended(self, change: Change, *, lease_ms: int, ended: int) -> Claim | Ruling:
        """Judge one change whose row was read; see `Ledger.claim_ended`."""
        request = self._request(change, lease_ms)._replace(ended=ended)
        return self._judge(request, self._table.get(request.key))

    def claim(self, change: Change, *, lease_ms: int) -> Claim | Ruling:
        """Judge one change; see `Ledger.claim`."""
        self._completeness.begin()
        request = self._request(change, lease_ms)
        if self._options.ordering is Ordering.EVERY_VERSION and change.state is None:
            why = "a removal that names no version: EVERY_VERSION has no row for it"
            return Ruling(Verdict.STALE, why)
        if request.new and change.state is not None:
            answer = self._write(request, change.state, None, "a new key")
            return self._judge(request, answer.row) if isinstance(answer, ConditionFailed) else answer
        return self._judge(request, self._table.get(request.key))

    def claim_together(self, changes: Sequence[Change], *, lease_ms: int) -> list[Claim | Ruling | None]:
        """Judge the changes that report new keys; see `Ledger.claim_together`."""
        self._completeness.begin()
        requests = [self._request(change, lease_ms) for change in changes]
        together: dict[RowKey, _Request] = {}
        for request in requests:
            if request.new:
                together.setdefault(request.key, request)
        answers: dict[str, Claim | Ruling] = {}
        if len(together) >= self._options.min_group:
            for group in batched(together.values(), BATCH_STATEMENTS):
                try:
                    answers |= self._claim_group(group)
                except AWS_ERRORS:
                    if not answers:
                        raise
                    break  # the earlier groups stay claimed
        return [answers.get(request.owner) for request in requests]

    def _claim_group(self, group: Sequence["_Request"]) -> dict[str, Claim | Ruling]:
        """Insert the rows in one request, read the rows that refused it in another, and judge those.

        Returns the answers by owner.
        """
        wanted = {
            request.key: self._wanted(request, cast("State", request.change.state), None, "a new key")
            for request in group
        }
        written = self._table.insert_many({key: row for key, (row, _) in wanted.items()})
        answers = {request.owner: wanted[request.key][1] for request in group if request.key in written}
        refused = [request for request in group if request.key not in written]
        # From here on, an error must not cost the others their claims.
        with suppress(*AWS_ERRORS):
            items = self._table.get_items([request.key for request in refused]) if refused else {}
            for request in refused:
                # An audit's mark alone is not a row. The single insert replaces it.
                if (present := row_from_attributes(items.get(request.key, {}))) is not None:
                    answers[request.owner] = self._judge(request, present)
        return answers

    def _request(self, change: Change, lease_ms: int) -> "_Request":
        return _Request(change, change_key(self._options, change), self._new_owner(), lease_ms, self._is_new(change))

    def _is_new(self, change: Change) -> bool:
        # A removal always needs a look. Otherwise a forged or replayed message would remove an object that is there.
        if change.state is None or change.state.removed:
            return False
        if self._may_be_skipped(change.key):
            return False
        late = change.event_time is None or change.event_time < self._clock() - self._options.max_event_age_ms
        return change.reported_as_new and not late

    def _judge(self, request: "_Request", row: Row | None) -> Claim | Ruling:
        """Judge the row, look at S3 if that is necessary, and swap. Judge again when the swap is refused."""
        change = request.change
        seen: Row | None = None
        for _ in range(MAX_JUDGEMENTS):
            executions = self._options.policy.executions
            ruling = judge_row(
                row, change, owner=request.owner, now=self._clock(), executions=executions, ended=request.ended
            )
            if ruling is not None:
                if ruling.verdict is Verdict.ACCEPTED and row is not None:
                    return Claim.of_row(request.key, change, row, seen, ruling.why)
                return replace(ruling, row=row)
            shown = self._state(change, row)
            if shown is None:
                return Ruling(Verdict.STALE, "S3 does not show the removal that is reported", row)
            complete_since = self._completeness.complete_since() if row is None else None
            ruling = judge_state(
                row, change, shown, now=self._clock(), policy=self._options.policy, complete_since=complete_since
            )
            if ruling.verdict not in (Verdict.ACCEPTED, Verdict.SETTLED):
                return replace(ruling, row=row)
            answer = self._write(request, shown, row, ruling.why)
            if isinstance(answer, Claim) and row is None and self._is_overtaken(answer):
                answer = self._withdrawn(answer)
            if not isinstance(answer, ConditionFailed):
                return answer
            seen, row = row, answer.row
        return Ruling(Verdict.BUSY, "the row changed at every try", row)

    def _may_be_skipped(self, key: str) -> bool:
        """True if a state of this key may be skipped. Such a key is never claimed as new, because an empty object with
        this key leaves no row that shows a later state.
        """
        return not self._options.policy.directory_markers and may_be_directory_marker(key)

    def _is_overtaken(self, claim: Claim) -> bool:
        """True if another state of the key may have been skipped between the look and the first claim of the key."""
        if self._options.ordering is Ordering.EVERY_VERSION or not self._may_be_skipped(claim.change.key):
            return False
        return self._bucket.look_for(claim.change, None).identity != claim.state.identity

    def _withdrawn(self, claim: Claim) -> ConditionFailed:
        """Remove the row of a claim whose processor was not started, to judge its change without a row again."""
        try:
            self._table.delete(claim.key, lease_owned(claim.row))
        except ConditionFailed as refused:
            return refused
        return ConditionFailed(None)

    def _state(self, change: Change, row: Row | None) -> State | None:
        """The state to process: the present one in S3, or in EVERY_VERSION the state in the message.

        None: S3 does not show the reported removal.
        """
        if self._options.ordering is Ordering.EVERY_VERSION and change.state is not None:
            return change.state if self._is_shown(change.key, change.state, row) else None
        state = self._bucket.look_for(change, row)
        for _ in range(MAX_JUDGEMENTS):
            if row is not None or state.kind is not StateKind.MARKER:
                break
            # Only a key without a row is judged by its state's age.
            try:
                return replace(state, created_at=self._bucket.created_at(change.key, state))
            except ObjectGone:
                state = self._bucket.look_for(change, row)
        return state

    def _is_shown(self, key: str, state: State, row: Row | None) -> bool:
        """True if S3 shows the state that a message names.

        A version needs no look here, because it is opened before the processor starts. Neither does a removal that has
        a row, because the row was written after a look.
        """
        if not state.removed or (row is not None and row.kind is state.kind):
            return True
        if not self._bucket.shows_removal(key, state):
            return False
        if state.kind is StateKind.DELETED and self._options.policy.keeps_rows:
            self._let_expire(key, state)
        return True

    def _let_expire(self, key: str, deleted: State) -> None:
        """Let the row of a version expire after the version was permanently deleted."""
        options = self._options
        identity = replace(deleted, kind=StateKind.OBJECT).identity
        version_key = row_key(options.pipeline, options.ordering, self._bucket.name, key, identity)
        with suppress(ConditionFailed):  # there is no row, or an attempt works on it
            self._table.mark(
                version_key, {"expires_at": self._retention.expires_at(deleted.kind, self._clock())}, PROCESSED
            )

    def _write(self, request: "_Request", state: State, seen: Row | None, why: str) -> Claim | Ruling | ConditionFailed:
        """Replace the row that was judged by a claim or a settled removal. Insert it if there was no row."""
        row, answer = self._wanted(request, state, seen, why)
        try:
            if seen is None:
                self._table.insert(request.key, row)
            else:
                self._table.update(request.key, seen, row, row_unchanged(seen, now=row.updated_at))
        except ConditionFailed as refused:
            return refused
        return answer

    def _wanted(self, request: "_Request", state: State, seen: Row | None, why: str) -> tuple[Row, Claim | Ruling]:
        """The row to write, and the answer if it is written: a claim, or a removal that the processor is not told."""
        now, policy, change = self._clock(), self._options.policy, request.change
        if state.removed and not policy.deletes:
            row = row_changes.removal_recorded(
                seen,
                change,
                state,
                now=now,
                retention=self._retention,
                partition=removed_partition(self._options.pipeline),
                of_version=self._options.ordering is Ordering.EVERY_VERSION,
            )
            new = row.removed_unprocessed and not (seen is not None and seen.removed_unprocessed)
            return row, Ruling(Verdict.SETTLED, why, seen, unprocessed=new)
        until = now + request.lease_ms
        row = row_changes.claimed(seen, change, state, owner=request.owner, now=now, lease_until=until)
        return row, Claim(request.key, change, state, row, seen, why)


def change_key(options: LedgerOptions, change: Change) -> RowKey:
    """The key of the change's row."""
    identity = change.state.identity if change.state else "absent"
    return row_key(options.pipeline, options.ordering, change.bucket, change.key, identity)
