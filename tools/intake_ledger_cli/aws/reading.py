"""Reads rows and the audit's state from the ledger's table."""

import heapq
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby, islice
from typing import TYPE_CHECKING, Any

from intake_ledger.ledger.dynamodb_table import LedgerTable
from intake_ledger.ledger.row_history import all_rows_since, record_key
from intake_ledger.protocol.row import (
    REVIEW_INDEX,
    Ordering,
    Row,
    RowKey,
    Status,
    from_dynamodb,
    review_partitions,
    row_from_attributes,
    to_dynamodb,
)
from intake_ledger.protocol.settings import Settings
from intake_ledger_cli.aws.deployed import DeployedPipeline
from intake_ledger_cli.aws.read_budget import BudgetSpentError, ReadBudget, read_token, write_token
from intake_ledger_cli.show.json_output import document

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

type _Place = tuple[int, str, str]
"""The position of an item among the rows that need review: `updated_at`, then the item's key."""


@dataclass(frozen=True, slots=True)
class ObjectRow:
    """A row and the key of its object."""

    key: str
    row: Row
    token: str = ""
    """The place of the row in a list, for `--after`."""

    def as_document(self) -> dict[str, Any]:
        return {"key": self.key, **document(self.row)}


@dataclass(frozen=True, slots=True)
class ReviewPage:
    """The document of `list`: a page of rows. `after` is the token of the next page, if there is one."""

    rows: list[ObjectRow]
    after: str | None
    stopped_after: int | None = None
    """The number of requests after which the list stopped, although rows may follow. None if it did not."""
    why: str = ""
    """Why AWS did not answer the next request. Empty: the requests are used up."""


@dataclass(frozen=True, slots=True)
class AuditState:
    """The audit's state in the ledger's table. Times are in epoch milliseconds."""

    last: dict[str, Any] | None
    """The report of the last successful run."""
    running: bool
    due_at: int | None
    """The time of the next run."""
    sending: "SendProgress | None"


@dataclass(frozen=True, slots=True)
class SendProgress:
    """The progress of an audit in parts."""

    sent: int
    of: int
    """The number of candidates. Some of them may need no message."""
    left_ms: int
    """The remaining time, estimated from the rate until now."""


def read_rows(client: "DynamoDBClient", deployed: DeployedPipeline, key: str) -> list[ObjectRow]:
    """Read the key's row, or all its rows in EVERY_VERSION, with a consistent read. Rows of another ordering are left
    out: the pipeline may have used another ordering before.
    """
    pages = client.get_paginator("query").paginate(
        TableName=deployed.table,
        KeyConditionExpression="#pk = :pk AND begins_with(#sk, :own)",
        ExpressionAttributeNames={"#pk": "pk", "#sk": "sk"},
        ExpressionAttributeValues={":pk": {"S": f"{deployed.bucket}/{key}"}, ":own": {"S": f"{deployed.name}@"}},
        ConsistentRead=True,
    )
    return [entry for page in pages for _, entry in entries_of(deployed, page["Items"])]


def rows_to_review(
    client: "DynamoDBClient",
    deployed: DeployedPipeline,
    status: Status | None = None,
    *,
    after: str | None = None,
    names: list[str] | None = None,
    before: int | None = None,
    page_rows: int | None = None,
    budget: ReadBudget | None = None,
) -> Iterator[ObjectRow]:
    """Yield failed and rejected rows, oldest first. The index is eventually consistent.

    Args:
        client: of DynamoDB.
        deployed: the pipeline.
        status: only rows with this status.
        after: token of a list. Only rows after it.
        names: partitions of the index. Those of failed and rejected rows when omitted.
        before: only rows whose last change is before this time, in epoch milliseconds.
        page_rows: rows of one request to each partition. As many as DynamoDB gives when omitted.
        budget: the requests. Without it they are unlimited.

    Raises:
        UsageError: `after` is not a token of a list.

    """
    bound = budget or ReadBudget(sys.maxsize)
    start = None if after is None else read_token(after, int, str, str)
    request = _review_request(deployed, status, start, page_rows)
    names = review_partitions(deployed.name) if names is None else names
    partitions = [_by_place(_one_partition(client, request, name, bound)) for name in names]
    try:
        for item in heapq.merge(*partitions, key=_place_of):
            place = _place_of(item)
            if before is not None and place[0] >= before:
                return
            if start is not None and place <= start:
                continue
            bound.reached = place
            if "status" in item and (entry := entry_of(deployed, from_dynamodb(item))):
                yield entry
    except BudgetSpentError:
        bound.stopped = True


def scan_request(
    deployed: DeployedPipeline, *conditions: tuple[str, str, str, str | int], prefix: str = ""
) -> dict[str, Any]:
    """The request for a scan of the pipeline's rows.

    Args:
        deployed: the pipeline.
        conditions: attribute, condition, and name and value of its placeholder, as DynamoDB filters rows.
        prefix: of the keys.

    """
    every = [
        ("sk", "begins_with(#sk, :own)", ":own", f"{deployed.name}@"),
        ("pk", "begins_with(#pk, :keys)", ":keys", f"{deployed.bucket}/{prefix}"),
        *conditions,
    ]
    return {
        "TableName": deployed.table,
        "FilterExpression": " AND ".join(condition for _, condition, _, _ in every),
        "ExpressionAttributeNames": {f"#{attribute}": attribute for attribute, _, _, _ in every},
        "ExpressionAttributeValues": to_dynamodb({name: value for _, _, name, value in every}),
    }


def first_page(rows: Iterator[ObjectRow], limit: int, budget: ReadBudget | None = None) -> ReviewPage:
    """Return the first `limit` rows, and the token of the last one if there are more. If the budget stopped the search
    for more, return the budget's token.
    """
    found = list(islice(rows, limit))
    if next(rows, None) is not None:
        return ReviewPage(found, found[-1].token)
    if budget is None or not budget.stopped:
        return ReviewPage(found, None)
    return ReviewPage(found, budget.token, budget.used, budget.why)


def audit_key(deployed: DeployedPipeline) -> RowKey:
    """Return the key of the item with the audit's state, which `intake_ledger.audit.runs` writes."""
    return RowKey(deployed.bucket, f"{deployed.name}@audit")


def read_item(client: "DynamoDBClient", deployed: DeployedPipeline, key: RowKey) -> dict[str, Any]:
    """Read one item consistently. It is empty if there is none."""
    return LedgerTable(client, deployed.table).read(key)


def last_report(found: dict[str, Any]) -> dict[str, Any] | None:
    """Return the report of the last successful run from the item of the audit's state."""
    return json.loads(found["last_report"]) if "last_report" in found else None


def audit_state(client: "DynamoDBClient", deployed: DeployedPipeline, found: dict[str, Any], now: int) -> AuditState:
    """Interpret the item of the audit's state. An audit in parts takes one more request."""
    sending = None
    if "lease_owner" in found:
        # An audit in parts counts its messages in another item: see `intake_ledger.audit.budget`.
        key = RowKey(f"{deployed.bucket}#{found['lease_owner']}", f"{deployed.name}@audit")
        count = read_item(client, deployed, key)
        if "of" in count:
            sent, of = count["sent"], count["of"]
            sending = SendProgress(sent, of, (now - count["begun_at"]) * max(of - sent, 0) // max(sent, 1))
    return AuditState(last_report(found), found.get("lease_until", 0) > now, found.get("next_run_at"), sending)


def read_all_rows_since(client: "DynamoDBClient", deployed: DeployedPipeline) -> int | None:
    """Return the time since when each processed object has a row, in epoch milliseconds. Return None if rows may be
    missing.

    See `intake_ledger.ledger.row_history`, which writes the item.
    """
    settings = Settings(
        pipeline=deployed.name,
        bucket=deployed.bucket,
        bucket_owner=deployed.bucket_owner,
        table=deployed.table,
        queue_url=deployed.queue_url,
        ordering=deployed.ordering,
        deletes=deployed.deletes,
        retention_seconds=deployed.retention_seconds,
        clock_skew_seconds=deployed.clock_skew_seconds,
        filters=deployed.filters,
        keeps_rows=deployed.keeps_rows,
        skips_existing=deployed.skips_existing,
    )
    return all_rows_since(read_item(client, deployed, record_key(settings)), settings)


def _review_request(
    deployed: DeployedPipeline, status: Status | None, start: tuple[Any, ...] | None, page_rows: int | None
) -> dict[str, Any]:
    """Return the query of each partition, without the partition."""
    request: dict[str, Any] = {
        "TableName": deployed.table,
        "IndexName": REVIEW_INDEX,
        "KeyConditionExpression": "#needs_review = :partition",
        "ExpressionAttributeNames": {"#needs_review": REVIEW_INDEX},
        "ExpressionAttributeValues": {},
    }
    if start is not None:
        request["KeyConditionExpression"] += " AND #updated_at >= :updated_at"
        request["ExpressionAttributeNames"]["#updated_at"] = "updated_at"
        request["ExpressionAttributeValues"][":updated_at"] = {"N": str(start[0])}
    if status is not None:
        request["FilterExpression"] = "#status = :status"
        request["ExpressionAttributeNames"]["#status"] = "status"
        request["ExpressionAttributeValues"][":status"] = {"S": status.value}
    if page_rows is not None:
        request["PaginationConfig"] = {"PageSize": page_rows}
    return request


def _one_partition(
    client: "DynamoDBClient", request: dict[str, Any], partition: str, budget: ReadBudget
) -> Iterator[Any]:
    """Yield the items of a partition. The key after which a page ended is an item without a status: it says how far the
    partition was read, although a filter may have left out all items of the page.
    """
    values = request["ExpressionAttributeValues"] | {":partition": {"S": partition}}
    pages: Any = client.get_paginator("query").paginate(**request | {"ExpressionAttributeValues": values})
    for page in budget.pages(pages):
        yield from page["Items"]
        if end := page.get("LastEvaluatedKey"):
            yield end


def _by_place(items: Iterator[Any]) -> Iterator[Any]:
    """Sort the items of one millisecond, whose order DynamoDB does not define."""
    for _, group in groupby(items, key=lambda item: item["updated_at"]["N"]):
        yield from sorted(group, key=_place_of)


def _place_of(item: Any) -> "_Place":
    return int(item["updated_at"]["N"]), item["pk"]["S"], item["sk"]["S"]


def entries_of(
    deployed: DeployedPipeline, items: Iterable[Mapping[str, Any]]
) -> Iterator[tuple[dict[str, Any], ObjectRow]]:
    """Yield the content of each item that is a row of the pipeline in its present ordering, and the row.

    Rows of another ordering are left out: the pipeline may have used another ordering before.
    """
    latest = deployed.ordering is Ordering.LATEST
    for content in map(from_dynamodb, items):
        if content["sk"].endswith("@latest") is latest and (entry := entry_of(deployed, content)):
            yield content, entry


def entry_of(deployed: DeployedPipeline, content: dict[str, Any]) -> ObjectRow | None:
    """Return None for other items: an audit's record, or a row of another bucket that the pipeline used before."""
    row = row_from_attributes(content)
    own = f"{deployed.bucket}/"
    if row is None or not content["pk"].startswith(own):
        return None
    return ObjectRow(content["pk"].removeprefix(own), row, write_token((row.updated_at, content["pk"], content["sk"])))
