"""Charts of the ledger beside the naive consumer. Their style is the page's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from examples.page_parts import Bar, bars

if TYPE_CHECKING:
    from collections.abc import Sequence


def paired_bars(rows: Sequence[tuple[str, int, int]], *, of: Sequence[int] | None = None, unit: str) -> str:
    """Draw two horizontal bars with their numbers for each row, ledger above naive.

    :param of: the total of each row. The bars then show shares.
    :param unit: the unit of the numbers, for screen readers.
    """
    wholes = list(of) if of else [max(1, *(max(ledger, naive) for _, ledger, naive in rows))] * len(rows)
    drawn = []
    for (label, *values), whole in zip(rows, wholes, strict=True):
        pair = []
        for side, value in zip(("ledger", "naive"), values, strict=True):
            shown = f"{value} of {whole}" if of else f"{value:,}"
            pair.append(Bar(side, value / max(1, whole), shown, f"{side}: {shown} {unit}, {label}"))
        drawn.append((label, pair))
    return bars(drawn, f"{unit}, ledger and naive")


def single_bars(rows: Sequence[tuple[str, int]], *, unit: str) -> str:
    """Draw one horizontal bar for each row."""
    largest = max(1, *(count for _, count in rows))
    return bars([(label, [Bar("ledger", count / largest, f"{count:,}")]) for label, count in rows], unit)
