"""Judge a request by its row. Pure functions."""

from enum import StrEnum

from intake_ledger.protocol.reasons import ReasonCode
from intake_ledger.protocol.row import Row, Status
from intake_ledger.protocol.ulids import made_at
from intake_ledger.requests.record import Command, Entry, RequestBatch


class Standing(StrEnum):
    """The ways in which a request stands."""

    OUTSTANDING = "outstanding"
    """No attempt has begun for it."""
    IN_WORK = "in work"
    """The row is unfinished. Its message or the audit continues it, and the end shows how the request stands."""
    SERVED = "served"
    """An attempt has begun for it. From then on the row has it, as any other work."""
    VOID = "void"
    """The object was replaced, processed or removed after the request. It counts as served."""
    NO_ROW = "no row"
    """S3 has to be asked."""
    LOST = "lost"
    """The content of the message is gone."""


class AfterStop(StrEnum):
    """The ways in which a request of a stopped operation stands. Each request has one."""

    BEGUN_BEFORE = "begunBefore"
    """An attempt had begun for it before the stop, or it was served or void at an audit before."""
    BEGUN_AFTER = "begunAfter"
    """An attempt has begun for it after the stop, or tried again: with a message that its consumer had already taken,
    or, of a redrive, with one that a later redrive has moved."""
    SERVED_LATER = "servedLater"
    """A later request of the key, or a change of it, was served. Whether this one was, is not known."""
    WITHDRAWN = "withdrawn"
    """Its message was withdrawn. Whether a later request takes it, is not known."""
    OUTSTANDING = "outstanding"
    """No attempt has begun for it. Its message is withdrawn when it is delivered."""
    COPIES_LOST = "copiesLost"
    """The content of its message is gone."""


def after_stop(row: Row | None, standing: Standing, batch: RequestBatch, stopped_at: int) -> AfterStop:
    """Tell how a request of a stopped operation stands. `stopped_at` is in epoch milliseconds."""
    if standing is Standing.LOST:
        return AfterStop.COPIES_LOST
    if standing is Standing.VOID:
        return AfterStop.SERVED_LATER
    if standing in (Standing.OUTSTANDING, Standing.NO_ROW) or row is None or row.status is Status.LATER_FORMAT:
        return AfterStop.OUTSTANDING
    if batch.command is Command.REPROCESS:
        ids = row.reprocess_id or "", row.served_reprocess_id or ""
        if batch.request_id not in ids:
            return AfterStop.SERVED_LATER if max(ids) > batch.request_id else AfterStop.OUTSTANDING
    # A state that was rejected or has failed before keeps the time of its first claim.
    begun_at = row.first_claimed_at if row.first_claimed_at >= made_at(batch.request_id) else row.fence
    return AfterStop.BEGUN_BEFORE if begun_at <= stopped_at else AfterStop.BEGUN_AFTER


def standing_of(row: Row | None, entry: Entry, batch: RequestBatch, *, requested_at: int, skew_ms: int) -> Standing:
    """Judge a request by its row.

    Args:
        row: its row. None: there is none.
        entry: the request.
        batch: its record.
        requested_at: the time of the request in epoch milliseconds.
        skew_ms: the largest difference between two clocks. An attempt that began within this time after the request
            may have begun before it.

    """
    if row is None:
        # A rejected row does not expire, so the object of a redrive was removed.
        return Standing.NO_ROW if batch.command is Command.REPROCESS else Standing.VOID
    if row.status in (Status.LATER_FORMAT, Status.PROCESSING):
        # A claim that is released restores the row as it was.
        return Standing.IN_WORK
    if batch.command is Command.REDRIVE:
        if row.status is not Status.REJECTED or row.rejected_fence != entry.fence:
            return Standing.SERVED
        return Standing.LOST if row.reason_code == ReasonCode.COPY_LOST else Standing.OUTSTANDING
    return _of_reprocess(row, batch.request_id, requested_at + skew_ms)


def _of_reprocess(row: Row, request_id: str, after: int) -> Standing:
    if max(row.reprocess_id or "", row.served_reprocess_id or "") >= request_id:
        return Standing.SERVED
    # Not the row's fence: a claim that was released has raised it and processed nothing.
    if max(row.committed_fence or 0, row.rejected_fence or 0) > after:
        return Standing.VOID
    return Standing.IN_WORK if row.unfinished else Standing.OUTSTANDING
