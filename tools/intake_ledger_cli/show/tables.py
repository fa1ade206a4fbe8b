"""Builds the tables that show list, inspect and report. Keys and reasons are escaped."""

from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from intake_ledger.protocol.row import MAX_NAME_BYTES, Row, truncate
from intake_ledger_cli.aws.deployed import DeployedPipeline
from intake_ledger_cli.aws.reading import ReviewPage
from intake_ledger_cli.read.inspection import InspectedKey
from intake_ledger_cli.read.listing import ReasonCounts
from intake_ledger_cli.show import formatting
from intake_ledger_cli.show.console import DIM, GOOD, WARNING, escape, heading, many
from intake_ledger_cli.show.history_output import history_lines
from intake_ledger_cli.show.json_output import document
from intake_ledger_cli.show.render import fields, table


def list_table(deployed: DeployedPipeline, found: ReviewPage, now: int) -> RenderableType:
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


def reasons_table(found: ReasonCounts) -> RenderableType:
    stop = [] if found.stopped_after is None else [_more(found.after, found.stopped_after, found.why)]
    if not found.reasons:
        return Group(*stop) if stop else Text("none", style=GOOD)
    rows = [(one.rows, one.status, one.reason_code, one.reason) for one in found.reasons]
    return Group(table(("rows", "status", "reason code", "reason"), rows), *stop)


def inspect_table(deployed: DeployedPipeline, found: InspectedKey, now: int) -> RenderableType:
    in_bucket = deployed.work.in_bucket
    parts: list[RenderableType] = [heading(escape(found.key), f"{deployed.name}, {deployed.place}")]
    if not found.wanted:
        parts.append(Text(escape(_outside_filters(deployed)), style=WARNING))
    if found.group is not None:
        parts.append(fields("inspect", {"group": document(found.group)}, now))
    for one in found.states:
        lines = row_content(one.row, now, one.execution) | {"execution": one.execution, "lastStep": one.last_step}
        if in_bucket:
            shown = formatting.describe_state(one.s3, now) if one.s3 else "this version no longer exists"
            lines["s3"] = {"denied": found.denied} if found.denied is not None else shown
            lines["agree"] = None if one.agree is None else {"yes" if one.agree else "no": one.why}
        parts.append(fields("row", lines, now))
    if not found.states:
        missing = "neither S3 nor the ledger has a version of this key: check it. Keys are not encoded"
        parts.append(Text(missing if in_bucket else "the ledger has no message of this key: check it"))
    parts += history_lines(found.history, of_messages=not in_bucket)
    if found.consumer_errors is not None:
        parts.append(fields("inspect", {"consumerErrors": document(found.consumer_errors)}, now))
    return Group(*parts)


def row_content(row: Row | None, now: int, execution: str | None = None) -> dict[str, Any]:
    """The fields of a row for `fields`, with its status and its state as sentences."""
    if row is None:
        return {"ledger": "no row"}
    shown: dict[str, Any] = {"ledger": formatting.describe_status(row, now, execution), "reason": "", "reason_code": ""}
    shown["state"] = formatting.describe_state(row.state, now)
    name = truncate(row.commit_id or "", MAX_NAME_BYTES)
    shown |= document(row)
    return shown | {"commit_id": name, "tags_pending": list(row.untagged)}


def _outside_filters(deployed: DeployedPipeline) -> str:
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
    lines = {"startedAt": found["startedAt"], "listed": f"{found['listed']:,}"}
    lines |= formatting.report_lines(found.get("lines", {}))
    lines["notListed"] = formatting.unlisted_rows(found.get("unlisted", {}))
    for begun_at, text in formatting.listing_parts(found.get("passes", ())):
        lines.setdefault("parts", []).append(f"{text}, {formatting.relative_time(begun_at, now)}")
    lines |= {"found": counts, "sent": found["resubmitted"]}
    lines["removedUnprocessed"] = found.get("rows", {}).get("removedUnprocessed")
    lines |= {name: found.get(name) for name in ("laterFormat", "stopped", "held", "delivery", "unfinished")}
    parts = [Text(escape(found["summary"]), style=GOOD if good else WARNING)]
    shown = fields("audit", lines | {"fullReport": in_full}, now)
    findings = [Text(escape(f"{one['why']:<10} {one['key']}")) for one in found["findings"]]
    more = sum(counts.values()) - len(found["findings"])
    return Group(*parts, shown, *findings, *([Text(f"and {more:,} more", style=DIM)] if more > 0 else []))
