"""Compare each output with the picture that it should show."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from io import BytesIO
from typing import TYPE_CHECKING

from examples.pictures.columns import Column
from PIL import Image, UnidentifiedImageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Finding(StrEnum):
    """The result for one output."""

    RIGHT = "right"
    STALE = "another picture"
    LEFTOVER = "a picture that was deleted"
    MISSING = "no picture"

    @property
    def right(self) -> bool:
        return self is Finding.RIGHT


@dataclass(frozen=True, slots=True)
class Judged:
    """One round: the expected copy and the outputs of all columns. None stands for an absent picture."""

    number: int
    key: str
    story: str
    expected: bytes | None
    outputs: Mapping[Column, bytes | None]

    def finding(self, column: Column) -> Finding:
        """Compare the output of a column with the expected copy."""
        return compare(self.expected, self.outputs[column])


def compare(expected: bytes | None, output: bytes | None) -> Finding:
    """Compare pixels, not bytes: a fenced output carries its fence in the file."""
    if expected is None:
        return Finding.RIGHT if output is None else Finding.LEFTOVER
    if output is None:
        return Finding.MISSING
    return Finding.RIGHT if _pixels(expected) == _pixels(output) else Finding.STALE


def _pixels(content: bytes) -> object:
    try:
        with Image.open(BytesIO(content)) as image:
            return image.mode, image.size, image.tobytes()
    except UnidentifiedImageError:
        return content


def columns_of(rounds: Sequence[Judged]) -> list[Column]:
    """Return the columns of a run."""
    return [column for column in Column if any(column in one.outputs for one in rounds)]


def wrong_rounds(rounds: Sequence[Judged]) -> dict[Column, int]:
    """Count the wrong rounds of each column."""
    return {column: sum(not one.finding(column).right for one in rounds) for column in columns_of(rounds)}


def wrong_by_story(rounds: Sequence[Judged]) -> dict[str, dict[Column, int]]:
    """Count the wrong rounds of each column for each story, in the order of the script."""
    stories: dict[str, Counter[Column]] = {}
    for one in rounds:
        wrong = stories.setdefault(one.story, Counter())
        wrong.update(column for column in one.outputs if not one.finding(column).right)
    return {story: {column: wrong[column] for column in columns_of(rounds)} for story, wrong in stories.items()}


def demonstrated(wrong: Mapping[Column, int], must_be_right: Column = Column.FENCED) -> bool:
    """Tell if the run shows its point: one column is always right, and the faults were hard enough for the others.

    Args:
        wrong: the wrong rounds of each column.
        must_be_right: the column without an error; another one than the default shows that the comparison can fail.

    """
    others = [count for column, count in wrong.items() if column not in (must_be_right, Column.FENCED)]
    return wrong[must_be_right] == 0 and all(others)
