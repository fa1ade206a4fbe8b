"""The result of a scenario."""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from tests.local.faults.judge import Report


class Outcome(NamedTuple):
    """Result of a scenario."""

    name: str
    report: Report
    seconds: float
    """Duration of its pipeline's scenarios so far."""
    told: str
    """Description of the faults."""


def outcome(name: str, started: float, report: Report, told: str, problems: Sequence[str] = ()) -> Outcome:
    if problems:
        report = replace(report, problems=(*report.problems, *problems))
    return Outcome(name, report, time.monotonic() - started, told)
