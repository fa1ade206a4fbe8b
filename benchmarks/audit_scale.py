"""What a run of the audit over a billion objects takes and costs by each of its scales.

    python -m benchmarks.audit_scale

Measured here: objects per CPU second by listing and by an inventory's files, the size of the filters that parts hand
on, and the looks by which shards are found. All else follows from these, from counted requests and from the prices.
"""

import gzip
import io
import time
from dataclasses import dataclass
from itertools import count, pairwise, takewhile
from math import ceil
from typing import Any, cast

from benchmarks import prices
from benchmarks.audit import Source, audited
from benchmarks.audit import measure as listing

from intake_ledger.audit.in_parts import Step
from intake_ledger.audit.inventory import Inventory, Location, Manifest
from intake_ledger.audit.shards import Sample, cut
from intake_ledger.audit.shown import Shown, united
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
TOGETHER = 4
"""Pieces that are united at once, to measure it."""
STEPS_OF_SEGMENTS = len(Step) - 1
"""All but the listing have as many parts as there are segments."""
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


@dataclass(frozen=True)
class Handed:
    """What it takes to hand on a filter of so many rows: CPU seconds, and DynamoDB's units for its pieces."""

    packing: float
    beginning: float
    """To put it together again."""
    uniting: float
    """To add it to others."""
    written: int
    read: float

    @classmethod
    def of(cls, rows: int) -> "Handed":
        shown, again = Shown(b"salt"), Shown(b"salt")
        for number in range(rows):
            shown.add(RowKey(f"uploads/in/{number:012d}/file.csv", "Pipeline@latest"))
        times = [time.process_time()]
        pieces = list(shown.parts())
        times.append(time.process_time())
        for number, piece in pieces:
            again.restore(number, piece)
        times.append(time.process_time())
        for _, piece in pieces:
            united([piece] * TOGETHER)
        times.append(time.process_time())
        packing, beginning, uniting = (end - begin for begin, end in pairwise(times))
        sizes = [len(piece) for _, piece in pieces]
        # Written one by one, a unit at least; a page of many is read as a whole.
        return cls(packing, beginning, uniting / TOGETHER, sum(ceil(size / 1024) for size in sizes), sum(sizes) / 4096)


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
    segment, whole, found = Handed.of(ROWS // CONCURRENCY), Handed.of(ROWS), looks()
    print(f"per CPU second: {listed:,.0f} objects listed and compared, {reported:,.0f} read of an inventory's CSV")
    print(f"a filter of {ROWS // CONCURRENCY:,} rows: {segment}\nof {ROWS:,} rows: {whole}")
    print(f"shards: {found:,} looks for {SHARDS:,}")

    scans = 2 * ROWS * ROW_BYTES / 4096 * 0.5 * prices.READ_UNIT
    gigabyte_second = prices.LAMBDA_GB_SECOND

    def handing(parts: int) -> tuple[float, float]:
        """CPU seconds of all parts, and dollars: two filters of each segment and one of each part are written and added
        up; each part begins with two of the sums, and so does each segment at last.
        """
        part = Handed.of(ROWS // parts)
        begun = 2 * (parts + CONCURRENCY)
        seconds = 2 * CONCURRENCY * (segment.packing + segment.uniting) + parts * (part.packing + part.uniting)
        written = 2 * CONCURRENCY * segment.written + parts * part.written + 3 * whole.written
        read = 2 * CONCURRENCY * segment.read + parts * part.read + begun * whole.read
        return seconds + begun * whole.beginning, written * prices.WRITE_UNIT + read * prices.READ_UNIT

    files = round(OBJECTS / INVENTORY_FILE_OBJECTS)
    lists, waited = OBJECTS / 1_000 * prices.S3_LIST, OBJECTS / 1_000 * LIST_SECONDS
    alone = OBJECTS / listed * VCPU_GB / ONE_GB + waited
    of_shards, for_shards = handing(SHARDS)
    of_files, for_files = handing(files)
    print(f"handing filters on: {of_shards:,.0f} CPU seconds in {SHARDS:,} shards, {of_files:,.0f} in {files:,} files")
    parted, by_report = OBJECTS / listed + waited + of_shards, OBJECTS / reported + OBJECTS / listed + of_files
    table = {
        "one function": (
            alone,
            {"S3": lists, "DynamoDB": scans, "Lambda": alone * ONE_GB * gigabyte_second},
        ),
        f"{SHARDS:,} shards, {CONCURRENCY} at a time": (
            parted / CONCURRENCY,
            {
                "S3": lists + found * prices.S3_LIST,
                "DynamoDB": scans + for_shards,
                "Lambda": parted * VCPU_GB * gigabyte_second,
                "Step Functions": (SHARDS + STEPS_OF_SEGMENTS * CONCURRENCY) * TRANSITIONS_OF_A_PART * STATE_TRANSITION,
            },
        ),
        f"inventory, {files:,} files, {CONCURRENCY} at a time": (
            by_report / CONCURRENCY,
            {
                "S3": OBJECTS * INVENTORY_OBJECT + files * prices.S3_GET,
                "DynamoDB": scans + for_files,
                "Lambda": by_report * VCPU_GB * gigabyte_second,
                "Step Functions": (files + STEPS_OF_SEGMENTS * CONCURRENCY) * TRANSITIONS_OF_A_PART * STATE_TRANSITION,
            },
        ),
    }
    print("| | takes | S3 | DynamoDB | Lambda | Step Functions | all |\n| --- | --- | --- | --- | --- | --- | --- |")
    for name, (seconds, dollars) in table.items():
        cells = [f"${dollars.get(one, 0):.2f}" for one in ("S3", "DynamoDB", "Lambda", "Step Functions")]
        print(f"| {name} | {seconds / 3600:.1f} hours | {' | '.join(cells)} | ${sum(dollars.values()):.2f} |")


if __name__ == "__main__":
    main()
