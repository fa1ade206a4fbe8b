"""What the audit decides, as pure functions: which state a listing shows, and whether the ledger agrees.

One rule, whatever the row's status: a key is resubmitted unless somebody holds it, its current state is the committed
one and settled, or its current state is the one that was rejected. Looking only for missing, failed and stuck rows
would be blind: version 1 processed, version 2's event lost.
"""

from dataclasses import dataclass
from enum import StrEnum

from intake_ledger.rows import Row, Status
from intake_ledger.states import State


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


def find(  # noqa: PLR0911 - one return per line of the rule
    row: Row | None, state: State, window: Window, *, now: int, deletes: bool
) -> Finding | None:
    """The finding on a key whose current state is this one, if there is any."""
    if row is not None and row.status is Status.LATER_FORMAT:
        return None
    if too_early(state, window):
        return None
    if row is None:
        if state.removed and not deletes:
            return None
        since = window.known_since
        if state.removed and window.removals_since is not None:
            since = window.removals_since
        forgotten = state.created_at is None or state.created_at < since
        return None if forgotten else Finding.MISSING
    if row.is_live(now) or row.has_committed(state.identity):
        return None
    if row.updated_at > window.settled_before:
        # A retry is on its way, or another state was settled a moment ago and this one's event may follow.
        return None
    if row.identity == state.identity and row.status is Status.FAILED and (row.retry_at or 0) > window.settled_before:
        # Its next try is due later, or was due a moment ago: the message that brings it still waits.
        return None
    if row.identity == state.identity and not row.settled:
        return None if row.status is Status.REJECTED else Finding.UNSETTLED
    return Finding.REMOVED if state.removed else Finding.OVERTAKEN


def is_marked(mark: Mark | None, state: State, window: Window) -> bool:
    """Whether a run has resubmitted this very state so recently that its message may still be on its way."""
    return mark is not None and mark.identity == state.identity and mark.at > window.settled_before
