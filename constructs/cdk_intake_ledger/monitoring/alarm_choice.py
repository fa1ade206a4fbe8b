"""The alarms that the options choose, and their thresholds."""

import math
from collections.abc import Iterator
from difflib import get_close_matches

from aws_cdk import Token
from constructs import Construct

from cdk_intake_ledger.checks.registry import Problem
from cdk_intake_ledger.checks.reporting import refuse
from cdk_intake_ledger.checks.rules.monitoring_rules import ALARM_NAME, ALARM_NOT_CHOSEN, ALARM_THRESHOLD
from cdk_intake_ledger.options.options import MonitoringOptions


class AlarmChoice:
    """Decides whether an alarm is made, and its threshold. It remembers all names that it was asked about.

    Args:
        options: the options of a pipeline, an intake or of sets.

    """

    def __init__(self, options: MonitoringOptions) -> None:
        self._options = options
        self._names: list[str] = []
        self._on_demand = set[str]()

    def has(self, name: str, *, by_default: bool = True) -> bool:
        """True if the options choose this alarm.

        Args:
            name: the alarm's name.
            by_default: true if it is made without a choice; it is when omitted.

        """
        self._names.append(name)
        if not by_default:
            self._on_demand.add(name)
        return self._left_out_by(name) is None

    def _left_out_by(self, name: str) -> tuple[str, str] | None:
        """The option that leaves an alarm out, and the way to choose it; None if the alarm is made."""
        chosen = self._options.alarms
        if name in self._options.omit_alarms:
            return "omit_alarms", f"remove {name!r} from omit_alarms"
        if name not in (chosen or ()) and (chosen is not None or name in self._on_demand):
            return "alarms", f"add {name!r} to alarms"
        return None

    def threshold(self, name: str, default: float) -> float:
        """The threshold of an alarm, in the unit of its metric.

        Args:
            name: the alarm's name.
            default: the threshold without an option.

        """
        value = self._options.thresholds.get(name, default)
        # `check` refuses other numbers. They would end the CDK's process.
        return value if _is_finite(value) else default

    def sets_threshold(self, name: str) -> bool:
        """True if the options set the threshold of this alarm.

        Args:
            name: the alarm's name.

        """
        return name in self._options.thresholds

    def check(self, monitoring: Construct) -> None:
        """Refuse names that no alarm has, and thresholds without effect or not above zero. Call it after all alarms.

        Args:
            monitoring: the construct of the alarms. Its scope got the options.

        Raises:
            IntakeConfigurationError: There is at least one of them. It lists all.

        """
        if problems := list(self._problems()):
            scope = monitoring.node.scope
            refuse((scope or monitoring).node.path, problems)

    def _problems(self) -> Iterator[Problem]:
        options = self._options
        for option in ("alarms", "omit_alarms", "thresholds"):
            for name in dict.fromkeys(getattr(options, option) or ()):
                if name not in self._names:
                    yield ALARM_NAME.problem(option=option, name=name, right=self._right(name))
        for name, value in options.thresholds.items():
            if not _is_finite(value) or (value <= 0 and not Token.is_unresolved(value)):
                yield ALARM_THRESHOLD.problem(name=name, value=_text(value))
            if name in self._names and (left_out := self._left_out_by(name)):
                option, choose = left_out
                yield ALARM_NOT_CHOSEN.problem(name=name, value=_text(value), option=option, choose=choose)

    def _right(self, name: str) -> str:
        """The alarm's name that resembles a wrong one the most, or all names."""
        found = {alarm.lower(): alarm for alarm in self._names}
        [nearest] = get_close_matches(name.lower().replace("_", "").replace("-", ""), found, n=1) or [""]
        return repr(found[nearest]) if nearest else f"one of {', '.join(sorted(self._names))}"


def _is_finite(value: float) -> bool:
    """True if the number is one for the CDK, whose numbers are floats."""
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def _text(value: float) -> str:
    if not _is_finite(value):
        return str(value)[:20]
    return "a token" if value < 0 and Token.is_unresolved(value) else f"{value:g}"
