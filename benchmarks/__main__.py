"""All benchmarks, one after the other: tables on the terminal, and everything in build/bench.json.

    python -m benchmarks [--rounds N] [NAME ...]

The names are those of the modules beside this one. `build/bench.json` keeps what an earlier run said of the others.
`--rounds` is for those that are measured in rounds: fewer where there is no time, more where others use the machine.
"""

import argparse
import importlib
import inspect
import json
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.measure import machine, table

OUTPUT = Path(__file__).resolve().parents[1] / "build" / "bench.json"
AUDITED = (10_000, 100_000)
"""Objects in the bucket."""


def counted(found: dict[str, Any]) -> str:
    return table("Requests and units per change", found)


def cpu(found: dict[str, Any]) -> str:
    return table("CPU of the consumer, ms per change, and its ratio to the floor", found)


def cold(found: dict[str, Any]) -> str:
    imports = {"CPU ms, from source": found["imports"]}
    return "\n".join(
        [
            table("Cold start, CPU ms", found["milliseconds"]),
            table("Where the import of the consumer goes", imports),
            table("The layer", {"": found["layer"]}),
        ]
    )


def hotkey(found: dict[str, Any]) -> str:
    return table("A hot key: overwrites while it is processed", found)


def throughput(found: dict[str, Any]) -> str:
    return table("Throughput on the local AWS, beside the naive consumer", found)


def synth(found: dict[str, Any]) -> str:
    resources = found["resources"]
    lines = {name: {"": number} for name, number in resources.items()} | {"all": {"": sum(resources.values())}}
    parts = [table(f"Synth, CPU seconds: {part}", found[part]) for part in ("whole app", "App() to synth()")]
    return "\n".join([*parts, table("The resources of a default pipeline", lines)])


def memory(found: dict[str, Any]) -> str:
    return table("The consumer's memory", found)


def cost(found: dict[str, Any]) -> str:
    return table("Dollars per million objects, us-east-1", found)


def audit(found: dict[str, Any]) -> str:
    return "\n".join(["The audit", *found.values(), ""])


SHOWN: dict[str, Callable[[dict[str, Any]], str]] = {
    one.__name__: one for one in (counted, cost, hotkey, memory, cpu, cold, synth, throughput, audit)
}
"""In the order in which they run: what is counted first, since it is the same everywhere."""


def measured(name: str, rounds: int | None) -> dict[str, Any]:
    """What one benchmark says."""
    if name == "audit":
        # Each in a process of its own: one of its figures is the peak of memory.
        commands = {f"{size:,} objects": [sys.executable, "-m", "benchmarks.audit", str(size)] for size in AUDITED}
        return {
            size: subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
            for size, command in commands.items()
        }
    measure = importlib.import_module(f"benchmarks.{name}").measure
    options = {"rounds": rounds} if rounds and "rounds" in inspect.signature(measure).parameters else {}
    found: dict[str, Any] = measure(**options)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help=", ".join(SHOWN))
    parser.add_argument("--rounds", type=int, help="each has its own number when this is left out")
    arguments = parser.parse_args()
    names = arguments.names or list(SHOWN)
    if unknown := [name for name in names if name not in SHOWN]:
        parser.error(f"there is no benchmark {', '.join(unknown)}: expected some of {', '.join(SHOWN)}")
    kept = json.loads(OUTPUT.read_text()) if OUTPUT.exists() else {}
    OUTPUT.parent.mkdir(exist_ok=True)
    for name in names:
        found = measured(name, arguments.rounds)
        print(SHOWN[name](found), flush=True)
        kept[name] = {"at": datetime.now(UTC).isoformat(timespec="seconds"), "machine": machine(), "figures": found}
        OUTPUT.write_text(json.dumps(kept, indent=2) + "\n")
    print(f"All of it: {OUTPUT}")


if __name__ == "__main__":
    main()
