"""The filters that the parts of a run hand on, in the ledger's table.

    <bucket>#<run>#shown#017    one place of a filter: what part 7 has filled there, and what all of them have

Each place is added up once, in a step that is there for it. So whoever needs a filter reads it once, however many parts
have filled it, and it is as large as the ledger's rows ask for: nobody knows how many these are before all are read.
"""

from typing import Any

from intake_ledger.audit.items import RunItems
from intake_ledger.audit.shown import Shown, united

_ALL = "#all"


class HandedOn:
    """The filters of one run."""

    def __init__(self, items: RunItems) -> None:
        self._items = items

    def keep(self, name: str, number: int, content: Shown) -> None:
        """Store what a part has filled of a filter."""
        self._items.put_all(self._piece(name, at, f"#{number:05d}", piece) for at, piece in content.parts())

    def add_up(self, name: str, at: int, *, size: int, of: int) -> None:
        """Unite what all parts have filled of one place of a filter of this size, in filters of the size `of`, all of
        them with the same salt.
        """
        # What was united by a call before this one is among them, and does no harm.
        piece = united(
            bytes(item["piece"]["B"])
            for place in range(at, of, size)
            for item in self._items.query(_place(name, place))
        )
        if piece is not None:
            self._items.put(self._piece(name, at, _ALL, piece))

    def begin_own(self, name: str, number: int, content: Shown) -> None:
        """Begin a filter with what this part has filled of it before."""
        self._begin(name, f"#{number:05d}", content)

    def begin_all(self, name: str, content: Shown) -> None:
        """Begin a filter with what all parts have filled of it; each place was added up, for one of its size."""
        self._begin(name, _ALL, content)

    def _begin(self, name: str, whose: str, content: Shown) -> None:
        for item in self._items.get_all(self._items.key(_place(name, at), whose) for at in range(content.size)):
            content.restore(int(item["at"]["N"]), bytes(item["piece"]["B"]))

    def _piece(self, name: str, at: int, whose: str, piece: bytes) -> dict[str, Any]:
        return {**self._items.key(_place(name, at), whose), "piece": {"B": piece}, "at": {"N": str(at)}}


def _place(name: str, at: int) -> str:
    return f"#{name}#{at:03d}"
