"""Lists the running executions of the state machine or the durable function that is the pipeline's processor."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Protocol

from rich.console import Group, RenderableType
from rich.text import Text

from intake_ledger.executions.decide import STOPPED, Execution, execution_name
from intake_ledger.executions.state_machine import StateMachine
from intake_ledger.protocol.row import Row, RowKey, Status
from intake_ledger.protocol.settings_executions import ExecutionSettings
from intake_ledger_cli.aws.clients import Aws
from intake_ledger_cli.aws.deployed import DeployedPipeline
from intake_ledger_cli.aws.reading import ObjectRow
from intake_ledger_cli.kinds import check_kind
from intake_ledger_cli.show import formatting
from intake_ledger_cli.show.console import DIM, GOOD, WARNING
from intake_ledger_cli.show.render import table

if TYPE_CHECKING:
    from mypy_boto3_stepfunctions import SFNClient

MOST = 1_000
"""The largest number of executions that are counted: a page of Step Functions."""


class Executions(Protocol):
    """The place of executions. Its methods raise ClientError if AWS refuses a request."""

    def started(self) -> Iterator[tuple[str, int]]:
        """The ARN and the start of each execution that runs, newest first. Starts are epoch milliseconds."""

    def aborted(self, since: int) -> Iterator[tuple[str, int]]:
        """The ARN and the end of each execution that was aborted since a time, newest first, in one request."""

    def given(self, arn: str) -> str:
        """The input of an execution."""

    def last_step(self, arn: str) -> str | None:
        """The last operation of an execution. None if one request does not give it."""

    def of_row(self, place: RowKey, row: Row) -> str:
        """The ARN of the execution of a row's claim, or its name if AWS has not told the ARN."""

    def describe(self, place: RowKey, row: Row) -> Execution | None:
        """The execution of a row's claim. None: it does not exist."""


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

    def aborted(self, since: int) -> Iterator[tuple[str, int]]:
        """Read one page. Executions that an overtaking change has stopped are among them."""
        page = self._client.list_executions(stateMachineArn=self._machine, statusFilter="ABORTED", maxResults=100)
        ends = ((one["executionArn"], int(one["stopDate"].timestamp() * 1000)) for one in page["executions"])
        return (one for one in ends if one[1] >= since)

    def given(self, arn: str) -> str:
        """See `Executions`."""
        return self._client.describe_execution(executionArn=arn).get("input", "{}")

    def last_step(self, arn: str) -> str | None:  # noqa: ARG002 - see `Executions`
        """None: the history of a machine has no short answer."""
        return None

    def of_row(self, place: RowKey, row: Row) -> str:
        """See `Executions`."""
        return f"{self._machine.replace(':stateMachine:', ':execution:', 1)}:{execution_name(place, row.fence)}"

    def describe(self, place: RowKey, row: Row) -> Execution | None:
        """See `Executions`."""
        # The outcome counts only for the consumer, so the limits of its settings do not.
        settings = ExecutionSettings(self._machine, 0, 0)
        return StateMachine(lambda: self._client, settings).describe(execution_name(place, row.fence))


def executions_of(aws: Aws, deployed: DeployedPipeline) -> Executions | None:
    """The executions of a pipeline. None if its work is not done in executions.

    Raises:
        CliError: boto3 is too old for them.

    """
    if deployed.durable is not None:
        from intake_ledger_cli.aws.durable_executions import DurableExecutions  # noqa: PLC0415 - few have one

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
class AbortedExecution:
    """An execution that a person has aborted, and whose key no message has asked about since."""

    key: str | None
    execution: str
    """Its ARN."""
    stopped_at: int
    """Epoch milliseconds."""


@dataclass(frozen=True, slots=True)
class RunningExecutions:
    """The document of `list --status running`, newest first."""

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


def last_aborted(executions: Executions, since: int) -> list[AbortedExecution]:
    """Describe the last execution that was aborted since a time. The others have no key.

    Raises:
        ClientError: AWS refuses a request.

    """
    found = [AbortedExecution(None, arn, at) for arn, at in executions.aborted(since)]
    if not found:
        return []
    change = json.loads(executions.given(found[0].execution))
    own = isinstance(change, dict) and "intake" in change
    return [replace(found[0], key=change["key"] if own else None), *found[1:]]


def list_running(aws: Aws, deployed: DeployedPipeline, limit: int) -> RunningExecutions:
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
    check_kind(deployed, "list --status running")
    executions = executions_of(aws, deployed)
    found = []
    for arn, started_at in islice(executions.started() if executions else (), limit):
        assert executions is not None
        change = json.loads(executions.given(arn))
        own = isinstance(change, dict) and "intake" in change
        key, attempt = (change["key"], change["attempt"]) if own else (None, None)
        found.append(RunningExecution(key, attempt, arn, started_at, executions.last_step(arn)))
    return RunningExecutions(found)


def without_running(aws: Aws, deployed: DeployedPipeline, rows: Iterator[ObjectRow], now: int) -> Iterator[ObjectRow]:
    """Leave out rows whose execution runs, or is about to be started. Their leases do not tell that.

    Raises:
        CliError: boto3 is too old for them.
        ClientError: AWS refuses a request.

    """
    executions = executions_of(aws, deployed)
    running = {arn for arn, _ in executions.started()} if executions else set()
    for entry in rows:
        place = _place(deployed, entry.key, entry.row)
        if executions is None or place is None:
            yield entry
        elif executions.of_row(place, entry.row) not in running:
            found = executions.describe(place, entry.row)
            if found.has_ended if found else not entry.row.is_live(now):
                yield entry


def executions_table(found: RunningExecutions, now: int) -> RenderableType:
    """The table of `list --status running`."""
    if not found.executions:
        return Text("none", style=GOOD)
    titles = ["since", "attempt", "key", *(["last step"] if any(one.last_step for one in found.executions) else [])]
    rows = []
    for one in found.executions:
        key = Text("not started by the pipeline", style=WARNING) if one.key is None else one.key
        row = (formatting.duration(now - one.started_at), one.attempt or "", key, one.last_step or "")
        rows.append(row[: len(titles)])
    # A table would break the ARNs, which people copy.
    arns = [Text(one.execution, style=DIM, overflow="ignore", no_wrap=True) for one in found.executions]
    return Group(table(titles, rows), *arns)


NOT_STARTED = "its execution was not started, and no message has come back to start it"
END_IT = "`release --end` ends it for good"


def standing(executions: Executions, deployed: DeployedPipeline, key: str, row: Row, now: int) -> tuple[bool, str]:
    """Ask the execution of an unfinished row how it stands.

    Returns:
        True if it exists or may still be started, and the text for people.

    Raises:
        ClientError: AWS refuses a request.

    """
    place = _place(deployed, key, row)
    found = executions.describe(place, row) if place is not None else None
    wish = "" if row.pending_reason is None else f". Its rejection waits for the next message: {row.pending_reason}"
    if found is None and row.is_live(now):
        return True, f"its execution is about to be started{wish}"
    if found is None:
        return False, f"{NOT_STARTED}{wish or f'. {END_IT}'}"
    if not found.has_ended:
        return True, f"its execution is {found.status}{wish}"
    ended = formatting.relative_time(found.stopped_at or now, now)
    next_step = "the next message records it"
    if found.status in STOPPED and row.status is Status.PROCESSING:
        next_step = f"when its longest task could have ended, {next_step}, and another attempt may follow"
    return True, f"its execution is {found.status} since {ended}: {next_step}{wish or f'. {END_IT}'}"


def execution_of(executions: Executions | None, deployed: DeployedPipeline, key: str, row: Row | None) -> str | None:
    """Return the ARN or the name of the execution of a row's last claim. None without executions, or if a request
    settled the row without an attempt.
    """
    place = _place(deployed, key, row)
    return None if executions is None or row is None or place is None else executions.of_row(place, row)


def _place(deployed: DeployedPipeline, key: str, row: Row | None) -> RowKey | None:
    """The key of a row with an attempt."""
    return None if row is None or not row.attempts else deployed.row_key(key, row.identity)
