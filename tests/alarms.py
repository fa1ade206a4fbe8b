"""CloudWatch's evaluation of alarms, for the alarms of a synthesized template and metrics in embedded metric format.

CloudWatch divides time into periods, computes one value for each, and looks at the last `EvaluationPeriods` of them:
`DatapointsToAlarm` breaching values put the alarm into ALARM. Missing values count as `TreatMissingData` says.
"""

import json
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "GreaterThanOrEqualToThreshold": operator.ge,
    "GreaterThanThreshold": operator.gt,
    "LessThanThreshold": operator.lt,
    "LessThanOrEqualToThreshold": operator.le,
}
_STATISTICS: dict[str, Callable[[list[float]], float]] = {"Sum": sum, "Maximum": max, "Minimum": min}


@dataclass(frozen=True, slots=True)
class Point:
    """One value of a metric."""

    at: int
    """Epoch milliseconds."""
    namespace: str
    name: str
    dimensions: frozenset[tuple[str, str]]
    value: float


def points_of(output: str, at: int) -> list[Point]:
    """The values in a function's log lines, which were written at this time."""
    found = []
    for line in output.splitlines():
        content = json.loads(line)
        for directive in content.get("_aws", {}).get("CloudWatchMetrics", ()):
            [names] = directive["Dimensions"]
            dimensions = frozenset((name, str(content[name])) for name in names)
            found += [
                Point(at, directive["Namespace"], metric["Name"], dimensions, value)
                for metric in directive["Metrics"]
                for value in content[metric["Name"]]
            ]
    return found


class Alarm:
    """An alarm as a template defines it."""

    def __init__(self, properties: Mapping[str, Any]) -> None:
        self._properties = properties
        self._periods: int = properties["EvaluationPeriods"]
        self._needed: int = properties.get("DatapointsToAlarm", self._periods)
        self.period_ms: int = 1000 * properties["Period"]

    def rings(self, points: Sequence[Point], at: int) -> bool:
        """True if it is in ALARM at this time, in epoch milliseconds."""
        end = at // self.period_ms * self.period_ms
        breaching = 0
        for number in range(self._periods):
            start = end - (number + 1) * self.period_ms
            breaching += self._breaches(self._value([p for p in points if start <= p.at < start + self.period_ms]))
        return breaching >= self._needed

    def ever_rings(self, points: Sequence[Point], *, since: int, until: int) -> bool:
        """True if it goes into ALARM at any time in between."""
        return any(self.rings(points, at) for at in range(since, until + self.period_ms, self.period_ms))

    def _breaches(self, value: float | None) -> bool:
        treated = self._properties.get("TreatMissingData", "missing")
        if value is None:
            return bool(treated == "breaching")
        return _COMPARISONS[self._properties["ComparisonOperator"]](value, self._properties["Threshold"])

    def _value(self, points: Iterable[Point]) -> float | None:
        return _statistic(self._properties, self._properties["Statistic"], list(points))


def alarms_of(template: Mapping[str, Any]) -> dict[str, Alarm]:
    """All alarms of a template, by logical id."""
    return {
        name: Alarm(one["Properties"])
        for name, one in template["Resources"].items()
        if one["Type"] == "AWS::CloudWatch::Alarm"
    }


def _statistic(metric: Mapping[str, Any], statistic: str, points: list[Point]) -> float | None:
    dimensions = frozenset((one["Name"], str(one["Value"])) for one in metric.get("Dimensions", ()))
    values = [
        point.value
        for point in points
        if (point.namespace, point.name, point.dimensions) == (metric["Namespace"], metric["MetricName"], dimensions)
    ]
    return _STATISTICS[statistic](values) if values else None
