"""The commands that stop and hasten work: pause, resume, retry-now, release, and the list of operations."""

from contextlib import suppress
from typing import Annotated

import typer
from botocore.exceptions import ClientError
from rich.table import Table
from rich.text import Text

from intake_ledger_cli import operations, pausing, recording, releasing, retrying
from intake_ledger_cli.app import Yes, app, now_ms
from intake_ledger_cli.console import DIM, GOOD, WARNING, escape
from intake_ledger_cli.formatting import timestamp
from intake_ledger_cli.inspection import key_in
from intake_ledger_cli.operations import Operation
from intake_ledger_cli.options import Call, with_shared_options
from intake_ledger_cli.recording import Progress

Because = Annotated[str, typer.Option("--because", help="The reason, for others.", show_default=False)]


@app.command("pause")
@with_shared_options
def pause_command(call: Call, *, because: Because, yes: Yes = False) -> None:
    """Stop the consumer. Messages wait in their queue or stream, and expire after its retention."""
    aws, deployed = call.open("pause")
    uuids = pausing.mappings_of(aws, deployed)
    place = "stream" if deployed.reads_stream else "queue"
    operations.confirm(
        f"{deployed.name} will process no message until `intake-ledger resume`. Messages wait in the {place}, and are "
        "lost after its retention.",
        yes=yes,
    )
    operation = Operation(now_ms(), operations.caller(aws), "pause", because)
    operations.record(aws, deployed, operation)
    with operations.noting_failures(aws, deployed, operation):
        pausing.pause(aws, deployed, uuids, operation)
    operations.finish(aws, deployed, operation, "paused")
    call.output({"paused": True}, Text("paused", style=WARNING))


@app.command("resume")
@with_shared_options
def resume_command(call: Call) -> None:
    """Start a paused consumer again."""
    aws, deployed = call.open("resume")
    uuids = pausing.mappings_of(aws, deployed)
    operation = operations.begin(aws, deployed, operations.caller(aws), "resume")
    with operations.noting_failures(aws, deployed, operation):
        pausing.resume(aws, deployed, uuids)
    operations.finish(aws, deployed, operation, "resumed")
    call.output({"paused": False}, Text("takes messages in a minute", style=GOOD))


@app.command("retry-now")
@with_shared_options
def retry_now(
    call: Call,
    keys: Annotated[
        list[str] | None, typer.Argument(help="Keys of objects. Without keys, all.", show_default=False)
    ] = None,
) -> None:
    """Close the circuit breaker, and try failed and waiting objects, sets or messages now."""
    aws, deployed = call.open()
    names = [key_in(deployed, key) for key in keys or ()]
    now, done = now_ms(), retrying.RetryResult()

    def retried() -> str:
        return f"{done.retried:,} {deployed.work.noun}"

    operation = operations.begin(aws, deployed, operations.caller(aws), "retry-now")
    with operations.noting_failures(aws, deployed, operation, retried):
        retrying.close_breaker(aws, deployed, now)
        if names:
            rows = retrying.rows_of_keys(aws, deployed, names, now, done)
        else:
            rows = retrying.waiting_rows(aws, deployed, now)
        retrying.retry_rows(aws, deployed, rows, now, done)
    operations.finish(aws, deployed, operation, retried())
    if not deployed.reads_stream:
        with suppress(ClientError):  # it is only a hint
            done.in_flight = retrying.in_flight(aws, deployed)
    call.output(done, retrying.retry_lines(done, deployed))
    if done.failed:
        raise typer.Exit(1)


@app.command("release")
@with_shared_options
def release_command(
    call: Call,
    key: Annotated[str, typer.Argument(help="Key whose worker is dead, or its s3:// URI.", show_default=False)],
    *,
    because: Because,
    version_id: Annotated[
        str | None, typer.Option(help="Version, or identity of a message, if several are in work.")
    ] = None,
    yes: Yes = False,
) -> None:
    """Take a key from a dead worker before its lease ends. A worker that is alive is fenced, and the attempt counts."""
    aws, deployed = call.open("release")
    key = key_in(deployed, key)
    entry = releasing.find_claim(aws, deployed, key, version_id, now_ms())
    by = operations.ask(aws, releasing.describe_claim(deployed, entry, now_ms()), yes=yes)
    operation = Operation(now_ms(), by, f"release {key}", because)
    operations.record(aws, deployed, operation)
    with operations.noting_failures(aws, deployed, operation):
        done = releasing.release(aws, deployed, entry, operation)
    result = f"attempt {done.attempt} of {done.lease_owner} taken, fence {done.fence}"
    operations.finish(aws, deployed, operation, result)
    call.output(done, releasing.release_text(done, now_ms()))


@app.command("operations")
@with_shared_options
def operations_command(
    call: Call, *, limit: Annotated[int, typer.Option(help="Largest number of operations.", min=1)] = 20
) -> None:
    """List the operations of people with this command, newest first."""
    aws, deployed = call.open()
    found = operations.read_operations(aws.dynamodb, deployed, limit)
    progress = recording.read_progress(aws, deployed, found)
    table = Table(box=None, pad_edge=False, header_style=DIM)
    for title in ("at", "by", "what", "because", "result"):
        table.add_column(title, overflow="fold")
    for one in found:
        result = "; ".join(filter(None, (one.result, recording.progress_text(one, progress.get(one.request_id)))))
        what = one.what if not one.request_id or one.request_id in one.what else f"{one.what} --id {one.request_id}"
        table.add_row(timestamp(one.at), *map(escape, (one.by, what, one.because, result)))
    document = {"operations": [_listed(one, progress.get(one.request_id)) for one in found]}
    call.output(document, table if found else Text("none"))


def _listed(operation: Operation, progress: Progress | None) -> dict[str, object]:
    """The operation in JSON."""
    content: dict[str, object] = {name: getattr(operation, name) for name in ("at", "by", "what", "because", "result")}
    if operation.request_id:
        content["requestId"] = operation.request_id
    if progress is None:
        return content
    content["sent"] = operation.sent
    if progress.stop is not None:
        return content | {"stoppedAt": progress.stop.at}
    return content | {"outstanding": progress.outstanding, "copiesLost": progress.lost}
