"""Checks of metrics and alarms in CloudWatch, and of the requests that a change needs."""

from datetime import UTC, datetime, timedelta
from typing import Any

from intake_ledger_cli import metrics
from intake_ledger_cli.acceptance.checking import Check, CheckFailed
from intake_ledger_cli.acceptance.world import World

NEW_KEYS = 20
NEW_KEY_REQUESTS = NEW_KEY_UNITS = 2.0
"""Requests to DynamoDB and write units for a new key: docs/cost.md. A test compares them."""
STARTS = 10
"""Environments that may start meanwhile. Each start is one request and one unit."""
_WRITES = ("BatchExecuteStatement", "PutItem", "TransactWriteItems", "UpdateItem")
_LATE_SECONDS = 900
"""CloudWatch may get a metric this late."""


def metrics_and_alarms(world: World) -> str:
    """A commit and a dead letter become metrics, and the alarm goes off."""
    deployed = world.pipeline("Latest")
    world.object_once("Latest", "metrics.json", world.put("Latest", "metrics.json"))
    world.put("Latest", "rejected/alarm.json", {"reject": True})
    world.until(
        lambda: metrics.read_metrics(world.aws, deployed).last_hour.finished,
        "CloudWatch has the metric Committed",
        seconds=_LATE_SECONDS,
    )

    def in_alarm() -> bool:
        found = world.aws.cloudwatch.describe_alarms(AlarmNames=list(deployed.alarms))["MetricAlarms"]
        return any(one["StateValue"] == "ALARM" for one in found)

    world.until(in_alarm, "the alarm about dead letters is in ALARM", seconds=_LATE_SECONDS)
    return "CloudWatch has the metric Committed, and the alarm about dead letters went off"


def requests(world: World) -> str:
    """The writes of new keys, as DynamoDB counts them."""
    table, begun = world.pipeline("Counted").table, datetime.now(UTC)
    for n in range(NEW_KEYS):
        world.object_once("Counted", f"new/{n}", world.put("Counted", f"new/{n}"))
    ended = datetime.now(UTC)

    def counted() -> float:
        """All writes of the time. The first answer may have only some."""
        return _sum(world, table, "ConsumedWriteCapacityUnits", begun, ended)

    least = NEW_KEYS * NEW_KEY_UNITS
    world.until(lambda: counted() >= least, f"DynamoDB counts {least:.0f} write units", seconds=_LATE_SECONDS)
    world.pause(120)
    units = counted()
    sent = sum(_sum(world, table, "SuccessfulRequestLatency", begun, ended, operation=name) for name in _WRITES)
    told = f"{sent / NEW_KEYS:.2f} requests and {units / NEW_KEYS:.2f} write units for a new key"
    if units > least + STARTS or sent > NEW_KEYS * NEW_KEY_REQUESTS + STARTS:
        raise CheckFailed(f"{told}, and docs/cost.md has {NEW_KEY_REQUESTS:.2f} and {NEW_KEY_UNITS:.2f}")
    return f"{told}, starts included; docs/cost.md has {NEW_KEY_REQUESTS:.2f} and {NEW_KEY_UNITS:.2f} without them"


def _sum(world: World, table: str, metric: str, begun: datetime, ended: datetime, *, operation: str = "") -> float:
    """Sum a metric of a table, or count its values if it is one of an operation."""
    dimensions = [{"Name": "TableName", "Value": table}]
    dimensions += [{"Name": "Operation", "Value": operation}] if operation else []
    statistic = "SampleCount" if operation else "Sum"
    answer: Any = world.aws.cloudwatch.get_metric_statistics(
        Namespace="AWS/DynamoDB",
        MetricName=metric,
        Dimensions=dimensions,
        StartTime=begun - timedelta(minutes=1),
        EndTime=ended + timedelta(minutes=2),
        Period=60,
        Statistics=[statistic],
    )
    return float(sum(one[statistic] for one in answer["Datapoints"]))


METRICS = Check(
    name="metrics",
    shows="Lines in embedded metric format become metrics, and an alarm goes off.",
    run=metrics_and_alarms,
    assumptions=("CW-02",),
    changes=2,
    not_local="on a local AWS, lines in the log become no metrics",
    only_aws=True,
    in_background=True,
)
REQUESTS = Check(
    name="requests",
    shows="A new key needs the requests and write units of docs/cost.md.",
    run=requests,
    changes=NEW_KEYS,
    not_local="MiniStack's DynamoDB has no metrics",
    only_aws=True,
    in_background=True,
)
