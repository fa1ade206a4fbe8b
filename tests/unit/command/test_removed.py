"""Objects that were removed before they were processed, in the commands and reports."""

from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from intake_ledger.audit.report import Report
from intake_ledger.audit.row_numbers import RowNumbers, total
from intake_ledger.protocol.change import StateKind
from intake_ledger.protocol.row import Row, Settlement, Status, rejected_rows_partition, removed_partition
from intake_ledger_cli.read.audit_commands import report_table
from tests.unit.command.support import make_site
from tests.unit.command.test_commands import Person, sit  # noqa: F401 - a fixture
from tests.unit.support import START

pytestmark = pytest.mark.usefixtures("dynamodb")
KEY, REASON = "in/a b.csv", "bad header"


@pytest.fixture
def person(sit: Callable[..., Person]) -> Person:  # noqa: F811 - the fixture
    person = sit(make_site())
    row = Row(
        Status.PROCESSED, 7, "m1", kind=StateKind.MARKER, attempts=4, committed_state="v#m1", reason=REASON,
        reason_code="unprocessable", settled_as=Settlement.REMOVED_UNPROCESSED, unprocessed_state="v#v1",
        needs_review=removed_partition(person.site.deployed.name), updated_at=START,
    )  # fmt: skip
    person.site.row(KEY, row)
    person.site.reject("in/other", "no invoice")
    return person


@pytest.mark.failure_mode("F240")
def test_they_are_listed_and_are_no_open_failures(person: Person) -> None:
    [row] = person.reads("list", "--status", "removed")["rows"]
    assert (row["key"], row["reason"], row["attempts"]) == (KEY, REASON, 4)
    assert (row["settled_as"], row["unprocessed_state"]) == ("removed_unprocessed", "v#v1")
    assert "REMOVED" in person.types("list", "--status", "removed")
    assert "REMOVED" in person.types("list", "--status", "removed", "--csv")
    assert "REMOVED" in person.types("list", "--status", "removed", "--by-reason")
    assert [row["key"] for row in person.reads("list")["rows"]] == ["in/other"]


@pytest.mark.failure_mode("F240")
def test_status_counts_them_by_themselves(person: Person) -> None:
    found = person.reads("status")
    assert (found["removed"], found["rejected"], found["failed"]) == (1, 1, 0)
    assert "removed before they were processed, see: list --status removed" in person.types("status")


@pytest.mark.failure_mode("F240")
def test_inspect_says_what_happened(person: Person) -> None:
    text = person.types("inspect", KEY, "--no-logs")
    assert "REMOVED: v#v1 was removed before it was processed, after 4 attempts" in text
    assert REASON in text


def test_files_without_their_bad_rows_are_listed_and_counted(person: Person) -> None:
    """They are committed, so they are no failures."""
    partition = rejected_rows_partition(person.site.deployed.name)
    row = Row(
        Status.PROCESSED, 7, "v1", etag="e", size=9, committed_state="v#v1", read_rows=4_000, rejected_rows=1_234,
        needs_review=partition, updated_at=START,
    )  # fmt: skip
    person.site.row("in/orders.csv", row)
    [found] = person.reads("list", "--status", "rejected-rows")["rows"]
    assert (found["key"], found["rejected_rows"]) == ("in/orders.csv", 1_234)
    for more in ((), ("--csv",), ("--by-reason",)):
        assert "1,234 of 4,000 rows are rejected" in person.types("list", "--status", "rejected-rows", *more)
    assert "read rows  4,000\nrejected rows  1,234\n" in person.types("inspect", "in/orders.csv", "--no-logs")
    status = person.reads("status")
    assert (status["rejectedRows"], status["rejected"], status["removed"]) == (1, 1, 1)
    assert "files were committed without their bad rows" in person.types("status")
    assert [one["key"] for one in person.reads("list")["rows"]] == ["in/other"]


@pytest.mark.failure_mode("F240")
def test_the_page_shows_them(person: Person, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    person.types("audit", "--html", str(path))
    assert "removed before they were processed" in path.read_text()


@pytest.mark.failure_mode("F240")
def test_the_report_of_an_audit_counts_them() -> None:
    numbers = RowNumbers()
    for name in (Settlement.REMOVED_UNPROCESSED, Settlement.REMOVAL, None):
        numbers.count(Status.PROCESSED, claimed_at=START, lease_until=None, now=START, settled_as=name)
    report = Report("run", START)
    report.rows = total([numbers, RowNumbers()])
    found = report.as_json(START)
    assert found["rows"]["removedUnprocessed"] == 1
    assert "1 removed before they were processed" in found["summary"]
    terminal = Console(width=200)
    with terminal.capture() as capture:
        terminal.print(report_table(found, None, START))
    assert "1  before they were processed, see: list --status removed" in capture.get()


@pytest.mark.failure_mode("F644")
def test_status_says_why_rejected_rows_have_no_dead_letter(sit: Callable[..., Person]) -> None:  # noqa: F811
    """Its queue cannot tell an expiry from a restore of the table, so both are named."""
    person = sit(make_site())
    person.site.reject("in/a", "no amount")
    assert "No dead letter is left: they have expired, or were served before a restore" in person.types("status")
    person.site.dead_letter("{}")
    assert "No dead letter is left" not in person.types("status")
