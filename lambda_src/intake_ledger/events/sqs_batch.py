"""Parse the messages of a batch, and put them in the order in which they are handled."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from intake_ledger.events.parser import parse_message
from intake_ledger.protocol import Change

PATIENCE = 10
"""A message that was received more often than this comes before new ones."""
_MAX_DIGITS = 20
_NUMBERS = (
    ("attributes", "ApproximateReceiveCount"),
    ("attributes", "SentTimestamp"),
    ("messageAttributes", "rejected_fence", "stringValue"),
)


class Message:
    """A message of SQS, parsed."""

    def __init__(self, record: Mapping[str, Any]) -> None:
        self.record = record
        body = record.get("body")
        self.body = body if isinstance(body, str) else json.dumps(body)
        receives, self.sent_at, rejected_fence = _numbers(record)
        """`sent_at`: when SQS got the message, in epoch milliseconds. None: the record does not say."""
        self.parsed = parse_message(self.body, rejected_fence=rejected_fence)
        # Lambda fails the whole batch if the response has an id that it does not know.
        self.id = str(record.get("messageId") or "")
        self.receives = receives or 1
        """The number of times that SQS has delivered the message, with this one."""

    @property
    def receipt(self) -> str:
        """The receipt handle of this delivery. Empty if the record has none."""
        return str(self.record.get("receiptHandle") or "")

    @property
    def keys(self) -> frozenset[str]:
        """Keys of the objects that this message reports."""
        return frozenset(part.key for part in self.parsed if isinstance(part, Change))

    @property
    def only_change(self) -> Change | None:
        """The change, if the message reports nothing else."""
        return self.parsed[0] if len(self.parsed) == 1 and isinstance(self.parsed[0], Change) else None


def read_batch(event: Mapping[str, Any]) -> list[Message]:
    """The messages of Lambda's event, in the order in which they are handled.

    Raises:
        ValueError: The event does not come from SQS. The function was invoked directly.

    """
    records: Any = event.get("Records")
    if not isinstance(records, Sequence) or not all(isinstance(record, Mapping) for record in records):
        raise ValueError("the event has no list of SQS messages: send messages to the pipeline's queue instead")
    return sorted(map(Message, records), key=turn)


def turn(message: Message) -> int:
    """The turn of a message: messages that failed before come last, because they may fail slowly again.

    A message that was received more than `PATIENCE` times comes first. It may be a good one that never had the time.
    """
    if message.receives > PATIENCE:
        return 0
    return 1 if message.receives == 1 else 2


def _numbers(record: Mapping[str, Any]) -> list[int | None]:
    """The whole numbers at the ends of `_NUMBERS`. None for anything else, because senders choose the attributes."""
    numbers: list[int | None] = []
    for path in _NUMBERS:
        value: Any = record
        for name in path:
            value = value.get(name) if isinstance(value, Mapping) else None
        valid = isinstance(value, str) and len(value) < _MAX_DIGITS and value.isascii() and value.isdecimal()
        numbers.append(int(value) if valid else None)
    return numbers
