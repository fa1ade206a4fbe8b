"""The lines of a result: their verdicts, their table and their JSON."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from examples import page_parts
from examples.page_parts import Html
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from examples.harness.screen import Screen


@dataclass(frozen=True)
class Measure:
    """One line of the result: the value of each side, and the right value."""

    name: str
    values: Mapping[str, int | None]
    """The line does not apply to a side without a value."""
    right: int = 0
    explanation: str = ""
    moment: str = ""
    """When it was measured."""

    def verdict(self, side: str) -> bool | None:
        """Tell if a side is right. None if the line does not apply to it."""
        return None if (value := self.values.get(side)) is None else value == self.right


def is_right(measures: Iterable[Measure], side: str) -> bool:
    """Tell if a side is right in every line that applies to it."""
    return all(measure.verdict(side) is not False for measure in measures)


def table(title: str, sides: Sequence[str], measures: Sequence[Measure]) -> Table:
    """Return a table of the terminal: a line for each measure, below its moment."""
    drawn = Table(title=title, title_justify="left")
    drawn.add_column("")
    for column in ("right", *sides):
        drawn.add_column(column, justify="right")
    for moment, lines in itertools.groupby(measures, key=lambda measure: measure.moment):
        if moment:
            drawn.add_section()
            drawn.add_row(f"[bold]{moment}[/]")
        for one in lines:
            cells = [cell(one.verdict(side), one.values.get(side)) for side in sides]
            explained = [f"[dim]{one.explanation}[/]"] if one.explanation else []
            drawn.add_row(one.name, f"{one.right:,}", *cells, *explained)
    return drawn


def cell(verdict: bool | None, value: int | None) -> str:
    """Return a value in the colour of its verdict."""
    if verdict is None:
        return "[dim]-[/]"
    return f"[green]{value:,}[/]" if verdict else f"[bold red]{value:,}[/]"


def html(sides: Sequence[str], measures: Sequence[Measure], *, absent: str) -> str:
    """Return a table of the page. `absent` stands where a line does not apply to a side."""
    explained = any(measure.explanation for measure in measures)
    rows: list[list[str | int | Html]] = [
        [
            one.name,
            one.right,
            *(_html_cell(one.verdict(side), one.values.get(side), absent) for side in sides),
            *([Html(f'<span class="dim">{page_parts.text(one.explanation)}</span>', "any")] if explained else ()),
        ]
        for one in measures
    ]
    return page_parts.table(("Measure", "right", *sides, *([""] if explained else ())), rows)


def _html_cell(verdict: bool | None, value: int | None, absent: str) -> Html:
    if verdict is None:
        return Html(f'<span class="dim">{absent}</span>', "n")
    return Html(f'<span class="{"good" if verdict else "bad"}">{value:,} {"✓" if verdict else "✗"}</span>', "n")


def write_json(path: Path, screen: Screen, content: Mapping[str, Any]) -> None:
    """Write the result with the seconds of the run."""
    path.write_text(json.dumps({**content, "seconds": round(screen.elapsed, 1)}, indent=2) + "\n")


def told(screen: Screen, side: str, *, right: bool) -> bool:
    """Say if the judged column is right, and return it."""
    verdict = "[bold green]right in every line" if right else "[bold red]WRONG, see above"
    screen.say(f"the column of {side} is {verdict}[/]")
    return right
