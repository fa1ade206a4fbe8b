"""Sends messages to the pipeline's queue in batches."""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

MAX_BATCH_SIZE = 10  # SQS's limit of a batch
_FIFO = ".fifo"
"""The end of the name of each FIFO queue."""
_TOO_MUCH = frozenset({"BatchRequestTooLong", "InvalidParameterValue", "InvalidMessageContents", "InvalidParameter"})
"""Errors that may concern one message only, or the size of the batch."""


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """A message to send."""

    body: str
    attributes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    group: str = ""
    """The message group, for a FIFO queue."""
    operation: str = ""
    """The ID of the operation that sends it. A standard queue serves fresh messages before those of a long operation:
    https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-fair-queues-detailed.html"""


def send(client: "SQSClient", queue_url: str, messages: Sequence[OutgoingMessage]) -> list[str | None]:
    """Send at most ten messages. Return None for each sent message, and the error for each other message.

    Raises:
        ClientError: No message can be sent, for a reason other than the messages themselves.

    """
    entries: Any = [
        {
            "Id": str(place),
            "MessageBody": one.body,
            "MessageAttributes": {name: _typed(value) for name, value in one.attributes.items()},
        }
        | (_order(one) if queue_url.endswith(_FIFO) else {"MessageGroupId": one.operation} if one.operation else {})
        for place, one in enumerate(messages)
    ]
    try:
        answer = client.send_message_batch(QueueUrl=queue_url, Entries=entries)
    except ClientError as error:
        code = error.response["Error"].get("Code", "").removeprefix("AWS.SimpleQueueService.")
        if code not in _TOO_MUCH:
            raise
        if len(messages) == 1:
            return [error.response["Error"].get("Message", code)]
        return [why for one in messages for why in send(client, queue_url, [one])]
    failed = {one["Id"]: one.get("Message") or one["Code"] for one in answer.get("Failed", ())}
    return [failed.get(str(place)) for place in range(len(messages))]


def _order(message: OutgoingMessage) -> dict[str, str]:
    """Fields that a FIFO queue needs. The ID is random: SQS would drop a body that it got in the last five minutes."""
    return {"MessageGroupId": message.group, "MessageDeduplicationId": secrets.token_hex(16)}


def _typed(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message attribute without the fields that ReceiveMessage adds."""
    return {name: value[name] for name in ("DataType", "StringValue", "BinaryValue") if name in value}
