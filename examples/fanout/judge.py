"""Compare the indexes of both sides with the content of S3, and count the wrong entries."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import psycopg

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cdk_intake_ledger.testing import LocalAws

Archive = dict[tuple[str, str], str]
"""The SHA-256 of each version, by key and version ID."""


@dataclass(frozen=True)
class Document:
    """The latest text of an object."""

    version_id: str
    body: str


@dataclass(frozen=True)
class Indexes:
    """An archive and a search index: the right ones for the content of S3, or the ones of a side."""

    archive: Archive
    documents: dict[str, Document]
    found: dict[str, frozenset[str]] = field(default_factory=dict)
    """The keys that a search for each word finds."""


@dataclass(frozen=True)
class Errors:
    """The wrong entries of one side, by kind."""

    archive_missing: int
    """Versions in S3 without an entry in the archive."""
    archive_wrong: int
    """Entries whose hash is not that of the version's content."""
    archive_surplus: int
    """Entries of versions that S3 does not hold."""
    search_missing: int
    """Objects in S3 that the search index does not have."""
    search_stale: int
    """Documents with another version or text than the object has now."""
    search_surplus: int
    """Documents of objects that do not exist."""
    answers_wrong: int
    """Keys that a search finds and must not, or misses."""


def compare(demanded: Indexes, kept: Indexes) -> Errors:
    """Count the wrong entries."""
    return Errors(
        archive_missing=len(demanded.archive.keys() - kept.archive.keys()),
        archive_wrong=_different(demanded.archive, kept.archive),
        archive_surplus=len(kept.archive.keys() - demanded.archive.keys()),
        search_missing=len(demanded.documents.keys() - kept.documents.keys()),
        search_stale=_different(demanded.documents, kept.documents),
        search_surplus=len(kept.documents.keys() - demanded.documents.keys()),
        answers_wrong=sum(len(keys ^ kept.found.get(word, frozenset())) for word, keys in demanded.found.items()),
    )


def changes(before: Indexes, after: Indexes) -> int:
    """Count the entries of both indexes that were added, removed or changed."""
    return sum(
        len(one.keys() ^ other.keys()) + _different(one, other)
        for one, other in ((before.archive, after.archive), (before.documents, after.documents))
    )


def _different(one: Mapping[Any, object], other: Mapping[Any, object]) -> int:
    return sum(one[entry] != other[entry] for entry in one.keys() & other.keys())


def demanded_indexes(aws: LocalAws, bucket: str, words: Iterable[str]) -> Indexes:
    """Read every version in S3 and make the indexes that this content demands."""
    s3 = aws.client("s3")
    archive: Archive = {}
    documents: dict[str, Document] = {}
    for page in s3.get_paginator("list_object_versions").paginate(Bucket=bucket):
        for item in page.get("Versions", ()):
            key, version_id = item["Key"], item["VersionId"]
            content = s3.get_object(Bucket=bucket, Key=key, VersionId=version_id)["Body"].read()
            archive[key, version_id] = hashlib.sha256(content).hexdigest()
            if item["IsLatest"]:
                documents[key] = Document(version_id, content.decode())
    return Indexes(archive, documents, {word: _containing(documents, word) for word in words})


def kept_indexes(database: str, words: Iterable[str]) -> Indexes:
    """Read the indexes of one side."""
    with psycopg.connect(database) as connection:
        archive = connection.execute("SELECT key, version_id, sha256 FROM archive WHERE NOT deleted").fetchall()
        documents = connection.execute("SELECT key, version_id, body FROM documents").fetchall()
        found: dict[str, set[str]] = defaultdict(set)
        for word in words:
            query = "SELECT key FROM documents WHERE words @@ plainto_tsquery('simple', %s)"
            found[word] = {key for (key,) in connection.execute(query, (word,))}
    return Indexes(
        {(key, version_id): sha256 for key, version_id, sha256 in archive},
        {key: Document(version_id, body) for key, version_id, body in documents},
        {word: frozenset(keys) for word, keys in found.items()},
    )


def _containing(documents: Mapping[str, Document], word: str) -> frozenset[str]:
    return frozenset(key for key, document in documents.items() if word in document.body.split())
