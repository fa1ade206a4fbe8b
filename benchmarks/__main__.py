"""Runs the benchmarks, prints their tables, and writes all figures to build/bench.json.

    python -m benchmarks [--rounds N] [NAME ...]

The names are modules of this folder. Each benchmark runs in a separate process, and its result is stored when it ends.
If one fails, the others still run, and the exit code is 1. `build/bench.json` keeps the earlier results of benchmarks
that do not run. `--rounds` sets the number of rounds: fewer take less time, and more give better figures on a busy
machine.
"""

import argparse
import importlib
import inspect
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.measure import machine, table

OUTPUT = Path(__file__).resolve().parents[1] / "build" / "bench.json"


def counted(found: dict[str, Any]) -> str:
    return table("Requests and units per change", found)


def cpu(found: dict[str, Any]) -> str:
    return table("CPU of the consumer, ms per change, and its ratio to the floor", found)


def read(found: dict[str, Any]) -> str:
    return table(
        "CPU of the consumer that reads objects, without HTTP, ms per change, and its ratio to the floor", found
    )


def cold(found: dict[str, Any]) -> str:
    imports = {"ms": found["imports"]}
    return "\n".join(
        [
            table("Cold start, CPU ms", found["milliseconds"]),
            table("Where the import of the consumer goes", imports),
            table("The layer", {"": found["layer"]}),
        ]
    )


def synth(found: dict[str, Any]) -> str:
    resources = found["resources"]
    lines = {name: {"": number} for name, number in resources.items()} | {"all": {"": sum(resources.values())}}
    parts = [
        table(f"Synth, CPU seconds: {part}", rows) for part, rows in found.items() if part not in ("calls", "resources")
    ]
    parts.append(table("Calls to the CDK's process", {"": found["calls"]}))
    return "\n".join([*parts, table("The resources of a default pipeline", lines)])


def cost(found: dict[str, Any]) -> str:
    return table("Dollars per million objects, us-east-1", found)


def audit(found: dict[str, Any]) -> str:
    return table("The audit, as the bucket grows", found)


SHOWN: dict[str, Callable[[dict[str, Any]], str]] = {
    one.__name__: one
    for one in (
        counted,
        cost,
        cpu,
        read,
        cold,
        synth,
        audit,
    )
}
"""The benchmarks in their order. Counted figures come first, because they are the same on each machine."""


def measured(name: str, rounds: int | None) -> dict[str, Any]:
    """The result of one benchmark with its arguments, time, machine, duration and load."""
    measure = importlib.import_module(f"benchmarks.{name}").measure
    asked = inspect.signature(measure).parameters
    options = {"rounds": rounds} if rounds and "rounds" in asked else {}
    began, started, (load, *_) = datetime.now(UTC), time.monotonic(), os.getloadavg()
    found: dict[str, Any] = measure(**options)
    return {
        "at": began.isoformat(timespec="seconds"),
        "seconds": round(time.monotonic() - started, 1),
        "load": load,
        "options": {name: one.default for name, one in asked.items()} | options,
        "machine": machine(),
        "figures": found,
    }


def keep(name: str, found: dict[str, Any], output: Path) -> None:
    """Store the result of one benchmark atomically."""
    kept = json.loads(output.read_text()) if output.exists() else {}
    output.parent.mkdir(exist_ok=True)
    new = output.with_suffix(".new")
    new.write_text(json.dumps(kept | {name: found}, indent=2) + "\n")
    new.replace(output)


def all_but(names: Sequence[str], run: Callable[[str], int]) -> list[str]:
    """Run each benchmark, and return the names of those that failed."""
    return [name for name in names if run(name)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help=", ".join(SHOWN))
    parser.add_argument("--rounds", type=int, help="each has its own number when this is left out")
    arguments = parser.parse_args()
    names = arguments.names or list(SHOWN)
    if unknown := [name for name in names if name not in SHOWN]:
        parser.error(f"there is no benchmark {', '.join(unknown)}: expected some of {', '.join(SHOWN)}")
    if len(names) == 1:
        found = measured(names[0], arguments.rounds)
        print(SHOWN[names[0]](found["figures"]), f"{found['seconds']:.0f} seconds\n", sep="\n", flush=True)
        keep(names[0], found, OUTPUT)
        return
    rounds = ["--rounds", str(arguments.rounds)] if arguments.rounds else []
    failed = all_but(
        names, lambda name: subprocess.run([sys.executable, "-m", "benchmarks", name, *rounds], check=False).returncode
    )
    print(f"All of it: {OUTPUT}")
    if failed:
        sys.exit(f"Failed, and left as an earlier run said it: {', '.join(failed)}")


if __name__ == "__main__":
    main()
