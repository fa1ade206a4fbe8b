"""Calculates the capacity units of a DynamoDB request by its documented rules.

Sizes are in the developer guide under "DynamoDB item sizes and formats", units under "DynamoDB read and write
operations". A write costs one unit for each KB of the larger of the item before and after. A refused conditional write
costs as much, and a transaction costs double. A consistent read costs one unit for each 4 KB, also if the item does not
exist. Global secondary indexes are under "Write capacity units for global secondary indexes": one write to add or
remove an entry, and two to change its key. Deletions by TTL are free.
"""

from collections.abc import Mapping

WRITE_UNIT, READ_UNIT = 1024, 4096
"""The size of a unit in bytes."""

Item = Mapping[str, Mapping[str, str]]


def item_size(item: Item | None) -> int:
    """Return the bytes of an item of texts and numbers, or 0 without an item."""
    return sum(len(name.encode()) + _value_size(value) for name, value in (item or {}).items())


def _value_size(value: Mapping[str, str]) -> int:
    [(kind, content)] = value.items()
    if kind == "S":
        return len(content.encode())
    if kind == "N":
        # A number has one byte for two significant digits, one more byte, and one for a minus sign.
        digits = content.lstrip("-").strip("0")
        return (len(digits) + 1) // 2 + 1 + content.startswith("-")
    raise NotImplementedError(f"the size of a {kind} is not needed by the ledger's rows")


def write_units(*items: Item | None) -> int:
    """Return the units of a write, from the item before, after, and as it was refused. A write without items costs one
    unit.
    """
    return max(1, -(-max(item_size(item) for item in items) // WRITE_UNIT))


def read_units(item: Item | None) -> int:
    """Return the units of a consistent read."""
    return max(1, -(-item_size(item) // READ_UNIT))


def index_units(before: Item | None, after: Item | None, keys: tuple[str, ...]) -> int:
    """Return the units of an index that projects all attributes and holds the items with all of its `keys`."""
    was = before if before and all(key in before for key in keys) else None
    now = after if after and all(key in after for key in keys) else None
    if was is None or now is None:
        return write_units(was or now) if was or now else 0
    if any(was[key] != now[key] for key in keys):
        return write_units(was) + write_units(now)
    return write_units(was, now) if was != now else 0
