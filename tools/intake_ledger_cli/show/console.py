"""The terminal's console, styles and layout. Keys and reasons are escaped before they are printed."""

import sys
from collections.abc import Iterator

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

GOOD, BAD, WARNING, DIM = "green", "bold red", "yellow", "dim"
_UNWRAPPED = 100_000


def console(*, stderr: bool = False) -> Console:
    """Create a console. Markup is off, because keys may contain it. Output that is not a terminal is not wrapped."""
    made = Console(stderr=stderr, markup=False, highlight=False, emoji=False)
    if not made.is_terminal:
        made.width = _UNWRAPPED
    return made


def show(shown: RenderableType) -> None:
    """Print to standard output. In a pipe, a cell is followed by two spaces and the next cell, without padding."""
    made = console()
    if made.is_terminal:
        made.print(shown)
        return
    for line in _plain(shown):
        sys.stdout.write(f"{line.rstrip(' ')}\n")


def _plain(shown: RenderableType) -> Iterator[str]:
    """The lines of a table, a text or a group."""
    if isinstance(shown, Group):
        for one in shown.renderables:
            yield from _plain(one)
    elif isinstance(shown, Table):
        rows = zip(*(column.cells for column in shown.columns), strict=True)
        headings = [[column.header for column in shown.columns]] if shown.show_header else []
        for row in (*headings, *rows):
            cells = ["\n".join(_plain(cell)) for cell in row]
            yield "  ".join(cells[:-1] if not cells[-1] else cells)
    else:
        yield shown.plain if isinstance(shown, Text) else str(shown)


def many(number: int, nouns: str) -> str:
    """A number of things: `1 message`, `2,000 messages`. `nouns` is the plural, which ends with its noun."""
    return f"{number:,} {nouns if number != 1 else nouns.removesuffix('s')}"


def escape(text: str) -> str:
    """Replace characters that are not printable by escape sequences."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def heading(name: str, more: str) -> Text:
    """Return a heading with a dimmed addition."""
    return Text.assemble((name, "bold"), (f"  {more}", DIM))


def grid() -> Table:
    """Create a table of labels and texts."""
    return Table.grid(padding=(0, 2))
