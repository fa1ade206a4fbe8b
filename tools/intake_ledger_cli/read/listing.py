"""Selects rows for `list`: by status, key, age, or claims of dead workers. Memory does not grow with the table."""

import csv
import io
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from intake_ledger.protocol.row import (
    Status,
    dismissed_partition,
    rejected_rows_partition,
    removed_partition,
    review_partitions,
    waiting_partition,
)
from intake_ledger_cli.aws import reading
from intake_ledger_cli.aws.deployed import DeployedPipeline
from intake_ledger_cli.aws.read_budget import BudgetSpentError, ReadBudget, read_token, write_token
from intake_ledger_cli.aws.reading import ObjectRow
from intake_ledger_cli.errors import UsageError
from intake_ledger_cli.show.formatting import shown_reason, shown_status, timestamp

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

STUCK, RUNNING = "stuck", "running"
_STATUSES = ("failed", "rejected")
_PARTITIONS: dict[str, Callable[[str], str]] = {
    "waiting": waiting_partition,
    "dismissed": dismissed_partition,
    "removed": removed_partition,
    "rejected-rows": rejected_rows_partition,
}
"""The partition of the index that has the rows of a status."""
WORDS = (*_STATUSES, *_PARTITIONS, STUCK, RUNNING)
"""The values of `--status`: unfinished rows, removed ones, committed files with rejected rows, claims without a living
worker, and executions that run."""
_NO_REASON = "no reason"
_LONGEST_LEASE_MS = 86_400_000
"""A lease of an execution is shorter: SQS hides its message for at most twelve hours."""
_LARGE_LIST = 1_000
"""Rows of a list that reads each partition in whole pages."""
_CSV_COLUMNS = ("since", "status", "attempts", "reason_code", "reason", "key")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedRows:
    """The rows that a list has. Times are in epoch milliseconds."""

    word: str = ""
    """A status of `WORDS`. Empty: failed and rejected rows."""
    prefix: str = ""
    before: int | None = None
    """Only rows whose last change is before this time."""


def select_rows(
    client: "DynamoDBClient",
    deployed: DeployedPipeline,
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
    status = Status(selection.word.upper()) if selection.word in _STATUSES else None
    if selection.word == STUCK:
        rows = _stuck_rows(client, deployed, now, after, budget)
    else:
        is_filtered = status is not None or selection.prefix
        rows = reading.rows_to_review(
            client,
            deployed,
            status,
            after=after,
            names=[_PARTITIONS[selection.word](deployed.name)]
            if selection.word in _PARTITIONS
            else review_partitions(deployed.name),
            before=selection.before,
            page_rows=None if is_filtered or limit is None or limit >= _LARGE_LIST else limit + 1,
            budget=budget,
        )
    for entry in rows:
        is_old = selection.before is None or entry.row.updated_at < selection.before
        if is_old and entry.key.startswith(selection.prefix):
            yield entry


def status_word(text: str) -> str:
    """Parse the option `--status`.

    Raises:
        UsageError: No list has this status.

    """
    word = text.lower()
    if word and word not in WORDS:
        raise UsageError(f"--status {text} cannot be listed: use one of {', '.join(WORDS)}, or omit it")
    return word


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


def csv_lines(deployed: DeployedPipeline, rows: Iterator[ObjectRow], limit: int) -> Iterator[str]:
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
    client: "DynamoDBClient", deployed: DeployedPipeline, now: int, after: str | None, budget: ReadBudget
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
            # The lease of an execution is extended, and it may have been aborted since: the execution is asked.
            ":now": {"N": str(now + _LONGEST_LEASE_MS if deployed.has_executions else now)},
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
