"""The three databases of a run: one for each consumer, and one for the faults of their workers."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg
from examples.load.judge import Content

from intake_ledger.outputs.sql import schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from examples.load.judge import Rows
    from examples.load.script import Fault
    from examples.postgres import Postgres

ORDERS = """
CREATE TABLE orders (
  source_key text NOT NULL,       -- the file
  source_version text NOT NULL,   -- its version in S3
  customer text NOT NULL,
  order_number bigint NOT NULL,
  cents bigint NOT NULL
);
CREATE INDEX ON orders (source_key);
"""
FAULTS = """
CREATE TABLE faults (
  side text, key text, step text NOT NULL, kind text NOT NULL,
  fired_at timestamptz, commits_before bigint, outcome text, PRIMARY KEY (side, key)
);
CREATE TABLE commits (side text, key text);
"""


@dataclass(frozen=True)
class Databases:
    """The connection strings."""

    ledger: str
    naive: str
    faults: str

    @classmethod
    def create(cls, server: Postgres, planned: Iterable[Fault]) -> Databases:
        """Create the databases, with the planned faults."""
        made = cls(*(server.new_database() for _ in range(3)))
        for dsn in (made.ledger, made.naive):
            with psycopg.connect(dsn) as connection:
                connection.execute(ORDERS)
        with psycopg.connect(made.ledger) as connection:
            connection.execute(schema().encode())
        with psycopg.connect(made.faults) as connection, connection.cursor() as cursor:
            cursor.execute(FAULTS)
            cursor.executemany("INSERT INTO faults (side, key, step, kind) VALUES (%s, %s, %s, %s)", list(planned))
        return made

    def rows(self, side: str) -> Rows:
        """Return the number of rows and the sum of cents by file, version and customer."""
        found: Rows = defaultdict(dict)
        with psycopg.connect(self.ledger if side == "ledger" else self.naive) as connection:
            for key, version, customer, rows, cents in connection.execute(
                "SELECT source_key, source_version, customer, count(*), sum(cents)::bigint FROM orders GROUP BY 1, 2, 3"
            ):
                found[key][version] = Content(customer, rows, cents)
        return found

    def fired(self, side: str) -> int:
        """Return the number of faults that have happened."""
        with psycopg.connect(self.faults) as connection:
            row = connection.execute("SELECT count(fired_at) FROM faults WHERE side = %s", (side,)).fetchone()
        return int(row[0]) if row else 0

    def outcomes(self, side: str) -> Mapping[str, Counter[str]]:
        """Return the outcomes of the copies of dead workers, by kind of the fault. `waiting`: not yet known."""
        counts: dict[str, Counter[str]] = {"killed": Counter(), "late": Counter(), "slow": Counter()}
        with psycopg.connect(self.faults) as connection:
            found: Any = connection.execute(
                "SELECT kind, coalesce(outcome, 'waiting') FROM faults WHERE side = %s AND fired_at IS NOT NULL",
                (side,),
            )
            for kind, outcome in found:
                counts[kind]["killed" if kind == "killed" else outcome] += 1
        return counts
