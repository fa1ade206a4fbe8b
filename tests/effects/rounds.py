"""Rounds of faults around one kind of effect: the real consumer and ledger, and the contents of the downstream.

A round uploads each of a few keys twice, lets one thing happen, and delivers all messages. Then it compares the
downstream with S3. The same seed repeats the same round.
"""

import random
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import Any, override

from cdk_intake_ledger.testing import Fault, LocalPipeline
from intake_ledger import Commit, ObjectChange

KEYS = ("a", "b", "c")
ROUNDS = 20
"""Rounds of a cell of the table."""
REMOVED = "removed"
"""The state of a key without an object."""
_FAULTS = 2
"""Attempts of a round that have the fault."""
_EARLY = 2 * len(KEYS)
"""Each key is processed at least once, so that the faults of earlier attempts happen."""


class Happening(StrEnum):
    """The cause of trouble in a round, in the words of the page."""

    KILLED_BEFORE = "A worker is killed before its effect."
    KILLED_AFTER = "A worker is killed after its effect, before the commit."
    OVERTAKEN = "A late worker: its effect comes after its successor's commit."
    OVERTAKEN_AND_KILLED = "A late worker that is killed after its effect."
    DUPLICATED = "Each message comes twice."
    REORDERED = "Messages come in any order."
    ROLLED_BACK = "The newest version is deleted, so the older one is current again."
    ROLLED_BACK_LATE = "The same, while a late worker has the newest version. It is killed after its effect."
    DELETED = "The object is deleted."
    DELETED_LATE = "The same, while a late worker has the object. It is killed after its effect."


_ENDS = {
    Happening.KILLED_BEFORE: Fault.KILLED_BEFORE_EFFECT,
    Happening.KILLED_AFTER: Fault.KILLED_AFTER_EFFECT,
    Happening.OVERTAKEN: Fault.OVERTAKEN,
    Happening.OVERTAKEN_AND_KILLED: Fault.OVERTAKEN_AND_KILLED,
}
_CHANGES = {Happening.ROLLED_BACK_LATE: Happening.ROLLED_BACK, Happening.DELETED_LATE: Happening.DELETED}
"""The change of an object while a late worker has it."""
ALL = frozenset(Happening)
LATE = frozenset({Happening.OVERTAKEN, Happening.OVERTAKEN_AND_KILLED, *_CHANGES})
"""Rounds with late workers."""


class Downstream(ABC):
    """A downstream and a processor that writes one kind of effect to it."""

    name: str
    """The name on the page."""
    right: frozenset[Happening]
    """Rounds in which it is never wrong."""
    repeatable = False
    """A repeated effect leaves the same contents, as a put does. Otherwise each state must take effect once."""

    def __init__(self, new_database: Callable[[], str]) -> None:
        """Make it once for all rounds.

        Args:
            new_database: makes a database of PostgreSQL, and returns the argument of `psycopg.connect`.

        """
        self.new_database = new_database

    @abstractmethod
    def process(self, change: ObjectChange) -> Commit | str | None:
        """Write the effect of a change."""

    @abstractmethod
    def effects(self, pipeline: LocalPipeline, key: str) -> Sequence[str]:
        """Return the states of a key that have taken effect, in order. Only the last one, if they are repeatable."""

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Make the downstream empty, and close it at the end."""
        yield


class _Pipeline(LocalPipeline):
    """A pipeline whose object changes while a late worker has it."""

    def __init__(self, downstream: Downstream, epochs: Mapping[str, list[str]]) -> None:
        super().__init__(downstream.process, deletes=True)
        self.epochs = epochs
        self.meanwhile: Happening | None = None
        """The change of the object that the next late worker has."""
        self._claimed = ""

    def upload(self, key: str, content: str) -> None:
        """Put an object."""
        self.put(key, content)
        self.epochs[key].append(content)

    def happen(self, what: Happening, key: str) -> None:
        """Delete an object, or its newest version."""
        if what is Happening.DELETED:
            self.delete(key)
            self.epochs[key].append(REMOVED)
        else:
            newest = self._s3.current(key)
            assert newest is not None
            assert newest.version_id is not None
            self.delete_version(key, newest.version_id)
            self.epochs[key].append(self.epochs[key][-2])

    def shuffle(self, dice: random.Random) -> None:
        """Put the waiting messages in a random order."""
        dice.shuffle(self._sqs.messages)

    @override
    def _call(self, change: ObjectChange) -> Any:
        self._claimed = change.key
        return super()._call(change)

    @override
    def _stand_still(self) -> None:
        if self.meanwhile is not None:
            what, self.meanwhile = self.meanwhile, None
            self.happen(what, self._claimed)
        super()._stand_still()


def count_wrong(downstream: Downstream, happening: Happening, seeds: range = range(ROUNDS)) -> int:
    """Count the rounds that end wrong."""
    return sum(is_wrong(downstream, happening, seed) for seed in seeds)


def is_wrong(downstream: Downstream, happening: Happening, seed: int) -> bool:
    """Play a round. Return whether the downstream of a key is wrong at the end.

    A downstream is wrong if its last effect is not that of the state that S3 shows. If the effect is not repeatable, it
    is also wrong if one state has taken effect twice.
    """
    dice = random.Random(seed)
    epochs: dict[str, list[str]] = {key: [] for key in KEYS}
    with downstream.opened():
        pipeline = _Pipeline(downstream, epochs)
        _play(pipeline, happening, dice)
        assert not pipeline.dead_letters
        return any(
            _differs(downstream.effects(pipeline, key), epochs[key], repeatable=downstream.repeatable) for key in KEYS
        )


def _play(pipeline: _Pipeline, happening: Happening, dice: random.Random) -> None:
    for number in (1, 2):
        for key in dice.sample(KEYS, len(KEYS)):
            pipeline.upload(key, f"version {number} of {key}")
        if happening in (*_CHANGES, *_CHANGES.values()):
            # The late worker comes with the second version.
            if number == 2 and happening in _CHANGES:
                pipeline.meanwhile = _CHANGES[happening]
                pipeline.next(*_placed([Fault.OVERTAKEN_AND_KILLED], len(KEYS), dice))
            pipeline.run()
    if happening in _ENDS:
        pipeline.next(*_placed([_ENDS[happening]] * _FAULTS, _EARLY, dice))
    if happening is Happening.DUPLICATED:
        pipeline.duplicate()
    if happening in (Happening.DUPLICATED, Happening.REORDERED):
        pipeline.shuffle(dice)
    if happening in _CHANGES.values():
        for key in dice.sample(KEYS, 2):
            pipeline.happen(happening, key)
    pipeline.run()


def _placed(faults: Sequence[Fault], places: int, dice: random.Random) -> list[Fault | None]:
    """Put the faults at random places among the next calls of the processor."""
    chosen = iter(faults)
    taken = set(dice.sample(range(places), len(faults)))
    return [next(chosen) if place in taken else None for place in range(places)]


def _differs(effects: Sequence[str], epochs: Sequence[str], *, repeatable: bool) -> bool:
    if tuple(effects[-1:]) != (epochs[-1],):
        return True
    return not repeatable and bool(Counter(effects) - Counter(epochs))
