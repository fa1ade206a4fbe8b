"""Dismisses rejected rows.

A dismissed row stays in the table with its status and reason. It only moves to another partition of the index
`needs_review`, and its dead-letter message is deleted. `retry` opens it again. Nothing else has the content of a
message: its row then says that the copy is lost, and takes the same content from its source.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

from intake_ledger.events.parser import own_message
from intake_ledger.protocol.change import Origin
from intake_ledger.protocol.reasons import ReasonCode
from intake_ledger.protocol.row import Ordering, Status, dismissed_partition, review_partition
from intake_ledger_cli.act.retrying import update_row
from intake_ledger_cli.aws import reading
from intake_ledger_cli.aws.dead_letters import DeadLetterMessage
from intake_ledger_cli.aws.drain import Drain
from intake_ledger_cli.errors import CliError

if TYPE_CHECKING:
    from collections.abc import Callable

    from intake_ledger_cli.aws.clients import Aws
    from intake_ledger_cli.aws.deployed import DeployedPipeline
    from intake_ledger_cli.aws.reading import ObjectRow

_LOST = {
    "reason": "`dismiss` has deleted its dead-letter message: send the message again, with the same content",
    "reason_code": ReasonCode.COPY_LOST.value,
}


@dataclass(slots=True)
class DismissResult:
    """The document of `dismiss`."""

    rows: int = 0
    messages: int = 0
    """Dead-letter messages that were deleted."""
    other_messages: int = 0
    """Dead-letter messages about the keys that are not of these rejections. They stay."""


def rejected_rows(aws: "Aws", deployed: "DeployedPipeline", key: str, version_id: str | None) -> list["ObjectRow"]:
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


def dismiss(
    aws: "Aws", deployed: "DeployedPipeline", entries: list["ObjectRow"], renew: "Callable[[], None]"
) -> DismissResult:
    """Dismiss the rows, and delete their dead-letter messages.

    Raises:
        CliError: An attempt has changed a row since it was read.
        ClientError: AWS refuses a request.

    """
    result = DismissResult()
    for entry in entries:
        _move(aws, deployed, entry, dismissed_partition(deployed.name))
        result.rows += 1
    keys = {entry.key for entry in entries}
    drain = Drain(aws.sqs, deployed)
    try:
        for messages in drain.receive():
            renew()
            about = [one for one in messages if keys.intersection(one.keys) and one.pipeline in ("", deployed.name)]
            own = [one for one in about if any(_is_rejection(one, entry) for entry in entries)]
            result.other_messages += len(about) - len(own)
            if own:
                result.messages += len(own) - drain.delete(own)
    finally:
        drain.give_back()
    return result


def letter(
    aws: "Aws", deployed: "DeployedPipeline", chosen: str, renew: "Callable[[], None]", *, deletes: bool = False
) -> DeadLetterMessage:
    """Find the dead letter with this ID, and delete it if `deletes`.

    Raises:
        CliError: It is not there, is another pipeline's, or a row needs it.
        ClientError: AWS refuses a request.

    """
    drain = Drain(aws.sqs, deployed)
    try:
        for messages in drain.receive():
            renew()
            for one in messages:
                if one.id == chosen:
                    _check_unneeded(aws, deployed, one)
                    if deletes and drain.delete([one]):
                        raise CliError(f"SQS did not delete {chosen}: run the command again")
                    return one
    finally:
        drain.give_back()
    raise CliError(f"no visible dead letter has the ID {chosen}: see intake-ledger retry --prefix '' --dry-run --json")


def _check_unneeded(aws: "Aws", deployed: "DeployedPipeline", message: DeadLetterMessage) -> None:
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


def await_source(aws: "Aws", deployed: "DeployedPipeline", entry: "ObjectRow") -> None:
    """Let the row of a dismissed message take the same content, when its source sends it again.

    Raises:
        CliError: An attempt has changed the row since it was read.
        ClientError: AWS refuses a request.

    """
    place = deployed.row_key(entry.key, entry.row.identity)
    _move(aws, deployed, entry, review_partition(deployed.name, place), **_LOST)


def _is_rejection(message: "DeadLetterMessage", entry: "ObjectRow") -> bool:
    """True if the message is only about the rejection of this row. Without attributes, its digest tells it."""
    from intake_ledger.aws.queues import body_digest  # noqa: PLC0415 - it imports the runtime's clients

    row = entry.row
    of_fence = message.rejected_fence == str(row.rejected_fence)
    if message.keys != (entry.key,) or message.identity not in ("", row.version_id):
        return False
    return of_fence or (not message.attributes and body_digest(message.body) == row.bare_copy_digest)


def _move(aws: "Aws", deployed: "DeployedPipeline", entry: "ObjectRow", partition: str, **changed: str) -> None:
    """Move a row to another partition of the index, if no attempt has changed it since it was read.

    `changed` are further columns.
    """
    if not update_row(aws, deployed, entry, needs_review=partition, **changed):
        raise CliError(f"{entry.key} has changed meanwhile: see intake-ledger inspect")


def dead_letter_of(deployed: "DeployedPipeline", entry: "ObjectRow") -> DeadLetterMessage:
    """The message that the rejection had, as far as the row tells. The ledger accepts one copy of it."""
    from intake_ledger.aws.queues import taken_text  # noqa: PLC0415 - it imports the runtime's clients

    row = entry.row
    state = row.state if deployed.ordering is Ordering.EVERY_VERSION else None
    given = {
        "reason": row.reason,
        "reason_code": row.reason_code,
        "pipeline": deployed.name,
        "bucket": deployed.bucket,
        "key": quote(entry.key),
        "version_id": row.version_id,
        "attempts": row.attempts,
        "first_claimed_at": row.first_claimed_at,
        "rejected_fence": row.rejected_fence or row.fence,
    }
    attributes = {
        name: {"DataType": "Number" if isinstance(value, int) else "String", "StringValue": taken_text(str(value))}
        for name, value in given.items()
        if value not in (None, "")
    }
    body = own_message(Origin.AUDIT, deployed.bucket, entry.key, state)
    return DeadLetterMessage("", body, attributes, "", row.updated_at)
