"""`benchmarks.audit_formula` counts every request of a run, and the table of docs/scale.md is computed by it."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast
from zlib import crc32

import boto3
import pytest
from benchmarks import audit_scale
from benchmarks.audit_formula import (
    ATHENA,
    DUCKDB,
    ONE,
    QUERIES,
    TRANSFER_BYTES,
    Run,
    Sizes,
    backfill,
    pieces,
    requests,
    uploads,
)
from botocore.awsrequest import AWSResponse
from botocore.compat import HTTPHeaders
from botocore.exceptions import ClientError

from tests.inside.audits import (
    Athena,
    AthenaJoin,
    Looked,
    Report,
    Scratch,
    Shard,
    cut,
    in_parts,
    join_parts,
    listing,
    look,
    one_function,
    parts,
)
from tests.inside.audits import function as audit
from tests.inside.command import prices
from tests.inside.constructs import LOOK_RATE
from tests.integration.fake_athena import DATABASE, WORK_GROUP, FakeAthena
from tests.unit.audit_invocations import Gate, Gated, RefusingSQS, Store
from tests.unit.audit_support import AuditWorld
from tests.unit.support import DAY

if TYPE_CHECKING:
    from intake_ledger.protocol import State

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "scale.md").read_text()
SIZES = Sizes(list_page=4, scan_page=3, slice_rows=7, chunk=10, look=5, send=2, names_page=1_000)
SEGMENTS = 2
"""Segments and shards."""


def remaining_ms() -> int:
    """Enough time for every step."""
    return 900_000


class Table(Store):
    """A ledger that is scanned in small pages, from any place on."""

    def get_paginator(self, operation: str) -> Any:
        assert operation == "scan"
        return SimpleNamespace(paginate=self._pages)

    def update_item(self, **request: Any) -> dict[str, Any]:
        # The store in memory adds no numbers: this is the shared budget.
        return {} if request["UpdateExpression"].startswith("ADD #sent") else super().update_item(**request)

    def segment(self, number: int, total: int) -> list[tuple[str, str]]:
        return sorted(key for key in self.items if crc32(key[0].encode()) % total == number)

    def _pages(self, **request: Any) -> Iterator[dict[str, Any]]:
        keys = self.segment(request["Segment"], request["TotalSegments"])
        start = request.get("ExclusiveStartKey")
        first = keys.index((start["pk"]["S"], start["sk"]["S"])) + 1 if start else 0
        for begin in range(first, max(len(keys), first + 1), SIZES.scan_page):
            some = keys[begin : begin + SIZES.scan_page]
            items = [self.items[key] for key in some]
            page: dict[str, Any] = {"Items": [item for item in items if "status" in item]}
            if begin + SIZES.scan_page < len(keys):
                page["LastEvaluatedKey"] = {"pk": {"S": some[-1][0]}, "sk": {"S": some[-1][1]}}
            yield page


class Files:
    """S3 for the bucket and for the files of a run. A file is small: boto3 moves it in one request, and looks first."""

    def __init__(self, bucket: Any) -> None:
        self._bucket = bucket
        self.objects: dict[str, bytes] = {}
        self.moved: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bucket, name)

    def put_object(self, *, Key: str, Body: bytes, **_: Any) -> None:  # noqa: N803 - as boto3 has it
        self.objects[Key] = Body

    def upload_file(self, path: str, _bucket: str, key: str) -> None:
        self.moved["put_object"] += 1
        self.objects[key] = Path(path).read_bytes()

    def download_file(self, _bucket: str, key: str, path: str) -> None:
        self.moved.update(["head_object", "get_object"])
        Path(path).write_bytes(self.objects[key])

    def get_object(self, *, Key: str, Range: str = "", **_: Any) -> dict[str, Any]:  # noqa: N803 - as boto3 has it
        if Key not in self.objects:
            raise ClientError({"Error": {"Code": "NoSuchKey", "Message": "none"}}, "GetObject")
        content = self.objects[Key]
        shown = content[-int(Range.removeprefix("bytes=-")) :] if Range else content
        return {"Body": BytesIO(shown), "ContentRange": f"bytes 0-1/{len(content)}"}

    def get_paginator(self, operation: str) -> Any:
        if operation != "list_objects_v2":
            return self._bucket.get_paginator(operation)
        page = {"Contents": [{"Key": key, "ETag": f'"{hash(body)}"'} for key, body in self.objects.items()]}
        return SimpleNamespace(paginate=lambda **_: iter([page]))


class Counting(Gated):
    """Counts requests. `Files` counts those of uploads and downloads."""

    def upload_file(self, *arguments: str) -> None:
        self._client.upload_file(*arguments)

    download_file: Callable[..., None]

    def __getattr__(self, name: str) -> Any:
        return self._client.download_file if name == "download_file" else super().__getattr__(name)


class Measured:
    """One pipeline with small pages and files, and the requests of a run."""

    def __init__(self, patch: pytest.MonkeyPatch, folder: Path, sizes: Sizes, *, objects: int, rows: int) -> None:
        self.sizes = sizes
        self.asked: Counter[str] = Counter()
        self.settle: list[tuple[str, State]] = []
        """Committed at the first look: a look dismisses them."""
        self.shards: list[Shard] = []
        self.looks = 0
        self.world = world = AuditWorld(page_size=SIZES.list_page)
        world.settings = replace(world.settings, files="files")
        self.table = Table()
        world.store.items = self.table.items
        self.files, self.folder = Files(world.s3), folder
        gate = Gate(before=self._count)
        self.s3 = Counting(self.files, gate)
        clients = {"s3": self.s3, "sqs": Gated(RefusingSQS(), gate), "dynamodb": Gated(self.table, gate)}
        self.fake = FakeAthena(
            lambda run, relation: self.files.objects[f"{run}/{relation}/symlink.txt"].decode(), self._local
        )
        fake: Any = Gated(self.fake, gate)
        self.athena = Athena(fake, fake, work_group=WORK_GROUP, database=DATABASE)
        patch.setattr(audit, "boto3", SimpleNamespace(client=lambda name, **_: clients.get(name)))
        for name in ("parse_versions_once", "parse_scans_directly"):
            patch.setattr(audit, name, lambda _: None)
        # Each tick pays for this, and `test_audit_tick_cost` counts it.
        patch.setattr(audit.AuditFunction, "delivery", lambda _: Looked())
        patch.setattr(audit, "_now", world.clock)
        patch.setattr(audit, "time", SimpleNamespace(sleep=lambda _: None))
        patch.setattr(audit, "AT_THE_SAME_TIME", SEGMENTS)
        patch.setattr(in_parts, "SLICE_ROWS", sizes.slice_rows)
        patch.setattr(in_parts, "CHUNK", SIZES.chunk)
        patch.setattr(parts, "CHUNK", SIZES.chunk)
        patch.setattr(look, "_SEND_BATCH", SIZES.send)
        for module in (in_parts, one_function):
            patch.setattr(module, "BATCH", SIZES.look)
        patch.setattr(listing, "cut", self._cut)
        for number in range(objects):
            # An object without a row is older than the look-back.
            state = world.s3.put(f"in/{number:03}", age=3 * DAY if number < rows else 60 * DAY)
            if number < rows:
                world.commit(f"in/{number:03}", state)
        runs = self.function()._runs
        runs.take(lease_ms=1, only_if_due=False)
        runs.give_back()

    def function(self) -> Any:
        return audit.AuditFunction(self.world.settings)

    def lose(self, number: int, *, dismissed: int) -> None:
        """Uploads whose events were lost; some of them come after the scan."""
        lost = [f"in/lost-{n:03}" for n in range(number)]
        self.settle = [(key, self.world.s3.put(key)) for key in lost][:dismissed]

    def run(self, engine: str, *, waits: int) -> Run:
        """A run as the state machine has it. Returns its size."""
        self.asked.clear()
        self.fake.states = [{"State": "RUNNING"} for _ in range(QUERIES * waits)]
        self.held = [len(self.table.segment(number, SEGMENTS)) for number in range(SEGMENTS)]
        report = self._one() if engine == ONE else self._in_parts(engine)
        assert report.complete
        keys = self.world.s3.keys
        return Run(
            engine=engine,
            listed=[sum(shard.holds(key) for key in keys) for shard in self.shards],
            held=self.held,
            looks=self.looks,
            candidates=report.candidates,
            sent=report.resubmitted,
            waits=waits,
            sizes=self.sizes,
        )

    def _one(self) -> Report:
        report: Report = self.function().run(remaining_ms, every_seconds=None)
        return report

    def _in_parts(self, engine: str) -> Report:
        event = {
            "step": "plan",
            "run": "run",
            "input": {},
            "leaseSeconds": 86_400,
            "parts": SEGMENTS,
            "segments": SEGMENTS,
        }
        for part in self.function().step(event, remaining_ms)["parts"]:
            event = {"step": "write", "run": "run", "part": part, "slice": 0, "after": "", "done": False}
            while not event["done"]:
                event = self.function().step(event, remaining_ms)
        scratch = Scratch(cast("Any", self.s3), "files", "run")
        if engine == ATHENA:
            joined = AthenaJoin(self.athena, scratch).step({"run": "run"})
            while not joined["done"]:
                joined = AthenaJoin(self.athena, scratch).step(joined)
        else:
            joined = join_parts(scratch)
        for part in joined["parts"]:
            assert self.function().step({"step": "look", "run": "run", "part": part}, remaining_ms)["done"]
        report: Report = self.function().step({"step": "finish", "run": "run"}, remaining_ms)
        return report

    def _count(self, operation: str, _: object) -> None:
        self.asked[operation] += 1
        if operation == "head_object":
            while self.settle:
                self.world.commit(*self.settle.pop())

    def _cut(self, prefixes: Any, seen: Any, **options: Any) -> list[Shard]:
        before = self.asked["list_object_versions"]
        self.shards = cut(prefixes, seen, **options)
        self.looks = self.asked["list_object_versions"] - before
        return self.shards

    def _manifest(self, run: str, relation: str) -> str:
        return self.files.objects[f"{run}/{relation}/symlink.txt"].decode()

    def _local(self, uri: str) -> Path:
        path = self.folder / uri.rpartition("/")[2]
        path.write_bytes(self.files.objects[uri.removeprefix("s3://files/")])
        return path


MANY, ONE_FILE = 7, 1_000
"""Entries of a file, for many and for one of a part."""


@pytest.mark.parametrize(
    ("engine", "entries", "rows", "candidates", "dismissed"),
    [
        (ONE, ONE_FILE, 100, 0, 0),
        (ONE, ONE_FILE, 10, 12, 0),
        (ONE, ONE_FILE, 1, 4, 2),
        (DUCKDB, ONE_FILE, 1, 0, 0),
        (DUCKDB, ONE_FILE, 10, 4, 3),
        (DUCKDB, ONE_FILE, 100, 23, 0),
        (DUCKDB, MANY, 10, 12, 12),
        (ATHENA, ONE_FILE, 10, 12, 0),
    ],
)
def test_a_run_asks_what_the_formula_says(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    engine: str,
    entries: int,
    rows: int,
    candidates: int,
    dismissed: int,
) -> None:
    """Every request, from the start of a run to its end, with 1, 10 and 100 % of rows, in one file and in many."""
    objects = 30 if entries == MANY else 100
    measured = Measured(monkeypatch, tmp_path, replace(SIZES, slice_rows=entries), objects=objects, rows=rows)
    measured.lose(candidates, dismissed=dismissed)
    run = measured.run(engine, waits=2)
    assert (run.candidates, run.candidates - run.sent) == (candidates, dismissed)
    assert requests(run) == measured.asked + measured.files.moved
    assert sum(run.listed) == objects + candidates
    assert (max(run.slices) > SEGMENTS) == (entries == MANY)


@pytest.mark.parametrize("size", [1, TRANSFER_BYTES - 1, TRANSFER_BYTES, 2 * TRANSFER_BYTES + 1])
def test_a_file_is_moved_in_as_many_pieces_as_the_formula_says(tmp_path: Path, size: int) -> None:
    """By boto3's own code."""
    asked: Counter[str] = Counter()

    def answer(request: Any, **_: Any) -> Any:
        asked[f"{request.method} list" if "list-type" in request.url else request.method] += 1
        body, length = b"", size
        if "list-type" in request.url:
            body = b"<R><Contents><Key>run/file</Key><ETag>1</ETag></Contents><IsTruncated>false</IsTruncated></R>"
        elif "uploads" in request.url:
            body = b"<R><UploadId>1</UploadId></R>"
        elif request.method == "GET":
            first, _, last = request.headers.get("Range", b"bytes=0-").decode().removeprefix("bytes=").partition("-")
            body = bytes(int(last or size - 1) - int(first) + 1)
        if request.method != "HEAD":
            length = len(body)
        headers = HTTPHeaders.from_dict({"ETag": "1", "Content-Length": str(length)})
        response: Any = AWSResponse(request.url, 200, headers, cast("Any", BytesIO(body)))
        if request.method != "GET" or "list-type" in request.url:
            response._content = body
        return response

    client = boto3.client("s3", region_name="eu-central-1", aws_access_key_id="a", aws_secret_access_key="b")
    client.meta.events.register("before-send.s3", answer)
    file = tmp_path / "file"
    with file.open("wb") as made:
        made.truncate(size)
    scratch = Scratch(client, "files", "run")
    scratch.upload(file)
    assert asked == Counter({"PUT": pieces(size), "POST": uploads(size) - pieces(size)})
    asked.clear()
    file.unlink()
    scratch.download("file", tmp_path)
    assert asked == {"GET list": 1, "HEAD": 1, "GET": pieces(size)}
    assert file.stat().st_size == size


def test_the_table_of_the_page_is_the_formulas() -> None:
    """`python -m benchmarks.audit_scale --write` updates it."""
    shown = PAGE.partition("<!-- begin: runs -->\n")[2].partition("\n<!-- end -->")[0]
    assert shown == audit_scale.run_table(audit_scale.rates_of(PAGE))


def test_the_looks_at_the_same_time_are_the_constructs() -> None:
    assert audit_scale.LOOK_RATE == LOOK_RATE


def test_the_page_has_the_audits_prices() -> None:
    assert [page for page in prices.OF_THE_AUDIT.values() if page not in PAGE] == []
    assert prices.AS_OF in PAGE


def test_a_billion_objects_meet_the_goal() -> None:
    """With 100 million rows: less than 15 dollars and two hours, by calculation."""
    bill = audit_scale.bill_of(10**9, 10**8, audit_scale.rates_of(PAGE))
    assert bill.total < 15
    assert bill.seconds < 2 * 3_600


@pytest.mark.failure_mode("F41")
def test_a_hundred_million_objects_are_sent_within_a_day() -> None:
    """At 2,000 messages in a second, by calculation; docs/audit.md says the hours and the price."""
    rates = audit_scale.rates_of(PAGE)
    bill = backfill(10**8, 2_000, rates, shards=1_000, concurrency=100)
    hours = round(bill.seconds / 3_600)
    assert hours < 24
    page = " ".join((DOCS / "audit.md").read_text().split())
    assert f"100 million objects at 2,000 in a second take {hours} hours and ${bill.total:.0f}" in page
