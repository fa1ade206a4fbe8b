"""Reads metrics of a pipeline in one request. CloudWatch shows them a minute or two later."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

from intake_ledger_cli.app import now_ms
from intake_ledger_cli.aws.clients import Aws
from intake_ledger_cli.aws.deployed import DeployedPipeline

_SUMS = ("Committed", "Rejected", "Failed", "Retries", "LapsedLeases", "BreakerOpen", "AuditDeliveryProblems")
_OF_LAMBDA = ("Errors", "Throttles")
_HOUR_MS = 3_600_000


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


class Values(dict[int, float]):
    """The values of a metric by the start of their period, in epoch milliseconds. The local AWS does not sort them."""

    @property
    def total(self) -> int:
        return int(sum(self.values()))

    @property
    def last(self) -> int | None:
        return int(self[max(self)]) if self else None

    @property
    def positive_at(self) -> int | None:
        """The start of the last period with a value above 0."""
        return max((at for at, value in self.items() if value > 0), default=None)


class Metric(NamedTuple):
    """A metric and its statistic. Without dimensions, it is one of the pipeline."""

    name: str
    statistic: str = "Sum"
    namespace: str = "IntakeLedger"
    dimensions: Mapping[str, str] = {}


def read_values(
    aws: Aws, deployed: DeployedPipeline, wanted: Mapping[str, Metric], *, start: int, end: int, seconds: int
) -> dict[str, Values]:
    """Read metrics by names of the caller. One without values has an empty mapping.

    Args:
        aws: the clients.
        deployed: the pipeline.
        wanted: the metrics.
        start: epoch milliseconds.
        end: epoch milliseconds.
        seconds: the length of a period. One request gives 100,800 values at most.

    Raises:
        ClientError: CloudWatch refuses the request.

    """
    queries = []
    for number, (label, one) in enumerate(wanted.items()):
        dimensions = one.dimensions or {"service": deployed.name}
        metric = {
            "Namespace": one.namespace,
            "MetricName": one.name,
            "Dimensions": [{"Name": name, "Value": value} for name, value in dimensions.items()],
        }
        stat = {"Metric": metric, "Period": seconds, "Stat": one.statistic}
        queries.append({"Id": f"m{number}", "Label": label, "MetricStat": stat})
    answer = aws.cloudwatch.get_metric_data(
        MetricDataQueries=queries,
        StartTime=datetime.fromtimestamp(start / 1000, UTC),
        EndTime=datetime.fromtimestamp(end / 1000, UTC),
        ScanBy="TimestampDescending",
    )
    found = dict.fromkeys(wanted, Values())
    for one in answer["MetricDataResults"]:
        times = (int(at.timestamp() * 1000) for at in one["Timestamps"])
        found[one["Label"]] = Values(zip(times, one["Values"], strict=True))
    return found


def read_metrics(aws: Aws, deployed: DeployedPipeline) -> dict[str, Values]:
    """Read the metrics of the last hour in minutes, and the ages of the oldest messages as `queue` and `dead_letters`.

    Raises:
        ClientError: CloudWatch refuses the request.

    """
    function = {"FunctionName": deployed.consumer_function}
    wanted = {name: Metric(name) for name in _SUMS} | {"CommitLag": Metric("CommitLag", "Maximum")}
    wanted |= {name: Metric(name, "Sum", "AWS/Lambda", function) for name in _OF_LAMBDA}
    for label, url in (("queue", deployed.queue_url), ("dead_letters", deployed.dead_letter_url)):
        queue = {"QueueName": url.rsplit("/", 1)[-1]}
        wanted[label] = Metric("ApproximateAgeOfOldestMessage", "Maximum", "AWS/SQS", queue)
    now = now_ms()
    return read_values(aws, deployed, wanted, start=now - _HOUR_MS, end=now, seconds=60)


def last_hour(found: Mapping[str, Values]) -> LastHour:
    """Sum the metrics of `read_metrics`."""
    retries, finished = found["Retries"].total, found["Committed"].total + found["Rejected"].total
    lags = found["CommitLag"]
    return LastHour(
        retries=retries,
        lapsed_leases=found["LapsedLeases"].total,
        finished=finished,
        executions_per_upload=(finished + retries) / finished if finished else None,
        held_back=found["BreakerOpen"].total,
        commit_lag_ms=int(max(lags.values())) if lags else None,
        function_errors=found["Errors"].total,
        function_throttles=found["Throttles"].total,
    )


def last_tick(found: Mapping[str, Values]) -> Tick | None:
    """The last tick among the metrics of `read_metrics`. None: there was none."""
    ticks = found["AuditDeliveryProblems"]
    return Tick(max(ticks), ticks.last or 0) if ticks else None
