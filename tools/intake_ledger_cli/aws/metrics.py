"""Reads the metrics of the last hour in one request. CloudWatch shows them a minute or two later."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from intake_ledger_cli.aws.clients import Aws
from intake_ledger_cli.aws.deployed import DeployedPipeline

_SUMS = ("Committed", "Rejected", "Failed", "Retries", "LapsedLeases", "BreakerOpen")
_OF_LAMBDA = ("Errors", "Throttles")
_PERIOD_SECONDS = 60


@dataclass(frozen=True, slots=True)
class LastHour:
    """Metrics of the last hour. They are approximate: CloudWatch gets them later, or never from a worker that died."""

    retries: int
    """Attempts after the first one of a state."""
    lapsed_leases: int
    """Workers that died or timed out."""
    finished: int
    """States that were committed or rejected."""
    executions_per_upload: float | None
    """The average number of attempts of a finished state. None: nothing was finished."""
    held_back: int
    """Messages that the circuit breaker returned to the queue."""
    commit_lag_ms: int | None
    """The longest time from an event to its commit. None: nothing was committed for an event."""
    function_errors: int
    """Invocations of the consumer's function that failed as a whole."""
    function_throttles: int
    """Invocations that Lambda refused."""


@dataclass(frozen=True, slots=True)
class Tick:
    """The audit's last tick. `at` is in epoch milliseconds."""

    at: int
    problems: int
    """Problems of the delivery that it found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """All metrics of the status. Times are in epoch milliseconds."""

    last_hour: LastHour
    queue_age_seconds: int | None
    """The age of the queue's oldest message at CloudWatch's last look. None: CloudWatch has no value."""
    dead_letter_age_seconds: int | None
    tick: Tick | None
    """None: there was none in the last hour."""
    committed_at: int | None
    """The start of the last minute with a commit. None: there was none."""
    failed_at: int | None
    """The same of failures."""
    held_back_at: int | None
    """The same of messages that the breaker returned."""


def read_metrics(aws: Aws, deployed: DeployedPipeline) -> Metrics:
    """Read the metrics.

    Raises:
        ClientError: CloudWatch refuses the request.

    """
    now = datetime.now(UTC)
    own = [{"Name": "service", "Value": deployed.name}]
    queries = [_query(name, "IntakeLedger", name, own, "Sum") for name in (*_SUMS, "AuditDeliveryProblems")]
    queries.append(_query("CommitLag", "IntakeLedger", "CommitLag", own, "Maximum"))
    function = [{"Name": "FunctionName", "Value": deployed.consumer_function}]
    queries += [_query(name, "AWS/Lambda", name, function, "Sum") for name in _OF_LAMBDA]
    for name, url in (("queue", deployed.queue_url), ("dead_letters", deployed.dead_letter_url)):
        dimensions = [{"Name": "QueueName", "Value": url.rsplit("/", 1)[-1]}]
        queries.append(_query(name, "AWS/SQS", "ApproximateAgeOfOldestMessage", dimensions, "Maximum"))
    answer = aws.cloudwatch.get_metric_data(
        MetricDataQueries=queries, StartTime=now - timedelta(hours=1), EndTime=now, ScanBy="TimestampDescending"
    )
    found: dict[str, Any] = {one["Label"]: one for one in answer["MetricDataResults"]}
    values = {name: one["Values"] for name, one in found.items()}

    def total(name: str) -> int:
        return int(sum(values.get(name, ())))

    finished, retries = total("Committed") + total("Rejected"), total("Retries")
    return Metrics(
        last_hour=LastHour(
            retries=retries,
            lapsed_leases=total("LapsedLeases"),
            finished=finished,
            executions_per_upload=(finished + retries) / finished if finished else None,
            held_back=total("BreakerOpen"),
            commit_lag_ms=int(max(values["CommitLag"])) if values.get("CommitLag") else None,
            function_errors=total("Errors"),
            function_throttles=total("Throttles"),
        ),
        queue_age_seconds=_age(found.get("queue")),
        dead_letter_age_seconds=_age(found.get("dead_letters")),
        tick=Tick(*last) if (last := _latest(found.get("AuditDeliveryProblems"))) else None,
        committed_at=_last_time(found.get("Committed")),
        failed_at=_last_time(found.get("Failed")),
        held_back_at=_last_time(found.get("BreakerOpen")),
    )


def _query(label: str, namespace: str, metric: str, dimensions: list[dict[str, str]], statistic: str) -> dict[str, Any]:
    return {
        "Id": f"m_{label.lower()}",
        "Label": label,
        "MetricStat": {
            "Metric": {"Namespace": namespace, "MetricName": metric, "Dimensions": dimensions},
            "Period": _PERIOD_SECONDS,
            "Stat": statistic,
        },
    }


def _latest(found: Mapping[str, Any] | None) -> tuple[int, int] | None:
    """The time of the latest value in epoch milliseconds, and the value. The local AWS does not sort them."""
    points = list(zip(found["Timestamps"], found["Values"], strict=True)) if found else []
    if not points:
        return None
    at, value = max(points)
    return int(at.timestamp() * 1000), int(value)


def _age(found: Mapping[str, Any] | None) -> int | None:
    latest = _latest(found)
    return latest[1] if latest else None


def _last_time(found: Mapping[str, Any] | None) -> int | None:
    """The start of the last period with a value above 0, in epoch milliseconds."""
    points = zip(found["Timestamps"], found["Values"], strict=True) if found else ()
    return max((int(at.timestamp() * 1000) for at, value in points if value > 0), default=None)
