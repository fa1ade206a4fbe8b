"""The statements that Athena runs: the query of `audit.sql` over the files of one run.

A run's files are named in `<run>/<relation>/symlink.txt`, and the tables' partitions are the runs. So a statement reads
exactly the files whose chain is complete, and no crawler has to know of a run.
"""

from collections.abc import Collection

from intake_ledger.audit.diff import Window
from intake_ledger.audit.join import MOST_CANDIDATES
from intake_ledger.audit.relations import CANDIDATE, COLUMNS, QUERY, judged, no_entries

LINES, CANDIDATES = "lines", "candidates"
"""The statements of a run."""
MANIFEST = "symlink.txt"
PARTITION = "run"
# Athena holds the right side of a join in memory: the ledger's rows, which are fewer than the objects
# (https://docs.aws.amazon.com/athena/latest/ug/performance-tuning.html).
_ORDER = ("FROM held\nFULL JOIN listed", "FROM listed\nFULL JOIN held")


def statements(
    database: str, run: str, relations: Collection[str], window: Window, *, deletes: bool, all_listed: bool
) -> dict[str, str]:
    """The statements by name. `relations` names the relations that have files."""
    tables = {relation: _relation(database, run, relation, relation in relations) for relation in COLUMNS}
    tables["judged"] = judged(window, deletes=deletes, all_listed=all_listed)
    tables["audited"] = QUERY.read_text().replace(*_ORDER)
    given = "WITH " + ",\n".join(f"{name} AS (\n{query}\n)" for name, query in tables.items())
    # Text is percent-encoded, so that a result is ASCII, with one row in each line.
    columns = ", ".join(f"url_encode({name}) AS {name}" if kind is str else name for name, kind in CANDIDATE.items())
    return {
        LINES: f"{given}\nSELECT line, count(*) AS number FROM audited WHERE shown GROUP BY line",
        CANDIDATES: f"{given}\nSELECT {columns} FROM audited WHERE line = 'candidate' LIMIT {MOST_CANDIDATES + 1}",
    }


def _relation(database: str, run: str, relation: str, has_files: bool) -> str:
    if not has_files:
        return no_entries(relation)
    name = run.replace("'", "''")
    return f'SELECT {", ".join(COLUMNS[relation])} FROM "{database}"."{relation}" WHERE {PARTITION} = \'{name}\''
