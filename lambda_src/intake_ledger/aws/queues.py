"""Requests of the consumer to SQS: change visibility, delete, wake a key, send a copy to the dead-letter queue."""

import hashlib
import math
import re
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import batched
from typing import TYPE_CHECKING, Any, Literal, cast

from botocore.exceptions import BotoCoreError, ClientError

from intake_ledger.protocol.errors import CopyRefused

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

_MAX_ENTRIES = 10  # SQS's limit of a batch request
_MAX_DELAY_SECONDS = 12 * 3600 - 900
"""SQS allows twelve hours after the receive, and the function may have held the message for 15 minutes."""
# Characters that SQS does not take. The pattern is compiled at the first use, because that would slow the import.
_FORBIDDEN = "[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"
_TOO_LONG = frozenset({"InvalidParameterValue", "InvalidParameterValueException"})
_NEEDED = ("rejected_fence", "reason_code")
"""The first of these attributes is sent alone if the body leaves no room for all of them."""


_IN_FLIGHT: Literal["ApproximateNumberOfMessagesNotVisible"] = "ApproximateNumberOfMessagesNotVisible"
_NUMBERS: tuple[Any, ...] = ("ApproximateNumberOfMessages", "ApproximateNumberOfMessagesDelayed", _IN_FLIGHT)
_READS = 3
_MAX_BATCH_BYTES = 240 * 1024
"""The size of a request that each queue takes, also one with the earlier limit of 256 KiB."""
_ENTRY_BYTES = 1024
"""Room for the names and types of the attributes of a copy, and its trace."""


class NotDone(Exception):  # noqa: N818 - named as the other errors
    """Some requests to SQS failed. The text has their number and the first reason."""


class Queues:
    """The pipeline's queue and its dead-letter queue. The client is made when it is first needed."""

    def __init__(
        self,
        make_client: "Callable[[], SQSClient]",
        queue_url: str,
        dlq_url: str,
        *,
        shortened: Callable[[str], str | None] = lambda _: None,
    ) -> None:
        """Make the queues.

        Args:
            make_client: makes the client.
            queue_url: of the queue.
            dlq_url: of the dead-letter queue, which is FIFO if the queue is.
            shortened: gives a short text that says where the message of a body stays. None, or omitted: it stays
                nowhere.

        """
        self._make_client = make_client
        self._queue_url = queue_url
        self._dlq_url = dlq_url
        self._shortened = shortened

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

    def in_flight(self) -> int:
        """The approximate number of messages of the queue that were received and are invisible."""
        answer = self._client.get_queue_attributes(QueueUrl=self._queue_url, AttributeNames=[_IN_FLIGHT])
        return int(answer["Attributes"][_IN_FLIGHT])

    def is_empty(self) -> bool:
        """True if the queue seems to have no message: none that waits, is delayed, or is in flight.

        SQS's numbers are approximate. Each of three reads has to say so.
        """
        for _ in range(_READS):
            answer = self._client.get_queue_attributes(QueueUrl=self._queue_url, AttributeNames=[*_NUMBERS])
            if any(int(answer["Attributes"].get(name, 0)) for name in _NUMBERS):
                return False
        return True

    def send_copies(
        self, entries: Sequence[Mapping[str, Any]], *, in_time: Callable[[], bool] = lambda: True
    ) -> tuple[set[int], NotDone | None]:
        """Send messages to the queue.

        Args:
            entries: of SendMessageBatch, without ids.
            in_time: tells before each request whether there is time for it.

        Returns:
            The places of the messages that SQS has taken, and why it has not taken the others.

        """
        taken, why = set[int](), ""
        for group in _groups(entries):
            if not in_time():
                why = why or "no time was left"
                break
            try:
                answer = self._client.send_message_batch(
                    QueueUrl=self._queue_url, Entries=cast("Any", [{"Id": str(one), **entries[one]} for one in group])
                )
            except (BotoCoreError, ClientError) as error:
                why = why or str(error)
                continue
            taken |= {int(one["Id"]) for one in answer.get("Successful", ())}
            why = why or next((f"{one.get('Code')} {one.get('Message', '')}" for one in answer.get("Failed", ())), "")
        left = len(entries) - len(taken)
        return taken, NotDone(f"{left} of {len(entries)} copies were not taken, first: {why}") if left else None

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

    def wake(self, body: str, group: str = "") -> None:
        """Send one of the pipeline's own messages to its queue. A recovery has a message group: see `Look`."""
        more: Any = {"MessageGroupId": group} if group else {}
        self._client.send_message(QueueUrl=self._queue_url, MessageBody=body, **more)

    def dead_letter(self, body: str, attributes: Mapping[str, str | int | None], group: str = "") -> str | None:
        """Send a copy to the dead-letter queue. Message attributes have the reason and facts about the change.

        Args:
            body: the body of the copy.
            attributes: the attributes. One without a value is left out.
            group: the message group, for a FIFO queue.

        Returns:
            The digest of the body, if it leaves no room for attributes. None: the copy has at least the attribute by
            which the ledger recognizes it, or else the reason code.

        Raises:
            CopyRefused: The copy is not in the queue.

        """
        message: dict[str, Any] = {
            name: {"DataType": "Number", "StringValue": str(value)}
            if isinstance(value, int)
            else {"DataType": "String", "StringValue": taken_text(value)}
            for name, value in attributes.items()
            if value not in (None, "")
        }
        body = taken_text(body)
        # A body near the maximum size leaves no room for all attributes. S3 and EventBridge never send such a body.
        needed = next(({name: message[name]} for name in _NEEDED if name in message), {})
        for few in (message, needed, {}) if needed else (message, {}):
            if self._is_taken(group, MessageBody=body, **({"MessageAttributes": few} if few else {})):
                return None if few else body_digest(body)
        size = len(body.encode())
        if (pointer := self._shortened(body)) is None:
            why = f"its limit is below the {size:,} bytes of the message. Raise its MaximumMessageSize"
            raise CopyRefused(f"the dead-letter queue does not take the copy: {why}")
        message["body_bytes"] = {"DataType": "Number", "StringValue": str(size)}
        if not self._is_taken(group, MessageBody=pointer, MessageAttributes=message):
            raise CopyRefused("the dead-letter queue does not take a pointer to the record: it is too long")
        return None

    def _is_taken(self, group: str, **message: Any) -> bool:
        """Send a copy. False: it is too long.

        Raises:
            CopyRefused: SQS refuses it for another reason, or does not answer.

        """
        try:
            self._send_dead_letter(group, **message)
        except (BotoCoreError, ClientError) as error:
            code = error.response["Error"]["Code"] if isinstance(error, ClientError) else type(error).__name__
            if code in _TOO_LONG:
                return False
            text = f"the dead-letter queue does not take the copy: {code}"
            raise CopyRefused(text, detail=str(error)) from error
        return True

    def _send_dead_letter(self, group: str, **message: Any) -> None:
        if self._dlq_url.endswith(".fifo"):
            # Not of the content: SQS would drop the copy of a second rejection within five minutes.
            message |= {"MessageGroupId": group, "MessageDeduplicationId": secrets.token_hex(16)}
        self._client.send_message(QueueUrl=self._dlq_url, **message)


def _groups(entries: Sequence[Mapping[str, Any]]) -> Iterator[list[int]]:
    """The places of the entries, in groups that one request takes."""
    group, size = list[int](), 0
    for place, entry in enumerate(entries):
        texts = [one["StringValue"] for one in entry.get("MessageAttributes", {}).values()]
        length = sum(len(text.encode()) for text in (entry["MessageBody"], *texts)) + _ENTRY_BYTES
        if group and (len(group) == _MAX_ENTRIES or size + length > _MAX_BATCH_BYTES):
            yield group
            group, size = [], 0
        group.append(place)
        size += length
    if group:
        yield group


def taken_text(text: str) -> str:
    """The text without characters that SQS does not take."""
    return re.sub(_FORBIDDEN, "\ufffd", text)


def body_digest(body: str) -> str:
    """A short text that only this body has, as the dead-letter queue takes it."""
    return hashlib.sha256(taken_text(body).encode()).hexdigest()[:32]
