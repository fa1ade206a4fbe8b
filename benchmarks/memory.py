"""Measures the consumer's memory for larger batches and objects: the peak of a separate process for each size.

    python -m benchmarks.memory

`benchmarks.audit_growth` measures the audit's memory.
"""

import io
import os
import subprocess
import sys
from dataclasses import asdict
from typing import Any, cast
from unittest import mock

from benchmarks import cpu
from benchmarks.measure import Figure, peak_mb, table
from benchmarks.stub import stub

from intake_ledger.aws import Bucket
from intake_ledger.consumer import composition
from intake_ledger.processor import Body, ObjectChange, ObjectStream
from intake_ledger_testing.context import LambdaContext

BATCHES = (1, 10, 100, 1_000, 10_000)
"""10,000 is Lambda's largest batch."""
MEGABYTES = (1, 10, 100)
_LINE = b'{"account": "4711", "amount": "12.50", "currency": "EUR"}\n'


class Stream(io.RawIOBase):
    """A stream of JSON lines of this size, generated while it is read."""

    def __init__(self, size: int) -> None:
        self._left = size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        start = -self._left % len(_LINE)
        count = min(len(buffer), self._left)
        lines = _LINE[start:] + _LINE * (count // len(_LINE) + 1)
        buffer[:count] = lines[:count]
        self._left -= count
        return count


class Streams(Bucket):
    """A bucket whose objects all have the same size."""

    def __init__(self, size: int) -> None:
        super().__init__(mock.Mock(), cpu.BUCKET)
        self._size = size // len(_LINE) * len(_LINE)

    def open(self, *_: object) -> ObjectStream:
        return ObjectStream(cast("Body", Stream(self._size)), self._size)


def read_lines(change: ObjectChange) -> str:
    """A processor that reads a large object line by line."""
    return str(sum(1 for _ in change.lines()))


def handled(batch: int, megabytes: int) -> None:
    """Process one batch through the deployed handler."""
    with stub() as endpoint, cpu.environment(endpoint), cpu.silence():
        os.environ["INTAKE_PROCESSOR"] = "benchmarks.memory:read_lines"
        with mock.patch.object(composition, "Bucket", return_value=Streams(megabytes * 1_000_000)):
            made = composition.make_consumer.__wrapped__()  # a new consumer
        payloads = cpu.Payloads(batch)
        events = [record for piece in payloads.batches(cpu.PIECE) for event in piece for record in event["Records"]]
        answer = made.handle({"Records": events}, LambdaContext(900))
        assert answer == {"batchItemFailures": []}, answer


def peak(batch: int, megabytes: int) -> float:
    """Return the peak memory of a separate process in MB."""
    command = [sys.executable, "-m", "benchmarks.memory", str(batch), str(megabytes)]
    answer = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(answer.stdout)


def measure(*, rounds: int = 3) -> dict[str, Any]:
    """Return medians and ranges by size of batch and of object."""
    cases = {f"batch of {batch:,}, empty objects": (batch, 0) for batch in BATCHES}
    cases |= {f"one object of {size:,} MB": (1, size) for size in MEGABYTES}
    return {name: {"peak MB": asdict(Figure.of([peak(*case) for _ in range(rounds)]))} for name, case in cases.items()}


def main() -> None:
    if len(sys.argv) == 3:
        handled(int(sys.argv[1]), int(sys.argv[2]))
        print(peak_mb())
        return
    print(table("The consumer's memory", measure()))


if __name__ == "__main__":
    main()
