"""Lists the running executions of the state machine or the durable function that is the pipeline's processor."""

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError
from rich.console import Group, RenderableType
from rich.text import Text

from intake_ledger.executions.decide import STOPPED, Execution, execution_name
from intake_ledger.executions.durable_function import DurableFunction
from intake_ledger.executions.state_machine import StateMachine
from intake_ledger.protocol.row import Row, RowKey, Status
from intake_ledger.protocol.settings_durable import DurableSettings
from intake_ledger.protocol.settings_executions import ExecutionSettings
from intake_ledger_cli.app import now_ms
from intake_ledger_cli.aws.clients import Aws
from intake_ledger_cli.aws.deployed import DeployedPipeline
from intake_ledger_cli.aws.reading import ObjectRow
from intake_ledger_cli.errors import CliError
from intake_ledger_cli.kinds import check_kind
from intake_ledger_cli.show import formatting
from intake_ledger_cli.show.console import DIM, GOOD, WARNING
from intake_ledger_cli.show.render import table

if TYPE_CHECKING:
    from mypy_boto3_lambda import LambdaClient
    from mypy_boto3_stepfunctions import SFNClient

MOST = 1_000
"""The largest number of executions that are counted: a page of Step Functions."""
_HISTORY = 20
"""Events that are read for the last step. One step has two events, and each invocation has one."""


class Executions(ABC):
    """The place of executions. Its methods raise ClientError if AWS refuses a request."""

    place: StateMachine | DurableFunction

    @abstractmethod
    def started(self) -> Iterator[tuple[str, int]]:
        """The ARN and the start of each execution that runs, newest first. Starts are epoch milliseconds."""

    @abstractmethod
    def given(self, arn: str) -> str:
        """The input of an execution."""

    @abstractmethod
    def of_row(self, place: RowKey, row: Row) -> str:
        """The ARN of the execution of a row's claim, or its name if AWS has not told the ARN."""

    def aborted(self, since: int) -> Iterator[tuple[str, int]]:  # noqa: ARG002 - a state machine has them
        """The ARN and the end of each execution that was aborted since a time, newest first, in one request.

        Those of a durable function are left out: Lambda lists them for each version, which takes too many requests.
        """
        return iter(())

    def last_step(self, arn: str) -> str | None:  # noqa: ARG002 - a durable function has it
        """The last operation of an execution. None if one request does not give it, as of a state machine."""
        return None

    def describe(self, place: RowKey, row: Row) -> Execution | None:
        """The execution of a row's claim. None: it does not exist. QUEUED: Lambda may still begin it."""
        return self.place.describe(execution_name(place, row.fence), row.execution)


class _MachineExecutions(Executions):
    def __init__(self, client: "SFNClient", machine: str) -> None:
        self._client = client
        # The outcome counts only for the consumer, so the limits of its settings do not.
        self._settings = ExecutionSettings(machine, 0, 0)
        self.place = StateMachine(lambda: client, self._settings)

    def started(self) -> Iterator[tuple[str, int]]:
        pages = self._client.get_paginator("list_executions")
        for page in pages.paginate(stateMachineArn=self._settings.machine, statusFilter="RUNNING"):
            for one in page["executions"]:
                yield one["executionArn"], formatting.epoch_ms(one["startDate"])

    def aborted(self, since: int) -> Iterator[tuple[str, int]]:
        # Executions that an overtaking change has stopped are among them.
        page = self._client.list_executions(
            stateMachineArn=self._settings.machine, statusFilter="ABORTED", maxResults=100
        )
        ends = ((one["executionArn"], formatting.epoch_ms(one["stopDate"])) for one in page["executions"])
        return (one for one in ends if one[1] >= since)

    def given(self, arn: str) -> str:
        return self._client.describe_execution(executionArn=arn).get("input", "{}")

    def of_row(self, place: RowKey, row: Row) -> str:
        return self._settings.executions + execution_name(place, row.fence)


class _DurableExecutions(Executions):
    def __init__(self, client: "LambdaClient", settings: DurableSettings, table: str) -> None:
        if not hasattr(client, "list_durable_executions_by_function"):
            import boto3  # noqa: PLC0415 - for the message

            raise CliError(f"boto3 {boto3.__version__} knows no durable functions: install 1.42.1 or a later release")
        self._client: Any = client
        self.place: DurableFunction = DurableFunction(lambda: self._client, settings, table, now_ms)

    def started(self) -> Iterator[tuple[str, int]]:
        # The executions of former versions run on after a deployment.
        function, _, _ = self.place.settings.function.rpartition(":")
        pages = self._client.get_paginator("list_versions_by_function").paginate(FunctionName=function)
        versions = [one["Version"] for page in pages for one in page["Versions"] if one["Version"] != "$LATEST"]
        found = []
        for version in versions:
            request = {"FunctionName": function, "Qualifier": version, "Statuses": ["RUNNING"]}
            for page in self._client.get_paginator("list_durable_executions_by_function").paginate(**request):
                found += page["DurableExecutions"]
        found.sort(key=lambda one: one["StartTimestamp"], reverse=True)
        for one in found:
            yield one["DurableExecutionArn"], formatting.epoch_ms(one["StartTimestamp"])

    def given(self, arn: str) -> str:
        return str(self._client.get_durable_execution(DurableExecutionArn=arn).get("InputPayload") or "{}")

    def last_step(self, arn: str) -> str | None:
        """Return the last named operation, such as `approve (callback started)`. None if the history has none."""
        try:
            answer = self._client.get_durable_execution_history(
                DurableExecutionArn=arn, IncludeExecutionData=False, MaxItems=_HISTORY, ReverseOrder=True
            )
        except ClientError as error:
            if error.response["Error"].get("Code") != "ResourceNotFoundException":
                raise
            return None
        for event in answer["Events"]:
            kind = event["EventType"]
            if event.get("Name") and not kind.startswith(("Execution", "Invocation")):
                return f"{event['Name']} ({re.sub('[A-Z]', lambda one: f' {one[0].lower()}', kind).strip()})"
        return None

    def of_row(self, place: RowKey, row: Row) -> str:
        name = self.place.name_of(execution_name(place, row.fence))
        _, _, arn = (row.execution or "").partition(" ")
        return arn if f"/{name}/" in arn else name


def executions_of(aws: Aws, deployed: DeployedPipeline) -> Executions | None:
    """The executions of a pipeline. None if its work is not done in executions.

    Raises:
        CliError: boto3 is too old for them.

    """
    if deployed.durable is not None:
        return _DurableExecutions(aws.functions, deployed.durable, deployed.table)
    if deployed.state_machine is not None:
        return _MachineExecutions(aws.machines, deployed.state_machine)
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
    return [replace(found[0], key=_change(executions, found[0].execution).get("key")), *found[1:]]


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
    found: list[RunningExecution] = []
    if (executions := executions_of(aws, deployed)) is None:
        return RunningExecutions(found)
    for arn, started_at in islice(executions.started(), limit):
        change = _change(executions, arn)
        found.append(
            RunningExecution(change.get("key"), change.get("attempt"), arn, started_at, executions.last_step(arn))
        )
    return RunningExecutions(found)


def _change(executions: Executions, arn: str) -> dict[str, Any]:
    """The input of an execution that the pipeline has started. Empty for others."""
    content = json.loads(executions.given(arn))
    return content if isinstance(content, dict) and "intake" in content else {}


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
