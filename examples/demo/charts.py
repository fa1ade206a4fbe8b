"""Small charts as inline SVG. Their colours are the page's CSS variables, which follow light and dark mode."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

WIDTH = 960
LABELS = 400
BAR, GAP = 15, 3


def paired_bars(rows: Sequence[tuple[str, int, int]], *, of: Sequence[int] | None = None, unit: str) -> str:
    """Draw two horizontal bars with their numbers for each row, ledger above naive.

    :param of: the total of each row. The bars then show shares.
    :param unit: the unit of the numbers, for screen readers.
    """
    wholes = list(of) if of else [max(1, *(max(ledger, naive) for _, ledger, naive in rows))] * len(rows)
    space = WIDTH - LABELS - 90
    height = len(rows) * (2 * BAR + GAP + 12)
    parts = []
    for n, ((label, *values), whole) in enumerate(zip(rows, wholes, strict=True)):
        top = n * (2 * BAR + GAP + 12) + 4
        parts.append(_text(LABELS - 12, top + BAR + 7, label, "end"))
        for m, (side, value) in enumerate(zip(("ledger", "naive"), values, strict=True)):
            y = top + m * (BAR + GAP)
            length = space * value / max(1, whole)
            shown = f"{value} of {whole}" if of else f"{value:,}"
            parts.append(
                f"<g><title>{escape(f'{side}: {shown} {unit}, {label}')}</title>"
                f'<rect class="{side}" x="{LABELS}" y="{y}" width="{max(length, 1.5):.1f}" height="{BAR}" rx="2"/>'
                f"{_text(LABELS + length + 7, y + BAR - 3, shown, 'start', 'number')}</g>"
            )
    return _svg(height + 6, f"{unit}, ledger and naive", parts)


def single_bars(rows: Sequence[tuple[str, int]], *, unit: str) -> str:
    """Draw one horizontal bar for each row."""
    largest = max(1, *(count for _, count in rows))
    parts = []
    for n, (label, count) in enumerate(rows):
        y = n * 26 + 4
        length = (WIDTH - LABELS - 90) * count / largest
        parts.append(
            f"{_text(LABELS - 12, y + 14, label, 'end')}"
            f'<rect class="ledger" x="{LABELS}" y="{y}" width="{max(length, 1.5):.1f}" height="18" rx="2"/>'
            f"{_text(LABELS + length + 7, y + 14, f'{count:,}', 'start', 'number')}"
        )
    return _svg(len(rows) * 26 + 6, unit, parts)


def _text(x: float, y: float, content: str, anchor: str, kind: str = "label") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(content)}</text>'


def _svg(height: float, label: str, parts: Sequence[str]) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{escape(label, quote=True)}">'
        + "".join(parts)
        + "</svg>"
    )
