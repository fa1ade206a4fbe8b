"""The command that takes a rejected object out of the alarm, and back into it."""

from typing import Annotated

import typer
from rich.text import Text

from intake_ledger_cli import dismissing, operations
from intake_ledger_cli.app import Yes, app, now_ms
from intake_ledger_cli.console import GOOD, escape
from intake_ledger_cli.errors import UsageError
from intake_ledger_cli.inspection import key_in
from intake_ledger_cli.operations import Operation
from intake_ledger_cli.options import Call, with_shared_options
from intake_ledger_cli.redrive_lock import redrive_lock


@app.command("dismiss")
@with_shared_options
def dismiss_command(
    call: Call,
    keys: Annotated[
        list[str], typer.Argument(help="Keys of objects, not encoded, or their s3:// URIs.", show_default=False)
    ],
    *,
    because: Annotated[str, typer.Option("--because", help="The reason, for others. Not with --undo.")] = "",
    undo: Annotated[bool, typer.Option("--undo", help="Take the dismissal back.", show_default=False)] = False,
    version_id: Annotated[
        str | None, typer.Option(help="With EVERY_VERSION: only this version of the one key.")
    ] = None,
    yes: Yes = False,
) -> None:
    """Dismiss rejected objects: their rows stay, and neither status nor the alarm DeadLetters counts them."""
    if not because and not undo:
        raise UsageError("dismiss needs --because: others read the reason in `operations`")
    if version_id is not None and len(keys) > 1:
        raise UsageError(f"--version-id is for one key, and {len(keys)} were given: dismiss each with its version")
    aws, deployed = call.open("dismiss")
    names = list(dict.fromkeys(key_in(deployed, key) for key in keys))
    entries = [entry for key in names for entry in dismissing.rejected_rows(aws, deployed, key, version_id, undo=undo)]
    number = f"{len(entries):,} rejected {'version' if len(entries) == 1 else 'versions'} of {', '.join(names)}"
    if undo:
        by = operations.caller(aws)
    else:
        does = (
            f"{deployed.name} will no longer count {number}. The rows stay. Their dead-letter messages are deleted, "
            "and --undo writes new ones."
        )
        by = operations.ask(aws, does, yes=yes)
    with redrive_lock(aws, deployed, by, now_ms) as lock:
        operation = Operation(now_ms(), by, f"dismiss {'--undo ' if undo else ''}{' '.join(names)}", because)
        operations.record(aws, deployed, operation)
        with operations.noting_failures(aws, deployed, operation):
            if undo:
                done = dismissing.undo(aws, deployed, entries)
            else:
                done = dismissing.dismiss(aws, deployed, entries, lock.renew)
        result = f"{done.rows:,} rows, {done.messages:,} dead-letter messages"
        operations.finish(aws, deployed, operation, result)
    shown = f"{'taken back' if undo else 'dismissed'}: {result}"
    if done.other_messages:
        shown += f"; {done.other_messages:,} other dead-letter messages about the key stay, see: redrive --dry-run"
    call.output(done, Text(escape(shown), style=GOOD))
