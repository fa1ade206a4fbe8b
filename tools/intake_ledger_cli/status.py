"""Reads the current status of a pipeline. A part that the caller may not read is shown as denied, and the others are
shown.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import batched
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from intake_ledger_cli import counting, reading
from intake_ledger_cli.counting import Counts
from intake_ledger_cli.errors import denied_action
from intake_ledger_cli.reading import AuditState

if TYPE_CHECKING:
    from mypy_boto3_sqs.literals import QueueAttributeNameType

    from intake_ledger_cli.aws import Aws
    from intake_ledger_cli.deployed import DeployedPipeline

_NAMESPACE = "IntakeLedger"
_ALARMS_TOGETHER = 100  # CloudWatch's limit of DescribeAlarms
_WAITING: "QueueAttributeNameType" = "ApproximateNumberOfMessages"
_HIDDEN: "QueueAttributeNameType" = "ApproximateNumberOfMessagesNotVisible"


@dataclass(frozen=True, slots=True)
class QueueDepth:
    """The approximate numbers of messages in a queue."""

    waiting: int
    hidden: int
    """Messages in flight: they are processed, or wait for a later attempt."""


@dataclass(frozen=True, slots=True)
class Alarm:
    """An alarm of the pipeline. `state` is CloudWatch's name of the state."""

    name: str
    state: str
    why: str


@dataclass(frozen=True, slots=True)
class RetryCounts:
    """Metrics of the consumer in the last hour. CloudWatch shows them a minute or two later."""

    retries: int
    lapsed_leases: int


@dataclass(frozen=True, slots=True)
class AccessDenied:
    """An action that the caller may not perform."""

    action: str


@dataclass(frozen=True, slots=True)
class PipelineStatus:
    """The status of a pipeline."""

    queue: QueueDepth | AccessDenied
    dead_letters: QueueDepth | AccessDenied
    needs_review: Counts | AccessDenied
    repeats: RetryCounts | AccessDenied
    audit: AuditState | AccessDenied
    source: str | AccessDenied
    """The state of the event source mapping, as Lambda names it."""
    alarms: list[Alarm] | AccessDenied


def read_status(aws: "Aws", deployed: "DeployedPipeline") -> PipelineStatus:
    """Read all parts of the status.

    Raises:
        ClientError: AWS returns an error other than a denial.

    """
    return PipelineStatus(
        queue=_allowed(lambda: _depth(aws, deployed.queue_url)),
        dead_letters=_allowed(lambda: _depth(aws, deployed.dead_letter_url)),
        needs_review=_allowed(lambda: counting.count_rows(aws.dynamodb, deployed)),
        repeats=_allowed(lambda: _repeats(aws, deployed)),
        audit=_allowed(lambda: reading.read_audit_state(aws.dynamodb, deployed)),
        source=_allowed(lambda: _source(aws, deployed)),
        alarms=_allowed(lambda: _alarms(aws, deployed)),
    )


def _allowed[T](ask: Callable[[], T]) -> T | AccessDenied:
    try:
        return ask()
    except ClientError as error:
        if (action := denied_action(error)) is None:
            raise
        return AccessDenied(action)


def _depth(aws: "Aws", url: str) -> QueueDepth:
    attributes: Any = aws.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=[_WAITING, _HIDDEN])["Attributes"]
    return QueueDepth(int(attributes[_WAITING]), int(attributes[_HIDDEN]))


def _repeats(aws: "Aws", deployed: "DeployedPipeline") -> RetryCounts:
    now = datetime.now(UTC)

    def count(metric: str) -> int:
        answer = aws.cloudwatch.get_metric_statistics(
            Namespace=_NAMESPACE,
            MetricName=metric,
            Dimensions=[{"Name": "service", "Value": deployed.name}],
            StartTime=now - timedelta(hours=1),
            EndTime=now,
            Period=3600,
            Statistics=["Sum"],
        )
        return int(sum(point["Sum"] for point in answer["Datapoints"]))

    return RetryCounts(count("Retries"), count("LapsedLeases"))


def _source(aws: "Aws", deployed: "DeployedPipeline") -> str:
    mappings = aws.functions.list_event_source_mappings(FunctionName=deployed.consumer_function)["EventSourceMappings"]
    return ", ".join(one["State"] for one in mappings) or "Missing"


def _alarms(aws: "Aws", deployed: "DeployedPipeline") -> list[Alarm]:
    """Return the stack's alarms on this pipeline's metrics, queues and functions. Those in ALARM come first."""
    own = {deployed.name, deployed.queue_url.rsplit("/", 1)[-1], deployed.dead_letter_url.rsplit("/", 1)[-1]}
    own |= {name for name in (deployed.consumer_function, deployed.audit_function) if name}
    found: list[Alarm] = []
    for names in batched(deployed.alarms, _ALARMS_TOGETHER):
        answer = aws.cloudwatch.describe_alarms(AlarmNames=list(names), MaxRecords=_ALARMS_TOGETHER)
        found += [
            Alarm(one["AlarmName"], one["StateValue"], one.get("AlarmDescription", ""))
            for one in answer["MetricAlarms"]
            if own & _watched(one)
        ]
    return sorted(found, key=lambda one: (one.state != "ALARM", one.state == "OK", one.name))


def _watched(alarm: Mapping[str, Any]) -> set[str]:
    """Return the values of all dimensions. An alarm on a metric expression has its metrics inside."""
    metrics = [alarm, *(one.get("MetricStat", {}).get("Metric", {}) for one in alarm.get("Metrics", ()))]
    return {dimension["Value"] for metric in metrics for dimension in metric.get("Dimensions", ())}
