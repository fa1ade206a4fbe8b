"""The command that takes rejected rows out of the counts and the alarm.

A dismissed row stays in the table with its status and reason. It only moves to another partition of the index
`needs_review`, and its dead-letter message is deleted. `retry` opens it again. Nothing else has the content of a
message: its row then says that the copy is lost, and takes the same content from its source.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import typer

from intake_ledger.protocol.row import Ordering, Status, dismissed_partition
from intake_ledger_cli.act import operations
from intake_ledger_cli.act.redrive_lock import redrive_lock
from intake_ledger_cli.act.retrying import update_row
from intake_ledger_cli.app import Because, Yes, app, argument
from intake_ledger_cli.aws import reading
from intake_ledger_cli.aws.clients import Aws
from intake_ledger_cli.aws.dead_letters import DeadLetterMessage
from intake_ledger_cli.aws.deployed import DeployedPipeline
from intake_ledger_cli.aws.drain import Drain
from intake_ledger_cli.aws.reading import ObjectRow
from intake_ledger_cli.errors import CliError, UsageError
from intake_ledger_cli.options import Call, with_shared_options
from intake_ledger_cli.read.inspection import key_in
from intake_ledger_cli.show.console import many


@dataclass(slots=True)
class DismissResult:
    """The document of `dismiss`."""

    rows: int = 0
    messages: int = 0
    """Dead-letter messages that were deleted."""
    other_messages: int = 0
    """Dead-letter messages about the keys that are not of these rejections. They stay."""


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
    entries = [entry for key in names for entry in rejected_entries(aws, deployed, key, version_id)]
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
        done = _dismiss(aws, deployed, entries, lock.renew)
        act.ends(f"{many(done.rows, 'rows')}, {many(done.messages, 'dead-letter messages')}")
    call.output(done)


def _dismiss_letter(call: Call, chosen: str, because: str, *, yes: bool) -> None:
    """Delete one dead letter: garbage, or content that an identity has no use for."""
    aws, deployed = call.open()
    by = operations.caller(aws)
    with redrive_lock(aws, deployed, by) as lock:
        found = _find_letter(aws, deployed, chosen, lock.renew)
        names = " ".join(filter(None, (", ".join(found.keys), found.identity))) or "no key"
        only = "" if deployed.work.in_bucket else ", with what may be the only copy of its content"
        does = f"{deployed.name} will delete the dead letter {chosen} ({names}: {found.reason}){only}."
        with operations.acting(
            aws, deployed, f"dismiss --letter {chosen}", does=does, yes=yes, because=because, by=by
        ) as act:
            _find_letter(aws, deployed, chosen, lock.renew, deletes=True)
            act.ends("1 dead-letter message")
    call.output(DismissResult(messages=1))


def rejected_entries(aws: Aws, deployed: DeployedPipeline, key: str, version_id: str | None) -> list[ObjectRow]:
    """Return the key's rejected rows.

    Raises:
        CliError: There are none.

    """
    entries = reading.read_rows(aws.dynamodb, deployed, key)
    if version_id is not None:
        entries = [one for one in entries if one.row.version_id == version_id]
    # A row that is already dismissed may still have its message, if the command was killed in between.
    found = [one for one in entries if one.row.status is Status.REJECTED]
    if not found:
        states = ", ".join(sorted({one.row.status.value for one in entries})) or "no row"
        raise CliError(f"{key} is not rejected (the ledger has: {states}): see intake-ledger inspect")
    return found


def _dismiss(
    aws: Aws, deployed: DeployedPipeline, entries: list[ObjectRow], renew: Callable[[], None]
) -> DismissResult:
    """Dismiss the rows, and delete their dead-letter messages.

    Raises:
        CliError: An attempt has changed a row since it was read.

    """
    result = DismissResult()
    for entry in entries:
        _move(aws, deployed, entry, dismissed_partition(deployed.name))
        result.rows += 1
    keys = {entry.key for entry in entries}
    with Drain(aws.sqs, deployed) as drain:
        for messages in drain.receive():
            renew()
            about = [one for one in messages if keys.intersection(one.keys) and one.pipeline in ("", deployed.name)]
            own = [one for one in about if any(_is_rejection(one, entry) for entry in entries)]
            result.other_messages += len(about) - len(own)
            if own:
                result.messages += len(own) - drain.delete(own)
    return result


def _find_letter(
    aws: Aws, deployed: DeployedPipeline, chosen: str, renew: Callable[[], None], *, deletes: bool = False
) -> DeadLetterMessage:
    """Find the dead letter with this ID, and delete it if `deletes`.

    Raises:
        CliError: It is not there, is another pipeline's, or a row needs it.

    """
    with Drain(aws.sqs, deployed) as drain:
        for messages in drain.receive():
            renew()
            for one in messages:
                if one.id == chosen:
                    _check_unneeded(aws, deployed, one)
                    if deletes and drain.delete([one]):
                        raise CliError(f"SQS did not delete {chosen}: run the command again")
                    return one
    raise CliError(f"no visible dead letter has the ID {chosen}: see intake-ledger retry --prefix '' --dry-run --json")


def _check_unneeded(aws: Aws, deployed: DeployedPipeline, message: DeadLetterMessage) -> None:
    """Refuse a dead letter that a row needs."""
    if message.pipeline not in ("", deployed.name):
        raise CliError(f"{message.id} is a dead letter of {message.pipeline}: use the stack of that pipeline")
    if not deployed.work.in_bucket and deployed.reader_of_names() is None:
        raise CliError(f"the key of {message.id} is not known: use the command of the release that made the function")
    if not message.keys and message.rejected_fence:
        raise CliError(f"{message.id} is the copy of a rejection, and its body names no key: use retry --letter")
    for entry in [one for key in message.keys for one in reading.read_rows(aws.dynamodb, deployed, key)]:
        if deployed.ordering is Ordering.EVERY_VERSION and message.identity not in ("", entry.row.version_id):
            continue
        if entry.row.status is Status.REJECTED and _is_rejection(message, entry):
            raise CliError(f"{message.id} is the copy of the rejection: run intake-ledger dismiss {entry.key}")
        if entry.row.status not in (Status.REJECTED, Status.PROCESSED):
            raise CliError(f"{entry.key} is not finished and may need {message.id}: see intake-ledger inspect")


def _is_rejection(message: DeadLetterMessage, entry: ObjectRow) -> bool:
    """True if the message is only about the rejection of this row. Without attributes, its digest tells it."""
    from intake_ledger.aws.queues import body_digest  # noqa: PLC0415 - it imports the runtime's clients

    row = entry.row
    of_fence = message.rejected_fence == str(row.rejected_fence)
    if message.keys != (entry.key,) or message.identity not in ("", row.version_id):
        return False
    return of_fence or (not message.attributes and body_digest(message.body) == row.bare_copy_digest)


def _move(aws: Aws, deployed: DeployedPipeline, entry: ObjectRow, partition: str) -> None:
    """Move a row to another partition of the index, if no attempt has changed it since it was read."""
    if not update_row(aws, deployed, entry, needs_review=partition):
        raise CliError(f"{entry.key} has changed meanwhile: see intake-ledger inspect")
