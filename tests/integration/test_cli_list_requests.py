"""F159: the number of requests of each form of `list` does not grow with the number of rows."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from intake_ledger.protocol.row import Status, review_partitions, waiting_partition
from intake_ledger_cli.aws.clients import Aws
from tests.unit.command.support import NAME, make_site
from tests.unit.command.test_commands import Person, sit  # noqa: F401 - a fixture
from tests.unit.support import START

pytestmark = pytest.mark.usefixtures("dynamodb")
ROWS = 1_000_000
PAGE = 200  # rows of 5 KB, the longest ones
PARTITIONS = review_partitions(NAME)
OF_A_PARTITION = ROWS // len(PARTITIONS)
EVERY = 5_000
"""Every 5,000th row of a partition is REJECTED, and every 5,000th row of the table is stuck."""


@dataclass
class MillionRows:
    """A table in memory. Its rows exist only while they are read: all are in the index, and all are in a scan."""

    bucket: str
    requests: list[str] = field(default_factory=list)

    def get_paginator(self, operation: str) -> "_Pages":
        return _Pages(self, operation)


@dataclass
class _Pages:
    table: MillionRows
    operation: str

    def paginate(self, **request: Any) -> Iterator[dict[str, Any]]:
        made = self._query if self.operation == "query" else self._scan
        for page in made(request):
            self.table.requests.append(self.operation)
            yield page

    def _query(self, request: Any) -> Iterator[dict[str, Any]]:
        values = request["ExpressionAttributeValues"]
        name = values[":partition"]["S"]
        status = values.get(":status", {"S": ""})["S"]
        size = request.get("PaginationConfig", {"PageSize": PAGE})["PageSize"]
        begin = max(int(values.get(":updated_at", {"N": str(START)})["N"]) - START, 0)
        for start in range(begin, OF_A_PARTITION, size):
            end = min(start + size, OF_A_PARTITION)
            numbers = range(start, end) if status != "REJECTED" else range(-(-start // EVERY) * EVERY, end, EVERY)
            yield {"Items": [self._row(name, n) for n in numbers], **self._after(name, end - 1, OF_A_PARTITION)}

    def _row(self, partition: str, number: int) -> dict[str, Any]:
        status = Status.FAILED if number % EVERY else Status.REJECTED
        if partition == waiting_partition(NAME):
            status = Status.FAILED
        return self._key(partition, number) | {
            "status": {"S": status.value},
            "fence": {"N": "7"},
            "kind": {"S": "object"},
            "version_id": {"S": "v1"},
        }

    def _key(self, partition: str, number: int) -> dict[str, Any]:
        key = f"{partition.rpartition('#')[2]}/{number}.csv"
        return {
            "pk": {"S": f"{self.table.bucket}/{key}"},
            "sk": {"S": f"{NAME}@latest"},
            "needs_review": {"S": partition},
            "updated_at": {"N": str(START + number)},
        }

    def _after(self, partition: str, number: int, most: int) -> dict[str, Any]:
        return {"LastEvaluatedKey": self._key(partition, number)} if number + 1 < most else {}

    def _scan(self, request: Any) -> Iterator[dict[str, Any]]:
        begun = request.get("ExclusiveStartKey", {"pk": {"S": "/-1."}})["pk"]["S"]
        begin = int(begun.rpartition("/")[2].partition(".")[0]) + 1
        for start in range(begin, ROWS, PAGE):
            end = min(start + PAGE, ROWS)
            stuck = range(-(-start // EVERY) * EVERY, end, EVERY)
            rows = [self._key("#x", n) | {"status": {"S": "PROCESSING"}, "fence": {"N": "7"}} for n in stuck]
            yield {"Items": rows, **self._after("#x", end - 1, ROWS)}


@pytest.fixture
def table(sit: Callable[..., Person], monkeypatch: pytest.MonkeyPatch) -> tuple[Person, MillionRows]:  # noqa: F811
    person = sit(make_site())
    rows = MillionRows(person.site.deployed.bucket)
    monkeypatch.setattr(Aws, "dynamodb", rows)
    return person, rows


@pytest.mark.failure_mode("F159")
@pytest.mark.parametrize(
    ("options", "most"),
    [
        ((), 21),
        (("--csv",), 21),
        (("--older-than", "1h"), 21),
        (("--status", "waiting"), 2),
        (("--status", "REJECTED"), 100),
        (("--prefix", "no/such/key"), 100),
        (("--status", "waiting", "--prefix", "no/such/key"), 100),
        (("--by-reason",), 100),
        (("--status", "stuck", "--limit", "1000"), 102),
        (("--csv", "--limit", "20000"), 140),
        (("--by-reason", "--max-requests", "60"), 60),
    ],
)
def test_a_list_takes_a_bounded_number_of_requests_at_a_million_rows(
    table: tuple[Person, MillionRows], options: tuple[str, ...], most: int
) -> None:
    """A list without a filter takes about one request for each partition of the index."""
    person, rows = table
    person.types("list", *options)
    assert 0 < len(rows.requests) <= most


@pytest.mark.failure_mode("F179")
@pytest.mark.parametrize(
    ("options", "expected"), [(("--status", "REJECTED"), ROWS // EVERY), (("--status", "stuck"), ROWS // EVERY)]
)
def test_a_list_that_stopped_goes_on_and_shows_each_row_once(
    table: tuple[Person, MillionRows], options: tuple[str, ...], expected: int
) -> None:
    """The output says that it stopped, after how many requests, and how it goes on."""
    person, rows = table
    found: list[str] = []
    after: tuple[str, ...] = ()
    stops = 0
    while True:
        rows.requests.clear()
        page = person.reads("list", *options, "--limit", "30", *after)
        assert len(rows.requests) <= 100
        found += [row["key"] for row in page["rows"]]
        stops += page["stoppedAfter"] is not None
        if page["after"] is None:
            break
        after = ("--after", page["after"])
    assert len(found) == len(set(found)) == expected
    assert stops > 5


@pytest.mark.failure_mode("F179")
def test_a_list_that_stopped_never_says_none(table: tuple[Person, MillionRows]) -> None:
    """No row was found, and rows may follow: scripts get the exit code of a finding."""
    person, _ = table
    least = ("--max-requests", "50")
    shown = person.types("list", "--prefix", "no/such", "--exit-code", *least, ends=3)
    assert shown.startswith("stopped after 50 requests, and rows may follow: go on with --after ")
    token = shown.split("--after ")[1].split(",")[0]
    further = person.reads("list", "--prefix", "no/such", "--after", token, *least)
    assert further["after"] not in (None, token)
    assert further["stoppedAfter"] == 50
    counted = person.types("list", "--by-reason", *least)
    assert "FAILED" in counted
    assert "stopped after 50 requests" in counted
    person.types("list", "--csv", "--prefix", "no/such", *least)
    assert "stopped after 50 requests" in person.complaint


@pytest.mark.parametrize("options", [("--status", "stuck"), ()])
def test_a_token_of_another_list_is_refused(table: tuple[Person, MillionRows], options: tuple[str, ...]) -> None:
    person, _ = table
    other = () if options else ("--status", "stuck", "--limit", "1")
    token = person.reads("list", *other)["after"]
    person.types("list", *options, "--after", token, ends=2)
    assert "is not a token of this list" in person.complaint
