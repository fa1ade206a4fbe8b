"""What the audit asks of the ledger's table beyond single rows: to go through all of them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from intake_ledger import rows
from intake_ledger.rows import Ordering, Row, RowKey, Status
from intake_ledger.table import plain

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

_OF_COMMITTED = ("pk", "sk", "format", "status", "committed_state", "late_writes")
_OF_UNSETTLED = ("pk", "sk", "format", "status", "kind", "version_id", "etag", "size")

_THIS_FORMAT = {"N": str(rows.FORMAT)}
_NO_STATE: dict[str, Any] = {"S": ""}
_NO_STATES: dict[str, Any] = {"SS": []}
_STATUSES = frozenset(status.value for status in rows.STORED_STATUSES)
_OF_PIPELINE = "#sk >= :least AND #sk < :most"


@dataclass(frozen=True, slots=True)
class RowPage[Content]:
    """Some rows, as far as the audit needs them. `after` is where the next page begins, None on the last one."""

    rows: list[tuple[RowKey, Content]]
    after: RowKey | None
    later_format: int = 0
    """How many of them a later release wrote."""


class AuditTable:
    """The same table as `LedgerTable`'s; all of it, or the n-th of so many segments that DynamoDB divides it into."""

    def __init__(self, client: "DynamoDBClient", name: str, segment: tuple[int, int] | None = None) -> None:
        self._client = client
        self._name = name
        self._segment = segment

    def committed(
        self, pipeline: str, ordering: Ordering, start: RowKey | None = None
    ) -> Iterator[RowPage[str | None]]:
        """All rows of the pipeline in this ordering, from `start` on, each with the identity of the state that it has
        committed, or None if it is not settled. Not read consistently: what follows from them is read again.
        """
        # The sort keys of EVERY_VERSION go on after the `@`; those of LATEST are all the same.
        exact = ordering is Ordering.LATEST
        values = {":sk": rows.row_key(pipeline, ordering, "", "", "").sk} if exact else _of(pipeline)
        filter_ = "#sk = :sk" if exact else _OF_PIPELINE
        filter_ += " AND (attribute_exists(#status) OR attribute_exists(#format))"
        for items, after in self._scan(filter_, values, _OF_COMMITTED, start):
            readable = [_is_readable(item) for item in items]
            yield RowPage(
                [
                    (RowKey(item["pk"]["S"], item["sk"]["S"]), _settled_state(item) if known else None)
                    for item, known in zip(items, readable, strict=True)
                ],
                after,
                readable.count(False),
            )

    def unsettled(self, pipeline: str, start: RowKey | None = None) -> Iterator[RowPage[Row]]:
        """All rows of the pipeline, whatever their sort key, that an attempt may have left half done."""
        values = {**_of(pipeline), ":processing": Status.PROCESSING, ":failed": Status.FAILED}
        filter_ = f"{_OF_PIPELINE} AND (#status = :processing OR #status = :failed)"
        for items, after in self._scan(filter_, values, _OF_UNSETTLED, start):
            found = [(RowKey(item["pk"]["S"], item["sk"]["S"]), rows.from_attributes(plain(item))) for item in items]
            yield RowPage(
                [(key, row) for key, row in found if row is not None and row.status is not Status.LATER_FORMAT], after
            )

    def _scan(
        self, filter_: str, values: dict[str, str], needed: tuple[str, ...], start: RowKey | None
    ) -> Iterator[tuple[list[dict[str, Any]], RowKey | None]]:
        request: dict[str, Any] = {
            "TableName": self._name,
            "FilterExpression": filter_,
            "ProjectionExpression": ", ".join(f"#{name}" for name in needed),
            "ExpressionAttributeNames": {f"#{name}": name for name in needed},
            "ExpressionAttributeValues": {name: {"S": value} for name, value in values.items()},
        }
        if start is not None:
            request["ExclusiveStartKey"] = {"pk": {"S": start.pk}, "sk": {"S": start.sk}}
        if self._segment is not None:
            request["Segment"], request["TotalSegments"] = self._segment
        for page in self._client.get_paginator("scan").paginate(**request):
            items: Any = page["Items"]
            last: Any = page.get("LastEvaluatedKey")
            yield items, RowKey(last["pk"]["S"], last["sk"]["S"]) if last else None


def _settled_state(item: dict[str, Any]) -> str | None:
    """The state that a row has committed; None if it is not settled. Without a `Row`, since there may be millions."""
    if "committed_state" not in item:
        return None
    state: str = item["committed_state"]["S"]
    late_writes = item["late_writes"]["SS"] if "late_writes" in item else ()
    return state if rows.is_settled(item["status"]["S"], state, late_writes) else None


def _is_readable(item: Mapping[str, Any]) -> bool:
    """Whether this release may judge the row: `rows.is_readable` for the attributes of this scan, without its cost for
    each of millions.
    """
    return (
        item.get("format", _THIS_FORMAT) == _THIS_FORMAT
        and item.get("status", {}).get("S") in _STATUSES
        and "S" in item.get("committed_state", _NO_STATE)
        and "SS" in item.get("late_writes", _NO_STATES)
    )


def _of(pipeline: str) -> dict[str, str]:
    return {":least": f"{pipeline}@", ":most": f"{pipeline}A"}
