"""Generates docs/runbooks/README.md from the table of alarms, and the table of metrics in docs/monitoring.md.

    python -m scripts.alarms_page [--write]

Without `--write` it prints both.
"""

import sys
from pathlib import Path

from intake_ledger.contract import ALARMS, KINDS, METRICS, AlarmRow, Limit, MetricRow, Source

PAGE = Path(__file__).parents[1] / "docs" / "runbooks" / "README.md"
METRICS_PAGE = PAGE.parents[1] / "monitoring.md"
_BEGIN, _END = "<!-- python -m scripts.alarms_page --write -->\n", "<!-- end of the table -->"

HEAD = """\
# Alarms and runbooks

For operators: one page for each alarm, which its description names. [Monitoring](../monitoring.md) has the metrics, and
the options that choose alarms and set thresholds. `python -m scripts.alarms_page --write` makes this page from
[the table of alarms](../../lambda_src/intake_ledger/contract.py), which also says why a kind of work lacks one.

The pages need these variables:

    export INTAKE_LEDGER_STACK=Intake INTAKE_LEDGER_PIPELINE=Invoices
    intake-ledger status
    QUERY="StackResourceSummaries[].[LogicalResourceId,PhysicalResourceId]"
    aws cloudformation list-stack-resources --stack-name Intake --query $QUERY --output text
    FUNCTION=...       # the physical ID of the function that the page names: InvoicesConsumer..., InvoicesAudit...
    SELECT=LoggingConfig.LogGroup
    LOG=$(aws lambda get-function-configuration --function-name $FUNCTION --query $SELECT --output text)
    HOUR=$(( ($(date +%s) - 3600) * 1000 ))
"""

WORKERS = """\
The alarms of a queue watch its [workers](../worker.md) too. The two alarms of `IntakeWorkers` set the number of tasks.
"""


def page() -> str:
    """The whole page."""
    table = ["| alarm | of | goes into ALARM when |", "| --- | --- | --- |"]
    return "\n".join((HEAD, *table, *map(_line, ALARMS), "", WORKERS))


def metrics_page() -> str:
    """docs/monitoring.md, with the table of metrics that belongs there."""
    lines = ["| metric | counts | written by |", "| --- | --- | --- |"]
    for name, row in METRICS.items():
        lines.append(f"| `{name}` | {row.counts} | {_constructs(row) if row.reason else 'all'} |")
    before, _, rest = METRICS_PAGE.read_text(encoding="utf-8").partition(_BEGIN)
    return f"{before}{_BEGIN}\n" + "\n".join(lines) + f"\n\n{_END}{rest.partition(_END)[2]}"


def condition(row: AlarmRow) -> str:
    """The condition in which an alarm goes into ALARM."""
    if row.condition:
        return row.condition
    assert row.period is not None, "its condition is in words"
    assert isinstance(row.periods, int), "its condition is in words"
    subject = f"`{row.metric}`" if row.source is Source.LEDGER else f"`{row.metric}` of {row.source}"
    subject += f" less `{row.minus}`" if row.minus else ""
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
    path = row.runbook.rpartition("/")[2]
    kinds = "all" if set(row.kinds) == set(KINDS) else _constructs(row)
    kinds += f", with {row.need}" if row.need else ""
    return f"| [{row.name}]({path}) | {kinds} | {condition(row)} |"


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        PAGE.write_text(page(), encoding="utf-8")
        METRICS_PAGE.write_text(metrics_page(), encoding="utf-8")
    else:
        sys.stdout.write(page() + metrics_page())
