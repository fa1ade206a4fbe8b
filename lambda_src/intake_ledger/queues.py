"""What the consumer asks of SQS: to deliver later, and to keep a copy in the dead-letter queue."""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from itertools import batched
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

MAX_VISIBILITY_SECONDS = 12 * 3600  # SQS's limit, from the receive on
# In any SQS text. Compiled when the first message goes there: it would be a good part of this module's import.
_FORBIDDEN = "[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"
_TOO_LONG = frozenset({"InvalidParameterValue", "InvalidParameterValueException"})
_RESERVE_SECONDS = 900
"""The function may have held the message for as long as Lambda lets it run."""


class Queues:
    """The pipeline's queue and its dead-letter queue. The client is made when it is first needed."""

    def __init__(self, make_client: "Callable[[], SQSClient]", queue_url: str, dlq_url: str) -> None:
        self._make_client = make_client
        self._queue_url = queue_url
        self._dlq_url = dlq_url

    @cached_property
    def _client(self) -> "SQSClient":
        return self._make_client()

    def deliver_later(self, receipt_handle: str, seconds: float) -> None:
        """Have the message delivered again after this time, once the batch has reported it as failed."""
        self._client.change_message_visibility(
            QueueUrl=self._queue_url,
            ReceiptHandle=receipt_handle,
            VisibilityTimeout=round(min(max(seconds, 0), MAX_VISIBILITY_SECONDS - _RESERVE_SECONDS)),
        )

    def delete(self, receipt_handles: Sequence[str]) -> None:
        """Acknowledge messages, as Lambda does for a batch that comes to its end; what SQS keeps comes again."""
        for few in batched(receipt_handles, 10):  # SQS's limit
            entries: Any = [{"Id": str(n), "ReceiptHandle": handle} for n, handle in enumerate(few)]
            self._client.delete_message_batch(QueueUrl=self._queue_url, Entries=entries)

    def dead_letter(self, body: str, attributes: Mapping[str, str | int | None]) -> None:
        """Send a copy to the dead-letter queue, with the reason and what else is known as message attributes."""
        message: dict[str, Any] = {
            name: {"DataType": "Number", "StringValue": str(value)}
            if isinstance(value, int)
            else {"DataType": "String", "StringValue": re.sub(_FORBIDDEN, "\ufffd", value)}
            for name, value in attributes.items()
            if value not in (None, "")
        }
        try:
            self._client.send_message(QueueUrl=self._dlq_url, MessageBody=body, MessageAttributes=message)
        except ClientError as error:
            if error.response["Error"]["Code"] not in _TOO_LONG:
                raise
            # A body of the greatest length has no room for attributes beside it; the log has the reason.
            self._client.send_message(QueueUrl=self._dlq_url, MessageBody=body)
