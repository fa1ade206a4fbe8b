"""The terminal's console, styles and layout. Keys and reasons are escaped before they are printed."""

from rich.console import Console
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


def escape(text: str) -> str:
    """Replace characters that are not printable by escape sequences."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def heading(name: str, more: str) -> Text:
    """Return a heading with a dimmed addition."""
    return Text.assemble((name, "bold"), (f"  {more}", DIM))


def grid() -> Table:
    """Create a table of labels and texts."""
    return Table.grid(padding=(0, 2))


def add_line(lines: Table, label: str, text: Text) -> None:
    """Add a line with a label."""
    lines.add_row(Text(label, style=DIM), text)
