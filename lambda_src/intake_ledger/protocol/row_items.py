"""Convert rows to the attributes of DynamoDB items and back, and recognize rows of later releases."""

from collections.abc import Mapping
from dataclasses import fields
from enum import StrEnum
from typing import Any

from intake_ledger.protocol.object_state import StateKind
from intake_ledger.protocol.row import FORMAT, STORED_STATUSES, Row, Status

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
