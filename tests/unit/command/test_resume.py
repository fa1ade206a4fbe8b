"""F177: a `retry --again` of many objects needs little memory, and continues where it was interrupted."""

import gc
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any

import pytest

from intake_ledger.protocol.row import Ordering, Row, Status
from intake_ledger_cli.act import sender
from intake_ledger_cli.act.again import send_requests
from intake_ledger_cli.act.selection import CommitFilter, ReprocessResult, row_targets
from intake_ledger_cli.aws.sending import send
from tests.settings import THOROUGH, quick
from tests.unit.command.support import NAME, SENDER_ID, Site, client, make_sender, make_site
from tests.unit.command.test_commands import Person, sit  # noqa: F401 - a fixture
from tests.unit.support import HOUR

pytestmark = pytest.mark.usefixtures("dynamodb")


def now() -> int:
    return time.time_ns() // 1_000_000


def processed(site: Site, key: str, age: int, version: str = "v1") -> None:
    """A row whose last commit has this age. Its tag was written later."""
    row = Row(Status.PROCESSED, 7, version_id=version, committed_state=f"v#{version}", committed_fence=now() - age)
    site.row(key, replace(row, updated_at=now() + 2 * HOUR))


def fill(site: Site, selection: str) -> tuple[str, ...]:
    """Make 25 objects that a selection takes, and return its options."""
    keys = [f"in/{number:02}" for number in range(25)]
    if selection == "prefix":
        site.put(*keys)
        return ("--prefix", "in/")
    for number, key in enumerate(keys):
        if selection == "since":
            processed(site, key, HOUR + number)
        else:
            row = Row(Status.PROCESSED, 7, version_id="v1", committed_state="v#v1", committed_fence=now() - HOUR)
            site.row(key, replace(row, processor_version="0123456789ab"))
    if selection == "version":
        return ("--processor-version", "0123456789ab")
    return ("--since", "2020-01-01T00:00:00Z")


@pytest.mark.failure_mode("F177")
@pytest.mark.parametrize("ordering", quick(Ordering, 1))
@pytest.mark.parametrize("selection", ["prefix", "since", "version"])
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

    monkeypatch.setattr(sender, "send", interrupted)
    first = person.reads("retry", "--again", *options, ends=130)
    assert first["again"]["sent"] == 10
    assert f"to continue, run: intake-ledger retry --again --resume {first['requestId']}" in person.complaint
    before = person.site.changes()
    second = person.reads("retry", "--again", "--resume", first["requestId"])
    after = person.site.changes()
    assert second["requestId"] == first["requestId"]
    assert {change.reprocess_id for change in before + after} == {first["requestId"]}
    assert {change.key for change in before + after} == {f"in/{number:02}" for number in range(25)}
    # In EVERY_VERSION, a listing continues with the last key: its other versions may be missing.
    again = selection == "prefix" and ordering is Ordering.EVERY_VERSION
    assert len(after) == (16 if again else 15)
    person.types("retry", "--again", "--resume", first["requestId"], ends=1)
    assert "has no stored position" in person.complaint
    results = [one["result"] for one in person.reads("operations")["operations"]]
    assert results == [f"{len(after)} requests sent, 0 failed", "interrupted; 10 requests sent, 0 failed"]


@pytest.mark.failure_mode("F177")
def test_a_message_that_failed_is_sent_by_the_resumed_call(
    sit: Callable[..., Person],  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The call is resumed with it."""
    person = sit(make_site())
    options = fill(person.site, "prefix")
    with monkeypatch.context() as context:
        context.setattr(sender, "send", _fails_once)
        failed = person.reads("retry", "--again", *options, ends=1)
    assert [one["key"] for one in failed["again"]["failed"]] == ["in/13"]
    sent = {change.key for change in person.site.changes()}
    resumed = person.reads("retry", "--again", "--resume", failed["requestId"])
    assert resumed["again"]["sent"] == 12
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
    dynamodb, result = client("dynamodb"), ReprocessResult()
    since = row_targets(dynamodb, site.deployed, CommitFilter(now() - 2 * HOUR, now()), "", result)
    assert [one.key for one in since] == ["in/a"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--resume", SENDER_ID, "--prefix", ""), "omit the other options"),
        (("--since", "yesterday"), "is not a time"),
        (("--processor-version", "0123456789ab", "in/a"), "combine them with --prefix only"),
        (("--processor-version", " "), "is empty"),
        (("--before", "2026-11-25", "--waiting"), "combine them with --prefix only"),
        (("--since", "2026-11-25", "--before", "2026-11-24"), "no commit is between"),
        (("--from", "no/such.txt"), "cannot be read"),
        (("--from", "/dev/null"), "has no key"),
        ((), "retry needs what to try"),
        (("--processor-version", "0123456789ab", "--since", "yesterday"), "is not a time"),
    ],
)
def test_a_wrong_selection_is_refused(sit: Callable[..., Person], options: tuple[str, ...], said: str) -> None:  # noqa: F811
    person = sit(make_site())
    person.types("retry", "--again", *options, ends=2)
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
        row = Row(Status.PROCESSED, 7, version_id="v1", committed_state="v#v1", committed_fence=now() - age)
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
        (("--before", "2 hours"), {"in/b"}, 0),
        (("--since", "4 hours", "--before", "2 hours", "--prefix", "in/"), {"in/b"}, 0),
    ],
)
def test_what_a_wrong_version_of_the_processor_committed_is_processed_again(
    versions: Person, options: tuple[str, ...], keys: set[str], unknown: int
) -> None:
    """The whole hash of the code's asset is taken too. Rows that name no version are counted, and not requested."""
    times = {f"{n} hours": datetime.fromtimestamp(now() / 1000 - n * 3600, UTC).isoformat() for n in (2, 4)}
    given = [times.get(option, option) for option in options]
    result = versions.reads("retry", "--again", "--processor-version", "0123456789ab" + "c" * 52, *given)
    assert {change.key for change in versions.site.changes()} == keys
    assert (result["again"]["sent"], result["again"]["unknownVersion"]) == (len(keys), unknown)


def test_rows_are_selected_by_their_commit_without_a_version(versions: Person) -> None:
    """Also those that name no version, and with a prefix. What the request commits does not come again."""
    since = datetime.fromtimestamp(now() / 1000 - 2 * 3600, UTC).isoformat()
    assert versions.reads("retry", "--again", "--since", since, "--prefix", "in/")["again"]["sent"] == 3
    assert {change.key for change in versions.site.changes()} == {"in/a", "in/d", "in/e"}
    processed(versions.site, "in/a", -HOUR)
    later = datetime.fromtimestamp(now() / 1000 + 2 * 3600, UTC).isoformat()
    assert versions.reads("retry", "--again", "--since", since, "--before", later)["again"]["sent"] == 3


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_keys_come_from_a_file_or_standard_input(
    sit: Callable[..., Person],  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    ending: str,
) -> None:
    site = make_site()
    person, keys = sit(site), ["in/ a b ", "in/ü", "in/c"]
    site.put(*keys)
    content = ("\ufeff" + ending.join([*keys, keys[0], ""]) + ending).encode()
    (tmp_path / "keys.txt").write_bytes(content)
    person.types("retry", "--again", "--from", str(tmp_path / "keys.txt"), "in/c")
    assert sorted(change.key for change in site.changes()) == sorted(keys)
    monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(content)))
    person.types("retry", "--again", "--from", "-", "--yes")
    assert sorted(change.key for change in site.changes()) == sorted(keys)


@pytest.mark.failure_mode("F190")
def test_the_rows_that_could_not_be_judged_are_said(versions: Person) -> None:
    said = versions.types("retry", "--again", "--processor-version", "0123456789ab", "--dry-run")
    assert "not judged  1  their rows name no version of the processor" in said


class Sink:
    """An SQS client that takes each message, and keeps none."""

    def send_message_batch(self, **_: Any) -> Any:
        return {}


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

    table, result = Table(rows, count_blocks), ReprocessResult()
    deployed = replace(make_site().deployed, bucket="b")
    selected = CommitFilter(before=10**15, version="0123456789ab")
    targets = row_targets(table, deployed, selected, "", result)  # type: ignore[arg-type]
    send_requests(make_sender(deployed, Sink()), targets, result)
    assert (result.sent, len(blocks)) == (rows, 2)
    assert blocks[rows - SCANNED_ROWS] - blocks[rows // 10] < rows / 100
