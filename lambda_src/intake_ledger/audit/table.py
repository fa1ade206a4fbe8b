"""What the audit asks of the ledger's table beyond single rows: to go through all of them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from intake_ledger.ledger import from_dynamodb
from intake_ledger.protocol import (
    FORMAT,
    STORED_STATUSES,
    Ordering,
    RowKey,
    State,
    Status,
    is_settled,
    row_from_attributes,
    row_key,
)

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

_OF_LATEST = ("pk", "sk", "format", "status", "committed_state", "late_writes", "updated_at")
_OF_EVERY = (*_OF_LATEST, "kind", "version_id", "etag", "size")

_THIS_FORMAT = {"N": str(FORMAT)}
_NEVER = {"N": "0"}
_NO_STATE: dict[str, Any] = {"S": ""}
_NO_STATES: dict[str, Any] = {"SS": []}
_STATUSES = frozenset(status.value for status in STORED_STATUSES)


@dataclass(frozen=True, slots=True)
class Held:
    """A row of the ledger, as far as the audit needs it before it reads the row again. Times are epoch milliseconds."""

    row_key: RowKey
    state: State | None
    """The state that was last claimed; in EVERY_VERSION, where S3 is not asked what became of it."""
    committed: str | None
    """The identity of the state that the row has committed; None if it is not settled."""
    updated_at: int
    readable: bool
    """False: a later release wrote the row."""
    may_be_gone: bool
    """Whether it matters that S3 does not show it: in LATEST, a key whose removal was not committed; in EVERY_VERSION,
    a version whose row an attempt may have left half done."""


@dataclass(frozen=True, slots=True)
class RowPage:
    """Some rows. `after` is where the next page begins, None on the last one."""

    rows: list[Held]
    after: RowKey | None

    @property
    def later_format(self) -> int:
        """How many of them a later release wrote."""
        return sum(not row.readable for row in self.rows)


class AuditTable:
    """The same table as `LedgerTable`'s; all of it, or the n-th of so many segments that DynamoDB divides it into."""

    def __init__(self, client: "DynamoDBClient", name: str, segment: tuple[int, int] | None = None) -> None:
        self._client = client
        self._name = name
        self._segment = segment

    def held(self, pipeline: str, ordering: Ordering, start: RowKey | None = None) -> Iterator[RowPage]:
        """All rows of the pipeline in this ordering, from `start` on. Not read consistently: what follows from them is
        read again.
        """
        # The sort keys of EVERY_VERSION go on after the `@`; those of LATEST are all the same.
        every = ordering is Ordering.EVERY_VERSION
        exact = {":sk": row_key(pipeline, ordering, "", "", "").sk}
        values = {":least": f"{pipeline}@", ":most": f"{pipeline}A"} if every else exact
        filter_ = "#sk >= :least AND #sk < :most" if every else "#sk = :sk"
        filter_ += " AND (attribute_exists(#status) OR attribute_exists(#format))"
        for items, after in self._scan(filter_, values, _OF_EVERY if every else _OF_LATEST, start):
            yield RowPage([_held(item, every=every) for item in items], after)

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


def _held(item: dict[str, Any], *, every: bool) -> Held:
    row_key, updated = RowKey(item["pk"]["S"], item["sk"]["S"]), item.get("updated_at", _NEVER).get("N", "")
    if not _is_readable(item) or not updated.isdecimal():
        return Held(row_key, None, None, 0, readable=False, may_be_gone=not every)
    committed = _settled_state(item)
    if not every:
        return Held(row_key, None, committed, int(updated), readable=True, may_be_gone=committed != "absent")
    half_done = item.get("status", {}).get("S") in (Status.PROCESSING, Status.FAILED)
    row = row_from_attributes(from_dynamodb(item)) if half_done else None
    if row is None or row.status is Status.LATER_FORMAT:
        return Held(row_key, None, committed, int(updated), readable=True, may_be_gone=False)
    state = State(row.kind, row.version_id, row.etag, row.size)
    return Held(row_key, state, committed, int(updated), readable=True, may_be_gone=True)


def _settled_state(item: dict[str, Any]) -> str | None:
    """The state that a row has committed; None if it is not settled. Without a `Row`, since there may be millions."""
    if "committed_state" not in item:
        return None
    state: str = item["committed_state"]["S"]
    late_writes = item["late_writes"]["SS"] if "late_writes" in item else ()
    return state if is_settled(item["status"]["S"], state, late_writes) else None


def _is_readable(item: Mapping[str, Any]) -> bool:
    """Whether this release may judge the row: `is_readable` for the attributes of this scan, without its cost for
    each of millions.
    """
    return (
        item.get("format", _THIS_FORMAT) == _THIS_FORMAT
        and item.get("status", {}).get("S") in _STATUSES
        and "S" in item.get("committed_state", _NO_STATE)
        and "SS" in item.get("late_writes", _NO_STATES)
    )
