"""Collects the data of the page of `audit --html`, in a bounded number of requests.

A part that the caller may not read is shown as denied, and a part that AWS throttled as unknown.
"""

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

from intake_ledger.protocol.row import from_dynamodb
from intake_ledger_cli.aws import reading
from intake_ledger_cli.aws.clients import Aws
from intake_ledger_cli.aws.deployed import DeployedPipeline
from intake_ledger_cli.aws.reading import ObjectRow
from intake_ledger_cli.read import status
from intake_ledger_cli.read.audits import Report
from intake_ledger_cli.read.status import NotRead, PipelineStatus

REVIEWED = 5_000
"""The largest number of rows whose reasons are counted. They are the oldest."""
SCANNED_PAGES = 5
"""The largest number of pages of the table that are searched for hot keys. A page has 1 MB, about 2,000 rows."""
HOT_KEYS = 10
AUDITS = 30
POINTS = 48
"""Columns of the charts over time."""
_LOOK_BACK_DAYS = (2, 31, 366)
"""The listing of reports starts this number of days ago. The next one is used until there are enough reports."""
_LISTED = 10_000
"""The largest number of reports that one listing reads."""
_COUNTS = ("Accepted", "Retries", "Committed", "Rejected", "Failed", "LapsedLeases", "Duplicates", "Stale")
_STATISTICS = ("p50", "p99", "Maximum")
_TIMES = {"lag": "CommitLag", "gap": "DuplicateAge"}


@dataclass(frozen=True, slots=True)
class OverTime:
    """Metrics over time. Each list has a value for each period, oldest first; None without data."""

    period_seconds: int
    starts: list[int]
    """The start of each period, in epoch milliseconds."""
    counts: dict[str, list[float]]
    """Sums by metric. A period without data has 0."""
    lags: dict[str, list[float | None]]
    """Milliseconds from event to commit by statistic."""
    gaps: dict[str, list[float | None]]
    """Milliseconds from the commit of a state to a duplicate of its message, by statistic."""


@dataclass(slots=True)
class HotKey:
    """A key and its attempts."""

    key: str
    attempts: int = 0
    """The sum of the attempts of its rows. A row counts those of its present state. A redrive begins again."""
    rows: int = 0
    changed_at: int = 0
    """The time of the last change, in epoch milliseconds."""


@dataclass(frozen=True, slots=True)
class HotKeys:
    """The keys with the most attempts among the rows that were read."""

    keys: list[HotKey]
    read: int
    """The number of rows that were read."""
    all_read: bool


@dataclass(frozen=True, slots=True)
class Reviewed:
    """Rows that need review, oldest first."""

    rows: list[ObjectRow]
    more: bool
    """True if there are more rows, which are younger."""


@dataclass(frozen=True, slots=True)
class Audits:
    """The last audits, newest first."""

    reports: list[Report] = field(default_factory=list)
    note: str = ""
    """Why there may be fewer than there were runs."""


@dataclass(frozen=True, slots=True)
class ReportData:
    """Everything on the page."""

    deployed: DeployedPipeline
    now: int
    hours: int
    status: PipelineStatus
    reviewed: Reviewed | NotRead
    over_time: OverTime | NotRead
    hot_keys: HotKeys | NotRead
    audits: Audits | NotRead


def collect(aws: Aws, deployed: DeployedPipeline, *, now: int, hours: int) -> ReportData:
    """Read all parts of the report.

    Args:
        aws: the clients.
        deployed: the pipeline.
        now: epoch milliseconds.
        hours: the length of the charts over time.

    Raises:
        ClientError: AWS returns an error other than a denial.

    """
    found = status.read_status(aws, deployed)
    last = None if isinstance(found.audit, NotRead) else found.audit.last
    return ReportData(
        deployed,
        now,
        hours,
        found,
        status.allowed(lambda: _reviewed(aws, deployed)),
        status.allowed(lambda: _over_time(aws, deployed, now, hours)),
        status.allowed(lambda: _hot_keys(aws, deployed)),
        _audits(aws, deployed, now, last),
    )


def _reviewed(aws: Aws, deployed: DeployedPipeline) -> Reviewed:
    rows = reading.rows_to_review(aws.dynamodb, deployed)
    found = list(islice(rows, REVIEWED))
    return Reviewed(found, next(rows, None) is not None)


def _over_time(aws: Aws, deployed: DeployedPipeline, now: int, hours: int) -> OverTime:
    """Read the metrics in one request."""
    period = -(-hours * 3600 // POINTS // 60) * 60
    end = -(-now // (period * 1000)) * period
    starts = [(end - n * period) * 1000 for n in range(POINTS, 0, -1)]
    queries = [_query(name, "Sum", name, deployed.name, period) for name in _COUNTS]
    queries += [
        _query(f"{name}_{one}", one, metric, deployed.name, period)
        for name, metric in _TIMES.items()
        for one in _STATISTICS
    ]
    values: dict[str, dict[int, float]] = {}
    request: dict[str, Any] = {
        "MetricDataQueries": queries,
        "StartTime": datetime.fromtimestamp(starts[0] / 1000, UTC),
        "EndTime": datetime.fromtimestamp(end, UTC),
    }
    for page in aws.cloudwatch.get_paginator("get_metric_data").paginate(**request):
        for one in page["MetricDataResults"]:
            at = values.setdefault(one["Label"], {})
            for moment, value in zip(one["Timestamps"], one["Values"], strict=True):
                at[int(moment.timestamp()) // period * period * 1000] = value
    return OverTime(
        period,
        starts,
        {name: [values.get(name, {}).get(start, 0.0) for start in starts] for name in _COUNTS},
        *(
            {one: [values.get(f"{name}_{one}", {}).get(start) for start in starts] for one in _STATISTICS}
            for name in _TIMES
        ),
    )


def _query(label: str, statistic: str, metric: str, pipeline: str, period: int) -> dict[str, Any]:
    dimensions = [{"Name": "service", "Value": pipeline}]
    stat = {"Namespace": "IntakeLedger", "MetricName": metric, "Dimensions": dimensions}
    return {
        "Id": f"m_{label.lower()}",
        "Label": label,
        "MetricStat": {"Metric": stat, "Period": period, "Stat": statistic},
    }


def _hot_keys(aws: Aws, deployed: DeployedPipeline) -> HotKeys:
    names = ("pk", "sk", "attempts", "updated_at")
    pages = aws.dynamodb.get_paginator("scan").paginate(
        TableName=deployed.table,
        FilterExpression="begins_with(#sk, :own)",
        ProjectionExpression=", ".join(f"#{name}" for name in names),
        ExpressionAttributeNames={f"#{name}": name for name in names},
        ExpressionAttributeValues={":own": {"S": f"{deployed.name}@"}},
    )
    keys: dict[str, HotKey] = {}
    own, read, more = f"{deployed.bucket}/", 0, False
    for page in islice(pages, SCANNED_PAGES):
        for item in page["Items"]:
            content = from_dynamodb(item)
            if not content["pk"].startswith(own) or "attempts" not in content:
                continue
            read += 1
            name = content["pk"].removeprefix(own)
            entry = keys.setdefault(name, HotKey(name))
            entry.attempts += content["attempts"]
            entry.rows += 1
            entry.changed_at = max(entry.changed_at, content.get("updated_at", 0))
        more = "LastEvaluatedKey" in page
    hottest = sorted(keys.values(), key=lambda one: (-one.attempts, one.key))
    return HotKeys([one for one in hottest if one.attempts > 1][:HOT_KEYS], read, not more)


def _audits(aws: Aws, deployed: DeployedPipeline, now: int, last: Report | None) -> Audits | NotRead:
    if deployed.work.audit_event is not None:
        return Audits([last] if last else [], "Only the last audit is known.")
    if deployed.reports is None:
        note = "The pipeline keeps no reports in S3, so only the last one is known: see AuditOptions(report_bucket=)."
        return Audits([last] if last else [], note)
    found = status.allowed(lambda: _kept_audits(aws, deployed.reports or "", now))
    if isinstance(found, NotRead) and last:
        return Audits([last], f"Only the last one is known: {found}.")
    return found


def _kept_audits(aws: Aws, prefix_uri: str, now: int) -> Audits:
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
    return Audits(sorted(reports, key=lambda one: one["startedAt"], reverse=True))
