"""Writes the measured tables of benchmarks/README.md from build/bench.json.

`make bench` writes that file.

    python -m benchmarks.measured

The figures are of one machine and one run, so that tests check only the names of the tables and not their figures. The
code compares each figure with its goal. The table of a benchmark that has not run keeps its figures, and is named.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.measure import Figure, shown

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "benchmarks" / "README.md"
FOUND = ROOT / "build" / "bench.json"
GOALS = {
    "group claims, batches of 10": 0.6,
    "group claims, batches of 100": 0.6,
    "group claims, grouped commits, batches of 10": 0.2,
    "group claims, grouped commits, batches of 100": 0.2,
    "read, batches of 10": 0.75,
    "read, batches of 100": 0.70,
    "read, grouped commits, batches of 100": 0.45,
    "import of the consumer, first event": 1.05,
    "from App() to the end of synth()": 1.15,
}
"""The largest permitted ratio to the floor."""
OF_POWERTOOLS = 0.5
"""The largest permitted ratio to Powertools' CPU time."""
Found = Mapping[str, Any]


def grid(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Format a table as Markdown."""
    rule = ("---", *["---:"] * (len(head) - 1))
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, rule, *lines))


def plain(rows: Mapping[str, Found], columns: Sequence[str] = ()) -> str:
    """Format rows of named figures. With `columns`, only these."""
    names = columns or tuple(dict.fromkeys(name for row in rows.values() for name in row))
    return grid(("", *names), [(name, *(shown(row.get(one)) for one in names)) for name, row in rows.items()])


def held(value: float, goal: float | None) -> str:
    """Format the goal of a figure and if it is met. Without a goal, the text is empty."""
    if goal is None:
        return ""
    return f"{goal:.2f}, {'met' if value <= goal else 'missed'}"


def ratios(unit: str, rows: Mapping[str, Found]) -> str:
    """Format each row's median, its ratio to the floor with the range over the rounds, and its goal."""
    lines = [
        (
            name,
            f"{row['value']['median']:.3g}",
            str(Figure(**row["ratio"])),
            held(row["ratio"]["median"], GOALS.get(name)),
        )
        for name, row in rows.items()
    ]
    return grid(("", unit, "of the floor", "goal"), lines)


def beside_powertools(rows: Mapping[str, Found]) -> str:
    """Compare the ledger's medians with Powertools' for batches of the same size."""
    sizes = [name.removeprefix("Powertools") for name in rows if name.startswith("Powertools")]
    lines = []
    for name in ("group claims", "group claims, grouped commits"):
        for size in sizes:
            ratio = rows[name + size]["value"]["median"] / rows["Powertools" + size]["value"]["median"]
            lines.append((name + size, f"{ratio:.2f}", held(ratio, OF_POWERTOOLS)))
    return grid(("", "of Powertools' CPU", "goal"), lines)


def synth(found: Found) -> str:
    """Format each part of the synthesis, for the construct and for the stack written by hand."""
    parts = {
        "a whole app": "whole app",
        "from App() to the end of synth()": "App() to synth()",
        "the same, the layer packed before": "App() to synth(), the layer packed before",
        "another app in the same process": "another app in the same process, the layer packed before",
    }
    lines = []
    for name, part in parts.items():
        (hand, ours) = found[part].values()
        ratio = ours["ratio"]
        seconds = (f"{one['value']['median']:.3g}" for one in (hand, ours))
        lines.append((name, *seconds, str(Figure(**ratio)), held(ratio["median"], GOALS.get(name))))
    calls = found["calls"].values()
    hand, ours = calls
    lines.append(("calls to the CDK's process", *map(shown, calls), shown(ours / hand), ""))
    return grid(("CPU seconds", "by hand", "the construct", "of what is by hand", "goal"), lines)


def resources(found: Found) -> str:
    """Format the number of resources by type."""
    made = found["resources"]
    kinds = ", ".join(f"{number} {name.removeprefix('AWS::')}" for name, number in made.items())
    return f"A default pipeline has {sum(made.values())} resources: {kinds}."


PLACES: dict[str, tuple[str, Callable[[Found], str]]] = {
    "cpu": ("cpu", lambda found: ratios("ms per change", found)),
    "read": ("read", lambda found: ratios("ms per change", found)),
    "powertools": ("cpu", beside_powertools),
    "cold": ("cold", lambda found: ratios("CPU ms", found["milliseconds"])),
    "synth": ("synth", synth),
    "resources": ("synth", resources),
    "audit": ("audit", plain),
}
"""The source and the format of each table, by its name in the page."""


def runs(found: Found) -> str:
    """Format machine, versions, time, rounds and duration of each shown benchmark."""
    sources = [name for name in dict.fromkeys(source for source, _ in PLACES.values()) if name in found]
    machines: dict[str, list[str]] = {}
    lines = []
    for name in sources:
        one = found[name]
        machines.setdefault(_machine(one["machine"]), []).append(name)
        options = ", ".join(f"{option} {value}" for option, value in one["options"].items() if isinstance(value, int))
        begun = one["at"][:16].replace("T", " ")
        lines.append((f"`{name}`", begun, shown(one.get("load")), options, f"{one['seconds']:.0f}"))
    where = "\n".join(
        f"{machine}{'' if len(machines) == 1 else f' ({", ".join(names)})'}." for machine, names in machines.items()
    )
    return where + "\n\n" + grid(("", "begun (UTC)", "load average then", "asked for", "seconds"), lines)


def _machine(machine: Found) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    return (
        f"{machine['cpus']} CPUs ({machine['processor']}, {machine['system']}): Python {machine['python']}, {versions}"
    )


def tables(found: Found) -> dict[str, str]:
    """Return the tables of the benchmarks that have run, by their names in the page."""
    ready = {place: show(found[source]["figures"]) for place, (source, show) in PLACES.items() if source in found}
    return ready | {"runs": runs(found)}


def places(page: str) -> list[str]:
    """Return the names of the measured tables in a page."""
    return re.findall(r"<!-- measured: (\w+) -->\n", page)


def written(page: str, content: Mapping[str, str]) -> str:
    """Return the page with the tables that exist."""
    for name in places(page):
        begin, end = f"<!-- measured: {name} -->\n", "<!-- end -->"
        head, _, rest = page.partition(begin)
        before, found, after = rest.partition(end)
        assert found, f"the place for {name!r} has no end"
        shown = content.get(name, before.removesuffix("\n"))
        page = f"{head}{begin}{_with_others(shown, before) if name == 'runs' else shown}\n{end}{after}"
    return page


def _with_others(runs: str, before: str) -> str:
    """Return the runs, with those of benchmarks that have not run since."""
    lines = {
        line.split("`")[1]: line for text in (before, runs) for line in text.splitlines() if line.startswith("| `")
    }
    order = [name for name in dict.fromkeys(source for source, _ in PLACES.values()) if name in lines]
    head = [line for line in runs.splitlines() if not line.startswith("| `")]
    return "\n".join([*head, *(lines[name] for name in order)])


def main() -> None:
    found = json.loads(FOUND.read_text())
    if missing := sorted({source for source, _ in PLACES.values()} - found.keys()):
        print(f"Not measured, and left as the page has it: python -m benchmarks {' '.join(missing)}")
    PAGE.write_text(written(PAGE.read_text(), tables(found)))


if __name__ == "__main__":
    main()
