"""The messages of a batch: what they say, and in which order they are handled."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from intake_ledger.changes import Change, parse_message

PATIENCE = 10
"""A message that was received more often than this waits no longer behind fresh ones."""
_MAX_DIGITS = 20


class Message:
    """A message of SQS, parsed."""

    def __init__(self, record: Mapping[str, Any]) -> None:
        self.record = record
        body = record.get("body")
        self.body = body if isinstance(body, str) else json.dumps(body)
        self.parsed = parse_message(self.body, rejected_fence=_rejected_fence(record))
        # Lambda takes an id that it does not know for the failure of the whole batch.
        self.id = str(record.get("messageId") or "")
        self.receives = receives(record)
        self.sent_at = _number(record, "attributes", "SentTimestamp")
        """When SQS got the message, in epoch milliseconds; None where that is not told."""

    @property
    def receipt(self) -> str:
        """What SQS calls this delivery of the message; empty where the record has none."""
        return str(self.record.get("receiptHandle") or "")

    @property
    def keys(self) -> frozenset[str]:
        """Of the objects that the message is about."""
        return frozenset(one.key for one in self.parsed if isinstance(one, Change))

    @property
    def only_change(self) -> Change | None:
        """The change, where the message says nothing else."""
        return self.parsed[0] if len(self.parsed) == 1 and isinstance(self.parsed[0], Change) else None


def read_batch(event: Mapping[str, Any]) -> list[Message]:
    """The messages of Lambda's event, in the order in which they are handled.

    Raises:
        ValueError: The event is not one of SQS: somebody invoked the function directly.

    """
    records: Any = event.get("Records")
    if not isinstance(records, Sequence) or not all(isinstance(record, Mapping) for record in records):
        raise ValueError("the event has no list of SQS messages: send messages to the pipeline's queue instead")
    return [Message(record) for record in sorted(records, key=turn)]


def turn(record: Mapping[str, Any]) -> int:
    """What failed before goes last: a sick message must not take the time of the healthy ones. But what came very often
    goes first: it may be healthy, and only ever have found no time left.
    """
    times = receives(record)
    if times > PATIENCE:
        return 0
    return 1 if times == 1 else 2


def receives(record: Mapping[str, Any]) -> int:
    """How often SQS has delivered the message, this time included."""
    return _number(record, "attributes", "ApproximateReceiveCount") or 1


def _rejected_fence(record: Mapping[str, Any]) -> int | None:
    return _number(record, "messageAttributes", "rejected_fence", "stringValue")


def _number(record: Mapping[str, Any], *path: str) -> int | None:
    """The whole number at the end of the path; None for anything else, since whoever may send sets attributes."""
    value: Any = record
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    if not isinstance(value, str) or len(value) >= _MAX_DIGITS:
        return None
    return int(value) if value.isascii() and value.isdecimal() else None
