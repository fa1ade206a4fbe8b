"""Items of a table in less memory, for the replay of half a million keys."""

from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

from intake_ledger_testing.dynamodb_expressions import Item
from intake_ledger_testing.memory_dynamodb import Key

_Shape = tuple[tuple[str, str], ...]
_MOST_SHARED = 10_000


class PackedItems(MutableMapping[Key, Item]):
    """Keeps values without their dictionaries, and equal values once. Returns copies."""

    def __init__(self) -> None:
        self._rows: dict[Key, tuple[_Shape, tuple[Any, ...]]] = {}
        self._shared: dict[Any, Any] = {}

    def __getitem__(self, key: Key) -> Item:
        shape, values = self._rows[key]
        return {name: {kind: value} for (name, kind), value in zip(shape, values, strict=True)}

    def __setitem__(self, key: Key, item: Mapping[str, Any]) -> None:
        typed = [(name, *one) for name, content in item.items() for one in content.items()]
        shape = tuple((name, kind) for name, kind, _ in typed)
        own: dict[str, Any] = {}
        values = (own.setdefault(value, self._once(value)) if isinstance(value, str) else value for *_, value in typed)
        self._rows[key] = self._once(shape), tuple(values)

    def __delitem__(self, key: Key) -> None:
        del self._rows[key]

    def __contains__(self, key: object) -> bool:
        return key in self._rows

    def __iter__(self) -> Iterator[Key]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def _once(self, value: Any) -> Any:
        """The value, or an equal one from before; not that of an id or a time, of which each row has its own."""
        if isinstance(value, str) and value.isdigit() and len(value) > 4:
            return value
        if len(self._shared) < _MOST_SHARED:
            return self._shared.setdefault(value, value)
        return self._shared.get(value, value)
