"""Describes rows, states and reports as text. Times are in epoch milliseconds."""

import re
from datetime import UTC, datetime

from intake_ledger.protocol.change import State, StateKind
from intake_ledger.protocol.row import Row, Settlement, Status
from intake_ledger_cli.aws.deployed import DeployedPipeline
from intake_ledger_cli.errors import UsageError
from intake_ledger_cli.show.console import many

_EVENT_MISSING = "its event is in transit, or was lost, and then the audit resubmits the key"
_MESSAGE_MISSING = "its message will be received again, or was lost, and then the audit resubmits the key"
_AGE = re.compile(r"(\d+)([smhd])")
_AGE_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_UNITS = (("days", 86_400_000), ("hours", 3_600_000), ("minutes", 60_000), ("seconds", 1_000))


def parse_age(option: str, text: str) -> int:
    """Parse an age such as `90s`, `15m`, `2h` or `3d` into milliseconds.

    Raises:
        UsageError: It is not an age.

    """
    match = _AGE.fullmatch(text)
    if match is None:
        raise UsageError(f"{option} {text} is not an age: use a number and s, m, h or d, such as 2h")
    return int(match[1]) * _AGE_MS[match[2]]


def duration(milliseconds: int) -> str:
    """Format a duration in its largest unit: "3 hours"."""
    for unit, size in _UNITS:
        if milliseconds >= size:
            return many(milliseconds // size, unit)
    return "less than a second"


def relative_time(then: int, now: int) -> str:
    """Format a time and its distance: "2026-11-21T20:01:02Z, 3 minutes ago"."""
    distance = f"in {duration(then - now)}" if then > now else f"{duration(now - then)} ago"
    return f"{timestamp(then)}, {distance}"


def epoch_ms(moment: datetime) -> int:
    """A time of boto3 in epoch milliseconds."""
    return int(moment.timestamp() * 1000)


def timestamp(then: int) -> str:
    """Format a time as RFC 3339 does, in UTC."""
    return f"{datetime.fromtimestamp(then / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"


def describe_state(shown: State, now: int) -> str:
    """Describe a state that S3 shows."""
    since = f", since {relative_time(shown.created_at, now)}" if shown.created_at is not None else ""
    version = f"version {shown.version_id}" if shown.version_id else f"ETag {shown.etag}"
    match shown.kind:
        case StateKind.OBJECT:
            size = f"{shown.size:,} bytes, " if shown.size is not None else ""
            return f"an object, {size}{version}{since}"
        case StateKind.MARKER:
            return f"removed: a delete marker{f', {version}' if shown.version_id else ''}{since}"
        case StateKind.DELETED:
            return f"{version} was permanently deleted{since}"
        case StateKind.ABSENT:
            return "no object"


def shown_status(row: Row) -> str:
    """The status of a row for people and programs: its end, if the object was removed unprocessed."""
    return "REMOVED" if row.removed_unprocessed else row.status.value


def listed_status(row: Row) -> str:
    """The status of a row in a list, as `list --status` takes it."""
    if row.status is Status.PROCESSING:
        return "STUCK"
    if row.status is Status.PROCESSED and not row.removed_unprocessed and row.rejected_rows:
        return "REJECTED-ROWS"
    return "DISMISSED" if row.dismissed else shown_status(row)


def shown_reason(row: Row) -> str:
    """The reason of a row for people, or its rejected rows."""
    number = row.rejected_rows
    return row.reason or (f"{number:,} of {row.read_rows or number:,} rows are rejected" if number else "")


def describe_status(row: Row, now: int, execution: str | None = None) -> str:  # noqa: PLR0911 - one for each status
    """Describe the status of a row and what follows. `execution` decides about it, if executions do the work."""
    if execution and row.status is Status.PROCESSING:
        return f"PROCESSING: attempt {row.attempts} is an execution, claimed {relative_time(row.updated_at, now)}"
    if row.is_live(now):
        ends = relative_time(row.lease_until or now, now)
        return f"PROCESSING: attempt {row.attempts} is running, its lease ends {ends}"
    if row.status is Status.PROCESSING:
        return f"PROCESSING: attempt {row.attempts} died or timed out, and its lease has ended"
    if row.status is Status.FAILED:
        due = f", next attempt {relative_time(row.retry_at, now)}" if row.retry_at and row.retry_at > now else ""
        if row.waiting_since:
            return f"FAILED: waits since {timestamp(row.waiting_since)}, and spends no attempt{due}"
        return f"FAILED: attempt {row.attempts} failed and will be retried{due}"
    if row.status is Status.LATER_FORMAT:
        return f"written by a later release (format {row.format}): use the command of that release"
    if row.status is Status.REJECTED:
        next_step = "dismissed, see: operations" if row.dismissed else "retry it"
        return f"REJECTED after {many(row.attempts, 'attempts')}: {next_step}"
    if row.removed_unprocessed:
        what = row.unprocessed_state or "the object"
        return f"REMOVED: {what} was removed before it was processed, after {many(row.attempts, 'attempts')}"
    if row.settled_as == Settlement.REMOVED_UNSEEN:
        return "PROCESSED: the removal of an object without a row, which was removed early or whose row had expired"
    recorded = "recorded without an attempt" if row.settled_as else "processed before a removal that was undone"
    return f"PROCESSED after {many(row.attempts, 'attempts')}" if row.attempts else f"PROCESSED: {recorded}"


def agreement(  # noqa: PLR0911 - one return per line of the rule
    row: Row | None, shown: State, deployed: DeployedPipeline, now: int, all_rows_since: int | None
) -> tuple[bool | None, str]:
    """Compare the ledger with S3 for one state, and explain the result.

    Args:
        row: of the ledger, if there is one.
        shown: the state that S3 shows.
        deployed: the pipeline.
        now: epoch milliseconds.
        all_rows_since: the time since when each processed object has a row, in epoch milliseconds; None if rows may be
            missing.

    Returns:
        True if they agree, and the explanation. None if a later release wrote the row.

    """
    if row is None:
        return _without_row(shown, deployed, now, all_rows_since)
    if row.status is Status.LATER_FORMAT:
        return None, "a later release wrote the row, and this release cannot judge it"
    if row.is_live(now):
        return True, "an attempt is processing it"
    if deployed.has_executions and row.status is Status.PROCESSING:
        return True, "an execution decides about it: the next message of the object, or the audit, asks how it stands"
    if row.has_committed(shown.identity):
        return True, "the ledger has committed the state that S3 shows"
    if row.identity != shown.identity or row.settled:
        difference = "S3 no longer has the object" if shown.removed else "S3 shows another state than the ledger's last"
        return False, f"{difference}: {_EVENT_MISSING}"
    if row.status is Status.PROCESSED:
        return False, "a late worker may have overwritten the result: the state will be processed again"
    if row.status is Status.REJECTED:
        then = ", which a person has dismissed" if row.dismissed else ": fix the cause, then retry it"
        return True, f"S3 shows the rejected state{then}"
    if row.status is Status.FAILED:
        rest = (row.retry_at or 0) - now
        goes_on = f"its next attempt is in {duration(rest)}" if rest > 0 else _MESSAGE_MISSING
        return False, f"S3 shows the state that {'waits' if row.waits else 'failed'}: {goes_on}"
    return False, f"its worker died: {_MESSAGE_MISSING}"


def _without_row(shown: State, deployed: DeployedPipeline, now: int, all_rows_since: int | None) -> tuple[bool, str]:
    if shown.kind is StateKind.ABSENT or (shown.removed and not deployed.deletes):
        return True, "neither S3 nor the ledger has an object"
    kept = deployed.retention_seconds * 1000
    # The row of a removal expires even if the ledger is complete.
    known_since = now - kept if all_rows_since is None or shown.removed else min(now - kept, all_rows_since)
    if shown.created_at is not None and shown.created_at < known_since:
        if all_rows_since is not None and not shown.removed:
            return True, "the object was uploaded before the ledger began, or before the current filters were deployed"
        kept_for = duration(kept)
        return True, f"the object is older than the ledger's retention ({kept_for}), which may have removed its row"
    return False, f"the ledger has no row: {_EVENT_MISSING}"
