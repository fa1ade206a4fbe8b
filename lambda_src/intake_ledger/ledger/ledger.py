"""Claim changes, and write the outcomes of claims: commit, failure, wait, rejection or release.

Timeline of a claim (F is the row's fence, and G a higher one; all writes are conditional, none reads first):

    a new key           insert F ─────────► processor ─► commit F
    the same event      insert refused: the row ─► judge_row: DUPLICATE
    an older event      insert refused: the row ─► judge_row ─► look ─► judge_state: STALE
    anything else       insert refused: the row ─► judge_row ─► look ─► judge_state ─► swap G ─► processor ─► commit G
    a worker that died  its lease ends; the message comes back and swaps in G; F of the dead worker is refused

`intake_ledger.protocol.verdict` decides on a row that was read. The write requires that the row is unchanged. A refused
write is not an error: the ledger judges the row that refused it.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import batched
from typing import ClassVar, Protocol, Self, cast

from intake_ledger.ledger.conditions import (
    PROCESSED,
    ConditionFailed,
    claim_untouched,
    lease_owned,
    no_late_writes,
    no_other_late_writes,
    row_unchanged,
    same_claim,
    tags_unchanged,
)
from intake_ledger.ledger.dynamodb_table import AWS_ERRORS, BATCH_STATEMENTS, LedgerTable
from intake_ledger.ledger.forgotten import UNCHECKED_MS, Forgotten
from intake_ledger.ledger.row_history import RowHistory
from intake_ledger.protocol import row as row_changes
from intake_ledger.protocol.change import Change, Origin, State, StateKind, may_be_directory_marker
from intake_ledger.protocol.errors import (
    Fenced,
    InvalidTransactionError,
    LateWriteFound,
    NotYet,
    ObjectGone,
    TransactionRefused,
)
from intake_ledger.protocol.handover import Element, check_transact
from intake_ledger.protocol.reasons import Reason
from intake_ledger.protocol.row import (
    CallMark,
    Copied,
    Ordering,
    Retention,
    Row,
    RowCounts,
    RowKey,
    Status,
    breaker_key,
    rejected_rows_partition,
    removed_partition,
    review_partition,
    row_from_attributes,
    row_key,
    success_key,
    waiting_partition,
)
from intake_ledger.protocol.verdict import (
    IN_TURN,
    Policy,
    Ruling,
    Verdict,
    is_forgotten,
    judge_row,
    judge_state,
    sent_at,
)

MAX_JUDGEMENTS = 5
"""A row is judged again when another attempt changed it in between. After this number, that attempt keeps the row."""
Look = Callable[[Change, Row | None], State | None]
"""Gives the state to process. None: the removal that the change reports is not shown."""
_LOOKS = 5
_LEFT_ALONE = frozenset({Status.PROCESSING, Status.LATER_FORMAT})
_NEW_KEY = Ruling(Verdict.ACCEPTED, "a new key")
_FORGOTTEN = Ruling(Verdict.FORGOTTEN, "its key was forgotten after the message was sent")


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to process one state of one object."""

    key: RowKey
    change: Change
    state: State
    row: Row
    """The row that this claim wrote."""
    seen: Row | None
    """The row that was judged before. None: there was none."""
    why: str = ""
    """The reason of the verdict ACCEPTED, for logs."""
    lock_fence: int | None = None
    """The fence of the lock of its key or group, which orders all attempts on it. None: this attempt has not taken one.
    """
    held: NotYet | None = None
    """Its guard is held by another key, so its work may not begin. The attempt ends with this error."""
    content: str | None = None
    """The time and the digest of its content, which the commit records. None: they are not known."""
    same_content: bool = False
    """The committed version has its content, so it is committed without a call."""

    verdict: ClassVar = Verdict.ACCEPTED
    continued: ClassVar = False
    """True if an earlier message made the claim. Its work may have been started under the fence of the row."""

    @classmethod
    def of_row(cls, key: RowKey, change: Change, row: Row, seen: Row | None = None, why: str = "") -> Self:
        """The claim that wrote this row, on the state that the row names."""
        return cls(key, change, row.state, row, seen, why)


@dataclass(frozen=True, slots=True)
class LedgerOptions:
    """The settings of one pipeline's ledger."""

    pipeline: str
    ordering: Ordering
    policy: Policy
    max_event_age_ms: int
    """The row of an older event may have expired, so such an event is not taken for new."""
    min_group: int = 2
    """The smallest number of claims or commits that are written together."""
    processor_version: str | None = None
    """The version of the processor's code, which each commit records. None: it is not known."""

    @property
    def retention(self) -> Retention:
        each_state = self.ordering is Ordering.EVERY_VERSION
        partition = rejected_rows_partition(self.pipeline)
        return Retention(self.policy.retention_ms // 1000, self.policy.keeps_rows, each_state, partition)


class Guard(Protocol):
    """Holds something for an attempt besides its row: the lock of a key, or a lease. A ledger has some or none."""

    just_in_time: bool
    """True if a claim may only be made when its processor can start."""

    def take(self, claim: Claim) -> Claim | Ruling:
        """Hold it for this claim. A ruling: another attempt holds it."""

    def with_commit(self, claim: Claim) -> Sequence[Element]:
        """Writes to the ledger's table that belong to the commit's transaction."""

    def still_holds(self, claim: Claim) -> bool:
        """False if another attempt has it."""

    def extended(self, claim: Claim, *, until: int) -> bool:
        """The lease of the claim was extended to this time. False: another attempt has it already."""

    def let_go(self, claim: Claim, *, ended: bool) -> None:
        """The attempt is over. `ended`: the row shows how. Otherwise its end could not be written."""


class FencingGuard(Guard, Protocol):
    """A guard that a kind brings. It orders the work of several rows."""

    def in_turn(self, key: str) -> str | None:
        """The name of what attempts on the key would wait for. Messages with the same name are handled in turn."""

    def fences(self, claim: Claim) -> Mapping[str, int]:
        """The fences that order its work, by the fields of the processor's argument.

        Raises:
            Fenced: The row does not hold it.

        """


@dataclass(slots=True)
class _Wish:
    """A change that wants a claim, with the row as it was seen last."""

    change: Change
    key: RowKey
    owner: str
    lease_ms: int
    row: Row | None = None
    seen: Row | None = None
    ended: int | None = None
    """The fence of an execution that has ended."""
    for_call: bool = False
    """The claim is for a call with other changes."""


class Ledger:
    """Claims changes, and writes the outcome of each claim on the condition that the claim is still owned.

    Every method raises botocore's ClientError or BotoCoreError if AWS does not answer. Do not acknowledge a message
    then. A method that ends a claim raises Fenced if the attempt no longer owns the claim. The next attempt decides
    then.
    """

    def __init__(
        self,
        table: LedgerTable,
        look: Look,
        options: LedgerOptions,
        *,
        clock: Callable[[], int],
        new_owner: Callable[[], str],
        row_history: RowHistory | None = None,
        forgotten: Forgotten | None = None,
        guards: Sequence[Guard] = (),
    ) -> None:
        """Make the ledger of one pipeline.

        Args:
            table: the table of the rows.
            look: gives the state that may be claimed now; see `Kind.look`.
            options: the settings of the pipeline.
            clock: gives epoch milliseconds.
            new_owner: gives a text that no other attempt has.
            row_history: knows whether an object without a row was never processed. That is unknown when omitted.
            forgotten: knows the keys that were forgotten. None was when omitted.
            guards: what an attempt must hold besides its row. Nothing when omitted.

        """
        self._table = table
        self._look = look
        self._new_owner = new_owner
        self.row_history = row_history or RowHistory()
        self._forgotten = forgotten or Forgotten()
        self._guards = guards
        self._options = options
        self._every_version = options.ordering is Ordering.EVERY_VERSION
        self._retention = options.retention
        self._committed = partial(
            row_changes.committed,
            retention=self._retention,
            processor_version=options.processor_version,
            tags=options.policy.tags,
        )
        self._committed_again = partial(
            row_changes.committed_again, retention=self._retention, tags=options.policy.tags
        )
        self._clock = clock

    def claim(self, change: Change, *, lease_ms: int, for_call: bool = False) -> Claim | Ruling:
        """Judge one change. Its verdict is ACCEPTED if the answer is a claim.

        A claim excludes all other attempts for `lease_ms` milliseconds. With `for_call`, it is for a call with other
        changes. Then a change that must run alone is BUSY.
        """
        self.row_history.begin()
        if self._options.ordering is Ordering.EVERY_VERSION and change.state is None:
            return Ruling(Verdict.STALE, "a removal that names no version: EVERY_VERSION has no row for it")
        is_new = change.state is not None and self._is_new(change)
        wish = _Wish(change, self.key_of(change), self._new_owner(), lease_ms, for_call=for_call)
        if (self._every_version or is_new) and self.is_forgotten(change, wish.key):
            if self._every_version:
                return self._of_forgotten(change)
            is_new = False  # only a look shows whether the key is used again
        if change.state is not None and is_new:
            return self._checked(self._take(wish, change.state, _NEW_KEY) or self._judge(wish))
        wish.row = self._table.get(wish.key)
        answer = self._judge(wish)
        return self._checked(answer) if self._every_version else self._guarded(answer)

    def _checked(self, answer: Claim | Ruling) -> Claim | Ruling:
        """The claim, if its key is not forgotten and all guards let it pass. Otherwise it is released.

        Only a look after the claim excludes that the key is forgotten between look and claim: its row shows the claim.
        A claim on a state that S3 has shown needs no such look.
        """
        if isinstance(answer, Claim):
            try:
                forgotten = self.is_forgotten(answer.change, answer.key)
            except AWS_ERRORS:
                with suppress(Fenced, *AWS_ERRORS):
                    self.release(answer)
                raise
            if forgotten:
                with suppress(Fenced):  # another attempt has the row already
                    self.release(answer)
                return _FORGOTTEN
        return self._guarded(answer)

    def _of_forgotten(self, change: Change) -> Ruling:
        """The ruling of a message whose key was forgotten. An execution of its own row may run, and only messages ask
        for its end. A worker that paused before its claim may have written it after the rows were removed, and died.
        """
        row = self.row_of(change)
        if row is None or row.status is not Status.PROCESSING:
            return _FORGOTTEN
        if not self.outlived:
            if not row.is_live(self._clock()):
                self._removed(change, row)
                return _FORGOTTEN
            if self._removed_at(change) is None:
                return _FORGOTTEN
        return Ruling(Verdict.BUSY, "its key was forgotten, and the claim of before decides", row)

    def _removed_at(self, change: Change) -> int | None:
        """When the key was forgotten, if its rows were removed after the message was sent."""
        return self._forgotten.removed_at(self.key_of(change).pk, sent_at(change))

    def _removed(self, change: Change, row: Row) -> bool:
        """Remove a claim that a worker wrote after the rows of its key were removed. False: it is of a newer use.

        `forget` looks at the rows a minute after it marks the key, so a newer use begins later.
        """
        if (removed_at := self._removed_at(change)) is None:
            return False
        same = change.state is not None and change.state.identity == row.identity
        if not same and row.first_claimed_at >= removed_at + UNCHECKED_MS:
            return False
        with suppress(ConditionFailed):  # it has changed, and its own message comes again
            self._table.delete(self.key_of(change), row_unchanged(row, self._clock()))
        return True

    def is_forgotten(self, change: Change, key: RowKey | None = None, *, unknown: bool = False) -> bool:
        """True if the key was forgotten after the message was sent. `unknown` is as for `is_forgotten`."""
        forgotten_at = self._forgotten.forgotten_at((key or self.key_of(change)).pk, sent_at(change))
        return forgotten_at is not None and is_forgotten(change, forgotten_at, unknown=unknown)

    def _guarded(self, answer: Claim | Ruling) -> Claim | Ruling:
        """The claim, if all guards let it pass. Otherwise it is released: its processor was not started."""
        if isinstance(answer, Ruling):
            return answer
        claim = answer
        for place, guard in enumerate(self._guards):
            try:
                taken = guard.take(claim)
            except AWS_ERRORS:
                with suppress(Fenced, *AWS_ERRORS):
                    self._give_back(claim, place)
                raise
            if isinstance(taken, Ruling):
                with suppress(Fenced):  # another attempt has the row already
                    self._give_back(claim, place)
                return taken
            claim = taken
        return claim

    def _give_back(self, claim: Claim, place: int) -> None:
        """Release a claim that the guard at this place did not let pass. The guards before it hold it."""
        for guard in self._guards[:place]:
            guard.let_go(claim, ended=True)
        self.release(claim)

    def claim_ended(self, change: Change, *, lease_ms: int, ended: int) -> Claim | Ruling:
        """`claim`, when the execution of the fence `ended` has ended. Its failed row may be claimed then."""
        wish = _Wish(change, self.key_of(change), self._new_owner(), lease_ms, ended=ended)
        wish.row = self._table.get(wish.key)
        answer = self._judge(wish)
        return self._checked(answer) if self._every_version else self._guarded(answer)

    def take_over(self, claim: Claim, *, lease_ms: int) -> Claim | Ruling:
        """Take over a claim under its fence, to start its execution again.

        The worker that made the claim can then neither release nor end it. It may have died before its guards held it.
        If they do not hold it now, no worker has started the execution, and the claim is released. Nor has one if the
        rows of the key were removed before the claim was written. Raises Fenced as `extend`.
        """
        if self._removed_at(claim.change) is not None:
            self.release(replace(claim, seen=None))
            return _FORGOTTEN
        until = self._clock() + lease_ms
        after = row_changes.extended(_continued(claim), lease_until=until, owner=self._new_owner())
        self._end(claim, after)
        return self._guarded(replace(claim, row=after))

    def resume(self, claim: Claim, *, lease_ms: int) -> None:
        """Take over the failed row of an execution that runs again, under its fence.

        Raises:
            Fenced: The row has changed since it was read.

        """
        now = self._clock()
        after = row_changes.resumed(_continued(claim), owner=self._new_owner(), now=now, lease_until=now + lease_ms)
        try:
            self._table.update(claim.key, claim.row, after, row_unchanged(claim.row, now))
        except ConditionFailed:
            raise Fenced(f"the failed row of {claim.key.pk} has changed") from None

    def let_go(self, claim: Claim, *, ended: bool) -> None:
        """Tell the guards that the attempt is over. Its work may go on elsewhere.

        Args:
            claim: the claim of the attempt.
            ended: whether the row shows how it ended, or that its work goes on.

        """
        for guard in self._guards:
            guard.let_go(claim, ended=ended)

    @property
    def table(self) -> LedgerTable:
        """The table of the rows. Options keep items of their own in it."""
        return self._table

    @property
    def outlived(self) -> bool:
        """True if the work of a claim may outlive its lease."""
        return self._options.policy.executions

    def claim_together(
        self, changes: Sequence[Change], *, lease_ms: int, for_call: bool = False
    ) -> list[Claim | Ruling | None]:
        """Judge the changes that report new keys, in few requests, since boto's cost is per request.

        `for_call` is as for `claim`.

        Returns:
            A claim or a ruling for each change. None: claim it alone. It needs a look at S3, has the key of an earlier
            change, is the only new one, AWS did not answer for it, or its ruling is one of `IN_TURN`.

        Raises:
            ClientError: AWS answered for no change. Also BotoCoreError.

        """
        if any(guard.just_in_time for guard in self._guards):
            return [None] * len(changes)
        self.row_history.begin()
        wishes = [
            _Wish(change, self.key_of(change), self._new_owner(), lease_ms, for_call=for_call) for change in changes
        ]
        together: dict[RowKey, _Wish] = {}
        for wish in wishes:
            if self._is_new(wish.change):
                together.setdefault(wish.key, wish)
        answers: dict[str, Claim | Ruling] = {}
        if len(together) >= self._options.min_group:
            for group in batched(together.values(), BATCH_STATEMENTS):
                try:
                    answers |= self._claim_group(group)
                except AWS_ERRORS:
                    if not answers:
                        raise
                    break  # the earlier groups stay claimed
        found: list[Claim | Ruling | None] = []
        for wish in wishes:
            answer = answers.get(wish.owner)
            try:
                found.append(None if answer is None else self._checked(answer))
            except AWS_ERRORS:
                found.append(None)  # it is released, and the others stay claimed
        return found

    def row_of(self, change: Change) -> Row | None:
        """The change's row. None: there is none."""
        return self._table.get(self.key_of(change))

    def has_row(self, change: Change) -> bool:
        """True if the key of the change has a row, or may have had one. In EVERY_VERSION, its version."""
        self.row_history.begin()
        if self.row_of(change) is not None:
            return True
        state = change.state
        if self._every_version and state is not None and state.kind is StateKind.DELETED:
            return self.row_of(replace(change, state=replace(state, kind=StateKind.OBJECT))) is not None
        if not (self._options.policy.deletes and change.reports_removal and self.row_history.all_rows_since() is None):
            return False
        # The row of an object whose removal is told may have expired. Otherwise the object that is shown is left out.
        shown = self._look(change, None)
        return shown is None or shown.removed

    def key_of(self, change: Change) -> RowKey:
        """The key of the change's row."""
        identity = change.state.identity if change.state else "absent"
        return row_key(self._options.pipeline, self._options.ordering, change.bucket, change.key, identity)

    def _claim_group(self, group: Sequence[_Wish]) -> dict[str, Claim | Ruling]:
        """Insert the rows in one request, read the rows that refused it in another, and judge those."""
        wanted = {wish.key: self._wanted(wish, cast("State", wish.change.state), _NEW_KEY) for wish in group}
        written = self._table.insert_many({key: row for key, (row, _) in wanted.items()})
        answers = {wish.owner: wanted[wish.key][1] for wish in group if wish.key in written}
        refused = [wish for wish in group if wish.key not in written]
        # From here on, an error must not cost the others their claims.
        with suppress(*AWS_ERRORS):
            items = self._table.get_items([wish.key for wish in refused]) if refused else {}
            for wish in refused:
                # An audit's mark alone is not a row. The single insert replaces it.
                if (present := row_from_attributes(items.get(wish.key, {}))) is not None:
                    wish.row = present
                    if isinstance(answer := self._judge(wish), Claim) or answer.verdict not in IN_TURN:
                        answers[wish.owner] = answer
        return answers

    def _is_new(self, change: Change) -> bool:
        # A removal always needs a look. Otherwise a forged or replayed message would remove an object that is there.
        if change.state is None or change.state.removed or self._may_be_skipped(change.key):
            return False
        late = change.event_time is None or change.event_time < self._clock() - self._options.max_event_age_ms
        return change.reported_as_new and not late

    def _judge(self, wish: _Wish) -> Claim | Ruling:
        """Judge the row, look at S3 if that is necessary, and swap. Judge again when the swap is refused."""
        change, policy = wish.change, self._options.policy
        for _ in range(MAX_JUDGEMENTS):
            row, now = wish.row, self._clock()
            ruling = judge_row(row, change, owner=wish.owner, now=now, executions=policy.executions, ended=wish.ended)
            ruling = ruling or _runs_alone(wish)
            if ruling is not None and ruling.verdict is Verdict.ACCEPTED and row is not None:
                return Claim.of_row(wish.key, change, row, wish.seen, ruling.why)
            shown = None
            if ruling is None:
                shown = self._state(change, row)
                if shown is None:
                    return Ruling(Verdict.STALE, "S3 does not show the removal that is reported", row)
                is_gone = shown.removed and not self._every_version and (row is None or _may_be_left(row))
                if (
                    is_gone
                    and self.is_forgotten(change, wish.key, unknown=True)
                    and (row is None or self._removed(change, row))
                ):
                    return _FORGOTTEN
                since = self.row_history.all_rows_since() if row is None else None
                complete = self._is_complete(row, shown)
                ruling = judge_state(
                    row, change, shown, now=self._clock(), policy=policy, all_rows_since=since, complete=complete
                )
            if shown is None or not (ruling.undone or ruling.verdict in (Verdict.ACCEPTED, Verdict.SETTLED)):
                return replace(ruling, row=row)
            answer = self._take(wish, shown, ruling)
            if isinstance(answer, Claim) and row is None and self._shows_another_state(answer):
                self._withdraw(wish, answer)
                continue
            if answer is not None:
                return answer
        return Ruling(Verdict.BUSY, "the row changed at every try", wish.row)

    def is_overtaken(self, claim: Claim) -> bool:
        """True if another state of the key is shown than the claimed one, and is to be processed. For LATEST only.

        A state that the processor is not told of stops no work: it would only leave the claimed one unprocessed.

        Raises:
            ClientError: S3 does not show the state. Also BotoCoreError.

        """
        shown = self._look(claim.change, claim.row)
        if shown is None or shown.identity == claim.state.identity:
            return False
        return self._options.policy.deletes or not shown.removed

    def _may_be_skipped(self, key: str) -> bool:
        """True if a state of this key may be skipped. Such a key is never claimed as new, because an empty object with
        this key leaves no row that shows a later state.
        """
        return not self._options.policy.directory_markers and may_be_directory_marker(key)

    def _shows_another_state(self, claim: Claim) -> bool:
        """True if another state of the key may have been skipped between the look and the first claim of the key."""
        if self._options.ordering is Ordering.EVERY_VERSION or not self._may_be_skipped(claim.change.key):
            return False
        shown = self._look(claim.change, None)
        return shown is None or shown.identity != claim.state.identity

    def _withdraw(self, wish: _Wish, claim: Claim) -> None:
        """Remove the row of a claim whose processor was not started, to judge its change without a row again."""
        wish.seen, wish.row = None, None
        try:
            self._table.delete(claim.key, lease_owned(claim.row))
        except ConditionFailed as refused:
            wish.row = refused.row

    def _is_complete(self, row: Row | None, shown: State) -> bool:
        """True if a key without a row has nothing downstream. Asked only for removals that may be no change then."""
        asks = self._options.policy.deletes and shown.removed and (row is None or row.never_begun)
        return asks and self.row_history.is_complete()

    def _take(self, wish: _Wish, state: State, ruling: Ruling) -> Claim | Ruling | None:
        """Replace the judged row by a claim or a settled row. None: `wish.row` is another row now."""
        row, answer = self._wanted(wish, state, ruling)
        try:
            if wish.row is None:
                self._table.insert(wish.key, row)
            else:
                must_equal = wish.change.letter_ms is not None
                unchanged = row_unchanged(wish.row, row.updated_at, must_equal=must_equal, settles=row.settled)
                self._table.update(wish.key, wish.row, row, unchanged)
        except ConditionFailed as refused:
            wish.seen, wish.row = wish.row, refused.row
            return None
        return answer

    def _state(self, change: Change, row: Row | None) -> State | None:
        """The state to process. None: S3 does not show the reported removal."""
        state = self._look(change, row)
        removed = state is not None and state.kind is StateKind.DELETED and (row is None or row.kind is not state.kind)
        if removed and self._options.policy.keeps_rows:
            self._let_expire(change, cast("State", state))
        return state

    def _let_expire(self, change: Change, deleted: State) -> None:
        """Let the row of a version expire after the version was permanently deleted."""
        options = self._options
        identity = replace(deleted, kind=StateKind.OBJECT).identity
        version_key = row_key(options.pipeline, options.ordering, change.bucket, change.key, identity)
        with suppress(ConditionFailed):  # the row does not exist, or an attempt works on it
            self._table.mark(
                version_key, {"expires_at": self._retention.expires_at(deleted.kind, self._clock())}, PROCESSED
            )

    def _wanted(self, wish: _Wish, state: State, ruling: Ruling) -> tuple[Row, Claim | Ruling]:
        """The row to write, and the answer if it is written: a claim, or what the processor is not told."""
        now, change, seen = self._clock(), wish.change, wish.row
        if ruling.undone and seen is not None:
            row = row_changes.removal_undone(seen, change, state, now=now, retention=self._retention)
            return row, replace(ruling, row=seen)
        if ruling.verdict is Verdict.SETTLED:
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
            return row, replace(ruling, row=seen, unprocessed=new)
        until = now + wish.lease_ms
        mark = CallMark.TOGETHER if wish.for_call else None
        row = row_changes.claimed(seen, change, state, owner=wish.owner, now=now, lease_until=until, call_mark=mark)
        return row, Claim(wish.key, change, state, row, seen, ruling.why)

    def commit(
        self,
        claim: Claim,
        commit: str | None = None,
        transact: Sequence[Element] = (),
        *,
        counts: RowCounts | None = None,
    ) -> Row:
        """Make the claimed state the committed one. Returns the committed row.

        Args:
            claim: the claim whose processor has finished.
            commit: the downstream's name for the effect, or its result. None is stored when omitted.
            transact: writes to other tables. They and the commit are carried out together or not at all.
            counts: the rejected rows of the file, as for `row_changes.committed`.

        Raises:
            InvalidTransactionError: `transact` is malformed. Nothing was written, and no attempt can succeed.
            Fenced: This attempt no longer owns the claim. The next attempt decides.
            LateWriteFound: It does, but another state was written late, or another message of the key had its effect
                while this work went on without the key. Fail the claim, so that it is processed again.
            TransactionRefused: DynamoDB refused `transact`. Nothing was written.

        """
        own = [element for guard in self._guards for element in guard.with_commit(claim)]
        if transact != () or own:
            check_transact(transact, self._table.name, own=len(own))
        now = self._clock()
        after = (
            self._committed_again(claim.row, now=now)
            if claim.same_content
            else self._committed(
                claim.row, commit, now=now, transactional=bool(transact), counts=counts, content=claim.content
            )
        )
        try:
            # The writes of `transact` cannot come before a late one. Any other effect may.
            owned = lease_owned(claim.row) if transact else no_other_late_writes(claim.row, claim.state.identity)
            if others := [*transact, *own]:
                token, clears = str(claim.row.lease_owner), bool(transact)
                self._table.update_with(
                    claim.key, claim.row, after, owned, others, token=token, clear_late_writes=clears
                )
            else:
                self._table.update(claim.key, claim.row, after, owned)
        except ConditionFailed as refused:
            if refused.row is not None and self._is_own_commit(refused.row, after):
                return after  # our own commit, repeated by the SDK after its answer was lost
            if _shows(refused.row, claim.row):
                raise LateWriteFound("an overtaken worker may have written another state after this effect") from None
            raise _fenced(claim) from None
        except InvalidTransactionError:
            raise  # no attempt can succeed, with or without the guards
        except TransactionRefused as refused:
            if refused.passing or all(guard.still_holds(claim) for guard in self._guards):
                raise
            if self.outlived:
                # No attempt takes the row by its lease. A person has redriven the execution after its failure.
                raise LateWriteFound("another message of the key may have had its effect meanwhile") from None
            raise _fenced(claim) from None
        return after

    def commit_together(self, commits: Sequence[tuple[Claim, str | None]]) -> dict[RowKey, Row]:
        """`commit` claims on different keys in few requests.

        Returns:
            The committed rows. Commit each other claim alone. That shows the reason: another attempt has the row, an
            answer was lost, or AWS refused the request.

        """
        now, committed = self._clock(), dict[RowKey, Row]()
        for group in batched(commits, BATCH_STATEMENTS):
            updates = {
                claim.key: (claim.row, self._committed(claim.row, commit, now=now, content=claim.content))
                for claim, commit in group
            }
            if len(group) >= self._options.min_group:
                with suppress(*AWS_ERRORS):
                    committed |= {key: updates[key][1] for key in self._table.commit_many(updates)}
        return committed

    def tagged(self, key: RowKey, row: Row, done: Sequence[str]) -> None:
        """Record that these versions of a row need no tag any more.

        A row that is claimed now is left alone: its commit names these versions again, and tags them again.
        """
        found: Row | None = row
        for _ in range(MAX_JUDGEMENTS):
            if found is None or found.status in _LEFT_ALONE or not set(done) & set(found.untagged):
                return
            after = row_changes.tagged(found, done, now=self._clock(), retention=self._retention)
            unchanged = tags_unchanged(found, expires=after.expires_at is not None)
            try:
                self._table.update(key, found, after, unchanged)
            except ConditionFailed as refused:
                found = refused.row
            else:
                return

    def untagged(self, key: RowKey, row: Row, reason: Reason) -> None:
        """Record why versions of a committed row have no tag yet. A row that has changed meanwhile stays as it is."""
        after = row_changes.untagged(row, reason)
        if after != row:
            with suppress(ConditionFailed):
                self._table.update(key, row, after, tags_unchanged(row, expires=False))

    def report_late_write(self, claim: Claim) -> bool:
        """Record that the processor of an overtaken claim may have written downstream after its successor.

        False: there is nothing to repair. In EVERY_VERSION a row has one state only, and a second write does no harm.
        """
        if self._options.ordering is Ordering.EVERY_VERSION:
            return False
        try:
            self._table.report_late_write(claim.key, claim.row)
        except ConditionFailed:
            return False
        return True

    def abandon(self, claim: Claim, reason: Reason, *, begun: bool) -> None:
        """Settle the row without a commit: the claimed version no longer exists, and no other state matters.

        Args:
            claim: the claim on the version.
            reason: stays if the version has no earlier one.
            begun: whether the processor had started. If not, the attempt is not counted.

        """
        partition = removed_partition(self._options.pipeline)
        after = row_changes.abandoned(
            claim.row,
            reason,
            seen=claim.row if begun else claim.seen,
            now=self._clock(),
            retention=self._retention,
            partition=partition,
        )
        self._end(claim, after)

    def fail(
        self,
        claim: Claim,
        reason: Reason,
        *,
        retry_at: int | None = None,
        counted: bool = True,
        s3_error: str | None = None,
        waiter: str | None = None,
        alone: bool = False,
    ) -> None:
        """Record a failure that is retried.

        Args:
            claim: the claim whose attempt failed.
            reason: the cause.
            retry_at: the time before which no message may retry, in epoch milliseconds. At once when omitted.
            counted: whether the failure counts as an attempt.
            s3_error: S3's code, if S3 refused the read of the object.
            waiter: the message that comes again, as in `Row`.
            alone: whether a call with other changes has died, so that the state runs alone from now on.

        """
        now, review = self._clock(), review_partition(self._options.pipeline, claim.key)
        row = _continued(claim)
        if not counted:
            # An execution that a person has redriven may have given its attempt back before.
            row = replace(row, attempts=max(row.attempts - 1, 0))
        row = replace(row, call_mark=CallMark.ALONE) if alone else row
        after = row_changes.failed(
            row, reason, review_partition=review, now=now, retry_at=retry_at, s3_error=s3_error, waiter=waiter
        )
        self._end(claim, after)

    def postpone(self, claim: Claim, reason: Reason, *, until: int) -> None:
        """Keep a claim whose work could not be started, with the reason. Its lease ends at `until`, in epoch ms."""
        self._end(claim, row_changes.postponed(_continued(claim), reason, lease_until=until))

    def wait(self, claim: Claim, reason: Reason, *, retry_at: int, waiter: str | None = None) -> None:
        """Record that the processor waits for a missing thing. It is retried at `retry_at`, in epoch milliseconds.

        `waiter` is as in `Row`.
        """
        row, partition = _continued(claim), waiting_partition(self._options.pipeline)
        now = self._clock()
        after = row_changes.waiting(row, reason, partition=partition, now=now, retry_at=retry_at, waiter=waiter)
        self._end(claim, after)

    def reject(
        self, claim: Claim, reason: Reason, *, s3_error: str | None = None, copied: Copied | None = None
    ) -> None:
        """Record a failure that is not retried. Send the copy to the dead-letter queue *before*, with its fence.

        Args:
            claim: the claim whose attempt failed.
            reason: the cause.
            s3_error: S3's code, if S3 refused the read of the object.
            copied: the result of sending the copy. If the queue has not taken it, the row waits for that. None: no copy
                is sent.

        """
        review, row = review_partition(self._options.pipeline, claim.key), claim.row
        if copied is not None and copied.refusal is None:
            row = replace(row, etag=row_changes.copied_content(row, claim.change))
        after = row_changes.rejected(row, reason, review_partition=review, now=self._clock(), s3_error=s3_error)
        self._end(claim, row_changes.after_copy(after, copied) if copied else after)

    def reopen(self, change: Change) -> bool:
        """Let a rejected change be claimed again. Its row becomes FAILED, and its attempts are counted again.

        False: the row is not REJECTED, or another attempt has it. Nothing was changed.
        """
        key = self.key_of(change)
        row = self._table.get(key)
        for _ in range(MAX_JUDGEMENTS):
            if row is None or row.status is not Status.REJECTED:
                break
            now, review = self._clock(), review_partition(self._options.pipeline, key)
            after = row_changes.reopened(row, review_partition=review, now=now)
            try:
                self._table.update(key, row, after, row_unchanged(row, now))
            except ConditionFailed as refused:
                row = refused.row
            else:
                return True
        return False

    def exhausted_row(self, change: Change, seen: Row) -> Row:
        """The row that `exhaust` writes after the verdict EXHAUSTED. The dead-letter queue's copy quotes it."""
        review = review_partition(self._options.pipeline, self.key_of(change))
        return row_changes.exhausted(seen, change, review_partition=review, now=self._clock())

    def exhaust(self, change: Change, seen: Row, after: Row) -> bool:
        """Reject a row whose attempts all ended without an outcome. Send the copy to the dead-letter queue *before*.

        False: another attempt has taken the row meanwhile. Judge the change again.
        """
        try:
            unchanged = row_unchanged(seen, self._clock(), must_equal=change.letter_ms is not None)
            self._table.update(self.key_of(change), seen, after, unchanged)
        except ConditionFailed:
            return False
        return True

    def release(self, claim: Claim) -> None:
        """Give back a claim whose processor was not started, as if it had never been made."""
        if claim.seen is not None:
            self._put_back(claim, row_changes.released(claim.row, claim.seen))
            return
        try:
            self._table.delete(claim.key, lease_owned(claim.row))
        except ConditionFailed as refused:
            if refused.row is not None:
                raise _fenced(claim) from None

    def extend(self, claim: Claim, *, lease_ms: int) -> None:
        """Extend the lease of a claim to `lease_ms` milliseconds from now on.

        A lease that has ended is extended too, unless another attempt has the row.

        Raises:
            Fenced: As for `commit`. Also if the claim has ended.

        """
        until = self._clock() + lease_ms
        after = row_changes.extended(_continued(claim), lease_until=until)
        self._end(claim, after)
        # Afterwards: what took them before has not seen the longer lease.
        if not all(guard.extended(claim, until=until) for guard in self._guards):
            # A row that is extended alone would keep the message from its next attempt.
            with suppress(ConditionFailed):
                self._table.update(claim.key, after, claim.row, lease_owned(claim.row))
            raise _fenced(claim)

    def keep_execution(self, claim: Claim, execution: str) -> None:
        """Keep the answer to the start of the claim's execution; see `Row.execution`. Raises Fenced as `extend`."""
        self._end(claim, replace(claim.row, execution=execution))

    def last_success(self) -> tuple[int | None, int | None]:
        """The last success of any execution environment, and the last request of a person to close the circuit breaker.

        Times are in epoch milliseconds. None: there was none.
        """
        found = self._table.read(success_key(self._options.pipeline))
        return found.get("last_success_at"), found.get("retry_now_at")

    def tell_success(self, at: int) -> None:
        """Tell the other execution environments that a processor has succeeded, at this time in epoch milliseconds."""
        self._table.write(success_key(self._options.pipeline), {"last_success_at": at})

    def tell_breaker(self, content: Mapping[str, int | str]) -> None:
        """Record the state of a circuit breaker, for people. No decision reads it."""
        self._table.write(breaker_key(self._options.pipeline), content)

    def _is_own_commit(self, row: Row, written: Row) -> bool:
        """True if the row shows the commit that this attempt has written. A later attempt may have claimed it since.

        Another message may have committed the same execution, at another time.
        """
        same = not self.outlived or row.updated_at == written.updated_at
        return row.committed_fence == written.committed_fence and same

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
            if _shows(refused.row, after):
                return  # our own write, repeated by the SDK
            raise _fenced(claim) from None


def _may_be_left(row: Row) -> bool:
    """True if the row is the first claim of its key, and the attempt did not end."""
    return row.status is Status.PROCESSING and row.committed_state is None


def break_claim(table: LedgerTable, pipeline: str, key: RowKey, row: Row, reason: Reason, *, now: int) -> Row:
    """Take a claim from its worker before its lease ends, because a person knows that the worker is dead.

    If it is alive, it can do no more with this claim than after the end of its lease: its commit is refused, and a late
    effect is reported and repaired. The lock of a message's key is free, because its holder is not in work any more.

    Args:
        table: the ledger's table.
        pipeline: the pipeline's name.
        key: of the row.
        row: the claimed row, as the person has seen it. No execution may work for it.
        reason: says who has taken it.
        now: epoch milliseconds.

    Returns:
        The row after it.

    Raises:
        ConditionFailed: The attempt has ended, or its worker lives and has extended its lease.

    """
    after = row_changes.broken(row, reason, review_partition=review_partition(pipeline, key), now=now)
    table.update(key, row, after, claim_untouched(row))
    return after


def end_work(
    table: LedgerTable, pipeline: str, key: RowKey, row: Row, reason: Reason, *, now: int, may_run: bool
) -> Row:
    """Record that a person ends the work of an unfinished row for good. The next message rejects it, with its copy.

    Args:
        table: the ledger's table.
        pipeline: the pipeline's name.
        key: of the row.
        row: the row, as the person has seen it.
        reason: says who has ended it.
        now: epoch milliseconds.
        may_run: its execution exists, or may be started. False: no worker starts it any more, says the person.

    Returns:
        The row after it.

    Raises:
        ConditionFailed: Another attempt has the row, it has an outcome, or a message has continued it.

    """
    after = row_changes.ended(row, reason, review_partition=review_partition(pipeline, key), now=now, may_run=may_run)
    taken = row.status is Status.PROCESSING and not may_run
    table.update(key, row, after, claim_untouched(row) if taken else same_claim(row))
    return after


def _runs_alone(wish: _Wish) -> Ruling | None:
    """The ruling if the wish is for a call with other changes, and such a call has died with the row's state."""
    if not wish.for_call or wish.row is None or not wish.row.runs_alone:
        return None
    return Ruling(Verdict.BUSY, "a call with it has died, so it runs alone", wish.row)


def _continued(claim: Claim) -> Row:
    """The row of a claim whose work goes on. If the message of the claim is a wake, it comes again for the row."""
    waiter = claim.change.waiter
    return claim.row if waiter in (None, claim.row.waiter) else replace(claim.row, waiter=waiter)


def _shows(row: Row | None, written: Row) -> bool:
    """True if the row shows this attempt's own write."""
    return row is not None and _mark(row) == _mark(written)


def _mark(row: Row) -> tuple[object, ...]:
    # Two messages may record the end of one execution. Only the time tells the write of one from that of the other.
    return row.fence, row.status, row.lease_owner, row.updated_at


def _fenced(claim: Claim) -> Fenced:
    return Fenced(f"fence {claim.row.fence} of {claim.key.pk} is no longer current: the lease has ended")


class StateReader(Protocol):
    """The requests to the source of states. `intake_ledger.aws.Bucket` sends them."""

    def look_for(self, change: Change, row: Row | None) -> State: ...

    def created_at(self, key: str, marker: State) -> int | None: ...

    def shows_removal(self, key: str, removal: State) -> bool: ...


def object_states(reader: StateReader, ordering: Ordering) -> Look:
    """The look of a ledger of objects."""
    return partial(_any_version if ordering is Ordering.EVERY_VERSION else present_state, reader)


def present_state(reader: StateReader, change: Change, row: Row | None) -> State:
    """The present state of the key."""
    state = reader.look_for(change, row)
    for _ in range(_LOOKS):
        if row is not None or state.kind is not StateKind.MARKER:
            break
        # Only a key without a row is judged by its state's age.
        try:
            return replace(state, created_at=reader.created_at(change.key, state))
        except ObjectGone:
            state = reader.look_for(change, row)
    return state


def _any_version(reader: StateReader, change: Change, row: Row | None) -> State | None:
    """The state that a message names, if S3 shows it.

    A version needs no look here, because it is opened before the processor starts. Neither does a removal that has a
    row, because the row was written after a look.
    """
    state = change.state
    if state is None:
        return present_state(reader, change, row)
    if change.origin is Origin.TAG and row is not None:
        return row.state  # its event names no size
    if not state.removed or (row is not None and row.kind is state.kind) or reader.shows_removal(change.key, state):
        return state
    return None
