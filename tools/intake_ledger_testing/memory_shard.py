"""An in-memory shard of a Kinesis stream, and the part of Lambda that reads it."""

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

STREAM_ARN = "arn:aws:kinesis:eu-central-1:111122223333:stream/intake"
RETENTION_SECONDS = 7 * 86_400
_FIRST_PAUSE_MS, _LONGEST_PAUSE_MS = 1_000, 60_000
"""Lambda waits longer after each invocation in a row that has finished nothing."""


@dataclass(frozen=True, slots=True)
class ShardRecord:
    """A record of the shard."""

    number: str
    """Its sequence number."""
    data: str
    key: str
    """The partition key."""
    arrived_at: int
    """Epoch milliseconds."""


class MemoryShard:
    """One shard. Its mapping delivers the records in order, and again from the lowest failed record on.

    `clock` returns epoch milliseconds.
    """

    def __init__(self, *, clock: Callable[[], int], retention_seconds: float = RETENTION_SECONDS) -> None:
        self._clock = clock
        self._retention_ms = round(retention_seconds * 1000)
        self._sent = 0
        self._failures = 0
        self._due = 0
        self.records: list[ShardRecord] = []
        """The records that the mapping has not passed."""
        self.expired: list[ShardRecord] = []
        """Records that the stream deleted at the end of its retention, before they were finished."""

    def send(self, data: str, key: str) -> None:
        """Put a record into the stream."""
        self._sent += 1
        self.records.append(ShardRecord(f"{self._sent:056}", data, key, self._clock()))

    def next_at(self) -> int | None:
        """Return the time of the next delivery in epoch milliseconds, or None."""
        return max(self._due, self._clock()) if self.records else None

    def receive(self, most: int) -> list[dict[str, Any]]:
        """Return the next records in the form that Lambda passes. They stay until `passed`."""
        now = self._clock()
        self.expired += [one for one in self.records if one.arrived_at + self._retention_ms <= now]
        self.records = [one for one in self.records if one.arrived_at + self._retention_ms > now]
        return [_event(one) for one in self.records[:most]] if self._due <= now else []

    def passed(self, delivered: Sequence[dict[str, Any]], failed: Sequence[str] | None) -> None:
        """Move on after an invocation.

        Args:
            delivered: the records of the invocation.
            failed: the sequence numbers that the function has named. None: the invocation has failed.

        """
        numbers = [one["kinesis"]["sequenceNumber"] for one in delivered]
        lowest = numbers[0] if failed is None else min(failed, default=None)
        done = {number for number in numbers if lowest is None or number < lowest}
        self.records = [one for one in self.records if one.number not in done]
        self._failures = 0 if done else self._failures + 1
        pause = min(_FIRST_PAUSE_MS * 2 ** min(self._failures, 10), _LONGEST_PAUSE_MS)
        self._due = self._clock() + (0 if lowest is None else pause)


def _event(record: ShardRecord) -> dict[str, Any]:
    return {
        "kinesis": {
            "kinesisSchemaVersion": "1.0",
            "partitionKey": record.key,
            "sequenceNumber": record.number,
            "data": base64.b64encode(record.data.encode()).decode(),
            "approximateArrivalTimestamp": record.arrived_at / 1000,
        },
        "eventSource": "aws:kinesis",
        "eventVersion": "1.0",
        "eventID": f"shardId-000000000000:{record.number}",
        "eventName": "aws:kinesis:record",
        "awsRegion": "eu-central-1",
        "eventSourceARN": STREAM_ARN,
    }
