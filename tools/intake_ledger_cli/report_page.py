"""Renders the page of `report --html`. A pure function: everything on the page is in the data."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from rich.console import Group
from rich.table import Table
from rich.text import Text

from intake_ledger_cli import formatting, page_parts, status, status_table
from intake_ledger_cli.audits import Report
from intake_ledger_cli.console import BAD, DIM, GOOD, WARNING
from intake_ledger_cli.counting import Count
from intake_ledger_cli.page_parts import Cell, Column, Html, text
from intake_ledger_cli.page_style import document
from intake_ledger_cli.reading import ObjectRow
from intake_ledger_cli.report_data import AUDITS, HotKeys, OverTime, ReportData, Reviewed
from intake_ledger_cli.status import NotRead, PipelineStatus, QueueDepth

_CLASSES = {GOOD: "good", BAD: "bad", WARNING: "warning", DIM: "dim"}
_HOUR, _DAY = 3_600_000, 86_400_000
_AGES = (("under 1 hour", _HOUR), ("1 to 24 hours", _DAY), ("1 to 7 days", 7 * _DAY), ("older", None))
"""The columns of ages, with their limits in milliseconds."""
_NO_REASON = "no reason"


def render(data: ReportData) -> str:
    """Return the page as HTML. It has no script and refers to no other file."""
    deployed, found = data.deployed, data.status
    red = status.needs_a_person(found, data.deployed)
    verdict = (
        '<span class="bad">A person should look at it.</span>' if red else '<span class="good">Nothing is red.</span>'
    )
    sections = (
        f"<h1>{text(deployed.name)}</h1>",
        f'<p class="dim">{text(deployed.place)}, {formatting.timestamp(data.now)}. Times are in UTC.</p>',
        f'<p class="verdict">{verdict}</p>',
        page_parts.tiles(_tiles(found)),
        _section("State", _state(data)),
        _section("Failed and rejected objects by reason and age", _reasons(data)),
        _section("Attempts over time", _attempts(data)),
        _section("Time from event to commit", _lag(data)),
        _section("Duplicates and stale events", _repeats(data)),
        _section("Hot keys", _hot_keys(data)),
        _section("Last audits", _audits(data)),
    )
    return document(f"{deployed.name}: intake report", "\n".join(sections))


def _section(title: str, content: str) -> str:
    return f"<section><h2>{text(title)}</h2>\n{content}</section>"


def _card(content: str) -> str:
    return f'<div class="card">{content}</div>'


def _nothing(reason: str) -> str:
    return _card(f'<span class="dim">{text(reason)}</span>')


def _tiles(found: PipelineStatus) -> Iterator[tuple[str, str, str]]:
    for depth, what, bad in ((found.queue, "messages in the queue", ""), (found.dead_letters, "dead letters", "bad")):
        if isinstance(depth, QueueDepth):
            number = depth.waiting + depth.hidden + depth.delayed
            yield f"{number:,}", what, bad if number else ""
        else:
            yield "?", f"{what}: {depth}", "dim"
    kinds = (
        (found.failed, "failed", "warning"),
        (found.rejected, "rejected", "bad"),
        (found.waiting, "waiting", ""),
        (found.removed, "removed before they were processed", "dim"),
        (found.rejected_rows, "files without their bad rows", "warning"),
    )
    for count, what, style in kinds:
        if isinstance(count, NotRead):
            yield "?", f"{what}: {count}", "dim"
        elif count.number or (count is not found.removed and count is not found.rejected_rows):
            yield _number(count), what, style if count.number else ""


def _number(count: Count) -> str:
    if count.unknown:
        return "?"
    return f"{count.number:,}{' or more' if count.why else ''}"


def _state(data: ReportData) -> str:
    shown = status_table.status_table(data.deployed, data.status)
    tables = [one for one in shown.renderables if isinstance(one, Table)] if isinstance(shown, Group) else []
    rows = [
        (str(label), Html(_html(line)))
        for one in tables
        for label, line in zip(one.columns[0].cells, one.columns[1].cells, strict=True)
        if isinstance(line, Text)
    ]
    return _card(page_parts.table((), rows))


def _html(line: Text) -> str:
    """Return a text of the terminal as HTML, with its styles as CSS classes."""
    plain, parts, end = line.plain, [], 0
    for span in sorted(line.spans):
        parts.append(text(plain[end : span.start]) + _styled(plain[span.start : span.end], str(span.style)))
        end = span.end
    content = "".join(parts) + text(plain[end:])
    style = _CLASSES.get(str(line.style))
    return f'<span class="{style}">{content}</span>' if style else content


def _styled(content: str, style: str) -> str:
    return f'<span class="{_CLASSES.get(style, "")}">{text(content)}</span>'


def _reasons(data: ReportData) -> str:
    found = data.reviewed
    if isinstance(found, NotRead):
        return _nothing(str(found))
    if not found.rows:
        return _nothing("No object is failed or rejected, as of a moment ago.")
    groups: dict[tuple[str, str], list[ObjectRow]] = {}
    for entry in found.rows:
        groups.setdefault((entry.row.status.value, entry.row.reason_code or _NO_REASON), []).append(entry)
    headings = (
        "Status",
        "Reason code",
        "Objects",
        *(name for name, _ in _AGES),
        "Oldest",
        "Oldest key, and its reason",
    )
    ordered = sorted(groups.items(), key=lambda one: (-len(one[1]), one[0]))
    rows = [_reason_row(*name, entries, data.now) for name, entries in ordered]
    return f"{_more(found)}{_card(page_parts.table(headings, rows))}"


def _more(found: Reviewed) -> str:
    if not found.more:
        return ""
    return f"<p>There are more: these are the oldest {len(found.rows):,}. <code>list --by-reason</code> counts all.</p>"


def _reason_row(status_: str, code: str, entries: Sequence[ObjectRow], now: int) -> list[Cell]:
    ages = Counter(_age(now - entry.row.updated_at) for entry in entries)
    oldest = min(entries, key=lambda entry: entry.row.updated_at)
    reason = f'<br><span class="dim">{text(oldest.row.reason)}</span>' if oldest.row.reason else ""
    example = Html(f"<code>{text(oldest.key)}</code>{reason}", "any")
    since = formatting.duration(now - oldest.row.updated_at)
    return [status_, code, len(entries), *(ages[name] for name, _ in _AGES), Html(since, "t"), example]


def _age(milliseconds: int) -> str:
    return next(name for name, limit in _AGES if limit is None or milliseconds < limit)


def _attempts(data: ReportData) -> str:
    found = data.over_time
    if isinstance(found, NotRead):
        return _nothing(str(found))
    accepted, retries = found.counts["Accepted"], found.counts["Retries"]
    if not any(accepted) and not any(retries):
        return _nothing(f"CloudWatch has no attempts in the last {data.hours} hours.")
    # An attempt after the first one counts in both metrics.
    drawn = [
        Column(
            (max(every - again, 0), again), f"{_moment(start)}: {every:,.0f} attempts, {again:,.0f} of them repeated"
        )
        for start, every, again in zip(found.starts, accepted, retries, strict=True)
    ]
    totals = {name: sum(values) for name, values in found.counts.items()}
    names = ("Committed", "Failed", "Rejected", "LapsedLeases")
    told = ("committed", "failed", "rejected", "taken over after a worker died or timed out")
    numbers = ", ".join(f"{totals[name]:,.0f} {what}" for name, what in zip(names, told, strict=True))
    attempts = f"{totals['Accepted']:,.0f} attempts in {data.hours} hours, {totals['Retries']:,.0f} of them repeated"
    chart = _chart(
        found, drawn, ("ledger", "naive"), f"up to {max(map(max, zip(accepted, retries, strict=True))):,.0f}"
    )
    shown = page_parts.legend((("ledger", "first attempt"), ("naive", "repeated")))
    return f"<p>{attempts}: {numbers}.</p>{shown}{chart}"


def _lag(data: ReportData) -> str:
    found = data.over_time
    if isinstance(found, NotRead):
        return _nothing(str(found))
    known = [one for one in found.lags["Maximum"] if one is not None]
    if not known:
        return _nothing(f"CloudWatch has no commit in the last {data.hours} hours.")
    longest = formatting.duration(int(max(known)))
    return f"<p>The longest took {longest}.</p>{_time_chart(found, found.lags, 'no commit', longest)}"


def _time_chart(found: OverTime, times: Mapping[str, Sequence[float | None]], nothing: str, longest: str) -> str:
    """The legend and the chart of a time."""
    names = (("ledger", "median"), ("quiet", "p99"), ("naive", "longest"))
    drawn = list(_times(found, times, nothing))
    return page_parts.legend(names) + _chart(found, drawn, tuple(style for style, _ in names), f"up to {longest}")


def _times(found: OverTime, times: Mapping[str, Sequence[float | None]], nothing: str) -> Iterator[Column]:
    """The columns of a time: the median, and on it the rest of p99 and of the longest."""
    for start, half, most, longest in zip(
        found.starts, *(times[name] for name in ("p50", "p99", "Maximum")), strict=True
    ):
        steps = [half or 0.0, most or 0.0, longest or 0.0]
        title = f"{_moment(start)}: {nothing}"
        if longest is not None:
            p50, p99, maximum = map(_short, steps)
            title = f"{_moment(start)}: median {p50}, p99 {p99}, longest {maximum}"
        yield Column((steps[0], max(steps[1] - steps[0], 0), max(steps[2] - max(steps[:2]), 0)), title)


def _repeats(data: ReportData) -> str:
    found = data.over_time
    if isinstance(found, NotRead):
        return _nothing(str(found))
    duplicates, stale = found.counts["Duplicates"], found.counts["Stale"]
    if not any(duplicates) and not any(stale):
        return _nothing(f"CloudWatch has no duplicate and no stale event in the last {data.hours} hours.")
    drawn = [
        Column((twice, late), f"{_moment(start)}: {twice:,.0f} duplicates, {late:,.0f} stale")
        for start, twice, late in zip(found.starts, duplicates, stale, strict=True)
    ]
    numbers = f"{sum(duplicates):,.0f} duplicates and {sum(stale):,.0f} stale events changed nothing"
    most = f"up to {max(map(sum, zip(duplicates, stale, strict=True))):,.0f}"
    shown = page_parts.legend((("ledger", "duplicates"), ("quiet", "stale events")))
    chart = f"{shown}{_chart(found, drawn, ('ledger', 'quiet'), most)}"
    known = [one for one in found.gaps["Maximum"] if one is not None]
    if not known:
        return f"<p>{numbers}.</p>{chart}"
    longest = _short(max(known))
    gaps = _time_chart(found, found.gaps, "no duplicate", longest)
    about = f"The longest gap from a commit to a duplicate was {longest}. <code>inspect KEY</code> has those of a key."
    return f"<p>{numbers}.</p>{chart}<p>{about}</p>{gaps}"


def _short(milliseconds: float) -> str:
    """A duration. Gaps below a second are told too."""
    return formatting.duration(int(milliseconds)) if milliseconds >= 1_000 else f"{milliseconds:.0f} ms"


def _chart(found: OverTime, drawn: Sequence[Column], styles: Sequence[str], most: str) -> str:
    ends = _moment(found.starts[0]), _moment(found.starts[-1] + found.period_seconds * 1000)
    each = formatting.duration(found.period_seconds * 1000)
    drawn_html = page_parts.columns(drawn, styles, ends, f"{most} in {each}", f"{most}, from {ends[0]} to {ends[1]}")
    return _card(drawn_html)


def _moment(at: int) -> str:
    """Format a time to the minute: "11-21 20:01"."""
    return formatting.timestamp(at)[5:16].replace("T", " ")


def _hot_keys(data: ReportData) -> str:
    found = data.hot_keys
    if isinstance(found, NotRead):
        return _nothing(str(found))
    if not found.keys:
        return _nothing(f"No key needed more than one attempt. {_rows_read(found)}")
    headings = ("Key", "Attempts", "Rows", "Last change")
    rows = [(page_parts.key(one.key), one.attempts, one.rows, _when(one.changed_at, data.now)) for one in found.keys]
    about = "Keys with the most attempts. A row counts those of its present state, not those of earlier versions."
    return f"<p>{about} {_rows_read(found)}</p>{_card(page_parts.table(headings, rows))}"


def _when(at: int, now: int) -> Html:
    """Return the cell of a time and its distance."""
    since = formatting.duration(now - at)
    return Html(f'{formatting.timestamp(at)}, <span class="dim">{since} ago</span>', "t")


def _rows_read(found: HotKeys) -> str:
    if found.all_read:
        return f"All {found.read:,} rows were read."
    return f"Only {found.read:,} rows of the table were read."


def _audits(data: ReportData) -> str:
    found = data.audits
    if isinstance(found, NotRead):
        return _nothing(str(found))
    note = f'<p class="dim">{text(found.note)}</p>' if found.note else ""
    if not found.reports:
        return _nothing(f"No audit has written a report yet. {found.note}".strip())
    headings = ("Started", "Checked", "Found", "Resubmitted", "Complete", "Summary")
    return f"{note}{_card(page_parts.table(headings, map(_audit, found.reports[:AUDITS])))}"


def _audit(report: Report) -> list[Cell]:
    found, complete = sum(report["counts"].values()), bool(report["complete"])
    problems = "".join(f'<br><span class="bad">{text(one)}</span>' for one in report["delivery"])
    return [
        Html(formatting.timestamp(report["startedAt"]), "t"),
        report["checked"],
        Html(f'<span class="{"warning" if found else "good"}">{found:,}</span>', "n"),
        report["resubmitted"],
        Html('<span class="good">yes</span>' if complete else '<span class="warning">no</span>', "t"),
        Html(f"{text(report['summary'])}{problems}", "any"),
    ]
