"""Stops a redrive or a reprocess: its messages that no attempt has begun are withdrawn.

The stop is an item that consumers read. So it works from any machine, also while the operation sends, and after its
end. See docs/protocol.md, "Requests of people".
"""

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError
from rich.console import Group, RenderableType
from rich.text import Text

from intake_ledger.ledger import LedgerTable
from intake_ledger.protocol import Status
from intake_ledger.requests import Command, Standing, Stop, queried_batches, read_stop
from intake_ledger_cli import operations, recording
from intake_ledger_cli.app import now_ms
from intake_ledger_cli.console import DIM, WARNING, escape
from intake_ledger_cli.errors import CliError, UsageError, denied_action
from intake_ledger_cli.formatting import timestamp
from intake_ledger_cli.operations import Operation

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from intake_ledger_cli.aws import Aws
    from intake_ledger_cli.deployed import DeployedPipeline
    from intake_ledger_cli.options import Call

SEARCHED = 100
"""Operations among which one is searched."""
LOOKED_MS = 14 * 86_400_000
"""Without an ID, an operation of this age cannot be meant: a queue keeps a message for 14 days at most."""
_LOOK_SECONDS = 5.0
_NAMED = 10


@dataclass(slots=True)
class StopResult:
    """The document of `--stop`: the end of an operation, and what it cannot undo."""

    stopped: str
    """The ID of the operation."""
    command: str
    outstanding: int = 0
    """Recorded requests that no attempt has begun. They are withdrawn."""
    begun: list[str] = field(default_factory=list)
    """Keys of recorded requests whose attempt has begun or ended. They go on."""
    committed: list[str] = field(default_factory=list)
    """Keys of recorded requests that were committed already."""
    served_before: int = 0
    """Recorded requests that the audit had found served. The records no longer have their keys."""
    unreachable: int = 0
    """Moved messages that do not carry the ID."""
    why: str = ""
    """The reason why rows could not be read."""


def stop(
    call: "Call",
    command: Command,
    request_id: str | None,
    because: str | None,
    *,
    others: "Sequence[object]",
    yes: bool,
) -> None:
    """Carry out `--stop` of a command.

    Args:
        call: the shared options.
        command: the command.
        request_id: the ID of the operation. None: the only one that can be stopped.
        because: the reason, for others.
        others: the values of options that select what the command sends.
        yes: do not ask.

    Raises:
        CliError: There is no such operation, or several.
        UsageError: The reason is missing, or an option has no use.

    """
    if any(one not in (None, False, []) for one in others):
        raise UsageError("--stop takes --id, --because and --yes only: omit what selects objects or messages")
    if not because:
        raise UsageError("--stop needs a reason for others: --because TEXT")
    aws, deployed = call.open(command.value)
    operation = find(aws, deployed, command, request_id)
    does = (
        f"{deployed.name} will withdraw the messages of `{operation.what}` by {operation.by} that no attempt has begun."
    )
    by = operations.ask(aws, does, yes=yes)
    what = f"{command.value} --stop --id {operation.request_id}"
    record = Operation(now_ms(), by, what, because)
    operations.record(aws, deployed, record)
    with operations.noting_failures(aws, deployed, record):
        done = carry_out(aws, deployed, operation, command, Stop(operation.request_id, record.at, by, because))
    numbers = f"{done.outstanding:,} outstanding, {len(done.committed):,} committed before"
    operations.finish(aws, deployed, record, numbers)
    call.output(done, stop_lines(done))


def find(aws: "Aws", deployed: "DeployedPipeline", command: Command, request_id: str | None) -> Operation:
    """The operation to stop.

    Raises:
        CliError: There is no such operation, or several. The message lists them.

    """
    known = [
        one
        for one in operations.read_operations(aws.dynamodb, deployed, SEARCHED)
        if one.request_id and one.what.split()[0] == command.value
    ]
    if request_id is not None:
        found = [one for one in known if one.request_id == request_id]
        if not found:
            raise CliError(
                f"--id {request_id} is no {command.value} among the last {SEARCHED} operations: see `intake-ledger "
                "operations`"
            )
        return found[0]
    table = LedgerTable(aws.dynamodb, deployed.table)
    recent = [one for one in known if one.at > now_ms() - LOOKED_MS]
    open_ = [one for one in recent if read_stop(table, deployed.name, one.request_id) is None]
    if len(open_) == 1:
        return open_[0]
    if not open_:
        raise CliError(f"no {command.value} of the last 14 days can be stopped: see `intake-ledger operations`")
    listed = "\n".join(f"  --id {one.request_id}  {timestamp(one.at)}  {one.what}  by {one.by}" for one in open_)
    raise CliError(f"{len(open_)} operations can be stopped: name one of them with --id\n{listed}")


def carry_out(
    aws: "Aws", deployed: "DeployedPipeline", operation: Operation, command: Command, stopped: Stop
) -> StopResult:
    """Write the stop, and look what it cannot undo.

    Raises:
        ClientError: The stop is not written.

    """
    # An earlier stop stays.
    LedgerTable(aws.dynamodb, deployed.table).put_new(stopped.key(deployed.name), stopped.item)
    done = StopResult(operation.request_id, command.value, unreachable=operation.unmarked or 0)
    try:
        _look(aws, deployed, done, operation.sent)
    except ClientError as error:
        if (action := denied_action(error)) is None:
            raise
        done.why = f"{action} is not allowed"
    return done


def _look(aws: "Aws", deployed: "DeployedPipeline", done: StopResult, sent: int | None) -> None:
    batches = queried_batches(aws.dynamodb, deployed.table, deployed.name)
    own = [one for one in batches if one.request_id == done.stopped]
    done.served_before = max(0, (sent or 0) - sum(len(one.entries) + one.lost for one in own))
    for batch in own:
        for entry, row, standing in recording.standings(aws, deployed, batch):
            if standing in (Standing.OUTSTANDING, Standing.NO_ROW):
                done.outstanding += 1
            elif standing is Standing.SERVED and row is not None and row.status is Status.PROCESSED:
                done.committed.append(entry.key)
            elif standing in (Standing.SERVED, Standing.IN_WORK):
                done.begun.append(entry.key)


def stop_lines(done: StopResult) -> RenderableType:
    """The stop for people."""
    goes = "back into the dead-letter queue" if done.command == Command.REDRIVE else "acknowledged"
    lines = [
        Text(f"stopped {done.stopped}: within a minute, consumers withdraw its messages ({goes})"),
        Text(f"{done.outstanding:,} recorded requests are outstanding", style=DIM),
    ]
    lines += _named("were committed before the stop", done.committed)
    lines += _named("are in work or failed, and go on", done.begun)
    if done.served_before:
        text = f"{done.served_before:,} more were served before the last look of the audit, which keeps no keys"
        lines.append(Text(text, style=WARNING))
    if done.unreachable:
        text = f"{done.unreachable:,} messages do not carry the ID, and cannot be withdrawn"
        lines.append(Text(text, style=WARNING))
    if done.why:
        lines.append(Text(f"the requests are not known: {escape(done.why)}", style=WARNING))
    return Group(*lines)


def _named(what: str, keys: "Sequence[str]") -> "list[Text]":
    if not keys:
        return []
    more = f" and {len(keys) - _NAMED:,} more, see --json" if len(keys) > _NAMED else ""
    return [Text(escape(f"{len(keys):,} {what}: {', '.join(keys[:_NAMED])}{more}"), style=WARNING)]


class StopWatch:
    """Ends an operation that another person has stopped. Without permission to read, only consumers see the stop."""

    def __init__(
        self,
        aws: "Aws",
        deployed: "DeployedPipeline",
        request_id: str,
        clock: "Callable[[], float]" = time.monotonic,
    ) -> None:
        self._table = LedgerTable(aws.dynamodb, deployed.table)
        self._pipeline = deployed.name
        self._request_id = request_id
        self._clock = clock
        self._looked_at: float | None = None

    def check(self) -> None:
        """Look for a stop, at most every few seconds.

        Raises:
            CliError: The operation was stopped.

        """
        now = self._clock()
        if self._looked_at is not None and now - self._looked_at < _LOOK_SECONDS:
            return
        self._looked_at = now
        try:
            found = read_stop(self._table, self._pipeline, self._request_id)
        except ClientError as error:
            if denied_action(error) is None:
                raise
            return
        if found is not None:
            raise CliError(
                f"{self._request_id} was stopped by {found.by} at {timestamp(found.at)}, because {found.because}. Its "
                "messages are withdrawn. Begin a new operation, without --id and --resume"
            )
