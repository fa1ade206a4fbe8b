"""The record of a batch of requests: one item of the ledger's table for several hundred objects.

A row for each object would cost a write unit each. A record of 500 keys costs about ten.
"""

import base64
import json
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import batched
from typing import Any, NamedTuple, Self

from intake_ledger.ledger.dynamodb_table import BATCH_GET_KEYS, LedgerTable
from intake_ledger.protocol.change import State, StateKind
from intake_ledger.protocol.row import (
    Ordering,
    Row,
    RowKey,
    from_dynamodb,
    operations_partition,
    row_from_attributes,
    row_key,
)

BATCHES = "request#"
"""The beginning of the sort key of each record. It comes after the records of operations, which begin with a digit."""
BATCH_ENTRIES = 500
"""Requests of one record."""
BATCH_BYTES = 200_000
"""Size limit of the entries of one record before compression. DynamoDB's limit of an item is 400 KB (Developer Guide,
"Quotas"), and a key may have 1,024 bytes."""
KEPT_SECONDS = 365 * 86_400
"""The time after which a record expires, as the record of its operation does."""


class Command(StrEnum):
    """The commands whose requests are recorded."""

    REPROCESS = "reprocess"
    REDRIVE = "redrive"


class Entry(NamedTuple):
    """One request: an object, a message or a set."""

    key: str
    identity: str | None = None
    """The identity of the row's state in EVERY_VERSION. None in LATEST."""
    state: State | None = None
    """The state that a reprocess names, in EVERY_VERSION."""
    fence: int | None = None
    """The fence of the rejection that a redrive opens."""

    def row_key(self, pipeline: str, ordering: Ordering, bucket: str) -> RowKey:
        """The primary key of its row."""
        return row_key(pipeline, ordering, bucket, self.key, self.state.identity if self.state else self.identity)

    @property
    def as_json(self) -> list[Any]:
        """The entry in the record, without the fields at the end that are empty."""
        state = self.state
        fields = state and [state.kind.value, state.version_id, state.etag, state.size, state.created_at]
        content = [self.key, self.identity, fields, self.fence]
        while content[-1] is None:
            content.pop()
        return content

    @classmethod
    def of(cls, content: Sequence[Any]) -> Self:
        """The entry of `as_json`."""
        key, identity, state, fence = [*content, None, None, None][:4]
        return cls(key, identity, State(StateKind(state[0]), *state[1:]) if state else None, fence)


@dataclass(slots=True)
class RequestBatch:
    """The requests of one operation that were sent together, as far as they are outstanding."""

    request_id: str
    """The ID of the operation, a ULID. It has the time of the request."""
    number: str
    """The name of this batch, unique in the operation."""
    command: Command
    sent_at: int
    """When the messages were sent, in epoch milliseconds. If the audit sends them again: when it last looked."""
    entries: list[Entry] = field(default_factory=list)
    lost: int = 0
    """Messages whose content is gone with the queue. Only the ledger of an intake of messages has them."""
    counts: dict[str, int] = field(default_factory=dict)
    """Of a stopped operation: the number of requests by `AfterStop`, as the audit has last counted them."""
    counted_at: int = 0
    """When they were counted, in epoch milliseconds. Without entries, this was the last time."""


def batch_key(pipeline: str, batch: RequestBatch) -> RowKey:
    """The primary key of a record."""
    return RowKey(operations_partition(pipeline), f"{BATCHES}{batch.request_id}#{batch.number}")


def batch_item(batch: RequestBatch, *, made_at: int) -> dict[str, Any]:
    """The attributes of a record. `made_at` is the time of the request in epoch milliseconds."""
    return {
        "command": batch.command.value,
        "sent_at": batch.sent_at,
        "outstanding": len(batch.entries),
        "lost": batch.lost,
        "entries": _packed(batch.entries),
        **({"counts": json.dumps(batch.counts), "counted_at": batch.counted_at} if batch.counts else {}),
        "expires_at": made_at // 1000 + KEPT_SECONDS,
    }


def batch_from_item(item: Mapping[str, Any]) -> RequestBatch:
    """The record in an item, as DynamoDB returns it."""
    content = from_dynamodb(item)
    _, request_id, number = content["sk"].split("#")
    entries = json.loads(zlib.decompress(base64.b64decode(content["entries"])))
    return RequestBatch(
        request_id,
        number,
        Command(content["command"]),
        content["sent_at"],
        [Entry.of(one) for one in entries],
        content["lost"],
        json.loads(content.get("counts", "{}")),
        content.get("counted_at", 0),
    )


def entries_size(entry: Entry) -> int:
    """The size of an entry before compression, in bytes."""
    return len(json.dumps(entry.as_json)) + 1


def _packed(entries: Sequence[Entry]) -> str:
    content = json.dumps([one.as_json for one in entries], separators=(",", ":"))
    return base64.b64encode(zlib.compress(content.encode())).decode()


def queried_batches(client: Any, table: str, pipeline: str) -> Iterator[RequestBatch]:
    """Read all records of a pipeline. Without records it takes one request.

    Raises:
        ClientError: DynamoDB refuses a request. Also BotoCoreError.

    """
    return map(batch_from_item, queried_items(client, table, pipeline, BATCHES))


def queried_items(client: Any, table: str, pipeline: str, prefix: str) -> Iterator[Mapping[str, Any]]:
    """Read the items among the records of operations whose sort key has the prefix, as DynamoDB returns them.

    Raises:
        ClientError: DynamoDB refuses a request. Also BotoCoreError.

    """
    request: dict[str, Any] = {
        "TableName": table,
        "KeyConditionExpression": "pk = :pk AND begins_with(sk, :prefix)",
        "ExpressionAttributeValues": {":pk": {"S": operations_partition(pipeline)}, ":prefix": {"S": prefix}},
        "ConsistentRead": True,
    }
    while True:
        page = client.query(**request)
        yield from page["Items"]
        if "LastEvaluatedKey" not in page:
            return
        request["ExclusiveStartKey"] = page["LastEvaluatedKey"]


def rows_of(
    table: LedgerTable, entries: Sequence[Entry], place: Callable[[Entry], RowKey]
) -> Iterator[tuple[Entry, Row | None]]:
    """Read the row of each request, 100 in a request. `place` gives the primary key of a row.

    Raises:
        ClientError: DynamoDB refuses a request. Also BotoCoreError.

    """
    for group in batched(entries, BATCH_GET_KEYS):
        items = table.get_items(list(dict.fromkeys(map(place, group))))
        yield from ((entry, row_from_attributes(items.get(place(entry), {}))) for entry in group)
