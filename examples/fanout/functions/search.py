"""The search index: the latest text of each object."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import psycopg

from intake_ledger import Commit
from intake_ledger.outputs.sql import lock_object

if TYPE_CHECKING:
    from intake_ledger import ObjectChange

MAX_BYTES = 1024 * 1024


def process(change: ObjectChange) -> Commit:
    """Replace the object's text, or remove it."""
    body = change.read(MAX_BYTES).decode() if change.kind == "created" else None
    with psycopg.connect(os.environ["DATABASE"]) as connection, connection.cursor() as cursor:
        lock_object(cursor, change, pipeline="search")
        if body is None:
            cursor.execute("DELETE FROM documents WHERE key = %s", (change.key,))
        else:
            cursor.execute(
                "INSERT INTO documents (key, version_id, body) VALUES (%s, %s, %s)"
                " ON CONFLICT (key) DO UPDATE SET version_id = excluded.version_id, body = excluded.body",
                (change.key, change.version_id, body),
            )
    return Commit(change.key)
