"""How many rows wait for something, by status. Counts stop at a bound, and one that is not certain says so."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from intake_ledger.protocol import row as rows
from intake_ledger.protocol.row import Status
from intake_ledger_cli.errors import denied_action
from intake_ledger_cli.reading import REVIEW_INDEX

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

    from intake_ledger_cli.deployed import DeployedPipeline

MOST = 10_000
"""A person who has more rows of a status than this needs no exact number."""
MOST_READ = 200_000
"""DynamoDB reads every row of the index to count those of one status: some 100 MB then."""


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
        """Whether nothing can be said: what was not read may be any number."""
        return bool(self.why) and self.number == 0


@dataclass(frozen=True, slots=True)
class Counts:
    """The rows in the index, by what they wait for."""

    failed: Count
    rejected: Count
    waiting: Count
    later_format: Count
    """Rows with a status that this release does not know."""


def count_rows(client: "DynamoDBClient", deployed: "DeployedPipeline") -> Counts:
    """Count with `Select=COUNT`, so that no rows are transferred.

    Raises:
        ClientError: This person may not read the index, or DynamoDB refuses the request itself.

    """
    partitions = rows.review_partitions(deployed.name)
    waiting = _count(client, deployed, [rows.waiting_partition(deployed.name)])
    total = _count(client, deployed, partitions)
    if total.number == 0:
        return Counts(total, total, waiting, total)
    failed = _count(client, deployed, partitions, Status.FAILED)
    rejected = _count(client, deployed, partitions, Status.REJECTED)
    return Counts(failed, rejected, waiting, _rest(total, failed, rejected))


def _rest(total: Count, *others: Count) -> Count:
    """The rows that are in none of the others."""
    if total.more or total.why or any(one.more or one.why for one in others):
        return Count(0, why="the other counts are not exact")
    # Each count is a request of its own, and rows come and go in between.
    return Count(max(total.number - sum(one.number for one in others), 0))


def _count(
    client: "DynamoDBClient", deployed: "DeployedPipeline", partitions: Iterable[str], status: Status | None = None
) -> Count:
    """The rows in these partitions; with `status` those that have it."""
    number = read = 0
    try:
        for partition in partitions:
            # A page without a match is not the last one.
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
    """Whether DynamoDB may answer the same request later."""
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
        # A row of a later format is none of this status's, whatever it calls its own.
        request["FilterExpression"] = "#status = :status AND #format = :format"
        request["ExpressionAttributeNames"] |= {"#status": "status", "#format": "format"}
        request["ExpressionAttributeValues"] |= {":status": {"S": status.value}, ":format": {"N": str(rows.FORMAT)}}
    return request
