"""`retry`: it chooses by the row, and repeats no committed effect by itself."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from intake_ledger.aws.queues import body_digest
from intake_ledger.events.parser import parse_message
from intake_ledger.protocol.change import State, StateKind
from intake_ledger.protocol.row import Row, Status, dismissed_partition
from intake_ledger_cli.app import now_ms
from intake_ledger_cli.aws.clients import Aws
from tests.unit.command.support import NAME, WHO, Site, client, groups_of, make_message_site, make_site
from tests.unit.command.test_commands import Person, sit
from tests.unit.support import HOUR, MINUTE, notification, record

__all__ = ["sit"]
pytestmark = pytest.mark.usefixtures("dynamodb")


@pytest.fixture
def person(sit: Callable[..., Person]) -> Person:
    return sit(make_site())


def reject(site: Site, key: str, *, letter: bool = True, **more: Any) -> None:
    """A rejected row, and its dead letter."""
    row = Row(Status.REJECTED, 7, version_id="v1", reason="no invoice", updated_at=now_ms() - HOUR, rejected_fence=7)
    site.row(key, replace(row, **more))
    if letter:
        body = notification(record(key, State(StateKind.OBJECT, "v1", "e"), bucket=site.deployed.bucket))
        site.dead_letter(body, reason="no invoice", key=key, rejected_fence=7)


def choices(found: Any) -> dict[str, str]:
    return {one["key"]: one["choice"] for one in found["choices"]}


@pytest.mark.failure_mode("F721")
def test_one_command_repairs_each_kind_of_row(person: Person) -> None:
    """A dry run shows each choice, and sends nothing."""
    site = person.site
    now = now_ms()
    held = Row(Status.PROCESSING, 3, attempts=1, updated_at=now, lease_owner="worker-1")
    reject(site, "in/rejected")
    reject(site, "in/lost", letter=False)
    site.row("in/failed", Row(Status.FAILED, 3, version_id="v1", updated_at=now - HOUR, retry_at=now + HOUR))
    site.row("in/held", replace(held, lease_until=now + HOUR))
    site.row("in/dead", replace(held, lease_until=now - MINUTE))
    site.row("in/done", Row(Status.PROCESSED, 3, version_id="v1", committed_state="v#v1", updated_at=now))
    keys = ("in/rejected", "in/lost", "in/failed", "in/held", "in/dead", "in/done", "in/none")
    expected = dict(zip(keys, ("redrive", "reopen", "now", "leave", "now", "skip", "leave"), strict=True))
    assert choices(person.reads("retry", *keys, "--dry-run")) == expected
    assert site.messages() == []
    shown = person.types("retry", *keys, "--dry-run")
    assert "in/held    PROCESSING  leave  worker-1 holds it, its lease ends " in shown
    groups = groups_of("SendMessageBatch")
    found = person.reads("retry", *keys, "--because", "the fix is deployed")
    assert choices(found) == expected
    assert groups == [found["requestId"]] * 4, "fresh files come first"
    assert (found["redriven"]["moved"], found["reopened"], found["due"]["retried"]) == (1, 1, 2)
    opened = [one for one in site.messages() if "rejected_fence" in one or "redriven" in str(one)]
    assert len(opened) == 2
    assert site.visible(site.deployed.dead_letter_url) == 0
    [operation] = person.reads("operations")["operations"]
    assert (operation["by"], operation["because"]) == (WHO, "the fix is deployed")
    assert operation["requestId"] == found["requestId"]
    assert operation["result"] == "1 redriven, 2 tried now, 1 reopened"


@pytest.mark.parametrize(
    ("options", "keys"),
    [
        (("--prefix", "in/"), {"in/a", "in/b", "in/f"}),
        (("--prefix", ""), {"in/a", "in/b", "in/f", "out/a"}),
        (("--reason", "no invoice"), {"in/a", "in/b", "out/a"}),
        (("--prefix", "in/", "--reason", "KeyError"), {"in/f"}),
        (("--waiting",), {"in/f"}),
    ],
)
def test_what_is_selected(person: Person, options: tuple[str, ...], keys: set[str]) -> None:
    for key in ("in/a", "in/b", "out/a"):
        reject(person.site, key)
    failed = Row(Status.FAILED, 3, version_id="v1", updated_at=1, reason="KeyError at invoices:4")
    person.site.row("in/f", failed)
    assert set(choices(person.reads("retry", *options, "--dry-run"))) == keys


@pytest.mark.failure_mode("F722")
def test_a_rejection_of_before_a_restore_is_left(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its dead letter may have been served before the restore, so its effect could be repeated."""
    dynamodb: Any = client("dynamodb")

    class Restored:
        def __getattr__(self, name: str) -> Any:
            return getattr(dynamodb, name)

        def describe_table(self, **request: Any) -> Any:
            answer = dynamodb.describe_table(**request)
            answer["Table"]["RestoreSummary"] = {"RestoreDateTime": datetime.now(UTC)}
            return answer

    reject(person.site, "in/a", letter=False)
    reject(person.site, "in/b", letter=False, updated_at=now_ms() + HOUR)
    person.site.put("in/a")
    monkeypatch.setattr(Aws, "dynamodb", Restored())
    found = person.reads("retry", "in/a", "in/b")
    assert choices(found) == {"in/a": "leave", "in/b": "reopen"}
    assert "restored since its rejection" in found["choices"][0]["why"]
    assert choices(person.reads("retry", "in/a", "--again")) == {"in/a": "again"}


@pytest.mark.failure_mode("F722")
def test_a_rejection_is_left_while_its_letter_may_be_hidden(person: Person) -> None:
    reject(person.site, "in/a")
    client("sqs").receive_message(QueueUrl=person.site.deployed.dead_letter_url, VisibilityTimeout=900)
    found = person.reads("retry", "in/a")
    assert choices(found) == {"in/a": "leave"}
    assert "1 of its queue were hidden" in found["choices"][0]["why"]


def test_a_dismissed_file_is_opened_by_its_key_only(person: Person) -> None:
    site = person.site
    reject(site, "in/a", letter=False)
    client("dynamodb").update_item(
        TableName=site.deployed.table,
        Key={"pk": {"S": f"{site.deployed.bucket}/in/a"}, "sk": {"S": f"{NAME}@latest"}},
        UpdateExpression="SET needs_review = :d",
        ExpressionAttributeValues={":d": {"S": dismissed_partition(NAME)}},
    )
    assert choices(person.reads("retry", "--prefix", "in/", "--dry-run")) == {}
    assert choices(person.reads("retry", "in/a")) == {"in/a": "reopen"}
    [message] = site.messages()
    [change] = parse_message(message["body"], rejected_fence=7)
    assert getattr(change, "key", "") == "in/a"


def test_a_message_whose_letter_is_gone_comes_from_its_source(sit: Callable[..., Person]) -> None:
    site = make_message_site()
    site.reject("o-7", "no pieces", version="e1")
    found = sit(site).reads("retry", "o-7")
    assert choices(found) == {"o-7": "leave"}
    assert "its source must send it again" in found["choices"][0]["why"]


@pytest.mark.failure_mode("F755")
@pytest.mark.parametrize("is_copy", [True, False])
def test_a_message_without_attributes_is_found_by_the_names_in_its_body(
    sit: Callable[..., Person], is_copy: bool
) -> None:
    """It is a copy of the rejection if the row has its digest. Otherwise a person has to choose it."""
    site, body = make_message_site(), '{"order": "o-7", "id": "e1", "pieces": 3}'
    row = Row(Status.REJECTED, 7, version_id="e1", reason="no pieces", updated_at=now_ms() - HOUR)
    site.row("o-7", replace(row, bare_copy_digest=body_digest(body) if is_copy else None))
    site.dead_letter(body)
    person = sit(site)
    found = person.reads("retry", "o-7")
    if is_copy:
        assert (choices(found), [one["body"] for one in site.messages()]) == ({"o-7": "redrive"}, [body])
        return
    assert (choices(found), site.messages()) == ({"o-7": "leave"}, [])
    [letter] = person.reads("retry", "--prefix", "o-", "--dry-run")["redriven"]["deadLetters"]
    assert (letter["keys"], found["choices"][0]["why"].split("`")[1]) == (["o-7"], f"retry --letter {letter['id']}")
    person.reads("retry", "--letter", letter["id"])
    assert [one["body"] for one in site.messages()] == [body]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "retry needs what to try"),
        (("in/a", "--prefix", "in/"), "keys name all"),
        (("--since", "2026-11-23T07:00:00Z"), "need --again"),
        (("--prefix", "", "--version-id", "v"), "needs exactly one key"),
    ],
)
def test_wrong_options(person: Person, arguments: tuple[str, ...], said: str) -> None:
    person.types("retry", *arguments, ends=2)
    assert said in person.complaint


def test_all_under_a_prefix_again(person: Person) -> None:
    person.site.put("in/a", "in/b", "out/a")
    assert person.reads("retry", "--again", "--prefix", "in/", "--because", "a bug")["again"]["sent"] == 2
    assert len(person.site.changes()) == 2
    [operation] = person.reads("operations")["operations"]
    assert operation["because"] == "a bug"
