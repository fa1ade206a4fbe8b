"""The rule of the audit: whether the ledger agrees with the state that S3 shows. Pure functions.

A key is resubmitted unless a worker holds its row, its current state is committed and settled, or its current state was
rejected. The rule does not depend on the row's status alone: version 1 may be processed and version 2's event lost.

The same function names the line of the report that counts the state, so that report and judgement agree.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from intake_ledger.protocol.change import Skipped, State, StateKind
from intake_ledger.protocol.row import Row, Status


class _Described(StrEnum):
    """A name with a text for people."""

    _value_: str
    text: str

    def __new__(cls, name: str, text: str = "") -> Self:
        member = str.__new__(cls, name)
        member._value_, member.text = name, text
        return member


class Finding(_Described):
    """The reason why a key is resubmitted."""

    MISSING = "missing", "never reached the ledger"
    """The key has no row, and the state is not so old that its row has expired."""
    OVERTAKEN = "overtaken", "changed without the ledger's knowledge"
    """Another state than the current one was processed last."""
    UNSETTLED = "unsettled", "left half done"
    """The current state failed, its worker died, or a late worker may have written over it. No message seems left."""
    UNTAGGED = "untagged", "committed without their tag"
    """A version is committed, and its worker died before it set the tag of `after_commit`, or S3 has refused it."""
    REMOVED = "removed", "removed without the ledger's knowledge"
    """The object is gone, and no event reported it."""


class Line(_Described):
    """The lines of a report. Each state that S3 shows is in exactly one of them: see docs/audit.md."""

    AGREES = "agrees", "agree with the ledger"
    REJECTED = "rejected", "rejected"
    DISMISSED = "dismissed", "dismissed"
    SETTLING = "settling", "younger than the settle time"
    LEASED = "leased", "with a worker"
    NOT_YET = "notYet", "due for another attempt later"
    BASELINE = "baseline", "from before the pipeline"
    LOOK_BACK = "lookBack", "older than the look-back"
    FILTERS = "filters", "outside the filters"
    DIRECTORY_MARKERS = Skipped.DIRECTORY_MARKERS.value, "directory markers"
    EXCLUDED = Skipped.EXCLUDED.value, "left out by exclude"
    LATER_FORMAT = "laterFormat", "with a row of a later release"
    RESUBMITTED = "resubmitted", "resubmitted"
    MARKED = "marked", "resubmitted earlier"
    OVER_BUDGET = "overBudget", "left for the next run: the budget is used up"
    HELD_BACK = "heldBack", "held back: the age of the waiting messages is unknown"
    REFUSED = "refused", "refused by SQS"
    DRY_RUN = "dryRun", "found by a dry run"
    NOT_LOOKED = "notLookedAt", "not looked at"


WAITING = (Line.SETTLING, Line.LEASED, Line.NOT_YET)
"""Lines of states that are not judged yet."""
NOT_JUDGED = (
    *(Line.BASELINE, Line.LOOK_BACK, Line.FILTERS, Line.DIRECTORY_MARKERS, Line.EXCLUDED, Line.LATER_FORMAT),
    Line.NOT_LOOKED,
)
"""Lines of states that are not judged."""
NOT_SENT = (Line.MARKED, Line.OVER_BUDGET, Line.HELD_BACK, Line.REFUSED, Line.DRY_RUN)
"""Lines of differences for which the run sent no message."""


@dataclass(frozen=True, slots=True)
class Window:
    """The times between which states are judged, in epoch milliseconds."""

    settled_before: int
    """The event of a newer state may still be in transit."""
    known_since: int
    """An older object without a row was settled and its row has expired, or it is older than the pipeline."""
    undated: bool = True
    """True if states of unknown age are judged too. False while messages wait that are older than the settle time."""
    removals_since: int | None = None
    """The same as `known_since` for removals, whose rows always expire. None means `known_since`."""
    baseline: int = 0
    """The start of the pipeline's first run if the pipeline skips existing objects. Otherwise 0."""


@dataclass(frozen=True, slots=True)
class Mark:
    """The state that a run has resubmitted, and the time in epoch milliseconds."""

    identity: str
    at: int


def too_early(state: State, window: Window) -> bool:
    """True if the state's event may still be in transit."""
    if state.created_at is None:
        return not window.undated
    return state.created_at > window.settled_before


def judge(  # noqa: PLR0911 - one return per line of the rule
    row: Row | None, state: State, window: Window, *, now: int, deletes: bool, skipped: Skipped | None = None
) -> Finding | Line:
    """The finding on a key with this current state, or the line that counts the state.

    Args:
        row: the row of the state. None: there is none.
        state: as S3 shows it.
        window: the times between which states are judged.
        now: epoch milliseconds.
        deletes: true if the processor is told of removals.
        skipped: why the pipeline skips the state unless it has a row; see `Settings.skips`.

    """
    if row is None:
        return Line(skipped) if skipped else _without_row(state, window, deletes=deletes)
    if row.has_committed(state.identity):
        return Line.AGREES
    if too_early(state, window):
        return Line.SETTLING
    if row.status is Status.LATER_FORMAT:
        return Line.LATER_FORMAT
    if row.is_live(now):
        return Line.LEASED
    last_claimed = row.identity == state.identity
    if last_claimed and row.status is Status.REJECTED:
        return Line.DISMISSED if row.dismissed else Line.REJECTED
    if last_claimed and row.status is Status.FAILED and (row.retry_at or 0) > window.settled_before:
        # The next attempt is due later, or was due a moment ago. Its message still waits.
        return Line.NOT_YET
    if row.updated_at > window.settled_before:
        # A retry may be in transit. Or another state was settled a moment ago, and this state's event may follow.
        return Line.SETTLING
    if last_claimed and not row.settled:
        return Finding.UNSETTLED
    return Finding.REMOVED if state.removed else Finding.OVERTAKEN


def judge_tags(row: Row | None, window: Window) -> Finding | Line | None:
    """The finding on a row with versions whose tag is not set yet. None: it has none, or an attempt sets them."""
    if row is None or row.tags_pending is None or row.status not in (Status.PROCESSED, Status.REJECTED):
        return None
    return Line.SETTLING if row.updated_at > window.settled_before else Finding.UNTAGGED


def _without_row(state: State, window: Window, *, deletes: bool) -> Finding | Line:
    if too_early(state, window):
        return Line.SETTLING
    if state.kind is StateKind.ABSENT or (state.removed and not deletes):
        return Line.AGREES
    if state.created_at is None:
        # A delete marker that is younger than the listing. S3 returns no date for it.
        return Line.SETTLING
    since = window.known_since
    if state.removed and window.removals_since is not None:
        since = window.removals_since
    if state.created_at >= since:
        return Finding.MISSING
    return Line.BASELINE if state.created_at < window.baseline else Line.LOOK_BACK


def is_marked(mark: Mark | None, state: State, window: Window) -> bool:
    """True if a run has resubmitted this state so recently that its message may still be in transit."""
    return mark is not None and mark.identity == state.identity and mark.at > window.settled_before
