"""Runs statements on Athena, and reads their results."""

import csv
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_plus, urlsplit

from intake_ledger.audit.athena_query import CANDIDATES, LINES
from intake_ledger.audit.relations import CANDIDATE

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_WORKING = ("QUEUED", "RUNNING")
_CHUNK_BYTES = 2**20
_MOST_REASON = 300


@dataclass(frozen=True, slots=True)
class Execution:
    """One execution of a statement, as Athena shows it now."""

    working: bool
    failure: str
    """The reason for a missing result. Empty if there is a result."""
    retryable: bool
    """True if Athena says that a repeated statement may succeed."""
    result: str
    """The URI of the result, `s3://<bucket>/<key>`."""


class Athena:
    """The statements of runs, in one work group and one database."""

    def __init__(self, client: Any, s3: "S3Client", *, work_group: str, database: str) -> None:
        """Ask with `client`, boto3's for Athena; its results are in S3."""
        self._client = client
        self._s3 = s3
        self._work_group = work_group
        self.database = database

    def start(self, run: str, name: str, statement: str, attempt: int) -> str:
        """Start a statement of a run. A repeated call starts nothing and gives the same id."""
        token = hashlib.sha256("\n".join((self.database, run, name, str(attempt))).encode()).hexdigest()
        started = self._client.start_query_execution(
            QueryString=statement,
            ClientRequestToken=token,
            QueryExecutionContext={"Database": self.database},
            WorkGroup=self._work_group,
        )
        return str(started["QueryExecutionId"])

    def look(self, id: str) -> Execution:
        """The state of an execution."""
        found = self._client.get_query_execution(QueryExecutionId=id)["QueryExecution"]
        status = found["Status"]
        state = status["State"]
        # The lines after the first one quote the statement.
        reason = (status.get("StateChangeReason") or "Athena gives no reason").partition("\n")[0]
        return Execution(
            working=state in _WORKING,
            failure="" if state in (*_WORKING, "SUCCEEDED") else f"{state}: {reason[:_MOST_REASON]}",
            retryable=bool(status.get("AthenaError", {}).get("Retryable")),
            result=found.get("ResultConfiguration", {}).get("OutputLocation", ""),
        )

    def result(self, executions: Mapping[str, Execution]) -> "AthenaResult":
        """The results of a run's statements, by the statements' names."""
        return AthenaResult(self._s3, {name: one.result for name, one in executions.items()})


@dataclass(frozen=True, slots=True)
class AthenaResult:
    """The result of the query, in files that Athena wrote."""

    s3: "S3Client"
    uris: Mapping[str, str]

    def lines(self) -> dict[str, int]:
        """The number of listed states in each line, and of candidates."""
        return {row["line"]: int(row["number"]) for row in self._rows(LINES)}

    def candidates(self) -> Iterator[Sequence[Any]]:
        """The values of `CANDIDATE` for each; at most `MOST_CANDIDATES` and one more."""
        for row in self._rows(CANDIDATES):
            yield [_value(row[name], kind) for name, kind in CANDIDATE.items()]

    def _rows(self, name: str) -> Iterator[dict[str, str]]:
        where = urlsplit(self.uris[name])
        body = self.s3.get_object(Bucket=where.netloc, Key=where.path.removeprefix("/"))["Body"]
        # The body compares its length at its end.
        yield from csv.DictReader(line.decode("ascii") for line in body.iter_lines(_CHUNK_BYTES))


def _value(text: str, kind: type) -> Any:
    # An empty field is NULL: none of the columns has empty texts.
    if not text:
        return None
    if kind is bool:
        return text.lower() == "true"
    return unquote_plus(text) if kind is str else kind(text)
