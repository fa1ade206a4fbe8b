"""Athena over the files of a run: DuckDB runs its statements, over tables as the construct makes them in Glue.

Of Athena's own behaviour it has the request tokens, partitions of the type `injected`, lists of files in place of
folders, and results as CSV. It runs a statement when a test reads it.
"""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import duckdb
import sqlglot
from botocore.exceptions import ClientError
from botocore.response import StreamingBody
from sqlglot import exp

from cdk_intake_ledger.audit.athena import PARTITION, TABLES

DATABASE, WORK_GROUP = "intake_ledger_orders_1", "group"
DUCKDB_TYPES = {"string": "VARCHAR", "bigint": "BIGINT", "boolean": "BOOLEAN"}
SUCCEEDED = {"State": "SUCCEEDED"}
QUERY_BYTES = 262_144
"""The longest statement (Athena API reference, "StartQueryExecution")."""


class FakeAthena:
    """Athena's client, and S3's for its results.

    Args:
        manifest: the text of a run's list of files, by the run and the relation.
        local: where the file of a URI is on this machine.

    """

    def __init__(self, manifest: Callable[[str, str], str], local: Callable[[str], Path]) -> None:
        self._manifest, self._local = manifest, local
        self.executions: list[dict[str, Any]] = []
        """The requests that started one."""
        self.states: list[dict[str, Any]] = []
        """The answers of `get_query_execution` before the statement is run, one after the other."""
        self.read: set[str] = set()
        """The URIs of the files that were read."""
        self._results: dict[str, bytes] = {}

    def start_query_execution(self, **request: Any) -> dict[str, Any]:
        assert 32 <= len(request["ClientRequestToken"]) <= 128
        assert len(request["QueryString"].encode()) <= QUERY_BYTES
        assert (request["WorkGroup"], request["QueryExecutionContext"]) == (WORK_GROUP, {"Database": DATABASE})
        for number, one in enumerate(self.executions):
            if one["ClientRequestToken"] == request["ClientRequestToken"]:
                if one != request:
                    error = {"Code": "InvalidRequestException", "Message": "Idempotent parameters do not match"}
                    raise ClientError({"Error": cast("Any", error)}, "StartQueryExecution")
                return {"QueryExecutionId": str(number)}
        self.executions.append(request)
        return {"QueryExecutionId": str(len(self.executions) - 1)}

    def get_query_execution(self, *, QueryExecutionId: str) -> dict[str, Any]:  # noqa: N803 - as boto3 has it
        status = self.states.pop(0) if self.states else SUCCEEDED
        if status["State"] == "SUCCEEDED" and QueryExecutionId not in self._results:
            self._results[QueryExecutionId] = self._run(self.executions[int(QueryExecutionId)]["QueryString"])
        location = f"s3://files/results/{QueryExecutionId}.csv"
        return {"QueryExecution": {"Status": status, "ResultConfiguration": {"OutputLocation": location}}}

    def get_object(self, *, Bucket: str, Key: str) -> dict[str, Any]:  # noqa: N803 - as boto3 has it
        assert Bucket == "files"
        content = self._results[Key.removeprefix("results/").removesuffix(".csv")]
        return {"Body": StreamingBody(cast("Any", io.BytesIO(content)), len(content))}

    def _run(self, statement: str) -> bytes:
        parsed = sqlglot.parse_one(statement, dialect="trino")
        with duckdb.connect() as duck:
            duck.execute(f'CREATE SCHEMA "{DATABASE}"')
            for table in parsed.find_all(exp.Table):
                if table.db:
                    assert table.db == DATABASE
                    self._make(duck, table.name, _partition(table))
            found = duck.execute(statement)
            names = [one[0] for one in found.description or ()]
            return _csv(names, found.fetchall())

    def _make(self, duck: duckdb.DuckDBPyConnection, relation: str, run: str) -> None:
        uris = self._manifest(run, relation).splitlines()
        self.read.update(uris)
        files = [str(self._local(uri)) for uri in uris]
        columns = ", ".join(
            f"CAST({name} AS {DUCKDB_TYPES[kind]}) AS {name}" for name, kind in TABLES[relation].items()
        )
        value = run.replace("'", "''")
        view = f"SELECT {columns}, '{value}' AS {PARTITION} FROM read_parquet({files})"
        duck.execute(f'CREATE VIEW "{DATABASE}"."{relation}" AS {view}')


def _partition(table: exp.Table) -> str:
    """The run that a table is asked for. Without exactly one, Athena refuses the query."""
    select = cast("exp.Select", table.parent_select)
    (where,) = [one for one in select.find_all(exp.EQ) if one.this.name == PARTITION]
    return cast("str", where.expression.this)


def _csv(names: list[str], rows: list[tuple[Any, ...]]) -> bytes:
    """As Athena writes it: text in quotes, and nothing at all for NULL."""

    def field(value: Any) -> str:
        if value is None:
            return ""
        text = str(value).lower() if isinstance(value, bool) else str(value)
        return '"' + text.replace('"', '""') + '"'

    lines = [",".join(f'"{name}"' for name in names), *(",".join(map(field, row)) for row in rows)]
    return "".join(f"{line}\n" for line in lines).encode()
