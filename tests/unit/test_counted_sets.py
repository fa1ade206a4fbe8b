"""The cost of a set on docs/file-sets.md is the counted one, and it grows with the parts as the page says."""

import re

import pytest
from benchmarks import sets

from intake_ledger.protocol import Status


def test_the_table_of_the_page_is_the_counted_one() -> None:
    """`python -m benchmarks.sets --write` writes it."""
    assert sets.shown() == sets.lines()


@pytest.mark.parametrize("parts", [10, 25, 100])
def test_a_new_set_writes_an_item_for_each_part_and_three_more(parts: int) -> None:
    """Claim, commit, and the item that says which version of the manifest is recorded."""
    bill = sets.new(parts)
    assert bill.write_units == parts + 3
    assert bill.requests["dynamodb.BatchWriteItem"] == -(-parts // 25)
    assert bill.requests["dynamodb.Query"] == parts + 1
    assert bill.requests["s3.GetObject"] == 1


@pytest.mark.parametrize("parts", [10, 100, 200])
def test_a_replaced_part_writes_two_rows_in_sets_of_each_size(parts: int) -> None:
    bill = sets.replaced(parts)
    assert bill.write_units == 2
    assert bill.requests["dynamodb.BatchGetItem"] == 2 * -(-parts // 100)


def test_a_copy_of_an_event_writes_nothing() -> None:
    bill = sets.duplicate(10)
    assert (bill.write_units, bill.requests["dynamodb.Query"], bill.sqs) == (0, 1, 1)


def test_a_waiting_set_has_as_many_looks_as_the_page_says() -> None:
    bench = sets.MeteredSets(1)
    bench.put_manifest()
    bench.run()
    assert bench.known(sets.MANIFEST).status is Status.REJECTED
    looks = bench.outcomes.total()
    [shown] = re.findall(r"(\d+) looks in 3 days", sets.PAGE.read_text())
    assert int(shown) == looks
