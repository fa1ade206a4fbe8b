"""Test the reader of streams of the fault runs: it has the deployed mapping's settings, and counts the rest."""

from collections.abc import Sequence
from typing import Any

from tests.local.faults.streams import Shard, mapping_like
from tests.unit.messages.stream_mapping import Record, StreamMapping
from tests.unit.messages.support import kinesis

RECORDS = [kinesis("a", f"e-{number}", number) for number in range(1, 7)]
DEPLOYED: dict[str, Any] = {
    "BatchSize": 4,
    "BisectBatchOnFunctionError": True,
    "MaximumRetryAttempts": -1,
    "FunctionResponseTypes": ["ReportBatchItemFailures"],
}


def read(function: Any, **changed: Any) -> tuple[Shard, StreamMapping]:
    """A shard that was read until its reader ended."""
    mapping = mapping_like(DEPLOYED | changed, function)
    shard = Shard(RECORDS, mapping)
    assert shard.ended(60)
    return shard, mapping


def test_a_shard_whose_reader_ended_early_is_behind() -> None:
    """The records from the beginning of the last batch on are not done."""

    def function(records: Sequence[Record]) -> list[str]:
        if len(records) < 4:
            raise TimeoutError
        return []

    shard, _ = read(function)

    assert shard.behind == 2
    assert isinstance(shard.error, TimeoutError)
