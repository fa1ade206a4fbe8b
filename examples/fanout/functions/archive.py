"""The archive: one entry for each version of each text, with the hash of its content."""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING

import psycopg

from intake_ledger import Commit
from intake_ledger.outputs.sql import lock_object

if TYPE_CHECKING:
    from intake_ledger import ObjectChange

MAX_BYTES = 1024 * 1024


def process(change: ObjectChange) -> Commit:
    """Add the version, or mark it as deleted. A deleted version never comes back, so the mark stays."""
    if change.kind == "removed":
        return Commit("a delete marker has no content")
    digest = hashlib.sha256(change.read(MAX_BYTES)).hexdigest() if change.kind == "created" else None
    with psycopg.connect(os.environ["DATABASE"]) as connection, connection.cursor() as cursor:
        lock_object(cursor, change, pipeline="archive")
        cursor.execute(
            "INSERT INTO archive (key, version_id, sha256, deleted) VALUES (%s, %s, %s, %s)"
            " ON CONFLICT (key, version_id) DO UPDATE SET sha256 = excluded.sha256, deleted = excluded.deleted"
            " WHERE NOT archive.deleted",
            (change.key, change.version_id, digest, digest is None),
        )
    return Commit(f"{change.key}@{change.version_id}")
