"""Parts of HTML pages: tables and charts. Texts are escaped. On a phone, each row of a table becomes a block."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from intake_ledger_cli.show.console import escape as printable


@dataclass(frozen=True, slots=True)
class Html:
    """Content that is HTML already, with the CSS classes of its cell."""

    content: str
    classes: str = ""


type Cell = str | int | Html
"""A cell of a table. A text is escaped. A number is aligned to the right."""


def text(content: str) -> str:
    """Return a text as HTML. Characters that are not printable become escape sequences, so that none hides or reorders
    others.
    """
    return escape(printable(content))


def key(name: str) -> Html:
    """Return the cell of an object's key."""
    return Html(f"<code>{text(name)}</code>", "any")


def table(headings: Sequence[str], rows: Iterable[Sequence[Cell]]) -> str:
    """Return a table. Without headings, the first cell of each row is the row's heading."""
    lines = [_row(headings, cells) for cells in rows]
    numeric = {n for n, one in enumerate(zip(*lines, strict=True)) if all('class="n' in cell for cell in one)}
    heads = "".join(
        f'<th scope="col"{" class=n" if n in numeric else ""}>{escape(name)}</th>' for n, name in enumerate(headings)
    )
    body = "".join(f"<tr>{''.join(cells)}</tr>" for cells in lines)
    return f'<table class="rows">{f"<thead><tr>{heads}</tr></thead>" if headings else ""}<tbody>{body}</tbody></table>'


def _row(headings: Sequence[str], cells: Sequence[Cell]) -> list[str]:
    if not headings:
        first, *others = cells
        return [
            f'<th scope="row">{_content(first)}</th>',
            *(f"<td{_classes(one)}>{_content(one)}</td>" for one in others),
        ]
    labels = (f' data-label="{escape(name)}"' if name else "" for name in headings)
    return [f"<td{_classes(one)}{label}>{_content(one)}</td>" for one, label in zip(cells, labels, strict=True)]


def _classes(cell: Cell) -> str:
    classes = cell.classes if isinstance(cell, Html) else "n" if isinstance(cell, int) else ""
    return f' class="{classes}"' if classes else ""


def _content(cell: Cell) -> str:
    if isinstance(cell, Html):
        return cell.content
    return f"{cell:,}" if isinstance(cell, int) else text(cell)


@dataclass(frozen=True, slots=True)
class Bar:
    """A horizontal bar."""

    style: str
    """The CSS class of its colour."""
    share: float
    """Its length: 1 is the whole width."""
    number: str
    """The text after the bar."""
    title: str = ""


def bars(rows: Iterable[tuple[str, Sequence[Bar]]], label: str) -> str:
    """Return a chart of horizontal bars with a label for each row. `label` describes the chart for screen readers."""
    drawn = "".join(
        f"<div><span>{text(name)}</span><div>{''.join(_bar(one) for one in row)}</div></div>" for name, row in rows
    )
    return f'<div class="bars" role="group" aria-label="{escape(label)}">{drawn}</div>'


def _bar(bar: Bar) -> str:
    # The rest of the width is for the number.
    width = f"calc((100% - 90px) * {min(bar.share, 1):.3f})"
    return f'<p title="{text(bar.title)}"><i class="{bar.style}" style="width: {width}"></i>{text(bar.number)}</p>'


def tiles(numbers: Iterable[tuple[str, str, str]]) -> str:
    """Return tiles with a number, its meaning and its CSS class."""
    drawn = "".join(
        f'<div class="tile"><b class="{style}">{text(number)}</b><span>{text(what)}</span></div>'
        for number, what, style in numbers
    )
    return f'<div class="tiles">{drawn}</div>'
