"""Writes the entries of a run's parts as Parquet files, and runs the query of `audit.sql` over them with DuckDB.

A part writes one file for each slice of its listing or scan. DuckDB spills to disk beyond its memory limit.
"""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from intake_ledger.audit.diff import Window
from intake_ledger.audit.relations import CANDIDATE_COLUMNS, COLUMNS, QUERY, judged, no_entries
from intake_ledger.audit.row_numbers import RowNumbers

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_MEMORY_SHARE = 0.6
"""Share of the function's memory for DuckDB, which counts its buffers and not all of its allocations."""
MOST_CANDIDATES = 10_000_000
"""Candidates of one run at most, which the function can write within fifteen minutes. The next run finds the rest."""
_FETCHED = 5_000


@dataclass(frozen=True, slots=True)
class Slice:
    """Metadata of one file. The slices of a complete part form a chain, also after repeated calls."""

    start: str
    """The place where the slice begins. Empty at the part's beginning."""
    after: str
    """The place where the next slice begins. Empty at the part's end."""
    read: int
    """Entries of the listing, or rows of the scan."""
    written: int
    """Entries or rows that the filters take."""
    later_format: int
    """Rows that a later release wrote."""
    begun_at: int
    ended_at: int
    rows: Mapping[str, Any] = field(default_factory=lambda: RowNumbers().as_json())
    """The numbers of the rows, as JSON."""


def write(path: Path, relation: str, content: Iterable[Sequence[Any]], about: Callable[[], Slice]) -> None:
    """Write the rows of one slice and then its metadata, which `about` returns, as a Parquet file.

    Memory does not grow with the slice, since the rows go through a file of JSON lines.
    """
    columns = COLUMNS[relation]
    lines = path.with_suffix(".ndjson")
    try:
        with lines.open("w", encoding="ascii") as file:
            for row in content:
                file.write(json.dumps(dict(zip(columns, row, strict=True))))
                file.write("\n")
        types = ", ".join(f"{name}: '{kind}'" for name, kind in columns.items())
        # Hexadecimal, since a place has a key, which may have quotes.
        chain = json.dumps([getattr(about(), name) for name in Slice.__slots__]).encode().hex()
        with connection(path.parent) as duck:
            duck.execute(
                f"COPY (SELECT * FROM read_json({_texts([lines])}, format='newline_delimited', columns={{{types}}}))"
                f" TO {_text(path)} (FORMAT parquet, COMPRESSION zstd, KV_METADATA {{slice: '{chain}'}})"
            )
    finally:
        lines.unlink(missing_ok=True)


class Join:
    """The slices of one run in a folder, `<relation>-<part's number>-<slice's number>.parquet`, and the query."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._slices = self._read_slices()

    def chain(self, part: str) -> list[Slice] | None:
        """The slices of a part from its beginning to its end, or None if there is a gap."""
        chain: list[Slice] = []
        after = ""
        while not chain or after:
            following = self._slices.get(slice_name(part, len(chain)))
            if following is None or following.start != after:
                return None
            chain.append(following)
            after = following.after
        return chain

    @contextmanager
    def audited(self, parts: Sequence[str], window: Window, *, deletes: bool, all_listed: bool) -> Iterator["Audited"]:
        """Run the query over these parts, which are complete. See `relations.judged` for the other arguments."""
        with connection(self._folder) as duck:
            for relation in COLUMNS:
                duck.execute(f"CREATE TEMP VIEW {relation} AS {self._relation(relation, parts)}")
            duck.execute(f"CREATE TEMP VIEW judged AS {judged(window, deletes=deletes, all_listed=all_listed)}")
            duck.execute(f"CREATE TEMP VIEW audited AS {QUERY.read_text()}")
            yield Audited(duck)

    def _relation(self, relation: str, parts: Sequence[str]) -> str:
        files = [
            self._folder / f"{slice_name(part, number)}.parquet"
            for part in parts
            if part.startswith(relation)
            for number in range(len(self.chain(part) or ()))
        ]
        if not files:
            return no_entries(relation)
        return f"SELECT {', '.join(COLUMNS[relation])} FROM read_parquet({_texts(files)})"

    def _read_slices(self) -> dict[str, Slice]:
        """The metadata of each file, by its name without suffix."""
        files = sorted(self._folder.glob("*.parquet"))
        if not files:
            return {}
        with connection(self._folder) as duck:
            values = duck.execute(
                f"SELECT file_name, decode(value) FROM parquet_kv_metadata({_texts(files)}) WHERE decode(key) = 'slice'"
            ).fetchall()
        return {Path(name).stem: Slice(*json.loads(bytes.fromhex(about))) for name, about in values}


@dataclass(frozen=True, slots=True)
class Audited:
    """The result of the query."""

    duck: "DuckDBPyConnection"

    def lines(self) -> dict[str, int]:
        """The number of listed states in each line, and of candidates."""
        return dict(self.duck.execute("SELECT line, count(*) FROM audited WHERE shown GROUP BY line").fetchall())

    def candidates(self) -> Iterator[Sequence[Any]]:
        """The values of `CANDIDATE` for each candidate. At most `MOST_CANDIDATES` + 1."""
        query = f"SELECT {CANDIDATE_COLUMNS} FROM audited WHERE line = 'candidate' LIMIT {MOST_CANDIDATES + 1}"
        result = self.duck.execute(query)
        while values := result.fetchmany(_FETCHED):
            yield from values


def slice_name(part: str, number: int) -> str:
    """The name of a slice, without suffix. A repeated call writes the same file."""
    return f"{part}-{number:05d}"


@contextmanager
def connection(folder: Path) -> Iterator["DuckDBPyConnection"]:
    """Start DuckDB within the function's memory. It spills to the folder, and loads no extensions."""
    # Only the functions of an audit in parts have DuckDB's layer.
    import duckdb  # noqa: PLC0415

    megabytes = int(int(os.environ.get("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "1769")) * _MEMORY_SHARE)
    config: dict[str, Any] = {
        "memory_limit": f"{megabytes}MB",
        "temp_directory": str(folder / "spilled"),
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
    }
    duck = duckdb.connect(config=config)
    try:
        yield duck
    finally:
        duck.close()


def _text(path: Path) -> str:
    return "'" + str(path).replace("'", "''") + "'"


def _texts(paths: Iterable[Path]) -> str:
    return f"[{', '.join(map(_text, paths))}]"
