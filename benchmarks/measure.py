"""How figures are taken and shown: several rounds side by side, medians with their spread, ratios within each round."""

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
    """One measured thing."""

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
    """Each run's figure and its ratio to the floor's of the same round. A round before the first is not counted.

    A round is cut into pieces, and all runs take their turn in each: a machine whose speed drifts, or that is shared,
    is the same to all of them. A run is given the piece's number; its figure is the mean of its pieces.
    """
    taken: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(rounds + 1):
        sums = dict.fromkeys(runs, 0.0)
        for piece in range(pieces):
            # In turn forwards and backwards: none is always measured after the same neighbour.
            for name in list(runs)[:: 1 if piece % 2 else -1]:
                sums[name] += runs[name](piece)
        if number:
            for name, value in sums.items():
                taken[name].append(value / pieces)
    return compared(taken, floor=floor)


def compared(taken: Mapping[str, Sequence[float]], *, floor: str) -> dict[str, dict[str, dict[str, float]]]:
    """What each run took in each round, as a figure, and as its ratio to the floor's of the same round."""
    return {
        name: {
            "value": asdict(Figure.of(values)),
            "ratio": asdict(Figure.of([mine / its for mine, its in zip(values, taken[floor], strict=True)])),
        }
        for name, values in taken.items()
    }


def family() -> dict[int, tuple[int, float]]:
    """This process and all that it has started and that still runs, by number: how many generations below, and the CPU
    seconds of each; where there is no /proc, this process alone with the time on the clock.
    """
    if sys.platform != "linux":
        return {os.getpid(): (0, time.perf_counter())}
    parents, spent = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended meanwhile
            # The name, in parentheses, may have blanks.
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
    """CPU time of this process and of all that it has started and that still runs (the CDK's engine is a Node.js
    process); where there is no /proc, the time on the clock.
    """
    return sum(seconds for _, seconds in family().values())


def peak_mb() -> float:
    """The most memory that this process has had so far."""
    # Linux counts in KiB, macOS in bytes.
    unit = 1024**2 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def machine() -> dict[str, Any]:
    """Where it was measured, and with what."""
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
    """Rows of named figures as text."""
    columns = list(dict.fromkeys(name for row in rows.values() for name in row))
    lines = [["", *columns], *([name, *(shown(row.get(column)) for column in columns)] for name, row in rows.items())]
    widths = [max(len(line[n]) for line in lines) for n in range(len(columns) + 1)]
    text = [
        "  ".join(cell.ljust(width) if n == 0 else cell.rjust(width) for n, (cell, width) in enumerate(pairs)).rstrip()
        for pairs in (list(zip(line, widths, strict=True)) for line in lines)
    ]
    return "\n".join([title, *text, ""])


def shown(value: object) -> str:
    """A figure as the tables have it: a number, or a median with its extremes."""
    if isinstance(value, Mapping):
        return str(Figure(**value))
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return "" if value is None else str(value)
    return _short(value)


def _short(value: float) -> str:
    if value == int(value):
        return f"{int(value):,}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
