"""Builds the tables that show list, inspect and report. Keys and reasons are escaped."""

from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from intake_ledger.protocol import Row
from intake_ledger_cli.aws.reading import ReviewPage
from intake_ledger_cli.read.groups import group_text
from intake_ledger_cli.read.inspection import InspectedKey
from intake_ledger_cli.show import formatting
from intake_ledger_cli.show.console import BAD, DIM, GOOD, WARNING, add_line, escape, grid, heading, many
from intake_ledger_cli.show.render import table

if TYPE_CHECKING:
    from intake_ledger_cli.aws.deployed import DeployedPipeline
    from intake_ledger_cli.read.listing import ReasonCounts


def list_table(deployed: "DeployedPipeline", found: ReviewPage, now: int) -> RenderableType:
    identities, max_wait_seconds = not deployed.work.in_bucket, deployed.max_wait_seconds
    if not found.rows:
        return (
            Text("none", style=GOOD)
            if found.stopped_after is None
            else _more(found.after, found.stopped_after, found.why)
        )
    titles = ("since", "status", "attempts", "key", *(["identity"] if identities else []), "reason")
    lines: list[tuple[object, ...]] = []
    for entry in found.rows:
        row = entry.row
        is_waiting = (
            row.waiting_since is not None and row.needs_review is not None and row.needs_review.endswith("#waiting")
        )
        due = (
            f"; next attempt in {formatting.duration(row.retry_at - now)}"
            if row.retry_at and row.retry_at > now
            else ""
        )
        if is_waiting and row.waiting_since is not None and max_wait_seconds is not None:
            due += _rejected(row.waiting_since + max_wait_seconds * 1000, now)
        since = row.waiting_since or row.updated_at if is_waiting else row.updated_at
        status = "WAITING" if is_waiting else formatting.listed_status(row)
        identity = [row.version_id or ""] if identities else []
        reason = formatting.shown_reason(row) + due
        lines.append((formatting.duration(now - since), status, row.attempts, entry.key, *identity, reason))
    shown = table(titles, lines)
    if found.after is None and found.stopped_after is None:
        return shown
    return Group(shown, _more(found.after, found.stopped_after, found.why))


def _rejected(deadline: int, now: int) -> str:
    return f"; rejected in {formatting.duration(deadline - now)}" if deadline > now else "; its deadline has passed"


def stopped_text(requests: int, after: str | None, why: str = "") -> str:
    """Say that a list stopped, and how it goes on."""
    further = f"go on with --after {after}" if after else ""
    if not why:
        further = f"{further}, or raise --max-requests" if further else "raise --max-requests"
    because = f" ({escape(why)})" if why else ""
    return f"stopped after {many(requests, 'requests')}{because}, and rows may follow: {further or 'try again later'}"


def _more(after: str | None, stopped_after: int | None, why: str = "") -> Text:
    if stopped_after is None:
        return Text(f"more rows follow, list them with --after {after}", style=DIM)
    return Text(stopped_text(stopped_after, after, why), style=WARNING)


def reasons_table(found: "ReasonCounts") -> RenderableType:
    stop = [] if found.stopped_after is None else [_more(found.after, found.stopped_after, found.why)]
    if not found.reasons:
        return Group(*stop) if stop else Text("none", style=GOOD)
    rows = [(one.rows, one.status, one.reason_code, one.reason) for one in found.reasons]
    return Group(table(("rows", "status", "reason code", "reason"), rows), *stop)


def inspect_table(deployed: "DeployedPipeline", found: InspectedKey, now: int) -> RenderableType:
    parts: list[RenderableType] = [heading(escape(found.key), f"{deployed.name}, {deployed.place}")]
    if not found.wanted:
        parts.append(Text(escape(_outside_filters(deployed)), style=WARNING))
    if found.group is not None:
        lines = grid()
        add_line(lines, "Group", Text(escape(group_text(found.group, now))))
        parts.append(lines)
    for one in found.states:
        lines = grid()
        add_row(lines, one.row, now, one.execution, one.last_step)
        if not deployed.work.in_bucket:
            parts.append(lines)
            continue
        if found.denied is not None:
            add_line(lines, "S3", Text(f"not allowed: {found.denied}", style=DIM))
        else:
            shown = formatting.describe_state(one.s3, now) if one.s3 else "this version no longer exists"
            add_line(lines, "S3", Text(escape(shown)))
        if one.agree is not None:
            verdict = ("yes: ", GOOD) if one.agree else ("no: ", BAD)
            add_line(lines, "Agree", Text.assemble(verdict, one.why))
        parts.append(lines)
    if not found.states:
        if deployed.work.in_bucket:
            parts.append(Text("neither S3 nor the ledger has a version of this key: check it. Keys are not encoded"))
        else:
            parts.append(Text("the ledger has no message of this key: check it"))
    return Group(*parts)


def add_row(
    lines: Table,
    row: Row | None,
    now: int,
    execution: str | None = None,
    last_step: str | None = None,
) -> None:
    """Add the lines of a row, or that there is none."""
    pairs = formatting.describe_row(row, now, execution, last_step) if row else [("status", "no row")]
    for place, (label, text) in enumerate(pairs):
        add_line(lines, "Ledger" if place == 0 else f"  {label}", Text(escape(text)))


def _outside_filters(deployed: "DeployedPipeline") -> str:
    filters = " or ".join(
        " and ".join(
            filter(None, (one.prefix and f"begin with {one.prefix!r}", one.suffix and f"end with {one.suffix!r}"))
        )
        for one in deployed.filters
    )
    return f"this key matches none of the pipeline's filters, so the pipeline ignores it: keys must {filters}"


def report_table(found: dict[str, Any], in_full: str | None, now: int) -> RenderableType:
    counts: dict[str, int] = found["counts"]
    good = not any(counts.values()) and not found["delivery"] and found["complete"]
    lines = grid()
    add_line(lines, "Run", Text(formatting.relative_time(found["startedAt"], now)))
    _listing(lines, found, now)
    for name, number in counts.items():
        add_line(lines, name.capitalize(), Text(f"{number:,}", style=WARNING if number else GOOD))
    add_line(lines, "Messages", Text(f"{found['resubmitted']:,} sent"))
    if removed := found.get("rows", {}).get("removedUnprocessed"):
        add_line(
            lines, "Removed", Text(f"{many(removed, 'objects')} before they were processed, see: list --status removed")
        )
    if found["laterFormat"]:
        add_line(
            lines,
            "Later release",
            Text(f"not judged: {many(found['laterFormat'], 'rows')} of a later release", style=WARNING),
        )
    if found["stopped"] or found["held"]:
        add_line(
            lines, "Incomplete", Text(escape("; ".join(filter(None, (found["stopped"], found["held"])))), style=WARNING)
        )
    for problem in found["delivery"]:
        add_line(lines, "Delivery", Text(escape(problem), style=BAD))
    for part in found.get("unfinished", ()):
        add_line(lines, "Unfinished", Text(escape(part), style=BAD))
    if in_full is not None:
        add_line(lines, "Full report", Text(escape(in_full), style=DIM))
    parts: list[RenderableType] = [Text(escape(found["summary"]), style=GOOD if good else WARNING), lines]
    parts += [Text(escape(f"{one['why']:<10} {one['key']}")) for one in found["findings"]]
    if (more := sum(counts.values()) - len(found["findings"])) > 0:
        parts.append(Text(f"and {more:,} more", style=DIM))
    return Group(*parts)


def _listing(lines: Table, found: dict[str, Any], now: int) -> None:
    """Add the lines that count listed objects, and their times."""
    add_line(lines, "Listed", Text(f"{found['listed']:,}"))
    for label, text in formatting.report_lines(found.get("lines", {})):
        add_line(lines, label, Text(text))
    if text := formatting.unlisted_rows(found.get("unlisted", {})):
        add_line(lines, "Not listed", Text(text))
    for begun_at, text in formatting.listing_parts(found.get("passes", ())):
        add_line(lines, "Part", Text(f"{text}, {formatting.relative_time(begun_at, now)}", style=DIM))
