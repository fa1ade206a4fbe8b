"""The items that a run in parts writes down: beside the ledger's rows, in the same table, each with an expiry.

No object's row can have such a partition key: a bucket's name has neither `#` nor `/`.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import batched
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

KEPT_SECONDS = 14 * 86_400
"""How long a run can be looked at afterwards."""
_WRITE_BATCH = 25  # DynamoDB's limit of BatchWriteItem
_READ_BATCH = 50
"""Of pieces of 256 KB, which stay below the 16 MB of DynamoDB's answer."""
_PAUSES = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2)
"""Seconds to wait where DynamoDB has no room for what is left of a batch; after these the part is called again."""

Item = dict[str, Any]


class NoRoom(Exception):  # noqa: N818 - DynamoDB's, and it passes
    """DynamoDB has not taken, or not given, all of a batch."""


class RunItems:
    """The items of one run. `clock` gives epoch milliseconds."""

    def __init__(
        self,
        client: "DynamoDBClient",
        table: str,
        *,
        bucket: str,
        pipeline: str,
        run: str,
        clock: Callable[[], int],
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.client = client
        self.table = table
        self._name = f"{bucket}#{run}"
        self._sort = f"{pipeline}@audit"
        self._clock = clock
        self._sleep = sleep

    def key(self, name: str = "", sort: str = "") -> Item:
        """The key of an item of the run; the run itself has neither name."""
        return {"pk": {"S": f"{self._name}{name}"}, "sk": {"S": f"{self._sort}{sort}"}}

    def get(self, key: Mapping[str, Any]) -> Item:
        """One item that there is."""
        return self.client.get_item(TableName=self.table, Key=key, ConsistentRead=True)["Item"]

    def put(self, item: Mapping[str, Any]) -> None:
        """Write one item."""
        self.client.put_item(TableName=self.table, Item={**item, **self._expiry()})

    def put_all(self, items: Iterable[Mapping[str, Any]]) -> None:
        """Write many.

        Raises:
            NoRoom: Some of them could not be written.

        """
        for few in batched(items, _WRITE_BATCH):
            requests: Any = [{"PutRequest": {"Item": {**item, **self._expiry()}}} for item in few]
            for _ in self._tries():
                answer = self.client.batch_write_item(RequestItems={self.table: requests})
                requests = answer.get("UnprocessedItems", {}).get(self.table)
                if not requests:
                    break

    def get_all(self, keys: Iterable[Mapping[str, Any]]) -> Iterator[Item]:
        """Those of the items that there are, in any order.

        Raises:
            NoRoom: Some of them could not be read.

        """
        for few in batched(keys, _READ_BATCH):
            wanted: Any = {"Keys": list(few), "ConsistentRead": True}
            for _ in self._tries():
                answer = self.client.batch_get_item(RequestItems={self.table: wanted})
                yield from answer["Responses"].get(self.table, ())
                wanted = answer.get("UnprocessedKeys", {}).get(self.table)
                if not wanted:
                    break

    def query(self, name: str) -> Iterator[Item]:
        """All items with this name, read consistently: one that is missing would be keys that nobody has shown."""
        for page in self.client.get_paginator("query").paginate(
            TableName=self.table,
            KeyConditionExpression="#pk = :pk AND begins_with(#sk, :sk)",
            ExpressionAttributeNames={"#pk": "pk", "#sk": "sk"},
            ExpressionAttributeValues={":pk": {"S": f"{self._name}{name}"}, ":sk": {"S": f"{self._sort}#"}},
            ConsistentRead=True,
        ):
            yield from page["Items"]

    def _tries(self) -> Iterator[None]:
        for pause in _PAUSES:
            yield
            self._sleep(pause)
        raise NoRoom("DynamoDB throttles the audit: it goes on later")

    def _expiry(self) -> Item:
        return {"expires_at": {"N": str(self._clock() // 1000 + KEPT_SECONDS)}}
