"""What a run of the audit over a billion objects takes and costs by each of its scales.

    python -m benchmarks.audit_scale

Measured here: objects and rows per CPU second that become files, by listing, by an inventory's files and by a scan, the
join of two such files, and the looks by which shards are found. All else follows from these, from counted requests and
from the prices. The join is taken to grow with what it joins.
"""

import gzip
import hashlib
import io
import tempfile
import time
from collections.abc import Iterator
from itertools import count, takewhile
from pathlib import Path
from typing import Any, cast

from benchmarks import audit_shards, prices
from benchmarks.audit import SETTINGS, Source, audited
from benchmarks.audit import measure as listing
from botocore.response import StreamingBody

from intake_ledger.audit.in_parts import SLICE_ROWS
from intake_ledger.audit.inventory import File, Inventory, Location, Manifest
from intake_ledger.audit.join import Slice, write
from intake_ledger.audit.lean import lean_listings, lean_scans
from intake_ledger.audit.listing import Listing
from intake_ledger.audit.relations import HELD, LISTED, held_entry, listed_entry
from intake_ledger.audit.shards import Sample, cut
from intake_ledger.audit.table import AuditTable

OBJECTS, ROWS = 100_000_000, 10_000_000
"""In the bucket, and in the ledger: what came in within its retention. One function joins no more."""
JOINED = 1_000_000
JOIN_GB, JOIN_VCPUS = 10, 6
"""The most that Lambda gives (Lambda developer guide, "Configure Lambda function memory")."""
SHARDS, CONCURRENCY = 1_000, 100
SAMPLE = 200_000
ROW_BYTES = 500
"""A row of the ledger with a key of 60 characters; `benchmarks.audit` has the same."""

HEX = "0123456789abcdef"
ONE_GB = 0.5
"""Of the audit's function when it is one."""
VCPU_GB = 1.769
"""Lambda developer guide, "Configure Lambda function memory": one virtual CPU."""
STATE_TRANSITION = 0.025 / 1_000
"""https://aws.amazon.com/step-functions/pricing/, Standard workflows, us-east-1, as of `prices.AS_OF`."""
INVENTORY_OBJECT = 0.0025 / prices.MILLION
"""https://aws.amazon.com/s3/pricing/, "S3 Inventory", us-east-1, as of `prices.AS_OF`."""
ATHENA_TB = 5.0
"""https://aws.amazon.com/athena/pricing/, a TB that a query reads, us-east-1, as of `prices.AS_OF`."""
ATHENA_QUERIES = 2
"""For the report's lines, and for the candidates."""
LIST_SECONDS = 0.15
"""S3 user guide, "Best practices design patterns: optimizing Amazon S3 performance": some 100 to 200 ms."""
INVENTORY_FILE_OBJECTS = 3_000_000
"""Taken for one data file of a report."""
TRANSITIONS_OF_A_PART = 4
"""The start of its execution, the work, the question whether it is done, and the end."""


def written(relation: str, content: Iterator[list[Any]]) -> float:
    """Rows per CPU second that become a file."""
    about = Slice("", "", SAMPLE, SAMPLE, 0, 0, 0)
    with tempfile.TemporaryDirectory() as folder:
        begun = time.process_time()
        write(Path(folder, "file.parquet"), relation, content, lambda: about)
        return SAMPLE / (time.process_time() - begun)


def listed_rate() -> float:
    """Objects of a listing."""
    source = Source(SAMPLE, latency=False)
    lean_listings(source.s3)
    pages = Listing(source.s3, SETTINGS).pages()
    before = source.cpu
    rate = written(LISTED, (listed_entry(key, state, SETTINGS) for page in pages for key, state in page.states))
    # The source's own time is nobody's.
    return SAMPLE / (SAMPLE / rate - (source.cpu - before))


def scanned_rate() -> float:
    """Rows of a scan."""
    source = Source(SAMPLE, latency=False)
    lean_scans(source.dynamodb)
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


def looks() -> int:
    """How many looks the shards of a bucket with random names take."""
    numbers = count(1)
    step = 2**64 // OBJECTS

    def place(after: str) -> int:
        name = "".join(takewhile(HEX.__contains__, after))
        following = after[len(name) : len(name) + 1]
        fill = "0" if following < "0" else "f"
        if "9" < following < "a":
            name, fill = f"{name}9", "f"
        return int(name.ljust(16, fill), 16)

    def look(_: str, after: str) -> Sample:
        next(numbers)
        first = place(after) // step + 1
        keys = [f"{number * step:016x}" for number in range(first, min(first + 1_000, OBJECTS))]
        return Sample(keys, first + 1_000 < OBJECTS)

    cut([""], look, shards=SHARDS, looks=14 * SHARDS)
    return next(numbers) - 1


def main() -> None:
    """Print what was measured and the table of docs/scale.md."""
    _, alone = listing(audited, Source(SAMPLE, latency=False))
    listed, reported, scanned, found = listed_rate(), inventory_rate(), scanned_rate(), looks()
    joined = audit_shards.once(JOINED, JOINED)
    print(f"per CPU second: {alone:,.0f} objects listed and compared in one function")
    print(f"become files: {listed:,.0f} of a listing, {reported:,.0f} of an inventory's CSV, {scanned:,.0f} of a scan")
    print(f"the join of {JOINED:,} objects with {JOINED:,} rows: {joined}")
    print(f"shards: {found:,} looks for {SHARDS:,}")

    second = VCPU_GB * prices.LAMBDA_GB_SECOND
    scan = ROWS * ROW_BYTES / 4096 * 0.5 * prices.READ_UNIT
    files = round(OBJECTS / INVENTORY_FILE_OBJECTS)
    lists, waited = OBJECTS / 1_000 * prices.S3_LIST, OBJECTS / 1_000 * LIST_SECONDS
    # A slice is written, and read by the join; a part reads the plan.
    slices = (OBJECTS + ROWS) / SLICE_ROWS
    storing = slices * (prices.S3_PUT + prices.S3_GET)
    joining = joined["CPU seconds"] / (2 * JOINED) * (OBJECTS + ROWS)
    rows = ROWS / scanned
    one = OBJECTS / alone * VCPU_GB / ONE_GB + waited
    parted, by_report = OBJECTS / listed + waited + rows, OBJECTS / reported + rows

    def in_parts(parts: int, seconds: float, s3: float) -> tuple[float, dict[str, float]]:
        transitions = (parts + CONCURRENCY + slices) * TRANSITIONS_OF_A_PART
        return seconds / CONCURRENCY + joining / JOIN_VCPUS, {
            "S3": s3 + storing + (parts + CONCURRENCY) * prices.S3_GET,
            "DynamoDB": scan,
            "Lambda": seconds * second + joining / JOIN_VCPUS * JOIN_GB * prices.LAMBDA_GB_SECOND,
            "Step Functions": transitions * STATE_TRANSITION,
        }

    table = {
        "one function": (one, {"S3": lists, "DynamoDB": 2 * scan, "Lambda": one * ONE_GB * prices.LAMBDA_GB_SECOND}),
        f"{SHARDS:,} shards, {CONCURRENCY} at a time": in_parts(SHARDS, parted, lists + found * prices.S3_LIST),
        f"inventory, {files:,} files, {CONCURRENCY} at a time": in_parts(
            files, by_report, OBJECTS * INVENTORY_OBJECT + files * prices.S3_GET
        ),
    }
    gigabytes = joined["files, MB"] / (2 * JOINED) * (OBJECTS + ROWS) / 1_000
    print(f"the join: {joining / JOIN_VCPUS / 60:.1f} minutes over {gigabytes:.0f} GB of files")
    read = ATHENA_QUERIES * gigabytes
    print(f"the join by Athena: {read:.0f} GB read, ${read / 1_000 * ATHENA_TB:.2f}")
    print("| | takes | S3 | DynamoDB | Lambda | Step Functions | all |\n| --- | --- | --- | --- | --- | --- | --- |")
    for name, (seconds, dollars) in table.items():
        cells = [f"${dollars.get(one, 0):.2f}" for one in ("S3", "DynamoDB", "Lambda", "Step Functions")]
        print(f"| {name} | {seconds / 60:,.1f} minutes | {' | '.join(cells)} | ${sum(dollars.values()):.2f} |")


if __name__ == "__main__":
    main()
