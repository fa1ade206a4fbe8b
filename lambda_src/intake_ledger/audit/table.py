"""Scans the rows of the ledger's table."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from intake_ledger.protocol.change import State
from intake_ledger.protocol.row import (
    FORMAT,
    STORED_STATUSES,
    Ordering,
    RowKey,
    Status,
    from_dynamodb,
    is_settled,
    row_from_attributes,
    row_key,
)

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

_OF_LATEST = (
    "pk",
    "sk",
    "format",
    "status",
    "committed_state",
    "late_writes",
    "updated_at",
    "lease_until",
    "settled_as",
    "tags_pending",
)
_OF_EVERY = (*_OF_LATEST, "kind", "version_id", "etag", "size")

_THIS_FORMAT = {"N": str(FORMAT)}
_NEVER = {"N": "0"}
_NO_STATE: dict[str, Any] = {"S": ""}
_NO_STATES: dict[str, Any] = {"SS": []}
_STATUSES = frozenset(status.value for status in STORED_STATUSES)


@dataclass(frozen=True, slots=True)
class Held:
    """The columns of a row that the query needs. Times are epoch milliseconds."""

    row_key: RowKey
    state: State | None
    """The last claimed state in EVERY_VERSION. In LATEST, S3 is asked for the state of a candidate."""
    committed: str | None
    """The identity of the committed state. None if the row is not settled, or a committed version has no tag yet."""
    updated_at: int
    readable: bool
    """False if a later release wrote the row."""
    may_be_gone: bool
    """True if the row is a candidate when S3 does not show its object. In LATEST, the removal was not committed. In
    EVERY_VERSION, an attempt may be half done. A row whose version has no tag yet is a candidate too."""
    status: str = Status.LATER_FORMAT
    lease_until: int | None = None
    settled_as: str | None = None


@dataclass(frozen=True, slots=True)
class RowPage:
    """Some rows. `after` is the place where the next page begins. None on the last one."""

    rows: list[Held]
    after: RowKey | None


class AuditTable:
    """Scans the table of `LedgerTable`. With a segment, `(number, total)`, it scans this part of the table only."""

    def __init__(self, client: "DynamoDBClient", name: str, segment: tuple[int, int] | None = None) -> None:
        self._client = client
        self._name = name
        self._segment = segment

    def held(
        self, pipeline: str, ordering: Ordering, start: RowKey | None = None, *, tags: bool = False
    ) -> Iterator[RowPage]:
        """All rows of the pipeline in this ordering, from `start` on. The reads are not consistent.

        `tags` is true if committed versions get a tag.
        """
        # The sort keys of EVERY_VERSION continue after the `@`. Those of LATEST are all the same.
        every = ordering is Ordering.EVERY_VERSION
        exact = {":sk": row_key(pipeline, ordering, "", "", "").sk}
        values = {":least": f"{pipeline}@", ":most": f"{pipeline}A"} if every else exact
        filter_, names = "#sk >= :least AND #sk < :most" if every else "#sk = :sk", _OF_EVERY if every else _OF_LATEST
        request: dict[str, Any] = {
            "TableName": self._name,
            "FilterExpression": f"{filter_} AND (attribute_exists(#status) OR attribute_exists(#format))",
            "ProjectionExpression": ", ".join(f"#{name}" for name in names),
            "ExpressionAttributeNames": {f"#{name}": name for name in names},
            "ExpressionAttributeValues": {name: {"S": value} for name, value in values.items()},
        }
        if start is not None:
            request["ExclusiveStartKey"] = {"pk": {"S": start.pk}, "sk": {"S": start.sk}}
        if self._segment is not None:
            request["Segment"], request["TotalSegments"] = self._segment
        for page in self._client.get_paginator("scan").paginate(**request):
            last: Any = page.get("LastEvaluatedKey")
            after = RowKey(last["pk"]["S"], last["sk"]["S"]) if last else None
            yield RowPage([_held(item, every=every, tags=tags) for item in page["Items"]], after)


def _held(item: dict[str, Any], *, every: bool, tags: bool) -> Held:
    row_key, updated = RowKey(item["pk"]["S"], item["sk"]["S"]), item.get("updated_at", _NEVER).get("N", "")
    lease = item.get("lease_until", _NEVER).get("N", "")
    # A number that is not whole is of a later release, as in `from_dynamodb`.
    if not _is_readable(item) or not updated.isdecimal() or not lease.removeprefix("-").isdecimal():
        return Held(row_key, None, None, 0, readable=False, may_be_gone=not every)
    committed, status = _settled_state(item), item["status"]["S"]
    untagged = tags and "tags_pending" in item
    held = Held(
        row_key,
        None,
        None if untagged else committed,
        int(updated),
        readable=True,
        may_be_gone=untagged or (not every and committed != "absent"),
        status=status,
        lease_until=int(lease) if "lease_until" in item else None,
        settled_as=item["settled_as"].get("S") if "settled_as" in item else None,
    )
    half_done = every and (untagged or status in (Status.PROCESSING, Status.FAILED))
    row = row_from_attributes(from_dynamodb(item)) if half_done else None
    if row is None or row.status is Status.LATER_FORMAT:
        return held
    return replace(held, state=row.state, may_be_gone=True)


def _settled_state(item: dict[str, Any]) -> str | None:
    """The state that a row has committed, or None if it is not settled. Does not make a `Row`, to save time."""
    if "committed_state" not in item:
        return None
    state: str = item["committed_state"]["S"]
    late_writes = item["late_writes"]["SS"] if "late_writes" in item else ()
    return state if is_settled(item["status"]["S"], state, late_writes) else None


def _is_readable(item: Mapping[str, Any]) -> bool:
    """True if this release may judge the row. A faster form of `rows.is_readable` for the attributes of a scan."""
    return (
        item.get("format", _THIS_FORMAT) == _THIS_FORMAT
        and item.get("status", {}).get("S") in _STATUSES
        and "S" in item.get("committed_state", _NO_STATE)
        and "SS" in item.get("late_writes", _NO_STATES)
    )
