"""The stop of an operation: its messages that are not claimed yet are withdrawn, and its requests are not sent again.

A person writes it, with `intake-ledger operations stop`. It is one item among the records of
operations, and stays for as long as these.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from intake_ledger.ledger.dynamodb_table import LedgerTable
from intake_ledger.protocol.row import RowKey, from_dynamodb, operations_partition
from intake_ledger.requests.record import KEPT_SECONDS, queried_items

STOPS = "stop#"
"""The beginning of the sort key of each stop."""


@dataclass(frozen=True, slots=True)
class Stop:
    """The stop of an operation."""

    request_id: str
    """The ID of the operation, a ULID."""
    at: int
    """Epoch milliseconds."""
    by: str
    because: str

    def key(self, pipeline: str) -> RowKey:
        """The primary key of its item."""
        return _stop_key(pipeline, self.request_id)

    @property
    def item(self) -> dict[str, Any]:
        """The other attributes of its item."""
        expires_at = self.at // 1000 + KEPT_SECONDS
        return {"at": self.at, "done_by": self.by, "because": self.because, "expires_at": expires_at}


def _stop_key(pipeline: str, request_id: str) -> RowKey:
    """The primary key of the stop of an operation."""
    return RowKey(operations_partition(pipeline), f"{STOPS}{request_id}")


def read_stop(table: LedgerTable, pipeline: str, request_id: str) -> Stop | None:
    """The stop of an operation. None: it was not stopped.

    Raises:
        ClientError: DynamoDB refuses the request. Also BotoCoreError.

    """
    key = _stop_key(pipeline, request_id)
    item = table.read(key)
    return _stop({"sk": key.sk, **item}) if item else None


def read_stops(client: Any, table: str, pipeline: str) -> dict[str, Stop]:
    """All stops of a pipeline, by the ID of the operation.

    Raises:
        ClientError: DynamoDB refuses a request. Also BotoCoreError.

    """
    items = map(from_dynamodb, queried_items(client, table, pipeline, STOPS))
    return {one.request_id: one for one in map(_stop, items)}


def _stop(item: Mapping[str, Any]) -> Stop:
    return Stop(item["sk"].removeprefix(STOPS), int(item["at"]), item["done_by"], item["because"])
