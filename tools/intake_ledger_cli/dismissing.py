"""Dismisses rejected rows, and takes the dismissal back.

A dismissed row stays in the table with its status and reason. It only moves to another partition of the index
`needs_review`, and its dead-letter message is deleted. To take the dismissal back, both are written again.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

from botocore.exceptions import ClientError

from intake_ledger.events import own_message
from intake_ledger.ledger import condition_failed, send_write
from intake_ledger.protocol import (
    Ordering,
    Origin,
    RowKey,
    State,
    Status,
    dismissed_partition,
    review_partition,
    row_key,
)
from intake_ledger_cli import reading
from intake_ledger_cli.drain import Drain
from intake_ledger_cli.errors import CliError
from intake_ledger_cli.sending import OutgoingMessage, send

if TYPE_CHECKING:
    from collections.abc import Callable

    from intake_ledger_cli.aws import Aws
    from intake_ledger_cli.dead_letters import DeadLetterMessage
    from intake_ledger_cli.deployed import DeployedPipeline
    from intake_ledger_cli.reading import ObjectRow


@dataclass(slots=True)
class DismissResult:
    """The document of `dismiss`."""

    undo: bool = False
    rows: int = 0
    messages: int = 0
    """Dead-letter messages that were deleted, or written again."""
    other_messages: int = 0
    """Dead-letter messages about the keys that are not of these rejections. They stay."""


def rejected_rows(
    aws: "Aws", deployed: "DeployedPipeline", key: str, version_id: str | None, *, undo: bool
) -> list["ObjectRow"]:
    """Return the key's rejected rows, or its dismissed rows for an undo.

    Raises:
        CliError: There are none.

    """
    entries = reading.read_rows(aws.dynamodb, deployed, key)
    if version_id is not None:
        entries = [one for one in entries if one.row.version_id == version_id]
    # A row that is already dismissed may still have its message, if the command was killed in between.
    found = [one for one in entries if one.row.status is Status.REJECTED and (one.row.dismissed or not undo)]
    if not found:
        states = ", ".join(sorted({one.row.status.value for one in entries})) or "no row"
        wanted = "dismissed" if undo else "rejected"
        raise CliError(f"{key} is not {wanted} (the ledger has: {states}): see intake-ledger inspect")
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
    rejections = {(one.key, str(one.row.rejected_fence)) for one in entries}
    keys = {entry.key for entry in entries}
    drain = Drain(aws.sqs, deployed.dead_letter_url)
    try:
        for messages in drain.receive():
            renew()
            about = [one for one in messages if keys.intersection(one.keys) and one.pipeline in ("", deployed.name)]
            own = [one for one in about if _is_rejection(one, rejections)]
            result.other_messages += len(about) - len(own)
            if own:
                result.messages += len(own) - drain.delete(own)
    finally:
        drain.give_back()
    return result


def undo(aws: "Aws", deployed: "DeployedPipeline", entries: list["ObjectRow"]) -> DismissResult:
    """Write a dead-letter message for each row, and return the rows to those that need review.

    The message comes first. If the command is killed in between, another undo sends a second copy, and the ledger
    accepts one of them.

    Raises:
        CliError: An attempt has changed a row since it was read, or SQS refuses a message.
        ClientError: AWS refuses a request.

    """
    result = DismissResult(undo=True)
    for entry in entries:
        [why] = send(aws.sqs, deployed.dead_letter_url, [_dead_letter(deployed, entry)])
        if why is not None:
            raise CliError(f"SQS refused the dead-letter message of {entry.key}: {why}")
        result.messages += 1
        _move(aws, deployed, entry, review_partition(deployed.name, _place(deployed, entry)))
        result.rows += 1
    return result


def _is_rejection(message: "DeadLetterMessage", rejections: set[tuple[str, str]]) -> bool:
    """True if the message is only about the key of one of these rejections, each with its fence."""
    return len(message.keys) == 1 and (message.keys[0], message.rejected_fence) in rejections


def _move(aws: "Aws", deployed: "DeployedPipeline", entry: "ObjectRow", partition: str) -> None:
    """Move a row to another partition of the index, if no attempt has changed it since it was read."""
    place = _place(deployed, entry)
    names = ("fence", "needs_review", "status")
    request = {
        "TableName": deployed.table,
        "Key": {"pk": {"S": place.pk}, "sk": {"S": place.sk}},
        "UpdateExpression": "SET #needs_review = :partition",
        "ConditionExpression": "#status = :rejected AND #fence = :fence",
        "ExpressionAttributeNames": {f"#{name}": name for name in names},
        "ExpressionAttributeValues": {
            ":partition": {"S": partition},
            ":rejected": {"S": Status.REJECTED.value},
            ":fence": {"N": str(entry.row.fence)},
        },
    }
    try:
        send_write(aws.dynamodb.update_item, request)
    except ClientError as error:
        if not condition_failed(error):
            raise
        raise CliError(f"{entry.key} has changed meanwhile: see intake-ledger inspect") from None


def _place(deployed: "DeployedPipeline", entry: "ObjectRow") -> RowKey:
    return row_key(deployed.name, deployed.ordering, deployed.bucket, entry.key, entry.row.identity)


def _dead_letter(deployed: "DeployedPipeline", entry: "ObjectRow") -> OutgoingMessage:
    """The message that the rejection had, as far as the row tells."""
    from intake_ledger.aws import taken_text  # noqa: PLC0415 - it imports the runtime's clients

    row = entry.row
    state = State(row.kind, row.version_id, row.etag, row.size) if deployed.ordering is Ordering.EVERY_VERSION else None
    given = {
        "reason": row.reason,
        "reason_code": row.reason_code,
        "pipeline": deployed.name,
        "bucket": deployed.bucket,
        "key": quote(entry.key),
        "version_id": row.version_id,
        "attempts": row.attempts,
        "first_claimed_at": row.first_claimed_at,
        "rejected_fence": row.rejected_fence,
    }
    attributes = {
        name: {"DataType": "Number" if isinstance(value, int) else "String", "StringValue": taken_text(str(value))}
        for name, value in given.items()
        if value not in (None, "")
    }
    return OutgoingMessage(own_message(Origin.AUDIT, deployed.bucket, entry.key, state), attributes)
