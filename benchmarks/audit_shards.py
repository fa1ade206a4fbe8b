"""Time and memory of the join of the audit in parts, over files like those of its parts.

    python -m benchmarks.audit_shards [OBJECTS ROWS]... [--rounds N]

DuckDB makes the keys, so that the files of ten million objects take a minute and not an hour; columns, names and
compression are those of `intake_ledger.audit.join.duckdb.write`. A few uploads, overwrites and removals are lost. One
row of a thousand was committed after the scan had read it, so that the query nominates it and the look dismisses it.
`benchmarks.audit` measures the listing and the scan. Neither uses the network.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import asdict
from hashlib import md5
from itertools import batched
from pathlib import Path
from typing import Any, cast

from benchmarks.audit import NOW, SETTINGS
from benchmarks.measure import Figure, table

from intake_ledger.audit.diff import Window
from intake_ledger.audit.join.duckdb import Join, Slice, connection, slice_name
from intake_ledger.audit.look import BATCH, Look
from intake_ledger.audit.relations import COLUMNS, Candidate, candidate
from intake_ledger.audit.report import Report
from intake_ledger.protocol import ABSENT, Row, RowKey, State, Status, row_attributes

SIZES = (
    (100_000, 100_000),
    (1_000_000, 1_000_000),
    (10_000_000, 1_000_000),
    (10_000_000, 10_000_000),
    (50_000_000, 5_000_000),
)
"""Objects and rows."""
SLICE = 1_000_000
"""Rows of a file."""
MEMORY_MB = 10_240
"""Memory of the function that joins. DuckDB may use 60 % of it."""
DAY = 86_400_000
WINDOW = Window(NOW - 3_600_000, NOW - 14 * DAY)
PERIOD = 100_003
"""In each group of this many rows, one is missing, one has another committed state, and one has a removed key."""
COMMITTED_SINCE = 1_009
"""In each group of this many rows, one was committed after the scan had read it."""
KEY = "printf('in/2026/%02d/source-%04d/%012d-%s.csv.gz', 1 + n % 12, n % 977, n, substr(md5(n::varchar), 1, 8))"
STATE = "'v#' || md5('v' || n)"
SELECTED = {
    "listed": f"SELECT {KEY} AS key, 'latest' AS place, {STATE} AS state, 'object' AS kind, md5('e' || n) AS etag,"
    f" 1234 + n % 1000 AS size, {NOW} - CASE WHEN n < {{old}} THEN {60 * DAY} ELSE {2 * DAY} END AS created_at,"
    f" false AS skipped"
    f" FROM range({{first}}, {{last}}) t(n)",
    "held": f"SELECT {KEY} AS key, 'latest' AS place, NULL::VARCHAR AS state, NULL::VARCHAR AS kind, NULL::VARCHAR AS"
    f" etag, NULL::BIGINT AS size, CASE WHEN n % {PERIOD} = 2 OR n % {COMMITTED_SINCE} = 3 THEN"
    f" 'v#another' ELSE {STATE} END AS committed,"
    f" {NOW} - {2 * DAY} AS updated_at, true AS readable, true AS may_be_gone FROM (SELECT {{old}} + 5 + i AS n FROM"
    f" range({{first}}, {{last}}) t(i)) WHERE n % {PERIOD} <> 1",
}
"""Rows of each relation. Those before `old` came before the look-back, and their rows have expired."""


def make(folder: Path, objects: int, rows: int) -> dict[str, int]:
    """Write the files, and say how many there are of each relation."""
    parts = {}
    for relation, number in (("listed", objects), ("held", rows)):
        firsts = range(0, number, SLICE)
        parts[relation] = len(firsts)
        for part, first in enumerate(firsts):
            about = json.dumps(list(asdict(Slice("", "", SLICE, SLICE, 0, NOW, NOW)).values())).encode().hex()
            asked = SELECTED[relation].format(old=objects - rows, first=first, last=min(first + SLICE, number))
            path = folder / f"{slice_name(f'{relation}-{part:05d}', 0)}.parquet"
            with connection(folder) as duck:
                duck.execute(
                    f"COPY (SELECT {', '.join(COLUMNS[relation])} FROM ({asked}) ORDER BY md5(key)) TO '{path}'"
                    f" (FORMAT parquet, COMPRESSION zstd, KV_METADATA {{slice: '{about}'}})"
                )
    return parts


class Now:
    """S3 and the ledger as the look finds them: later than the scan, and without a network."""

    def __init__(self, candidates: Iterable[Candidate], first_row: int) -> None:
        self._first_row = first_row
        self._states = {candidate_.key: candidate_.state if candidate_.shown else ABSENT for candidate_ in candidates}

    def look(self, key: str) -> State:
        return self._states[key]

    def get_items(self, keys: Iterable[RowKey]) -> dict[RowKey, dict[str, Any]]:
        rows = {}
        for key in keys:
            number = int(key.pk.rpartition("/")[2].partition("-")[0])
            if number % PERIOD != 1 and number >= self._first_row:
                current = number % PERIOD != 2
                state = f"v#{md5(f'v{number}'.encode(), usedforsecurity=False).hexdigest()}" if current else "v#another"
                rows[key] = row_attributes(
                    Row(Status.PROCESSED, 7, version_id=state[2:], committed_state=state, updated_at=NOW - 2 * DAY)
                )
        return rows


def looked(found: Iterable[Candidate], lines: dict[str, int], first_row: int) -> Report:
    """The report after all candidates were looked at, in a run that sends nothing."""
    candidates, report, nothing = list(found), Report("run", NOW, dry_run=True), cast("Any", None)
    for batch in batched(candidates, BATCH):
        now = cast("Any", Now(batch, first_row))
        Look(SETTINGS, now, now, sqs=nothing, clock=lambda: NOW, budget=None, heads=1).at(batch, WINDOW, report)
    report.add_joined(lines, outside=0, candidates=len(candidates))
    return report


def join(folder: Path, parts: dict[str, int], first_row: int) -> dict[str, float]:
    """The query over the files, as `intake_ledger.audit.join.parts.join_parts` asks it."""
    began, cpu = time.monotonic(), time.process_time()
    files = Join(folder)
    names = [f"{relation}-{number:05d}" for relation, many in parts.items() for number in range(many)]
    assert all(files.chain(name) for name in names)
    with files.audited(names, WINDOW, deletes=True, all_listed=True) as audited:
        lines = audited.lines()
        candidates = [candidate(values) for values in audited.candidates()]
    seconds, cpu = time.monotonic() - began, time.process_time() - cpu
    report = looked(candidates, lines, first_row)
    assert lines["agrees"]
    assert report.counts.total() + report.dismissed == report.candidates
    return {
        "seconds": seconds,
        "CPU seconds": cpu,
        "peak MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "files, MB": sum(path.stat().st_size for path in folder.glob("*.parquet")) / 1e6,
        "candidates": report.candidates,
        "dismissed": report.dismissed,
    }


def once(objects: int, rows: int) -> dict[str, float]:
    """The join in a separate process, to measure its memory."""
    with tempfile.TemporaryDirectory() as folder:
        parts = make(Path(folder), objects, rows)
        ran = subprocess.run(
            [
                sys.executable,
                "-m",
                "benchmarks.audit_shards",
                "--join",
                folder,
                json.dumps(parts),
                str(objects - rows + 5),
            ],
            check=True,
            capture_output=True,
            text=True,
            env=os.environ | {"AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(MEMORY_MB)},
        )
    found: dict[str, float] = json.loads(ran.stdout)
    return found


def measure(rounds: int = 1, sizes: tuple[tuple[int, int], ...] = SIZES) -> dict[str, dict[str, dict[str, float]]]:
    """Medians and extremes of the rounds, for each number of objects and rows."""
    taken = {size: [once(*size) for _ in range(rounds)] for size in sizes}
    return {
        f"{objects:,} objects, {rows:,} rows": {
            name: asdict(Figure.of([run[name] for run in runs])) for name in runs[0]
        }
        for (objects, rows), runs in taken.items()
    }


def main() -> None:
    """Print the figures of the table in docs/scale.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sizes", nargs="*", type=int)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--join", nargs=3)
    asked = parser.parse_args()
    if asked.join:
        folder, parts, first_row = asked.join
        print(json.dumps(join(Path(folder), json.loads(parts), int(first_row))))
        return
    sizes: Any = tuple(zip(asked.sizes[::2], asked.sizes[1::2], strict=True)) or SIZES
    print(table(f"The join, {asked.rounds} rounds", measure(asked.rounds, sizes)))


if __name__ == "__main__":
    main()
