"""What a run of the audit over a billion objects takes and costs by each of its scales.

    python -m benchmarks.audit_scale

Measured here: objects per CPU second by listing and by an inventory's files, the size of the filters that parts hand
on, and the looks by which shards are found. All else follows from these, from counted requests and from the prices.
"""

import gzip
import io
import time
from itertools import count, takewhile
from typing import Any, cast

from benchmarks import prices
from benchmarks.audit import Source, audited
from benchmarks.audit import measure as listing

from intake_ledger.audit.inventory import Inventory, Location, Manifest
from intake_ledger.audit.shards import Sample, cut
from intake_ledger.audit.shown import Shown
from intake_ledger.rows import RowKey

OBJECTS, ROWS = 1_000_000_000, 10_000_000
"""In the bucket, and in the ledger: what came in within its retention."""
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
LIST_SECONDS = 0.15
"""S3 user guide, "Best practices design patterns: optimizing Amazon S3 performance": some 100 to 200 ms."""
INVENTORY_FILE_OBJECTS = 3_000_000
"""Taken for one data file of a report."""
TRANSITIONS_OF_A_PART = 4
"""The start of its execution, the work, the question whether it is done, and the end."""


def inventory_rate() -> float:
    """Objects of a gzipped CSV file per CPU second."""
    line = '"uploads","in/{0:012d}/file.csv","{0:032x}","true","false","1234","2026-11-20T10:00:00.000Z","{0:032x}"\n'
    body = gzip.compress("".join(line.format(number) for number in range(SAMPLE)).encode(), 6)

    class Client:
        def get_object(self, **_: Any) -> dict[str, Any]:
            return {"Body": io.BytesIO(body)}

    columns = ("bucket", "key", "version_id", "is_latest", "is_delete_marker", "size", "last_modified_date", "e_tag")
    manifest = Manifest(0, parquet=False, columns=columns, files=())
    inventory = Inventory(cast("Any", Client()), Location("reports", ""), "uploads")
    begun = time.process_time()
    read = sum(len(page.states) for page in inventory.pages(manifest, "file", every=False, start=None))
    assert read == SAMPLE
    return SAMPLE / (time.process_time() - begun)


def filter_bytes(rows: int) -> int:
    """What a filter of so many rows is, packed, as it is stored."""
    shown = Shown(b"salt")
    for number in range(rows):
        shown.add(RowKey(f"uploads/in/{number:012d}/file.csv", "Pipeline@latest"))
    return sum(len(piece) for _, piece in shown.parts())


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
    source = Source(SAMPLE, latency=False)
    _, listed = listing(audited, source)
    reported = inventory_rate()
    segment = filter_bytes(ROWS // CONCURRENCY)
    found = looks()
    print(f"per CPU second: {listed:,.0f} objects listed and compared, {reported:,.0f} read of an inventory's CSV")
    print(f"filters: {segment:,} bytes for {ROWS // CONCURRENCY:,} rows; shards: {found:,} looks for {SHARDS:,}")

    scans = 2 * ROWS * ROW_BYTES / 4096 * 0.5 * prices.READ_UNIT
    gigabyte_second = prices.LAMBDA_GB_SECOND
    # Two filters are written by each segment, and read by each part; a third the other way round.
    stored = 2 * segment * CONCURRENCY
    handed = stored / 1024 * prices.WRITE_UNIT * 1.5

    def reading(parts: int) -> float:
        return (parts + CONCURRENCY / 2) * stored / 4096 * prices.READ_UNIT

    files = round(OBJECTS / INVENTORY_FILE_OBJECTS)
    lists, waited = OBJECTS / 1_000 * prices.S3_LIST, OBJECTS / 1_000 * LIST_SECONDS
    alone = OBJECTS / listed * VCPU_GB / ONE_GB + waited
    parted, by_report = OBJECTS / listed + waited, OBJECTS / reported + OBJECTS / listed
    table = {
        "one function": (
            alone,
            {"S3": lists, "DynamoDB": scans, "Lambda": alone * ONE_GB * gigabyte_second},
        ),
        f"{SHARDS:,} shards, {CONCURRENCY} at a time": (
            parted / CONCURRENCY,
            {
                "S3": lists + found * prices.S3_LIST,
                "DynamoDB": scans + handed + reading(SHARDS),
                "Lambda": parted * VCPU_GB * gigabyte_second,
                "Step Functions": (SHARDS + 2 * CONCURRENCY) * TRANSITIONS_OF_A_PART * STATE_TRANSITION,
            },
        ),
        f"inventory, {files:,} files, {CONCURRENCY} at a time": (
            by_report / CONCURRENCY,
            {
                "S3": OBJECTS * INVENTORY_OBJECT + files * prices.S3_GET,
                "DynamoDB": scans + handed + reading(files),
                "Lambda": by_report * VCPU_GB * gigabyte_second,
                "Step Functions": (files + 2 * CONCURRENCY) * TRANSITIONS_OF_A_PART * STATE_TRANSITION,
            },
        ),
    }
    print("| | takes | S3 | DynamoDB | Lambda | Step Functions | all |\n| --- | --- | --- | --- | --- | --- | --- |")
    for name, (seconds, dollars) in table.items():
        cells = [f"${dollars.get(one, 0):.2f}" for one in ("S3", "DynamoDB", "Lambda", "Step Functions")]
        print(f"| {name} | {seconds / 3600:.1f} hours | {' | '.join(cells)} | ${sum(dollars.values()):.2f} |")


if __name__ == "__main__":
    main()
