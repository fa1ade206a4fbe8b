"""Selects rows for `list`: by status, key, age, or claims of dead workers. Memory does not grow with the table."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass
from itertools import islice
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from intake_ledger.protocol.row import (
    Status,
    dismissed_partition,
    rejected_rows_partition,
    removed_partition,
    to_dynamodb,
    waiting_partition,
)
from intake_ledger_cli.aws import reading
from intake_ledger_cli.aws.deployed import DeployedPipeline
from intake_ledger_cli.aws.reading import ObjectRow, ReadBudget, read_token
from intake_ledger_cli.show.console import DIM, GOOD, WARNING, escape, many
from intake_ledger_cli.show.formatting import duration, listed_status, shown_reason, shown_status, timestamp
from intake_ledger_cli.show.render import table

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
class ListEnd:
    """How a list ended."""

    after: str | None = None
    """The token of the next page, if there is one."""
    stopped_after: int | None = None
    """The number of requests after which the list stopped, although rows may follow. None if it did not."""
    why: str = ""
    """Why AWS did not answer the next request. Empty: the requests are used up."""

    def __str__(self) -> str:
        """How it goes on. Empty: all rows were listed."""
        if self.stopped_after is None:
            return f"more rows follow, list them with --after {self.after}" if self.after else ""
        further = f"go on with --after {self.after}" if self.after else ""
        if not self.why:
            further = f"{further}, or raise --max-requests" if further else "raise --max-requests"
        because = f" ({escape(self.why)})" if self.why else ""
        requests = many(self.stopped_after, "requests")
        return f"stopped after {requests}{because}, and rows may follow: {further or 'try again later'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewPage(ListEnd):
    """The document of `list`: a page of rows."""

    rows: list[ObjectRow]


@dataclass(frozen=True, slots=True)
class ListedReason:
    """A reason of rows. Two bugs have one code and different texts."""

    rows: int
    status: str
    reason_code: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasonCounts(ListEnd):
    """The document of `list --by-reason`, the most rows first."""

    reasons: list[ListedReason]


def select_rows(
    client: "DynamoDBClient",
    deployed: DeployedPipeline,
    word: str,
    *,
    prefix: str = "",
    before: int | None = None,
    now: int,
    after: str | None = None,
    limit: int | None = None,
    budget: ReadBudget,
) -> Iterator[ObjectRow]:
    """Yield rows, oldest change first. Stuck rows come in no order, since no index has them.

    With `limit` and without filters, each partition of the index is read no further than that. A search ends when the
    budget is spent, which then says how far it came.

    Args:
        client: of DynamoDB.
        deployed: the pipeline.
        word: a status of `WORDS`. Empty: failed and rejected rows.
        prefix: only keys with this prefix.
        before: only rows whose last change is before this time, in epoch milliseconds.
        now: epoch milliseconds.
        after: token of a list. Only rows after it.
        limit: the number of rows that are shown. None: all.
        budget: the requests.

    Raises:
        UsageError: `after` is not a token of a list.

    """
    status = Status(word.upper()) if word in _STATUSES else None
    if word == STUCK:
        rows = _stuck_rows(client, deployed, now, after, budget)
    else:
        is_filtered = status is not None or prefix
        rows = reading.rows_to_review(
            client,
            deployed,
            status,
            after=after,
            names=[_PARTITIONS[word](deployed.name)] if word in _PARTITIONS else None,
            before=before,
            page_rows=None if is_filtered or limit is None or limit >= _LARGE_LIST else limit + 1,
            budget=budget,
        )
    for entry in rows:
        if (before is None or entry.row.updated_at < before) and entry.key.startswith(prefix):
            yield entry


def first_page(rows: Iterator[ObjectRow], limit: int, budget: ReadBudget) -> ReviewPage:
    """Return the first `limit` rows, and the token of the last one if there are more. If the budget stopped the search
    for more, return the budget's token.
    """
    found = list(islice(rows, limit))
    last = budget.reached
    if last is not None and next(rows, None) is not None:
        return ReviewPage(rows=found, after=reading.write_token(last))
    return ReviewPage(rows=found, **budget.end())


def count_reasons(rows: Iterator[ObjectRow], budget: ReadBudget) -> ReasonCounts:
    """Count rows by status, reason code and text."""
    counts = Counter(
        (shown_status(entry.row), entry.row.reason_code or _NO_REASON, shown_reason(entry.row)) for entry in rows
    )
    ordered = sorted(counts.items(), key=lambda one: (-one[1], one[0]))
    return ReasonCounts(reasons=[ListedReason(number, *reason) for reason, number in ordered], **budget.end())


def list_table(deployed: DeployedPipeline, found: ReviewPage, now: int) -> RenderableType:
    """The page for people."""
    identities, limit_seconds = not deployed.work.in_bucket, deployed.max_wait_seconds
    lines: list[tuple[object, ...]] = []
    for entry in found.rows:
        row, since, status = entry.row, entry.row.updated_at, listed_status(entry.row)
        reason = shown_reason(row)
        if row.retry_at and row.retry_at > now:
            reason += f"; next attempt in {duration(row.retry_at - now)}"
        if row.waiting_since is not None and (row.needs_review or "").endswith("#waiting"):
            since, status = row.waiting_since, "WAITING"
            if limit_seconds is not None:
                left = since + limit_seconds * 1000 - now
                reason += f"; rejected in {duration(left)}" if left > 0 else "; its deadline has passed"
        identity = [row.version_id or ""] if identities else []
        lines.append((duration(now - since), status, row.attempts, entry.key, *identity, reason))
    return _table(("since", "status", "attempts", "key", *(["identity"] if identities else []), "reason"), lines, found)


def reasons_table(found: ReasonCounts) -> RenderableType:
    """The counts for people."""
    return _table(("rows", "status", "reason code", "reason"), [astuple(one) for one in found.reasons], found)


def _table(titles: Sequence[str], lines: Sequence[tuple[object, ...]], end: ListEnd) -> RenderableType:
    """The lines, and how the list goes on."""
    rest = Text(str(end), style=DIM if end.stopped_after is None else WARNING)
    if not lines:
        return rest or Text("none", style=GOOD)
    return Group(table(titles, lines), *([rest] if rest else []))


def csv_rows(deployed: DeployedPipeline, rows: Iterator[ObjectRow]) -> Iterator[tuple[object, ...]]:
    """Yield a header and the values of each row. Rows of messages have an identity."""
    identities = not deployed.work.in_bucket
    yield (*_CSV_COLUMNS, *(("identity",) if identities else ()))
    for entry in rows:
        row = entry.row
        since = timestamp(row.waiting_since or row.updated_at)
        shown = (since, shown_status(row), row.attempts, row.reason_code or "", shown_reason(row), entry.key)
        yield (*shown, *((row.version_id or "",) if identities else ()))


def _stuck_rows(
    client: "DynamoDBClient", deployed: DeployedPipeline, now: int, after: str | None, budget: ReadBudget
) -> Iterator[ObjectRow]:
    """Scan the table, a request for each MB. An index of claims would cost two writes for each object.

    In a crash loop, a new claim soon follows the claim whose lease ended. An attempt that failed leaves its reason.
    """
    # The lease of an execution is extended, and it may have been aborted since: the execution is asked.
    ended = now + _LONGEST_LEASE_MS if deployed.has_executions else now
    is_stuck = "(#lease_until <= :now OR (#attempts > :first AND attribute_not_exists(#reason)))"
    request = reading.scan_request(
        deployed,
        ("status", "#status = :processing", ":processing", Status.PROCESSING.value),
        ("lease_until", is_stuck, ":now", ended),
    )
    request["ExpressionAttributeNames"] |= {"#attempts": "attempts", "#reason": "reason"}
    request["ExpressionAttributeValues"] |= to_dynamodb({":first": 1})
    if after is not None:
        request["ExclusiveStartKey"] = to_dynamodb(dict(zip(("pk", "sk"), read_token(after, str, str), strict=True)))
    for page in budget.pages(client.get_paginator("scan").paginate(**request)):
        for content, entry in reading.entries_of(deployed, page["Items"]):
            budget.reached = (content["pk"], content["sk"])
            yield entry
        if end := page.get("LastEvaluatedKey"):
            budget.reached = (end["pk"]["S"], end["sk"]["S"])
