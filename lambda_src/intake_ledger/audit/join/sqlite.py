"""Runs the query of `audit.sql` in one function, with SQLite on the function's disk."""

import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

from intake_ledger.audit.diff import Window
from intake_ledger.audit.relations import CANDIDATE_COLUMNS, COLUMNS, LISTED, QUERY, Candidate, candidate, judged


class SqliteJoin:
    """Takes the entries of both relations, and then runs the query. The database is this file."""

    def __init__(self, file: Path) -> None:
        self._db = sqlite3.connect(file, isolation_level=None)
        # A run that dies begins again, so the database need not survive it.
        self._db.execute("PRAGMA journal_mode = OFF")
        self._db.execute("PRAGMA synchronous = OFF")
        for relation, columns in COLUMNS.items():
            listed = relation == LISTED
            types = ", ".join(f"{name} {kind}" for name, kind in columns.items())
            # S3 lists keys in order, so this index grows at its end. Rows come in any order and have no index: the join
            # looks them up in the index of the listing.
            key, storage = (", PRIMARY KEY (key, place)", "WITHOUT ROWID") if listed else ("", "")
            self._db.execute(f"CREATE TABLE {relation} ({types}{key}) {storage}")
        self._db.execute("BEGIN")

    def close(self) -> None:
        """Close the database."""
        self._db.close()

    def add(self, relation: str, entries: Sequence[Sequence[Any]]) -> None:
        """Add entries to a relation. If a key was listed twice, the last state counts."""
        places = ", ".join("?" * len(COLUMNS[relation]))
        self._db.executemany(f"INSERT OR REPLACE INTO {relation} VALUES ({places})", entries)  # noqa: S608 - our own names

    def run(self, window: Window, *, deletes: bool) -> dict[str, int]:
        """Run the query over all entries. Returns the number of listed states in each line, and of candidates."""
        self._db.execute(f"CREATE VIEW judged AS {judged(window, deletes=deletes, all_listed=True)}")
        self._db.execute(f"CREATE VIEW audited AS {QUERY.read_text()}")
        nominated = f"SELECT {CANDIDATE_COLUMNS} FROM audited WHERE line = 'candidate'"  # noqa: S608 - our own names
        self._db.execute(f"CREATE TABLE candidates AS {nominated}")
        return dict(self._db.execute("SELECT line, count(*) FROM audited WHERE shown GROUP BY line").fetchall())

    def count(self) -> int:
        """The number of candidates, listed or not."""
        count: int = self._db.execute("SELECT count(*) FROM candidates").fetchone()[0]
        return count

    def candidates(self, run: str) -> Iterator[Candidate]:
        """The candidates. The first one depends on the run's name, so that a small budget reaches all in some runs."""
        first = crc32(run.encode()) % max(self.count(), 1)
        for part in ("rowid > ?", "rowid <= ?"):
            yield from map(candidate, self._db.execute(f"SELECT * FROM candidates WHERE {part}", (first,)))  # noqa: S608 - ours
