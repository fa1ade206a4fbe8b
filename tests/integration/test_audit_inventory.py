"""S3 Inventory instead of a listing: manifests, gzipped CSV and Parquet, as S3 writes them."""

import gzip
import hashlib
import io
import json
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote_plus

import boto3
import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from pyarrow import orc, parquet

from intake_ledger.audit.inventory import File, Inventory, InventoryError, Location, manifest_of
from intake_ledger.audit.listing import Page, Place
from intake_ledger.protocol.change import State, StateKind

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_s3 import S3Client

SOURCE = "uploads"
BEGUN = 1_763_000_000_000
CSV_SCHEMA = "Bucket, Key, VersionId, IsLatest, IsDeleteMarker, Size, LastModifiedDate, ETag, StorageClass"
PARQUET_SCHEMA = (
    "message s3.inventory {  required binary bucket (STRING);  required binary key (STRING);  optional binary "
    "version_id (STRING);  optional boolean is_latest;  optional boolean is_delete_marker;  optional int64 size;  "
    "optional int64 last_modified_date (TIMESTAMP(MILLIS,true));  optional binary e_tag (STRING);  optional binary "
    "storage_class (STRING);}"
)
ORC_SCHEMA = (
    "struct<bucket:string,key:string,version_id:string,is_latest:boolean,is_delete_marker:boolean,size:bigint,"
    "last_modified_date:timestamp,e_tag:string,storage_class:string>"
)
UNVERSIONED = "Bucket, Key, Size, LastModifiedDate, ETag"
KEYS = ["a b+c%.csv", 'ä/日本 ,"x"\n.csv', "plain.csv"]
_NUMBERS = count(1)


def manifest(**changes: Any) -> dict[str, Any]:
    return {
        "sourceBucket": SOURCE,
        "destinationBucket": "arn:aws:s3:::reports",
        "version": "2016-11-30",
        "creationTimestamp": f"{BEGUN}",
        "fileFormat": "CSV",
        "fileSchema": CSV_SCHEMA,
        "files": [{"key": "inv/uploads/all/data/1.csv.gz", "size": 1, "MD5checksum": "0"}],
    } | changes


def states() -> list[tuple[str, State, bool]]:
    """Each key with a current version and an older one; one is deleted, one has no version id."""
    created = BEGUN - 3_600_000
    entries = []
    for n, key in enumerate(KEYS):
        version = f"v{n}" if n else None
        entries.append((key, State(StateKind.OBJECT, version, f"etag{n}", 10 + n, created), True))
        entries.append((key, State(StateKind.OBJECT, f"old{n}", f"older{n}", 5, created - 1_000), False))
    entries.append(("gone.csv", State(StateKind.MARKER, "m1", created_at=created), True))
    return entries


def as_csv(entries: list[tuple[str, State, bool]]) -> bytes:
    lines = []
    for key, state, latest in entries:
        moment = datetime.fromtimestamp((state.created_at or 0) / 1000, UTC)
        fields = [
            SOURCE, quote_plus(key, safe="/"), state.version_id or "", str(latest).lower(), str(state.removed).lower(),
            "" if state.size is None else str(state.size), f"{moment:%Y-%m-%dT%H:%M:%S}.000Z",
            state.etag or "", "STANDARD",
        ]  # fmt: skip
        lines.append(",".join(f'"{field}"' for field in fields))
    return gzip.compress("\n".join(lines).encode() + b"\n")


def as_parquet(entries: list[tuple[str, State, bool]]) -> bytes:
    file = io.BytesIO()
    parquet.write_table(as_table(entries), file)
    return file.getvalue()


def as_orc(entries: list[tuple[str, State, bool]]) -> bytes:
    """Compressed as S3 does, with timestamps that have no time zone."""
    table = as_table(entries)
    place = table.schema.get_field_index("last_modified_date")
    naive = table.column(place).cast(pa.timestamp("ms"))
    file = io.BytesIO()
    orc.write_table(table.set_column(place, "last_modified_date", naive), file, compression="zlib")
    return file.getvalue()


def as_table(entries: list[tuple[str, State, bool]]) -> Any:
    return pa.Table.from_pylist(
        [
            {
                "bucket": SOURCE, "key": key, "version_id": state.version_id, "is_latest": latest,
                "is_delete_marker": state.removed, "size": state.size,
                "last_modified_date": datetime.fromtimestamp((state.created_at or 0) / 1000, UTC),
                "e_tag": state.etag, "storage_class": "STANDARD",
            }
            for key, state, latest in entries
        ],
        schema=pa.schema(
            [
                ("bucket", pa.string()), ("key", pa.string()), ("version_id", pa.string()),
                ("is_latest", pa.bool_()), ("is_delete_marker", pa.bool_()), ("size", pa.int64()),
                ("last_modified_date", pa.timestamp("ms", "UTC")), ("e_tag", pa.string()),
                ("storage_class", pa.string()),
            ]
        ),
    )  # fmt: skip


@pytest.fixture(scope="module")
def s3(dynamodb: "DynamoDBClient") -> "S3Client":
    return boto3.client("s3", region_name="us-east-1")


@pytest.fixture
def bucket(s3: "S3Client") -> str:
    name = f"reports-{next(_NUMBERS)}"
    s3.create_bucket(Bucket=name)
    return name


def put_manifest(s3: "S3Client", bucket: str, folder: str, content: dict[str, Any]) -> None:
    """With its checksum, as S3 writes it."""
    body = json.dumps(content).encode()
    s3.put_object(Bucket=bucket, Key=f"{folder}manifest.json", Body=body)
    s3.put_object(Bucket=bucket, Key=f"{folder}manifest.checksum", Body=hashlib.md5(body).hexdigest().encode())


def put_data(s3: "S3Client", bucket: str, key: str, body: bytes) -> dict[str, Any]:
    """A data file; what its manifest says of it comes back."""
    s3.put_object(Bucket=bucket, Key=key, Body=body)
    return {"key": key, "size": len(body), "MD5checksum": hashlib.md5(body).hexdigest()}


def report(s3: "S3Client", bucket: str, content: dict[str, Any], at: str = "2026-11-20T01-00Z") -> Inventory:
    put_manifest(s3, bucket, f"inv/uploads/all/{at}/", content)
    return Inventory(s3, Location(bucket, "inv/uploads/all/"), SOURCE)


FORMATS = pytest.mark.parametrize(
    ("changes", "write"),
    [
        ({}, as_csv),
        ({"fileFormat": "Parquet", "fileSchema": PARQUET_SCHEMA}, as_parquet),
        ({"fileFormat": "ORC", "fileSchema": ORC_SCHEMA}, as_orc),
    ],
    ids=["CSV", "Parquet", "ORC"],
)


@pytest.mark.failure_mode("F60")
@FORMATS
@pytest.mark.parametrize("every", [False, True])
def test_a_report_shows_what_a_listing_would(
    s3: "S3Client", bucket: str, tmp_path: Path, changes: dict[str, Any], write: Any, every: bool
) -> None:
    """Keys of any characters, current versions alone or all of them, delete markers, no version id."""
    file = "inv/uploads/all/data/1"
    data = put_data(s3, bucket, file, write(states()))
    inventory = report(s3, bucket, manifest(**changes, files=[data]))
    newest = inventory.newest(versioned=True)
    (page,) = inventory.pages(newest, newest.files[0], every=every, start=None, folder=tmp_path)
    assert page.states == [(key, state) for key, state, latest in states() if every or latest]
    assert page.after is None
    assert (newest.created_at, newest.files) == (BEGUN, (File(file, data["MD5checksum"]),))


@FORMATS
def test_a_file_is_read_in_pages_and_from_any_page_on(
    s3: "S3Client", bucket: str, tmp_path: Path, changes: dict[str, Any], write: Any
) -> None:
    """A run that was stopped goes on where it was; the last page says that it is the last one."""
    entries = [(f"{n:05d}", State(StateKind.OBJECT, f"v{n}", f"e{n}", n, BEGUN), True) for n in range(2_000)]
    data = put_data(s3, bucket, "data", write(entries))
    inventory = report(s3, bucket, manifest(**changes, files=[data]))
    newest = inventory.newest(versioned=True)
    (file,) = newest.files
    first, last = inventory.pages(newest, file, every=False, start=None, folder=tmp_path)
    assert first.after == Place("data", "1000")
    assert last.after is None
    (again,) = inventory.pages(newest, file, every=False, start=first.after, folder=tmp_path)
    assert again == last
    assert [key for key, _ in first.states + last.states] == [key for key, _, _ in entries]


@FORMATS
def test_a_file_whose_reading_is_stopped_after_each_page_is_read_once(
    s3: "S3Client", bucket: str, tmp_path: Path, changes: dict[str, Any], write: Any
) -> None:
    """Each page says where the next one begins in the file, also if the reading did not begin at the file's start."""
    entries = [(f"{n:05d}", State(StateKind.OBJECT, f"v{n}", f"e{n}", n, BEGUN), True) for n in range(3_500)]
    inventory = report(s3, bucket, manifest(**changes, files=[put_data(s3, bucket, "data", write(entries))]))
    newest = inventory.newest(versioned=True)
    (file,) = newest.files
    keys, start, places = list[str](), None, list[Place | None]()
    while not places or start is not None:
        page = next(inventory.pages(newest, file, every=False, start=start, folder=tmp_path))
        keys += [key for key, _ in page.states]
        start = page.after
        places.append(start)
        assert len(places) < 6
    assert keys == [key for key, _, _ in entries]
    assert places == [Place("data", "1000"), Place("data", "2000"), Place("data", "3000"), None]
    rest = list(inventory.pages(newest, file, every=False, start=places[0], folder=tmp_path))
    assert [page.after for page in rest] == places[1:]


def test_an_empty_file(s3: "S3Client", bucket: str, tmp_path: Path) -> None:
    """An empty bucket has one."""
    inventory = report(s3, bucket, manifest(files=[put_data(s3, bucket, "data", gzip.compress(b""))]))
    newest = inventory.newest(versioned=True)
    pages = inventory.pages(newest, newest.files[0], every=False, start=None, folder=tmp_path)
    assert list(pages) == [Page([], None)]


@pytest.mark.failure_mode("F121")
@FORMATS
def test_a_data_file_that_is_not_the_manifests_is_refused(
    s3: "S3Client", bucket: str, tmp_path: Path, changes: dict[str, Any], write: Any
) -> None:
    """The error names both checksums and the fix. No row of the file is read."""
    data = put_data(s3, bucket, "data", write(states()))
    inventory = report(s3, bucket, manifest(**changes, files=[data]))
    newest = inventory.newest(versioned=True)
    s3.put_object(Bucket=bucket, Key="data", Body=write(states()[1:]))
    with pytest.raises(
        InventoryError, match=f"the inventory's file data has the MD5 .*manifest says {newest.files[0].md5}"
    ):
        next(inventory.pages(newest, newest.files[0], every=False, start=None, folder=tmp_path))


@pytest.mark.failure_mode("F121")
def test_a_manifest_with_another_checksum_is_refused(s3: "S3Client", bucket: str) -> None:
    """Its list of files may not be S3's."""
    inventory = report(s3, bucket, manifest())
    key = "inv/uploads/all/2026-11-20T01-00Z/manifest.json"
    s3.put_object(Bucket=bucket, Key=key, Body=json.dumps(manifest(files=[])).encode())
    with pytest.raises(InventoryError, match=f"s3://{bucket}/{key} has another MD5 than its manifest.checksum"):
        inventory.newest(versioned=True)


@pytest.mark.failure_mode("F121")
@pytest.mark.parametrize("name", ["fileSchema", "fileFormat", "sourceBucket", "creationTimestamp"])
@pytest.mark.parametrize("change", ["missing", "empty"])
def test_a_manifest_without_a_schema_is_refused(name: str, change: str) -> None:
    """The order of the columns would be a guess."""
    content = manifest(**{name: ""})
    if change == "missing":
        del content[name]
    with pytest.raises(InventoryError, match=f"the inventory's manifest has no {name}: it is not whole"):
        manifest_of(content, source=SOURCE, versioned=True)


def test_the_newest_report_counts(s3: "S3Client", bucket: str) -> None:
    """There are other objects too: data, Hive's folder, an older report."""
    s3.put_object(Bucket=bucket, Key="inv/uploads/all/hive/dt=2026-11-21-01-00/symlink.txt", Body=b"")
    report(s3, bucket, manifest(creationTimestamp="1"), at="2026-11-19T01-00Z")
    inventory = report(s3, bucket, manifest(creationTimestamp="2"))
    assert inventory.newest(versioned=True).created_at == 2


def test_no_report_yet(s3: "S3Client", bucket: str) -> None:
    """The error says where it looked, and that the first one takes its time."""
    inventory = Inventory(s3, Location(bucket, "inv/uploads/all/"), SOURCE)
    with pytest.raises(InventoryError, match=f"s3://{bucket}/inv/uploads/all/: the first one comes within two days"):
        inventory.newest(versioned=True)


@pytest.mark.parametrize(
    ("changes", "versioned", "why"),
    [
        ({"sourceBucket": "others"}, True, "of the bucket others, and the pipeline's is uploads"),
        ({"fileFormat": "Avro"}, True, "Avro: choose CSV, Parquet, ORC"),
        ({"fileSchema": UNVERSIONED}, True, "has no VersionId, IsLatest, IsDeleteMarker: add"),
        (
            {"fileSchema": "Bucket, Key, VersionId, IsLatest, IsDeleteMarker"},
            True,
            "has no Size, LastModifiedDate, ETag: add",
        ),
        ({"fileSchema": "Bucket, Key, Size, ETag"}, False, "has no LastModifiedDate: add"),
        ({"fileFormat": "ORC", "fileSchema": ORC_SCHEMA.replace("size:bigint,", "")}, True, "has no Size: add"),
    ],
    ids=["another bucket", "a format", "versions", "what a state needs", "a date", "a size"],
)
def test_a_report_that_cannot_be_compared_is_refused(changes: dict[str, str], versioned: bool, why: str) -> None:
    """Every object of another bucket would be a loss. The error names the known formats and the fields to add."""
    with pytest.raises(InventoryError, match=why):
        manifest_of(manifest(**changes), source=SOURCE, versioned=versioned)


def test_a_bucket_without_versions_needs_no_columns_of_versions() -> None:
    """An inventory of current objects is enough there."""
    content = manifest(fileSchema=UNVERSIONED)
    assert manifest_of(content, source=SOURCE, versioned=False).columns == (
        "bucket", "key", "size", "last_modified_date", "e_tag",
    )  # fmt: skip
