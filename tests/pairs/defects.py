"""The seeded defects that name two features, and these features."""

from pathlib import Path

_TABLE = Path(__file__).with_name("defects.txt")


def defects() -> dict[str, tuple[str, ...]]:
    """The features by the name of the defect. Commas stand between them."""
    lines = (line.partition(" | ") for line in _TABLE.read_text().splitlines())
    return {name: tuple(features.split(", ")) for name, _, features in lines}
