"""Requests of the consumer to SQS: deliver again later, delete, wake a key, keep a copy in the dead-letter queue."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from itertools import batched
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

_MAX_ENTRIES = 10  # SQS's limit of a batch request
_MAX_DELAY_SECONDS = 12 * 3600 - 900
"""SQS allows twelve hours from the receive on, and the function may have held the message for 15 minutes."""
# In any SQS text. Compiled when the first message goes there: it would be a good part of this module's import.
_FORBIDDEN = "[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"
_TOO_LONG = frozenset({"InvalidParameterValue", "InvalidParameterValueException"})

_MAX_PART_BYTES = 200 * 1024
"""Of a body that a dead-letter queue with SQS's earlier limit of 256 KiB does not take."""


class NotDone(Exception):  # noqa: N818 - named as the other errors
    """SQS was not told about some messages; the text says how many and why."""


class Queues:
    """The pipeline's queue and its dead-letter queue. The client is made when it is first needed."""

    def __init__(self, make_client: "Callable[[], SQSClient]", queue_url: str, dlq_url: str) -> None:
        self._make_client = make_client
        self._queue_url = queue_url
        self._dlq_url = dlq_url

    @cached_property
    def _client(self) -> "SQSClient":
        return self._make_client()

    def deliver_later(self, delays: Sequence[tuple[str, float]], *, in_time: Callable[[], bool] = lambda: True) -> None:
        """Have messages delivered again after these seconds, once the batch has reported them as failed.

        `delays` are pairs of receipt handle and seconds. SQS is asked in tens, as long as `in_time` is true.

        Raises:
            NotDone: For some. They come back after the queue's own visibility timeout.

        """
        self._in_tens(
            "change_message_visibility_batch",
            [
                {"ReceiptHandle": handle, "VisibilityTimeout": math.ceil(min(max(seconds, 0), _MAX_DELAY_SECONDS))}
                for handle, seconds in delays
            ],
            in_time,
        )

    def delete(self, receipt_handles: Sequence[str], *, in_time: Callable[[], bool] = lambda: True) -> None:
        """Acknowledge messages, as Lambda does for a batch that succeeded.

        Raises:
            NotDone: For some. They come again, as duplicates.

        """
        self._in_tens("delete_message_batch", [{"ReceiptHandle": handle} for handle in receipt_handles], in_time)

    def _in_tens(self, operation: str, entries: Sequence[Mapping[str, Any]], in_time: Callable[[], bool]) -> None:
        """Send the entries in tens. A request that fails does not keep the others from being sent."""
        failed: list[tuple[Mapping[str, Any], str]] = [
            (one, "no receipt handle") for one in entries if not one["ReceiptHandle"]
        ]
        for few in batched((one for one in entries if one["ReceiptHandle"]), _MAX_ENTRIES):
            if not in_time():
                failed += [(one, "no time was left") for one in few]
                continue
            try:
                refused = self._request(operation, few)
                # SQS's own failures may pass at once.
                again = [one for one, _, fault in refused if not fault]
                failed += [(one, why) for one, why, fault in refused if fault]
                failed += [(one, why) for one, why, _ in self._request(operation, again)] if again else []
            except (BotoCoreError, ClientError) as error:
                failed += [(one, str(error)) for one in few]
        if failed:
            raise NotDone(f"{operation} failed for {len(failed)} of {len(entries)} messages, first: {failed[0][1]}")

    def _request(
        self, operation: str, entries: Sequence[Mapping[str, Any]]
    ) -> list[tuple[Mapping[str, Any], str, bool]]:
        """The entries that SQS refuses, each with the reason and whether the fault is the sender's."""
        sent: Any = [{"Id": str(n), **one} for n, one in enumerate(entries)]
        answer = getattr(self._client, operation)(QueueUrl=self._queue_url, Entries=sent)
        return [
            (
                entries[int(one["Id"])],
                f"{one.get('Code')} {one.get('Message', '')}".strip(),
                bool(one.get("SenderFault")),
            )
            for one in answer.get("Failed", ())
        ]

    def wake(self, body: str) -> None:
        """Send a message of the pipeline's own to its queue."""
        self._client.send_message(QueueUrl=self._queue_url, MessageBody=body)

    def dead_letter(self, body: str, attributes: Mapping[str, str | int | None]) -> None:
        """Send a copy to the dead-letter queue, with the reason and what else is known as message attributes."""
        message: dict[str, Any] = {
            name: {"DataType": "Number", "StringValue": str(value)}
            if isinstance(value, int)
            else {"DataType": "String", "StringValue": re.sub(_FORBIDDEN, "\ufffd", value)}
            for name, value in attributes.items()
            if value not in (None, "")
        }
        body = re.sub(_FORBIDDEN, "\ufffd", body)
        # A body of the greatest length has no room for attributes. One that even this queue does not take, since its
        # limit is lower than the other's, loses its end: S3 and EventBridge never send so much.
        for attempt in ({"MessageAttributes": message}, {}):
            sent: Any = {"MessageBody": body, **attempt}
            try:
                self._client.send_message(QueueUrl=self._dlq_url, **sent)
            except ClientError as error:
                if error.response["Error"]["Code"] not in _TOO_LONG:
                    raise
            else:
                return
        part = body.encode()[:_MAX_PART_BYTES].decode(errors="ignore")
        message["body_bytes"] = {"DataType": "Number", "StringValue": str(len(body.encode()))}
        self._client.send_message(QueueUrl=self._dlq_url, MessageBody=part, MessageAttributes=message)
