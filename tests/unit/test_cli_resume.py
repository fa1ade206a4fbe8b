"""F177: a reprocess of many objects needs little memory, and continues where it was interrupted."""

import gc
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from intake_ledger.protocol import Ordering, Row, Status
from tests.inside.command import ReprocessResult, RowFilter, reprocess, review_targets, row_targets, send, send_requests
from tests.settings import THOROUGH
from tests.unit.cli_support import NAME, UNLIMITED, UNRECORDED, Site, client, make_site
from tests.unit.support import DAY, HOUR
from tests.unit.test_cli_commands import Person, sit  # noqa: F401 - a fixture

pytestmark = pytest.mark.usefixtures("dynamodb")
ID = "01KAPX3RGT3AD491WZZFYQT0R6"


def now() -> int:
    return time.time_ns() // 1_000_000


def processed(site: Site, key: str, age: int, version: str = "v1") -> None:
    row = Row(Status.PROCESSED, 7, version_id=version, committed_state=f"v#{version}", updated_at=now() - age)
    site.row(key, row)


def fill(site: Site, selection: str) -> tuple[str, ...]:
    """Make 25 objects that a selection takes, and return its options."""
    keys = [f"in/{number:02}" for number in range(25)]
    if selection == "prefix":
        site.put(*keys)
        return ("--prefix", "in/")
    for number, key in enumerate(keys):
        if selection == "since":
            processed(site, key, HOUR + number)
        elif selection == "version":
            row = Row(Status.PROCESSED, 7, version_id="v1", committed_state="v#v1", updated_at=now() - HOUR)
            site.row(key, replace(row, processor_version="0123456789ab"))
        elif selection == "rejected":
            site.reject(key, "no invoice", at=now() - DAY - number)
        else:
            site.row(key, Row(Status.FAILED, 7, version_id="v1", reason="no", updated_at=now() - DAY - number))
    if selection == "version":
        return ("--processor-version", "0123456789ab")
    return ("--since", "2020-01-01T00:00:00Z") if selection == "since" else (f"--{selection}",)


@pytest.mark.failure_mode("F177")
@pytest.mark.parametrize("ordering", list(Ordering))
@pytest.mark.parametrize("selection", ["prefix", "rejected", "failed", "since", "version"])
def test_an_interrupted_reprocess_continues_where_it_ended(
    sit: Callable[..., Person],  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    selection: str,
    ordering: Ordering,
) -> None:
    """The second call sends the rest with the same ID. Its position is then deleted."""
    person = sit(make_site(ordering))
    options = fill(person.site, selection)
    calls = iter(range(9))

    def interrupted(*arguments: Any) -> Any:
        if next(calls) == 1:
            raise KeyboardInterrupt
        return send(*arguments)

    monkeypatch.setattr(reprocess, "send", interrupted)
    first = person.reads("reprocess", *options, ends=130)
    assert first["sent"] == 10
    assert f"to continue, run: intake-ledger reprocess --resume {first['reprocessId']}" in person.complaint
    before = person.site.changes()
    second = person.reads("reprocess", "--resume", first["reprocessId"])
    after = person.site.changes()
    assert second["reprocessId"] == first["reprocessId"]
    assert {change.reprocess_id for change in before + after} == {first["reprocessId"]}
    assert {change.key for change in before + after} == {f"in/{number:02}" for number in range(25)}
    # In EVERY_VERSION, a listing continues with the last key: its other versions may be missing.
    again = selection == "prefix" and ordering is Ordering.EVERY_VERSION
    assert len(after) == (16 if again else 15)
    person.types("reprocess", "--resume", first["reprocessId"], ends=1)
    assert "has no stored position" in person.complaint
    results = [one["result"] for one in person.reads("operations")["operations"]]
    assert results == [f"{len(after)} requests sent, 0 failed", "10 requests sent, 0 failed; interrupted"]


@pytest.mark.failure_mode("F177")
def test_a_message_that_failed_is_sent_by_the_resumed_call(
    sit: Callable[..., Person],  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The position does not pass it."""
    person = sit(make_site())
    options = fill(person.site, "prefix")
    with monkeypatch.context() as context:
        context.setattr(reprocess, "send", _fails_once)
        failed = person.reads("reprocess", *options, ends=1)
    assert [one["key"] for one in failed["failed"]] == ["in/13"]
    sent = {change.key for change in person.site.changes()}
    resumed = person.reads("reprocess", "--resume", failed["reprocessId"])
    assert resumed["sent"] == 15
    assert {change.key for change in person.site.changes()} - sent == {"in/13"}


def _fails_once(client_: Any, url: str, messages: Any) -> Any:
    kept = [one for one in messages if "in/13" not in one.body]
    answers = iter(send(client_, url, kept)) if kept else iter(())
    return ["not today" if "in/13" in one.body else next(answers) for one in messages]


@pytest.mark.failure_mode("F177")
def test_what_is_processed_meanwhile_does_not_come_again(sit: Callable[..., Person]) -> None:  # noqa: F811
    """Its row has changed after the start of the first call."""
    site = sit(make_site()).site
    processed(site, "in/a", HOUR)
    processed(site, "in/b", -HOUR)
    processed(site, "in/c", 3 * HOUR)
    site.reject("in/d", "x", at=now() - HOUR)
    site.reject("in/e", "x", at=now() + HOUR)
    dynamodb, result = client("dynamodb"), ReprocessResult(ID)
    since = row_targets(dynamodb, site.deployed, RowFilter(now(), now() - 2 * HOUR), result)
    assert [one.key for one in since] == ["in/a"]
    rejected = review_targets(dynamodb, site.deployed, Status.REJECTED, None, before=now())
    assert [one.key for one in rejected] == ["in/d"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--resume", ID, "--rejected"), "omit the other options"),
        (("--since", "yesterday"), "is not a time"),
        (("--failed", "--rejected"), "exactly one of"),
        (("--processor-version", "0123456789ab", "--rejected"), "combine it with --prefix and --since only"),
        (("--processor-version", " "), "is empty"),
        (("--processor-version", "0123456789ab", "--since", "yesterday"), "is not a time"),
    ],
)
def test_a_wrong_selection_is_refused(sit: Callable[..., Person], options: tuple[str, ...], said: str) -> None:  # noqa: F811
    person = sit(make_site())
    person.types("reprocess", *options, ends=2)
    assert said in person.complaint


@pytest.fixture
def versions(sit: Callable[..., Person]) -> Person:  # noqa: F811
    """A pipeline with rows of two versions of the processor, and one row of a release before they were recorded."""
    site = sit(make_site()).site
    for key, version, age in (
        ("in/a", "0123456789ab", HOUR),
        ("in/b", "0123456789ab", 3 * HOUR),
        ("other/c", "0123456789ab", HOUR),
        ("in/d", "ffff56789abc", HOUR),
        ("in/e", None, HOUR),
    ):
        row = Row(Status.PROCESSED, 7, version_id="v1", committed_state="v#v1", updated_at=now() - age)
        site.row(key, replace(row, processor_version=version))
    return sit(site)


@pytest.mark.failure_mode("F190")
@pytest.mark.parametrize(
    ("options", "keys", "unknown"),
    [
        ((), {"in/a", "in/b", "other/c"}, 1),
        (("--prefix", "in/"), {"in/a", "in/b"}, 1),
        (("--prefix", "other/"), {"other/c"}, 0),
        (("--prefix", "in/", "--since", "2 hours"), {"in/a"}, 1),
    ],
)
def test_what_a_wrong_version_of_the_processor_committed_is_processed_again(
    versions: Person, options: tuple[str, ...], keys: set[str], unknown: int
) -> None:
    """The whole hash of the code's asset is taken too. Rows that name no version are counted, and not requested."""
    since = datetime.fromtimestamp(now() / 1000 - 7_200, UTC).isoformat()
    given = [since if option == "2 hours" else option for option in options]
    result = versions.reads("reprocess", "--processor-version", "0123456789ab" + "c" * 52, *given)
    assert {change.key for change in versions.site.changes()} == keys
    assert (result["sent"], result["unknownVersion"]) == (len(keys), unknown)


@pytest.mark.failure_mode("F190")
def test_the_rows_that_could_not_be_judged_are_said(versions: Person) -> None:
    said = versions.types("reprocess", "--processor-version", "0123456789ab", "--dry-run")
    assert "not judged and not requested, since their rows name no version of the processor: 1" in said


class Pages:
    """A DynamoDB client whose index has any number of rows. It makes a page when it is asked for."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self.made = 0

    def get_paginator(self, _: str) -> "Pages":
        return self

    def paginate(self, **request: Any) -> Iterator[Any]:
        size = request["PaginationConfig"]["PageSize"]
        partition = request["ExpressionAttributeValues"][":partition"]["S"]
        if not partition.endswith("#0"):
            return
        for start in range(0, self._rows, size):
            self.made += 1
            items = [self._item(partition, number) for number in range(start, start + size)]
            end = {name: items[-1][name] for name in ("pk", "sk", "needs_review", "updated_at")}
            yield {"Items": items} | ({"LastEvaluatedKey": end} if start + size < self._rows else {})

    def _item(self, partition: str, number: int) -> Any:
        texts = {"pk": f"b/in/{number}", "sk": f"{NAME}@latest", "status": "REJECTED", "needs_review": partition}
        numbers = {"updated_at": number, "fence": 7, "format": 1}
        typed = {name: {"S": text} for name, text in texts.items()}
        return typed | {name: {"N": str(value)} for name, value in numbers.items()}


class Sink:
    """An SQS client that takes each message, and keeps none."""

    def __init__(self, pages: Pages) -> None:
        self._pages = pages
        self.sent = 0
        self.most_ahead = 0

    def send_message_batch(self, **request: Any) -> Any:
        self.sent += len(request["Entries"])
        self.most_ahead = max(self.most_ahead, self._pages.made * reprocess._PAGE_ROWS - self.sent)
        return {}


def _peak(site: Site, rows: int) -> tuple[int, Sink]:
    """Send a request for each row. Return the peak of memory in bytes."""
    deployed = replace(site.deployed, bucket="b")
    pages = Pages(rows)
    sink, result = Sink(pages), ReprocessResult(ID)
    stored: list[str] = []
    tracemalloc.start()
    try:
        targets = review_targets(pages, deployed, Status.REJECTED, None, before=10**15)  # type: ignore[arg-type]
        send_requests(sink, deployed, targets, result, UNLIMITED, recorder=UNRECORDED, store=lambda: stored.append(""))  # type: ignore[arg-type]
        return tracemalloc.get_traced_memory()[1], sink
    finally:
        tracemalloc.stop()


@pytest.mark.thorough
@pytest.mark.failure_mode("F177")
def test_memory_does_not_grow_with_the_number_of_rows() -> None:
    """At most one page is read ahead, and six times the rows take the same memory."""
    site = make_site()
    few, _ = _peak(site, 1_500)
    many, sink = _peak(site, 9_000)
    assert sink.sent == 9_000
    assert sink.most_ahead <= 2 * reprocess._PAGE_ROWS
    assert many < few * 1.3


class Table:
    """A DynamoDB client whose table has any number of processed rows. It makes a page when it is asked for."""

    def __init__(self, rows: int, at: Callable[[int], None]) -> None:
        self._rows = rows
        self._at = at

    def get_paginator(self, _: str) -> "Table":
        return self

    def paginate(self, **_: Any) -> Iterator[Any]:
        for start in range(0, self._rows, SCANNED_ROWS):
            self._at(start)
            yield {"Items": [self._item(number) for number in range(start, start + SCANNED_ROWS)]}

    def _item(self, number: int) -> Any:
        return {"pk": {"S": f"b/in/{number}"}, **SCANNED}


SCANNED_ROWS = 5_000
"""DynamoDB's page of 1 MB has about this number of short rows."""
SCANNED = {
    "sk": {"S": f"{NAME}@latest"},
    "status": {"S": "PROCESSED"},
    "processor_version": {"S": "0123456789ab"},
    "version_id": {"S": "v1"},
    "fence": {"N": "7"},
    "updated_at": {"N": "1795000000000"},
}


@pytest.mark.thorough
@pytest.mark.failure_mode("F177")
def test_a_million_rows_are_requested_in_constant_memory() -> None:
    """After the first 100,000 rows the process holds no more objects than at the end. A short run has a tenth."""
    rows = 1_000_000 if THOROUGH else 50_000
    blocks: dict[int, int] = {}

    def count_blocks(start: int) -> None:
        if start in (rows // 10, rows - SCANNED_ROWS):
            gc.collect()
            blocks[start] = sys.getallocatedblocks()

    table, result = Table(rows, count_blocks), ReprocessResult(ID)
    deployed = replace(make_site().deployed, bucket="b")
    selected = RowFilter(before=10**15, version="0123456789ab")
    targets = row_targets(table, deployed, selected, result)  # type: ignore[arg-type]
    send_requests(Sink(Pages(0)), deployed, targets, result, UNLIMITED, recorder=UNRECORDED)  # type: ignore[arg-type]
    assert (result.sent, len(blocks)) == (rows, 2)
    assert blocks[rows - SCANNED_ROWS] - blocks[rows // 10] < rows / 100
