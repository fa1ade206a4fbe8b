"""Replace each world by an equivalent world, so that the search visits fewer of them.

Each reduction maps steps of one world to steps of another, and no guarantee distinguishes the two.
`test_exploration.py` compares the reduced search with the whole search: it visits exactly the replacements of all
worlds of the whole search.

1. **Settled reads**, in `Explorer._settled`: a read of S3 whose answer can no longer change needs no separate step.
2. **The end of an audit** needs no separate step: it changes nothing that another step reads.
3. **One pool**, `pooled`: a message that came back to the queue, and the same message on its way to the queue, are
   received in the same way.
4. **Symmetry**, `Symmetry`: workers run the same code and differ only by the names under which they claim.
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
    """Count messages of the queue as messages on their way, because both are equal.

    This makes no difference where messages on their way can only be delivered. So it must not be done where S3 may
    still lose a notification, or where time passes, because time waits for the first delivery of each message. Where
    leases end, a late acknowledgement deletes the message that came back, and not an equal message on its way. In this
    case each message must have one delivery.
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

    A worker claims as `w0.1`, the first claim of the worker in place 0. The code only compares these names for
    equality. So every step of a world also exists in its mirror image, with the names exchanged. Of the two, the
    search visits the world whose first worker it saw first.
    """

    def __init__(self) -> None:
        self._mirrored: dict[Any, Any] = {}
        self._ranks: dict[Any, int] = {}

    def mirrored(self, value: Any) -> Any:
        """Return the value with the two names exchanged, from a cache: parts of worlds repeat often."""
        if value is None:
            return None
        known = self._mirrored.get(value)
        if known is None:
            known = self._mirrored[value] = _mirrored(value)
        return known

    def is_mirror(self, workers: tuple[Any, Any], *others: Any) -> bool:
        """Return whether the mirror image replaces the world with these workers and these other parts with names."""
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
    """Return a step's label with the two workers exchanged."""
    return _WORD.sub(lambda found: f"w{1 - int(found[1])}", label)
