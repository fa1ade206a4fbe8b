"""The chart of the gaps between copies: as they were delivered, and as the pipeline measured them.

It is an inline SVG. Its colours are the page's CSS variables.
"""

from __future__ import annotations

import math
from html import escape
from itertools import pairwise
from typing import TYPE_CHECKING

from examples.load.gaps import LONGEST_SECONDS, SHORTEST_SECONDS

if TYPE_CHECKING:
    from collections.abc import Sequence

WIDTH, LEFT, RIGHT = 960, 30, 30
BELOW = 90
"""The width left of the axis, for the bar of values below one millisecond. A logarithm has no place for zero."""
PANEL, TITLE, AXIS = 120, 34, 34
"""Heights of the bars of a panel, of its title, and of an axis."""
PER_DECADE = 4
"""Bars for each order of magnitude."""


class Scale:
    """Converts milliseconds of the run to positions. The axis is logarithmic, from 1 ms to the last decade."""

    def __init__(self, values: Sequence[float]) -> None:
        self.last = max(1, math.ceil(math.log10(max((1.0, *values))) + 1e-9))

    def __call__(self, milliseconds: float) -> float:
        share = math.log10(max(milliseconds, 1.0)) / self.last
        return LEFT + BELOW + (WIDTH - LEFT - BELOW - RIGHT) * share

    def bars(self, values: Sequence[float]) -> list[tuple[float, float, int]]:
        """The start and the end of each bar, and the number of values in it. The first bar is for those below 1 ms."""
        counts = [0] * (1 + self.last * PER_DECADE)
        for value in values:
            bar = 0 if value < 1 else 1 + int(math.log10(value) * PER_DECADE)
            counts[min(bar, len(counts) - 1)] += 1
        edges = [float(LEFT), *(self(10 ** (n / PER_DECADE)) for n in range(len(counts)))]
        return [(start, end, count) for (start, end), count in zip(pairwise(edges), counts, strict=True)]


def gaps_chart(delivered: Sequence[float], measured: Sequence[float], *, scale: float) -> str:
    """Draw both distributions over one axis. A bar left of the axis has the gaps below one millisecond.

    :param delivered: the gap of each copy on its way to the queue, in milliseconds of the run.
    :param measured: the values of the metric `DuplicateAge`.
    :param scale: a gap of the run is the article's gap divided by this.
    """
    axis = Scale([*delivered, *measured, LONGEST_SECONDS * 1000 / scale])
    parts: list[str] = []
    top = 0.0
    for title, style, values in (
        (f"gaps of {len(delivered)} copies, as they were put into the queue", "quiet", delivered),
        (f"DuplicateAge of {len(measured)} duplicates, as the pipeline measured it", "ledger", measured),
    ):
        parts.append(_text(LEFT, top + 20, title, "start"))
        parts += _bars(axis.bars(values), style, top + TITLE)
        top += TITLE + PANEL + 8
    parts += _axes(axis, top, scale)
    height = top + 2 * AXIS + 8
    label = escape("gaps between the copies of a message", quote=True)
    return f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{label}">{"".join(parts)}</svg>'


def _bars(bars: Sequence[tuple[float, float, int]], style: str, top: float) -> list[str]:
    highest = max(1, *(count for _, _, count in bars))
    parts = [f'<line class="lane" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{top + PANEL}" y2="{top + PANEL}"/>']
    for start, end, count in bars:
        if not count:
            continue
        height = (PANEL - 16) * count / highest
        parts.append(
            f'<rect class="{style}" x="{start + 1:.1f}" y="{top + PANEL - height:.1f}" width="{end - start - 2:.1f}" '
            f'height="{height:.1f}"/>{_text((start + end) / 2, top + PANEL - height - 4, str(count), "middle", "tick")}'
        )
    return parts


def _axes(axis: Scale, top: float, scale: float) -> list[str]:
    """Draw the run's time, the article's time, and the article's range."""
    parts = [_text(LEFT, top + 24, "in the run:", "start", "tick"), _text(LEFT, top + 58, "in S3:", "start", "tick")]
    for decade in range(axis.last + 1):
        milliseconds = 10.0**decade
        x, anchor = axis(milliseconds), "end" if decade == axis.last else "middle"
        parts.append(_text(x, top + 24, span(milliseconds), anchor, "tick"))
        parts.append(_text(x, top + 58, span(milliseconds * scale), anchor, "tick"))
        parts.append(f'<line class="lane" x1="{x:.1f}" x2="{x:.1f}" y1="{TITLE}" y2="{top + 8:.1f}"/>')
    start, end = (axis(seconds * 1000 / scale) for seconds in (SHORTEST_SECONDS, LONGEST_SECONDS))
    parts.append(
        f'<g><title>the range that the article measured</title><rect class="s3" x="{start:.1f}" y="{top + 34:.1f}" '
        f'width="{end - start:.1f}" height="6" rx="3"/></g>'
    )
    return parts


def span(milliseconds: float) -> str:
    """Return a duration with its unit, such as `2.5 s`."""
    for unit, size in (("h", 3_600_000), ("min", 60_000), ("s", 1_000)):
        if milliseconds >= 2 * size or (unit == "s" and milliseconds >= size):
            return f"{milliseconds / size:.3g} {unit}"
    return f"{milliseconds:.3g} ms"


def _text(x: float, y: float, content: str, anchor: str, kind: str = "label") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(content)}</text>'
