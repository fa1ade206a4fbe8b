"""The alarms that the options choose, and their thresholds."""

from collections.abc import Iterator

from cdk_intake_ledger.options import MonitoringOptions
from cdk_intake_ledger.validation.monitoring_rules import ALARM_NAME, ALARM_THRESHOLD
from cdk_intake_ledger.validation.registry import Problem


class AlarmChoice:
    """Decides whether an alarm is made, and its threshold. It remembers all names that it was asked about.

    Args:
        options: the options of a pipeline, an intake or of sets.

    """

    def __init__(self, options: MonitoringOptions) -> None:
        self._options = options
        self._names: list[str] = []

    def has(self, name: str) -> bool:
        """True if the options choose this alarm.

        Args:
            name: the alarm's name.

        """
        self._names.append(name)
        chosen = self._options.alarms
        return (chosen is None or name in chosen) and name not in self._options.omit_alarms

    def threshold(self, name: str, default: float) -> float:
        """The threshold of an alarm, in the unit of its metric.

        Args:
            name: the alarm's name.
            default: the threshold without an option.

        """
        return self._options.thresholds.get(name, default)

    def problems(self) -> Iterator[Problem]:
        """Find names that no alarm has, and thresholds that are not above zero. Ask after all alarms were made."""
        options = self._options
        for option in ("alarms", "omit_alarms", "thresholds"):
            for name in getattr(options, option) or ():
                if name not in self._names:
                    yield ALARM_NAME.problem(option=option, name=name, names=", ".join(sorted(self._names)))
        for name, value in options.thresholds.items():
            if value <= 0:
                yield ALARM_THRESHOLD.problem(name=name, value=value)
