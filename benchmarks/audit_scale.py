"""The audit's speed at listing, scanning and joining, and the time and price of a run at that speed.

    python -m benchmarks.audit_scale [--write]

Measured here: entries per CPU second. `benchmarks.audit_formula` says the rest: counted requests, prices, and seconds
of waiting. `--write` writes the table of runs into docs/scale.md, from the rates that stand there.
"""

import argparse
import gzip
import hashlib
import io
import re
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from benchmarks import audit_formula, audit_shards
from benchmarks.audit import SETTINGS, Source, audited
from benchmarks.audit import measure as listing
from benchmarks.audit_formula import ATHENA, DUCKDB, ONE, Bill, Rates, Run
from benchmarks.measure import table
from benchmarks.measured import grid, places
from botocore.response import StreamingBody

from intake_ledger.audit.function import AT_THE_SAME_TIME
from intake_ledger.audit.in_parts import LEAST_SAMPLES, MOST_SAMPLES, SAMPLES_FOR_A_SHARD
from intake_ledger.audit.inventory import File, Inventory, Location, Manifest
from intake_ledger.audit.join.duckdb import Slice, write
from intake_ledger.audit.listing import BucketListing, Place
from intake_ledger.audit.one_function import SAMPLES, SEGMENTS
from intake_ledger.audit.relations import HELD, LISTED, held_entry, listed_entry
from intake_ledger.audit.table import AuditTable
from intake_ledger.aws.page_parsing import parse_scans_directly, parse_versions_once

PAGE = Path(__file__).resolve().parents[1] / "docs" / "scale.md"
JOINED = 1_000_000
SAMPLE = 200_000
INVENTORY_FILE_OBJECTS = 3_000_000
"""Taken for one data file of a report."""
NOMINATED = 1_000
"""Rows for each candidate. All candidates get a message. A healthy bucket has fewer."""
SHARES = (0.01, 0.1, 1)
"""Rows, of the objects."""
SERVICES = ("S3", "DynamoDB", "Lambda", "Step Functions", "Athena", "SQS")
LOOK_RATE = 50
"""Messages in a second of one look, as the construct has it."""
MOST_IN_ONE = 10_000_000
"""The most objects for one function."""
MOST_OBJECTS, MOST_ROWS = 100_000_000, 10_000_000
"""The most for DuckDB: the function's disk holds the files, and its memory holds the rows."""


def written(relation: str, content: Iterator[list[Any]]) -> float:
    """Entries per CPU second that become a file."""
    about = Slice("", "", SAMPLE, SAMPLE, 0, 0, 0)
    with tempfile.TemporaryDirectory() as folder:
        begun = time.process_time()
        write(Path(folder, "file.parquet"), relation, content, lambda: about)
        return SAMPLE / (time.process_time() - begun)


def listed_rate() -> float:
    """Objects of a listing."""
    source = Source(SAMPLE, latency=False)
    parse_versions_once(source.s3)
    pages = BucketListing(source.s3, SETTINGS).pages(Place(""))
    before = source.cpu
    rate = written(LISTED, (listed_entry(key, state, SETTINGS) for page in pages for key, state in page.states))
    # The source's own time does not count.
    return SAMPLE / (SAMPLE / rate - (source.cpu - before))


def scanned_rate() -> float:
    """Rows of a scan."""
    source = Source(SAMPLE, latency=False)
    parse_scans_directly(source.dynamodb)
    pages = AuditTable(source.dynamodb, SETTINGS.table).held(SETTINGS.pipeline, SETTINGS.ordering)
    before = source.cpu
    rate = written(HELD, (held_entry(row.row_key.pk, row, SETTINGS) for page in pages for row in page.rows))
    return SAMPLE / (SAMPLE / rate - (source.cpu - before))


def inventory_rate() -> float:
    """Objects of a gzipped CSV file."""
    line = '"uploads","in/{0:012d}/file.csv","{0:032x}","true","false","1234","2026-11-20T10:00:00.000Z","{0:032x}"\n'
    body = gzip.compress("".join(line.format(number) for number in range(SAMPLE)).encode(), 6)

    class Client:
        def get_object(self, **_: Any) -> dict[str, Any]:
            return {"Body": StreamingBody(io.BytesIO(body), len(body))}

    columns = ("bucket", "key", "version_id", "is_latest", "is_delete_marker", "size", "last_modified_date", "e_tag")
    manifest = Manifest(0, "CSV", columns=columns, files=())
    inventory = Inventory(cast("Any", Client()), Location("reports", ""), "uploads")
    file = File("file", hashlib.md5(body).hexdigest())
    with tempfile.TemporaryDirectory() as folder:
        pages = inventory.pages(manifest, file, every=False, start=None, folder=Path(folder))
        return written(LISTED, (listed_entry(key, state, SETTINGS) for page in pages for key, state in page.states))


def measure() -> dict[str, dict[str, float]]:
    """The rates."""
    _, alone = listing(audited, Source(SAMPLE, latency=False))
    joined = audit_shards.once(JOINED, JOINED)
    rates = {
        audit_formula.COMPARED: alone,
        audit_formula.LISTING: listed_rate(),
        audit_formula.INVENTORY: inventory_rate(),
        audit_formula.SCAN: scanned_rate(),
        audit_formula.JOIN: 2 * JOINED / joined["CPU seconds"],
    }
    return {name: {"per CPU second": rate} for name, rate in rates.items()}


def rates_of(page: str) -> Rates:
    """The rates as the page shows them."""
    assert "rates" in places(page)
    shown = page.partition("<!-- measured: rates -->\n")[2].partition("<!-- end -->")[0]
    return {
        name: float(number.replace(",", ""))
        for name, number in re.findall(r"^\| (.+?) \| ([\d,]+) \|$", shown, re.MULTILINE)
    }


def run_of(objects: int, rows: int, *, inventory: bool = False) -> tuple[Run, int]:
    """A run with the engine for its size, and how many parts are worked on at the same time."""
    candidates = rows // NOMINATED
    counts: dict[str, Any] = {"candidates": candidates, "sent": candidates}
    if objects <= MOST_IN_ONE:
        listed = even(objects, AT_THE_SAME_TIME)
        return Run(engine=ONE, listed=listed, held=even(rows, SEGMENTS), looks=SAMPLES, **counts), 1
    shards, concurrency = (1_000, 100) if objects < 10**9 else (2_000, 200)
    engine = DUCKDB if objects <= MOST_OBJECTS and rows <= MOST_ROWS else ATHENA
    parts = -(-objects // INVENTORY_FILE_OBJECTS) if inventory else shards
    run = Run(
        engine=engine,
        listed=even(objects, parts),
        held=even(rows, concurrency),
        looks=0 if inventory else min(max(SAMPLES_FOR_A_SHARD * shards, LEAST_SAMPLES), MOST_SAMPLES),
        inventory=inventory,
        lookers=min(concurrency, -(-audit_formula.RATE // LOOK_RATE)),
        waits=audit_formula.ATHENA_SECONDS // audit_formula.ATHENA_WAIT_SECONDS if engine == ATHENA else 0,
        **counts,
    )
    return run, concurrency


def even(number: int, parts: int) -> list[int]:
    """Divide a number into parts that differ by one at most."""
    return [number // parts + (part < number % parts) for part in range(parts)]


def described(run: Run, concurrency: int) -> str:
    """The run's parts and its engine, in words."""
    if run.engine == ONE:
        return ONE
    parts = f"{len(run.listed):,} {'files of an inventory' if run.inventory else 'shards'}"
    return f"{parts}, {concurrency} at a time, {run.engine}"


def runs() -> list[tuple[int, int, bool]]:
    """Objects, rows, and whether an inventory lists them."""
    listed = [(objects, round(objects * share), False) for objects in (10**6, 10**8, 10**9) for share in SHARES]
    return [*listed, *((objects, objects // 10, True) for objects in (10**8, 10**9))]


def run_table(rates: Rates) -> str:
    """The table of docs/scale.md."""
    lines = []
    for objects, rows, inventory in runs():
        run, concurrency = run_of(objects, rows, inventory=inventory)
        bill = audit_formula.bill(run, rates, concurrency=concurrency)
        asked = audit_formula.requests(run).total()
        dollars = (shown if (shown := f"${bill.dollars[service]:.2f}") != "$0.00" else "" for service in SERVICES)
        numbers = (f"{objects:,}", f"{rows:,}", described(run, concurrency), f"{asked:,}")
        lines.append((*numbers, f"{bill.seconds / 60:,.1f}", *dollars, f"${bill.total:.2f}"))
    return grid(("objects", "rows", "how", "requests", "minutes", *SERVICES, "all"), lines)


def bill_of(objects: int, rows: int, rates: Rates) -> Bill:
    """Seconds and dollars of a run that lists the bucket."""
    run, concurrency = run_of(objects, rows)
    return audit_formula.bill(run, rates, concurrency=concurrency)


def write_page() -> None:
    """Put the table of runs into docs/scale.md."""
    page = PAGE.read_text()
    begin, end = "<!-- begin: runs -->\n", "\n<!-- end -->"
    head, old, rest = page.partition(begin)
    assert old, f"{PAGE} has no place for the runs"
    PAGE.write_text(head + begin + run_table(rates_of(page)) + end + rest.partition(end)[2])


def main() -> None:
    """Print the rates and the table of runs, or write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write the table of docs/scale.md anew")
    if parser.parse_args().write:
        write_page()
        return
    rates = measure()
    print(table("Entries per CPU second", rates))
    print(run_table({name: row["per CPU second"] for name, row in rates.items()}))


if __name__ == "__main__":
    main()
