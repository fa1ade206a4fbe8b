"""F174: commands that move or repeat work announce it, ask, and leave a record."""

import io
from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import pytest

from intake_ledger.protocol.change import State, StateKind
from intake_ledger_cli.act import again, sender
from intake_ledger_cli.aws.clients import Aws
from tests.unit.command.support import NAME, WHO, client, denied, deny_puts, make_site, new_consumer_log
from tests.unit.command.test_commands import Person, sit  # noqa: F401 - a fixture
from tests.unit.support import notification, record

pytestmark = pytest.mark.usefixtures("dynamodb")


class Terminal(io.StringIO):
    """Standard input of a person who types an answer."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def person(sit: Callable[..., Person]) -> Person:  # noqa: F811
    person = sit(make_site())
    person.site.put("in/a", "in/b")
    person.site.dead_letter(notification(record("in/a", State(StateKind.OBJECT, "v1", "e"))), reason="no invoice")
    return person


COMMANDS = [
    pytest.param(("retry", "--reason", "invoice"), "move 1 dead letter back to the queue", id="redrive"),
    pytest.param(("retry", "--again", "--prefix", "in/"), "2 objects of `retry --again --prefix in/`", id="prefix"),
    pytest.param(("retry", "--again", "in/b"), "process 1 object again, although", id="keys"),
]


@pytest.mark.failure_mode("F174")
@pytest.mark.parametrize(("command", "said"), COMMANDS)
@pytest.mark.parametrize("answer", ["y", "n"])
def test_a_person_is_asked_with_numbers_and_the_place(
    person: Person, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], said: str, answer: str
) -> None:
    """The question names the pipeline, the account and the region. Any other answer than yes changes nothing."""
    monkeypatch.setattr("sys.stdin", Terminal(f"{answer}\n"))
    person.types(*command, yes=False, ends=0 if answer == "y" else 1)
    for part in (said, NAME, "account 111122223333, eu-central-1", "Continue?"):
        assert part in person.complaint
    assert bool(person.site.messages()) is (answer == "y")
    assert bool(person.reads("operations")["operations"]) is (answer == "y")


@pytest.mark.failure_mode("F174")
@pytest.mark.parametrize(("command", "said"), COMMANDS)
def test_without_a_terminal_and_without_yes_nothing_is_done(
    person: Person, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], said: str
) -> None:
    """Exit code 2, and the last line names the option. Objects are not counted, because no person reads the number."""
    monkeypatch.setattr("sys.stdin", io.StringIO())
    person.types(*command, yes=False, ends=2)
    assert person.complaint.splitlines()[-1] == "intake-ledger: there is no terminal to ask at: use --yes"
    assert NAME in person.complaint
    assert said.removeprefix("2 ") in person.complaint
    assert person.site.messages() == []
    assert person.site.visible(person.site.deployed.dead_letter_url) == 1
    assert person.reads("operations")["operations"] == []


@pytest.mark.failure_mode("F174")
@pytest.mark.parametrize("command", [one.values[0] for one in COMMANDS])
def test_a_dry_run_neither_asks_nor_leaves_a_record(
    person: Person, monkeypatch: pytest.MonkeyPatch, command: Any
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())
    person.types(*command, "--dry-run", yes=False)
    assert person.reads("operations")["operations"] == []


@pytest.mark.failure_mode("F174")
def test_each_operation_is_listed_with_its_result(person: Person) -> None:
    """Who, what with its options, and the numbers at the end."""
    retry = person.reads("retry", "--reason", "invoice")["requestId"]
    request = person.reads("retry", "--again", "--prefix", "")["requestId"]
    found = person.reads("operations")["operations"]
    assert [(one["by"], one["what"].removesuffix(f" --id {retry}"), one["result"]) for one in found] == [
        (WHO, f"retry --again --prefix '' --id {request}", "2 requests sent, 0 failed"),
        (WHO, "retry --reason invoice", "1 redriven"),
    ]
    assert "1 redriven" in person.types("operations")


@pytest.mark.failure_mode("F174")
def test_an_interrupted_operation_leaves_its_record(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    """The record is written before the first change."""
    monkeypatch.setattr(sender, "send", _interrupted)
    person.types("retry", "--prefix", "", ends=130)
    [found] = person.reads("operations")["operations"]
    assert found["what"].startswith("retry --prefix '' --id ")
    assert found["result"] == "interrupted; 1 left"


def _interrupted(*_: Any) -> Any:
    raise KeyboardInterrupt


@pytest.mark.failure_mode("F174")
def test_a_record_that_is_denied_does_not_stop_a_redrive(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is said once. A role of an earlier deployment may not write records."""
    deny_puts(monkeypatch)
    assert person.reads("retry", "--prefix", "")["redriven"]["moved"] == 1
    assert person.complaint.count("not recorded in the ledger: dynamodb:PutItem is not allowed") == 1


@pytest.mark.failure_mode("F174")
def test_each_operation_is_in_the_consumers_log(person: Person) -> None:
    """People who search the log for a time find what others did: one line at the beginning, one with the result."""
    lines = new_consumer_log()
    person.types("retry", "--reason", "invoice")
    person.types("pause", "--because", "a test", "--yes")
    assert "log" not in person.complaint
    told = [(one["message"], one["service"], one["done_by"], one["what"].split(" --id ")[0]) for one in lines()]
    retry = ("operation", NAME, WHO, "retry --reason invoice")
    pause = ("operation", NAME, WHO, "pause")
    assert told == [retry, retry, pause, pause]
    assert [one.get("result") for one in lines()] == [None, "1 redriven", None, "paused"]
    assert lines()[2]["because"] == "a test"
    assert {name for one in lines() for name in one if name.endswith("_at")} == {"begun_at"}


@pytest.mark.failure_mode("F174")
@pytest.mark.parametrize(
    ("error", "why"),
    [
        (denied("logs:PutLogEvents", "PutLogEvents"), "not allowed: logs:PutLogEvents"),
        (None, "there is no log group /aws/lambda/consumer"),
    ],
)
def test_a_missing_log_does_not_stop_a_redrive(
    person: Person, monkeypatch: pytest.MonkeyPatch, error: Exception | None, why: str
) -> None:
    """It is said once, and the ledger has the record."""
    new_consumer_log()
    logs: Any = client("logs")
    logs.delete_log_group(logGroupName="/aws/lambda/consumer")
    if error:
        monkeypatch.setattr(Aws, "logs", Mock(exceptions=logs.exceptions, put_log_events=Mock(side_effect=error)))
    assert person.reads("retry", "--prefix", "")["redriven"]["moved"] == 1
    assert person.complaint.count(f"not written to the consumer's log: {why}") == 1
    assert person.reads("operations")["operations"][0]["result"] == "1 redriven"


@pytest.mark.failure_mode("F174")
def test_many_objects_are_counted_up_to_a_limit(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bucket may have millions of objects, and the person waits for the question."""
    monkeypatch.setattr(again, "COUNTED", 1)
    monkeypatch.setattr("sys.stdin", Terminal("n\n"))
    person.types("retry", "--again", "--prefix", "", yes=False, ends=1)
    assert "more than 1 objects of" in person.complaint
