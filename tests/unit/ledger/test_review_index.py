"""The index of what needs review is spread over several partition keys, and is read as one list (F122)."""

from collections import Counter
from collections.abc import Iterator
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intake_ledger.protocol.row import (
    Ordering,
    Row,
    RowKey,
    Status,
    failed,
    rejected,
    review_partition,
    review_partitions,
    row_attributes,
    row_key,
)
from intake_ledger_cli.aws import reading
from intake_ledger_cli.aws.reading import ReadBudget
from intake_ledger_cli.read import listing
from tests.unit.command.test_formatting import DEPLOYED
from tests.unit.consumer.test_groups import new_world
from tests.unit.support import BUCKET, PIPELINE, START, created, make_reason

WRITES_PER_PARTITION = 1_000
"""DynamoDB's limit per second, of up to 1 KB each."""
FAILURES_PER_SECOND = 10_000


@pytest.mark.failure_mode("F122")
def test_ten_thousand_failures_a_second_heat_no_partition() -> None:
    """Each is one write into the index and one out of it with the next claim, of keys with a common prefix."""
    keys = [row_key(PIPELINE, Ordering.LATEST, BUCKET, f"in/2026/11/{n:08}.csv", None) for n in range(10_000)]
    used = Counter(review_partition(PIPELINE, key) for key in keys)
    assert set(used) == set(review_partitions(PIPELINE))
    hottest = max(used.values()) / len(keys)
    # The spread of a hash is not exact.
    assert 2 * FAILURES_PER_SECOND * hottest < 1.2 * WRITES_PER_PARTITION


@pytest.mark.failure_mode("F122")
def test_the_versions_of_one_key_are_spread_too() -> None:
    """In EVERY_VERSION each version has a separate row."""
    keys = [row_key(PIPELINE, Ordering.EVERY_VERSION, BUCKET, "one", f"v#{n}") for n in range(1_000)]
    assert len({review_partition(PIPELINE, key) for key in keys}) == len(review_partitions(PIPELINE))


@pytest.mark.failure_mode("F122")
def test_a_row_goes_into_its_partition_and_out_again() -> None:
    """Only FAILED and REJECTED rows are in the index."""
    world = new_world()
    state = world.s3.put("a", "1")
    change = created(state, key="a")
    expected = review_partition(PIPELINE, world.key(change))
    claim = world.accept(change)
    assert world.known(change).needs_review is None
    world.ledger.fail(claim, make_reason("no"))
    assert world.known(change).needs_review == expected
    world.ledger.reject(world.accept(change), make_reason("no"))
    assert world.known(change).needs_review == expected
    assert failed(claim.row, make_reason("no"), review_partition=expected, now=START).needs_review == expected
    assert rejected(claim.row, make_reason("no"), review_partition=expected, now=START).needs_review == expected


_PLACE = ("pk", "sk", "needs_review", "updated_at")


class Index:
    """The index in memory, as DynamoDB queries it: one partition at a time, by `updated_at`, in pages."""

    def __init__(self, items: list[dict[str, Any]]) -> None:
        self._items = items

    def get_paginator(self, operation: str) -> "Index":
        assert operation == "query"
        return self

    def paginate(self, **request: Any) -> Iterator[dict[str, Any]]:
        values = request["ExpressionAttributeValues"]
        least = int(values.get(":updated_at", {"N": "0"})["N"])
        found = [
            item
            for item in self._items
            if item["needs_review"] == values[":partition"] and int(item["updated_at"]["N"]) >= least
        ]
        found.sort(key=lambda item: int(item["updated_at"]["N"]))
        wanted = values.get(":status")
        for start in range(0, max(len(found), 1), 3):
            page = found[start : start + 3]
            more = start + 3 < len(found)
            ends = {"LastEvaluatedKey": {name: page[-1][name] for name in _PLACE}} if more else {}
            yield {"Items": [item for item in page if wanted in (None, item["status"])], **ends}


def _item(key: str, updated_at: int, status: Status = Status.FAILED) -> dict[str, Any]:
    place: RowKey = row_key(DEPLOYED.name, Ordering.LATEST, DEPLOYED.bucket, key, None)
    partition = review_partition(DEPLOYED.name, place)
    row = Row(status, START, version_id="v1", updated_at=updated_at, needs_review=partition)
    typed = {
        name: {"N": str(value)} if isinstance(value, int) else {"S": str(value)}
        for name, value in row_attributes(row).items()
    }
    return {"pk": {"S": place.pk}, "sk": {"S": place.sk}, **typed}


@pytest.mark.failure_mode("F122")
@given(
    st.dictionaries(st.integers(0, 10_000).map(lambda n: f"k{n}"), st.integers(START, START + 5), max_size=40),
    st.integers(1, 7),
)
def test_the_partitions_are_one_list_in_the_order_of_time(times: dict[str, int], limit: int) -> None:
    """`list` and `retry` see each row once, the oldest first, over all partitions and over all their pages."""
    index = cast("Any", Index([_item(key, at) for key, at in times.items()]))
    found: list[tuple[int, str]] = []
    after = None
    while True:
        budget = ReadBudget(10_000)
        page = listing.first_page(reading.rows_to_review(index, DEPLOYED, after=after, budget=budget), limit, budget)
        assert len(page.rows) <= limit
        found += [(entry.row.updated_at, entry.key) for entry in page.rows]
        after = page.after
        if after is None:
            break
    assert found == sorted((at, key) for key, at in times.items())


@pytest.mark.failure_mode("F179")
@given(
    st.dictionaries(st.integers(0, 10_000).map(lambda n: f"k{n}"), st.integers(START, START + 99), max_size=200),
    st.integers(45, 60),
    st.integers(1, 7),
)
def test_a_search_with_few_requests_shows_each_row_once(times: dict[str, int], most: int, limit: int) -> None:
    """A third of the rows is searched. Each search stops where its requests end, and the next one goes on there."""
    status = {key: Status.REJECTED if (len(key) + at) % 3 == 0 else Status.FAILED for key, at in times.items()}
    index = cast("Any", Index([_item(key, at, status[key]) for key, at in times.items()]))
    found: list[tuple[int, str]] = []
    after = None
    for _ in range(len(times) + 2):
        budget = ReadBudget(most)
        rows = reading.rows_to_review(index, DEPLOYED, Status.REJECTED, after=after, budget=budget)
        page = listing.first_page(rows, limit, budget)
        assert budget.used <= most
        found += [(entry.row.updated_at, entry.key) for entry in page.rows]
        after = page.after
        if after is None:
            break
    assert after is None
    assert found == sorted((at, key) for key, at in times.items() if status[key] is Status.REJECTED)
