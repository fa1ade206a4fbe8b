"""What the ledger answers, as pure functions of the row, the change and what S3 shows.

First the row alone is asked (`judge_row`); only where it does not settle the matter, S3 is looked at (`judge_state`).
"""

from dataclasses import dataclass
from enum import StrEnum

from intake_ledger.changes import Change
from intake_ledger.rows import Row, Status
from intake_ledger.states import State, StateKind


class Verdict(StrEnum):
    """The ledger's answer to a change."""

    ACCEPTED = "ACCEPTED"
    """Process it: the claim is yours."""
    DUPLICATE = "DUPLICATE"
    """It has taken effect already."""
    STALE = "STALE"
    """It is no longer the state of the key, and the state that is has taken effect."""
    BUSY = "BUSY"
    """Another attempt holds the key: try again later, never acknowledge."""
    REJECTED = "REJECTED"
    """It failed for good, and the row says why."""
    EXHAUSTED = "EXHAUSTED"
    """Its last permitted attempt never came back: reject it now."""
    SETTLED = "SETTLED"
    """A removal that the processor does not want to hear of was recorded."""


@dataclass(frozen=True, slots=True)
class Policy:
    """The numbers that judging depends on."""

    max_attempts: int
    """At least 2: an attempt may be wasted on a worker that dies before it starts."""
    retention_ms: int
    """How long the ledger remembers, in milliseconds."""
    deletes: bool
    """Whether the processor is told of removals."""


@dataclass(frozen=True, slots=True)
class Ruling:
    """A verdict and the line of the table that it came from, for logs."""

    verdict: Verdict
    why: str


def judge_row(row: Row | None, change: Change, *, owner: str, now: int) -> Ruling | None:
    """The verdict that the row alone allows, or None: S3 has to be looked at. `owner` is this attempt's own."""
    if row is None:
        return None
    if row.is_live(now):
        if row.owner == owner:
            # The SDK repeated a write whose answer was lost, and its own first write refused it.
            return Ruling(Verdict.ACCEPTED, "our own claim, written before its answer was lost")
        return Ruling(Verdict.BUSY, "another attempt holds the key")
    if change.reprocess_id is not None:
        if row.reprocessed_id is not None and change.reprocess_id <= row.reprocessed_id:
            return Ruling(Verdict.DUPLICATE, "this reprocess request, or a later one, was served")
    elif row.has_committed(change.identity):
        return Ruling(Verdict.DUPLICATE, "this state is committed")
    return None


def judge_state(  # noqa: PLR0911 - one return per line of the table
    row: Row | None, change: Change, state: State, *, now: int, policy: Policy
) -> Ruling:
    """The verdict on the state that S3 shows, whatever the message said. The first line that fits decides.

    In `EVERY_VERSION` the state is the one that the message names.
    """
    if row is None and state.kind is StateKind.ABSENT:
        return Ruling(Verdict.STALE, "nothing is there and nothing was known")
    if row is not None and row.has_committed(state.identity):
        if change.reprocess_id is not None and change.reprocess_id > (row.reprocessed_id or ""):
            return _bring_about(state, policy, "reprocessing was asked for")
        verdict = Verdict.DUPLICATE if change.identity == state.identity else Verdict.STALE
        return Ruling(verdict, "the current state is committed")
    if row is None and not change.asked_for and _forgotten(state, now, policy):
        return Ruling(Verdict.STALE, "older than the retention: its row was settled and has expired")
    if row is not None and row.identity == state.identity:
        if row.status is Status.REJECTED and not _asks_for_a_round(change, row):
            return Ruling(Verdict.REJECTED, "this state was rejected, and nobody asked for another round")
        untold = state.removed and not policy.deletes
        if row.status is Status.FAILED and (row.retry_at or 0) > now and not change.asked_for and not untold:
            return Ruling(Verdict.BUSY, "this state failed, and its next attempt is not due yet")
        if row.unsettled and row.attempts >= policy.max_attempts and not untold:
            return Ruling(Verdict.EXHAUSTED, f"the last of {policy.max_attempts} attempts did not come back")
    return _bring_about(state, policy, "this is the current state and it is not committed")


def _bring_about(state: State, policy: Policy, why: str) -> Ruling:
    return Ruling(Verdict.SETTLED if state.removed and not policy.deletes else Verdict.ACCEPTED, why)


def _asks_for_a_round(change: Change, row: Row) -> bool:
    """Only a reprocess that has not had its round yet, or the very copy that this rejection sent to the dead-letter
    queue: not a duplicate that comes late.
    """
    if change.rejected_fence is not None and change.rejected_fence == row.rejected_fence:
        return True
    return change.reprocess_id is not None and change.reprocess_id > (row.reprocess_id or "")


def _forgotten(state: State, now: int, policy: Policy) -> bool:
    return state.created_at is not None and state.created_at < now - policy.retention_ms
