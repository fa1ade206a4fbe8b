"""The command that takes a rejected object out of the alarm."""

from typing import Annotated

import typer

from intake_ledger_cli.act import dismissing, operations
from intake_ledger_cli.act.redrive_lock import redrive_lock
from intake_ledger_cli.app import Because, Yes, app, argument
from intake_ledger_cli.errors import UsageError
from intake_ledger_cli.options import Call, with_shared_options
from intake_ledger_cli.read.inspection import key_in
from intake_ledger_cli.show.console import many


@app.command("dismiss")
@with_shared_options
def dismiss_command(
    call: Call,
    keys: Annotated[list[str] | None, argument(help="Keys, not encoded, or s3:// URIs of objects.")] = None,
    *,
    because: Because,
    letter: Annotated[
        str | None, typer.Option(help="Delete the dead letter with this ID, which no row needs.", show_default=False)
    ] = None,
    version_id: Annotated[
        str | None, typer.Option(help="Only this version of the one key (EVERY_VERSION), or this identity.")
    ] = None,
    yes: Yes = False,
) -> None:
    """Dismiss rejected objects or messages: rows stay, and neither status nor the alarm DeadLetters counts them."""
    if letter is not None:
        if keys or version_id is not None:
            raise UsageError("--letter takes one dead letter: omit keys and --version-id")
        _dismiss_letter(call, letter, because, yes=yes)
        return
    if not keys:
        raise UsageError("dismiss needs what to dismiss: keys, or --letter ID")
    if version_id is not None and len(keys) > 1:
        raise UsageError(f"--version-id is for one key, and {len(keys)} were given: dismiss each with its version")
    aws, deployed = call.open("dismiss")
    names = list(dict.fromkeys(key_in(deployed, key) for key in keys))
    entries = [entry for key in names for entry in dismissing.rejected_rows(aws, deployed, key, version_id)]
    of_bucket = deployed.work.in_bucket
    number = f"{many(len(entries), 'rejected ' + ('versions' if of_bucket else 'messages'))} of {', '.join(names)}"
    back = "" if of_bucket else ", with the only copy of the content: after a `retry`, the source has to send it again"
    does = (
        f"{deployed.name} will no longer count {number}. The rows stay. Their dead-letter messages are deleted{back}."
    )
    by, what = operations.caller(aws), f"dismiss {' '.join(names)}"
    with (
        redrive_lock(aws, deployed, by) as lock,
        operations.acting(aws, deployed, what, does=does, yes=yes, because=because, by=by) as act,
    ):
        done = dismissing.dismiss(aws, deployed, entries, lock.renew)
        act.ends(f"{many(done.rows, 'rows')}, {many(done.messages, 'dead-letter messages')}")
    call.output(done)


def _dismiss_letter(call: Call, chosen: str, because: str, *, yes: bool) -> None:
    """Delete one dead letter: garbage, or content that an identity has no use for."""
    aws, deployed = call.open()
    by = operations.caller(aws)
    with redrive_lock(aws, deployed, by) as lock:
        found = dismissing.letter(aws, deployed, chosen, lock.renew)
        names = " ".join(filter(None, (", ".join(found.keys), found.identity))) or "no key"
        only = "" if deployed.work.in_bucket else ", with what may be the only copy of its content"
        does = f"{deployed.name} will delete the dead letter {chosen} ({names}: {found.reason}){only}."
        with operations.acting(
            aws, deployed, f"dismiss --letter {chosen}", does=does, yes=yes, because=because, by=by
        ) as act:
            dismissing.letter(aws, deployed, chosen, lock.renew, deletes=True)
            act.ends("1 dead-letter message")
    call.output(dismissing.DismissResult(messages=1))
