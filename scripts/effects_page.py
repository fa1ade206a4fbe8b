"""Writes the table of effects into docs/outputs.md.

    python -m scripts.effects_page [--write]

It plays all rounds, which takes about half a minute. Without `--write` it prints the table.
"""

import re
import sys
from collections.abc import Mapping
from pathlib import Path

from examples.postgres import postgres
from tests.effects.downstreams import DOWNSTREAMS
from tests.effects.rounds import Happening, count_wrong

PAGE = Path(__file__).parents[1] / "docs" / "outputs.md"
_BEGIN, _END = "<!-- python -m scripts.effects_page --write -->", "<!-- end of the table -->"

Counts = Mapping[tuple[str, Happening], int]
"""The number of rounds that end wrong, by the name of the downstream and the cause."""


def table(counts: Counts) -> str:
    """The table as Markdown."""
    names = [downstream.name for downstream in DOWNSTREAMS]
    lines = [f"| | {' | '.join(names)} |", f"| --- |{' --: |' * len(names)}"]
    lines += [f"| {one} | {' | '.join(_shown(counts[name, one]) for name in names)} |" for one in Happening]
    return "\n".join(lines)


def written(page: str) -> Counts:
    """Read the counts of the page.

    Raises:
        KeyError: The page has another cause than `Happening`.
        ValueError: The page has no table, or a line with another number of cells.

    """
    rows = [line.strip("| ").split(" | ") for line in _between(page).strip().splitlines()[2:]]
    causes = {str(one): one for one in Happening}
    return {
        (downstream.name, causes[cause]): int(cell.strip("*"))
        for cause, *cells in rows
        for downstream, cell in zip(DOWNSTREAMS, cells, strict=True)
    }


def measured() -> Counts:
    """Play all rounds."""
    with postgres() as server:
        made = [downstream(server.new_database) for downstream in DOWNSTREAMS]
        return {(one.name, cause): count_wrong(one, cause) for one in made for cause in Happening}


def _shown(count: int) -> str:
    return f"**{count}**" if count else "0"


def _between(page: str) -> str:
    match = re.search(f"{re.escape(_BEGIN)}(.*){re.escape(_END)}", page, re.DOTALL)
    if match is None:
        raise ValueError("the page has no table of effects")
    return match[1]


if __name__ == "__main__":
    made = table(measured())
    if sys.argv[1:] == ["--write"]:
        page = PAGE.read_text(encoding="utf-8")
        old = f"{_BEGIN}{_between(page)}{_END}"
        PAGE.write_text(page.replace(old, f"{_BEGIN}\n\n{made}\n\n{_END}"), encoding="utf-8")
    else:
        print(made)
