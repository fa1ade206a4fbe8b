"""The commands that stop and hasten work: pause, resume, retry-now, and the list of operations."""

from dataclasses import asdict
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from intake_ledger_cli import operations, pausing, retrying
from intake_ledger_cli.app import Yes, app, now_ms
from intake_ledger_cli.console import DIM, GOOD, WARNING, escape
from intake_ledger_cli.formatting import timestamp
from intake_ledger_cli.operations import Operation
from intake_ledger_cli.options import Call, with_shared_options

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
    pausing.pause(aws, deployed, uuids, operation)
    operations.record(aws, deployed, operation)
    call.output({"paused": True}, Text("paused", style=WARNING))


@app.command("resume")
@with_shared_options
def resume_command(call: Call) -> None:
    """Start a paused consumer again."""
    aws, deployed = call.open("resume")
    pausing.resume(aws, deployed, pausing.mappings_of(aws, deployed))
    operations.record(aws, deployed, Operation(now_ms(), operations.caller(aws), "resume", ""))
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
    now = now_ms()
    retrying.close_breaker(aws, deployed, now)
    done = retrying.retry_rows(aws, deployed, retrying.waiting_rows(aws, deployed, keys or [], now), now)
    noun = retrying.noun_of(deployed)
    what = f"retry-now of {done.retried:,} {noun}"
    operations.record(aws, deployed, Operation(now, operations.caller(aws), what, ""))
    when = "at their next delivery" if deployed.message_source else "now"
    shown = f"{done.retried:,} {noun} are tried {when}, {done.changed:,} had changed meanwhile"
    shown += f", {done.failed:,} messages were refused" if done.failed else ""
    call.output(
        {"retried": done.retried, "changed": done.changed, "failed": done.failed},
        Text(shown, style=WARNING if done.failed else GOOD),
    )
    if done.failed:
        raise typer.Exit(1)


@app.command("operations")
@with_shared_options
def operations_command(
    call: Call, *, limit: Annotated[int, typer.Option(help="Largest number of operations.", min=1)] = 20
) -> None:
    """List the operations of people with this command, newest first."""
    aws, deployed = call.open()
    found = operations.read_operations(aws.dynamodb, deployed, limit)
    table = Table(box=None, pad_edge=False, header_style=DIM)
    for title in ("at", "by", "what", "because", "result"):
        table.add_column(title, overflow="fold")
    for one in found:
        table.add_row(timestamp(one.at), *map(escape, (one.by, one.what, one.because, one.result)))
    document = {"operations": [asdict(one) for one in found]}
    call.output(document, table if found else Text("none"))
