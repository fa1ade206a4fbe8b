"""Measures and formats figures: several rounds, medians with their range, and ratios within each round."""

import os
import platform
import resource
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Figure:
    """A measured figure."""

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Figure":
        return cls(statistics.median(values), min(values), max(values))

    def __str__(self) -> str:
        if self.least == self.most:
            return _short(self.median)
        return f"{_short(self.median)} ({_short(self.least)} to {_short(self.most)})"


def side_by_side(
    runs: Mapping[str, Callable[[int], float]], *, floor: str, rounds: int, pieces: int = 1
) -> dict[str, dict[str, dict[str, float]]]:
    """Return each run's figure and its ratio to the floor in the same round. The first round is a warm-up.

    Each round has several pieces, and all runs alternate in each piece, so that a change of the machine's speed affects
    all of them. A run gets the number of the piece. Its figure is the mean of its pieces.
    """
    taken: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(rounds + 1):
        sums = dict.fromkeys(runs, 0.0)
        for piece in range(pieces):
            # Alternate the direction, so that no run always follows the same other run.
            for name in list(runs)[:: 1 if piece % 2 else -1]:
                sums[name] += runs[name](piece)
        if number:
            for name, value in sums.items():
                taken[name].append(value / pieces)
    return compared(taken, floor=floor)


def compared(taken: Mapping[str, Sequence[float]], *, floor: str) -> dict[str, dict[str, dict[str, float]]]:
    """Return each run's figure in each round, and its ratio to the floor of the same round."""
    return {
        name: {
            "value": asdict(Figure.of(values)),
            "ratio": asdict(Figure.of([mine / its for mine, its in zip(values, taken[floor], strict=True)])),
        }
        for name, values in taken.items()
    }


def family() -> dict[int, tuple[int, float]]:
    """Return the number of generations and the CPU seconds of this process and its running descendants, by process ID.
    Without /proc, return only this process with the wall-clock time.
    """
    if sys.platform != "linux":
        return {os.getpid(): (0, time.perf_counter())}
    parents, spent = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # the process has ended
            # The name in parentheses may contain blanks.
            fields = path.read_text().rpartition(")")[2].split()
            number = int(path.parent.name)
            parents[number], spent[number] = int(fields[1]), int(fields[11]) + int(fields[12])
    generations = {os.getpid(): 0}
    while more := {
        one: generations[its] + 1 for one, its in parents.items() if its in generations and one not in generations
    }:
        generations |= more
    tick = os.sysconf("SC_CLK_TCK")
    return {number: (generation, spent.get(number, 0) / tick) for number, generation in generations.items()}


def family_seconds() -> float:
    """Return the CPU seconds of this process and its running descendants, such as the CDK's Node.js process. Without
    /proc, return the wall-clock time.
    """
    return sum(seconds for _, seconds in family().values())


def peak_mb() -> float:
    """Return the peak memory of this process."""
    # Linux counts in KiB, macOS in bytes.
    unit = 1024**2 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def machine() -> dict[str, Any]:
    """Return the machine and the versions of the measurement."""
    names = ("boto3", "botocore", "aws-lambda-powertools", "aws-cdk-lib", "ministack", "urllib3")
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cpus": os.cpu_count(),
        "processor": _processor(),
        "versions": {name: version(name) for name in names},
    }


def _processor() -> str:
    if sys.platform == "linux":
        with Path("/proc/cpuinfo").open() as lines:
            return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return platform.processor()


def table(title: str, rows: Mapping[str, Row]) -> str:
    """Format rows of named figures as text."""
    columns = list(dict.fromkeys(name for row in rows.values() for name in row))
    lines = [["", *columns], *([name, *(shown(row.get(column)) for column in columns)] for name, row in rows.items())]
    widths = [max(len(line[n]) for line in lines) for n in range(len(columns) + 1)]
    text = [
        "  ".join(cell.ljust(width) if n == 0 else cell.rjust(width) for n, (cell, width) in enumerate(pairs)).rstrip()
        for pairs in (list(zip(line, widths, strict=True)) for line in lines)
    ]
    return "\n".join([title, *text, ""])


def shown(value: object) -> str:
    """Format a figure: a number, or a median with its range."""
    if isinstance(value, Mapping):
        return str(Figure(**value))
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return "" if value is None else str(value)
    return _short(value)


def _short(value: float) -> str:
    if value == int(value):
        return f"{int(value):,}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
