"""The growth of the audit's time and memory with the bucket. Each size runs in a separate process.

    python -m benchmarks.audit_growth [--rounds N]

Both sides of the ratio are those of `benchmarks.audit`: the audit, and a bare `ListObjectVersions` paginator.
"""

import argparse
import json
import subprocess
import sys
from dataclasses import asdict
from typing import Any

from benchmarks import audit
from benchmarks.measure import Figure, peak_mb, table

SIZES = {10_000: 5, 100_000: 3, 1_000_000: 1}
"""Objects in the bucket, and rounds: the largest takes minutes."""


def once(objects: int) -> dict[str, float]:
    """One run in this process, which ought to be a fresh one: its peak of memory is among the figures."""
    source = audit.Source(objects, latency=False)
    _, listed = audit.measure(audit.bare, source)
    _, compared = audit.measure(audit.audited, source)
    return {
        "bare listing, objects per CPU second": listed,
        "audit, objects per CPU second": compared,
        "of the listing": compared / listed,
        "peak MB": peak_mb(),
    }


def alone(objects: int) -> dict[str, float]:
    """The same in a separate process."""
    command = [sys.executable, "-m", "benchmarks.audit_growth", "--once", str(objects)]
    found: dict[str, float] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return found


def measure(*, rounds: int | None = None) -> dict[str, Any]:
    """Medians and extremes by size. `rounds` replaces each size's number of rounds."""
    results: dict[str, Any] = {}
    for objects, usual in SIZES.items():
        runs = [alone(objects) for _ in range(rounds or usual)]
        row = {name: asdict(Figure.of([run[name] for run in runs])) for name in runs[0]}
        results[f"{objects:,} objects"] = {"rounds": len(runs)} | row
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--once", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.once:
        print(json.dumps(once(arguments.once)))
        return
    print(table("The audit, as the bucket grows", measure(rounds=arguments.rounds)))


if __name__ == "__main__":
    main()
