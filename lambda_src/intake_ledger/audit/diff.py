"""What the audit decides, as pure functions: whether the ledger agrees with the state that S3 shows.

One rule, whatever the row's status: a key is resubmitted unless somebody holds it, its current state is the committed
one and settled, or its current state is the one that was rejected. Looking only for missing, failed and stuck rows
would be blind: version 1 processed, version 2's event lost.

The same rule names the line of the report that counts the state, so the report cannot differ from the judgement.
"""

from dataclasses import dataclass
from enum import StrEnum

from intake_ledger.protocol import Row, State, StateKind, Status


class Finding(StrEnum):
    """Why a key is resubmitted."""

    MISSING = "missing"
    """The ledger has never heard of it, or has forgotten a state that is not old."""
    OVERTAKEN = "overtaken"
    """Another state than the current one was the last to be processed."""
    UNSETTLED = "unsettled"
    """The current state failed, its worker died, or an overtaken worker may have written over it; and no message seems
    to be left for it."""
    REMOVED = "removed"
    """The object is gone, and nobody reported it."""


class Line(StrEnum):
    """Where a report counts a state that S3 shows: each one in exactly one line."""

    AGREES = "agrees"
    """The ledger has committed the state, or there is nothing to process."""
    REJECTED = "rejected"
    """The ledger has rejected the state. A person decides about it."""
    SETTLING = "settling"
    """The state or its row is younger than the settle time, or than the oldest message that waits in the queue."""
    LEASED = "leased"
    """A worker holds the row."""
    NOT_YET = "notYet"
    """The state failed, or its processor raised `NotYet`, and the next attempt is due later."""
    BASELINE = "baseline"
    """The object has no row and was in the bucket before the pipeline, which skips existing objects."""
    LOOK_BACK = "lookBack"
    """The object has no row and is older than the look-back, in a ledger that is not complete."""
    FILTERS = "filters"
    """The pipeline's filters do not take the key."""
    LATER_FORMAT = "laterFormat"
    """A later release wrote the row."""
    RESUBMITTED = "resubmitted"
    """A difference for which the run sent a message."""
    MARKED = "marked"
    """A difference for which a message was sent earlier and may still wait in the queue."""
    OVER_BUDGET = "overBudget"
    """A difference for which the run's budget did not suffice."""
    HELD_BACK = "heldBack"
    """A difference for which nothing is sent, since the age of the messages in the queue is unknown."""
    REFUSED = "refused"
    """A difference whose message SQS did not take."""
    DRY_RUN = "dryRun"
    """A difference that a dry run found."""
    NOT_LOOKED = "notLookedAt"
    """A possible difference that the run did not look at, since time or the budget ran out or SQS took no messages."""


WAITING = (Line.SETTLING, Line.LEASED, Line.NOT_YET)
"""Lines of states that are not judged yet."""
NOT_JUDGED = (Line.BASELINE, Line.LOOK_BACK, Line.FILTERS, Line.LATER_FORMAT, Line.NOT_LOOKED)
"""Lines of states that are not judged at all."""
NOT_SENT = (Line.MARKED, Line.OVER_BUDGET, Line.HELD_BACK, Line.REFUSED, Line.DRY_RUN)
"""Lines of differences for which the run sent no message."""


@dataclass(frozen=True, slots=True)
class Window:
    """Between which times the audit trusts what it sees. Epoch milliseconds."""

    settled_before: int
    """What is newer may still have its event on the way."""
    known_since: int
    """An object that is older and has no row was settled, and its row has expired (or it was there before the
    pipeline)."""
    undated: bool = True
    """Whether states of unknown age are judged too: not while a message may wait that is older than the settle time."""
    removals_since: int | None = None
    """The same as `known_since` for removals, whose rows always expire; as for objects when omitted."""
    baseline: int = 0
    """When the pipeline's first run began, if the pipeline skips objects that were there before; otherwise 0."""


@dataclass(frozen=True, slots=True)
class Mark:
    """That a run has resubmitted a state, and when."""

    identity: str
    at: int


def too_early(state: State, window: Window) -> bool:
    """Whether the state's own message may still be on its way, whatever the row says."""
    if state.created_at is None:
        return not window.undated
    return state.created_at > window.settled_before


def judge(  # noqa: PLR0911 - one return per line of the rule
    row: Row | None, state: State, window: Window, *, now: int, deletes: bool
) -> Finding | Line:
    """The finding on a key whose current state is this one, or else the line that counts it."""
    if row is not None and row.has_committed(state.identity):
        return Line.AGREES
    if too_early(state, window):
        return Line.SETTLING
    if row is None:
        return _without_row(state, window, deletes=deletes)
    if row.status is Status.LATER_FORMAT:
        return Line.LATER_FORMAT
    if row.is_live(now):
        return Line.LEASED
    last_claimed = row.identity == state.identity
    if last_claimed and row.status is Status.REJECTED:
        return Line.REJECTED
    if last_claimed and row.status is Status.FAILED and (row.retry_at or 0) > window.settled_before:
        # Its next try is due later, or was due a moment ago: the message that brings it still waits.
        return Line.NOT_YET
    if row.updated_at > window.settled_before:
        # A retry is on its way, or another state was settled a moment ago and this one's event may follow.
        return Line.SETTLING
    if last_claimed and not row.settled:
        return Finding.UNSETTLED
    return Finding.REMOVED if state.removed else Finding.OVERTAKEN


def _without_row(state: State, window: Window, *, deletes: bool) -> Finding | Line:
    if state.kind is StateKind.ABSENT or (state.removed and not deletes):
        return Line.AGREES
    if state.created_at is None:
        # A delete marker that is younger than the listing: S3 gives no date for it.
        return Line.SETTLING
    since = window.known_since
    if state.removed and window.removals_since is not None:
        since = window.removals_since
    if state.created_at >= since:
        return Finding.MISSING
    return Line.BASELINE if state.created_at < window.baseline else Line.LOOK_BACK


def find(row: Row | None, state: State, window: Window, *, now: int, deletes: bool) -> Finding | None:
    """The finding on a key whose current state is this one, if there is any."""
    verdict = judge(row, state, window, now=now, deletes=deletes)
    return verdict if isinstance(verdict, Finding) else None


def is_marked(mark: Mark | None, state: State, window: Window) -> bool:
    """Whether a run has resubmitted this very state so recently that its message may still be on its way."""
    return mark is not None and mark.identity == state.identity and mark.at > window.settled_before
