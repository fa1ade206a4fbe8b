"""The command that writes the ledger's rows into one file: Parquet, CSV or JSON lines."""

import csv
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import import_module
from itertools import batched
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from intake_ledger.protocol.change import StateKind
from intake_ledger.protocol.reasons import matches_reason
from intake_ledger.protocol.row import Row, Status
from intake_ledger_cli.act.selection import commit_filter, parse_time
from intake_ledger_cli.app import app, argument, option
from intake_ledger_cli.aws import reading
from intake_ledger_cli.aws.clients import Aws
from intake_ledger_cli.aws.deployed import DeployedPipeline
from intake_ledger_cli.aws.reading import ObjectRow
from intake_ledger_cli.errors import CliError, UsageError
from intake_ledger_cli.options import Call, check_reason, with_shared_options
from intake_ledger_cli.read.files import replacing
from intake_ledger_cli.show.formatting import shown_status

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

Value = str | int | bool | None
_TEXT, _NUMBER, _TIME, _TRUTH = "VARCHAR", "BIGINT", "TIMESTAMP", "BOOLEAN"
COLUMNS: dict[str, tuple[str, Callable[[DeployedPipeline, ObjectRow], Value]]] = {
    "source_id": (_TEXT, lambda deployed, _: deployed.name),
    "path": (_TEXT, lambda deployed, one: f"s3://{deployed.bucket}/{one.key}" if deployed.work.in_bucket else one.key),
    "key": (_TEXT, lambda _, one: one.key),
    "version_id": (_TEXT, lambda _, one: one.row.version_id),
    "kind": (_TEXT, lambda _, one: one.row.kind.value),
    "etag": (_TEXT, lambda _, one: one.row.etag),
    "size": (_NUMBER, lambda _, one: one.row.size),
    "status": (_TEXT, lambda _, one: shown_status(one.row)),
    "committed": (_TRUTH, lambda _, one: not _untold(one.row) and one.row.has_committed(one.row.identity)),
    "discovery_time": (_TIME, lambda _, one: _time(one.row.first_claimed_at)),
    "commit_time": (_TIME, lambda _, one: None if _untold(one.row) else _time(one.row.committed_at)),
    "change_time": (_TIME, lambda _, one: _time(one.row.updated_at)),
    "committed_state": (_TEXT, lambda _, one: None if _untold(one.row) else one.row.committed_state),
    "commit_id": (_TEXT, lambda _, one: None if _untold(one.row) else one.row.commit_id),
    "committed_fence": (_NUMBER, lambda _, one: None if _untold(one.row) else one.row.committed_fence),
    "fence": (_NUMBER, lambda _, one: one.row.fence),
    "attempts": (_NUMBER, lambda _, one: one.row.attempts),
    "redrives": (_NUMBER, lambda _, one: one.row.redrive_count),
    "reason_code": (_TEXT, lambda _, one: one.row.reason_code),
    "reason": (_TEXT, lambda _, one: one.row.reason),
    "processor_version": (_TEXT, lambda _, one: None if _untold(one.row) else one.row.processor_version),
    "event_id": (_TEXT, lambda _, one: one.row.event_id),
}
"""The type of each column in DuckDB, and its value. Names of Databricks' `cloud_files_state` mean the same."""
FORMS = (".parquet", ".csv", ".jsonl")
_STATUSES = [status.value for status in Status if status is not Status.LATER_FORMAT]


@dataclass(frozen=True, slots=True)
class ExportResult:
    """The document of `export`."""

    pipeline: str
    file: str | None
    """None: the rows were sent as events."""
    rows: int


@app.command("export")
@with_shared_options
def export_command(
    call: Call,
    file: Annotated[Path | None, argument(help="The file to write: .parquet (needs DuckDB), .csv or .jsonl.")] = None,
    *,
    event_bus: Annotated[
        str | None,
        option(help="Instead of a file: send the last outcome of each row to this bus again, as `OutcomeEvents` does."),
    ] = None,
    prefix: Annotated[str, typer.Option(help="Only keys with this prefix.")] = "",
    status: Annotated[str | None, option(help=f"Only rows with this status: {', '.join(_STATUSES)}.")] = None,
    reason: Annotated[str | None, option(help="Only this reason code, or this text in the reason.")] = None,
    since: Annotated[str | None, option(help="Only rows whose last change is not before this time.")] = None,
    before: Annotated[str | None, option(help="Only rows whose last change is before this time.")] = None,
    committed_since: Annotated[str | None, option(help="Only rows whose last commit is not before this time.")] = None,
    committed_before: Annotated[str | None, option(help="Only rows whose last commit is before this time.")] = None,
    processor_version: Annotated[
        str | None, option(help="Only rows whose last commit was made by this version of the processor.")
    ] = None,
) -> None:
    """Write the rows of the ledger into a file, for SQL, or send their outcomes again. Reads the whole table."""
    if (file is None) is (event_bus is None):
        raise UsageError("export needs a file or --event-bus, and not both")
    if file is not None and file.suffix not in FORMS:
        raise UsageError(f"{file} has no known form: use a name that ends with {', '.join(FORMS)}")
    if status is not None and status.upper() not in _STATUSES:
        raise UsageError(f"--status {status} is no status of a row: use one of {', '.join(_STATUSES)}")
    given = (
        ("status", "=", "status", status and status.upper()),
        ("updated_at", ">=", "since", None if since is None else parse_time(since, "--since")),
        ("updated_at", "<", "before", None if before is None else parse_time(before, "--before")),
    )
    filters = [
        (name, f"#{name} {sign} :{end}", f":{end}", value) for name, sign, end, value in given if value is not None
    ]
    commits = commit_filter(
        processor_version,
        since=("--committed-since", committed_since),
        before=("--committed-before", committed_before),
    )
    duckdb = _duckdb(file) if file is not None and file.suffix == ".parquet" else None
    aws, deployed = call.open()
    request = reading.scan_request(deployed, *filters, *commits.conditions(), prefix=prefix)
    rows = _select(aws.dynamodb, deployed, request, reason)

    def values(one: ObjectRow) -> dict[str, Value]:
        return {name: value(deployed, one) for name, (_, value) in COLUMNS.items()}

    if file is not None:
        number = write_file(file, map(values, rows), duckdb)
        result = ExportResult(deployed.name, str(file), number)
    else:
        number = send_outcomes(aws, deployed, event_bus or "", rows)
        result = ExportResult(deployed.name, None, number)
    if not number:
        check_reason(reason)
    call.output(result)


def _select(
    client: "DynamoDBClient", deployed: DeployedPipeline, request: dict[str, Any], reason: str | None
) -> Iterator[ObjectRow]:
    """Scan the table, a request for each MB. Reads are not consistent: a row may lack the last second."""
    for page in client.get_paginator("scan").paginate(**request):
        for _, entry in reading.entries_of(deployed, page["Items"]):
            if reason is None or matches_reason(reason, entry.row.reason_code, entry.row.reason or ""):
                yield entry


def send_outcomes(aws: Aws, deployed: DeployedPipeline, bus: str, rows: Iterator[ObjectRow]) -> int:
    """Send the last outcome of each row that has one.

    Returns:
        the number of events.

    Raises:
        CliError: EventBridge refuses an event. Those before it were sent.

    """
    from intake_ledger.contract import MESSAGES  # noqa: PLC0415 - for the help
    from intake_ledger.outcome_events import ENTRIES, outcome_of, send  # noqa: PLC0415 - as above

    client = aws.client("events")
    kinds = {deployed.name: "" if deployed.work.in_bucket else MESSAGES}
    number = 0
    for group in batched(rows, ENTRIES):
        found = []
        for one in group:
            place = deployed.row_key(one.key, one.row.identity)
            if event := outcome_of(place.pk, place.sk, None, one.row, kinds):
                found.append((one.key, event))
        if refused := send(client, bus, found):
            raise CliError(f"{bus} refused the event of {refused}: {number:,} were sent before it")
        number += len(found)
    return number


def write_file(path: Path, rows: Iterator[dict[str, Value]], duckdb: Any = None) -> int:
    """Write a file as `replacing` does.

    Args:
        path: of the file. Its suffix is the form.
        rows: the values by column. Memory does not grow with their number.
        duckdb: the module, which makes Parquet of JSON lines.

    Returns:
        The number of rows.

    Raises:
        CliError: As for `replacing`.

    """
    with replacing(path) as part:
        if duckdb is None:
            with part.open("w", encoding="utf-8", newline="") as file:
                return _write(file, rows, as_csv=path.suffix == ".csv")
        from tempfile import TemporaryDirectory  # noqa: PLC0415 - for the help

        with TemporaryDirectory(dir=part.parent, prefix=f".{path.name}.") as folder:
            lines = Path(folder, "lines")
            with lines.open("w", encoding="utf-8") as file:
                number = _write(file, rows, as_csv=False)
            _make_parquet(duckdb, lines, part)
            return number


def _write(file: IO[str], rows: Iterator[dict[str, Value]], *, as_csv: bool) -> int:
    """Write CSV with a header, or JSON lines. Return the number of rows."""
    writer = csv.DictWriter(file, COLUMNS)
    if as_csv:
        writer.writeheader()
    number = 0
    for row in rows:
        if as_csv:
            writer.writerow(row)
        else:
            file.write(json.dumps(row) + "\n")
        number += 1
    return number


def _make_parquet(duckdb: Any, lines: Path, part: Path) -> None:
    columns = {name: kind for name, (kind, _) in COLUMNS.items()}
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        rows = connection.read_json(str(lines), columns=columns, format="newline_delimited")
        rows.write_parquet(str(part), compression="zstd")


def _untold(row: Row) -> bool:
    """True if the row records a removal that no processor was told of: it committed nothing."""
    return row.settled_as is not None and row.kind is not StateKind.OBJECT


def _time(at: int | None) -> str | None:
    return datetime.fromtimestamp(at / 1000, UTC).isoformat(timespec="milliseconds") if at else None


def _duckdb(file: Path) -> Any:
    try:
        return import_module("duckdb")
    except ModuleNotFoundError:
        raise UsageError(
            f"{file} needs DuckDB, which writes Parquet: `pip install 'cdk-intake-ledger[cli,export]'`, or use "
            "the form .csv or .jsonl"
        ) from None
