"""An in-memory queue with its dead-letter queue, for a consumer that takes one batch after another."""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from botocore.exceptions import ClientError

from intake_ledger_testing.events import sqs_record

QUEUE_URL, DEAD_LETTER_URL = "memory://queue", "memory://dead-letters"
MAX_BATCH_SIZE = 10  # SQS's limit
MAX_MESSAGE_BYTES = 1024 * 1024
"""SQS's limit, and the highest `MaximumMessageSize` of a queue."""
RETENTION_SECONDS = 14 * 86_400
"""SQS's limit, and the construct's retention."""
MAX_IN_FLIGHT = 120_000
"""The largest number of received messages that are not deleted, in a standard queue."""
MAX_RECEIVES = 1_000
"""The construct's `maxReceiveCount`. SQS moves messages with more receives to the dead-letter queue."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message of the dead-letter queue."""

    body: str
    """The body of the original message."""
    attributes: Mapping[str, str | int] = field(default_factory=dict)
    """Attributes that the consumer adds: `reason`, `reason_code`, `key`, `version_id`, `attempts` and so on. Empty when
    omitted, as for a message that SQS moved itself.
    """
    group: str = ""
    """The message group. Empty when omitted, as for a standard queue."""

    @property
    def reason(self) -> str:
        """The reason of the rejection. Empty if SQS itself moved the message."""
        return str(self.attributes.get("reason", ""))

    @property
    def key(self) -> str:
        """The key of the object or message. Empty if SQS itself moved the message, or if it could not be read."""
        return unquote(str(self.attributes.get("key", "")))


@dataclass(slots=True)
class QueuedMessage:
    """A message of the queue."""

    id: str
    body: str
    attributes: Mapping[str, str | int]
    visible_at: int
    """The end of its visibility timeout in epoch milliseconds."""
    sent_at: int = 0
    """Epoch milliseconds."""
    group: str = ""
    """The message group of a FIFO queue."""
    receives: int = 0
    trace: str = ""
    """The system attribute `AWSTraceHeader`."""


class MemorySQS:
    """The methods of SQS that the consumer, Lambda and a worker call. `clock` returns epoch milliseconds.

    With `fifo`, a message waits while an earlier one of its group is in flight, and no order of delivery changes the
    order of a group.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], int],
        visibility_seconds: float,
        queue_url: str = QUEUE_URL,
        dead_letter_url: str = DEAD_LETTER_URL,
        retention_seconds: float = RETENTION_SECONDS,
        in_flight: int = MAX_IN_FLIGHT,
        fifo: bool = False,
    ) -> None:
        self._clock = clock
        self._visibility_ms = round(visibility_seconds * 1000)
        self._queue_url = queue_url
        self._dead_letter_url = dead_letter_url
        self._retention_ms = round(retention_seconds * 1000)
        self._in_flight = in_flight
        self._fifo = fifo
        self._sent = 0
        self.queue_bytes = MAX_MESSAGE_BYTES
        """The `MaximumMessageSize` of the queue."""
        self.dead_letter_bytes = MAX_MESSAGE_BYTES
        """The `MaximumMessageSize` of the dead-letter queue."""
        self.messages: list[QueuedMessage] = []
        self.dead_letters: list[DeadLetter] = []
        self.expired: list[QueuedMessage] = []
        """Messages that the queue deleted at the end of its retention, before they were finished."""

    def send(
        self,
        body: str,
        attributes: Mapping[str, str | int] | None = None,
        *,
        group: str = "",
        delay_seconds: int = 0,
        trace: str = "",
    ) -> None:
        """Send a message to the queue. It is visible after the delay, and is not in flight before."""
        self._sent += 1
        now, name = self._clock(), f"message-{self._sent}"
        visible = now + delay_seconds * 1000
        self.messages.append(QueuedMessage(name, body, dict(attributes or {}), visible, now, group, trace=trace))

    @property
    def in_flight(self) -> int:
        """The number of messages that were received, and are neither deleted nor visible again."""
        return sum(one.receives > 0 and one.visible_at > self._clock() for one in self.messages)

    def next_visible_at(self) -> int | None:
        """Return the time of the next visible message in epoch milliseconds, or None."""
        if not self._fifo:
            return min((one.visible_at for one in self.messages), default=None)
        groups: dict[str, int] = {}
        for one in self.messages:
            groups[one.group] = max(groups.get(one.group, 0), one.visible_at)
        return min(groups.values(), default=None)

    def receive(
        self, most: int, order: Callable[[Sequence[QueuedMessage]], Sequence[QueuedMessage]]
    ) -> list[dict[str, Any]]:
        """Receive a batch in the form that Lambda passes. `order` sorts the visible messages."""
        now = self._clock()
        self._expire(now)
        hidden = [one for one in self.messages if one.visible_at > now]
        visible = [one for one in self.messages if one.visible_at <= now]
        if self._fifo:
            waiting = {one.group for one in hidden}
            visible = [one for one in visible if one.group not in waiting]
        free = self._in_flight - self.in_flight
        records = []
        for one in self._as_sent(order(visible))[: max(min(most, free), 0)]:
            one.receives += 1
            if one.receives > MAX_RECEIVES:
                self.messages.remove(one)
                self.dead_letters.append(DeadLetter(one.body, one.attributes, one.group))
                continue
            one.visible_at = now + self._visibility_ms
            records.append(self._record(one))
        return records

    def receive_message(self, **request: Any) -> dict[str, Any]:
        """Answer as boto3's client. Each receive has its own visibility timeout, and a FIFO queue its groups."""
        self._visibility_ms = request["VisibilityTimeout"] * 1000
        records = self.receive(request["MaxNumberOfMessages"], lambda messages: messages)
        return {
            "Messages": [
                {
                    "MessageId": one["messageId"],
                    "ReceiptHandle": one["receiptHandle"],
                    "Body": one["body"],
                    "Attributes": one["attributes"],
                    "MessageAttributes": {
                        name: {"StringValue": value["stringValue"], "DataType": value["dataType"]}
                        for name, value in one["messageAttributes"].items()
                    },
                }
                for one in records
            ]
        }

    def delete_message_batch(self, **request: Any) -> dict[str, Any]:
        """Answer as boto3's client."""
        _check_entries("DeleteMessageBatch", request["Entries"])
        self.delete(entry["ReceiptHandle"] for entry in request["Entries"])
        return {}

    def purge(self) -> None:
        """Delete all messages of the queue."""
        self.messages.clear()

    def reverse(self) -> None:
        """Reverse the order of the messages. In a FIFO queue, groups change places, and no messages of a group."""
        self.messages = list(self._as_sent(self.messages[::-1]))

    def redrive(self) -> None:
        """Move all messages of the dead-letter queue back to the queue, but those that a person has to choose."""
        letters = self.dead_letters
        self.dead_letters = [one for one in letters if one.attributes.get("reason_code") == "identity_rejected"]
        for one in letters:
            if one not in self.dead_letters:
                self.send(one.body, one.attributes, group=one.group)

    def _as_sent(self, ordered: Sequence[QueuedMessage]) -> Sequence[QueuedMessage]:
        """Return these messages with those of each group of a FIFO queue in the order of the queue."""
        if not self._fifo:
            return ordered
        place = {one.id: number for number, one in enumerate(self.messages)}
        groups: dict[str, deque[QueuedMessage]] = {}
        for one in sorted(ordered, key=lambda one: place[one.id]):
            groups.setdefault(one.group, deque()).append(one)
        return [groups[one.group].popleft() for one in ordered]

    def _expire(self, now: int) -> None:
        self.expired += [one for one in self.messages if one.sent_at + self._retention_ms <= now]
        self.messages = [one for one in self.messages if one.sent_at + self._retention_ms > now]

    def _record(self, message: QueuedMessage) -> dict[str, Any]:
        record = sqs_record(
            message.body,
            message_id=message.id,
            receives=message.receives,
            attributes=message.attributes,
            sent_at=message.sent_at,
        )
        if message.trace:
            record["attributes"]["AWSTraceHeader"] = message.trace
        if message.group or self._fifo:
            record["attributes"]["MessageGroupId"] = message.group
        return record

    def delete(self, ids: Iterable[str]) -> None:
        """Delete messages, as Lambda does with those that the consumer did not report as failed."""
        done = set(ids)
        self.messages = [one for one in self.messages if one.id not in done]

    def get_queue_attributes(self, **_: Any) -> dict[str, Any]:
        """Answer as boto3's client, with the numbers of messages."""
        now = self._clock()
        numbers = {
            "": sum(one.visible_at <= now for one in self.messages),
            "Delayed": sum(one.receives == 0 and one.visible_at > now for one in self.messages),
            "NotVisible": self.in_flight,
        }
        return {"Attributes": {f"ApproximateNumberOfMessages{name}": str(one) for name, one in numbers.items()}}

    def change_message_visibility_batch(self, **request: Any) -> dict[str, Any]:
        """Answer as boto3's client."""
        _check_entries("ChangeMessageVisibilityBatch", request["Entries"])
        visible = {one.id: one for one in self.messages}
        answer: dict[str, Any] = {"Successful": [], "Failed": []}
        for entry in request["Entries"]:
            message = visible.get(entry["ReceiptHandle"])
            if message is None:
                # Another consumer has deleted it in the meantime.
                problem = {"Code": "InvalidParameterValue", "Message": "the message does not exist"}
                answer["Failed"].append({"Id": entry["Id"], "SenderFault": True, **problem})
            else:
                message.visible_at = self._clock() + entry["VisibilityTimeout"] * 1000
                answer["Successful"].append({"Id": entry["Id"]})
        return answer

    def send_message(self, **request: Any) -> None:
        """Send a message to the queue or to the dead-letter queue, as boto3's client does."""
        is_dead = request["QueueUrl"] == self._dead_letter_url
        limit = self.dead_letter_bytes if is_dead else self.queue_bytes
        if _bytes_of(request) > limit:
            text = f"One or more parameters are invalid. Reason: Message must be shorter than {limit} bytes."
            raise _refusal("SendMessage", "InvalidParameterValue", text)
        for name, one in request.get("MessageAttributes", {}).items():
            if not one["StringValue"]:
                text = f"Message (user) attribute '{name}' must contain a non-empty value of type '{one['DataType']}'."
                raise _refusal("SendMessage", "InvalidParameterValue", text)
        attributes = {
            name: int(one["StringValue"]) if one["DataType"] == "Number" else one["StringValue"]
            for name, one in request.get("MessageAttributes", {}).items()
        }
        if request["QueueUrl"] == self._queue_url:
            system = request.get("MessageSystemAttributes", {})
            self.send(
                request["MessageBody"],
                attributes,
                group=request.get("MessageGroupId", ""),
                delay_seconds=request.get("DelaySeconds", 0),
                trace=system.get("AWSTraceHeader", {}).get("StringValue", ""),
            )
        elif request["QueueUrl"] == self._dead_letter_url:
            group = request.get("MessageGroupId", "")
            self.dead_letters.append(DeadLetter(request["MessageBody"], attributes, group))
        else:
            raise NotImplementedError(request["QueueUrl"])

    def send_message_batch(self, **request: Any) -> dict[str, Any]:
        """Send up to ten messages, as boto3's client does."""
        entries = request["Entries"]
        _check_entries("SendMessageBatch", entries)
        if (size := sum(_bytes_of(entry) for entry in entries)) > MAX_MESSAGE_BYTES:
            text = f"Batch requests cannot be longer than {MAX_MESSAGE_BYTES} bytes. You have sent {size} bytes."
            raise _refusal("SendMessageBatch", "AWS.SimpleQueueService.BatchRequestTooLong", text)
        answer: dict[str, Any] = {"Successful": [], "Failed": []}
        for entry in entries:
            try:
                self.send_message(QueueUrl=request["QueueUrl"], **{k: v for k, v in entry.items() if k != "Id"})
                answer["Successful"].append({"Id": entry["Id"]})
            except ClientError as refused:
                answer["Failed"].append({"Id": entry["Id"], "SenderFault": True, **refused.response["Error"]})
        return answer


def _check_entries(operation: str, entries: Sequence[Any]) -> None:
    if not entries:
        raise _refusal(operation, "AWS.SimpleQueueService.EmptyBatchRequest", "There are no entries.")
    if len(entries) > MAX_BATCH_SIZE:
        text = f"Maximum number of entries per request are {MAX_BATCH_SIZE}. You have sent {len(entries)}."
        raise _refusal(operation, "AWS.SimpleQueueService.TooManyEntriesInBatchRequest", text)


def _refusal(operation: str, code: str, text: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": text}}, operation)


def _bytes_of(request: Mapping[str, Any]) -> int:
    """The size of a message as SQS counts it: its body, and the name, type and value of each attribute."""
    texts = [request["MessageBody"]]
    for name, one in request.get("MessageAttributes", {}).items():
        texts += [name, one["DataType"], one["StringValue"]]
    return sum(len(text.encode()) for text in texts)
