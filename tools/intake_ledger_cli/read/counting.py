"""Counts the rows that need review in a bounded number of requests. A count says if it is not exact."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from intake_ledger.protocol.row import (
    REVIEW_INDEX,
    dismissed_partition,
    from_dynamodb,
    rejected_rows_partition,
    removed_partition,
    review_partitions,
    row_from_attributes,
    to_dynamodb,
    waiting_partition,
)
from intake_ledger_cli.aws import reading
from intake_ledger_cli.aws.deployed import DeployedPipeline
from intake_ledger_cli.errors import is_passing
from intake_ledger_cli.show.console import many

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

PAGES = 5
"""The largest number of pages that a count reads. A page has 1 MB, which is about 2,000 rows."""
_APART = {"waiting": waiting_partition, "removed": removed_partition, "rejected_rows": rejected_rows_partition}
"""The kinds of rows that are counted on their own, with their partitions."""
_ATTRIBUTES = ("needs_review", "status", "format", "updated_at", "waiting_since", "settled_as")


@dataclass(frozen=True, slots=True)
class Count:
    """A number of rows. Read from an index that is a moment behind the table."""

    number: int
    why: str = ""
    """Why the number is uncertain: there are `number` or more. Empty when it is certain."""
    oldest_at: int | None = None
    """The time of the last change of the oldest counted row, or the time since when it waits, in epoch milliseconds."""

    newest_at: int | None = None
    """The time of the last change of the newest counted row, in epoch milliseconds."""

    @property
    def unknown(self) -> bool:
        """True if the count gives no information, because rows that were not read may have the status."""
        return bool(self.why) and self.number == 0

    def as_document(self) -> int | dict[str, Any]:
        """An exact count is a number."""
        if self.unknown:
            return {"unknown": self.why}
        return {"atLeast": self.number, "why": self.why} if self.why else self.number


@dataclass(frozen=True, slots=True)
class Counts:
    """Counts of the rows in the review index."""

    failed: Count
    rejected: Count
    waiting: Count
    later_format: Count
    """Rows with a status that this release does not know."""
    dismissed: Count = field(default_factory=lambda: Count(0))
    """Rejected rows that a person has dismissed. `rejected` leaves them out."""
    removed: Count = field(default_factory=lambda: Count(0))
    """Rows of objects that were removed before they were processed. Nothing is to be done about them."""
    rejected_rows: Count = field(default_factory=lambda: Count(0))
    """Committed rows whose files have rejected rows."""


type _Times = defaultdict[str, list[int]]
"""The times of the rows of each kind that were read."""


def count_rows(client: "DynamoDBClient", deployed: DeployedPipeline, index_rows: int | None = None) -> Counts:
    """Count rows in at most `PAGES` + 3 requests.

    With many rows that did not fail, it sends one more for each partition of the index.

    Args:
        client: of DynamoDB.
        deployed: the pipeline.
        index_rows: DynamoDB's approximate number of rows in the index, if it is known. An uncertain count names it.

    Raises:
        ClientError: The caller may not read the index.

    """
    times: _Times = defaultdict(list)
    whys = {
        kind: _read(_partition_pages(client, deployed, partition(deployed.name)), 1, times, deployed)
        for kind, partition in _APART.items()
    }
    why = _read(_review_pages(client, deployed), PAGES, times, deployed)
    if why and (times["removed"] or times["rejected_rows"]):
        # They must not hide the failures of the others.
        times = defaultdict(list, {kind: times[kind] for kind in _APART})
        names = [*review_partitions(deployed.name), dismissed_partition(deployed.name)]
        reasons = [_read(_partition_pages(client, deployed, name), 1, times, deployed) for name in names]
        why = next(filter(None, reasons), "")
    if why and index_rows is not None:
        why += f"; the index has about {many(index_rows, 'rows')}, by DynamoDB's count of the last six hours"

    def count(kind: str) -> Count:
        own = times[kind]
        return Count(len(own), whys.get(kind, why), min(own, default=None), max(own, default=None))

    return Counts(**{one.name: count(one.name) for one in fields(Counts)})


def _read(pages: Iterator[Mapping[str, Any]], most: int, times: _Times, deployed: DeployedPipeline) -> str:
    """Count the rows of at most `most` pages. Return the reason if there are more rows."""
    own = frozenset(review_partitions(deployed.name))
    read = scanned = 0
    try:
        for page in pages:
            for content in map(from_dynamodb, page["Items"]):
                # Without a fence, a row of this format is readable.
                if (row := row_from_attributes({**content, "fence": 0})) is not None:
                    partition = content["needs_review"]
                    kind = row.status.lower() if partition in own else partition.rpartition("#")[2]
                    times[kind].append((row.waiting_since if kind == "waiting" else None) or row.updated_at)
            read, scanned = read + 1, scanned + page["ScannedCount"]
            if "LastEvaluatedKey" in page and read == most:
                return f"only the first {scanned:,} rows were read"
    except ClientError as error:
        if not is_passing(error):
            raise
        return f"DynamoDB answered {error.response['Error']['Code']}"
    return ""


def _review_pages(client: "DynamoDBClient", deployed: DeployedPipeline) -> Iterator[Any]:
    """Scan the index. A query for each of its partitions would take at least as many requests as partitions."""
    apart = {f":{kind}": partition(deployed.name) for kind, partition in _APART.items()}
    request = {
        "TableName": deployed.table,
        "IndexName": REVIEW_INDEX,
        "FilterExpression": f"begins_with(#needs_review, :own) AND NOT #needs_review IN ({', '.join(apart)})",
        "ExpressionAttributeNames": {},
        "ExpressionAttributeValues": to_dynamodb({":own": f"{deployed.name}#", **apart}),
    }
    yield from client.get_paginator("scan").paginate(**_brief(request))


def _partition_pages(client: "DynamoDBClient", deployed: DeployedPipeline, name: str) -> Iterator[Any]:
    """Query the rows of one partition of the index, those with the oldest change first."""
    yield from client.get_paginator("query").paginate(**_brief(reading.index_query(deployed, name)))


def _brief(request: dict[str, Any]) -> Any:
    """A request for the attributes that are counted."""
    names = request["ExpressionAttributeNames"] | {f"#{name}": name for name in _ATTRIBUTES}
    return request | {"ProjectionExpression": ", ".join(names), "ExpressionAttributeNames": names}
