"""Builds the tables that show list, inspect and report. Keys and reasons are escaped."""

from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from intake_ledger.protocol.row import MAX_NAME_BYTES, Row, truncate
from intake_ledger_cli.aws.deployed import DeployedPipeline
from intake_ledger_cli.read.inspection import InspectedKey
from intake_ledger_cli.show import formatting
from intake_ledger_cli.show.console import DIM, GOOD, WARNING, escape, heading
from intake_ledger_cli.show.history_output import history_lines
from intake_ledger_cli.show.json_output import document
from intake_ledger_cli.show.render import fields


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
