"""The script of a run: two stages of operations on the bucket, and the fate of the event about each operation.

Each key has a story. Its first operation belongs to stage one, the others to stage two. The same seed gives the same
script.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from examples.harness.objects import Action

if TYPE_CHECKING:
    from collections.abc import Sequence


class Fate(StrEnum):
    """The fate of the event about one operation. It is the same for all consumers."""

    ON_TIME = "on time"
    TWICE = "twice"
    """Delivered, and again when the other events of the stage are handled."""
    LATE = "late"
    """Delivered when the other events of the stage are handled, newer ones too."""
    LOST = "lost"


Step = tuple[Action, Fate]


@dataclass(frozen=True, slots=True)
class Operation:
    """One step of a story."""

    key: str
    story: str
    action: Action
    fate: Fate
    draft: int = 0
    """The number of the draft that is uploaded."""


@dataclass(frozen=True, slots=True)
class Story:
    """A kind of fault: one operation in stage one, and those of stage two."""

    name: str
    first: Step
    then: tuple[Step, ...] = ()
    kills: bool = False
    """True to kill the first worker of each consumer that writes this key."""


@dataclass(frozen=True)
class Script:
    """All operations of a run."""

    stages: tuple[Sequence[Operation], Sequence[Operation]]
    kill_keys: Sequence[str]


PUT, DELETE, UNDELETE, ROLL_BACK, TRIM = Action
ON_TIME, TWICE, LATE, LOST = Fate
UPLOADED = (PUT, ON_TIME)
# No story loses the event of a permanent deletion: no listing shows such a deletion of an older version.
STORIES = (
    Story("uploaded once", UPLOADED),
    Story("uploaded, event twice", (PUT, TWICE)),
    Story("uploaded, event lost", (PUT, LOST)),
    Story("overwritten", UPLOADED, ((PUT, ON_TIME),)),
    Story("overwritten twice, events in the wrong order", UPLOADED, ((PUT, LATE), (PUT, ON_TIME))),
    Story("overwritten, event lost", UPLOADED, ((PUT, LOST),)),
    Story("deleted", UPLOADED, ((DELETE, ON_TIME),)),
    Story("deleted, event lost", UPLOADED, ((DELETE, LOST),)),
    Story("overwritten and deleted, events in the wrong order", UPLOADED, ((PUT, LATE), (DELETE, ON_TIME))),
    Story("deleted and uploaded again, events in the wrong order", UPLOADED, ((DELETE, LATE), (PUT, ON_TIME))),
    Story("un-deleted", UPLOADED, ((DELETE, ON_TIME), (UNDELETE, ON_TIME))),
    Story("rolled back", UPLOADED, ((PUT, ON_TIME), (ROLL_BACK, ON_TIME))),
    Story("rolled back, events in the wrong order", UPLOADED, ((PUT, LATE), (ROLL_BACK, ON_TIME))),
    Story("old version permanently deleted", UPLOADED, ((PUT, ON_TIME), (TRIM, ON_TIME))),
    Story("every event twice", (PUT, TWICE), ((PUT, TWICE), (DELETE, TWICE), (PUT, TWICE))),
    Story("worker killed", UPLOADED, ((PUT, ON_TIME),), kills=True),
)


def write(keys: Sequence[str], *, seed: int, kills: bool) -> Script:
    """Give each key a story, and mix the operations of all keys.

    Args:
        keys: the objects. There must be at least one for each story.
        seed: of the random choices.
        kills: whether workers are killed. Their messages stay hidden for almost a minute.

    """
    dice = random.Random(seed)
    stories = [story for story in STORIES if not story.kills]
    told = {key: stories[n % len(stories)] for n, key in enumerate(dice.sample(keys, len(keys)))}
    if kills:
        told[dice.choice(keys)] = next(story for story in STORIES if story.kills)
    first = [Operation(key, story.name, *story.first, draft=1) for key, story in told.items()]
    return Script(
        stages=(first, _mixed(dice, [_operations(key, story) for key, story in told.items()])),
        kill_keys=sorted(key for key, story in told.items() if story.kills),
    )


def _operations(key: str, story: Story) -> list[Operation]:
    """Return a key's operations of stage two. Each upload has the next draft."""
    draft = 1
    operations = []
    for action, fate in story.then:
        draft += action is PUT
        operations.append(Operation(key, story.name, action, fate, draft if action is PUT else 0))
    return operations


def _mixed(dice: random.Random, stories: Sequence[list[Operation]]) -> list[Operation]:
    """Mix the operations of all keys, in the order of each key."""
    turns = [n for n, operations in enumerate(stories) for _ in operations]
    dice.shuffle(turns)
    rest = [iter(operations) for operations in stories]
    return [next(rest[n]) for n in turns]
