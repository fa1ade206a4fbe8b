"""Requests of the consumer to SQS: change visibility, delete, wake a key, send a copy to the dead-letter queue."""

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
"""SQS allows twelve hours after the receive, and the function may have held the message for 15 minutes."""
# Characters that SQS does not take. The pattern is compiled at the first use, because that would slow the import.
_FORBIDDEN = "[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"
_TOO_LONG = frozenset({"InvalidParameterValue", "InvalidParameterValueException"})

_MAX_PART_BYTES = 200 * 1024
"""The size of a part that a dead-letter queue with SQS's earlier limit of 256 KiB takes, with attributes."""


class NotDone(Exception):  # noqa: N818 - named as the other errors
    """Some requests to SQS failed. The text has their number and the first reason."""


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
        """Change the visibility of messages, so that SQS delivers them again after these seconds.

        Args:
            delays: pairs of receipt handle and seconds. One request has ten of them.
            in_time: tells before each request whether there is time for it. There always is when omitted.

        Raises:
            NotDone: Some requests failed. Their messages come back after the queue's visibility timeout.

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
        """Delete messages, as Lambda does for a batch that succeeded.

        Raises:
            NotDone: Some requests failed. Their messages are delivered again, as duplicates.

        """
        self._in_tens("delete_message_batch", [{"ReceiptHandle": handle} for handle in receipt_handles], in_time)

    def _in_tens(self, operation: str, entries: Sequence[Mapping[str, Any]], in_time: Callable[[], bool]) -> None:
        """Send ten entries in each request. After a failed request, the next ones are still sent."""
        failed: list[tuple[Mapping[str, Any], str]] = [
            (entry, "no receipt handle") for entry in entries if not entry["ReceiptHandle"]
        ]
        for group in batched((entry for entry in entries if entry["ReceiptHandle"]), _MAX_ENTRIES):
            if not in_time():
                failed += [(entry, "no time was left") for entry in group]
                continue
            try:
                refused = self._request(operation, group)
                # SQS's own failures may pass at once.
                again = [entry for entry, _, fault in refused if not fault]
                failed += [(entry, why) for entry, why, fault in refused if fault]
                failed += [(entry, why) for entry, why, _ in self._request(operation, again)] if again else []
            except (BotoCoreError, ClientError) as error:
                failed += [(entry, str(error)) for entry in group]
        if failed:
            raise NotDone(f"{operation} failed for {len(failed)} of {len(entries)} messages, first: {failed[0][1]}")

    def _request(
        self, operation: str, entries: Sequence[Mapping[str, Any]]
    ) -> list[tuple[Mapping[str, Any], str, bool]]:
        """The entries that SQS refuses, each with the reason, and True if the sender is at fault."""
        sent: Any = [{"Id": str(number), **entry} for number, entry in enumerate(entries)]
        answer = getattr(self._client, operation)(QueueUrl=self._queue_url, Entries=sent)
        return [
            (
                entries[int(failure["Id"])],
                f"{failure.get('Code')} {failure.get('Message', '')}".strip(),
                bool(failure.get("SenderFault")),
            )
            for failure in answer.get("Failed", ())
        ]

    def wake(self, body: str) -> None:
        """Send one of the pipeline's own messages to its queue."""
        self._client.send_message(QueueUrl=self._queue_url, MessageBody=body)

    def dead_letter(self, body: str, attributes: Mapping[str, str | int | None]) -> None:
        """Send a copy to the dead-letter queue. Message attributes have the reason and facts about the change."""
        message: dict[str, Any] = {
            name: {"DataType": "Number", "StringValue": str(value)}
            if isinstance(value, int)
            else {"DataType": "String", "StringValue": re.sub(_FORBIDDEN, "\ufffd", value)}
            for name, value in attributes.items()
            if value not in (None, "")
        }
        body = re.sub(_FORBIDDEN, "\ufffd", body)
        # A body of the maximum size leaves no room for attributes. If the dead-letter queue has a lower limit than the
        # queue, the body is truncated. S3 and EventBridge never send such a body.
        for attempt in ({"MessageAttributes": message}, {}):
            sent: Any = {"MessageBody": body, **attempt}
            try:
                self._send_dead_letter(**sent)
            except ClientError as error:
                if error.response["Error"]["Code"] not in _TOO_LONG:
                    raise
            else:
                return
        message["body_bytes"] = {"DataType": "Number", "StringValue": str(len(body.encode()))}
        self._send_dead_letter(MessageBody=self._part_of(body), MessageAttributes=message)

    def _part_of(self, body: str) -> str:
        """The text that stands for a body that the dead-letter queue does not take."""
        return body.encode()[:_MAX_PART_BYTES].decode(errors="ignore")

    def _send_dead_letter(self, **message: Any) -> None:
        self._client.send_message(QueueUrl=self._dlq_url, **message)
