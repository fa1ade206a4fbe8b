"""Counts the rows that need review, by status. A count stops at a limit and says if it is not exact."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from intake_ledger.protocol import FORMAT, Status, review_partitions, waiting_partition
from intake_ledger_cli.errors import denied_action
from intake_ledger_cli.reading import REVIEW_INDEX

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

    from intake_ledger_cli.deployed import DeployedPipeline

MOST = 10_000
"""The largest exact count of a status."""
MOST_READ = 200_000
"""The largest number of rows that a count reads, about 100 MB. DynamoDB reads all rows of the index to count one
status.
"""


@dataclass(frozen=True, slots=True)
class Count:
    """A number of rows. Read from an index that is a moment behind the table."""

    number: int
    more: bool = False
    """There are more than `number`."""
    why: str = ""
    """Why the number is uncertain: there are `number` or more. Empty when it is certain."""

    @property
    def unknown(self) -> bool:
        """True if the count gives no information, because rows that were not read may have the status."""
        return bool(self.why) and self.number == 0


@dataclass(frozen=True, slots=True)
class Counts:
    """Counts of the rows in the review index."""

    failed: Count
    rejected: Count
    waiting: Count
    later_format: Count
    """Rows with a status that this release does not know."""


def count_rows(client: "DynamoDBClient", deployed: "DeployedPipeline") -> Counts:
    """Count rows with `Select=COUNT`, which transfers no rows.

    Raises:
        ClientError: The caller may not read the index, or DynamoDB refuses the request.

    """
    partitions = review_partitions(deployed.name)
    waiting = _count(client, deployed, [waiting_partition(deployed.name)])
    total = _count(client, deployed, partitions)
    if total.number == 0:
        return Counts(total, total, waiting, total)
    failed = _count(client, deployed, partitions, Status.FAILED)
    rejected = _count(client, deployed, partitions, Status.REJECTED)
    return Counts(failed, rejected, waiting, _rest(total, failed, rejected))


def _rest(total: Count, *others: Count) -> Count:
    """Return the number of rows that no other count includes."""
    if total.more or total.why or any(one.more or one.why for one in others):
        return Count(0, why="the other counts are not exact")
    # The counts come from separate requests, and rows change in between.
    return Count(max(total.number - sum(one.number for one in others), 0))


def _count(
    client: "DynamoDBClient", deployed: "DeployedPipeline", partitions: Iterable[str], status: Status | None = None
) -> Count:
    """Count the rows in these partitions, or only those with this status."""
    number = read = 0
    try:
        for partition in partitions:
            # DynamoDB may return a page without matches before pages with matches.
            for page in client.get_paginator("query").paginate(**_request(deployed, partition, status)):
                number += page["Count"]
                read += page["ScannedCount"]
                if number > MOST:
                    return Count(MOST, more=True)
                if read >= MOST_READ:
                    return Count(number, why=f"only the first {read:,} rows were read")
    except ClientError as error:
        if denied_action(error) is not None or not _is_passing(error):
            raise
        return Count(number, why=f"DynamoDB answered {error.response['Error']['Code']}")
    return Count(number)


def _is_passing(error: ClientError) -> bool:
    """True if DynamoDB may accept the same request later."""
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    code = error.response["Error"]["Code"]
    return status >= 500 or "Throttl" in code or "Exceeded" in code or code == "InternalServerError"


def _request(deployed: "DeployedPipeline", partition: str, status: Status | None) -> Any:
    request: dict[str, Any] = {
        "TableName": deployed.table,
        "IndexName": REVIEW_INDEX,
        "Select": "COUNT",
        "KeyConditionExpression": "#needs_review = :partition",
        "ExpressionAttributeNames": {"#needs_review": "needs_review"},
        "ExpressionAttributeValues": {":partition": {"S": partition}},
    }
    if status is not None:
        # A row of a later format does not count, because its status may have another meaning.
        request["FilterExpression"] = "#status = :status AND #format = :format"
        request["ExpressionAttributeNames"] |= {"#status": "status", "#format": "format"}
        request["ExpressionAttributeValues"] |= {":status": {"S": status.value}, ":format": {"N": str(FORMAT)}}
    return request
