"""Worlds that need no search of their own, because the search of another world finds the same violations.

The search replaces each world by the one that stands for it. Each reduction maps steps of the one world to steps of the
other, and no guarantee tells the two apart. `test_exploration.py` compares the reduced search with the whole one: it
visits exactly the worlds that stand for those of the whole search.

1. **Settled reads**, in `Explorer._settled`: a read of S3 whose answer can no longer change is no step of its own.
2. **The end of an audit** is no step of its own: it changes nothing that another step reads.
3. **One pool**, `pooled`: a message that came back to the queue, and the same message on its way there, are received
   alike.
4. **Symmetry**, `Symmetry`: workers run the same code, and differ by nothing but the names under which they claim.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from tests.protocol.program import Message

_NAME = re.compile(r"w[01]\.\d+")
_WORD = re.compile(r"\bw([01])\b")


def pooled(
    undelivered: tuple[int, ...], asks: tuple[int, ...], messages: Iterable[Message]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Messages of the queue counted among those on their way, which they are equal to.

    It makes no difference where nothing happens to those on their way but their delivery. So it must not be done where
    S3 may still lose a notification, or where time passes: that waits for the first delivery of each. Where leases run
    out, a late acknowledgement deletes the message that came back, not another one with the same content on its way:
    there each message must have one delivery.
    """
    counts, requests = list(undelivered), list(asks)
    for message in messages:
        if message.operation:
            counts[message.operation - 1] += 1
        else:
            requests.append(message.reprocess)
    return tuple(counts), tuple(sorted(requests))


class Symmetry:
    """Two workers that have exchanged their places and their names.

    A worker claims as `w0.1`, the first claim of the worker in place 0. These names are compared for equality alone.
    So whatever can happen in a world can happen in its mirror image, with the names exchanged. Of the two, the search
    visits the one whose first worker it has seen first.
    """

    def __init__(self) -> None:
        self._mirrored: dict[Any, Any] = {}
        self._ranks: dict[Any, int] = {}

    def mirrored(self, value: Any) -> Any:
        """The same with the two names exchanged; remembered, since parts of worlds come again and again."""
        if value is None:
            return None
        known = self._mirrored.get(value)
        if known is None:
            known = self._mirrored[value] = _mirrored(value)
        return known

    def is_mirror(self, workers: tuple[Any, Any], *others: Any) -> bool:
        """Whether the mirror image stands for the world with these workers and other parts that hold names."""
        first, second = workers
        if second is None and first is not None:
            return False
        if first is None and second is not None:
            return True
        for one, other in ((first, self.mirrored(second)), *((part, self.mirrored(part)) for part in others)):
            if one is not other and one != other:
                return self._rank(other) < self._rank(one)
        return False

    def _rank(self, value: Any) -> int:
        return self._ranks.setdefault(value, len(self._ranks))


def _mirrored(value: Any) -> Any:
    if isinstance(value, str):
        return f"w{1 - int(value[1])}{value[2:]}" if _NAME.fullmatch(value) else value
    if isinstance(value, tuple):
        parts = [_mirrored(part) for part in value]
        return value if all(a is b for a, b in zip(parts, value, strict=True)) else tuple.__new__(type(value), parts)
    if isinstance(value, Mapping):
        return {name: _mirrored(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_mirrored(part) for part in value]
    return value


def mirrored_arguments(arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """A request's arguments with the two names exchanged."""
    mirrored: Mapping[str, Any] = _mirrored(arguments)
    return mirrored


def mirrored_label(label: str) -> str:
    """A step as it reads with the two workers exchanged."""
    return _WORD.sub(lambda found: f"w{1 - int(found[1])}", label)
