"""The script of a run: operations on the files, the fates of their messages, and the faults of their workers.

The same seed gives the same script.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import NamedTuple

from examples.demo.script import LOST, ON_TIME, Fate, Operation
from examples.harness.objects import Action
from examples.load.gaps import FULL_SCALE, SHORT_SCALE, draw
from examples.load.material import customer_of, key_of, new_csv

PUT, DELETE = Action.PUT, Action.DELETE
STEPS = ("statement 1", "statement 2", "copy", "before commit", "after commit")
"""The steps of the processor at which a worker can die. The naive consumer has one statement less."""


class Fault(NamedTuple):
    """The fault of one side's first worker on a key."""

    side: str
    key: str
    step: str
    kind: str
    """`killed`, `late` or `slow`; see `functions/doomed.py`."""


@dataclass(frozen=True, slots=True)
class Story:
    """The operations on a key. `copies` has, for each action, the number of further notifications about it."""

    name: str
    share: int
    """Keys with this story, of a hundred."""
    actions: tuple[Action, ...]
    lost: frozenset[int] = frozenset()
    """Indexes of the actions whose message is lost."""
    late: frozenset[int] = frozenset()
    """Indexes of the actions whose message is delivered again in the end."""
    delayed: frozenset[int] = frozenset()
    """Indexes of the actions whose message comes after the next one's."""
    copies: int = 0
    """Copies of the first action's message, after gaps that are drawn for each."""


def _only(*indexes: int) -> frozenset[int]:
    return frozenset(indexes)


STORIES = (
    Story("notified once", 20, (PUT,)),
    Story("notified twice", 20, (PUT,), copies=1),
    Story("notified three times", 8, (PUT,), copies=2),
    Story("event lost", 5, (PUT,), lost=_only(0)),
    Story("overwritten", 5, (PUT, PUT)),
    Story("overwritten, first event again later", 6, (PUT, PUT), late=_only(0), copies=1),
    Story("overwritten, events in the wrong order", 5, (PUT, PUT), delayed=_only(0)),
    Story("overwritten, newer event lost", 4, (PUT, PUT), lost=_only(1)),
    Story("deleted", 4, (PUT, DELETE)),
    Story("deleted, event lost", 4, (PUT, DELETE), lost=_only(1)),
    Story("deleted, event of the upload again later", 5, (PUT, DELETE), late=_only(0)),
    Story("uploaded again, event of the deletion again later", 4, (PUT, DELETE, PUT), late=_only(1)),
)
KILLED = "worker killed between two statements"
OVERTAKEN = "worker overtaken by a newer version"
OVERTAKEN_BY_REMOVAL = "worker overtaken by a deletion"
SLOW = "transaction of a dead worker commits late"


@dataclass(frozen=True)
class Script:
    """All operations and faults of a run."""

    seed: int
    scale: int
    """The article's gaps are divided by this."""
    first: list[Operation] = field(default_factory=list)
    """Uploads whose first worker is late or slow. The run waits for all of them, and then uploads their successors."""
    operations: list[Operation] = field(default_factory=list)
    """Everything else, ordered by time."""
    faults: list[Fault] = field(default_factory=list)
    stories: dict[str, str] = field(default_factory=dict)
    """The story of each key."""
    customers: int = 0


def write(*, seed: int, short: bool) -> Script:
    """Write the script. The short form has fewer and smaller files, and shorter gaps."""
    return _Writer(seed, short=short).write()


class _Writer:
    def __init__(self, seed: int, *, short: bool) -> None:
        self._dice = random.Random(seed)
        self._pace = 3.0 if short else 12.0
        self._delay = 5.0 if short else 15.0
        self._rows = 1_200 if short else 4_000
        self._keys = 24 if short else 140
        self._kills = 1 if short else 3
        self._steps = STEPS[1::2] + STEPS[-1:] if short else STEPS
        self._script = Script(seed, SHORT_SCALE if short else FULL_SCALE, customers=self._keys // 2)

    def write(self) -> Script:
        script = self._script
        names = [story for story in STORIES for _ in range(max(1, round(story.share * self._keys / 100)))]
        self._dice.shuffle(names)
        for story in names:
            self._tell(story)
        for _ in range(self._kills):
            for step in self._steps:
                self._kill(step)
            self._overtake(OVERTAKEN, "late", "statement 1", PUT)
            self._overtake(OVERTAKEN_BY_REMOVAL, "late", "statement 1", DELETE)
            self._overtake(SLOW, "slow", "before commit", PUT)
        script.operations.sort(key=lambda operation: operation.at)
        return script

    def _tell(self, story: Story) -> None:
        key = self._new_key(story.name)
        at = self._dice.uniform(0, self._pace)
        for n, action in enumerate(story.actions):
            delay = self._dice.uniform(0, 0.3) + (self._delay if n in story.delayed else 0.0)
            copies = tuple(draw(self._dice, self._script.scale) for _ in range(story.copies if n == 0 else 0))
            fate = LOST if n in story.lost else Fate(delay=delay, copies=copies, late=n in story.late)
            self._script.operations.append(self._operation(at, key, story.name, action, fate))
            at += self._dice.uniform(1.0, 2.0)

    def _kill(self, step: str) -> None:
        """Let the first worker die at this step."""
        key = self._doom(KILLED, step, "killed")
        at = self._dice.uniform(0, self._pace)
        self._script.operations.append(self._operation(at, key, KILLED, PUT, ON_TIME))

    def _overtake(self, name: str, kind: str, step: str, successor: Action) -> None:
        """Delay the first worker at this step, and change the object meanwhile."""
        key = self._doom(name, step, kind)
        self._script.first.append(self._operation(0.0, key, name, PUT, ON_TIME))
        self._script.operations.append(self._operation(0.0, key, name, successor, ON_TIME))

    def _doom(self, name: str, step: str, kind: str) -> str:
        key = self._new_key(name)
        self._script.faults.append(Fault("ledger", key, step, kind))
        self._script.faults.append(Fault("naive", key, "copy" if step == "statement 2" else step, kind))
        return key

    def _new_key(self, story: str) -> str:
        number = len(self._script.stories)
        customer = f"customer-{number % self._script.customers + 1:03}"
        key = key_of(customer, number // self._script.customers + 1)
        self._script.stories[key] = story
        return key

    def _operation(self, at: float, key: str, story: str, action: Action, fate: Fate) -> Operation:
        content = new_csv(self._dice, customer_of(key), at_most=self._rows) if action is PUT else None
        return Operation(at, key, story, action, fate, content)
