"""Stops a `retry`: its messages that no attempt has begun are withdrawn.

The stop is an item that consumers read. So it works from any machine, also while the operation sends, and after its
end. See docs/protocol.md, "Requests of people".
"""

from dataclasses import dataclass, field

from intake_ledger.ledger.dynamodb_table import LedgerTable
from intake_ledger.protocol.row import Status
from intake_ledger.requests.record import queried_batches
from intake_ledger.requests.standing import AfterStop
from intake_ledger.requests.stop import Stop, read_stop
from intake_ledger_cli.act import operations, recording
from intake_ledger_cli.act.operations import Operation
from intake_ledger_cli.app import now_ms
from intake_ledger_cli.aws.clients import Aws
from intake_ledger_cli.aws.deployed import DeployedPipeline
from intake_ledger_cli.errors import CliError, UsageError, unless_denied
from intake_ledger_cli.options import Call
from intake_ledger_cli.show.formatting import timestamp

SEARCHED = 100
"""Operations among which one is searched."""
_LOOK_SECONDS = 5.0


@dataclass(slots=True)
class StopResult:
    """The document of `operations stop`: the end of an operation, and what it cannot undo."""

    stopped: str
    """The ID of the operation."""
    command: str
    begun_before: int = 0
    """This and the next five are the numbers of recorded requests by `AfterStop`."""
    begun_after: int = 0
    served_later: int = 0
    withdrawn: int = 0
    outstanding: int = 0
    copies_lost: int = 0
    begun: list[str] = field(default_factory=list)
    """Keys of requests whose attempt has begun and not committed. They go on, or were rejected."""
    committed: list[str] = field(default_factory=list)
    """Keys of requests that were committed, while the records have their keys."""
    unreachable: int = 0
    """Moved messages that do not carry the ID."""
    why: str = ""
    """The reason why rows could not be read."""


def stop(call: Call, request_id: str | None, because: str, *, yes: bool) -> None:
    """Carry out `operations stop`.

    Args:
        call: the shared options.
        request_id: the ID of the operation. None: the only one that can be stopped.
        because: the reason, for others.
        yes: do not ask.

    Raises:
        CliError: There is no such operation, or several.
        UsageError: The reason is missing.

    """
    if not because:
        raise UsageError("operations stop needs a reason for others: --because TEXT")
    aws, deployed = call.open()
    operation = find(aws, deployed, request_id)
    does = (
        f"{deployed.name} will withdraw the messages of `{operation.what}` by {operation.by} that no attempt has begun."
    )
    what = f"operations stop {operation.request_id}"
    with operations.acting(aws, deployed, what, does=does, yes=yes, because=because) as act:
        stopped = Stop(operation.request_id, act.operation.at, act.operation.by, because)
        done = carry_out(aws, deployed, operation, stopped)
        # The numbers change. `operations` counts them in the line of the operation.
        act.ends("stopped")
    call.output(done)


def find(aws: Aws, deployed: DeployedPipeline, request_id: str | None) -> Operation:
    """The operation to stop.

    Raises:
        CliError: There is no such operation, or several. The message lists them.

    """
    known = [one for one in operations.read_operations(aws.dynamodb, deployed, SEARCHED) if one.request_id]
    if request_id is not None:
        found = [one for one in known if one.request_id == request_id]
        if not found:
            raise CliError(
                f"{request_id} is no operation that sends requests among the last {SEARCHED}: see `intake-ledger "
                "operations`"
            )
        return found[0]
    table = LedgerTable(aws.dynamodb, deployed.table)
    recent = [one for one in known if one.at > now_ms() - operations.LOOKED_MS]
    open_ = [one for one in recent if read_stop(table, deployed.name, one.request_id) is None]
    if len(open_) == 1:
        return open_[0]
    if not open_:
        raise CliError("no operation of the last 14 days can be stopped: see `intake-ledger operations`")
    listed = "\n".join(f"  {one.request_id}  {timestamp(one.at)}  {one.what}  by {one.by}" for one in open_)
    raise CliError(f"{len(open_)} operations can be stopped: name one of them: operations stop ID\n{listed}")


def carry_out(aws: Aws, deployed: DeployedPipeline, operation: Operation, stopped: Stop) -> StopResult:
    """Write the stop, and look what it cannot undo.

    Raises:
        ClientError: The stop is not written.

    """
    table = LedgerTable(aws.dynamodb, deployed.table)
    table.put_new(stopped.key(deployed.name), stopped.item)
    done = StopResult(operation.request_id, operation.what.split()[0], unreachable=operation.unmarked or 0)
    with unless_denied(lambda action: setattr(done, "why", f"{action} is not allowed")):
        # An earlier stop stays.
        _look(aws, deployed, done, read_stop(table, deployed.name, operation.request_id) or stopped, operation)
    return done


def _look(aws: Aws, deployed: DeployedPipeline, done: StopResult, stop: Stop, operation: Operation) -> None:
    batches = queried_batches(aws.dynamodb, deployed.table, deployed.name)
    own, live = [one for one in batches if one.request_id == stop.request_id], list[AfterStop]()
    for batch in own:
        for entry, row, how in recording.stopped(aws, deployed, batch, stop):
            live.append(how)
            if how in (AfterStop.BEGUN_BEFORE, AfterStop.BEGUN_AFTER) and row is not None:
                (done.committed if row.status is Status.PROCESSED else done.begun).append(entry.key)
    counts = recording.count_stopped(own, live, operation.sent)
    for how in AfterStop:
        setattr(done, how.name.lower(), counts[how])
