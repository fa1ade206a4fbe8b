"""Runs the query of `audit.sql` on Athena, and reads the results.

The files of a run are named in `<run>/<relation>/symlink.txt`, and the partitions of the tables are the runs. So a
statement reads exactly the files of complete parts, and no crawler is needed.
"""

import csv
import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_plus, urlsplit

from intake_ledger.audit.diff import Window
from intake_ledger.audit.join.duckdb import MOST_CANDIDATES
from intake_ledger.audit.relations import CANDIDATE, COLUMNS, QUERY, judged, no_entries

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

LINES, CANDIDATES = "lines", "candidates"
"""Names of the two statements of a run."""
MANIFEST = "symlink.txt"
PARTITION = "run"
# Athena holds the right side of a join in memory: the ledger's rows, which are fewer than the objects
# (https://docs.aws.amazon.com/athena/latest/ug/performance-tuning.html).
_ORDER = ("FROM held\nFULL JOIN listed", "FROM listed\nFULL JOIN held")
_WORKING = ("QUEUED", "RUNNING")
_CHUNK_BYTES = 2**20
_MOST_REASON = 300


def statements(
    database: str, run: str, relations: Collection[str], window: Window, *, deletes: bool, all_listed: bool
) -> dict[str, str]:
    """The statements of a run by name. `relations` names the relations that have files."""
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


@dataclass(frozen=True, slots=True)
class QueryExecution:
    """One execution of a statement, as Athena reports it."""

    working: bool
    failure: str
    """The reason for a missing result. Empty if there is a result."""
    retryable: bool
    """True if Athena says that a repeated statement may succeed."""
    result: str
    """The URI of the result, `s3://<bucket>/<key>`."""


class Athena:
    """Starts the statements of runs in one work group and one database."""

    def __init__(self, client: Any, s3: "S3Client", *, work_group: str, database: str) -> None:
        self._client = client
        self._s3 = s3
        self._work_group = work_group
        self.database = database

    def start(self, run: str, name: str, statement: str, attempt: int) -> str:
        """Start a statement of a run, and return the ID of its execution. A repeated call returns the same ID."""
        token = hashlib.sha256("\n".join((self.database, run, name, str(attempt))).encode()).hexdigest()
        started = self._client.start_query_execution(
            QueryString=statement,
            ClientRequestToken=token,
            QueryExecutionContext={"Database": self.database},
            WorkGroup=self._work_group,
        )
        return str(started["QueryExecutionId"])

    def look(self, id: str) -> QueryExecution:
        """Get the state of an execution."""
        execution = self._client.get_query_execution(QueryExecutionId=id)["QueryExecution"]
        status = execution["Status"]
        state = status["State"]
        # The lines after the first one quote the statement.
        reason = (status.get("StateChangeReason") or "Athena gives no reason").partition("\n")[0]
        return QueryExecution(
            working=state in _WORKING,
            failure="" if state in (*_WORKING, "SUCCEEDED") else f"{state}: {reason[:_MOST_REASON]}",
            retryable=bool(status.get("AthenaError", {}).get("Retryable")),
            result=execution.get("ResultConfiguration", {}).get("OutputLocation", ""),
        )

    def result(self, executions: Mapping[str, QueryExecution]) -> "AthenaResult":
        """The results of a run's statements, by the names of the statements."""
        return AthenaResult(self._s3, {name: execution.result for name, execution in executions.items()})


@dataclass(frozen=True, slots=True)
class AthenaResult:
    """The result of the query, in files that Athena wrote."""

    s3: "S3Client"
    uris: Mapping[str, str]

    def lines(self) -> dict[str, int]:
        """The number of listed states in each line, and of candidates."""
        return {row["line"]: int(row["number"]) for row in self._rows(LINES)}

    def candidates(self) -> Iterator[Sequence[Any]]:
        """The values of `CANDIDATE` for each candidate. At most `MOST_CANDIDATES` + 1."""
        for row in self._rows(CANDIDATES):
            yield [_value(row[name], kind) for name, kind in CANDIDATE.items()]

    def _rows(self, name: str) -> Iterator[dict[str, str]]:
        uri = urlsplit(self.uris[name])
        body = self.s3.get_object(Bucket=uri.netloc, Key=uri.path.removeprefix("/"))["Body"]
        # botocore checks the body's length when it reaches the end.
        yield from csv.DictReader(line.decode("ascii") for line in body.iter_lines(_CHUNK_BYTES))


def _value(text: str, kind: type) -> Any:
    # An empty field is NULL: none of the columns has empty texts.
    if not text:
        return None
    if kind is bool:
        return text.lower() == "true"
    return unquote_plus(text) if kind is str else kind(text)
