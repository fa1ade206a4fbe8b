"""The command that lists the operations of people, and stops a `retry`: its messages that no attempt has begun are
withdrawn.

The stop is an item that consumers read. So it works from any machine, also while the operation sends, and after its
end. See docs/protocol.md, "Requests of people".
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

import typer
from rich.text import Text

from intake_ledger.ledger.dynamodb_table import LedgerTable
from intake_ledger.protocol.row import Status
from intake_ledger.requests.record import queried_batches
from intake_ledger.requests.standing import AfterStop
from intake_ledger.requests.stop import Stop, read_stop
from intake_ledger_cli.act import operations, recording
from intake_ledger_cli.act.operations import Operation
from intake_ledger_cli.act.recording import Progress
from intake_ledger_cli.app import Yes, app, argument, now_ms, option
from intake_ledger_cli.aws.clients import Aws
from intake_ledger_cli.aws.deployed import DeployedPipeline
from intake_ledger_cli.errors import CliError, UsageError, unless_denied
from intake_ledger_cli.options import Call, with_shared_options
from intake_ledger_cli.show.formatting import timestamp
from intake_ledger_cli.show.render import table


@dataclass(slots=True)
class StopResult:
    """The document of `operations stop`: the end of an operation, and what it cannot undo."""

    stopped: str
    """The ID of the operation."""
    command: str
    counts: Mapping[str, int] = field(default_factory=dict)
    """The number of its recorded requests by `AfterStop`."""
    begun: list[str] = field(default_factory=list)
    """Keys of requests whose attempt has begun and not committed. They go on, or were rejected."""
    committed: list[str] = field(default_factory=list)
    """Keys of requests that were committed, while the records have their keys."""
    unreachable: int = 0
    """Moved messages that do not carry the ID."""
    why: str = ""
    """The reason why rows could not be read."""

    def as_document(self) -> dict[str, Any]:
        """The numbers stand beside the others."""
        numbers = {how.value: self.counts.get(how, 0) for how in AfterStop}
        keys = {"begun": self.begun, "committed": self.committed}
        more = {"unreachable": self.unreachable, "why": self.why}
        return {"stopped": self.stopped, "command": self.command, **numbers, **keys, **more}


@app.command("operations")
@with_shared_options
def operations_command(
    call: Call,
    words: Annotated[
        list[str] | None,
        argument(
            help="`stop ID` withdraws the messages of an operation that no attempt has begun.", metavar="[stop [ID]]"
        ),
    ] = None,
    *,
    limit: Annotated[int, typer.Option(help="Largest number of operations.", min=1)] = 20,
    because: Annotated[str, option("--because", help="With stop: the reason.")] = "",
    yes: Yes = False,
) -> None:
    """List the operations of people with this command, newest first, or stop one."""
    match words or []:
        case ["stop", *ids] if len(ids) <= 1:
            _stop(call, ids[0] if ids else None, because, yes=yes)
        case []:
            _list(call, limit)
        case _:
            raise UsageError(f"operations takes nothing, or `stop ID`: {' '.join(words or [])} is neither")


def _list(call: Call, limit: int) -> None:
    aws, deployed = call.open()
    found = operations.read_operations(aws.dynamodb, deployed, limit)
    progress = recording.read_progress(aws, deployed, found)
    rows = []
    for one in found:
        result = "; ".join(filter(None, (one.result, recording.progress_text(progress.get(one.request_id)))))
        rows.append((timestamp(one.at), one.by, one.what, one.because, result))
    document = {"operations": [_listed(one, progress.get(one.request_id)) for one in found]}
    call.output(document, table(("at", "by", "what", "because", "result"), rows) if found else Text("none"))


def _listed(operation: Operation, progress: Progress | None) -> dict[str, object]:
    """The operation in JSON."""
    content: dict[str, object] = {name: getattr(operation, name) for name in ("at", "by", "what", "because", "result")}
    if operation.request_id:
        content["requestId"] = operation.request_id
    if progress is None:
        return content
    content |= {"sent": operation.sent, "outstanding": progress.outstanding, "copiesLost": progress.lost}
    if progress.stop is None:
        return content
    counts = {how.value: progress.counts.get(how, 0) for how in AfterStop}
    return content | counts | {"stoppedAt": progress.stop.at, "countedAt": progress.counted_at}


def _stop(call: Call, request_id: str | None, because: str, *, yes: bool) -> None:
    """Stop an operation. Without its ID: the only one that can be stopped."""
    if not because:
        raise UsageError("operations stop needs a reason for others: --because TEXT")
    aws, deployed = call.open()
    operation = _find(aws, deployed, request_id)
    does = (
        f"{deployed.name} will withdraw the messages of `{operation.what}` by {operation.by} that no attempt has begun."
    )
    what = f"operations stop {operation.request_id}"
    with operations.acting(aws, deployed, what, does=does, yes=yes, because=because) as act:
        stopped = Stop(operation.request_id, act.operation.at, act.operation.by, because)
        ledger = LedgerTable(aws.dynamodb, deployed.table)
        ledger.put_new(stopped.key(deployed.name), stopped.item)
        done = StopResult(operation.request_id, operation.what.split()[0], unreachable=operation.unmarked)
        with unless_denied(lambda action: setattr(done, "why", f"{action} is not allowed")):
            # An earlier stop stays.
            _look(aws, deployed, done, read_stop(ledger, deployed.name, operation.request_id) or stopped, operation)
        # The numbers change. `operations` counts them in the line of the operation.
        act.ends("stopped")
    call.output(done)


def _find(aws: Aws, deployed: DeployedPipeline, request_id: str | None) -> Operation:
    """The operation to stop.

    Raises:
        CliError: There is no such operation, or several. The message lists them.

    """
    known = [one for one in operations.read_operations(aws.dynamodb, deployed, operations.SEARCHED) if one.request_id]
    if request_id is not None:
        found = [one for one in known if one.request_id == request_id]
        if not found:
            raise CliError(
                f"{request_id} is no operation that sends requests among the last {operations.SEARCHED}: see "
                "`intake-ledger operations`"
            )
        return found[0]
    ledger = LedgerTable(aws.dynamodb, deployed.table)
    recent = [one for one in known if one.at > now_ms() - operations.LOOKED_MS]
    open_ = [one for one in recent if read_stop(ledger, deployed.name, one.request_id) is None]
    if len(open_) == 1:
        return open_[0]
    if not open_:
        raise CliError("no operation of the last 14 days can be stopped: see `intake-ledger operations`")
    listed = "\n".join(f"  {one.request_id}  {timestamp(one.at)}  {one.what}  by {one.by}" for one in open_)
    raise CliError(f"{len(open_)} operations can be stopped: name one of them: operations stop ID\n{listed}")


def _look(aws: Aws, deployed: DeployedPipeline, done: StopResult, stop: Stop, operation: Operation) -> None:
    batches = queried_batches(aws.dynamodb, deployed.table, deployed.name)
    own, live = [one for one in batches if one.request_id == stop.request_id], list[AfterStop]()
    for batch in own:
        for entry, row, how in recording.stopped(aws, deployed, batch, stop):
            live.append(how)
            if how in (AfterStop.BEGUN_BEFORE, AfterStop.BEGUN_AFTER) and row is not None:
                (done.committed if row.status is Status.PROCESSED else done.begun).append(entry.key)
    done.counts = recording.count_stopped(own, live, operation.sent)
