"""A stand-in of Lambda's event source mapping for a stream, since the local AWS neither bisects nor keeps a checkpoint.

It does for one shard what AWS documents. It invokes the function with the next records. If the function names failed
records, it invokes it again from the lowest one on. With `bisect`, a batch whose function failed is split in two. After
its limit of retries, it drops the records.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

Record = dict[str, Any]
Function = Callable[[Sequence[Record]], list[str]]
"""Takes the records of a batch and returns the sequence numbers of `batchItemFailures`. It may raise."""


class FunctionError(Exception):
    """The function ended with an error, or its process died."""


@dataclass
class StreamMapping:
    """The poller of one shard."""

    function: Function
    batch_size: int = 100
    bisect: bool = True
    retries: int | None = None
    """`MaximumRetryAttempts`; no limit when omitted."""
    invocations: list[list[str]] = field(default_factory=list)
    """The sequence numbers of each invocation."""
    dropped: list[str] = field(default_factory=list)
    """Records that the mapping gave up."""

    def run(self, records: Sequence[Record], *, most: int = 10_000) -> None:
        """Read the shard to its end.

        Raises:
            AssertionError: It is not at the end after `most` invocations.

        """
        for start in range(0, len(records), self.batch_size):
            self._batch(list(records[start : start + self.batch_size]), most)

    def _batch(self, records: list[Record], most: int) -> None:
        tries = 0
        while records:
            assert len(self.invocations) < most, "the shard does not advance"
            self.invocations.append([number_of(record) for record in records])
            try:
                failed = self.function(records)
            except FunctionError:
                if self.bisect and len(records) > 1:
                    middle = len(records) // 2
                    self._batch(records[:middle], most)
                    records = records[middle:]
                    continue
                rest = records
            else:
                if not failed:
                    return
                lowest = min(failed)
                rest = [record for record in records if number_of(record) >= lowest]
                assert rest, f"{lowest} is no record of the batch"
            # A batch that has advanced is another batch.
            tries = tries + 1 if rest[0] is records[0] else 0
            if self.retries is not None and tries > self.retries:
                self.dropped += [number_of(record) for record in rest]
                return
            records = rest


def number_of(record: Record) -> str:
    """The sequence number of a record."""
    details = record.get("kinesis") or record["dynamodb"]
    number = details.get("sequenceNumber") or details["SequenceNumber"]
    return str(number)
