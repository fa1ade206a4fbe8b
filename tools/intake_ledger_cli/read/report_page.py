"""The page of `audit --html`: the lines of `status`, and what no other command counts, in a bounded number of requests.

A part that the caller may not read is shown as denied, and a part that AWS throttled as unknown.
"""

import io
import json
import sys
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType
from rich.text import Text

from intake_ledger_cli.app import now_ms
from intake_ledger_cli.aws import reading
from intake_ledger_cli.aws.clients import Aws
from intake_ledger_cli.aws.deployed import DeployedPipeline
from intake_ledger_cli.aws.metrics import Metric, read_values
from intake_ledger_cli.aws.reading import Report
from intake_ledger_cli.errors import UsageError
from intake_ledger_cli.options import Call
from intake_ledger_cli.read import verdict
from intake_ledger_cli.read.files import replacing
from intake_ledger_cli.read.status import NotRead, PipelineStatus, allowed, read_status
from intake_ledger_cli.show import formatting, status_table
from intake_ledger_cli.show.console import GOOD, WARNING, escape, heading
from intake_ledger_cli.show.render import table

MOST_HOURS = 336
"""The longest charts, in hours: two weeks. CloudWatch keeps values of one minute for 15 days."""
REVIEWED = 5_000
"""The largest number of rows whose reasons are counted. They are the oldest."""
SCANNED_PAGES = 5
"""The largest number of pages of the table that are searched for hot keys. A page has 1 MB, about 2,000 rows."""
_HOT_KEYS = 10
AUDITS = 30
_POINTS = 48
"""Lines of the table over time."""
_LOOK_BACK_DAYS = (2, 31, 366)
"""The listing of reports starts this number of days ago. The next one is used until there are enough reports."""
_LISTED = 10_000
"""The largest number of reports that one listing reads."""
_COUNTS = ("Accepted", "Retries", "Committed", "Rejected", "Failed", "LapsedLeases", "Duplicates", "Stale")
_TIMES = {
    "commit, median": Metric("CommitLag", "p50"),
    "longest": Metric("CommitLag", "Maximum"),
    "duplicate after": Metric("DuplicateAge", "Maximum"),
}
"""Milliseconds from an event to its commit, and from the commit of a state to a duplicate of its message."""
_HOUR, _DAY = 3_600_000, 86_400_000
_AGES = {"under 1 hour": _HOUR, "1 to 24 hours": _DAY, "1 to 7 days": 7 * _DAY, "older": sys.maxsize}
"""The columns of ages, with their limits in milliseconds."""
_PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>Report of an intake</title><style>body {{ color: {foreground}; background: {background}; }}
pre {{ white-space: pre-wrap; overflow-wrap: anywhere; }}</style></head>
<body><pre>{code}</pre></body></html>
"""

type Section = list[RenderableType]


def write_page(call: Call, path: Path, hours: int) -> bool:
    """Collect the data and write the page.

    Args:
        call: the shared options.
        path: of the file. An existing one is replaced.
        hours: the length of the table over time.

    Returns:
        True if a person should look at it.

    Raises:
        CliError: The file cannot be written.
        UsageError: `--json` was given, too.

    """
    if call.as_json:
        raise UsageError("--html writes a page: omit --json, or use `status --json`")
    aws, deployed = call.open()
    found, now = read_status(aws, deployed), now_ms()
    last = None if isinstance(found.audit, NotRead) else found.audit.last
    sections = {
        "Failed and rejected objects by reason and age": allowed(lambda: _reasons(aws, deployed, now)),
        "Attempts, duplicates and times over time": allowed(lambda: _over_time(aws, deployed, now, hours)),
        "Hot keys": allowed(lambda: _hot_keys(aws, deployed)),
        "Last audits": _audits(aws, deployed, now, last),
    }
    with replacing(path) as part:
        part.write_text(page_of(deployed, found, sections), encoding="utf-8")
    if path.is_file():
        sys.stdout.write(f"{path}\n")
    return any(one.needs_a_person for one in verdict.findings_of(found))


def page_of(deployed: DeployedPipeline, found: PipelineStatus, sections: Mapping[str, Section | NotRead]) -> str:
    """Return the page as HTML. It has no script and refers to no other file. rich escapes all texts."""
    about = f"{deployed.place}, {formatting.timestamp(found.at)}. Times are in UTC."
    console = Console(record=True, file=io.StringIO(), width=160, markup=False, highlight=False, emoji=False)
    state: Section = [status_table.status_table(deployed, found, every=True)]
    console.print(heading(deployed.name, about))
    for title, parts in {"State": state, **sections}.items():
        for part in ("", Text(title, "bold"), *([str(parts)] if isinstance(parts, NotRead) else parts)):
            console.print(part)
    return console.export_html(code_format=_PAGE, inline_styles=True)


def _reasons(aws: Aws, deployed: DeployedPipeline, now: int) -> Section:
    rows = reading.rows_to_review(aws.dynamodb, deployed)
    groups: dict[tuple[str, str], list[reading.ObjectRow]] = {}
    for entry in islice(rows, REVIEWED):
        groups.setdefault((entry.row.status.value, entry.row.reason_code or "no reason"), []).append(entry)
    if not groups:
        return ["No object is failed or rejected, as of a moment ago."]
    lines = []
    for group, entries in sorted(groups.items(), key=lambda one: (-len(one[1]), one[0])):
        ages = Counter(_age(now - entry.row.updated_at) for entry in entries)
        oldest, *_ = entries
        since = formatting.duration(now - oldest.row.updated_at)
        example = f"{oldest.key}, {since} ago: {oldest.row.reason or 'no reason'}"
        lines.append([*group, len(entries), *(ages[name] for name in _AGES), example])
    shown = table(("status", "reason code", "objects", *_AGES, "oldest key, and its reason"), lines)
    more = f"There are more: these are the oldest {REVIEWED:,}. list --by-reason counts all."
    return [shown] if next(rows, None) is None else [more, shown]


def _age(milliseconds: int) -> str:
    return next(name for name, limit in _AGES.items() if milliseconds < limit)


def _over_time(aws: Aws, deployed: DeployedPipeline, now: int, hours: int) -> Section:
    minutes = -(-hours * 60 // _POINTS)
    period = minutes * 60_000
    end = -(-now // period) * period
    starts = range(end - _POINTS * period, end, period)
    wanted = {name: Metric(name) for name in _COUNTS} | _TIMES
    found = read_values(aws, deployed, wanted, start=starts[0], end=end, seconds=minutes * 60)
    values = {name: {at // period * period: value for at, value in one.items()} for name, one in found.items()}
    names = [name for name in _COUNTS if any(values[name].values())]
    if not names:
        return [f"CloudWatch has no attempts in the last {hours} hours."]
    lines = []
    for start in starts:
        at = formatting.timestamp(start)[5:16].replace("T", " ")
        counts = (int(values[name].get(start, 0)) for name in names)
        lines.append([at, *counts, *(_short(values[name].get(start)) for name in _TIMES)])
    return [table(("from", *names, *_TIMES), lines)]


def _short(milliseconds: float | None) -> str:
    """A duration. Gaps below a second are told too."""
    if milliseconds is None:
        return ""
    return formatting.duration(int(milliseconds)) if milliseconds >= 1_000 else f"{milliseconds:.0f} ms"


def _hot_keys(aws: Aws, deployed: DeployedPipeline) -> Section:
    """The keys with the most attempts. A redrive begins to count them again."""
    scan = aws.dynamodb.get_paginator("scan").paginate(**reading.scan_request(deployed))
    pages = list(islice(scan, SCANNED_PAGES))
    entries = [entry for page in pages for _, entry in reading.entries_of(deployed, page["Items"])]
    is_part = "LastEvaluatedKey" in pages[-1]
    note = f"{'Only' if is_part else 'All'} {len(entries):,} rows {'of the table ' if is_part else ''}were read."
    keys: dict[str, list[reading.ObjectRow]] = {}
    for entry in entries:
        keys.setdefault(entry.key, []).append(entry)
    attempts = {key: sum(one.row.attempts for one in rows) for key, rows in keys.items()}
    hottest = sorted((key for key in keys if attempts[key] > 1), key=lambda key: (-attempts[key], key))[:_HOT_KEYS]
    lines = [
        (key, attempts[key], len(keys[key]), formatting.timestamp(max(one.row.updated_at for one in keys[key])))
        for key in hottest
    ]
    if not lines:
        return [f"No key needed more than one attempt. {note}"]
    about = "Keys with the most attempts. A row counts those of its present state, not those of earlier versions."
    return [f"{about} {note}", table(("key", "attempts", "rows", "last change"), lines)]


def _audits(aws: Aws, deployed: DeployedPipeline, now: int, last: Report | None) -> Section | NotRead:
    """The last audits, newest first."""
    reports, note = [last] if last else [], ""
    if deployed.work.audit_event is not None:
        note = "Only the last audit is known."
    elif deployed.reports is None:
        note = "The pipeline keeps no reports in S3, so only the last one is known: see AuditOptions(report_bucket=)."
    else:
        kept = allowed(lambda: _kept_reports(aws, deployed.reports or "", now))
        if isinstance(kept, NotRead):
            if not last:
                return kept
            note = f"Only the last one is known: {kept}."
        else:
            reports = kept
    if not reports:
        return [" ".join(filter(None, ["No audit has written a report yet.", note]))]
    titles = ("started", "checked", "found", "resubmitted", "complete", "summary")
    return [*([note] if note else []), table(titles, map(_audit, reports))]


def _kept_reports(aws: Aws, prefix_uri: str, now: int) -> list[Report]:
    bucket, _, prefix = prefix_uri.removeprefix("s3://").partition("/")
    found: list[Any] = []
    for days in _LOOK_BACK_DAYS:
        day = (datetime.fromtimestamp(now / 1000, UTC) - timedelta(days=days)).date().isoformat()
        pages = aws.s3.get_paginator("list_objects_v2").paginate(
            Bucket=bucket, Prefix=prefix, StartAfter=f"{prefix}{day}", PaginationConfig={"MaxItems": _LISTED}
        )
        found = [one for page in pages for one in page.get("Contents", ()) if one["Key"].endswith(".json")]
        if len(found) >= AUDITS:
            break
    newest = sorted(found, key=lambda one: (one["LastModified"], one["Key"]), reverse=True)[:AUDITS]
    reports = [json.loads(aws.s3.get_object(Bucket=bucket, Key=one["Key"])["Body"].read()) for one in newest]
    return sorted(reports, key=lambda one: one["startedAt"], reverse=True)


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
