"""What rows and states mean, in words. Pure; times are epoch milliseconds."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from intake_ledger.audit.diff import NOT_JUDGED, NOT_SENT, WAITING, Line
from intake_ledger.audit.report import WORDS
from intake_ledger.protocol.object_state import State, StateKind
from intake_ledger.protocol.row import Row, Status

if TYPE_CHECKING:
    from intake_ledger_cli.deployed import DeployedPipeline

_UNITS = (("day", 86_400_000), ("hour", 3_600_000), ("minute", 60_000), ("second", 1_000))


def duration(milliseconds: int) -> str:
    """A length of time in its largest unit: "3 hours"."""
    for unit, size in _UNITS:
        if milliseconds >= size:
            number = milliseconds // size
            return f"{number:,} {unit}{'' if number == 1 else 's'}"
    return "less than a second"


def relative_time(then: int, now: int) -> str:
    """A time, and how far away it is: "2026-11-21 20:01:02 UTC, 3 minutes ago"."""
    distance = f"in {duration(then - now)}" if then > now else f"{duration(now - then)} ago"
    return f"{timestamp(then)}, {distance}"


def timestamp(then: int) -> str:
    return f"{datetime.fromtimestamp(then / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"


def describe_state(shown: State, now: int) -> str:
    """What S3 shows."""
    since = f", since {relative_time(shown.created_at, now)}" if shown.created_at is not None else ""
    version = f"version {shown.version_id}" if shown.version_id else f"ETag {shown.etag}"
    match shown.kind:
        case StateKind.OBJECT:
            size = f"{shown.size:,} bytes, " if shown.size is not None else ""
            return f"an object, {size}{version}{since}"
        case StateKind.MARKER:
            return f"removed: a delete marker{f', {version}' if shown.version_id else ''}{since}"
        case StateKind.DELETED:
            return f"{version} was deleted for good{since}"
        case StateKind.ABSENT:
            return "nothing"


def describe_row(row: Row, now: int) -> list[tuple[str, str]]:
    """A row, as pairs of a label and its text; the first is the status."""
    if row.is_live(now):
        status = (
            f"PROCESSING: attempt {row.attempts} is at work, until {relative_time(row.lease_until or now, now)} at most"
        )
    elif row.status is Status.PROCESSING:
        status = f"PROCESSING: attempt {row.attempts} died or timed out, its lease is over"
    elif row.status is Status.FAILED:
        due = f", the next one is due {relative_time(row.retry_at, now)}" if row.retry_at and row.retry_at > now else ""
        status = f"FAILED: attempt {row.attempts} failed and there will be another{due}"
    elif row.status is Status.LATER_FORMAT:
        status = f"of a later release (format {row.format}): use that release's command"
    elif row.status is Status.REJECTED:
        status = f"REJECTED after {_times(row.attempts, 'attempt')}, until a person asks for it"
    else:
        status = f"PROCESSED after {_times(row.attempts, 'attempt')}" if row.attempts else "PROCESSED: only recorded"
    said = [
        ("status", status),
        ("reason", row.reason or ""),
        ("reason code", row.reason_code or ""),
        ("state", describe_state(State(row.kind, row.version_id, row.etag, row.size), now)),
        ("committed", _committed(row)),
        ("late writes", ", ".join(sorted(row.late_writes))),
        (
            "redrives",
            f"taken up again {_times(row.redrive_count, 'time')} after a rejection" if row.redrive_count else "",
        ),
        ("fence", str(row.fence)),
        ("first seen", relative_time(row.first_claimed_at, now) if row.first_claimed_at else ""),
        ("last change", relative_time(row.updated_at, now) if row.updated_at else ""),
        (
            "event",
            f"{row.event_name}{f', sequencer {row.sequencer}' if row.sequencer else ''}" if row.event_name else "",
        ),
        ("reprocess", row.reprocess_id or row.served_reprocess_id or ""),
        ("expires", relative_time(row.expires_at * 1000, now) if row.expires_at else ""),
    ]
    return [(label, text) for label, text in said if text]


def report_lines(counted: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    """The lines of an audit's report, as pairs of a label and its text. An older release's report has none."""
    if not counted:
        return
    yield "Agree", f"{counted[Line.AGREES]:,}"
    yield "Resubmitted", f"{counted[Line.RESUBMITTED]:,}"
    yield "Found only", _group(counted, NOT_SENT)
    yield "Rejected", f"{counted[Line.REJECTED]:,}"
    yield "Waiting", _group(counted, WAITING)
    yield "Not judged", _group(counted, NOT_JUDGED)


def unlisted_rows(counted: Mapping[str, int]) -> str:
    """The rows whose object no listing has shown; empty if there are none."""
    return f"rows: {_group(counted, tuple(Line))}" if any(counted.values()) else ""


def listing_parts(found: Iterable[Mapping[str, int]]) -> Iterator[tuple[int, str]]:
    """When each part of a bucket was listed: its beginning (epoch milliseconds) and its text. One part needs none."""
    parts = list(found)
    for one in parts if len(parts) > 1 else ():
        yield one["from"], f"{one['listed']:,} listed within {duration(one['until'] - one['from'])}"


def _group(counted: Mapping[str, int], group: Sequence[Line]) -> str:
    """A sum with its lines: "3: 2 with a worker, 1 younger than the settle time"."""
    each = [f"{counted[line]:,} {WORDS[line]}" for line in group if counted[line]]
    return ": ".join(filter(None, (f"{sum(counted[line] for line in group):,}", ", ".join(each))))


def agreement(  # noqa: PLR0911 - one return per line of the rule
    row: Row | None, shown: State, deployed: "DeployedPipeline", now: int, complete_since: int | None
) -> tuple[bool, str]:
    """Whether the ledger and S3 agree about a state, and what follows from it. `complete_since` is the time since when
    each processed object has a row, in epoch milliseconds; None when rows may be missing.
    """
    untold = shown.removed and not deployed.deletes
    if row is None:
        return _without_row(shown, deployed, now, complete_since, untold=untold)
    if row.is_live(now):
        return True, "it is being worked on"
    if row.has_committed(shown.identity):
        return True, "what S3 shows is what was committed"
    if row.identity != shown.identity or row.settled:
        what = "it is gone from S3" if shown.removed else "S3 shows another state than the ledger's last"
        return False, f"{what}: its event is on its way, or lost, and then the audit finds it"
    if row.status is Status.PROCESSED:
        return (
            False,
            "a late worker may have written over it: it is processed again, or the audit finds it",
        )
    if row.status is Status.REJECTED:
        return True, "S3 shows what was rejected: mend the cause, then redrive or reprocess it"
    if row.status is Status.FAILED:
        return False, "S3 shows what failed: its message comes again, or is lost, and then the audit finds it"
    return False, "its worker died: the message comes again, or the audit finds it"


def _without_row(
    shown: State, deployed: "DeployedPipeline", now: int, complete_since: int | None, *, untold: bool
) -> tuple[bool, str]:
    if untold or shown.kind is StateKind.ABSENT:
        return True, "there is nothing, and the ledger knows of nothing"
    kept = deployed.retention_seconds * 1000
    # The row of a removal expires in a complete ledger too.
    known_since = now - kept if complete_since is None or shown.removed else min(now - kept, complete_since)
    if shown.created_at is not None and shown.created_at < known_since:
        if complete_since is not None and not shown.removed:
            return True, "it is older than the ledger: from before the pipeline, or from before its present filters"
        return (
            True,
            f"it is older than the ledger remembers ({duration(kept)}): settled long ago, or from before the pipeline",
        )
    return False, "the ledger has never heard of it: its event is on its way, or lost, and then the audit finds it"


def _committed(row: Row) -> str:
    if row.committed_state is None:
        return ""
    name = row.committed_state
    said = "this state" if name == row.identity else name
    return f"{said}{f', as {row.commit_id!r}' if row.commit_id else ''}, fence {row.committed_fence}"


def _times(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
