"""Selects rows for `list`: by status, key, age, or claims of dead workers. Memory does not grow with the table."""

import csv
import io
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from intake_ledger.protocol import (
    Status,
    dismissed_partition,
    rejected_rows_partition,
    removed_partition,
    review_partitions,
    waiting_partition,
)
from intake_ledger_cli import reading
from intake_ledger_cli.formatting import shown_reason, shown_status, timestamp
from intake_ledger_cli.read_budget import BudgetSpentError, ReadBudget, read_token, write_token
from intake_ledger_cli.reading import ObjectRow

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

    from intake_ledger_cli.deployed import DeployedPipeline

_NO_REASON = "no reason"
_LARGE_LIST = 1_000
"""Rows of a list that reads each partition in whole pages."""
_CSV_COLUMNS = ("since", "status", "attempts", "reason_code", "reason", "key")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedRows:
    """The rows that a list has. Times are in epoch milliseconds."""

    status: Status | None = None
    waiting: bool = False
    dismissed: bool = False
    removed: bool = False
    """Rows of objects that were removed before they were processed."""
    rejected_rows: bool = False
    """Committed rows whose files have rejected rows."""
    stuck: bool = False
    """PROCESSING rows whose lease has ended: their worker died."""
    prefix: str = ""
    before: int | None = None
    """Only rows whose last change is before this time."""


def select_rows(
    client: "DynamoDBClient",
    deployed: "DeployedPipeline",
    selection: ListedRows,
    *,
    now: int,
    after: str | None = None,
    limit: int | None = None,
    budget: ReadBudget,
) -> Iterator[ObjectRow]:
    """Yield rows, oldest change first. Stuck rows come in no order, since no index has them.

    With `limit` and without filters, each partition of the index is read no further than that. A search ends when the
    budget is spent, which then says how far it came.

    Raises:
        UsageError: `after` is not a token of a list.

    """
    if selection.stuck:
        rows = _stuck_rows(client, deployed, now, after, budget)
    else:
        is_filtered = selection.status is not None or selection.prefix
        rows = reading.rows_to_review(
            client,
            deployed,
            selection.status,
            after=after,
            names=_partitions(deployed, selection),
            before=selection.before,
            page_rows=None if is_filtered or limit is None or limit >= _LARGE_LIST else limit + 1,
            budget=budget,
        )
    for entry in rows:
        is_old = selection.before is None or entry.row.updated_at < selection.before
        if is_old and entry.key.startswith(selection.prefix):
            yield entry


def _partitions(deployed: "DeployedPipeline", selection: ListedRows) -> list[str]:
    """Return the partitions of the index that have the rows."""
    if selection.dismissed:
        return [dismissed_partition(deployed.name)]
    if selection.removed:
        return [removed_partition(deployed.name)]
    if selection.rejected_rows:
        return [rejected_rows_partition(deployed.name)]
    return [waiting_partition(deployed.name)] if selection.waiting else review_partitions(deployed.name)


@dataclass(frozen=True, slots=True)
class ListedReason:
    """A reason of rows. Two bugs have one code and different texts."""

    status: str
    reason_code: str
    reason: str
    rows: int


@dataclass(frozen=True, slots=True)
class ReasonCounts:
    """The document of `list --by-reason`, the most rows first. The others are as of `reading.ReviewPage`."""

    reasons: list[ListedReason]
    after: str | None
    stopped_after: int | None
    why: str


def count_reasons(rows: Iterator[ObjectRow], budget: ReadBudget) -> ReasonCounts:
    """Count rows by status, reason code and text."""
    counts = Counter(
        (shown_status(entry.row), entry.row.reason_code or _NO_REASON, shown_reason(entry.row)) for entry in rows
    )
    ordered = sorted(counts.items(), key=lambda one: (-one[1], one[0]))
    stopped_after = budget.used if budget.stopped else None
    return ReasonCounts(
        [ListedReason(*reason, number) for reason, number in ordered], budget.token, stopped_after, budget.why
    )


def csv_lines(deployed: "DeployedPipeline", rows: Iterator[ObjectRow], limit: int) -> Iterator[str]:
    """Yield a header and one line for each row. Those of messages have an identity."""
    identities = not deployed.work.in_bucket
    yield _csv_line((*_CSV_COLUMNS, *(("identity",) if identities else ())))
    for entry in islice(rows, limit):
        row = entry.row
        since = timestamp(row.waiting_since or row.updated_at)
        shown = (since, shown_status(row), row.attempts, row.reason_code or "", shown_reason(row), entry.key)
        yield _csv_line((*shown, *((row.version_id or "",) if identities else ())))


def _csv_line(values: tuple[Any, ...]) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(values)
    return line.getvalue()


def _stuck_rows(
    client: "DynamoDBClient", deployed: "DeployedPipeline", now: int, after: str | None, budget: ReadBudget
) -> Iterator[ObjectRow]:
    """Scan the table, a request for each MB. An index of claims would cost two writes for each object.

    In a crash loop, a new claim soon follows the claim whose lease ended. An attempt that failed leaves its reason.
    """
    names = ("sk", "status", "lease_until", "attempts", "reason")
    request: dict[str, Any] = {
        "TableName": deployed.table,
        "FilterExpression": "begins_with(#sk, :own) AND #status = :processing"
        " AND (#lease_until <= :now OR (#attempts > :first AND attribute_not_exists(#reason)))",
        "ExpressionAttributeNames": {f"#{name}": name for name in names},
        "ExpressionAttributeValues": {
            ":own": {"S": f"{deployed.name}@"},
            ":processing": {"S": Status.PROCESSING.value},
            ":now": {"N": str(now)},
            ":first": {"N": "1"},
        },
    }
    if after is not None:
        pk, sk = read_token(after, str, str)
        request["ExclusiveStartKey"] = {"pk": {"S": pk}, "sk": {"S": sk}}
    pages: Any = client.get_paginator("scan").paginate(**request)
    try:
        for page in budget.pages(pages):
            for content, entry in reading.entries_of(deployed, page["Items"]):
                yield replace(entry, token=write_token((content["pk"], content["sk"])))
            if end := page.get("LastEvaluatedKey"):
                budget.reached = (end["pk"]["S"], end["sk"]["S"])
    except BudgetSpentError:
        budget.stopped = True
