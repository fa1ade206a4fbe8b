"""Measure how readable the code and the documents are, and fail if a measure is above its limit: `make house`.

Each measure has a goal. Until it reaches the goal, its limit is the bound in `BOUNDS`, which may only be lowered. The
last lines of the output name the goals that are not reached. `python -m scripts.house --write` lowers the bounds to the
measured values.
"""

import argparse
import ast
import math
import re
import statistics
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from scripts import prose
from scripts.trace_record import route, trace

ROOT = Path(__file__).parents[1]
PRODUCTION = ("lambda_src", "constructs", "tools")
CODE = (*PRODUCTION, "tests", "examples", "benchmarks", "scripts")
DOCUMENTS = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "docs")
MAX_LINES = 300
"""Lines of a production module."""
MAX_PARAMETERS = 8
"""Parameters of a function, without `self` and `cls`."""

EXCEPTIONS = {
    "FileSets.__init__": "The options of the construct. CDK passes options as keyword arguments.",
    "IntakeConsumer.__init__": "The options of the construct. CDK passes options as keyword arguments.",
    "IntakeMonitoring.__init__": "The options of the construct. CDK passes options as keyword arguments.",
    "IntakePipeline.__init__": "The options of the construct. CDK passes options as keyword arguments.",
    "Processor.from_asset": "The options of a processor, which users write as keyword arguments.",
    "Processor.from_code": "The options of a processor, which users write as keyword arguments.",
    "ProcessorBase.__init__": "The options of a processor, which users write as keyword arguments.",
    "IntakeQueue.__init__": "The options of the construct. CDK passes options as keyword arguments.",
    "IntakeWorkers.__init__": "The options of the construct. CDK passes options as keyword arguments.",
    "MessageIntake.__init__": "The options of the construct. CDK passes options as keyword arguments.",
    "LocalPipeline.__init__": "The options of the construct that a test can set, by the same names.",
    "list_command": "typer makes an option of the command from each parameter.",
    "template_command": "typer makes an option of the command from each parameter.",
    "reprocess_command": "typer makes an option of the command from each parameter.",
}
"""Functions that may have more parameters, with the reason."""

GOALS = {
    **{f"prose in {folder}": 1.5 for folder in CODE},
    "prose in documents": 1.5,
    "calls for one record": 80,
    "files on the route of one record": 10,
    "changes of file on the route of one record": 30,
    f"production modules over {MAX_LINES} lines": 0,
    "median lines of a production module": 120,
    f"functions with more than {MAX_PARAMETERS} parameters": 0,
}

BOUNDS: dict[str, float] = {
    "calls for one record": 114,
    "files on the route of one record": 25,
    "changes of file on the route of one record": 61,
}
"""Limits of measures that have not reached their goal. A bound may only be lowered."""


class Parameters(NamedTuple):
    """A function and the number of its parameters."""

    name: str
    number: int


def python_files(folders: Iterable[Path]) -> list[Path]:
    """List the Python files in some folders."""
    return [file for folder in folders for file in sorted(folder.rglob("*.py"))]


def parameters(source: str) -> Iterator[Parameters]:
    """Yield each function of a module with the number of its parameters, without `self` and `cls`."""

    def walk(node: ast.AST, scope: str) -> Iterator[Parameters]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                name = f"{scope}{child.name}"
                if not isinstance(child, ast.ClassDef):
                    a = child.args
                    listed = [argument.arg for argument in (*a.posonlyargs, *a.args, *a.kwonlyargs)]
                    yield Parameters(name, sum(argument not in ("self", "cls") for argument in listed))
                yield from walk(child, f"{name}.")
            else:
                yield from walk(child, scope)

    yield from walk(ast.parse(source), "")


def lines(source: str) -> int:
    """Count all lines of a module."""
    return len(source.splitlines())


def code_lines(source: str) -> int:
    """Count the lines of a module without blank lines, comments and docstrings."""
    prose_lines = {
        number
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for number in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    return sum(
        bool(text.strip()) and not text.lstrip().startswith("#") and number not in prose_lines
        for number, text in enumerate(source.splitlines(), 1)
    )


def measure(root: Path = ROOT) -> dict[str, float]:
    """Take all measures that have a goal."""
    sources = [file.read_text(encoding="utf-8") for file in python_files(root / folder for folder in PRODUCTION)]
    sizes = [lines(source) for source in sources]
    many = [found for source in sources for found in parameters(source) if found.number > MAX_PARAMETERS]
    one_record = route(trace())
    measured: dict[str, float] = {f"prose in {folder}": prose.measure([root / folder]).rate for folder in CODE}
    measured["prose in documents"] = prose.measure(root / name for name in DOCUMENTS).rate
    measured["calls for one record"] = one_record.calls
    measured["files on the route of one record"] = one_record.files
    measured["changes of file on the route of one record"] = one_record.changes
    measured[f"production modules over {MAX_LINES} lines"] = sum(size > MAX_LINES for size in sizes)
    measured["median lines of a production module"] = statistics.median(sizes)
    measured[f"functions with more than {MAX_PARAMETERS} parameters"] = sum(
        found.name not in EXCEPTIONS for found in many
    )
    return measured


def details(root: Path = ROOT) -> Iterator[str]:
    """Yield the places behind the measures, and the size of the production code."""
    total = total_code = 0
    for file in python_files(root / folder for folder in PRODUCTION):
        source, name = file.read_text(encoding="utf-8"), file.relative_to(root)
        total, total_code = total + lines(source), total_code + code_lines(source)
        if lines(source) > MAX_LINES:
            yield f"{name}: {lines(source)} lines"
        for found in parameters(source):
            if found.number > MAX_PARAMETERS:
                reason = EXCEPTIONS.get(found.name)
                yield f"{name}: {found.name} has {found.number} parameters{f' ({reason})' if reason else ''}"
    yield f"production code: {total:,} lines, {total_code:,} without blank lines, comments and docstrings"


def over(measured: Mapping[str, float], goals: Mapping[str, float], bounds: Mapping[str, float]) -> list[str]:
    """Name the measures above their limit: the bound, or the goal for measures without a bound."""
    return [name for name, value in measured.items() if value > bounds.get(name, goals[name])]


def open_goals(measured: Mapping[str, float], goals: Mapping[str, float]) -> list[str]:
    """Name the measures that have not reached their goal."""
    return [name for name, value in measured.items() if value > goals[name]]


def lowered(measured: Mapping[str, float], goals: Mapping[str, float], bounds: Mapping[str, float]) -> dict[str, float]:
    """Lower the bounds to the measured values, rounded up to a tenth. A measure that reached its goal has no bound."""
    tenths = {name: math.ceil(round(value * 10, 6)) / 10 for name, value in measured.items()}
    return {name: min(tenths[name], bound) for name, bound in bounds.items() if measured[name] > goals[name]}


def write(bounds: Mapping[str, float], file: Path) -> None:
    """Replace the table of bounds in a file."""
    table = "".join(f'    "{name}": {value:g},\n' for name, value in bounds.items())
    before, rest = re.split(
        r"(?<=^BOUNDS: dict\[str, float\] = \{)", file.read_text(encoding="utf-8"), flags=re.MULTILINE
    )
    file.write_text(f"{before}\n{table}{rest[rest.index('}') :]}", encoding="utf-8")


def main() -> None:
    """Print all measures, and exit with 1 if one is above its limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="lower the bounds to the measured values")
    arguments = parser.parse_args()
    measured = measure()
    if arguments.write:
        write(lowered(measured, GOALS, BOUNDS), Path(__file__))
    for line in details():
        print(line)
    print(f"\n{'measure':46}{'measured':>10}{'goal':>8}{'bound':>8}")
    for name, value in measured.items():
        bound = f"{BOUNDS[name]:g}" if name in BOUNDS else ""
        print(f"{name:46}{round(value, 2):>10g}{GOALS[name]:>8g}{bound:>8}")
    for name in open_goals(measured, GOALS):
        print(f"goal not reached: {name}")
    failed = over(measured, GOALS, BOUNDS)
    for name in failed:
        print(f"ABOVE ITS LIMIT: {name}")
    sys.exit(bool(failed) and not arguments.write)


if __name__ == "__main__":
    main()
