"""Lists the running executions of the state machine or the durable function that is the pipeline's processor."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Protocol

from botocore.exceptions import ClientError
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from intake_ledger.executions import execution_name
from intake_ledger.protocol import Row, RowKey, identity_of, row_key
from intake_ledger_cli import formatting
from intake_ledger_cli.console import DIM, GOOD, WARNING, escape
from intake_ledger_cli.kinds import check_kind
from intake_ledger_cli.reading import ObjectRow

if TYPE_CHECKING:
    from mypy_boto3_stepfunctions import SFNClient

    from intake_ledger_cli.aws import Aws
    from intake_ledger_cli.deployed import DeployedPipeline

MOST = 1_000
"""The largest number of executions that are counted: a page of Step Functions."""


class Executions(Protocol):
    """The place of executions. Its methods raise ClientError if AWS refuses a request."""

    def started(self) -> Iterator[tuple[str, int]]:
        """The ARN and the start of each execution that runs, newest first. Starts are epoch milliseconds."""

    def given(self, arn: str) -> str:
        """The input of an execution."""

    def last_step(self, arn: str) -> str | None:
        """The last operation of an execution. None if one request does not give it."""

    def of_row(self, place: RowKey, row: Row) -> str:
        """The ARN of the execution of a row's claim, or its name if AWS has not told the ARN."""

    def runs(self, place: RowKey, row: Row) -> bool:
        """True if the execution of a row's claim runs."""


class MachineExecutions:
    """See `Executions`."""

    def __init__(self, client: "SFNClient", machine: str) -> None:
        """Take the client of Step Functions and the ARN of the machine."""
        self._client = client
        self._machine = machine

    def started(self) -> Iterator[tuple[str, int]]:
        """Read the pages of Step Functions."""
        pages = self._client.get_paginator("list_executions")
        for page in pages.paginate(stateMachineArn=self._machine, statusFilter="RUNNING"):
            for one in page["executions"]:
                yield one["executionArn"], int(one["startDate"].timestamp() * 1000)

    def given(self, arn: str) -> str:
        """See `Executions`."""
        return self._client.describe_execution(executionArn=arn).get("input", "{}")

    def last_step(self, arn: str) -> str | None:  # noqa: ARG002 - see `Executions`
        """None: the history of a machine has no short answer."""
        return None

    def of_row(self, place: RowKey, row: Row) -> str:
        """See `Executions`."""
        return f"{self._machine.replace(':stateMachine:', ':execution:', 1)}:{execution_name(place, row.fence)}"

    def runs(self, place: RowKey, row: Row) -> bool:
        """See `Executions`."""
        try:
            answer = self._client.describe_execution(executionArn=self.of_row(place, row))
        except ClientError as error:
            if error.response["Error"].get("Code") != "ExecutionDoesNotExist":
                raise
            return False
        return answer["status"] in ("RUNNING", "PENDING_REDRIVE")


def executions_of(aws: "Aws", deployed: "DeployedPipeline") -> Executions | None:
    """The executions of a pipeline. None if its work is not done in executions.

    Raises:
        CliError: boto3 is too old for them.

    """
    if deployed.durable is not None:
        from intake_ledger_cli.durable_executions import DurableExecutions  # noqa: PLC0415 - few have one

        return DurableExecutions(aws.functions, deployed.durable, deployed.table)
    if deployed.state_machine is not None:
        return MachineExecutions(aws.machines, deployed.state_machine)
    return None


@dataclass(frozen=True, slots=True)
class RunningExecution:
    """An execution that runs. Without a key, a person started it and not the pipeline."""

    key: str | None
    attempt: int | None
    execution: str
    """Its ARN."""
    started_at: int
    """Epoch milliseconds."""
    last_step: str | None
    """The last operation of a durable execution. None for a state machine."""


@dataclass(frozen=True, slots=True)
class RunningExecutions:
    """The document of `list --running`, newest first."""

    executions: list[RunningExecution]


@dataclass(frozen=True, slots=True)
class ExecutionCount:
    """The number of running executions, and the start of the oldest one in epoch milliseconds."""

    running: int
    more: bool
    """There are more than `running`."""
    oldest_at: int | None


def count_running(executions: Executions) -> ExecutionCount:
    """Count the executions that run.

    Raises:
        ClientError: AWS refuses a request.

    """
    starts = [at for _, at in islice(executions.started(), MOST + 1)]
    return ExecutionCount(min(len(starts), MOST), len(starts) > MOST, min(starts[:MOST], default=None))


def list_running(aws: "Aws", deployed: "DeployedPipeline", limit: int) -> RunningExecutions:
    """Describe the running executions, newest first.

    Args:
        aws: the clients.
        deployed: the pipeline.
        limit: the largest number of executions.

    Raises:
        UsageError: The pipeline has no executions.
        CliError: boto3 is too old for them.
        ClientError: AWS refuses a request.

    """
    check_kind(deployed, "list --running")
    executions = executions_of(aws, deployed)
    found = []
    for arn, started_at in islice(executions.started() if executions else (), limit):
        assert executions is not None
        change = json.loads(executions.given(arn))
        own = isinstance(change, dict) and "intake" in change
        key, attempt = (change["key"], change["attempt"]) if own else (None, None)
        found.append(RunningExecution(key, attempt, arn, started_at, executions.last_step(arn)))
    return RunningExecutions(found)


def without_running(aws: "Aws", deployed: "DeployedPipeline", rows: Iterator[ObjectRow]) -> Iterator[ObjectRow]:
    """Leave out rows whose execution runs, although the lease of their claim has ended.

    Raises:
        CliError: boto3 is too old for them.
        ClientError: AWS refuses a request.

    """
    executions = executions_of(aws, deployed)
    for entry in rows:
        place = _place(deployed, entry.key, entry.row)
        if executions is None or place is None or not executions.runs(place, entry.row):
            yield entry


def executions_table(found: RunningExecutions, now: int) -> RenderableType:
    """The table of `list --running`."""
    if not found.executions:
        return Text("none", style=GOOD)
    table = Table(box=None, pad_edge=False, header_style=DIM)
    table.add_column("since", no_wrap=True)
    table.add_column("attempt", justify="right", no_wrap=True)
    table.add_column("key", overflow="fold")
    if steps := any(one.last_step for one in found.executions):
        table.add_column("last step", overflow="fold")
    for one in found.executions:
        key = Text("not started by the pipeline", style=WARNING) if one.key is None else escape(one.key)
        step = [escape(one.last_step or "")] if steps else []
        table.add_row(formatting.duration(now - one.started_at), str(one.attempt or ""), key, *step)
    # A table would break the ARNs, which people copy.
    arns = [Text(one.execution, style=DIM, overflow="ignore", no_wrap=True) for one in found.executions]
    return Group(table, *arns)


def execution_of(executions: Executions | None, deployed: "DeployedPipeline", key: str, row: Row | None) -> str | None:
    """Return the ARN or the name of the execution of a row's last claim. None without executions, or if a request
    settled the row without an attempt.
    """
    place = _place(deployed, key, row)
    return None if executions is None or row is None or place is None else executions.of_row(place, row)


def _place(deployed: "DeployedPipeline", key: str, row: Row | None) -> RowKey | None:
    """The key of a row with an attempt."""
    if row is None or not row.attempts:
        return None
    identity = identity_of(row.kind, row.version_id, row.etag)
    return row_key(deployed.name, deployed.ordering, deployed.bucket, key, identity)
