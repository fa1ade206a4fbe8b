"""Records who did what and when in the ledger's table and in the consumer's log, and asks before a command that stops,
moves or repeats work.

The items have the partition key `<pipeline>#operations`. No row has such a key. They expire after a year.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import typer
from botocore.exceptions import ClientError

from intake_ledger.ledger.dynamodb_table import LedgerTable
from intake_ledger.protocol.row import RowKey, from_dynamodb
from intake_ledger_cli.app import now_ms
from intake_ledger_cli.aws.clients import Aws
from intake_ledger_cli.aws.consumer_log import write_operation
from intake_ledger_cli.aws.deployed import DeployedPipeline
from intake_ledger_cli.errors import UsageError, unless_denied
from intake_ledger_cli.show.console import console, escape
from intake_ledger_cli.show.formatting import timestamp

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

_KEPT_MS = 365 * 86_400_000
LOOKED_MS = 14 * 86_400_000
"""No queue has a message of an older operation: it keeps one for 14 days at most."""
SEARCHED = 100
"""Operations among which one is searched."""
UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation of a person. `at` is in epoch milliseconds."""

    at: int
    by: str
    what: str
    because: str
    result: str = ""
    """The numbers at the end. Empty while the command runs, if it was killed, and for commands with one step."""
    request_id: str = ""
    """The ID of a `retry`, a ULID."""
    sent: int | None = None
    """The number of its recorded requests, at the end. None: they are not recorded."""
    unmarked: int = 0
    """The number of its messages that do not carry its ID. A stop does not reach them."""


class Sent(NamedTuple):
    """The numbers of messages that an operation has sent; see `Operation.sent` and `Operation.unmarked`."""

    recorded: int | None = None
    unmarked: int = 0


def caller(aws: Aws) -> str:
    """Return the ARN of the caller, or `unknown` if AWS does not tell it."""
    try:
        return str(aws.sts.get_caller_identity()["Arn"])
    except ClientError:
        return UNKNOWN


def may_ask(*, yes: bool) -> bool:
    """Return True if `acting` will ask a person."""
    return not yes and sys.stdin.isatty()


@dataclass(slots=True)
class Act:
    """An operation while it runs."""

    operation: Operation
    numbers: Callable[[], str] = str
    """The work until now, in numbers. At the end, the result."""
    sent: Callable[[], Sent] = Sent

    def ends(self, result: str) -> None:
        """Set the result."""
        self.numbers = lambda: result


@contextmanager
def acting(
    aws: Aws,
    deployed: DeployedPipeline,
    what: str,
    *,
    does: str = "",
    yes: bool = True,
    because: str = "",
    by: str = "",
    request_id: str = "",
) -> Iterator[Act]:
    """Ask, record that an operation begins, and at its end the result: also of a failure, with the numbers so far.

    Args:
        aws: clients.
        deployed: the pipeline.
        what: the command with its selection.
        does: its effect as a sentence. Empty: it does not ask.
        yes: do not ask.
        because: the reason, for others.
        by: the caller. Empty: AWS is asked.
        request_id: the ID of its requests.

    Raises:
        UsageError: Standard input is not a terminal.
        Abort: The person declined.

    """
    by = by or caller(aws)
    if does:
        _confirm(f"{does} ({_place(by)}, {aws.region or UNKNOWN})", yes=yes)
    act = Act(Operation(now_ms(), by, what, because, request_id=request_id))
    _begin(aws, deployed, act.operation)
    try:
        yield act
    except BaseException as error:
        stopped = isinstance(error, (KeyboardInterrupt, SystemExit))
        why = "interrupted" if stopped else f"failed: {error}"
        _finish(aws, deployed, act, "; ".join(filter(None, [why, act.numbers()])))
        raise
    _finish(aws, deployed, act, act.numbers())


def _confirm(what: str, *, yes: bool) -> None:
    notes = console(stderr=True)
    notes.print(escape(what))
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError("there is no terminal to ask at: use --yes")
    typer.confirm("Continue?", abort=True, err=True)


def _begin(aws: Aws, deployed: DeployedPipeline, operation: Operation) -> None:
    """Write the operation into the ledger's table and into the consumer's log, and one line about it on standard error.

    A denied write is told, and does not stop the command.
    """
    notes, why = console(stderr=True), f" because {operation.because}" if operation.because else ""
    notes.print(escape(f"{timestamp(operation.at)} {operation.what} by {operation.by}{why}"))
    with unless_denied(lambda action: notes.print(f"not recorded in the ledger: {action} is not allowed")):
        _write(aws, deployed, operation)
    if problem := write_operation(aws, deployed, operation, at=operation.at):
        notes.print(escape(f"not written to the consumer's log: {problem}"))


def _finish(aws: Aws, deployed: DeployedPipeline, act: Act, result: str) -> None:
    """Add the result to the record. A denied write was told when the operation began."""
    sent = act.sent()
    operation = replace(act.operation, result=result, sent=sent.recorded, unmarked=sent.unmarked)
    write_operation(aws, deployed, operation, at=now_ms())
    with unless_denied():
        _write(aws, deployed, operation)


def _write(aws: Aws, deployed: DeployedPipeline, operation: Operation) -> None:
    command, *_ = operation.what.split()
    content = {name: value for name, value in asdict(operation).items() if value is not None}
    content |= {"done_by": content.pop("by"), "expires_at": (operation.at + _KEPT_MS) // 1000}
    place = RowKey(deployed.operations_partition, f"{operation.at:014d}#{command}")
    LedgerTable(aws.dynamodb, deployed.table).write(place, content)


def read_operations(client: "DynamoDBClient", deployed: DeployedPipeline, limit: int) -> list[Operation]:
    """Return the last operations, newest first."""
    pages = client.get_paginator("query").paginate(
        TableName=deployed.table,
        # A record begins with its time. The lock of redrives comes after all records.
        KeyConditionExpression="#pk = :pk AND #sk < :records_end",
        ExpressionAttributeNames={"#pk": "pk", "#sk": "sk"},
        ExpressionAttributeValues={":pk": {"S": deployed.operations_partition}, ":records_end": {"S": ":"}},
        ScanIndexForward=False,
        PaginationConfig={"PageSize": limit},
    )
    items = (from_dynamodb(item) for page in pages for item in page["Items"])
    names = [one.name for one in fields(Operation)]
    return [
        Operation(by=item["done_by"], **{name: item[name] for name in names if name in item})
        for item in islice(items, limit)
    ]


def _place(arn: str) -> str:
    """The account of an ARN, for people."""
    parts = arn.split(":")
    return f"account {parts[4]}" if len(parts) > 5 else "account unknown"
