"""The measured tables of docs/cost.md, from what `make bench` has left in build/bench.json.

    python -m benchmarks.measured

They are one machine's and one run's, so that no test holds the page to their figures, but to what they name.
"""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.measure import Figure

ROOT = Path(__file__).resolve().parents[1]
PAGE, FOUND = ROOT / "docs" / "cost.md", ROOT / "build" / "bench.json"
Rows = Mapping[str, Mapping[str, Any]]


def grid(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A table as Markdown has it."""
    rule = ("---", *["---:"] * (len(head) - 1))
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, rule, *lines))


def ratios(unit: str, rows: Rows) -> str:
    """Each row's median in the unit, and its ratio with the extremes of the rounds."""
    lines = [(name, f"{row['value']['median']:.3g}", str(Figure(**row["ratio"]))) for name, row in rows.items()]
    return grid(("", unit, "of the floor"), lines)


def tables(found: Mapping[str, Any]) -> dict[str, str]:
    """By the name of their place in the page."""
    cpu, cold = found["cpu"], found["cold"]["figures"]
    machine = cpu["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    layer = {name: f"{value:,}" for name, value in cold["layer"].items()}
    return {
        "machine": f"On {machine['cpus']} CPUs ({machine['processor']}, {machine['system']}), {cpu['at']}: "
        f"Python {machine['python']}, {versions}.",
        "cpu": ratios("ms per change", cpu["figures"]),
        "cold": ratios("CPU ms", cold["milliseconds"]),
        "layer": grid(tuple(layer), [tuple(layer.values())]),
    }


def places(page: str) -> list[str]:
    """The names of the places for measured tables."""
    return re.findall(r"<!-- measured: (\w+) -->\n", page)


def written(page: str, content: Mapping[str, str]) -> str:
    """The page with each table in its place."""
    for name, table in content.items():
        begin, end = f"<!-- measured: {name} -->\n", "\n<!-- end -->"
        head, found, rest = page.partition(begin)
        assert found, f"the page has no place for {name!r}"
        page = head + begin + table + end + rest.partition(end)[2]
    return page


def main() -> None:
    PAGE.write_text(written(PAGE.read_text(), tables(json.loads(FOUND.read_text()))))


if __name__ == "__main__":
    main()
