"""Reads S3 Inventory reports in place of a listing. A report is a day or more old.

A report is a manifest and its data files: gzipped CSV, Parquet or ORC. Nothing counts before its checksum was compared.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import batched, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_plus

from intake_ledger.audit.join import connection
from intake_ledger.audit.listing import Page, Place
from intake_ledger.audit.orc import entries
from intake_ledger.protocol import SettingsError, State, StateKind, bare_etag, real_version

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

# S3 user guide, "Amazon S3 Inventory list": the names in CSV's schema, and those in Parquet's and ORC's.
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
# The names of columns in the schema of a format, as its manifest has it.
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
"""A weekly one comes after seven days, and S3 takes up to two to deliver (S3 user guide, "Configuring Amazon S3
Inventory")."""


class InventoryError(SettingsError):
    """A report is missing, or lacks something that the audit needs. The text names the fix."""


@dataclass(frozen=True, slots=True)
class Location:
    """Where the reports of one inventory are: `prefix` is all of their folder's name, up to and with the id's slash."""

    bucket: str
    prefix: str


@dataclass(frozen=True, slots=True)
class File:
    """One data file of a report, with the MD5 of its content as the manifest has it, in hexadecimal."""

    key: str
    md5: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """One report. `created_at`, in epoch milliseconds, is when S3 began to look at the bucket."""

    created_at: int
    format: str
    """`CSV`, `Parquet` or `ORC`."""
    columns: tuple[str, ...]
    files: tuple[File, ...]


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
        content, checksum = (self._read(f"{max(reports)}manifest.{name}") for name in ("json", "checksum"))
        if _md5(content) != checksum.decode().strip().lower():
            raise InventoryError(
                f"{where}{max(reports).removeprefix(self._location.prefix)}manifest.json has another MD5 than its "
                "manifest.checksum: it is not the report that S3 wrote, wait for the next one or remove this one"
            )
        return manifest_of(json.loads(content), source=self._source, versioned=versioned)

    def pages(
        self, manifest: Manifest, file: File, *, every: bool, start: Place | None, folder: Path
    ) -> Iterator[Page]:
        """The states of one data file, after `start`: of current versions alone, or of every one. The file is copied
        into a folder first, since nothing of it counts before its checksum does.

        Raises:
            InventoryError: It is not the file that S3 wrote.

        """
        done = int(start.key) if start else 0
        rows = _orc_rows if manifest.format == "ORC" else _duckdb_rows
        pages = batched(rows(manifest, self._copied(file, folder), done, every=every), _PAGE)
        few = next(pages, ())
        while True:
            done, ahead = done + len(few), next(pages, ())
            after = Place(file.key, str(done)) if ahead else None
            yield Page([_state(row, quoted=manifest.format == _CSV) for row in few], after)
            if after is None:
                return
            few = ahead

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
    """The rows of a data file in its order, after an offset."""
    names = [name for name in _NAMES.values() if name in manifest.columns and name != "bucket"]
    found = (one for one in entries(path, names) if every or one.get("is_latest", True))
    for one in islice(found, done, None):
        removed = one.get("is_delete_marker", False)
        yield one["key"], one.get("version_id"), removed, one["size"], one["last_modified_date"], one["e_tag"]


def _duckdb_rows(manifest: Manifest, path: Path, done: int, *, every: bool) -> Iterator[Sequence[Any]]:
    with connection(path.parent) as duck:
        found = duck.execute(_query(manifest, every=every), [str(path), done])
        while few := found.fetchmany(_PAGE):
            yield from few


def _query(manifest: Manifest, *, every: bool) -> str:
    """SQL for the rows of a data file in its order, after an offset."""
    has = {name: name for name in manifest.columns} | {
        "version_id": "''",
        "is_latest": "true",
        "is_delete_marker": "false",
    }
    has |= {name: name for name in _OF_VERSIONS if name in manifest.columns}
    columns = ", ".join(f"'{name}': 'VARCHAR'" for name in manifest.columns)
    csv = f"read_csv([?], auto_detect=false, compression='gzip', quote='\"', escape='\"', columns={{{columns}}})"
    csv_moment = "CAST(last_modified_date AS TIMESTAMP)"
    moment, read = (csv_moment, csv) if manifest.format == _CSV else ("last_modified_date", "read_parquet([?])")
    return (
        f"SELECT key, {has['version_id']}, CAST({has['is_delete_marker']} AS BOOLEAN), CAST(size AS BIGINT),"
        f" epoch_ms({moment}), e_tag FROM {read}"
        f" WHERE {every} OR CAST({has['is_latest']} AS BOOLEAN) OFFSET ?"
    )


def _state(row: Sequence[Any], *, quoted: bool) -> tuple[str, State]:
    key, version, removed, size, created_at, etag = row
    # A space is a plus sign in CSV: github.com/cloud-custodian/cloud-custodian/issues/1997.
    key, version = unquote_plus(key) if quoted else key, real_version(version)
    if removed:
        return key, State(StateKind.MARKER, version, created_at=created_at)
    return key, State(StateKind.OBJECT, version, bare_etag(etag), size or 0, created_at)


def overdue(manifest: Manifest, now: int) -> Iterator[str]:
    """A problem if the newest report is so old that no other may come, with the fix. `now` is in epoch milliseconds."""
    days = (now - manifest.created_at) // _DAY_MS
    if days >= OVERDUE_DAYS:
        yield (
            f"the newest inventory report is {days} days old, and nothing that came since is audited: see that the "
            "inventory is enabled, and that S3 may still write to its destination"
        )


def manifest_of(content: Mapping[str, Any], *, source: str, versioned: bool) -> Manifest:
    """A report's manifest. `versioned`: whether the bucket has versions, so that the report must name them.

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
    needed = [name for name in _NAMES.values() if versioned or name not in _OF_VERSIONS]
    missing = [name for name, column in _NAMES.items() if column in needed and column not in columns]
    if missing:
        raise InventoryError(
            f"the inventory has no {', '.join(missing)}: add the optional fields Size, LastModifiedDate and ETag to it"
            + (", and let it include all versions, since the bucket has them" if versioned else "")
        )
    files = tuple(File(file["key"], file.get("MD5checksum", "")) for file in content.get("files", ()))
    return Manifest(int(content["creationTimestamp"]), kind, columns, files)


def _md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()
