"""F175: one redrive at a time."""

import os
import signal
import socket
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import pytest

from cdk_intake_ledger.testing import MemoryDynamoDB
from intake_ledger.protocol.row import Ordering, Row, Status, from_dynamodb, to_dynamodb
from intake_ledger_cli import commands
from intake_ledger_cli.act import redrive_lock, retrying, sender
from intake_ledger_cli.aws.reading import ObjectRow
from intake_ledger_cli.aws.sending import send
from tests.unit.command.forget_support import MemoryAws, deployed_in_memory
from tests.unit.command.support import NAME, STACK, WHO, client, denied, deny_puts, make_site
from tests.unit.command.test_commands import Person, sit  # noqa: F401 - a fixture
from tests.unit.support import MINUTE

if TYPE_CHECKING:
    from intake_ledger_cli.aws.clients import Aws

pytestmark = pytest.mark.usefixtures("dynamodb")
OTHER = "arn:aws:sts::111122223333:assumed-role/Operator/bo"
PLACE: Any = {"pk": {"S": f"{NAME}#operations"}, "sk": {"S": "redrive"}}


@pytest.fixture
def person(sit: Callable[..., Person]) -> Person:  # noqa: F811
    person = sit(make_site())
    for number in range(11):
        person.site.dead_letter(f"{number}", reason="y")
    return person


def held(person: Person) -> dict[str, Any]:
    answer = client("dynamodb").get_item(TableName=person.site.deployed.table, Key=PLACE)
    return from_dynamodb(answer.get("Item", {}))


def hold(person: Person, until: int) -> None:
    """Write the lock of another person."""
    now = time.time_ns() // 1_000_000
    content = {"by": OTHER, "host": "desk-7, process 9", "begun_at": now - MINUTE, "until": until, "token": "t"}
    client("dynamodb").put_item(TableName=person.site.deployed.table, Item=PLACE | to_dynamodb(content))


def now() -> int:
    return time.time_ns() // 1_000_000


@pytest.mark.failure_mode("F175")
def test_a_second_redrive_is_told_who_runs_the_first(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also a dry run, which would hide messages from the first. The first one moves all messages."""
    ends: list[int] = []

    def meanwhile(*arguments: Any) -> Any:
        if not ends:
            ends.extend(commands.run(["retry", "--prefix=", more, "--stack", STACK]) for more in ("--yes", "--dry-run"))
        return send(*arguments)

    monkeypatch.setattr(sender, "send", meanwhile)
    assert "moved back to the queue  11" in person.types("retry", "--prefix", "")
    assert ends == [1, 1]
    assert person.complaint.count(f"a redrive of {NAME} is running since 20") == 2
    assert f"by {WHO} on {socket.gethostname()}, process {os.getpid()}." in person.complaint
    assert [one["what"].split(" --id ")[0] for one in person.reads("operations")["operations"]] == ["retry --prefix ''"]


@pytest.mark.failure_mode("F175")
def test_the_lock_of_a_killed_redrive_lapses(person: Person) -> None:
    """Until then the message says when. Nothing is moved, and no record is left."""
    until = now() + MINUTE
    hold(person, until)
    person.types("retry", "--prefix", "", ends=1)
    assert f"by {OTHER} on desk-7, process 9." in person.complaint
    assert "its lock lapses at 20" in person.complaint
    assert held(person)["token"] == "t"
    assert person.reads("operations")["operations"] == []
    hold(person, now() - 1)
    assert person.reads("retry", "--prefix", "")["redriven"]["moved"] == 11
    assert held(person) == {}


@pytest.mark.failure_mode("F175")
@pytest.mark.parametrize("end", ["success", "dry run", "error", "SIGTERM"])
def test_the_lock_is_released_at_each_end(person: Person, monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    """The next redrive need not wait."""
    seen: list[dict[str, Any]] = []

    def ended(*arguments: Any) -> Any:
        seen.append(held(person))
        if end == "error":
            raise denied("sqs:SendMessage", "SendMessageBatch")
        if end == "SIGTERM":
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0)
        return send(*arguments)

    monkeypatch.setattr(sender, "send", ended)
    more = ("--dry-run",) if end == "dry run" else ()
    person.types("retry", "--prefix", "", *more, ends={"error": 1, "SIGTERM": 143}.get(end, 0))
    assert all(one["by"] == WHO for one in seen)
    assert bool(seen) is (end != "dry run")
    assert held(person) == {}


@pytest.mark.failure_mode("F175")
def test_a_redrive_renews_its_lock(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    """A redrive with a low rate takes hours."""
    monkeypatch.setattr(redrive_lock, "RENEWED_MS", -1)
    seen: list[int] = []

    def looked(*arguments: Any) -> Any:
        seen.append(held(person)["until"])
        hold_until(person, held(person), 5)
        return send(*arguments)

    monkeypatch.setattr(sender, "send", looked)
    person.types("retry", "--prefix", "")
    assert len(seen) == 2
    assert seen[1] > now() > 5


def hold_until(person: Person, content: dict[str, Any], until: int) -> None:
    """Let the lock of the running redrive lapse."""
    item = to_dynamodb(content | {"until": until})
    client("dynamodb").put_item(TableName=person.site.deployed.table, Item=item)


@pytest.mark.failure_mode("F175")
@pytest.mark.parametrize("what", [("--prefix", ""), ("--again", *(f"in/{number}" for number in range(11)))])
def test_a_suspended_redrive_stops_if_another_took_over(
    person: Person, monkeypatch: pytest.MonkeyPatch, what: tuple[str, ...]
) -> None:
    """It gives its messages back, and leaves the lock to the other one. Each part of a `retry` looks at the lock."""
    person.site.put(*(one for one in what if one.startswith("in/")))
    monkeypatch.setattr(redrive_lock, "RENEWED_MS", -1)

    def suspended(*arguments: Any) -> Any:
        hold(person, now() + MINUTE)
        return send(*arguments)

    monkeypatch.setattr(sender, "send", suspended)
    person.types("retry", *what, ends=1)
    assert "this redrive was suspended for minutes and lost its lock" in person.complaint
    assert held(person)["by"] == OTHER
    assert len(person.site.messages()) == 10
    assert person.site.visible(person.site.deployed.dead_letter_url) == (11 if "--again" in what else 1)


@pytest.mark.failure_mode("F175")
def test_rows_of_messages_look_at_the_lock_too() -> None:
    """Their source sends the messages, so the command only changes the rows."""
    deployed = deployed_in_memory("shop", "messages:shop", Ordering.EVERY_VERSION, messages=True)
    looks: list[str] = []
    rows = [ObjectRow(f"order-{number}", Row(Status.FAILED, 1, version_id="1")) for number in range(25)]
    retry = sender.Sender(
        cast("Aws", MemoryAws(MemoryDynamoDB(), now)), deployed, "01J", sender.RateLimit(None), lambda: looks.append("")
    )
    retrying.retry_rows(rows, now(), retrying.RetryResult(), retry)
    assert len(looks) == 3


@pytest.mark.failure_mode("F175")
def test_a_role_without_permission_for_the_lock_still_redrives(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    """Roles of an earlier deployment have none. The command says so."""
    deny_puts(monkeypatch)
    assert person.reads("retry", "--prefix", "")["redriven"]["moved"] == 11
    assert "without the lock of redrives: dynamodb:PutItem is not allowed" in person.complaint
