"""Finds possible losses in a large bucket with one query over the states that S3 shows and the ledger's rows.

The parts of a run write the entries of a listing or a scan as Parquet files, a slice at a time. The query in
`audit.sql` joins them and nominates candidates. DuckDB does both. It spills to disk beyond the memory that it may use.
"""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from intake_ledger.audit.diff import Window
from intake_ledger.audit.relations import CANDIDATE_COLUMNS, COLUMNS, QUERY, judged, no_entries

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_MEMORY_SHARE = 0.6
"""Share of the function's memory for DuckDB, which counts its buffers and not all of its allocations."""
MOST_CANDIDATES = 10_000_000
"""Candidates that one run looks at: as many as are written within the function's fifteen minutes. The next run finds
the rest."""
_FETCHED = 5_000


@dataclass(frozen=True, slots=True)
class Slice:
    """Metadata of one file: where it begins and where the next one of its part begins, as the part writes a place.

    An empty `start` is the part's beginning, an empty `after` its end. The slices of a part that is complete form a
    chain, also after repeated calls.
    """

    start: str
    after: str
    read: int
    """Entries of the listing, or rows of the scan."""
    written: int
    """Those of them that the filters take."""
    later_format: int
    """Rows that a later release wrote."""
    begun_at: int
    ended_at: int


def write(path: Path, relation: str, content: Iterable[Sequence[Any]], about: Callable[[], Slice]) -> None:
    """Write the rows of one slice, and then what `about` says of it, as a Parquet file.

    Memory does not grow with the slice: the rows go through a file of JSON lines.
    """
    columns = COLUMNS[relation]
    lines = path.with_suffix(".ndjson")
    try:
        with lines.open("w", encoding="ascii") as file:
            for row in content:
                # ASCII: JSON writes every other character of a key as an escape.
                file.write(json.dumps(dict(zip(columns, row, strict=True))))
                file.write("\n")
        types = ", ".join(f"{name}: '{kind}'" for name, kind in columns.items())
        # Hexadecimal: a place has a key in it, which may have quotes.
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
        """The slices of a part from its beginning to its end; None when there is a gap."""
        found: list[Slice] = []
        after = ""
        while not found or after:
            one = self._slices.get(slice_name(part, len(found)))
            if one is None or one.start != after:
                return None
            found.append(one)
            after = one.after
        return found

    @contextmanager
    def audited(self, parts: Sequence[str], window: Window, *, deletes: bool, all_listed: bool) -> Iterator["Audited"]:
        """The query over these parts, all of them complete.

        `all_listed`: the slices show the whole bucket, so a row without a listed state belongs to a removed object.
        """
        with connection(self._folder) as duck:
            for relation in COLUMNS:
                duck.execute(f"CREATE VIEW {relation} AS {self._relation(relation, parts)}")
            duck.execute(f"CREATE VIEW judged AS {judged(window, deletes=deletes, all_listed=all_listed)}")
            duck.execute(f"CREATE VIEW audited AS {QUERY.read_text()}")
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
            found = duck.execute(
                f"SELECT file_name, decode(value) FROM parquet_kv_metadata({_texts(files)}) WHERE decode(key) = 'slice'"
            ).fetchall()
        return {Path(name).stem: Slice(*json.loads(bytes.fromhex(about))) for name, about in found}


@dataclass(frozen=True, slots=True)
class Audited:
    """The result of the query."""

    duck: "DuckDBPyConnection"

    def lines(self) -> dict[str, int]:
        """The number of listed states in each line, and of candidates."""
        found = self.duck.execute("SELECT line, count(*) FROM audited WHERE shown GROUP BY line").fetchall()
        return dict(found)

    def candidates(self) -> Iterator[Sequence[Any]]:
        """The values of `CANDIDATE` for each; at most `MOST_CANDIDATES` and one more."""
        query = f"SELECT {CANDIDATE_COLUMNS} FROM audited WHERE line = 'candidate' LIMIT {MOST_CANDIDATES + 1}"
        found = self.duck.execute(query)
        while few := found.fetchmany(_FETCHED):
            yield from few


def slice_name(part: str, number: int) -> str:
    """The name of a slice, without suffix: a repeated call writes the same file."""
    return f"{part}-{number:05d}"


@contextmanager
def connection(folder: Path) -> Iterator["DuckDBPyConnection"]:
    """DuckDB within the function's memory, which spills to a folder, and neither loads nor looks for extensions."""
    # Only the audit in parts has the layer with it.
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
