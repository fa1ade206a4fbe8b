"""Parts of HTML pages: tables and charts. Texts are escaped. On a phone, each row of a table becomes a block."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from intake_ledger_cli.console import escape as printable


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


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a chart over time: a stack of values, the lowest first."""

    values: Sequence[float]
    title: str
    """Shown while the pointer is on the column."""


def columns(drawn: Sequence[Column], styles: Sequence[str], ends: tuple[str, str], most: str, label: str) -> str:
    """Return a chart of columns, which fits any width.

    Args:
        drawn: the columns, oldest first.
        styles: the CSS class of each value of a stack.
        ends: the texts at the start and at the end of the time axis.
        most: the text for the height of the chart.
        label: describes the chart for screen readers.

    """
    largest = max((sum(one.values) for one in drawn), default=0) or 1
    parts = []
    for n, one in enumerate(drawn):
        top, rects = 100.0, []
        for value, style in zip(one.values, styles, strict=True):
            height = 100 * value / largest
            top -= height
            if value:
                rects.append(f'<rect class="{style}" x="{n * 10 + 1}" y="{top:.2f}" width="8" height="{height:.2f}"/>')
        # The transparent rectangle shows the title above a low column too.
        cover = f'<rect x="{n * 10}" y="0" width="10" height="100" fill="transparent"/>'
        parts.append(f"<g>{''.join(rects)}{cover}<title>{text(one.title)}</title></g>")
    return (
        f'<div class="columns"><p><span>{text(most)}</span></p>'
        f'<svg viewBox="0 0 {max(1, len(drawn)) * 10} 100" preserveAspectRatio="none" role="img" '
        f'aria-label="{escape(label)}">{"".join(parts)}</svg>'
        f"<p><span>{text(ends[0])}</span><span>{text(ends[1])}</span></p></div>"
    )


def tiles(numbers: Iterable[tuple[str, str, str]]) -> str:
    """Return tiles with a number, its meaning and its CSS class."""
    drawn = "".join(
        f'<div class="tile"><b class="{style}">{text(number)}</b><span>{text(what)}</span></div>'
        for number, what, style in numbers
    )
    return f'<div class="tiles">{drawn}</div>'


def legend(names: Iterable[tuple[str, str]]) -> str:
    """Return the key of a chart: CSS classes of colours and their meanings."""
    return f'<p class="key">{"".join(f"<span><i class={style}></i>{text(name)}</span>" for style, name in names)}</p>'
