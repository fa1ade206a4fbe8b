"""What DynamoDB charges for a request, by its documented rules.

Sizes: developer guide, "DynamoDB item sizes and formats". Units: "DynamoDB read and write operations": a write costs
one unit for each KB of the larger of the item before and after, a refused conditional write costs as much, a
transaction costs double; a consistent read costs one unit for each 4 KB, also of an item that is not there. A global
secondary index: "Write capacity units for global secondary indexes": one write to put an entry in or take it out, two
where its key changes. What the sweep of expired items (TTL) deletes is free.
"""

from collections.abc import Mapping

WRITE_UNIT, READ_UNIT = 1024, 4096
"""Bytes."""

Item = Mapping[str, Mapping[str, str]]


def item_size(item: Item | None) -> int:
    """The bytes of an item of texts and numbers; 0 for none."""
    return sum(len(name.encode()) + _value_size(value) for name, value in (item or {}).items())


def _value_size(value: Mapping[str, str]) -> int:
    [(kind, content)] = value.items()
    if kind == "S":
        return len(content.encode())
    if kind == "N":
        # A byte for two significant digits, and one more; a byte for a minus sign.
        digits = content.lstrip("-").strip("0")
        return (len(digits) + 1) // 2 + 1 + content.startswith("-")
    raise NotImplementedError(f"the size of a {kind} is not needed by the ledger's rows")


def write_units(*items: Item | None) -> int:
    """Of a write, given the item before, after, and as it was refused; none of them is one unit too."""
    return max(1, -(-max(item_size(item) for item in items) // WRITE_UNIT))


def read_units(item: Item | None) -> int:
    """Of a consistent read."""
    return max(1, -(-item_size(item) // READ_UNIT))


def index_units(before: Item | None, after: Item | None, keys: tuple[str, ...]) -> int:
    """Of an index that projects everything and holds the items that have all of its `keys`."""
    was = before if before and all(key in before for key in keys) else None
    now = after if after and all(key in after for key in keys) else None
    if was is None or now is None:
        return write_units(was or now) if was or now else 0
    if any(was[key] != now[key] for key in keys):
        return write_units(was) + write_units(now)
    return write_units(was, now) if was != now else 0
