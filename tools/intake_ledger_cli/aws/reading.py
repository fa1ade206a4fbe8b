"""Reads rows and the audit's state from the ledger's table. A list may be bounded, and remembers how far it came."""

import base64
import heapq
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from intake_ledger.ledger.dynamodb_table import LedgerTable
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
from intake_ledger_cli.aws.deployed import DeployedPipeline
from intake_ledger_cli.errors import UsageError, describe_error, is_passing
from intake_ledger_cli.show.json_output import document

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

SEARCH_REQUESTS = 100
"""Requests of a list that searches, besides those of the rows that it prints. One reads 1 MB: 2,000 short rows."""
LEAST_REQUESTS = 50
"""The smallest bound. A list reads the 20 partitions of the index at once, so that fewer may not advance."""
ROWS_OF_A_REQUEST = 500
"""A careful number: rows with long reasons have 2 KB."""
type Condition = tuple[str, str, str, str | int]
"""A condition of a row: attribute, expression, and name and value of its placeholder."""
type Report = dict[str, Any]
"""The JSON form of `intake_ledger.audit.report.Report`."""
type _Place = tuple[int, str, str]
"""The position of an item among the rows that need review: `updated_at`, then the item's key."""


@dataclass(slots=True)
class ReadBudget:
    """The requests that a list may send."""

    most: int
    used: int = 0
    reached: tuple[Any, ...] | None = None
    """The place of the list up to which all rows were seen."""
    stopped: bool = False
    """True if rows may follow that were not read."""
    why: str = ""
    """Why AWS did not answer the last request. Empty: the requests are used up."""

    def end(self) -> dict[str, Any]:
        """The fields of a list that stopped: the token with which `--after` continues, the requests, and the reason."""
        if not self.stopped:
            return {}
        after = None if self.reached is None else write_token(self.reached)
        return {"after": after, "stopped_after": self.used, "why": self.why}

    def pages(self, pages: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
        """Yield pages of DynamoDB until the list has to stop. Rows that were seen before it throttles are shown.

        Raises:
            ClientError: DynamoDB throttles the first requests, or refuses one.

        """
        remaining, more = iter(pages), True
        while more:
            if self.used >= self.most:
                self.stopped = True
                return
            try:
                page = next(remaining)
            except ClientError as error:
                if self.reached is None or not is_passing(error):
                    raise
                self.stopped, self.why = True, describe_error(error)
                return
            self.used += 1
            yield page
            more = "LastEvaluatedKey" in page


def write_token(place: tuple[Any, ...]) -> str:
    """Encode a place of a list for the command line."""
    return base64.urlsafe_b64encode(json.dumps(place).encode()).decode()


def read_token(token: str, *kinds: type) -> tuple[Any, ...]:
    """Decode a place of a list.

    Args:
        token: of `write_token`.
        kinds: the types of its values.

    Raises:
        UsageError: It is not a token, or one of another list.

    """
    values = token_values(token)
    if not isinstance(values, list) or [type(value) for value in values] != list(kinds):
        raise UsageError(f"--after {token} is not a token of this list: copy the token that `list` printed")
    return tuple(values)


def token_values(token: str) -> Any:
    """The decoded content of a token. None: it is not one."""
    try:
        return json.loads(base64.urlsafe_b64decode(token))
    except ValueError:  # also binascii's
        return None


@dataclass(frozen=True, slots=True)
class ObjectRow:
    """A row and the key of its object."""

    key: str
    row: Row

    def as_document(self) -> dict[str, Any]:
        return {"key": self.key, **document(self.row)}


@dataclass(frozen=True, slots=True)
class AuditState:
    """The audit's state in the ledger's table. Times are in epoch milliseconds."""

    last: Report | None
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
    filters = () if status is None else (("status", "#status = :status", ":status", status.value),)
    size = {} if page_rows is None else {"PaginationConfig": {"PageSize": page_rows}}
    partitions = []
    for name in review_partitions(deployed.name) if names is None else names:
        request = index_query(deployed, name, *filters, since=None if start is None else start[0]) | size
        partitions.append(_by_place(_one_partition(client, request, bound)))
    for item in heapq.merge(*partitions, key=_place_of):
        place = _place_of(item)
        if bound.stopped or (before is not None and place[0] >= before):
            return
        if start is not None and place <= start:
            continue
        bound.reached = place
        if "status" in item and (entry := entry_of(deployed, from_dynamodb(item))):
            yield entry


def index_query(
    deployed: DeployedPipeline, partition: str, *filters: Condition, since: int | None = None
) -> dict[str, Any]:
    """The query of a partition of the index, oldest change first: from the time `since` on, in epoch milliseconds."""
    keys: list[Condition] = [(REVIEW_INDEX, "#needs_review = :partition", ":partition", partition)]
    keys += [] if since is None else [("updated_at", "#updated_at >= :updated_at", ":updated_at", since)]
    place = {"TableName": deployed.table, "IndexName": REVIEW_INDEX}
    return place | _expression("KeyConditionExpression", keys) | _expression("FilterExpression", filters, of=keys)


def scan_request(deployed: DeployedPipeline, *filters: Condition, prefix: str = "") -> dict[str, Any]:
    """The request for a scan of the pipeline's rows, of keys with a prefix."""
    own: Condition = ("sk", "begins_with(#sk, :own)", ":own", f"{deployed.name}@")
    keys: Condition = ("pk", "begins_with(#pk, :keys)", ":keys", f"{deployed.bucket}/{prefix}")
    return {"TableName": deployed.table} | _expression("FilterExpression", [own, keys, *filters])


def _expression(name: str, conditions: Sequence[Condition], *, of: Sequence[Condition] = ()) -> dict[str, Any]:
    """An expression that joins conditions, with the names and values of these and of those of another expression."""
    every = [*of, *conditions]
    text = {name: " AND ".join(condition for _, condition, _, _ in conditions)} if conditions else {}
    return text | {
        "ExpressionAttributeNames": {f"#{attribute}": attribute for attribute, _, _, _ in every},
        "ExpressionAttributeValues": to_dynamodb({value_name: value for _, _, value_name, value in every}),
    }


def audit_key(deployed: DeployedPipeline) -> RowKey:
    """Return the key of the item with the audit's state, which `intake_ledger.audit.runs` writes."""
    return RowKey(deployed.bucket, f"{deployed.name}@audit")


def read_item(client: "DynamoDBClient", deployed: DeployedPipeline, key: RowKey) -> dict[str, Any]:
    """Read one item consistently. It is empty if there is none."""
    return LedgerTable(client, deployed.table).read(key)


def last_report(found: dict[str, Any]) -> Report | None:
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


def _one_partition(client: "DynamoDBClient", request: dict[str, Any], budget: ReadBudget) -> Iterator[Any]:
    """Yield the items of a partition. The key after which a page ended is an item without a status: it says how far the
    partition was read, although a filter may have left out all items of the page.
    """
    for page in budget.pages(client.get_paginator("query").paginate(**request)):
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
    return ObjectRow(content["pk"].removeprefix(own), row)
