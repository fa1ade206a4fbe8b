"""F112: `status` counts rows by status in a bounded number of requests, and never shows 0 for an unknown number."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from botocore.exceptions import ClientError
from rich.console import Console

from intake_ledger.protocol.row import FORMAT, removed_partition, review_partitions, waiting_partition
from intake_ledger_cli.read.counting import PAGES, Count, Counts, count_rows
from intake_ledger_cli.show import render
from intake_ledger_cli.show.status_table import count_parts
from tests.unit.command.test_formatting import DEPLOYED
from tests.unit.support import MINUTE, START

PARTITIONS = review_partitions(DEPLOYED.name)
WAITING = waiting_partition(DEPLOYED.name)
REMOVED = removed_partition(DEPLOYED.name)
THROTTLED = ClientError({"Error": {"Code": "ProvisionedThroughputExceededException"}}, "Scan")
DENIED = ClientError({"Error": {"Code": "AccessDeniedException"}}, "Scan")


@dataclass
class Index:
    """The review index of a table: the number of rows of each status in each partition, in pages."""

    content: dict[str, list[tuple[str, int]]]
    page_size: int = 2_000
    errors: dict[int, Exception] = field(default_factory=dict)
    """Errors by the number of the page, which starts at 1 and counts over all requests."""
    format: int = FORMAT
    scanned_too: bool = False
    """A scan also reads the rows of removed objects, and drops them."""
    pages: int = 0

    def get_paginator(self, operation: str) -> "_Pages":
        return _Pages(self, operation)


@dataclass
class _Pages:
    index: Index
    operation: str

    def paginate(self, **request: Any) -> Iterator[dict[str, Any]]:
        assert request["IndexName"] == "needs_review"
        index, values = self.index, request["ExpressionAttributeValues"]
        wanted = {values[":partition"]["S"]} if self.operation == "query" else {*index.content} - {WAITING, REMOVED}
        rows = (
            (partition, status)
            for partition, groups in index.content.items()
            if partition in wanted or (index.scanned_too and self.operation == "scan")
            for status, number in groups
            for _ in range(number)
        )
        found = list(rows)
        for start in range(0, max(len(found), 1), index.page_size):
            index.pages += 1
            if index.pages in index.errors:
                raise index.errors[index.pages]
            page = found[start : start + index.page_size]
            items = [self._item(partition, status) for partition, status in page if partition in wanted]
            last: dict[str, Any] = {"LastEvaluatedKey": {}} if start + index.page_size < len(found) else {}
            yield {"Items": items, "ScannedCount": len(page), **last}

    def _item(self, partition: str, status: str) -> dict[str, Any]:
        return {
            "needs_review": {"S": partition},
            "status": {"S": status},
            "format": {"N": str(self.index.format)},
            "updated_at": {"N": str(START)},
        }


def count(index: Index, index_rows: int | None = None) -> Counts:
    return count_rows(cast("Any", index), DEPLOYED, index_rows)


def shown(number: Count) -> str:
    console = Console(width=300)
    with console.capture() as capture:
        console.print(render.line("status", "rejected", count_parts(number), START + 3 * MINUTE, "wait"))
    return capture.get().strip()


@pytest.mark.failure_mode("F112")
def test_all_partitions_are_counted_by_status() -> None:
    """The count also has rows of a later release and waiting rows, and the age of the oldest one."""
    content = {name: [("FAILED", 2), ("REJECTED", 1)] for name in PARTITIONS}
    content[PARTITIONS[3]].append(("TOMORROW", 5))
    content[WAITING] = [("FAILED", 4)]
    found = count(Index(content))
    number = len(PARTITIONS)
    numbers = [one.number for one in (found.failed, found.rejected, found.waiting, found.later_format)]
    assert numbers == [2 * number, number, 4, 5]
    assert found.failed.as_document() == 2 * number
    assert shown(found.rejected) == "20, oldest 3 minutes ago  wait"


@pytest.mark.failure_mode("F112")
def test_rows_of_another_pipeline_of_the_table_do_not_count() -> None:
    """The names of two pipelines may begin alike."""
    assert count(Index({f"{DEPLOYED.name}#x#1": [("REJECTED", 3)]})) == Counts(*[Count(0)] * 4)


@pytest.mark.failure_mode("F112")
def test_a_pipeline_without_trouble_takes_four_requests() -> None:
    index = Index({})
    assert count(index) == Counts(*[Count(0)] * 4)
    assert index.pages == 4
    assert not shown(Count(0))
    assert Count(0).as_document() == 0


@pytest.mark.failure_mode("F112")
def test_a_million_rows_are_not_read() -> None:
    """The number of a status whose rows come last is unknown, not zero. DynamoDB's own count gives the order."""
    index = Index({name: [("FAILED", 50_000)] for name in PARTITIONS})
    index.content[PARTITIONS[-1]].append(("REJECTED", 3))
    index.content[WAITING] = [("FAILED", 1)]
    found = count(index, index_rows=1_000_000)
    assert found.rejected.unknown
    assert shown(found.failed).startswith("at least 10,000, oldest 3 minutes ago, only the first 10,000 rows were")
    assert shown(found.failed).endswith(
        "the index has about 1,000,000 rows, by DynamoDB's count of the last six hours  wait"
    )
    assert found.waiting.as_document() == 1
    assert index.pages == PAGES + 3


@pytest.mark.failure_mode("F112")
@pytest.mark.parametrize("page", [1, 4, 5])
def test_a_throttled_count_is_unknown_and_never_zero(page: int) -> None:
    """Any of the requests may be throttled."""
    index = Index({PARTITIONS[0]: [("FAILED", 3_000)], WAITING: [("FAILED", 1)]}, errors={page: THROTTLED})
    found = count(index)
    uncertain = found.waiting if page == 1 else found.failed
    assert uncertain.unknown or shown(uncertain).startswith("at least 2,000")
    assert "DynamoDB answered ProvisionedThroughputExceededException" in str(uncertain.as_document())


@pytest.mark.failure_mode("F112")
def test_a_refusal_is_left_to_the_caller() -> None:
    """`status` names the missing permission."""
    with pytest.raises(ClientError, match="AccessDenied"):
        count(Index({}, errors={1: DENIED}))


def test_a_row_of_a_later_format_has_no_status_that_counts() -> None:
    """F113: a later release may use the same status with another meaning."""
    found = count(Index({PARTITIONS[0]: [("REJECTED", 2)]}, format=FORMAT + 1))
    assert (found.rejected.number, found.later_format.number) == (0, 2)


@pytest.mark.failure_mode("F240")
def test_removed_objects_do_not_hide_the_failures_of_others() -> None:
    """Clients that upload and rename leave many. DynamoDB reads their rows in a scan, although a filter drops them."""
    index = Index({REMOVED: [("PROCESSED", 50_000)]}, scanned_too=True)
    index.content |= {name: [("FAILED", 2), ("REJECTED", 1)] for name in PARTITIONS}
    found = count(index)
    assert (found.failed.as_document(), found.rejected.as_document()) == (2 * len(PARTITIONS), len(PARTITIONS))
    assert shown(found.removed).startswith("at least 2,000, oldest 3 minutes")
    assert index.pages <= PAGES + 4 + len(PARTITIONS)
