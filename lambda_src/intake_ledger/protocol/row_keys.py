"""The keys of a row: its primary key in the table, and its partition key in the index `needs_review`."""

import hashlib
import zlib
from dataclasses import dataclass
from enum import StrEnum

_SORT_KEY_BYTES = 1024  # DynamoDB's limit of a sort key
REVIEW_PARTITIONS = 20
"""Partition keys of one pipeline in the index `needs_review`. DynamoDB takes 1,000 write units a second for each, and a
failure costs two: one for the row that enters the index, one when it leaves."""


class Ordering(StrEnum):
    """The promise of a pipeline about several versions of one key."""

    LATEST = "LATEST"
    """The downstream reflects the newest state of each key in the end. Versions that are overwritten before they are
    processed are skipped."""
    EVERY_VERSION = "EVERY_VERSION"
    """Each version is processed, in any order."""


@dataclass(frozen=True, slots=True)
class RowKey:
    """The row's primary key."""

    pk: str
    sk: str


def row_key(pipeline: str, ordering: Ordering, bucket: str, key: str, identity: str | None) -> RowKey:
    """The primary key of a change's row: one row per key in LATEST, one per state (`identity`) in EVERY_VERSION.

    A bucket's name has no slash and a pipeline's has no `@`. Therefore two objects never have the same row.
    """
    sk = f"{pipeline}@latest" if ordering is Ordering.LATEST else f"{pipeline}@{identity}"
    if len(sk.encode()) > _SORT_KEY_BYTES:
        # A version id alone may have 1,024 bytes.
        sk = f"{pipeline}@h#{hashlib.sha256(sk.encode()).hexdigest()}"
    return RowKey(f"{bucket}/{key}", sk)


def review_partitions(pipeline: str) -> list[str]:
    """All partition keys of the pipeline's FAILED and REJECTED rows in the index `needs_review`."""
    return [f"{pipeline}#{number}" for number in range(REVIEW_PARTITIONS)]


def review_partition(pipeline: str, key: RowKey) -> str:
    """The partition key of one row in the index `needs_review` while the row is FAILED or REJECTED."""
    return f"{pipeline}#{zlib.crc32(f'{key.pk} {key.sk}'.encode()) % REVIEW_PARTITIONS}"


def waiting_partition(pipeline: str) -> str:
    """The partition key of the pipeline's waiting rows in the index `needs_review`. These rows did not fail."""
    return f"{pipeline}#waiting"
