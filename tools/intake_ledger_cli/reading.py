"""Reads rows and the audit's state from the ledger's table."""

import base64
import binascii
import heapq
import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby, islice
from typing import TYPE_CHECKING, Any

from intake_ledger.ledger import complete_since, record_key
from intake_ledger.protocol import (
    Ordering,
    Row,
    RowKey,
    Settings,
    Status,
    from_dynamodb,
    review_partitions,
    row_from_attributes,
    waiting_partition,
)
from intake_ledger_cli.errors import CliError

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

    from intake_ledger_cli.deployed import DeployedPipeline

REVIEW_INDEX = "needs_review"
type _Place = tuple[int, str, str]
"""The position of an item among the rows that need review: `updated_at`, then the item's key."""


@dataclass(frozen=True, slots=True)
class ObjectRow:
    """A row and the key of its object."""

    key: str
    row: Row
    token: str = ""
    """The place of the row in a list, for `--after`."""


@dataclass(frozen=True, slots=True)
class ReviewPage:
    """A page of rows that need review, oldest first. `after` is the token of the next page, if there is one."""

    entries: list[ObjectRow]
    after: str | None


@dataclass(frozen=True, slots=True)
class AuditState:
    """The audit's state in the ledger's table. Times are in epoch milliseconds."""

    last: dict[str, Any] | None
    """The report of the last successful run."""
    lease_until: int | None
    next_run_at: int | None
    sending: "SendProgress | None" = None


@dataclass(frozen=True, slots=True)
class SendProgress:
    """The progress of an audit in parts. `begun_at` is in epoch milliseconds."""

    sent: int
    of: int
    """The number of candidates. Some of them may need no message."""
    begun_at: int

    def left_ms(self, now: int) -> int:
        """Estimate the remaining time in milliseconds from the rate until now."""
        return (now - self.begun_at) * max(self.of - self.sent, 0) // max(self.sent, 1)


def read_rows(client: "DynamoDBClient", deployed: "DeployedPipeline", key: str) -> list[ObjectRow]:
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
    contents = [from_dynamodb(item) for page in pages for item in page["Items"]]
    latest = deployed.ordering is Ordering.LATEST
    fitting = [one for one in contents if one["sk"].endswith("@latest") is latest]
    return [entry for one in fitting if (entry := entry_of(deployed, one))]


def rows_to_review(
    client: "DynamoDBClient",
    deployed: "DeployedPipeline",
    status: Status | None = None,
    *,
    after: str | None = None,
    waiting: bool = False,
    before: int | None = None,
    page_rows: int | None = None,
) -> Iterator[ObjectRow]:
    """Yield failed and rejected rows, oldest first. The index is eventually consistent.

    Args:
        client: of DynamoDB.
        deployed: the pipeline.
        status: only rows with this status.
        after: token of a list. Only rows after it.
        waiting: rows whose processor raised `NotYet` instead.
        before: only rows whose last change is before this time, in epoch milliseconds.
        page_rows: rows of one request to each partition. As many as DynamoDB gives when omitted.

    Raises:
        CliError: `after` is not a token of a list.

    """
    for item in _review_items(client, deployed, status, after=_place(after), waiting=waiting, page_rows=page_rows):
        if before is not None and _place_of(item)[0] >= before:
            return
        if entry := entry_of(deployed, from_dynamodb(item)):
            yield entry


def first_page(rows: Iterator[ObjectRow], limit: int) -> ReviewPage:
    """Return the first `limit` rows, and the token of the last one if there are more."""
    found = list(islice(rows, limit))
    more = next(rows, None) is not None
    return ReviewPage(found, found[-1].token if more else None)


def read_audit_state(client: "DynamoDBClient", deployed: "DeployedPipeline") -> AuditState:
    """Read the audit's state, which `intake_ledger.audit.runs` writes."""
    return audit_state(client, deployed, read_item(client, deployed, audit_key(deployed)))


def audit_key(deployed: "DeployedPipeline") -> RowKey:
    """Return the key of the item with the audit's state."""
    return RowKey(deployed.bucket, f"{deployed.name}@audit")


def read_item(client: "DynamoDBClient", deployed: "DeployedPipeline", key: RowKey) -> dict[str, Any]:
    """Read one item consistently. It is empty if there is none."""
    place: Any = {"pk": {"S": key.pk}, "sk": {"S": key.sk}}
    return from_dynamodb(client.get_item(TableName=deployed.table, Key=place, ConsistentRead=True).get("Item", {}))


def audit_state(client: "DynamoDBClient", deployed: "DeployedPipeline", found: dict[str, Any]) -> AuditState:
    """Interpret the item of the audit's state. An audit in parts takes one more request."""
    last = json.loads(found["last_report"]) if "last_report" in found else None
    sending = None
    if "lease_owner" in found:
        # An audit in parts counts its messages in another item: see `intake_ledger.audit.budget`.
        key = RowKey(f"{deployed.bucket}#{found['lease_owner']}", f"{deployed.name}@audit")
        count = read_item(client, deployed, key)
        sending = SendProgress(count["sent"], count["of"], count["begun_at"]) if "of" in count else None
    return AuditState(last, found.get("lease_until"), found.get("next_run_at"), sending)


def read_complete_since(client: "DynamoDBClient", deployed: "DeployedPipeline") -> int | None:
    """Return the time since when each processed object has a row, in epoch milliseconds. Return None if rows may be
    missing.

    See `intake_ledger.ledger.completeness`, which writes the item.
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
    return complete_since(read_item(client, deployed, record_key(settings)), settings)


def _review_items(
    client: "DynamoDBClient",
    deployed: "DeployedPipeline",
    status: Status | None,
    *,
    after: "_Place | None",
    waiting: bool = False,
    page_rows: int | None = None,
) -> Iterator[Any]:
    """Yield the index's items after `after`, merged from all partitions in the order of `_place_of`."""
    names = [waiting_partition(deployed.name)] if waiting else review_partitions(deployed.name)
    partitions = [
        _by_place(_one_partition(client, deployed, name, status, after, page_rows=page_rows)) for name in names
    ]
    for item in heapq.merge(*partitions, key=_place_of):
        if after is None or _place_of(item) > after:
            yield item


def _one_partition(
    client: "DynamoDBClient",
    deployed: "DeployedPipeline",
    partition: str,
    status: Status | None,
    after: "_Place | None",
    *,
    page_rows: int | None,
) -> Iterator[Any]:
    request: dict[str, Any] = {
        "TableName": deployed.table,
        "IndexName": REVIEW_INDEX,
        "KeyConditionExpression": "#needs_review = :partition",
        "ExpressionAttributeNames": {"#needs_review": "needs_review"},
        "ExpressionAttributeValues": {":partition": {"S": partition}},
    }
    if after is not None:
        request["KeyConditionExpression"] += " AND #updated_at >= :updated_at"
        request["ExpressionAttributeNames"]["#updated_at"] = "updated_at"
        request["ExpressionAttributeValues"][":updated_at"] = {"N": str(after[0])}
    if status is not None:
        request["FilterExpression"] = "#status = :status"
        request["ExpressionAttributeNames"]["#status"] = "status"
        request["ExpressionAttributeValues"][":status"] = {"S": status.value}
    if page_rows is not None:
        request["PaginationConfig"] = {"PageSize": page_rows}
    for page in client.get_paginator("query").paginate(**request):
        yield from page["Items"]


def _by_place(items: Iterator[Any]) -> Iterator[Any]:
    """Sort the items of one millisecond, whose order DynamoDB does not define."""
    for _, group in groupby(items, key=lambda item: item["updated_at"]["N"]):
        yield from sorted(group, key=_place_of)


def _place_of(item: Any) -> "_Place":
    return int(item["updated_at"]["N"]), item["pk"]["S"], item["sk"]["S"]


def entry_of(deployed: "DeployedPipeline", content: dict[str, Any]) -> ObjectRow | None:
    """Return None for other items: an audit's record, or a row of another bucket that the pipeline used before."""
    row = row_from_attributes(content)
    own = f"{deployed.bucket}/"
    if row is None or not content["pk"].startswith(own):
        return None
    return ObjectRow(content["pk"].removeprefix(own), row, _token((row.updated_at, content["pk"], content["sk"])))


def _token(place: "_Place") -> str:
    """Encode the end of a list for the command line."""
    return base64.urlsafe_b64encode(json.dumps(place).encode()).decode()


def _place(token: str | None) -> "_Place | None":
    if token is None:
        return None
    try:
        updated_at, pk, sk = json.loads(base64.urlsafe_b64decode(token))
        return int(updated_at), str(pk), str(sk)
    except (TypeError, ValueError, binascii.Error):
        raise CliError(f"--after {token} is not a token of this list: copy the token that `list` printed") from None
