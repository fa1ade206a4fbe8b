"""Count the requests and units of a change with the real consumer, so that its cost cannot grow unnoticed."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, cast

import pytest
from benchmarks import counted, metered, units

from cdk_intake_ledger.testing import LocalPipeline
from intake_ledger.events.parser import parse_message
from intake_ledger.ledger.dynamodb_table import LedgerTable
from intake_ledger.protocol import row as row_changes
from intake_ledger.protocol.change import Change
from intake_ledger.protocol.row import Ordering, Retention, Row, rate_key, row_attributes, row_key, to_dynamodb
from intake_ledger_testing.events import s3_notification
from tests.unit.support import MINUTE

KB = 1024


@pytest.mark.parametrize("key", [counted.KEY, "a"])
def test_a_new_key_costs_two_writes_and_nothing_else(monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    """One conditional write to claim, one to commit: no exactly-once decision can cost less."""
    monkeypatch.setattr(counted, "KEY", key)
    bill = counted.new_key()
    assert bill.requests == Counter({"dynamodb.PutItem": 1, "dynamodb.UpdateItem": 1, "s3.GetObject": 1})
    assert (bill.write_units, bill.read_units) == (2, 0)


def test_a_duplicate_costs_one_refused_write() -> None:
    bill = counted.duplicate()
    assert bill.requests == Counter({"dynamodb.PutItem": 1})
    assert (bill.write_units, bill.read_units) == (1, 0)


@pytest.mark.parametrize("kilobytes", [1, 16])
def test_a_result_costs_its_size_in_units(kilobytes: int) -> None:
    """The row is below one KB without it: one unit for the claim, and one more for each KB of the others."""
    pipeline = metered.MeteredPipeline(lambda _: "x" * kilobytes * KB)
    pipeline.put(counted.KEY, "1")
    pipeline.run()
    assert pipeline.bill.write_units == 1 + kilobytes + 1
    pipeline.resend()
    pipeline.run()
    assert pipeline.bill.write_units == 1 + 2 * (kilobytes + 1)


def test_a_stale_event_costs_one_refused_write_and_one_look() -> None:
    bill = counted.stale()
    assert bill.requests == Counter({"dynamodb.PutItem": 1, "s3.HeadObject": 1})
    assert bill.write_units == 1


def test_an_overwrite_costs_three_writes_and_one_look() -> None:
    bill = counted.overwrite()
    assert (bill.dynamodb, bill.heads, bill.sqs, bill.gets) == (3, 1, 0, 1)
    assert (bill.write_units, bill.read_units) == (3, 0)


@pytest.mark.parametrize("case", counted.CASES)
def test_nothing_costs_more_than_five_requests(case: str) -> None:
    """The processor's own read of the object aside, and waits."""
    waits = {
        "new key of a group": 6,
        "a group is held": 8,
        "a group is still held": 10,
        "new key that awaits a tag": 12,
    }
    bill = counted.CASES[case]()
    assert 1 <= bill.total <= waits.get(case, 5)
    assert bill.gets <= 1


@pytest.mark.parametrize(("size", "groups"), [(10, 1), (100, 4)])
def test_a_warm_worker_claims_new_keys_by_twenty_five(size: int, groups: int) -> None:
    """The units stay the same. The number of requests falls by nearly half."""
    bill = counted.grouped(size)
    assert bill.requests["dynamodb.BatchExecuteStatement"] == groups
    assert bill.dynamodb == groups + size
    assert bill.write_units == 2 * size


@pytest.mark.parametrize(("size", "groups"), [(10, 1), (100, 4)])
def test_commits_together_cost_the_same_units_in_a_tenth_of_the_requests(size: int, groups: int) -> None:
    """Claims and commits both go by twenty-five."""
    bill = counted.grouped(size, commit_together=True)
    assert bill.requests == Counter({"dynamodb.BatchExecuteStatement": 2 * groups, "s3.GetObject": size})
    assert (bill.write_units, bill.read_units) == (2 * size, 0)


@pytest.mark.parametrize(("size", "groups"), [(10, 1), (100, 4)])
def test_a_call_with_several_changes_costs_no_more_than_commits_together(size: int, groups: int) -> None:
    """Also without a measured processing time: the call has its whole time, or is not started."""
    bill = counted.in_calls(size)
    assert bill.requests == Counter({"dynamodb.BatchExecuteStatement": 2 * groups, "s3.GetObject": size})
    assert (bill.write_units, bill.read_units) == (2 * size, 0)


def test_a_transaction_charges_the_commit_twice_and_asks_no_more() -> None:
    bill = counted.new_key_with_transaction()
    assert (bill.dynamodb, bill.write_units) == (2, 3)


def test_a_failure_pays_for_its_place_in_the_index() -> None:
    """One write into the index with the failure, one out of it with the next claim; what succeeds pays neither."""
    assert counted.failed_attempt().write_units == 2 + 1
    assert counted.retry_after_failure().write_units == 3 + 1
    assert counted.retry_after_crash().write_units == 3


def longest_row(key_bytes: int) -> tuple[Row, Row]:
    """The longest rows that a key of this length can have on the way of a success, claimed and committed."""
    bucket, key = "b" * 63, "k" * key_bytes
    [change] = parse_message(
        s3_notification(
            bucket,
            key,
            event="ObjectCreated:CompleteMultipartUpload",
            version_id="v" * 32,
            etag=f"{'e' * 32}-10000",
            size=5 * 1024**4,
            sequencer="F" * 32,
            time=datetime(2026, 11, 21, tzinfo=UTC),
        )
    )
    assert isinstance(change, Change)
    # An ID of EventBridge is longer than one of S3's requests.
    change = replace(change, event_id="e" * 36)
    assert change.state is not None
    now = 1_795_000_000_123
    claimed = row_changes.claimed(None, change, change.state, owner="0" * 16, now=now, lease_until=now + 900_001)
    retention = Retention(35 * 86_400)
    return claimed, row_changes.committed(claimed, "c" * 64, now=now, retention=retention, processor_version="f" * 12)


@pytest.mark.failure_mode("F471")
@pytest.mark.parametrize(("key_bytes", "expected"), [(256, 1), (1024, 2)])
def test_a_row_fits_into_one_write_unit(key_bytes: int, expected: int) -> None:
    """With the longest names of bucket and pipeline and a commit's identity of 64 bytes, for keys of up to 256."""
    key = row_key("p" * 64, Ordering.LATEST, "b" * 63, "k" * key_bytes, None)
    assert [
        units.write_units(to_dynamodb({"pk": key.pk, "sk": key.sk, **row_attributes(row)}))
        for row in longest_row(key_bytes)
    ] == [expected] * 2


class TestUnits:
    """DynamoDB's documented rules."""

    def test_sizes_of_items_are_counted_as_dynamodb_does(self) -> None:
        """Names and UTF-8 bytes; numbers by pairs of significant digits, leading and trailing zeros trimmed."""
        assert units.item_size({"ab": {"S": "é"}}) == 4
        assert units.item_size({"n": {"N": "1700000000"}}) == 1 + 1 + 1
        assert units.item_size({"n": {"N": "1790000000001"}}) == 1 + 7 + 1
        assert units.item_size({"n": {"N": "-12"}}) == 1 + 1 + 1 + 1
        assert units.item_size(None) == 0

    def test_a_write_is_charged_by_the_larger_item(self) -> None:
        small, large = {"a": {"S": "x"}}, {"a": {"S": "x" * KB}}
        assert units.write_units(small, large) == units.write_units(large, small) == 2
        assert units.write_units(None) == 1

    def test_a_read_of_nothing_is_charged(self) -> None:
        assert units.read_units(None) == 1
        assert units.read_units({"a": {"S": "x" * 4 * KB}}) == 2

    def test_an_index_is_charged_when_its_entries_change(self) -> None:
        """In, out, moved (out and in), and not for items that are not in it."""
        out = {"pk": {"S": "1"}}
        here, there = ({**out, "needs_review": {"S": "p"}, "updated_at": {"N": n}} for n in "12")
        keys = metered.INDEX
        assert units.index_units(out, here, keys) == units.index_units(here, out, keys) == 1
        assert units.index_units(here, there, keys) == 2
        assert units.index_units(out, out, keys) == units.index_units(here, here, keys) == 0
        assert units.index_units(None, out, keys) == 0


@pytest.mark.failure_mode("F510")
def test_a_rate_adds_a_write_for_each_start() -> None:
    """A pipeline without one sends no request more. A change that waits is claimed, opened, and has its row written."""
    pipeline = LocalPipeline(lambda _: None, max_rate=1)
    pipeline.put("a", "1")
    pipeline.run()
    assert Counter(pipeline.requests) == {"put_item": 1, "update_item": 2, "get_object": 1}
    worker, taken = pipeline.new_worker(), {"starts_until": (pipeline.now + MINUTE) * 1_000}
    LedgerTable(cast("Any", pipeline._dynamodb), "ledger").write(rate_key("local"), taken)

    def requests(step: Callable[[], object]) -> Counter[str]:
        before = len(pipeline.requests)
        step()
        return Counter(pipeline.requests[before:])

    def look() -> Counter[str]:
        return requests(lambda: pipeline.turn(worker))

    waits = {"put_item": 1, "update_item": 2, "get_object": 1, "change_message_visibility_batch": 1}
    pipeline.put("b", "1")
    assert look() == waits | {"update_item": 3}
    pipeline.put("c", "1")
    assert look() == waits
    pipeline.clock.advance(58_000)
    found = look()
    del found["get_item"]  # the messages are a minute old: was a key forgotten?
    assert found == {"put_item": 2, "update_item": 6, "get_object": 2, "head_object": 2}
