"""F112: `status` counts rows by status up to a limit, and never shows 0 for an unknown number."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from botocore.exceptions import ClientError
from rich.console import Console

from intake_ledger.protocol import FORMAT, Status, review_partitions
from intake_ledger_cli import counting, json_output, tables
from intake_ledger_cli.counting import MOST, Count, Counts, count_rows
from tests.unit.test_cli_formatting import DEPLOYED

PARTITIONS = review_partitions(DEPLOYED.name)
THROTTLED = ClientError({"Error": {"Code": "ProvisionedThroughputExceededException"}}, "Query")
DENIED = ClientError({"Error": {"Code": "AccessDeniedException"}}, "Query")


@dataclass
class Index:
    """The review index of a table: the number of rows of each status in each partition, in pages."""

    content: dict[str, list[tuple[str, int]]]
    page_size: int = 1_500
    errors: dict[int, Exception] = field(default_factory=dict)
    """Errors by the number of the page, which starts at 1 and counts over all queries."""
    pages: int = 0
    reads: int = 0

    def get_paginator(self, operation: str) -> "Index":
        assert operation == "query"
        return self

    def paginate(self, **request: Any) -> Iterator[dict[str, Any]]:
        assert (request["IndexName"], request["Select"]) == ("needs_review", "COUNT")
        values = request["ExpressionAttributeValues"]
        status = values[":status"]["S"] if "FilterExpression" in request else None
        found = [one for one, number in self.content.get(values[":partition"]["S"], []) for _ in range(number)]
        for start in range(0, max(len(found), 1), self.page_size):
            self.pages += 1
            if self.pages in self.errors:
                raise self.errors[self.pages]
            page = found[start : start + self.page_size]
            self.reads += len(page)
            yield {"Count": sum(status in (None, one) for one in page), "ScannedCount": len(page)}


def count(index: Index) -> Counts:
    return count_rows(cast("Any", index), DEPLOYED)


def shown(number: Count) -> str:
    console = Console(width=200)
    with console.capture() as capture:
        console.print(tables._count(number, "", "wait"))
    return capture.get().strip()


@pytest.mark.failure_mode("F112")
def test_all_partitions_are_counted_by_status() -> None:
    """The count also has rows of a later release and waiting rows."""
    content = {name: [("FAILED", 2), ("REJECTED", 1)] for name in PARTITIONS}
    content[PARTITIONS[3]].append(("TOMORROW", 5))
    content[f"{DEPLOYED.name}#waiting"] = [("FAILED", 4)]
    found = count(Index(content))
    number = len(PARTITIONS)
    assert found == Counts(Count(2 * number), Count(number), Count(4), Count(5))
    assert json_output._count(found.failed) == 2 * number


@pytest.mark.failure_mode("F112")
def test_a_pipeline_without_trouble_is_asked_once_for_each_partition() -> None:
    """No rows are read. The text says that zero is eventually consistent."""
    index = Index({})
    assert count(index) == Counts(*[Count(0)] * 4)
    assert index.pages == len(PARTITIONS) + 1
    assert shown(Count(0)) == "0  as of a moment ago"
    assert json_output._count(Count(0)) == 0


@pytest.mark.failure_mode("F112")
@pytest.mark.parametrize(("number", "said"), [(MOST, "10,000  wait"), (MOST + 1, "more than 10,000  wait")])
def test_more_than_ten_thousand_is_said(number: int, said: str) -> None:
    """The count is exact up to the limit, and stops there."""
    index = Index({PARTITIONS[0]: [("REJECTED", number)], PARTITIONS[1]: [("REJECTED", 0)]})
    found = count(index)
    assert shown(found.rejected) == said
    assert shown(found.failed).startswith("0")
    more: Any = {"moreThan": MOST} if number > MOST else number
    assert json_output._count(found.rejected) == more


@pytest.mark.failure_mode("F112")
def test_a_million_rows_are_not_read() -> None:
    """The number of a status whose rows come last is unknown, not zero."""
    index = Index({name: [("FAILED", 125_000)] for name in PARTITIONS}, page_size=5_000)
    index.content[PARTITIONS[-1]].append(("REJECTED", 3))
    found = count(index)
    assert found.failed == Count(MOST, more=True)
    assert found.rejected.unknown
    assert shown(found.rejected) == "unknown: only the first 200,000 rows were read"
    assert index.reads <= 2 * 15_000 + 200_000


@pytest.mark.failure_mode("F112")
def test_pages_without_a_match_are_not_the_end() -> None:
    """DynamoDB filters a page after it has read it, so that an empty page may come before others."""
    found = count(Index({PARTITIONS[0]: [("FAILED", 4_000), ("REJECTED", 2)]}))
    assert found.rejected == Count(2)


@pytest.mark.failure_mode("F112")
@pytest.mark.parametrize("page", [1, 2, 9])
def test_a_throttled_count_is_unknown_and_never_zero(page: int) -> None:
    """Any of the requests may be throttled."""
    index = Index({name: [("FAILED", 1), ("REJECTED", 1)] for name in PARTITIONS}, errors={page + 1: THROTTLED})
    found = count(index)
    assert found.rejected.number > 0 or found.rejected.unknown
    assert found.failed.number > 0 or found.failed.unknown
    throttled = count(Index({PARTITIONS[0]: [("FAILED", 1)]}, errors={2: THROTTLED}))
    assert shown(throttled.failed) == "unknown: DynamoDB answered ProvisionedThroughputExceededException"
    assert json_output._count(throttled.failed) == {
        "unknown": "DynamoDB answered ProvisionedThroughputExceededException"
    }


@pytest.mark.failure_mode("F112")
def test_what_was_counted_before_a_throttle_is_a_least_number() -> None:
    """The other partitions were not read."""
    found = counting._count(cast("Any", Index({"a": [("FAILED", 3)]}, errors={2: THROTTLED})), DEPLOYED, ["a", "b"])
    assert shown(found) == "at least 3  wait; DynamoDB answered ProvisionedThroughputExceededException"
    assert json_output._count(found) == {"atLeast": 3, "why": found.why}


@pytest.mark.failure_mode("F112")
def test_a_refusal_is_left_to_the_caller() -> None:
    """`status` names the missing permission."""
    with pytest.raises(ClientError, match="AccessDenied"):
        count(Index({}, errors={1: DENIED}))


def test_a_row_of_a_later_format_has_no_status_that_counts() -> None:
    """F113: a later release may use the same status with another meaning."""
    request = counting._request(DEPLOYED, "p", Status.FAILED)
    assert "#format = :format" in request["FilterExpression"]
    assert request["ExpressionAttributeValues"][":format"] == {"N": str(FORMAT)}
