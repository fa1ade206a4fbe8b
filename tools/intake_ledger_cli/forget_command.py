"""The command that removes a key from the stores of its pipeline."""

from typing import Annotated

import typer
from rich.console import Group
from rich.text import Text

from intake_ledger_cli import forgetting, operations
from intake_ledger_cli.app import Yes, app, now_ms
from intake_ledger_cli.console import GOOD, WARNING, escape
from intake_ledger_cli.errors import UsageError
from intake_ledger_cli.forget_outputs import Tombstone, find_tombstones, rejects_uris, remove_tombstone
from intake_ledger_cli.forget_remains import remains
from intake_ledger_cli.forgetting import ForgetResult, Forgetting
from intake_ledger_cli.formatting import duration, timestamp
from intake_ledger_cli.inspection import key_in
from intake_ledger_cli.operations import Operation
from intake_ledger_cli.options import Call, with_shared_options
from intake_ledger_cli.redrive_lock import redrive_lock


@app.command("forget")
@with_shared_options
def forget_command(
    call: Call,
    key: Annotated[str, typer.Argument(help="Key of an object, a set or messages.", show_default=False)],
    *,
    because: Annotated[
        str, typer.Option("--because", help="The reason, for others, without the key.", show_default=False)
    ],
    output: Annotated[
        list[str] | None, typer.Option("--output", help="s3:// URI of an output of the key. May be repeated.")
    ] = None,
    yes: Yes = False,
) -> None:
    """Remove a key from the rows, dead letters and records of the pipeline: a person's right to be forgotten."""
    aws, deployed = call.open("forget")
    key = key_in(deployed, key)
    task = Forgetting(aws, deployed, key)
    if task.finds_key(because):
        raise UsageError("--because names the key, and the record of the operation keeps the reason: leave it out")

    def tombstones() -> list[Tombstone]:
        versions = task.identities()
        places = [*(output or []), *rejects_uris(deployed, key, versions)]
        return find_tombstones(aws.s3, places, key, versions, now_ms())

    task.check(now_ms())
    tombstones()
    does = (
        f"{deployed.name} will lose its rows and dead-letter messages of this key for good, and refuses each message "
        f"that was sent until now. It takes {duration(task.wait_ms)}, until each worker knows that."
    )
    by = operations.ask(aws, does, yes=yes)
    # The record has no key. Its hash proves to those who know the key that it was forgotten.
    operation = Operation(now_ms(), by, f"forget {task.result.digest}", because)
    operations.record(aws, deployed, operation)
    with operations.noting_failures(aws, deployed, operation):
        task.mark()
        forgetting.wait(task)
        with redrive_lock(aws, deployed, by, now_ms) as lock:
            task.check(now_ms(), since=task.result.forgotten_at)
            found = tombstones()
            task.remove_dead_letters(lock.renew)
            for one in found:
                remove_tombstone(aws.s3, one)
                task.result.outputs += 1
            task.remove_items(now_ms())
            task.remove_from_records()
        task.result.remains += remains(aws, deployed, task, now_ms())
    operations.finish(aws, deployed, operation, _counts(task.result))
    call.output(task.result, _table(task.result))
    if task.result.unfinished:
        raise typer.Exit(1)


def _counts(done: ForgetResult) -> str:
    return (
        f"{done.rows:,} rows, {done.other_items:,} other items, {done.dead_letters:,} dead-letter messages, "
        f"{done.outputs:,} tombstones, {done.operations:,} records without the key"
    )


def _table(done: ForgetResult) -> Group:
    lines = [
        Text(escape(f"removed: {_counts(done)}"), style=GOOD),
        Text(
            f"messages that were sent before {timestamp(done.forgotten_at)} are refused until "
            f"{timestamp(done.refused_until)}"
        ),
        Text("not removed:"),
    ]
    for one in done.remains:
        until = f", until {timestamp(one.until)}" if one.until is not None else ""
        lines.append(Text(f"  {one.what}{until}", style=WARNING))
    return Group(*lines)
