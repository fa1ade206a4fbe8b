"""CloudWatch's evaluation of alarms, for the alarms of a synthesized template and metrics in embedded metric format.

CloudWatch divides time into periods, computes one value for each, and looks at the last `EvaluationPeriods` of them:
`DatapointsToAlarm` breaching values put the alarm into ALARM. Missing values count as `TreatMissingData` says: with
`ignore`, the state stays. A composite alarm follows the states of its children at once.
"""

import json
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

_COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "GreaterThanOrEqualToThreshold": operator.ge,
    "GreaterThanThreshold": operator.gt,
    "LessThanThreshold": operator.lt,
    "LessThanOrEqualToThreshold": operator.le,
}
_STATISTICS: dict[str, Callable[[list[float]], float]] = {"Sum": sum, "Maximum": max, "Minimum": min, "Average": fmean}
OK, ALARM, NO_DATA = "OK", "ALARM", "INSUFFICIENT_DATA"
_LOOK_BACK = 400
"""Periods in which an alarm that keeps its state has looked for data."""


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


class Series:
    """The values of a metric by the number of their period, and metric math on them. None is no value."""

    def __init__(self, value: Callable[[int], float | None]) -> None:
        self.at = value

    def _with(self, other: "Series | float", calculate: Callable[[float, float], float]) -> "Series":
        def value(number: int) -> float | None:
            left, right = self.at(number), other.at(number) if isinstance(other, Series) else other
            return None if left is None or right is None else calculate(left, right)

        return Series(value)

    def __add__(self, other: "Series | float") -> "Series":
        return self._with(other, operator.add)

    def __sub__(self, other: "Series | float") -> "Series":
        return self._with(other, operator.sub)

    def __lt__(self, other: float) -> "Series":
        return self._with(other, operator.lt)


def _fill(series: Series, number: float) -> Series:
    return Series(lambda at: number if (value := series.at(at)) is None else value)


def _diff(series: Series) -> Series:
    return series - Series(lambda at: series.at(at - 1))


def _if(condition: Series, then: Series, otherwise: float) -> Series:
    def value(at: int) -> float | None:
        holds = condition.at(at)
        return None if holds is None else then.at(at) if holds else otherwise

    return Series(value)


class Alarm:
    """An alarm as a template defines it."""

    def __init__(self, properties: Mapping[str, Any]) -> None:
        self._properties = properties
        self._periods: int = properties["EvaluationPeriods"]
        self._needed: int = properties.get("DatapointsToAlarm", self._periods)
        self._math, *metrics = properties.get("Metrics", [None])
        self._metrics = {one["Id"]: one["MetricStat"] for one in metrics}
        self._read: tuple[int, int, Series] | None = None
        self.period_ms: int = 1000 * (metrics[0]["MetricStat"] if metrics else properties)["Period"]

    def state(self, points: Sequence[Point], at: int) -> str:
        """Its state at this time, in epoch milliseconds."""
        end = at // self.period_ms
        if self._read is None or self._read[:2] != (id(points), len(points)):
            self._read = id(points), len(points), self._series(points)
        series, treated = self._read[2], self._properties.get("TreatMissingData", "missing")
        if treated == "ignore":
            assert self._periods == 1
            found = (value for number in range(1, _LOOK_BACK) if (value := series.at(end - number)) is not None)
            value = next(found, None)
            return NO_DATA if value is None else ALARM if self._breaches(value) else OK
        values = [series.at(end - number - 1) for number in range(self._periods)]
        breaching = sum(treated == "breaching" if one is None else self._breaches(one) for one in values)
        return ALARM if breaching >= self._needed else OK

    def rings(self, points: Sequence[Point], at: int) -> bool:
        """True if it is in ALARM at this time, in epoch milliseconds."""
        return self.state(points, at) == ALARM

    def ever_rings(self, points: Sequence[Point], *, since: int, until: int) -> bool:
        """True if it goes into ALARM at any time in between."""
        return any(self.rings(points, at) for at in range(since, until + self.period_ms, self.period_ms))

    def _breaches(self, value: float) -> bool:
        return _COMPARISONS[self._properties["ComparisonOperator"]](value, self._properties["Threshold"])

    def _series(self, points: Sequence[Point]) -> Series:
        if not self._math:
            return self._of_metric(self._properties, self._properties["Statistic"], points)
        names = {name: self._of_metric(one["Metric"], one["Stat"], points) for name, one in self._metrics.items()}
        functions: dict[str, Any] = {"FILL": _fill, "DIFF": _diff, "IF": _if}
        found = eval(self._math["Expression"], {"__builtins__": {}}, names | functions)
        assert isinstance(found, Series)
        return found

    def _of_metric(self, metric: Mapping[str, Any], statistic: str, points: Sequence[Point]) -> Series:
        dimensions = frozenset((one["Name"], str(one["Value"])) for one in metric.get("Dimensions", ()))
        wanted = metric["Namespace"], metric["MetricName"], dimensions
        by_period: dict[int, list[float]] = {}
        for point in points:
            if (point.namespace, point.name, point.dimensions) == wanted:
                by_period.setdefault(point.at // self.period_ms, []).append(point.value)
        values = {number: _STATISTICS[statistic](found) for number, found in by_period.items()}
        return Series(values.get)


class Composite:
    """A composite alarm as a template defines it, with the alarms of the template by logical ID."""

    def __init__(self, properties: Mapping[str, Any], alarms: Mapping[str, Alarm]) -> None:
        parts = properties["AlarmRule"]["Fn::Join"][1]
        rule = "".join(one if isinstance(one, str) else one["Fn::GetAtt"][0] for one in parts)
        self._rule = re.sub(r"\b(OR|AND|NOT)\b", lambda word: word[1].lower(), rule)
        self.children = {name: alarms[name] for name in dict.fromkeys(re.findall(r'\("(\w+)"\)', rule))}

    def rings(self, points: Sequence[Point], at: int) -> bool:
        """True if it is in ALARM at this time, in epoch milliseconds."""
        states = {name: alarm.state(points, at) for name, alarm in self.children.items()}
        functions = {state: lambda name, state=state: states[name] == state for state in (OK, ALARM, NO_DATA)}
        return bool(eval(self._rule, {"__builtins__": {}}, functions))


def alarms_of(template: Mapping[str, Any]) -> dict[str, Alarm]:
    """All alarms of a template, by logical id."""
    return {
        name: Alarm(one["Properties"])
        for name, one in template["Resources"].items()
        if one["Type"] == "AWS::CloudWatch::Alarm"
    }


def composites_of(template: Mapping[str, Any]) -> dict[str, Composite]:
    """All composite alarms of a template, by logical ID."""
    alarms = alarms_of(template)
    return {
        name: Composite(one["Properties"], alarms)
        for name, one in template["Resources"].items()
        if one["Type"] == "AWS::CloudWatch::CompositeAlarm"
    }
