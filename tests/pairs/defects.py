"""The seeded defects that name two features, these features, and whether the worlds found the defect at last."""

from pathlib import Path
from typing import NamedTuple

_TABLE = Path(__file__).with_name("defects.txt")


class Pair(NamedTuple):
    """A defect of the table."""

    features: tuple[str, ...]
    found: bool
    """The last measurement has found it."""


def defects() -> dict[str, Pair]:
    """The defects by name."""
    lines = (line.split(" | ") for line in _TABLE.read_text().splitlines())
    return {name: Pair(tuple(features.split(", ")), found == "found") for name, features, found in lines}
