"""The items of the ledger's table that say in which manifests an object is listed.

A set writes one item for each part of its manifest, and only then reads the rows of the parts. A pipeline commits a
part, and only then reads these items. Therefore one of both sees the other, whatever the order.
"""

import hashlib
from collections.abc import Iterator, Sequence
from itertools import batched
from typing import TYPE_CHECKING, Any

from intake_ledger.ledger.dynamodb_table import write_batch
from intake_ledger.protocol.row import RowKey

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

_WRITES = 25  # DynamoDB's limit of BatchWriteItem


def expirations_key(name: str, bucket: str, set_key: str) -> RowKey:
    """The key of the item that says when a lifecycle rule last removed a part of a set.

    Args:
        name: of the pipeline of the sets.
        bucket: the bucket's name.
        set_key: the key of the set.

    """
    return RowKey(f"{bucket}/{set_key}", f"{name}@expirations")


class Membership:
    """The items of one table. Its methods raise botocore's errors if DynamoDB does not answer."""

    def __init__(self, client: "DynamoDBClient", table: str, bucket: str) -> None:
        self._client = client
        self._table = table
        self._bucket = bucket

    def register(self, name: str, set_key: str, manifest: str, parts: Sequence[str]) -> None:
        """Record the parts of a manifest, unless exactly this version of it is recorded.

        Args:
            name: of the pipeline of the sets.
            set_key: the manifest's key.
            manifest: the identity of its version.
            parts: the keys of all parts.

        """
        place = {"pk": {"S": f"{self._bucket}/{set_key}"}, "sk": {"S": f"{name}@parts"}}
        known = self._client.get_item(TableName=self._table, Key=place, ConsistentRead=True).get("Item", {})
        if known.get("listed", {}).get("S") == manifest:
            return
        sort_key = f"{_prefix(name)}{hashlib.sha256(set_key.encode()).hexdigest()}"
        for group in batched(parts, _WRITES):
            items = (
                {"pk": {"S": f"{self._bucket}/{part}"}, "sk": {"S": sort_key}, "set_key": {"S": set_key}}
                for part in group
            )
            write_batch(self._client, self._table, items)
        # Only when all items are there. A worker that dies before writes them again.
        self._client.put_item(TableName=self._table, Item={**place, "listed": {"S": manifest}})

    def note_expiration(self, name: str, set_key: str, *, now: int, keep_seconds: int) -> None:
        """Record that a lifecycle rule has removed a part of a set.

        Args:
            name: of the pipeline of the sets.
            set_key: the key of the set.
            now: epoch milliseconds.
            keep_seconds: the time for which the record stays.

        """
        key = expirations_key(name, self._bucket, set_key)
        item = {"pk": {"S": key.pk}, "sk": {"S": key.sk}, "expired_at": {"N": str(now)}}
        expires_at = {"expires_at": {"N": str(now // 1000 + keep_seconds)}}
        self._client.put_item(TableName=self._table, Item=item | expires_at)

    def sets_of(self, name: str, part: str) -> Iterator[str]:
        """The keys of the sets of this name whose manifests list the part, or once did."""
        request: dict[str, Any] = {
            "TableName": self._table,
            "KeyConditionExpression": "pk = :pk AND begins_with(sk, :prefix)",
            "ExpressionAttributeValues": {":pk": {"S": f"{self._bucket}/{part}"}, ":prefix": {"S": _prefix(name)}},
            "ConsistentRead": True,
        }
        while True:
            answer = self._client.query(**request)
            for item in answer["Items"]:
                yield item["set_key"]["S"]
            if not answer.get("LastEvaluatedKey"):
                return
            request["ExclusiveStartKey"] = answer["LastEvaluatedKey"]


def _prefix(name: str) -> str:
    return f"{name}@part-of#"
