"""Test the reader of streams of the fault runs: it has the deployed mapping's settings, and counts the rest."""

import base64
import json
from collections.abc import Sequence
from threading import Event
from typing import Any, cast

import pytest

from intake_ledger.events import OWN_MESSAGE
from tests.local.faults.intakes import EventIntake, Intake, body_of
from tests.local.faults.message_judge import Name
from tests.local.faults.streams import Shard, StreamIntake, TableIntake, mapping_like
from tests.unit.messages_support import kinesis
from tests.unit.stream_mapping import FunctionError, Record, StreamMapping, number_of

RECORDS = [kinesis("a", f"e-{number}", number) for number in range(1, 7)]
DEPLOYED: dict[str, Any] = {
    "BatchSize": 4,
    "BisectBatchOnFunctionError": True,
    "MaximumRetryAttempts": -1,
    "FunctionResponseTypes": ["ReportBatchItemFailures"],
}
NAME = Name("a", "7")
DATA = base64.b64encode(body_of(NAME).encode()).decode()
IMAGE = {"key": {"S": "a"}, "identity": {"S": "7"}}


def read(function: Any, **changed: Any) -> tuple[Shard, StreamMapping]:
    """A shard that was read until its reader ended."""
    mapping = mapping_like(DEPLOYED | changed, function)
    shard = Shard(RECORDS, mapping)
    assert shard.ended(60)
    return shard, mapping


def test_a_shard_that_was_read_to_its_end_is_not_behind() -> None:
    """Batches have the deployed size."""
    shard, mapping = read(lambda _: [])

    assert shard.behind == 0
    assert [len(numbers) for numbers in mapping.invocations] == [4, 2]


def test_a_shard_whose_reader_ended_early_is_behind() -> None:
    """The records from the beginning of the last batch on are not done."""

    def function(records: Sequence[Record]) -> list[str]:
        if len(records) < 4:
            raise TimeoutError
        return []

    shard, _ = read(function)

    assert shard.behind == 2
    assert isinstance(shard.error, TimeoutError)


def test_a_record_that_lambda_gives_up_is_never_done() -> None:
    """With a limit of retries."""
    bad = number_of(RECORDS[2])

    def function(records: Sequence[Record]) -> list[str]:
        if bad in map(number_of, records):
            raise FunctionError
        return []

    shard, mapping = read(function, MaximumRetryAttempts=1)

    assert mapping.dropped == [bad]
    assert shard.behind == 1


def test_a_running_reader_is_told() -> None:
    """It runs until the function answers for all records."""
    go = Event()

    def function(_: Sequence[Record]) -> list[str]:
        go.wait()
        return []

    shard = Shard(RECORDS, mapping_like(DEPLOYED, function))

    assert not shard.ended(0)
    assert shard.behind == len(RECORDS)
    go.set()


def test_a_mapping_that_takes_no_partial_answers_is_refused() -> None:
    """The stand-in always takes them."""
    with pytest.raises(AssertionError):
        mapping_like(DEPLOYED | {"FunctionResponseTypes": []}, lambda _: [])


@pytest.mark.parametrize(
    ("intake", "content"),
    [
        (Intake, json.loads(body_of(NAME))),
        (EventIntake, {"detail": json.loads(body_of(NAME))}),
        (StreamIntake, {OWN_MESSAGE: {"record": {"kinesis": {"data": DATA}}}}),
        (TableIntake, {OWN_MESSAGE: {"record": {"dynamodb": {"NewImage": IMAGE}}}}),
    ],
)
def test_a_dead_letter_has_the_message_itself(intake: type[Intake], content: dict[str, Any]) -> None:
    """The letters of all sources have key and identity."""
    assert intake(cast("Any", None), "name", "-").named(content) == NAME
