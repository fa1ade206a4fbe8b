"""Defects to seed into a copy of the runtime, from `seeded_defects.txt`. The exploration or a named test finds each.

A new safeguard needs a new defect: that of leaving the safeguard out. `prove.py` runs them and prints the results. The
file has three parts for each defect: its name and its finder, the definition with a part of its code, and the code that
replaces it. Code of several lines stands below, with eight spaces. See `tests/seeds.py`. The finder is a scenario of the
exploration, or a test (`tests/...::test_name`).
"""

from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

from tests.seeds import Mutant

TABLE = Path(__file__).with_name("seeded_defects.txt")
_INDENT = " " * 4


def defects(text: str) -> Iterator[Mutant]:
    """Read the table."""
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if line and not line.startswith(_INDENT):
            name, _, found_by = line.partition(" | ")
            entry = [*takewhile(lambda one: not one or one.startswith(_INDENT), lines[number + 1 :])]
            change = next(place for place, one in enumerate(entry) if one.startswith(f"{_INDENT}->"))
            definition, _, old = entry[0].strip().partition(":")
            before, after = "\n".join([old, *entry[1:change]]), "\n".join([entry[change][6:], *entry[change + 1 :]])
            yield Mutant(name, definition, _code(before), _code(after), found_by)


def _code(text: str) -> str:
    first, _, rest = text.partition("\n")
    return first.strip() or "\n".join(line.removeprefix(_INDENT * 2) for line in rest.split("\n")).strip("\n")


MUTANTS = tuple(defects(TABLE.read_text()))
