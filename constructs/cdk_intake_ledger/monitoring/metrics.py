"""The metrics of a pipeline. Its functions write them into their logs in the embedded metric format."""

from collections.abc import Iterator
from difflib import get_close_matches
from typing import Literal, TypedDict, Unpack

from aws_cdk import Duration, Token
from aws_cdk import aws_cloudwatch as cloudwatch

from cdk_intake_ledger.checks.arguments.checking import check_arguments
from cdk_intake_ledger.checks.registry import Problem
from cdk_intake_ledger.checks.reporting import refuse
from cdk_intake_ledger.checks.rules.monitoring_rules import METRIC_NAME, METRIC_OF_OTHER_KIND
from intake_ledger.contract import KINDS, METRICS, METRICS_NAMESPACE, MetricRow

FIVE_MINUTES = Duration.minutes(5)


class MetricOptions(TypedDict, total=False):
    """Options of a metric. Without options, a metric is the sum of five minutes, or the maximum if
    it is a time in milliseconds.
    """

    account: str
    color: str
    label: str
    period: Duration
    region: str
    statistic: str
    unit: cloudwatch.Unit


@check_arguments
class IntakeMetrics:
    """Has the metrics of one pipeline, intake or sets. Each metric counts events, except those of times, which are in
    milliseconds. Without events a metric has no data, not zero.
    """

    _kind: Literal["objects", "messages", "sets"]
    """The kind of work."""

    @property
    def name(self) -> str:
        """The value of the metrics' dimension `service`."""
        raise NotImplementedError

    def metric(self, metric_name: str, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Return one of the metrics, by its name.

        Args:
            metric_name: the name in CloudWatch's namespace `IntakeLedger`, as docs/monitoring.md lists them.
            options: options of `cloudwatch.Metric`, without names and dimensions; the sum of five minutes when omitted,
                or the maximum of a time.

        Returns:
            the metric.

        Raises:
            IntakeConfigurationError: no metric has this name, or this kind of work does not write it.

        """
        row = METRICS.get(metric_name)
        if row is not None or not Token.is_unresolved(metric_name):
            refuse(f"{self.name}.metric", [*_problems(metric_name, row, self._kind)])
        return cloudwatch.Metric(
            namespace=METRICS_NAMESPACE,
            metric_name=metric_name,
            dimensions_map={"service": self.name},
            **(MetricOptions(statistic=row.statistic if row else "Sum", period=FIVE_MINUTES) | options),
        )


def _problems(name: str, row: MetricRow | None, kind: str) -> Iterator[Problem]:
    if row is None:
        yield METRIC_NAME.problem(name=name, right=_right(name))
    elif kind not in row.kinds:
        others = " or ".join(KINDS[one] for one in row.kinds)
        yield METRIC_OF_OTHER_KIND.problem(name=name, construct=KINDS[kind], reason=row.reason, others=others)


def _right(name: str) -> str:
    """The metric whose name resembles a wrong one the most, or all names."""
    known = {metric.lower(): metric for metric in METRICS}
    nearest = get_close_matches(name.lower().replace("_", "").replace("-", ""), known, n=3)
    return " or ".join(repr(known[one]) for one in nearest) or f"one of {', '.join(sorted(METRICS))}"
