"""Find the set that has waited the longest, and write its age as a metric.

An attempt of a waiting set writes the age of its own set. The audit of sets reads the waiting rows of all sets, so that
a set whose message was lost has an age too.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, override

from intake_ledger.ledger.ledger import Claim
from intake_ledger.observability.powertools import PowertoolsTelemetry
from intake_ledger.protocol.change import Change
from intake_ledger.protocol.row import REVIEW_INDEX, Row, from_dynamodb, row_from_attributes, waiting_partition
from intake_ledger.protocol.verdict import Ruling
from intake_ledger.sets.reader import MOVING, SHRINKING

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

OLDEST_WAITING_SET = "OldestWaitingSet"
"""The metric, in milliseconds."""
EXPIRED_SETS = "ExpiredSets"
"""The metric of messages that end without an effect, because their set is older than the retention and has no row."""
_NAMED = 10
"""The number of parts in a log line."""


class WaitingSets:
    """The waiting rows of a table. Its methods raise botocore's errors if DynamoDB does not answer."""

    def __init__(self, client: "DynamoDBClient", table: str) -> None:
        self._client = client
        self._table = table

    def oldest_since(self, name: str) -> int | None:
        """The time since when the oldest waiting set waits, in epoch milliseconds. None: no set waits.

        Args:
            name: of the pipeline of the sets.

        """
        times = (since for row in self._rows(name) if (since := waiting_since(row)) is not None)
        return min(times, default=None)

    def _rows(self, name: str) -> Iterator[Row]:
        request: dict[str, Any] = {
            "TableName": self._table,
            "IndexName": REVIEW_INDEX,
            "KeyConditionExpression": "#needs_review = :partition",
            "ExpressionAttributeNames": {"#needs_review": REVIEW_INDEX},
            "ExpressionAttributeValues": {":partition": {"S": waiting_partition(name)}},
        }
        while True:
            answer = self._client.query(**request)
            for item in answer["Items"]:
                row = row_from_attributes(from_dynamodb(item))
                if row is not None:
                    yield row
            if not answer.get("LastEvaluatedKey"):
                return
            request["ExclusiveStartKey"] = answer["LastEvaluatedKey"]


class SetTelemetry(PowertoolsTelemetry):
    """The consumer's telemetry, with the age of each waiting set that an attempt looked at, and with expired sets."""

    @override
    def decided(self, change: Change, answer: Claim | Ruling, *, now: int) -> None:
        super().decided(change, answer, now=now)
        if isinstance(answer, Ruling) and answer.expired:
            self._count(EXPIRED_SETS)
            fields = {"bucket": change.bucket, "key": change.key, "parts": change.parts[:_NAMED], "why": answer.why}
            self._logger.warning("expired set", extra=fields)

    _oldest_wait = OLDEST_WAITING_SET

    @override
    def _waiting_since(self, row: Row) -> int | None:
        return waiting_since(row)

    @override
    def waits_long(self, claim: Claim) -> None:
        if not _gets_uploads(claim.row):
            super().waits_long(claim)


def waiting_since(row: Row) -> int | None:
    """The time since when a set waits for its parts or for its processor, in epoch milliseconds.

    None: it does not wait, or its folder is not quiet. Such a folder misses nothing.
    """
    return None if _gets_uploads(row) else row.waiting_since


def _gets_uploads(row: Row) -> bool:
    return (row.version_id or "").startswith((f"{MOVING}-", f"{SHRINKING}-"))
