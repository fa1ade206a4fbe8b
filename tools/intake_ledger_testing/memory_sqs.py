"""A queue and its dead-letter queue in memory, for a consumer that takes one batch after another."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from intake_ledger_testing.events import sqs_record

QUEUE_URL, DEAD_LETTER_URL = "memory://queue", "memory://dead-letters"
MAX_RECEIVES = 1_000
"""As the construct sets it: what comes more often is moved to the dead-letter queue by SQS itself."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that a person has to look at."""

    body: str
    """The message as it was first sent."""
    attributes: Mapping[str, str | int] = field(default_factory=dict)
    """What the consumer says of it: `reason`, `key`, `version_id`, `attempts` and so on. Nothing when omitted,
    as when SQS itself moved it."""

    @property
    def reason(self) -> str:
        """Why it is here; empty when SQS itself moved it."""
        return str(self.attributes.get("reason", ""))


@dataclass(slots=True)
class Message:
    """A message in the queue."""

    id: str
    body: str
    attributes: Mapping[str, str | int]
    visible_at: int
    """Epoch milliseconds: until then it is hidden."""
    receives: int = 0


class MemorySQS:
    """What the consumer asks of SQS, and what Lambda does with the queue. `clock` gives epoch milliseconds."""

    def __init__(self, *, clock: Callable[[], int], visibility_seconds: float) -> None:
        self._clock = clock
        self._visibility_ms = round(visibility_seconds * 1000)
        self._sent = 0
        self.messages: list[Message] = []
        self.dead_letters: list[DeadLetter] = []

    def send(self, body: str, attributes: Mapping[str, str | int] | None = None) -> None:
        """Put a message into the queue, visible at once."""
        self._sent += 1
        self.messages.append(Message(f"message-{self._sent}", body, dict(attributes or {}), self._clock()))

    def next_visible_at(self) -> int | None:
        """When the next message can be received, in epoch milliseconds; None when there is none."""
        return min((one.visible_at for one in self.messages), default=None)

    def receive(self, most: int, order: Callable[[Sequence[Message]], Sequence[Message]]) -> list[dict[str, Any]]:
        """A batch as Lambda is given it; `order` says which of the visible messages come first."""
        visible = [one for one in self.messages if one.visible_at <= self._clock()]
        records = []
        for one in order(visible)[:most]:
            one.receives += 1
            if one.receives > MAX_RECEIVES:
                self.messages.remove(one)
                self.dead_letters.append(DeadLetter(one.body, one.attributes))
                continue
            one.visible_at = self._clock() + self._visibility_ms
            records.append(
                sqs_record(one.body, message_id=one.id, receives=one.receives, attributes=one.attributes),
            )
        return records

    def delete(self, ids: Iterable[str]) -> None:
        """What Lambda does with messages that the consumer did not name as failed."""
        done = set(ids)
        self.messages = [one for one in self.messages if one.id not in done]

    def change_message_visibility_batch(self, **request: Any) -> dict[str, Any]:
        """As boto3's client."""
        visible = {one.id: one for one in self.messages}
        answer: dict[str, Any] = {"Successful": [], "Failed": []}
        for entry in request["Entries"]:
            message = visible.get(entry["ReceiptHandle"])
            if message is None:
                # Somebody else has deleted it meanwhile.
                problem = {"Code": "InvalidParameterValue", "Message": "the message does not exist"}
                answer["Failed"].append({"Id": entry["Id"], "SenderFault": True, **problem})
            else:
                message.visible_at = self._clock() + entry["VisibilityTimeout"] * 1000
                answer["Successful"].append({"Id": entry["Id"]})
        return answer

    def send_message(self, **request: Any) -> None:
        """As boto3's client: to the queue itself, which wakes a key, or to the dead-letter queue."""
        if request["QueueUrl"] == QUEUE_URL:
            self.send(request["MessageBody"])
            return
        if request["QueueUrl"] != DEAD_LETTER_URL:
            raise NotImplementedError(request["QueueUrl"])
        attributes = {
            name: int(one["StringValue"]) if one["DataType"] == "Number" else one["StringValue"]
            for name, one in request.get("MessageAttributes", {}).items()
        }
        self.dead_letters.append(DeadLetter(request["MessageBody"], attributes))
