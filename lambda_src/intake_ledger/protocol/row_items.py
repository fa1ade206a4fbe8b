"""The DynamoDB item of a row: its keys, its attributes, and their typed form."""

import hashlib
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any

from intake_ledger.protocol.object_state import StateKind
from intake_ledger.protocol.row import DISMISSED, FORMAT, STORED_STATUSES, Row, Status

_SORT_KEY_BYTES = 1024  # DynamoDB's limit of a sort key
REVIEW_INDEX = "needs_review"
"""The sparse index of rows that failed, wait, are rejected, dismissed or removed unprocessed, by `updated_at`."""
REVIEW_PARTITIONS = 20
"""Partition keys of one pipeline in the index `needs_review`. DynamoDB takes 1,000 write units a second for each, and a
failure costs two: one for the row that enters the index, one when it leaves."""
_ROW_FIELDS = tuple(field.name for field in fields(Row))
_ENUMS: dict[str, type[StrEnum]] = {"status": Status, "kind": StateKind}
_KNOWN: dict[str, frozenset[str]] = {
    "status": frozenset(STORED_STATUSES),
    "kind": frozenset(StateKind),
}
"""The values that this release stores."""
# For unions: the union. For `frozenset[str]`: the set.
_TYPES: dict[str, Any] = {
    field.name: str if field.name in _ENUMS else getattr(field.type, "__origin__", field.type) for field in fields(Row)
}


class Ordering(StrEnum):
    """The promise of a pipeline about several versions of one key."""

    LATEST = "LATEST"
    """The downstream reflects the newest state of each key in the end. Versions that are overwritten before they are
    processed are skipped."""
    EVERY_VERSION = "EVERY_VERSION"
    """Each version is processed, in any order."""


@dataclass(frozen=True, slots=True)
class RowKey:
    """The row's primary key."""

    pk: str
    sk: str


def row_key(pipeline: str, ordering: Ordering, bucket: str, key: str, identity: str | None) -> RowKey:
    """The primary key of a change's row: one row per key in LATEST, one per state (`identity`) in EVERY_VERSION.

    A bucket's name has no slash and a pipeline's has no `@`. Therefore two objects never have the same row.
    """
    sk = f"{pipeline}@latest" if ordering is Ordering.LATEST else f"{pipeline}@{identity}"
    if len(sk.encode()) > _SORT_KEY_BYTES:
        # A version id alone may have 1,024 bytes.
        sk = f"{pipeline}@h#{hashlib.sha256(sk.encode()).hexdigest()}"
    return RowKey(f"{bucket}/{key}", sk)


def success_key(pipeline: str) -> RowKey:
    """The key of the item with the last success of all workers. No row has such a key: its key has a slash."""
    return RowKey(f"{pipeline}#downstream", "last_success")


def breaker_key(pipeline: str) -> RowKey:
    """The key of the item that shows the circuit breaker's state to people."""
    return RowKey(f"{pipeline}#downstream", "breaker")


def pause_key(pipeline: str) -> RowKey:
    """The key of the item that says who has paused the consumer, and why."""
    return RowKey(f"{pipeline}#downstream", "pause")


def review_partitions(pipeline: str) -> list[str]:
    """All partition keys of the pipeline's FAILED and REJECTED rows in the index `needs_review`."""
    return [f"{pipeline}#{number}" for number in range(REVIEW_PARTITIONS)]


def review_partition(pipeline: str, key: RowKey) -> str:
    """The partition key of one row in the index `needs_review` while the row is FAILED or REJECTED."""
    return f"{pipeline}#{zlib.crc32(f'{key.pk} {key.sk}'.encode()) % REVIEW_PARTITIONS}"


def waiting_partition(pipeline: str) -> str:
    """The partition key of the pipeline's waiting rows in the index `needs_review`. These rows did not fail."""
    return f"{pipeline}#waiting"


def dismissed_partition(pipeline: str) -> str:
    """The partition key of the pipeline's dismissed rows in the index `needs_review`. They need no review."""
    return f"{pipeline}{DISMISSED}"


def removed_partition(pipeline: str) -> str:
    """The partition key of rows of objects that were removed unprocessed, in the index `needs_review`."""
    return f"{pipeline}#removed"


def row_attributes(row: Row) -> dict[str, Any]:
    """The row as attributes by name. None and empty sets are left out."""
    return {name: value for name in _ROW_FIELDS if (value := getattr(row, name)) not in (None, frozenset())}


def row_difference(before: Row, after: Row) -> tuple[dict[str, Any], list[str]]:
    """The attributes to set, and the names of those to remove, in an update from one row to the other.

    `late_writes` is left out: an update adds and deletes elements of this set, and keeps those of other workers.
    """
    new = {
        name: value
        for name in _ROW_FIELDS
        if name != "late_writes" and (value := getattr(after, name)) != getattr(before, name)
    }
    return {name: value for name, value in new.items() if value is not None}, [
        name for name, value in new.items() if value is None
    ]


def row_from_attributes(item: Mapping[str, Any]) -> Row | None:
    """Make a row of an item's attributes. None: the item has no status. An audit's mark alone is not a row.

    Rows of older releases may lack attributes, and rows of this format may have more. Both can be read. A row of a
    later format gets the status LATER_FORMAT, and people may read the other attributes.
    """
    if "status" not in item and "format" not in item:
        return None
    known = {name: item[name] for name in _ROW_FIELDS if name in item}
    if not is_readable(known):
        return _unreadable(known)
    for name, enum in _ENUMS.items():
        if name in known:
            known[name] = enum(known[name])
    return Row(**{"fence": 0, **known})


def is_readable(item: Mapping[str, Any]) -> bool:
    """True if this release knows the format of a row with these attributes. Then it may judge and replace the row."""
    return (
        item.get("format", FORMAT) == FORMAT
        and "status" in item
        and all(item[name] in values for name, values in _KNOWN.items() if isinstance(item.get(name), str))
        and all(isinstance(item[name], _TYPES[name]) for name in _ROW_FIELDS if name in item)
    )


def _unreadable(item: Mapping[str, Any]) -> Row:
    """A row of a later format. Attributes of another type than in this release are left out."""
    kept = {name: value for name, value in item.items() if name not in _ENUMS and isinstance(value, _TYPES[name])}
    return Row(**{"fence": 0, "format": FORMAT + 1, **kept, "status": Status.LATER_FORMAT})


def to_dynamodb[Name](attributes: Mapping[Name, Any]) -> dict[Name, Any]:
    """The attributes in DynamoDB's typed form."""
    return {
        name: {"SS": sorted(value)}
        if isinstance(value, frozenset)
        else {"N": str(value)}
        if isinstance(value, int)
        else {"S": str(value)}
        for name, value in attributes.items()
    }


def from_dynamodb(item: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes of an item as text, whole numbers and sets of texts.

    Attributes of other types stay in DynamoDB's typed form, because a later release may have stored them.
    """
    return {name: _value(typed) for name, typed in item.items()}


def _value(typed: Mapping[str, Any]) -> Any:
    if "S" in typed:
        return typed["S"]
    # int() also takes spaces and underscores, and fails for a number such as 1E+3.
    if "N" in typed and typed["N"].removeprefix("-").isdecimal():
        return int(typed["N"])
    if "SS" in typed:
        return frozenset(typed["SS"])
    return typed
