"""Requests, time and price of one run of the audit, as pure functions of its size.

`requests` counts by the operations of boto3. A test runs the audit with small pages and files and compares
its requests with these counts. `bill` adds prices and time. The check of the delivery is not included: each tick pays
for it.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from math import ceil
from typing import Any, cast

from cdk_intake_ledger.options.audit_scale import LOOK_RATE
from intake_ledger.audit.function import AT_THE_SAME_TIME
from intake_ledger.audit.in_parts import CHECKPOINT_MS, SENDING_SECONDS, SLICE_ROWS
from intake_ledger.audit.join.duckdb import MOST_CANDIDATES
from intake_ledger.audit.join.parts import CHUNK
from intake_ledger.audit.look import BATCH, STOP_BEFORE_MS
from intake_ledger.ledger import BATCH_STATEMENTS
from intake_ledger.protocol import AuditSettings
from intake_ledger_cli import prices

ONE, DUCKDB, ATHENA = "one function", "DuckDB", "Athena"
"""Engines of the join."""

ROW_BYTES = 500
"""A row of the ledger with a key of 60 characters; `benchmarks.audit` has the same."""
LISTED_BYTES, HELD_BYTES = 52, 33
"""Bytes of an object and of a row in a file. Source: the files of `benchmarks.audit_shards`."""
TRANSFER_BYTES = 8 * 2**20
"""From this size on, boto3 uploads and downloads a file in pieces of this size (boto3 guide, "File transfer
configuration")."""
READ_UNIT_BYTES = 4_096
RUN_ITEM_UNITS = 2
"""Write units of the run's own item, whose last report is some 1.5 KB."""

LAMBDA_GB, JOIN_GB, JOIN_VCPUS = 1_769 / 1_024, 10, 6
"""Memory of the audit's functions. 1,769 MB is one virtual CPU, 10 GB are six (Lambda developer guide, "Configure
Lambda function memory")."""
LIST_SECONDS = 0.15
"""S3 user guide, "Best practices design patterns: optimizing Amazon S3 performance": some 100 to 200 ms."""
HEAD_SECONDS, SCAN_SECONDS, DYNAMODB_SECONDS, SQS_SECONDS = 0.02, 0.02, 0.005, 0.01
"""Taken for a request within the region; a `Scan` reads 1 MB."""
START_SECONDS = 2
"""Taken for the start of an invocation, and for its few requests for files."""
FILE_BYTES_PER_SECOND = 50_000_000
"""Taken for a function that reads files of S3."""
SHARD_SPREAD = 3
"""The largest shard in relation to the mean; a test of the shards holds it."""
ATHENA_SECONDS = 1_800
"""The most that Athena gives a query (Athena user guide, "Service Quotas"); both queries run at the same time."""
ATHENA_WAIT_SECONDS = 20
"""Between two looks at the queries."""
RESULT_PER_SECOND = 39_000
"""Candidates of Athena's result per second of one virtual CPU. Source: docs/scale.md."""
ATHENA_FILE_GETS = 65
"""Taken for Athena's own requests for a file of a million entries: one for its end, and one for each of the seven
columns of nine row groups. S3 charges them to the account."""
QUERIES = 2
"""For the report's lines, and for the candidates."""
MARK = "batch_execute_statement"
"""The operation that marks rows."""
RATE: int = {setting.name: cast("Any", setting.default) for setting in fields(AuditSettings)}["resubmit_rate"]
"""Messages of a run in parts per second, the default."""
TICK_SECONDS = 900
"""The schedule begins the next run after this time at most."""
CALL_SECONDS = 900 - STOP_BEFORE_MS / 1_000
"""Time of an invocation."""


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Entries of a page, a file or a batch."""

    list_page: int = 1_000
    scan_page: int = 2**20 // ROW_BYTES
    slice_rows: int = SLICE_ROWS
    chunk: int = CHUNK
    look: int = BATCH
    send: int = 10
    marks: int = BATCH_STATEMENTS
    """Rows marked by one request."""
    names_page: int = 1_000


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run."""

    engine: str
    listed: Sequence[int]
    """Objects of each shard, in the order of their keys, or of each file of an inventory."""
    held: Sequence[int]
    """Items of the table in each segment."""
    looks: int = 0
    """Requests by which the shards were found."""
    candidates: int = 0
    sent: int = 0
    """Messages. The others were dismissed."""
    inventory: bool = False
    lookers: int = 1
    """Looks at the same time, which share the rate."""
    waits: int = 0
    """Looks at Athena's queries while they run."""
    sizes: Sizes = Sizes()

    @property
    def list_pages(self) -> list[int]:
        """Pages of each shard. All but the last one go on until a page shows a key beyond them."""
        page = self.sizes.list_page
        *others, last = self.listed
        if self.inventory:
            return [max(ceil(number / page), 1) for number in self.listed]
        return [*(number // page + 1 for number in others), max(ceil(last / page), 1)]

    @property
    def scan_pages(self) -> list[int]:
        """Pages of each segment."""
        return [max(ceil(number / self.sizes.scan_page), 1) for number in self.held]

    @property
    def slices(self) -> tuple[int, int]:
        """Files of both relations, which are calls too. A file ends with a page."""
        of_both = (self.list_pages, self.sizes.list_page), (self.scan_pages, self.sizes.scan_page)
        listed, held = (
            sum(ceil(number / ceil(self.sizes.slice_rows / page)) for number in pages) for pages, page in of_both
        )
        return listed, held

    @property
    def file_bytes(self) -> int:
        """All files."""
        return sum(self.listed) * LISTED_BYTES + sum(self.held) * HELD_BYTES

    @property
    def chunks(self) -> list[int]:
        """Candidates of each call that looks."""
        return filled(self.candidates, self.sizes.chunk)

    @property
    def batches(self) -> list[int]:
        """Candidates of each batch."""
        chunks = [self.candidates] if self.engine == ONE else self.chunks
        return [batch for number in chunks for batch in filled(number, self.sizes.look)]

    @property
    def sending(self) -> list[int]:
        """Messages of each batch that has any. Where some candidates are dismissed, the messages are spread evenly:
        this is when they take most requests.
        """
        if self.sent == self.candidates:
            return self.batches
        number = len(self.batches)
        whole, rest = divmod(self.sent, number)
        return [size for size in [whole + 1] * rest + [whole] * (number - rest) if size]

    @property
    def look_calls(self) -> int:
        """Invocations that look. A part may need several."""
        if self.engine == ONE:
            return 0
        return sum(ceil(look_seconds(self, number) / CALL_SECONDS) or 1 for number in self.chunks)

    @property
    def calls(self) -> int:
        """Invocations of the audit's functions."""
        if self.engine == ONE:
            return 1
        asked = 1 + self.waits + 1 if self.engine == ATHENA else 1
        return 1 + sum(self.slices) + asked + self.look_calls + 1

    @property
    def transitions(self) -> int:
        """Steps of the state machine and of its children. A child has a start, two for each call, and an end."""
        if self.engine == ONE:
            return 0
        children = len(self.listed) + len(self.held) + len(self.chunks)
        # Plan, anything to do?, read, join, look, sum up, and the start; Athena: done?, and wait, joined?, done?
        machine = 7 + (1 + 3 * (self.waits + 1) if self.engine == ATHENA else 0)
        return machine + 2 * children + 2 * (sum(self.slices) + self.look_calls)


def filled(number: int, size: int) -> list[int]:
    """Sizes of batches, all full but the last one."""
    whole, rest = divmod(number, size)
    return [size] * whole + [rest] * bool(rest)


def pieces(size: int) -> int:
    """The requests in which boto3 moves the content of a file."""
    return 1 if size < TRANSFER_BYTES else ceil(size / TRANSFER_BYTES)


def uploads(size: int) -> int:
    """The requests of an upload. In pieces, it has a beginning and an end."""
    return pieces(size) + (2 if size >= TRANSFER_BYTES else 0)


def requests(run: Run) -> Counter[str]:
    """Each request of a run to S3, DynamoDB, SQS and Athena, by its operation."""
    counted = _read(run) + _looked(run)
    # The run's own item is taken and given back.
    counted["update_item"] += 2
    if run.engine == ONE:
        return counted + _judged(1)
    # The plan, and each look.
    counted += _judged(1 + run.look_calls)
    return counted + _files(run) + (_by_athena(run) if run.engine == ATHENA else _by_duckdb(run))


def _judged(times: int) -> Counter[str]:
    """The age of the queue's messages, and the row history."""
    return Counter(get_queue_attributes=times, batch_get_item=times)


def _read(run: Run) -> Counter[str]:
    scans = Counter(scan=sum(run.scan_pages))
    if run.inventory:
        # The newest report: its folder, its manifest, and the checksum. Each call copies its file.
        return scans + Counter(list_objects_v2=1, get_object=2 + run.slices[0], get_bucket_versioning=1)
    begun = len(run.listed) if run.engine == ONE else run.slices[0]
    return scans + Counter(list_object_versions=run.looks + sum(run.list_pages), get_bucket_versioning=1 + begun)


def _looked(run: Run) -> Counter[str]:
    counted = Counter(head_object=run.candidates, batch_get_item=len(run.batches))
    counted["send_message_batch"] += sum(ceil(number / run.sizes.send) for number in run.sending)
    counted[MARK] += sum(ceil(number / run.sizes.marks) for number in run.sending)
    if run.engine != ONE:
        # The budget that all looks share.
        counted["update_item"] += len(run.sending)
    return counted


def _files(run: Run) -> Counter[str]:
    """Files of a run in parts, without those of the join: the plan, slices, candidates and checkpoints."""
    slices, parts = sum(run.slices), len(run.chunks)
    saved = run.look_calls + sum(int(look_seconds(run, number) * 1_000 // CHECKPOINT_MS) for number in run.chunks)
    return Counter(
        put_object=1 + slices * uploads(run.file_bytes // slices) + parts + 1 + saved,
        # Each call reads the plan. A look reads its candidates, its checkpoint, and the number of all candidates. The
        # last step reads all checkpoints.
        get_object=slices + 4 * run.look_calls + 2 + parts,
    )


def _by_duckdb(run: Run) -> Counter[str]:
    slices = sum(run.slices)
    return Counter(
        list_objects_v2=_names(run),
        head_object=slices,
        get_object=slices * pieces(run.file_bytes // slices) + 1,
    )


def _by_athena(run: Run) -> Counter[str]:
    slices = sum(run.slices)
    # The ends of all files, the plan, the request twice, and the results.
    return Counter(
        list_objects_v2=2 * _names(run),
        get_object=slices + 1 + 2 + QUERIES,
        # A list of files for each relation, and the request.
        put_object=3,
        start_query_execution=QUERIES,
        get_query_execution=QUERIES * (run.waits + 1),
    )


def _names(run: Run) -> int:
    return ceil((sum(run.slices) + 1) / run.sizes.names_page)


def look_seconds(run: Run, candidates: int) -> float:
    """Seconds of a look. It sends no faster than its share of the rate."""
    sizes, share = run.sizes, run.sent / max(run.candidates, 1)
    sent = ceil(sizes.look * share)
    dynamodb = 1 + bool(sent) + ceil(sent / sizes.marks)
    batch = ceil(sizes.look / AT_THE_SAME_TIME) * HEAD_SECONDS + dynamodb * DYNAMODB_SECONDS
    working = ceil(candidates / sizes.look) * (batch + ceil(sent / sizes.send) * SQS_SECONDS)
    return working if run.engine == ONE else max(working, candidates * share / (RATE / run.lookers))


def backfill(objects: int, rate: int, rates: "Rates", *, shards: int, concurrency: int) -> "Bill":
    """Time and dollars of a backfill in parts. The next run begins at a tick, and reads everything again."""
    seconds, dollars, left = 0.0, defaultdict[str, float](float), objects
    while left:
        sent = min(left, MOST_CANDIDATES, rate * SENDING_SECONDS)
        held = [(objects - left) // concurrency] * concurrency
        looks = Run(
            engine=DUCKDB, listed=[objects // shards] * shards, held=held, looks=2 * shards, candidates=sent, sent=sent
        )
        without = bill(replace(looks, candidates=0, sent=0), rates, concurrency=concurrency)
        # Each function that looks waits until its share of the rate allows more.
        seconds += without.seconds + max(sent / rate, look_seconds(looks, sent) / concurrency) + TICK_SECONDS
        for service, price in bill(looks, rates, concurrency=concurrency).dollars.items():
            dollars[service] += price
        waited = min(concurrency, ceil(rate / LOOK_RATE)) * sent / rate
        dollars["Lambda"] += waited * LAMBDA_GB * prices.LAMBDA_GB_SECOND
        left -= sent
    return Bill(seconds, dollars)


Rates = Mapping[str, float]
"""Entries per CPU second, by the rows of the measured table of docs/scale.md."""
LISTING, INVENTORY, SCAN, JOIN, COMPARED = (
    "objects of a listing become a file",
    "objects of an inventory's CSV become a file",
    "rows of a scan become a file",
    "objects and rows joined by DuckDB",
    "objects listed, scanned and compared in one function",
)


@dataclass(frozen=True)
class Bill:
    """Seconds and dollars of a run."""

    seconds: float
    dollars: Mapping[str, float]
    """By service."""

    @property
    def total(self) -> float:
        """Dollars."""
        return sum(self.dollars.values())


def bill(run: Run, rates: Rates, *, concurrency: int) -> Bill:
    """Time and dollars. `concurrency` is how many parts are worked on at the same time."""
    asked, objects, rows = requests(run), sum(run.listed), sum(run.held)
    entries, slices = objects + rows, sum(run.slices)
    if run.engine == ONE:
        waiting = asked["list_object_versions"] * LIST_SECONDS + asked["scan"] * SCAN_SECONDS
        seconds = START_SECONDS + max(objects, rows) / rates[COMPARED] + waiting / AT_THE_SAME_TIME
        seconds += look_seconds(run, run.candidates)
        gigabyte_seconds = seconds * LAMBDA_GB
    else:
        planning = START_SECONDS + run.looks * LIST_SECONDS
        one = objects / rates[INVENTORY] if run.inventory else objects / rates[LISTING]
        waiting = 0 if run.inventory else sum(run.list_pages) * LIST_SECONDS
        part = SHARD_SPREAD * (one + waiting) / len(run.listed)
        segment = sum(run.scan_pages) * SCAN_SECONDS + rows / rates[SCAN]
        reading = one + waiting + segment + slices * START_SECONDS
        looking = sum(look_seconds(run, number) + START_SECONDS for number in run.chunks)
        # A part that begins last takes its own time after all others.
        longest = max(part, segment / len(run.held)) + START_SECONDS
        last_look = max((look_seconds(run, number) + START_SECONDS for number in run.chunks), default=0)
        end = START_SECONDS + len(run.chunks) * HEAD_SECONDS
        if run.engine == DUCKDB:
            joining = START_SECONDS + run.file_bytes / FILE_BYTES_PER_SECOND + entries / rates[JOIN] / JOIN_VCPUS
            join_lambda = joining * JOIN_GB
        else:
            handled = 2 * START_SECONDS + slices * HEAD_SECONDS + run.candidates / RESULT_PER_SECOND
            joining = ATHENA_SECONDS + handled
            join_lambda = (handled + run.waits) * LAMBDA_GB
        seconds = planning + reading / concurrency + longest + joining + looking / run.lookers + last_look + end
        gigabyte_seconds = (planning + reading + looking + end) * LAMBDA_GB + join_lambda
    puts = asked["put_object"] * prices.S3_PUT
    lists = (asked["list_object_versions"] + asked["list_objects_v2"]) * prices.S3_LIST
    gets = (asked["get_object"] + asked["head_object"] + asked["get_bucket_versioning"]) * prices.S3_GET
    athena = 0.0
    if run.engine == ATHENA:
        athena = QUERIES * run.file_bytes / 10**12 * prices.ATHENA_TB
        gets += QUERIES * slices * ATHENA_FILE_GETS * prices.S3_GET
    if run.inventory:
        lists += objects * prices.INVENTORY_OBJECT
    # A scan that is not consistent takes half a unit for each 4 KB; each item of a consistent read takes one.
    read_units = rows * ROW_BYTES / READ_UNIT_BYTES / 2 + run.candidates + 1 + run.look_calls
    write_units = run.sent + 2 * RUN_ITEM_UNITS + (len(run.sending) if run.engine != ONE else 0)
    return Bill(
        seconds,
        {
            "S3": puts + lists + gets,
            "DynamoDB": read_units * prices.READ_UNIT + write_units * prices.WRITE_UNIT,
            "Lambda": run.calls * prices.LAMBDA_REQUEST + gigabyte_seconds * prices.LAMBDA_GB_SECOND,
            "Step Functions": run.transitions * prices.STATE_TRANSITION,
            "SQS": (asked["send_message_batch"] + asked["get_queue_attributes"]) * prices.SQS_REQUEST,
            "Athena": athena,
        },
    )
