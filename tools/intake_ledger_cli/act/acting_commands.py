"""The commands that stop and hasten work: pause, resume, release, and the list of operations."""

from typing import Annotated

import typer
from rich.text import Text

from intake_ledger.protocol.row import Status
from intake_ledger.requests.standing import AfterStop
from intake_ledger_cli.act import operations, pausing, recording, releasing, stopping
from intake_ledger_cli.act.operations import Operation
from intake_ledger_cli.act.recording import Progress
from intake_ledger_cli.app import Because, Wait, Yes, app, argument, now_ms, option
from intake_ledger_cli.aws.clients import Aws
from intake_ledger_cli.aws.deployed import DeployedPipeline
from intake_ledger_cli.errors import UsageError
from intake_ledger_cli.options import Call, with_shared_options
from intake_ledger_cli.read.inspection import key_in
from intake_ledger_cli.show.console import console, escape
from intake_ledger_cli.show.formatting import timestamp
from intake_ledger_cli.show.render import table


@app.command("pause")
@with_shared_options
def pause_command(call: Call, *, because: Because, wait: Wait = False, yes: Yes = False) -> None:
    """Stop the consumer. Messages wait in their queue or stream, and expire after its retention."""
    aws, deployed = call.open("pause")
    uuids = pausing.mappings_of(aws, deployed)
    place = "stream" if deployed.reads_stream else "queue"
    does = (
        f"{deployed.name} will process no message until `intake-ledger resume`. Messages wait in the {place}, and are "
        "lost after its retention."
    )
    with operations.acting(aws, deployed, "pause", does=does, yes=yes, because=because) as act:
        pausing.pause(aws, deployed, uuids, act.operation)
        act.ends("paused")
    if wait:
        pausing.wait_for(aws, deployed, "Disabled")
    call.output({"paused": True})


@app.command("resume")
@with_shared_options
def resume_command(call: Call, *, because: Because = "", wait: Wait = False, yes: Yes = False) -> None:
    """Start a paused consumer again."""
    aws, deployed = call.open("resume")
    uuids = pausing.mappings_of(aws, deployed)
    does = f"{deployed.name} will process messages again, also those that have waited."
    with operations.acting(aws, deployed, "resume", does=does, yes=yes, because=because) as act:
        pausing.resume(aws, deployed, uuids)
        act.ends("resumed")
    if wait:
        pausing.wait_for(aws, deployed, "Enabled")
    call.output({"paused": False})


@app.command("release")
@with_shared_options
def release_command(
    call: Call,
    key: Annotated[str, argument(help="Key whose worker is dead, or its s3:// URI.")],
    *,
    because: Because,
    version_id: Annotated[
        str | None, typer.Option(help="Version, or identity of a message, if several are in work.")
    ] = None,
    wait: Wait = False,
    ends: Annotated[
        bool, typer.Option("--end", help="End the work of an execution for good: its next message rejects it.")
    ] = False,
    yes: Yes = False,
) -> None:
    """Take a key from a dead worker before its lease ends. A worker that is alive is fenced, and the attempt counts."""
    aws, deployed = call.open("" if ends else "release")
    key = key_in(deployed, key)
    if ends:
        _end(call, aws, deployed, key, version_id, because=because, yes=yes)
        if wait:
            releasing.wait_for_end(aws, deployed, key, version_id)
        return
    entry = releasing.find_claim(aws, deployed, key, version_id, now_ms())
    does = releasing.describe_claim(deployed, entry, now_ms())
    with operations.acting(aws, deployed, f"release {key}", does=does, yes=yes, because=because) as act:
        done = releasing.release(aws, deployed, entry, act.operation)
        act.ends(f"attempt {done.attempt} of {done.lease_owner} taken, fence {done.fence}")
    call.output(done)
    if wait and (status := releasing.wait_for_end(aws, deployed, key, done.version_id)) is not Status.PROCESSED:
        console(stderr=True).print(escape(f"{key} is {status.value}: see intake-ledger inspect"))
        raise typer.Exit(1)


def _end(
    call: Call, aws: Aws, deployed: DeployedPipeline, key: str, version_id: str | None, *, because: str, yes: bool
) -> None:
    """End the work of an execution for good."""
    entry = releasing.find_unfinished(aws, deployed, key, version_id)
    does = releasing.describe_end(aws, deployed, entry, now_ms())
    with operations.acting(aws, deployed, f"release {key} --end", does=does, yes=yes, because=because) as act:
        done = releasing.end(aws, deployed, entry, act.operation)
        act.ends(f"attempt {done.attempt} ended, fence {done.fence}")
    call.output(done)


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
            stopping.stop(call, ids[0] if ids else None, because, yes=yes)
            return
        case []:
            pass
        case _:
            raise UsageError(f"operations takes nothing, or `stop ID`: {' '.join(words or [])} is neither")
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
