"""Values of DynamoDB items in their typed form, such as `{"N": "1"}`: comparison, size, and access by document path."""

from collections.abc import Mapping
from decimal import Context, Decimal
from typing import Any

Value = Mapping[str, Any]
Path = tuple[str | int, ...]
"""The names of attributes and the positions in lists, from the top."""

_CONTEXT = Context(prec=38)
"""DynamoDB's precision of numbers."""


def comparable(value: Value) -> tuple[str, Any]:
    """The type of a value, and its content in a form that Python compares as DynamoDB does."""
    [(kind, content)] = value.items()
    if kind == "N":
        return kind, Decimal(content)
    if kind == "B":
        return kind, bytes(content)
    if kind in ("SS", "NS", "BS"):
        return kind, frozenset(comparable({kind[0]: one}) for one in content)
    if kind == "L":
        return kind, [comparable(one) for one in content]
    if kind == "M":
        return kind, {name: comparable(one) for name, one in content.items()}
    return kind, content


def number_text(number: Decimal) -> str:
    """A number as DynamoDB returns it: without an exponent and without zeros at its end."""
    rounded = _CONTEXT.create_decimal(number)
    return format(rounded.normalize(_CONTEXT), "f") if rounded else "0"


def size_of(value: Value | None) -> int | None:
    """The result of the function `size`. None: the value has no size, or there is none."""
    if value is None:
        return None
    [(kind, content)] = value.items()
    return len(content) if kind in ("S", "B", "SS", "NS", "BS", "L", "M") else None


def read_at(item: Mapping[str, Value], path: Path) -> Value | None:
    """The value at a path, or None."""
    found: Value | None = item.get(str(path[0]))
    for part in path[1:]:
        if found is None:
            return None
        [(kind, content)] = found.items()
        if isinstance(part, int):
            found = content[part] if kind == "L" and part < len(content) else None
        else:
            found = content.get(part) if kind == "M" else None
    return found


def write_at(item: Mapping[str, Value], path: Path, value: Value | None) -> dict[str, Value]:
    """A copy of the item with another value at the path. A position behind the end of a list appends. None: without the
    value, which need not exist.

    Raises:
        LookupError: The item has no map or list that could hold it.

    """
    return dict(_changed({"M": item}, path, value)["M"])


def _changed(parent: Value, path: Path, value: Value | None) -> Value:
    part, *rest = path
    [(kind, content)] = parent.items()
    if kind != ("L" if isinstance(part, int) else "M"):
        raise LookupError(part)
    if rest:
        value = _changed(content[part], tuple(rest), value)
    if not isinstance(part, int):
        kept = {name: one for name, one in content.items() if name != part or value is not None}
        return {"M": kept if value is None else kept | {part: value}}
    if value is None:
        return {"L": [*content[:part], *content[part + 1 :]]}
    return {"L": [*content[:part], value, *content[part + 1 :]]}
