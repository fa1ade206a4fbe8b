"""The script of a demo: operations on the files, and faults of their messages. The same seed gives the same script.

Each key has a story: a few operations on the bucket, and the fate of the message about each operation.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from examples.harness.objects import Action

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from examples.demo.material import Content, Source


@dataclass(frozen=True, slots=True)
class Fate:
    """The fate of the message about one operation, on its way to both queues."""

    lost: bool = False
    delay: float = 0.0
    """Delay in seconds."""
    copies: tuple[float, ...] = ()
    """Seconds from the first delivery to each further one."""
    late: bool = False
    """Delivered again after all earlier messages were handled, including messages about newer versions."""


ON_TIME = Fate()
LOST = Fate(lost=True)
LATE_TOO = Fate(late=True)
TWICE = Fate(copies=(0.0,))
OVERTAKEN = Fate(delay=5.0)
"""A delay longer than the time between two operations of a story, so that later messages arrive earlier."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One step of a story: at `at` seconds of the run, `action` on `key`."""

    at: float
    key: str
    story: str
    action: Action
    fate: Fate
    content: Content | None = None


@dataclass(frozen=True, slots=True)
class Story:
    """A kind of fault. `weight` is its share of the keys. The fates of the steps are in the order of the actions."""

    name: str
    weight: float
    steps: tuple[tuple[Action, Fate], ...]
    kills: bool = False


PUT, DELETE, UNDELETE, ROLL_BACK, TRIM = Action
STORIES = (
    Story("uploaded once", 30, ((PUT, ON_TIME),)),
    Story("uploaded, message twice", 12, ((PUT, TWICE),)),
    Story("uploaded, message again much later", 5, ((PUT, LATE_TOO),)),
    Story("uploaded, message lost", 4, ((PUT, LOST),)),
    Story("overwritten", 6, ((PUT, ON_TIME), (PUT, ON_TIME))),
    Story("overwritten, messages in the wrong order", 5, ((PUT, OVERTAKEN), (PUT, ON_TIME))),
    Story("overwritten, older message again much later", 5, ((PUT, LATE_TOO), (PUT, ON_TIME))),
    Story("overwritten, newer message lost", 4, ((PUT, ON_TIME), (PUT, LOST))),
    Story("deleted", 3, ((PUT, ON_TIME), (DELETE, ON_TIME))),
    Story("deleted, message lost", 4, ((PUT, ON_TIME), (DELETE, LOST))),
    Story("deleted, message before the upload's", 3, ((PUT, OVERTAKEN), (DELETE, ON_TIME))),
    Story("deleted and uploaded again", 3, ((PUT, ON_TIME), (DELETE, OVERTAKEN), (PUT, ON_TIME))),
    Story(
        "uploaded again, message of the deletion again much later",
        3,
        ((PUT, ON_TIME), (DELETE, LATE_TOO), (PUT, ON_TIME)),
    ),
    Story("un-deleted", 3, ((PUT, ON_TIME), (DELETE, ON_TIME), (UNDELETE, ON_TIME))),
    Story("un-deleted, message lost", 2, ((PUT, ON_TIME), (DELETE, ON_TIME), (UNDELETE, LOST))),
    Story("newest version permanently deleted", 3, ((PUT, ON_TIME), (PUT, ON_TIME), (ROLL_BACK, ON_TIME))),
    Story("newest version permanently deleted, message lost", 2, ((PUT, ON_TIME), (PUT, ON_TIME), (ROLL_BACK, LOST))),
    Story("oldest version permanently deleted", 3, ((PUT, ON_TIME), (PUT, ON_TIME), (TRIM, ON_TIME))),
    Story("worker killed", 0, ((PUT, ON_TIME),), kills=True),
    Story("worker killed, then overwritten", 0, ((PUT, ON_TIME), (PUT, ON_TIME)), kills=True),
)
HOT, POISON = "hot key", "poison"
POISON_KEY = "models/poison/service-2.json.gz"


@dataclass(frozen=True, slots=True)
class Poison:
    """A file that has the name of a gzipped model and other content."""

    def read_bytes(self) -> bytes:
        return b"\x1f\x8b\x08\x00 this was cut off on its way, as uploads are"


@dataclass(frozen=True)
class Script:
    """All operations of a run."""

    seed: int
    first: list[Operation]
    """Stage 1: uploads without faults."""
    operations: list[Operation]
    """Stage 2, ordered by time."""
    kill_keys: list[str]
    hot_key: str
    stories: dict[str, str] = field(default_factory=dict)
    """The story of each key."""


def write(sources: Sequence[Source], *, seed: int, short: bool) -> Script:
    """Give each file a story. `short` omits the killed workers, which take a minute."""
    dice = random.Random(seed)
    by_kind: dict[str, list[Content]] = {}
    for source in sources:
        by_kind.setdefault(_kind(source.key), []).extend(source.contents)

    hot = max(sources, key=lambda source: (len(source.contents), -len(source.key), source.key))
    stories = [story for story in STORIES if not (short and story.kills)]
    pairs = [pair for pair in _keys(sources, len(stories) + 5) if pair[0] != hot.key]
    dice.shuffle(pairs)
    untouched, pairs = pairs[: max(2, len(pairs) // 40)], pairs[max(2, len(pairs) // 40) :]

    # Every story at least once, the rest by weight; the killed workers come first, since their messages take longest.
    chosen = stories + dice.choices(stories, [story.weight for story in stories], k=len(pairs) - len(stories))
    pace = max(4.0, len(pairs) / 18)
    operations: list[Operation] = []
    for (key, source), story in zip(pairs, chosen, strict=True):
        start = dice.uniform(0, 1) if story.kills else dice.uniform(0, pace)
        contents = _contents(dice, source, by_kind[_kind(source.key)], sum(action is PUT for action, _ in story.steps))
        operations += _tell(dice, key, story, start, contents)
    operations += _hot(dice, hot, pace, by_kind[_kind(hot.key)])
    operations.append(Operation(0.5, POISON_KEY, POISON, PUT, Fate(copies=(0.2, 6.0)), Poison()))

    return Script(
        seed=seed,
        first=[Operation(0.0, key, "stage 1", PUT, ON_TIME, source.contents[-1]) for key, source in untouched],
        operations=sorted(operations, key=lambda operation: operation.at),
        kill_keys=sorted({key for (key, _), story in zip(pairs, chosen, strict=True) if story.kills}),
        hot_key=hot.key,
        stories={operation.key: operation.story for operation in operations},
    )


def _kind(key: str) -> str:
    name = key.rpartition("/")[2]
    return name[name.index(".") :] if "." in name else ""


def _keys(sources: Sequence[Source], at_least: int) -> list[tuple[str, Source]]:
    """Return the keys. A few files are uploaded under several names, so that every story has a key."""
    rounds = -(-at_least // len(sources))
    return [
        (source.key if n == 0 else source.key.replace("models/", f"models/copy-{n}/", 1), source)
        for n in range(rounds)
        for source in sources
    ]


def _tell(
    dice: random.Random, key: str, story: Story, start: float, next_content: Callable[[], Content]
) -> list[Operation]:
    told: list[Operation] = []
    at = start
    for action, fate in story.steps:
        content = next_content() if action is PUT else None
        told.append(Operation(at, key, story.name, action, _jittered(dice, fate), content))
        at += dice.uniform(0.05, 4.0)
        if story.kills:
            at += 1.0  # let the first worker receive it
    return told


def _contents(dice: random.Random, source: Source, alike: Sequence[Content], needed: int) -> Callable[[], Content]:
    """Return the contents of a file, the newest last. If it has too few, add contents of similar files before them."""
    own = list(source.contents[-needed:]) if needed else []
    borrowed = [dice.choice(alike) for _ in range(needed - len(own))]
    contents = iter(borrowed + own)
    return lambda: next(contents)


def _jittered(dice: random.Random, fate: Fate) -> Fate:
    """Return a small random delay, since S3's messages come late and in any order."""
    return Fate(fate.lost, fate.delay + dice.uniform(0, 0.4), fate.copies, fate.late)


def _hot(dice: random.Random, source: Source, pace: float, alike: Sequence[Content]) -> list[Operation]:
    """Return operations on one key with all faults: uploads during the whole run, late, lost and repeated messages."""
    contents = list(source.contents)
    while len(contents) < 12:
        contents.insert(0, dice.choice(alike))
    steps: list[tuple[Action, Content | None]] = [(PUT, content) for content in contents]
    half = len(steps) // 2
    steps[half:half] = [(DELETE, None), (UNDELETE, None)]
    steps += [(DELETE, None), (PUT, contents[-2]), (PUT, contents[-1]), (ROLL_BACK, None)]
    fates = (ON_TIME, TWICE, OVERTAKEN, LATE_TOO, LOST, ON_TIME, Fate(delay=1.5), Fate(copies=(2.5,), late=True))
    gap = pace / len(steps)
    told: list[Operation] = []
    for n, (action, content) in enumerate(steps):
        fate = LOST if n == len(steps) - 1 else dice.choice(fates)
        told.append(Operation(n * gap, source.key, HOT, action, _jittered(dice, fate), content))
    return told
