"""What an S3 Inventory report shows, in place of a listing: S3 has listed the bucket already, a day or so ago.

A report is a manifest and its data files: gzipped CSV, which is read here as it streams in, or Parquet, for which the
function needs pyarrow. Whatever differs by a report has to be looked at in S3 itself before it counts.
"""

import csv
import gzip
import io
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_plus

from intake_ledger.audit.listing import Page, Place
from intake_ledger.errors import SettingsError
from intake_ledger.states import State, StateKind, bare_etag, real_version

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

# S3 user guide, "Amazon S3 Inventory list": the names in CSV's schema, and those in Parquet's.
_NAMES = {
    "Bucket": "bucket",
    "Key": "key",
    "VersionId": "version_id",
    "IsLatest": "is_latest",
    "IsDeleteMarker": "is_delete_marker",
    "Size": "size",
    "LastModifiedDate": "last_modified_date",
    "ETag": "e_tag",
}
_OF_VERSIONS = ("version_id", "is_latest", "is_delete_marker")
_PARQUET_COLUMN = re.compile(r"(?:required|optional)\s+\w+\s+(\w+)")
_REPORT = re.compile(r"\d{4}-\d\d-\d\dT\d\d-\d\dZ/")
_PAGE = 1_000
_DAY_MS = 86_400_000
OVERDUE_DAYS = 10
"""A weekly one comes after seven days, and S3 takes up to two to deliver (S3 user guide, "Configuring Amazon S3
Inventory")."""
_RANGE_BYTES = 4 * 1024 * 1024

PYARROW = (
    "the inventory is in Parquet, and the function has no pyarrow to read it: give "
    "AuditScale.inventory(parquet_layer=...) a layer with it, such as AWS's own AWSSDKPandas, or make the inventory CSV"
)


class InventoryError(SettingsError):
    """There is no report, or it does not say what the audit needs; the text names the fix."""


@dataclass(frozen=True, slots=True)
class Location:
    """Where the reports of one inventory are: `prefix` is all of their folder's name, up to and with the id's slash."""

    bucket: str
    prefix: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """One report. `created_at`, in epoch milliseconds, is when S3 began to look at the bucket."""

    created_at: int
    parquet: bool
    columns: tuple[str, ...]
    files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Entry:
    """One version, or one object, of a report."""

    key: str
    state: State
    latest: bool


class Inventory:
    """The reports of one inventory, of the bucket `source`."""

    def __init__(self, client: "S3Client", location: Location, source: str) -> None:
        self._client = client
        self._location = location
        self._source = source

    def newest(self, *, versioned: bool) -> Manifest:
        """The newest report. `versioned` is whether the bucket has, or had, versions.

        Raises:
            InventoryError: There is none yet, or it cannot be used.

        """
        where = f"s3://{self._location.bucket}/{self._location.prefix}"
        prefixes = [
            one["Prefix"]
            for page in self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self._location.bucket, Prefix=self._location.prefix, Delimiter="/"
            )
            for one in page.get("CommonPrefixes", ())
        ]
        reports = [one for one in prefixes if _REPORT.fullmatch(one.removeprefix(self._location.prefix))]
        # A folder appears with its manifest: S3 writes that last.
        if not reports:
            raise InventoryError(
                f"no inventory report under {where}: the first one comes within two days after an inventory was "
                "configured; see that bucket, prefix and id are the inventory's own"
            )
        body = self._client.get_object(Bucket=self._location.bucket, Key=f"{max(reports)}manifest.json")["Body"]
        return manifest_of(json.load(body), source=self._source, versioned=versioned)

    def pages(self, manifest: Manifest, file: str, *, every: bool, start: Place | None) -> Iterator[Page]:
        """The states of one data file, after `start`: of current versions alone, or of every one."""
        done = int(start.key) if start else 0
        columns = manifest.columns
        found = self._parquet(file, columns) if manifest.parquet else self._csv(file, columns)
        entries = islice(found, done, None)
        few = list(islice(entries, _PAGE))
        while True:
            ahead = list(islice(entries, _PAGE))
            done += len(few)
            after = Place(file, str(done)) if ahead else None
            yield Page([(one.key, one.state) for one in few if every or one.latest], after)
            if after is None:
                return
            few = ahead

    def _csv(self, file: str, columns: tuple[str, ...]) -> Iterator[Entry]:
        body = self._client.get_object(Bucket=self._location.bucket, Key=file)["Body"]
        with gzip.open(body) as stream:
            for row in csv.reader(io.TextIOWrapper(stream, encoding="utf-8", newline="")):
                values = dict(zip(columns, row, strict=True))
                # A space is a plus sign there: github.com/cloud-custodian/cloud-custodian/issues/1997.
                yield _entry({**values, "key": unquote_plus(values["key"])}, _flag, datetime.fromisoformat)

    def _parquet(self, file: str, columns: tuple[str, ...]) -> Iterator[Entry]:
        try:
            # Only the team's layer has it.
            from pyarrow import parquet  # type: ignore[import-untyped] # noqa: PLC0415
        except ImportError:
            raise InventoryError(PYARROW) from None
        needed = [name for name in columns if name in _NAMES.values()]
        with parquet.ParquetFile(_Ranges(self._client, self._location.bucket, file)) as content:
            for batch in content.iter_batches(batch_size=_PAGE, columns=needed):
                for values in batch.to_pylist():
                    yield _entry(values, bool, _aware)


def overdue(manifest: Manifest, now: int) -> Iterator[str]:
    """What is wrong if the newest report is so old that no other may ever come, with the fix; `now` in epoch ms."""
    days = (now - manifest.created_at) // _DAY_MS
    if days >= OVERDUE_DAYS:
        yield (
            f"the newest inventory report is {days} days old, and nothing that came since is audited: see that the "
            "inventory is enabled, and that S3 may still write to its destination"
        )


def manifest_of(content: Mapping[str, Any], *, source: str, versioned: bool) -> Manifest:
    """A report's manifest. `versioned`: whether the bucket has versions, so that the report must name them.

    Raises:
        InventoryError: It is another bucket's, or has too few columns, or a format that nobody reads here.

    """
    if content["sourceBucket"] != source:
        raise InventoryError(
            f"the inventory is of the bucket {content['sourceBucket']}, and the pipeline's is {source}: give the "
            "inventory of that bucket"
        )
    kind, schema = content["fileFormat"], content["fileSchema"]
    if kind not in ("CSV", "Parquet"):
        raise InventoryError(f"the inventory's format is {kind}: choose CSV or Parquet")
    parquet = kind == "Parquet"
    if parquet:
        columns = tuple(_PARQUET_COLUMN.findall(schema))
    else:
        columns = tuple(_NAMES.get(name.strip(), name.strip()) for name in schema.split(","))
    needed = [name for name in _NAMES.values() if versioned or name not in _OF_VERSIONS]
    missing = [name for name, column in _NAMES.items() if column in needed and column not in columns]
    if missing:
        raise InventoryError(
            f"the inventory has no {', '.join(missing)}: add the optional fields Size, LastModifiedDate and ETag to it"
            + (", and let it include all versions, since the bucket has them" if versioned else "")
        )
    files = tuple(file["key"] for file in content["files"])
    return Manifest(int(content["creationTimestamp"]), parquet, columns, files)


def _entry(values: Mapping[str, Any], flag: Callable[[Any], bool], moment: Callable[[Any], datetime]) -> Entry:
    created = values["last_modified_date"]
    created_at = int(moment(created).timestamp() * 1000) if created else None
    version = real_version(values.get("version_id"))
    latest = flag(values.get("is_latest", True))
    if flag(values.get("is_delete_marker", False)):
        return Entry(values["key"], State(StateKind.MARKER, version, created_at=created_at), latest)
    size = int(values["size"] or 0)
    return Entry(values["key"], State(StateKind.OBJECT, version, bare_etag(values["e_tag"]), size, created_at), latest)


def _flag(text: str | bool) -> bool:
    return str(text).lower() == "true"


def _aware(moment: datetime) -> datetime:
    """Inventory's times are in UTC, whether the file says so or not."""
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


class _Ranges(io.RawIOBase):
    """An object of S3 as a file that can be read from any place, a few MiB at a time: Parquet begins at its end."""

    def __init__(self, client: "S3Client", bucket: str, key: str) -> None:
        self._client = client
        self._bucket = bucket
        self._key = key
        self._size = client.head_object(Bucket=bucket, Key=key)["ContentLength"]
        self._place = 0
        self._buffer = b""
        self._begins = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._place

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._place = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: self._size}[whence]
        return self._place

    def read(self, size: int | None = -1) -> bytes:
        rest = self._size - self._place
        wanted = rest if size is None or size < 0 else min(size, rest)
        inside = self._place - self._begins
        if not 0 <= inside <= len(self._buffer) - wanted:
            self._fetch(wanted)
            inside = 0
        self._place += wanted
        return self._buffer[inside : inside + wanted]

    def _fetch(self, wanted: int) -> None:
        self._begins, self._buffer = self._place, b""
        last = min(self._place + max(wanted, _RANGE_BYTES), self._size) - 1
        if last >= self._place:
            span = f"bytes={self._place}-{last}"
            self._buffer = self._client.get_object(Bucket=self._bucket, Key=self._key, Range=span)["Body"].read()
