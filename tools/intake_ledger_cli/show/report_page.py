"""The page of `audit --html`: the tables of the command, exported by rich."""

import io
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rich.console import Console, RenderableType
from rich.text import Text

from intake_ledger_cli.aws.reading import ObjectRow
from intake_ledger_cli.read.audits import Report
from intake_ledger_cli.read.report_data import AUDITS, Audits, HotKeys, OverTime, ReportData, Reviewed
from intake_ledger_cli.read.status import NotRead
from intake_ledger_cli.show import formatting, status_table
from intake_ledger_cli.show.console import GOOD, WARNING, escape, heading
from intake_ledger_cli.show.render import table

_HOUR, _DAY = 3_600_000, 86_400_000
_AGES = (("under 1 hour", _HOUR), ("1 to 24 hours", _DAY), ("1 to 7 days", 7 * _DAY), ("older", None))
"""The columns of ages, with their limits in milliseconds."""
_PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>Report of an intake</title><style>body {{ color: {foreground}; background: {background}; }}
pre {{ white-space: pre-wrap; overflow-wrap: anywhere; }}</style></head>
<body><pre>{code}</pre></body></html>
"""


def render(data: ReportData) -> str:
    """Return the page as HTML. It has no script and refers to no other file."""
    about = f"{data.deployed.place}, {formatting.timestamp(data.now)}. Times are in UTC."
    sections: tuple[tuple[str, Any, Callable[[Any, ReportData], Iterator[RenderableType]]], ...] = (
        ("Failed and rejected objects by reason and age", data.reviewed, _reasons),
        ("Attempts, duplicates and times over time", data.over_time, _over_time),
        ("Hot keys", data.hot_keys, _hot_keys),
        ("Last audits", data.audits, _audits),
    )
    parts: list[RenderableType] = [heading(data.deployed.name, about), "", Text("State", "bold")]
    parts.append(status_table.status_table(data.deployed, data.status, every=True))
    for title, part, show in sections:
        parts += ["", Text(title, "bold"), *([str(part)] if isinstance(part, NotRead) else show(part, data))]
    return page(*parts)


def page(*parts: RenderableType) -> str:
    """Return what the terminal would show as an HTML page. rich escapes all texts."""
    console = Console(record=True, file=io.StringIO(), width=160, markup=False, highlight=False, emoji=False)
    for part in parts:
        console.print(part)
    return console.export_html(code_format=_PAGE, inline_styles=True)


def _reasons(found: Reviewed, data: ReportData) -> Iterator[RenderableType]:
    if not found.rows:
        yield "No object is failed or rejected, as of a moment ago."
        return
    groups: dict[tuple[str, str], list[ObjectRow]] = {}
    for entry in found.rows:
        groups.setdefault((entry.row.status.value, entry.row.reason_code or "no reason"), []).append(entry)
    if found.more:
        yield f"There are more: these are the oldest {len(found.rows):,}. list --by-reason counts all."
    ordered = sorted(groups.items(), key=lambda one: (-len(one[1]), one[0]))
    headings = ("status", "reason code", "objects", *(name for name, _ in _AGES), "oldest key, and its reason")
    yield table(headings, (_reason_row(*name, entries, data.now) for name, entries in ordered))


def _reason_row(status_: str, code: str, entries: Sequence[ObjectRow], now: int) -> list[object]:
    ages = Counter(_age(now - entry.row.updated_at) for entry in entries)
    oldest = min(entries, key=lambda entry: entry.row.updated_at)
    since = formatting.duration(now - oldest.row.updated_at)
    example = f"{oldest.key}, {since} ago: {oldest.row.reason or 'no reason'}"
    return [status_, code, len(entries), *(ages[name] for name, _ in _AGES), example]


def _age(milliseconds: int) -> str:
    return next(name for name, limit in _AGES if limit is None or milliseconds < limit)


def _over_time(found: OverTime, data: ReportData) -> Iterator[RenderableType]:
    names = [name for name, values in found.counts.items() if any(values)]
    if not names:
        yield f"CloudWatch has no attempts in the last {data.hours} hours."
        return
    times = ("commit, median", "longest", "duplicate after")
    yield table(("from", *names, *times), (_period(found, number, names) for number in range(len(found.starts))))


def _period(found: OverTime, number: int, names: Sequence[str]) -> list[object]:
    times = (found.lags["p50"][number], found.lags["Maximum"][number], found.gaps["Maximum"][number])
    at = formatting.timestamp(found.starts[number])[5:16].replace("T", " ")
    return [at, *(int(found.counts[name][number]) for name in names), *map(_short, times)]


def _short(milliseconds: float | None) -> str:
    """A duration. Gaps below a second are told too."""
    if milliseconds is None:
        return ""
    return formatting.duration(int(milliseconds)) if milliseconds >= 1_000 else f"{milliseconds:.0f} ms"


def _hot_keys(found: HotKeys, _: ReportData) -> Iterator[RenderableType]:
    rows_read = f"{found.read:,} rows"
    read = f"All {rows_read} were read." if found.all_read else f"Only {rows_read} of the table were read."
    if not found.keys:
        yield f"No key needed more than one attempt. {read}"
        return
    yield f"Keys with the most attempts. A row counts those of its present state, not those of earlier versions. {read}"
    rows = ((one.key, one.attempts, one.rows, formatting.timestamp(one.changed_at)) for one in found.keys)
    yield table(("key", "attempts", "rows", "last change"), rows)


def _audits(found: Audits, _: ReportData) -> Iterator[RenderableType]:
    if found.note or not found.reports:
        yield " ".join(filter(None, ["" if found.reports else "No audit has written a report yet.", found.note]))
    if found.reports:
        headings = ("started", "checked", "found", "resubmitted", "complete", "summary")
        yield table(headings, map(_audit, found.reports[:AUDITS]))


def _audit(report: Report) -> list[object]:
    found, complete = sum(report["counts"].values()), bool(report["complete"])
    return [
        formatting.timestamp(report["startedAt"]),
        report["checked"],
        Text(f"{found:,}", WARNING if found else GOOD),
        report["resubmitted"],
        Text("yes", GOOD) if complete else Text("no", WARNING),
        "\n".join([escape(report["summary"]), *map(escape, report["delivery"])]),
    ]
