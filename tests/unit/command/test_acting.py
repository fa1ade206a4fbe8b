"""F160, F161: pause, resume, retry and SIGTERM. Each operation says who did what, when and why."""

import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from intake_ledger.delivery_check.looked import describe_pause
from intake_ledger.protocol.change import Origin
from intake_ledger.protocol.row import Ordering, Row, Status, from_dynamodb, success_key
from intake_ledger_cli.act import sender
from intake_ledger_cli.aws.sending import send
from intake_ledger_cli.errors import CliError
from tests.unit.command.support import NAME, WHO, Site, client, deny_puts, make_site
from tests.unit.command.test_commands import Person, sit  # noqa: F401 - a fixture
from tests.unit.support import HOUR, MINUTE

pytestmark = pytest.mark.usefixtures("dynamodb")


@pytest.fixture
def person(sit: Callable[..., Person]) -> Person:  # noqa: F811
    return sit(make_site())


def now() -> int:
    return time.time_ns() // 1_000_000


@pytest.mark.failure_mode("F160")
def test_a_pause_says_who_why_and_how_it_ends(person: Person) -> None:
    """In status, in the audit's report and in the list of operations. `resume` ends all of it."""
    because = "the warehouse is being moved"
    person.types("pause", "--because", because, "--yes", "--wait")
    assert "Messages wait in the queue" in person.complaint
    assert f"pause by {WHO} because {because}" in person.complaint
    assert person.functions.source == "Disabled"
    shown = person.types("status")
    assert f"by {WHO}, because {because}  see: resume" in shown
    assert "its event source mapping is Disabled" in shown
    assert person.reads("status")["pause"]["because"] == because
    table = person.site.deployed.table
    problem = describe_pause(client("dynamodb"), table, NAME)
    assert problem.startswith(f"paused by {WHO} because {because}")
    assert problem.endswith("run `intake-ledger resume`")
    assert person.types("resume", "--wait") == "paused  no: the consumer takes messages within a minute\n"
    assert person.functions.source == "Enabled"
    assert describe_pause(client("dynamodb"), table, NAME) == ""
    assert "takes messages" in person.types("status", "--all")
    found = person.reads("operations")["operations"]
    assert [(one["what"], one["by"], one["because"]) for one in found] == [
        ("resume", WHO, ""),
        ("pause", WHO, because),
    ]


@pytest.mark.failure_mode("F160")
def test_a_pause_without_a_terminal_needs_yes(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command says what it would do, and does nothing. A reason is required."""
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    person.types("pause", "--because", "x", ends=2)
    assert "will process no message until" in person.complaint
    assert "use --yes" in person.complaint
    person.types("pause", "--yes", ends=2)
    assert person.functions.source == "Enabled"
    assert person.reads("operations")["operations"] == []


def test_a_mapping_that_lambda_changes_is_left_alone(person: Person) -> None:
    """Lambda would refuse the request with an error that explains nothing."""
    person.functions.source = "Disabling"
    person.types("pause", "--because", "x", "--yes", ends=1)
    assert "repeat the command in a minute" in person.complaint


def test_a_record_that_is_denied_does_not_stop_the_command(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    """The line on standard error names the denied action."""
    deny_puts(monkeypatch)
    person.types("resume")
    assert "not recorded in the ledger: dynamodb:PutItem is not allowed" in person.complaint


@pytest.mark.failure_mode("F161")
@pytest.mark.failure_mode("F196")
@pytest.mark.parametrize("ordering", list(Ordering))
def test_retry_now_ends_the_waits_and_the_breakers_pause(
    sit: Callable[..., Person],  # noqa: F811
    ordering: Ordering,
) -> None:
    """Each row is due, and has a message, since its own may be hidden. Rows that have just become due, or are rejected,
    are left alone.
    """
    person = sit(make_site(ordering))
    site, later = person.site, now() + HOUR
    failed = Row(Status.FAILED, 3, version_id="v1", attempts=1, updated_at=now(), retry_at=later)
    site.row("in/failed", failed)
    site.row("in/waits", replace(failed, waiting_since=now() - MINUTE))
    site.row("in/due", replace(failed, retry_at=now() - MINUTE))
    site.row("in/just", replace(failed, retry_at=now() - 1_000))
    site.reject("in/rejected", "no invoice")
    found = person.reads("retry", "--waiting")
    done = found["due"]
    assert (done["retried"], done["changed"], done["failed"]) == (3, 0, 0)
    assert {(row["key"], row["due"]) for row in _due(site)} == {
        ("in/failed", True),
        ("in/waits", True),
        ("in/due", True),
        ("in/just", True),
    }
    changes = site.changes()
    assert {change.key for change in changes} == {"in/failed", "in/waits", "in/due"}
    assert {change.origin for change in changes} == {Origin.AUDIT}
    assert {change.state is None for change in changes} == {ordering is Ordering.LATEST}
    key = success_key(NAME)
    place: Any = {"pk": {"S": key.pk}, "sk": {"S": key.sk}}
    item = client("dynamodb").get_item(TableName=site.deployed.table, Key=place)["Item"]
    assert now() - MINUTE < from_dynamodb(item)["retry_now_at"] <= now()
    operation = person.reads("operations")["operations"][0]
    what = f"retry --waiting --id {found['requestId']}"
    assert (operation["what"], operation["result"]) == (what, "3 tried now")
    assert person.reads("retry", "--waiting")["due"]["retried"] == 0


@pytest.mark.failure_mode("F161")
def test_a_retry_that_fails_is_recorded(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any) -> Any:
        raise CliError("SQS did not answer")

    person.site.row("in/a", Row(Status.FAILED, 3, version_id="v1", attempts=1, updated_at=now(), retry_at=now() + HOUR))
    monkeypatch.setattr(sender, "send", refused)
    person.types("retry", "--waiting", ends=1)
    [operation] = person.reads("operations")["operations"]
    assert operation["result"] == "failed: SQS did not answer; nothing sent"


@pytest.mark.failure_mode("F161")
def test_what_is_due_is_sent_at_the_rate(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of an outage must not overrun the downstream."""
    waits = list[int]()
    monkeypatch.setattr(sender.RateLimit, "wait_for", lambda _, messages: waits.append(messages))
    row = Row(Status.FAILED, 3, version_id="v1", attempts=1, updated_at=now(), retry_at=now() + HOUR)
    for number in range(5):
        person.site.row(f"in/{number}", row)
    assert person.reads("retry", "--waiting", "--rate", "2")["due"]["retried"] == 5
    assert waits == [2, 2, 1]


@pytest.mark.failure_mode("F161")
def test_retry_takes_keys(person: Person) -> None:
    """Others keep their time."""
    row = Row(Status.FAILED, 3, version_id="v1", attempts=1, updated_at=now(), retry_at=now() + HOUR)
    for key in ("in/a", "in/b"):
        person.site.row(key, row)
    assert person.reads("retry", "in/a")["due"]["retried"] == 1
    assert {(row["key"], row["due"]) for row in _due(person.site)} == {("in/a", True), ("in/b", False)}


def _due(site: Site) -> list[dict[str, Any]]:
    items = client("dynamodb").scan(TableName=site.deployed.table)["Items"]
    rows = [from_dynamodb(item) for item in items if item.get("status", {}).get("S") == "FAILED"]
    prefix = f"{site.deployed.bucket}/"
    return [{"key": row["pk"].removeprefix(prefix), "due": row["retry_at"] <= now()} for row in rows]


@pytest.mark.failure_mode("F162")
def test_sigterm_gives_hidden_messages_back(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    """A container that is stopped must not hide dead-letter messages for a quarter of an hour."""
    for number in range(11):
        person.site.dead_letter(f"{number}", reason="y")
    calls = iter(range(9))

    def stopped(*arguments: Any) -> Any:
        if next(calls):
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0)  # Python handles the signal at the next instruction
        return send(*arguments)

    monkeypatch.setattr(sender, "send", stopped)
    before = signal.getsignal(signal.SIGTERM)
    assert "moved back to the queue  10\n" in person.types("retry", "--prefix", "", ends=143)
    assert signal.getsignal(signal.SIGTERM) is before
    assert person.site.visible(person.site.deployed.dead_letter_url) == 1
    assert person.reads("operations")["operations"][0]["result"] == "interrupted; 10 redriven, 1 left"
