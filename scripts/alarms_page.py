"""Generates the table of docs/runbooks.md from the table of alarms, and the one of metrics in docs/monitoring.md.

    python -m scripts.alarms_page [--write]

Without `--write` it prints both.
"""

import sys
from pathlib import Path

from intake_ledger.contract import ALARMS, KINDS, METRICS, AlarmRow, Limit, MetricRow, Source

PAGE = Path(__file__).parents[1] / "docs" / "runbooks.md"
METRICS_PAGE = PAGE.with_name("monitoring.md")
_BEGIN, _END = "<!-- python -m scripts.alarms_page --write -->\n", "<!-- end of the table -->"


def page() -> str:
    """docs/runbooks.md, with the table of alarms that belongs there."""
    return _replaced(
        PAGE, ["| alarm | of | goes into ALARM when | calls |", "| --- | --- | --- | --- |", *map(_line, ALARMS)]
    )


def metrics_page() -> str:
    """docs/monitoring.md, with the table of metrics that belongs there."""
    lines = ["| metric | counts | written by |", "| --- | --- | --- |"]
    for name, row in METRICS.items():
        lines.append(f"| `{name}` | {row.counts} | {_constructs(row) if row.reason else 'all'} |")
    return _replaced(METRICS_PAGE, lines)


def _replaced(page: Path, lines: list[str]) -> str:
    """The text of a page with these lines as its table."""
    before, _, rest = page.read_text(encoding="utf-8").partition(_BEGIN)
    return f"{before}{_BEGIN}\n" + "\n".join(lines) + f"\n\n{_END}{rest.partition(_END)[2]}"


def condition(row: AlarmRow) -> str:
    """The condition in which an alarm goes into ALARM."""
    if row.condition:
        return row.condition
    assert row.period is not None, "its condition is in words"
    assert isinstance(row.periods, int), "its condition is in words"
    subject = f"`{row.metric}`" if row.source is Source.LEDGER else f"`{row.metric}` of {row.source}"
    statistic = "" if row.statistic == "Sum" else f" ({row.statistic.lower()})"
    threshold = row.threshold if isinstance(row.threshold, Limit) else f"{row.threshold:,}"
    return f"{subject}{statistic} is {row.comparison} {threshold}, {_when(row.periods, row.needed, row.period)}"


def _when(periods: int, needed: int | None, period: int) -> str:
    length = f"{period // 60} minutes"
    if periods == 1:
        return f"in {length}"
    if needed is None:
        return f"in {periods} periods of {length} in a row"
    return f"in {needed} of the last {periods} periods of {length}"


def _constructs(row: AlarmRow | MetricRow) -> str:
    return " and ".join(f"`{KINDS[kind]}`" for kind in row.kinds) or "`OutcomeEvents`"


def _line(row: AlarmRow) -> str:
    kinds = "all" if set(row.kinds) == set(KINDS) else _constructs(row)
    kinds += f", with {row.need}" if row.need else ""
    return f"| [{row.name}](#{row.name.lower()}) | {kinds} | {condition(row)} | {row.call or f'no: {row.no_call}'} |"


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        PAGE.write_text(page(), encoding="utf-8")
        METRICS_PAGE.write_text(metrics_page(), encoding="utf-8")
    else:
        sys.stdout.write(page() + metrics_page())
