"""The script of a run: one key for each round, operations on its picture, and faults.

The same seed gives the same script.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import StrEnum
from io import BytesIO

from PIL import Image, ImageDraw, ImageFont

SIZE = 48
"""Width and height of a picture in pixels."""


class Action(StrEnum):
    """An operation on the bucket."""

    PUT_FIRST = "put 1"
    PUT_SECOND = "put 2"
    PUT_THIRD = "put 3"
    DELETE = "delete"


class Event(StrEnum):
    """The fate of S3's message about an operation."""

    ONCE = "once"
    TWICE = "twice"
    DELAYED = "delayed"
    """It arrives after the message of the next operation."""
    LOST = "lost"
    REPEATED = "repeated"
    """It arrives again after all other messages were handled."""


class Worker(StrEnum):
    """The fate of the worker that handles the operation."""

    LIVES = "lives"
    KILLED_BEFORE = "killed before its write"
    KILLED_AFTER = "killed after its write"
    LATE = "late"
    """Its request to the output bucket stays in the network until the end of the run. Another attempt takes over."""


@dataclass(frozen=True, slots=True)
class Step:
    """One operation of a round. The next one follows when `awaited` is fulfilled."""

    action: Action
    event: Event = Event.ONCE
    worker: Worker = Worker.LIVES
    settle: bool = False
    """Wait until each consumer has written the output, before the next operation."""


@dataclass(frozen=True, slots=True)
class Story:
    """A kind of round."""

    title: str
    weight: int
    """Its rounds among 200."""
    steps: tuple[Step, ...]

    @property
    def kills(self) -> bool:
        """Tell if a worker is killed, whose messages stay hidden for some time."""
        return any(step.worker in (Worker.KILLED_BEFORE, Worker.KILLED_AFTER) for step in self.steps)


FIRST, SECOND, THIRD, DELETE = Action
LATE = Worker.LATE
STORIES = (
    Story(
        "overwritten; each event twice, in the wrong order",
        16,
        (Step(FIRST, Event.DELAYED), Step(SECOND, Event.TWICE)),
    ),
    Story("overwritten; the second event lost", 16, (Step(FIRST, settle=True), Step(SECOND, Event.LOST))),
    Story("deleted; the event lost", 16, (Step(FIRST, settle=True), Step(DELETE, Event.LOST))),
    Story(
        "deleted and uploaded again; the deletion's event repeated later",
        20,
        (Step(FIRST, settle=True), Step(DELETE, Event.REPEATED), Step(SECOND)),
    ),
    Story(
        "overwritten; the first worker killed before its write",
        8,
        (Step(FIRST, worker=Worker.KILLED_BEFORE), Step(SECOND)),
    ),
    Story(
        "overwritten; the first worker killed after its write",
        8,
        (Step(FIRST, worker=Worker.KILLED_AFTER), Step(SECOND)),
    ),
    Story("overwritten; the first worker's write arrives last", 28, (Step(FIRST, worker=LATE), Step(SECOND))),
    Story("deleted; the first worker's write arrives last", 24, (Step(FIRST, worker=LATE), Step(DELETE))),
    Story(
        "deleted and uploaded again; the removal arrives last",
        24,
        (Step(FIRST, settle=True), Step(DELETE, worker=LATE), Step(SECOND)),
    ),
    Story(
        "overwritten, then the first picture again; the write between arrives last",
        24,
        (Step(FIRST, settle=True), Step(SECOND, worker=LATE), Step(FIRST)),
    ),
    Story(
        "overwritten twice; two writes of late workers arrive last",
        16,
        (Step(FIRST, worker=LATE), Step(SECOND, worker=LATE), Step(THIRD)),
    ),
)


@dataclass(frozen=True, slots=True)
class Round:
    """A key and its story."""

    number: int
    key: str
    story: Story
    steps: tuple[Step, ...]

    @property
    def expected(self) -> bytes | None:
        """The picture that the bucket has in the end, in colours. None if it was deleted."""
        return picture(self.number, self.steps[-1].action)


def write(rounds: int, *, seed: int, kills: bool = True) -> list[Round]:
    """Give each round a story, by weight, each story at least once if there are enough rounds.

    Args:
        rounds: their number.
        seed: of all random choices.
        kills: include rounds with killed workers; they take half a minute longer.

    """
    dice = random.Random(seed)
    stories = [story for story in STORIES if kills or not story.kills]
    counts = shares(rounds, [story.weight for story in stories])
    chosen = [story for story, count in zip(stories, counts, strict=True) for _ in range(count)]
    return [
        Round(number, f"in/{number:03d}.png", story, tuple(_varied(step, dice) for step in story.steps))
        for number, story in enumerate(chosen)
    ]


def shares(total: int, weights: list[int]) -> list[int]:
    """Divide `total` in proportion to the weights, at least one each where that is possible."""
    counts = [1 if n < total else 0 for n in range(len(weights))]
    while sum(counts) < total:
        due = max(range(len(weights)), key=lambda n: weights[n] / (counts[n] + 0.5))
        counts[due] += 1
    return counts


def _varied(step: Step, dice: random.Random) -> Step:
    """After a late worker, wait in half of the rounds until another attempt has written."""
    if step.worker is Worker.LATE and dice.random() < 0.5:
        return Step(step.action, step.event, step.worker, settle=True)
    return step


_COLOURS = {FIRST: ((30, 60, 150), (90, 140, 230)), SECOND: ((235, 200, 60), (250, 235, 150))}
_COLOURS[THIRD] = ((150, 60, 60), (190, 110, 90))


def picture(number: int, action: Action) -> bytes | None:
    """Return the picture of a round that an operation uploads, as a PNG. None for a deletion.

    The digit tells the upload: the first picture of a round is dark, the second light.
    """
    if action is Action.DELETE:
        return None
    dice = random.Random(f"{number} {action}")
    start, end = _COLOURS[action]
    image = Image.new("RGB", (SIZE, SIZE))
    draw = ImageDraw.Draw(image)
    for y in range(SIZE):
        part = y / SIZE
        draw.line((0, y, SIZE, y), fill=tuple(round(a + (b - a) * part) for a, b in zip(start, end, strict=True)))
    for _ in range(3):
        x, y, radius = dice.randrange(SIZE), dice.randrange(SIZE), dice.randrange(4, 12)
        draw.ellipse((x - radius, y - radius, x + radius, y + radius), fill=tuple(dice.randrange(256) for _ in "rgb"))
    ink, halo = ("black", "white") if action is SECOND else ("white", "black")
    font = ImageFont.load_default(30)
    draw.text((SIZE / 2, SIZE / 2), action[-1], fill=ink, font=font, anchor="mm", stroke_width=2, stroke_fill=halo)
    output = BytesIO()
    image.save(output, "PNG")
    return output.getvalue()
