"""The messages of a batch: what they say, and in which order they are handled."""

from collections.abc import Mapping
from typing import Any

from intake_ledger.changes import Change, parse_message

PATIENCE = 10
"""A message that was received more often than this waits no longer behind fresh ones."""


class Message:
    """A message of SQS, parsed."""

    def __init__(self, record: Mapping[str, Any]) -> None:
        self.record = record
        self.parsed = parse_message(record["body"], rejected_fence=_rejected_fence(record))
        self.id: str = record["messageId"]
        self.receives = receives(record)

    @property
    def receipt(self) -> str:
        """What SQS calls this delivery of the message."""
        handle: str = self.record["receiptHandle"]
        return handle

    @property
    def keys(self) -> frozenset[str]:
        """Of the objects that the message is about."""
        return frozenset(one.key for one in self.parsed if isinstance(one, Change))

    @property
    def only_change(self) -> Change | None:
        """The change, where the message says nothing else."""
        return self.parsed[0] if len(self.parsed) == 1 and isinstance(self.parsed[0], Change) else None


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
    return int(record.get("attributes", {}).get("ApproximateReceiveCount", "1"))


def _rejected_fence(record: Mapping[str, Any]) -> int | None:
    value = record.get("messageAttributes", {}).get("rejected_fence", {}).get("stringValue", "")
    return int(value) if len(value) < 20 and value.isascii() and value.isdecimal() else None
