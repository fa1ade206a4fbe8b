"""Reads the reports of S3 Inventory, which the audit can use instead of a listing. A report is a day or more old.

A report is a manifest and its data files in gzipped CSV, Parquet or ORC. Each file's checksum is compared before use.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import batched, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_plus

from intake_ledger.audit.join.duckdb import connection
from intake_ledger.audit.listing import Page, Place
from intake_ledger.protocol.change import State, StateKind, bare_etag, real_version
from intake_ledger.protocol.errors import SettingsError

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

# S3 user guide, "Amazon S3 Inventory list": the names in a CSV schema, and those in Parquet and ORC.
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
_NEEDED = ("sourceBucket", "fileFormat", "fileSchema", "creationTimestamp")
_OF_VERSIONS = ("version_id", "is_latest", "is_delete_marker")
_CSV = "CSV"
# The names of columns in a manifest's schema, by format.
_COLUMN = {
    _CSV: re.compile(r"(\w+)"),
    "Parquet": re.compile(r"(?:required|optional)\s+\w+\s+(\w+)"),
    "ORC": re.compile(r"[<,]\s*(\w+)\s*:"),
}
_REPORT = re.compile(r"\d{4}-\d\d-\d\dT\d\d-\d\dZ/")
_PAGE = 1_000
_CHUNK_BYTES = 2**20
_DAY_MS = 86_400_000
OVERDUE_DAYS = 10
"""A weekly report comes after seven days, and S3 delivers within two (S3 user guide, "Configuring Amazon S3
Inventory")."""


class InventoryError(SettingsError):
    """A report is missing, or lacks something that the audit needs. The text names the fix."""


@dataclass(frozen=True, slots=True)
class Location:
    """The folder of an inventory's reports. `prefix` is its name, including the slash after the inventory's ID."""

    bucket: str
    prefix: str


@dataclass(frozen=True, slots=True)
class File:
    """One data file of a report, with the hexadecimal MD5 from the manifest."""

    key: str
    md5: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """One report. `created_at` is the time in epoch milliseconds at which S3 began to read the bucket."""

    created_at: int
    format: str
    """`CSV`, `Parquet` or `ORC`."""
    columns: tuple[str, ...]
    files: tuple[File, ...]


class Inventory:
    """Reads the reports of one inventory of the bucket `source`."""

    def __init__(self, client: "S3Client", location: Location, source: str) -> None:
        self._client = client
        self._location = location
        self._source = source

    def newest(self, *, versioned: bool) -> Manifest:
        """The newest report. `versioned` is true if the bucket has or had versioning.

        Raises:
            InventoryError: There is no report yet, or it cannot be used.

        """
        bucket, prefix = self._location.bucket, self._location.prefix
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix, Delimiter="/")
        folders = [folder["Prefix"] for page in pages for folder in page.get("CommonPrefixes", ())]
        reports = [folder for folder in folders if _REPORT.fullmatch(folder.removeprefix(prefix))]
        # A folder appears with its manifest, which S3 writes last.
        if not reports:
            raise InventoryError(
                f"no inventory report under s3://{bucket}/{prefix}: the first one comes within two days after an "
                "inventory was configured; see that bucket, prefix and id are the inventory's own"
            )
        content, checksum = (self._read(f"{max(reports)}manifest.{name}") for name in ("json", "checksum"))
        if _md5(content) != checksum.decode().strip().lower():
            raise InventoryError(
                f"s3://{bucket}/{max(reports)}manifest.json has another MD5 than its manifest.checksum: it is not the "
                "report that S3 wrote, wait for the next one or remove this one"
            )
        return manifest_of(json.loads(content), source=self._source, versioned=versioned)

    def pages(
        self, manifest: Manifest, file: File, *, every: bool, start: Place | None, folder: Path
    ) -> Iterator[Page]:
        """The states of one data file after `start`: of all versions if `every` is true, else of current ones.

        The file is first copied into a folder, to compare its checksum.

        Raises:
            InventoryError: It is not the file that S3 wrote.

        """
        done = int(start.key) if start else 0
        rows = _orc_rows if manifest.format == "ORC" else _duckdb_rows
        pages = batched(rows(manifest, self._copied(file, folder), done, every=every), _PAGE)
        page = next(pages, ())
        while True:
            done, ahead = done + len(page), next(pages, ())
            after = Place(file.key, str(done)) if ahead else None
            yield Page([_state(row, quoted=manifest.format == _CSV) for row in page], after)
            if after is None:
                return
            page = ahead

    def _read(self, key: str) -> bytes:
        return self._client.get_object(Bucket=self._location.bucket, Key=key)["Body"].read()

    def _copied(self, file: File, folder: Path) -> Path:
        copy, digest = folder / "inventory", hashlib.md5(usedforsecurity=False)
        body = self._client.get_object(Bucket=self._location.bucket, Key=file.key)["Body"]
        with copy.open("wb") as out:
            for chunk in body.iter_chunks(_CHUNK_BYTES):
                digest.update(chunk)
                out.write(chunk)
        if digest.hexdigest() != file.md5.lower():
            raise InventoryError(
                f"the inventory's file {file.key} has the MD5 {digest.hexdigest()}, and its manifest says {file.md5}: "
                "it is not the file that S3 wrote, wait for the next report or remove this one"
            )
        return copy


def _orc_rows(manifest: Manifest, path: Path, done: int, *, every: bool) -> Iterator[Sequence[Any]]:
    """The rows of a data file in its order, after an offset. DuckDB does not read ORC."""
    # Only the functions of an audit by inventory have pyorc's layer.
    pyorc: Any = import_module("pyorc")
    names = [name for name in _NAMES.values() if name in manifest.columns and name != "bucket"]
    kinds = (pyorc.TypeKind.TIMESTAMP, pyorc.TypeKind.TIMESTAMP_INSTANT)
    with path.open("rb") as file:
        rows = pyorc.Reader(
            file,
            column_names=names,
            struct_repr=pyorc.StructRepr.DICT,
            converters=dict.fromkeys(kinds, _Milliseconds),
        )
        for row in islice((row for row in rows if every or row.get("is_latest", True)), done, None):
            removed = row.get("is_delete_marker", False)
            yield row["key"], row.get("version_id"), removed, row["size"], row["last_modified_date"], row["e_tag"]


class _Milliseconds:
    """Converts timestamps faster than pyorc's own converter."""

    @staticmethod
    def from_orc(seconds: int, nanoseconds: int, _timezone: object) -> int:
        return seconds * 1_000 + nanoseconds // 1_000_000

    @staticmethod
    def to_orc(*_: object) -> None:
        """Exist for pyorc, which requires the method for reading too."""
        raise NotImplementedError


def _duckdb_rows(manifest: Manifest, path: Path, done: int, *, every: bool) -> Iterator[Sequence[Any]]:
    """The same with DuckDB, for CSV and Parquet."""
    given = {name: name for name in manifest.columns}
    has = {"version_id": "''", "is_latest": "true", "is_delete_marker": "false"} | given
    if manifest.format == _CSV:
        columns = ", ".join(f"'{name}': 'VARCHAR'" for name in manifest.columns)
        source = f"read_csv([?], auto_detect=false, compression='gzip', quote='\"', escape='\"', columns={{{columns}}})"
        moment = "CAST(last_modified_date AS TIMESTAMP)"
    else:
        source, moment = "read_parquet([?])", "last_modified_date"
    query = (
        f"SELECT key, {has['version_id']}, CAST({has['is_delete_marker']} AS BOOLEAN), CAST(size AS BIGINT),"
        f" epoch_ms({moment}), e_tag FROM {source}"
        f" WHERE {every} OR CAST({has['is_latest']} AS BOOLEAN) OFFSET ?"
    )
    with connection(path.parent) as duck:
        result = duck.execute(query, [str(path), done])
        while rows := result.fetchmany(_PAGE):
            yield from rows


def _state(row: Sequence[Any], *, quoted: bool) -> tuple[str, State]:
    key, version, removed, size, created_at, etag = row
    # A space is a plus sign in CSV: github.com/cloud-custodian/cloud-custodian/issues/1997.
    key, version = unquote_plus(key) if quoted else key, real_version(version)
    if removed:
        return key, State(StateKind.MARKER, version, created_at=created_at)
    return key, State(StateKind.OBJECT, version, bare_etag(etag), size or 0, created_at)


def overdue(manifest: Manifest, now: int) -> Iterator[str]:
    """A problem with its fix if the newest report is too old. `now` is in epoch milliseconds."""
    days = (now - manifest.created_at) // _DAY_MS
    if days >= OVERDUE_DAYS:
        yield (
            f"the newest inventory report is {days} days old, and nothing that came since is audited: see that the "
            "inventory is enabled, and that S3 may still write to its destination"
        )


def manifest_of(content: Mapping[str, Any], *, source: str, versioned: bool) -> Manifest:
    """A report's manifest. If `versioned`, the report must have versions.

    Raises:
        InventoryError: It is about another bucket, lacks a schema or columns, or has an unknown format.

    """
    lacks = [name for name in _NEEDED if not content.get(name)]
    if lacks:
        raise InventoryError(
            f"the inventory's manifest has no {', '.join(lacks)}: it is not whole, wait for the next report or remove "
            "this one"
        )
    if content["sourceBucket"] != source:
        raise InventoryError(
            f"the inventory is of the bucket {content['sourceBucket']}, and the pipeline's is {source}: give the "
            "inventory of that bucket"
        )
    kind, schema = content["fileFormat"], content["fileSchema"]
    if kind not in _COLUMN:
        raise InventoryError(f"the inventory's format is {kind}: choose {', '.join(_COLUMN)}")
    columns = tuple(_NAMES.get(name, name) for name in _COLUMN[kind].findall(schema))
    missing = [
        name for name, column in _NAMES.items() if column not in columns and (versioned or column not in _OF_VERSIONS)
    ]
    if missing:
        raise InventoryError(
            f"the inventory has no {', '.join(missing)}: add the optional fields Size, LastModifiedDate and ETag to it"
            + (", and let it include all versions, since the bucket has them" if versioned else "")
        )
    files = tuple(File(file["key"], file.get("MD5checksum", "")) for file in content.get("files", ()))
    return Manifest(int(content["creationTimestamp"]), kind, columns, files)


def _md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()
