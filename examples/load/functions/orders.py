"""Load CSV files of orders into PostgreSQL. Each file's rows are exactly those of its newest version in S3.

The transaction begins with `lock_object`, so that a late worker cannot commit after its successor.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import psycopg

from intake_ledger import Commit
from intake_ledger.outputs.sql import lock_object

if TYPE_CHECKING:
    from intake_ledger import ObjectChange

COLUMNS = {"customer": str, "order": int, "cents": int}
COPY = "COPY orders (source_key, source_version, customer, order_number, cents) FROM STDIN"


def process(change: ObjectChange) -> Commit:
    """Replace the rows of one file in one transaction."""
    with connect() as connection, connection.cursor() as cursor:
        lock_object(cursor, change)
        cursor.execute("DELETE FROM orders WHERE source_key = %s", (change.key,))
        if change.kind == "removed":
            return Commit("removed")
        count = 0
        with cursor.copy(COPY) as copy:
            for row in change.csv_rows(columns=COLUMNS):
                copy.write_row((change.key, change.version_id, row["customer"], row["order"], row["cents"]))
                count += 1
        return Commit(f"{count} rows")


def connect() -> psycopg.Connection[Any]:
    """Connect to the database of the environment variable `ORDERS`."""
    return psycopg.connect(os.environ["ORDERS"])
