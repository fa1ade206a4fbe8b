"""What the ledger answers, as pure functions of the row, the change and what S3 shows.

First the row alone is asked (`judge_row`); only where it does not settle the matter, S3 is looked at (`judge_state`).
"""

from dataclasses import dataclass
from enum import StrEnum

from intake_ledger.protocol.change import Change
from intake_ledger.protocol.object_state import State, StateKind
from intake_ledger.protocol.row import FORMAT, Row, Status

ARCHIVED = "InvalidObjectState"
"""S3's error code for an archived object that was not restored."""


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
    LATER_FORMAT = "LATER_FORMAT"
    """A later release wrote the row: try again when that one is deployed, never acknowledge."""


@dataclass(frozen=True, slots=True)
class Policy:
    """The numbers that judging depends on."""

    max_attempts: int
    """At least 2: an attempt may be wasted on a worker that dies before it starts."""
    retention_ms: int
    """How long the ledger remembers, in milliseconds."""
    deletes: bool
    """Whether the processor is told of removals."""
    keeps_rows: bool = False
    """Whether the row of an object stays as long as the object; see `intake_ledger.protocol.row.Retention`."""


@dataclass(frozen=True, slots=True)
class Ruling:
    """A verdict and the line of the table that it came from, for logs."""

    verdict: Verdict
    why: str


_NOT_COMMITTED = "this is the current state and it is not committed"


def judge_row(  # noqa: PLR0911 - one return per line of the table
    row: Row | None, change: Change, *, owner: str, now: int
) -> Ruling | None:
    """The verdict that the row alone allows, or None: S3 has to be looked at. `owner` is this attempt's own."""
    if row is None:
        return None
    if row.status is Status.LATER_FORMAT:
        return Ruling(Verdict.LATER_FORMAT, f"a later release wrote the row: its format is {row.format}, not {FORMAT}")
    if row.is_live(now):
        if row.lease_owner == owner:
            # The SDK repeated a write whose answer was lost, and its own first write refused it.
            return Ruling(Verdict.ACCEPTED, "our own claim, written before its answer was lost")
        return Ruling(Verdict.BUSY, "another attempt holds the key")
    if change.reprocess_id is not None:
        if row.served_reprocess_id is not None and change.reprocess_id <= row.served_reprocess_id:
            return Ruling(Verdict.DUPLICATE, "this reprocess request, or a later one, was served")
    elif row.has_committed(change.identity):
        return Ruling(Verdict.DUPLICATE, "this state is committed")
    return None


def judge_state(  # noqa: PLR0911 - one return per line of the table
    row: Row | None, change: Change, state: State, *, now: int, policy: Policy, complete_since: int | None = None
) -> Ruling:
    """The verdict on the state that S3 shows, whatever the message said. The first line that fits decides.

    In `EVERY_VERSION` the state is the one that the message names. `complete_since` says since when every object that
    was processed has a row, in epoch milliseconds: 0 is always, None is not at all.
    """
    if row is None:
        return _judge_without_row(change, state, now, policy, complete_since)
    if row.has_committed(state.identity):
        if change.reprocess_id is not None and change.reprocess_id > (row.served_reprocess_id or ""):
            return _bring_about(state, policy, "reprocessing was asked for")
        verdict = Verdict.DUPLICATE if change.identity == state.identity else Verdict.STALE
        return Ruling(verdict, "the current state is committed")
    if row.status is Status.PROCESSED and row.committed_state == state.identity:
        return _bring_about(
            state, policy, "this state is committed, and another one may have been written late over it"
        )
    if row.identity == state.identity:
        if row.status is Status.REJECTED and not _asks_for_a_round(change, row):
            return Ruling(Verdict.REJECTED, "this state was rejected, and nobody asked for another round")
        untold = state.removed and not policy.deletes
        if row.status is Status.FAILED and (row.retry_at or 0) > now and not change.asked_for and not untold:
            return Ruling(Verdict.BUSY, "this state failed, and its next attempt is not due yet")
        if row.unsettled and row.attempts >= policy.max_attempts and not untold:
            return Ruling(Verdict.EXHAUSTED, f"the last of {policy.max_attempts} attempts did not come back")
    return _bring_about(state, policy, _NOT_COMMITTED)


def _judge_without_row(change: Change, state: State, now: int, policy: Policy, complete_since: int | None) -> Ruling:
    """The lines for a key that the ledger knows nothing of, or has forgotten."""
    if state.kind is StateKind.ABSENT:
        if policy.deletes and complete_since != 0 and change.reports_removal and _is_young(change, now, policy):
            return Ruling(Verdict.ACCEPTED, "it was removed a short time ago, and its row may have expired before")
        return Ruling(Verdict.STALE, "nothing is there and nothing was known")
    if not change.asked_for and _may_have_expired(change, state, now, policy, complete_since):
        return Ruling(Verdict.STALE, "older than the retention: its row was settled and has expired")
    return _bring_about(state, policy, _NOT_COMMITTED)


def _bring_about(state: State, policy: Policy, why: str) -> Ruling:
    return Ruling(Verdict.SETTLED if state.removed and not policy.deletes else Verdict.ACCEPTED, why)


def _asks_for_a_round(change: Change, row: Row) -> bool:
    """Only a reprocess that has not had its round yet, the very copy that this rejection sent to the dead-letter queue,
    or the restore of the archived object that S3 refused: not a duplicate that comes late.
    """
    if _makes_readable(change, row):
        return True
    if change.rejected_fence is not None and change.rejected_fence == row.rejected_fence:
        return True
    return change.reprocess_id is not None and change.reprocess_id > (row.reprocess_id or "")


def _makes_readable(change: Change, row: Row) -> bool:
    """Whether the change is the restore of exactly the object that was rejected because it was archived.

    Once another attempt has ended, with whatever reason but that, a duplicate of the restore opens no further round.
    """
    return change.restored and row.s3_error == ARCHIVED and change.identity == row.identity


def _may_have_expired(change: Change, state: State, now: int, policy: Policy, complete_since: int | None) -> bool:
    """Whether a state without a row may have had one."""
    if change.restored and state.created_at is None:
        # In EVERY_VERSION nobody tells how old it is. An archived object is old.
        return True
    if state.created_at is None or state.created_at >= now - policy.retention_ms:
        return False
    if complete_since is not None and not state.removed and state.created_at >= complete_since:
        return False
    # A row of the reported state would have been committed after its event, and be there for at least the retention.
    # The restore of an archived object is not the event that made it.
    tells = change.is_event and not change.restored
    return not (tells and change.identity == state.identity and _is_young(change, now, policy))


def _is_young(change: Change, now: int, policy: Policy) -> bool:
    """Whether what the event reports happened within the retention."""
    return change.event_time is not None and change.event_time >= now - policy.retention_ms
