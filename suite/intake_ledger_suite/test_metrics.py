"""Metrics and alarms in CloudWatch, and the requests that a change needs."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from intake_ledger_suite.deployed import Deployed
from intake_ledger_testing.account_cost import NEW_KEY_REQUESTS, NEW_KEY_UNITS

NEW_KEYS = 20
STARTS = 10
"""Environments that may start meanwhile. Each start is one request and one unit."""
_WRITES = ("BatchExecuteStatement", "PutItem", "TransactWriteItems", "UpdateItem")
_LATE_SECONDS = 900
"""CloudWatch may get a metric this late."""
pytestmark = [pytest.mark.thorough, pytest.mark.background]


@pytest.mark.assumptions("CW-02")
@pytest.mark.changes(2)
@pytest.mark.only_on_aws("on a local AWS, lines in the log become no metrics")
def test_metrics_and_alarms_follow_from_lines_of_the_log(checks: Deployed, evidence: Callable[[str], None]) -> None:
    """Lines in embedded metric format become metrics, and an alarm goes into ALARM."""
    checks.object_once("Latest", "metrics/a.json", checks.put("Latest", "metrics/a.json"))
    checks.put("Latest", "rejected/alarm.json", {"reject": True})
    own = [{"Name": "service", "Value": checks.out["LatestName"]}]
    checks.until(
        lambda: total(checks, "IntakeLedger", "Committed", own, datetime.now(UTC) - timedelta(hours=1)),
        "CloudWatch has the metric Committed",
        seconds=_LATE_SECONDS,
    )

    def in_alarm() -> list[str]:
        found = checks.aws.client("cloudwatch").describe_alarms(AlarmNamePrefix=checks.stack, StateValue="ALARM")
        return [one["AlarmName"] for one in found["MetricAlarms"]]

    found = checks.until(in_alarm, "the alarm about dead letters is in ALARM", seconds=_LATE_SECONDS)
    evidence(f"CloudWatch has the metric Committed, and {found[0]} is in ALARM")


@pytest.mark.changes(NEW_KEYS)
@pytest.mark.only_on_aws("MiniStack's DynamoDB has no metrics")
def test_requests_for_a_new_key_are_those_of_the_page_of_costs(
    checks: Deployed, evidence: Callable[[str], None]
) -> None:
    """A new key needs the requests and write units of docs/cost.md."""
    begun = datetime.now(UTC)
    for n in range(NEW_KEYS):
        checks.object_once("Counted", f"new/{n}", checks.put("Counted", f"new/{n}"))
    table = [{"Name": "TableName", "Value": checks.out["CountedLedger"]}]

    def counted() -> float:
        """All writes of the time. The first answer may have only some."""
        return total(checks, "AWS/DynamoDB", "ConsumedWriteCapacityUnits", table, begun)

    least = NEW_KEYS * NEW_KEY_UNITS
    checks.until(lambda: counted() >= least, f"DynamoDB counts {least:.0f} write units", seconds=_LATE_SECONDS)
    checks.pause(120)
    units, sent = counted(), 0.0
    for name in _WRITES:
        operation = [*table, {"Name": "Operation", "Value": name}]
        sent += total(checks, "AWS/DynamoDB", "SuccessfulRequestLatency", operation, begun, statistic="SampleCount")
    told = f"{sent / NEW_KEYS:.2f} requests and {units / NEW_KEYS:.2f} write units for a new key, starts included"
    assert units <= least + STARTS, told
    assert sent <= NEW_KEYS * NEW_KEY_REQUESTS + STARTS, told
    evidence(told)


def total(
    checks: Deployed,
    namespace: str,
    metric: str,
    dimensions: list[dict[str, str]],
    begun: datetime,
    *,
    statistic: str = "Sum",
) -> float:
    """Sum a metric from shortly before a time until now, or count its values."""
    answer = checks.aws.client("cloudwatch").get_metric_statistics(
        Namespace=namespace,
        MetricName=metric,
        Dimensions=dimensions,
        StartTime=begun - timedelta(minutes=1),
        EndTime=datetime.now(UTC) + timedelta(minutes=1),
        Period=60,
        Statistics=[statistic],
    )
    return float(sum(one[statistic] for one in answer["Datapoints"]))
