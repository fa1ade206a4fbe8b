"""Lists the running executions of a state machine that is the pipeline's processor."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from intake_ledger.executions import execution_name
from intake_ledger.protocol import Row, identity_of, row_key
from intake_ledger_cli import formatting
from intake_ledger_cli.console import DIM, GOOD, WARNING, escape
from intake_ledger_cli.kinds import check_kind
from intake_ledger_cli.reading import ObjectRow

if TYPE_CHECKING:
    from mypy_boto3_stepfunctions import SFNClient

    from intake_ledger_cli.deployed import DeployedPipeline

MOST = 1_000
"""The largest number of executions that are counted: a page of Step Functions."""


@dataclass(frozen=True, slots=True)
class RunningExecution:
    """An execution that runs. Without a key, a person started it and not the pipeline."""

    key: str | None
    attempt: int | None
    execution: str
    """Its ARN."""
    started_at: int
    """Epoch milliseconds."""


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


def count_running(client: "SFNClient", machine: str) -> ExecutionCount:
    """Count the running executions of a machine.

    Raises:
        ClientError: Step Functions refuses the request.

    """
    found = list(islice(_running(client, machine), MOST + 1))
    starts = [_epoch_ms(one) for one in found[:MOST]]
    return ExecutionCount(len(starts), len(found) > MOST, min(starts, default=None))


def list_running(client: "SFNClient", deployed: "DeployedPipeline", limit: int) -> RunningExecutions:
    """Describe the running executions, newest first as Step Functions lists them.

    Args:
        client: the client.
        deployed: the pipeline.
        limit: the largest number of executions.

    Raises:
        UsageError: The pipeline has no state machine.
        ClientError: Step Functions refuses a request.

    """
    check_kind(deployed, "list --running")
    found = []
    for one in islice(_running(client, deployed.state_machine or ""), limit):
        given = client.describe_execution(executionArn=one["executionArn"]).get("input", "{}")
        change = json.loads(given)
        own = isinstance(change, dict) and "intake" in change
        found.append(
            RunningExecution(
                change["key"] if own else None,
                change["attempt"] if own else None,
                one["executionArn"],
                _epoch_ms(one),
            )
        )
    return RunningExecutions(found)


def without_running(
    client: "SFNClient", deployed: "DeployedPipeline", rows: Iterator[ObjectRow]
) -> Iterator[ObjectRow]:
    """Leave out rows whose execution runs, although the lease of their claim has ended.

    Raises:
        ClientError: Step Functions refuses a request.

    """
    for entry in rows:
        arn = execution_arn(deployed, entry.key, entry.row)
        if arn is None or not _runs(client, arn):
            yield entry


def _runs(client: "SFNClient", arn: str) -> bool:
    try:
        return client.describe_execution(executionArn=arn)["status"] in ("RUNNING", "PENDING_REDRIVE")
    except ClientError as error:
        if error.response["Error"].get("Code") != "ExecutionDoesNotExist":
            raise
        return False


def executions_table(found: RunningExecutions, now: int) -> RenderableType:
    """The table of `list --running`."""
    if not found.executions:
        return Text("none", style=GOOD)
    table = Table(box=None, pad_edge=False, header_style=DIM)
    table.add_column("since", no_wrap=True)
    table.add_column("attempt", justify="right", no_wrap=True)
    table.add_column("key", overflow="fold")
    for one in found.executions:
        key = Text("not started by the pipeline", style=WARNING) if one.key is None else escape(one.key)
        table.add_row(formatting.duration(now - one.started_at), str(one.attempt or ""), key)
    # A table would break the ARNs, which people copy.
    arns = [Text(one.execution, style=DIM, overflow="ignore", no_wrap=True) for one in found.executions]
    return Group(table, *arns)


def execution_arn(deployed: "DeployedPipeline", key: str, row: Row | None) -> str | None:
    """The ARN of the execution of a row's last claim. None if the processor is not a state machine, or if a request of
    a person settled the row without an execution.
    """
    if deployed.state_machine is None or row is None or not row.attempts:
        return None
    identity = identity_of(row.kind, row.version_id, row.etag)
    place = row_key(deployed.name, deployed.ordering, deployed.bucket, key, identity)
    machine = deployed.state_machine.replace(":stateMachine:", ":execution:", 1)
    return f"{machine}:{execution_name(place, row.fence)}"


def _running(client: "SFNClient", machine: str) -> Iterator[Any]:
    pages = client.get_paginator("list_executions").paginate(stateMachineArn=machine, statusFilter="RUNNING")
    for page in pages:
        yield from page["executions"]


def _epoch_ms(execution: Any) -> int:
    return int(execution["startDate"].timestamp() * 1000)
