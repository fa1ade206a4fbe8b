"""The table of each list."""

from collections.abc import Iterable, Sequence

from rich.table import Table
from rich.text import Text

from intake_ledger_cli.show.console import BAD, DIM, GOOD, WARNING, escape

_STYLES = {
    "status": {
        "DISMISSED": BAD,
        "REJECTED": BAD,
        "FAILED": WARNING,
        "REJECTED-ROWS": WARNING,
        "REMOVED": WARNING,
        "STUCK": WARNING,
        "WAITING": WARNING,
    },
    "choice": {"leave": WARNING, "skip": DIM, "redrive": GOOD, "now": GOOD, "reopen": GOOD, "again": GOOD},
    "state": {"only kept resources: deploy with this name=": WARNING},
}
"""The styles of values, by the title of their column."""
_WHOLE = frozenset({"since", "status", "attempt", "attempts", "rows", "reason code"})
"""Columns that are not wrapped."""


def table(titles: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    """Return a table of texts. A number is aligned to the right, and text without a style is escaped."""
    made, lines = Table(*titles, box=None, pad_edge=False, header_style=DIM), list(rows)
    for column, title, values in zip(made.columns, titles, zip(*lines, strict=True), strict=False):
        column.overflow, column.no_wrap = "fold", title in _WHOLE
        column.justify = "right" if all(isinstance(one, int) for one in values) else "left"
    for line in lines:
        made.add_row(*map(_cell, titles, line))
    return made


def _cell(title: str, value: object) -> Text | str:
    if isinstance(value, Text):
        return value
    text = f"{value:,}" if isinstance(value, int) else escape(str(value))
    style = _STYLES.get(title, {}).get(text)
    return Text(text, style=style) if style else text
