"""The command that removes a key from the stores of its pipeline."""

from typing import Annotated

import typer

from intake_ledger_cli.act import forget_again, forgetting, operations
from intake_ledger_cli.act.forget_outputs import Tombstone, find_tombstones, rejects_uris, remove_tombstone
from intake_ledger_cli.act.forget_remains import remains
from intake_ledger_cli.act.forgetting import ForgetResult, Forgetting
from intake_ledger_cli.act.redrive_lock import redrive_lock
from intake_ledger_cli.app import Yes, app, argument, now_ms, option
from intake_ledger_cli.aws.clients import Aws
from intake_ledger_cli.aws.consumer_log import write_operation
from intake_ledger_cli.aws.deployed import DeployedPipeline
from intake_ledger_cli.errors import UsageError
from intake_ledger_cli.options import Call, with_shared_options
from intake_ledger_cli.read.inspection import key_in
from intake_ledger_cli.show.console import many
from intake_ledger_cli.show.formatting import duration


@app.command("forget")
@with_shared_options
def forget_command(
    call: Call,
    key: Annotated[str | None, argument(help="Key of an object, a set or messages.")] = None,
    *,
    because: Annotated[str, option("--because", help="The reason, for others, without the key.")],
    output: Annotated[
        list[str] | None, typer.Option("--output", help="s3:// URI of an output of the key. May be repeated.")
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="After a restore of the table: all forgotten keys. Reads the whole table.")
    ] = False,
    yes: Yes = False,
) -> None:
    """Remove a key from the rows, dead letters and records of the pipeline: a person's right to be forgotten."""
    if again is (key is not None) or (again and output):
        raise UsageError("forget needs a key, or --again without a key and --output")
    aws, deployed = call.open("forget")
    if key is None:
        _forget_again(call, aws, deployed, because, yes=yes)
        return
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
    # The record has no key. Its hash proves to those who know the key that it was forgotten.
    what = f"forget {task.result.digest}"
    with operations.acting(aws, deployed, what, does=does, yes=yes, because=because) as act:
        task.mark()
        write_operation(aws, deployed, act.operation, at=now_ms(), forgotten_at=task.result.forgotten_at)
        forgetting.wait(task)
        with redrive_lock(aws, deployed, act.operation.by) as lock:
            task.check(now_ms(), since=task.result.forgotten_at)
            found = tombstones()
            task.remove_dead_letters(lock.renew)
            for one in found:
                remove_tombstone(aws.s3, one)
                task.result.outputs += 1
            task.remove_items(now_ms())
            task.remove_from_records()
        task.result.remains += remains(aws, deployed, task, now_ms())
        act.ends(_counts(task.result))
    call.output(task.result)
    if task.result.unfinished:
        raise typer.Exit(1)


def _forget_again(call: Call, aws: Aws, deployed: DeployedPipeline, because: str, *, yes: bool) -> None:
    found = forget_again.forgotten_in_log(aws, deployed)
    does = (
        f"{deployed.name} will lose the rows of {many(len(found), 'forgotten keys')} again, as far as a restore has "
        "brought them back. Later rows stay."
    )
    with operations.acting(aws, deployed, "forget --again", does=does, yes=yes, because=because) as act:
        done = forget_again.forget_again(aws, deployed, found, now_ms())
        act.ends(forget_again.counts(done))
    call.output(done)
    if done.left:
        raise typer.Exit(1)


def _counts(done: ForgetResult) -> str:
    return (
        f"{many(done.rows, 'rows')}, {many(done.other_items, 'other items')}, "
        f"{many(done.dead_letters, 'dead-letter messages')}, {many(done.outputs, 'tombstones')}, "
        f"{many(done.operations, 'records')} without the key"
    )
