"""F176: a rejected object that needs no repair leaves the alarm, and its row stays."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import pytest

from intake_ledger.aws.queues import body_digest
from intake_ledger.events.copies import REDRIVEN
from intake_ledger.events.parser import parse_message
from intake_ledger.protocol.change import Change, State, StateKind
from intake_ledger.protocol.row import Ordering, Row, Status, from_dynamodb, row_from_attributes, row_key
from intake_ledger.protocol.utf8_json import json_text
from intake_ledger.protocol.verdict import Policy, Verdict, judge_state
from intake_ledger.requests.redriven import redriven as attributes_of
from intake_ledger_cli.act import dismissing
from intake_ledger_cli.aws import drain
from tests.unit.command.support import WHO, Site, client, denied, make_message_site, make_site
from tests.unit.command.test_commands import Person, sit  # noqa: F401 - a fixture
from tests.unit.support import DAY, RETENTION, START, created, marked, notification, record, redriven, reprocess

pytestmark = pytest.mark.usefixtures("dynamodb")
KEY, FENCE, BECAUSE = "in/a b.csv", 7, "the partner sent a test file"
POLICY = Policy(max_attempts=3, retention_ms=RETENTION, deletes=True)


def rejected(site: Site, key: str = KEY, version: str = "v1", fence: int = FENCE) -> None:
    """Write a rejected row and its dead-letter message as the consumer does."""
    row = Row(Status.REJECTED, fence, version_id=version, reason="no invoice", reason_code="unprocessable")
    site.row(key, replace(row, rejected_fence=fence, updated_at=START, first_claimed_at=START))
    state = State(StateKind.OBJECT, version, "e", 1)
    site.dead_letter(
        notification(record(key, state, bucket=site.deployed.bucket)),
        reason="no invoice", pipeline=site.deployed.name, key=quote(key), rejected_fence=fence,
    )  # fmt: skip


@pytest.fixture(params=list(Ordering))
def person(sit: Callable[..., Person], request: pytest.FixtureRequest) -> Person:  # noqa: F811
    person = sit(make_site(request.param))
    rejected(person.site)
    return person


def stored(person: Person, key: str = KEY, version: str = "v1") -> Row:
    deployed = person.site.deployed
    place = row_key(deployed.name, deployed.ordering, deployed.bucket, key, f"v#{version}")
    wanted: Any = {"pk": {"S": place.pk}, "sk": {"S": place.sk}}
    row = row_from_attributes(from_dynamodb(client("dynamodb").get_item(TableName=deployed.table, Key=wanted)["Item"]))
    assert row is not None
    return row


def dead_letters(person: Person) -> int:
    return person.site.visible(person.site.deployed.dead_letter_url)


@pytest.mark.failure_mode("F176")
def test_a_dismissed_object_leaves_status_list_and_the_alarm(person: Person) -> None:
    """Its row keeps status and reason. Objects of other keys stay where they are."""
    rejected(person.site, "in/other")
    done = person.reads("dismiss", KEY, "--because", BECAUSE)
    assert (done["rows"], done["messages"], done["otherMessages"]) == (1, 1, 0)
    found = person.reads("status")
    assert (found["rejected"], found["dismissed"], found["deadLetters"]["waiting"]) == (1, 1, 1)
    assert [row["key"] for row in person.reads("list", "--status", "REJECTED")["rows"]] == ["in/other"]
    assert [row["key"] for row in person.reads("list", "--status", "dismissed")["rows"]] == [KEY]
    assert "DISMISSED" in person.types("list", "--status", "dismissed")
    assert "see: list --status dismissed" in person.types("status")
    row = stored(person)
    assert (row.status, row.reason, row.reason_code, row.updated_at) == (
        Status.REJECTED, "no invoice", "unprocessable", START,
    )  # fmt: skip
    assert "REJECTED after 1 attempt: dismissed, see: operations" in person.types("inspect", KEY)
    [operation] = person.reads("operations")["operations"]
    assert (operation["what"], operation["by"], operation["because"]) == (f"dismiss {KEY}", WHO, BECAUSE)
    assert operation["result"] == "1 row, 1 dead-letter message"


@pytest.mark.failure_mode("F176")
def test_several_keys_are_dismissed_in_one_pass(person: Person) -> None:
    """One question, one record, and one look at the dead letters. A key that is not rejected stops it at the start."""
    rejected(person.site, "in/other", fence=9)
    rejected(person.site, "in/third", fence=9)
    person.types("dismiss", KEY, "in/unknown", "--because", BECAUSE, ends=1)
    assert "in/unknown is not rejected" in person.complaint
    assert dead_letters(person) == 3
    done = person.reads("dismiss", KEY, "in/other", KEY, "--because", BECAUSE)
    assert (done["rows"], done["messages"], done["otherMessages"]) == (2, 2, 0)
    assert f"2 rejected versions of {KEY}, in/other" in person.complaint
    assert person.reads("operations")["operations"][0]["what"] == f"dismiss {KEY} in/other"
    assert [row["key"] for row in person.reads("list", "--status", "REJECTED")["rows"]] == ["in/third"]
    assert person.reads("retry", KEY, "in/other")["reopened"] == 2
    assert dead_letters(person) == 1
    person.types("dismiss", KEY, "in/other", "--version-id", "v1", "--because", BECAUSE, ends=2)
    assert "--version-id is for one key, and 2 were given" in person.complaint


@pytest.mark.failure_mode("F176")
def test_a_retry_opens_a_dismissed_object(person: Person) -> None:
    """Its message asks for a retry of this rejection, as the deleted one did."""
    before = stored(person)
    person.types("dismiss", KEY, "--because", BECAUSE)
    assert person.reads("retry", KEY)["reopened"] == 1
    [message] = person.site.messages()
    told = attributes_of(message[REDRIVEN])
    assert told is not None
    assert (told.attributes["reason"], told.attributes["key"]) == ("no invoice", quote(KEY))
    [change] = parse_message(message["body"], rejected_fence=int(message["rejected_fence"]))
    assert isinstance(change, Change)
    assert change.key == KEY
    state = State(StateKind.OBJECT, "v1", None, None, START)
    assert judge_state(before, change, state, now=START + DAY, policy=POLICY).verdict is Verdict.ACCEPTED


@pytest.mark.failure_mode("F176")
def test_a_retry_leaves_out_characters_that_sqs_refuses(person: Person) -> None:
    """A reason may quote the content. The copy of the consumer does the same."""
    person.site.row(KEY, replace(stored(person), reason="no \x00 invoice \x1b in \ufffe"))
    person.types("dismiss", KEY, "--because", BECAUSE)
    person.types("retry", KEY)
    [message] = person.site.messages()
    told = attributes_of(message[REDRIVEN])
    assert told is not None
    assert told.attributes["reason"] == "no \ufffd invoice \ufffd in \ufffd"


@pytest.mark.failure_mode("F176")
def test_a_dismissal_needs_a_rejected_object_and_a_reason(person: Person) -> None:
    person.types("dismiss", "in/unknown", "--because", "x", ends=1)
    assert "is not rejected (the ledger has: no row)" in person.complaint
    person.types("dismiss", KEY, ends=2)
    assert "Missing option '--because'" in person.complaint
    assert dead_letters(person) == 1
    assert person.reads("operations")["operations"] == []


@pytest.mark.failure_mode("F176")
def test_a_message_of_a_newer_rejection_stays(person: Person) -> None:
    """It is about another state, or SQS moved it. The command counts it."""
    state = State(StateKind.OBJECT, "v2", "e", 1)
    body = notification(record(KEY, state, bucket=person.site.deployed.bucket))
    person.site.dead_letter(body, reason="x", pipeline=person.site.deployed.name, key=quote(KEY), rejected_fence=9)
    person.site.dead_letter(body)
    done = person.reads("dismiss", KEY, "--because", BECAUSE)
    assert (done["messages"], done["otherMessages"], dead_letters(person)) == (1, 2, 2)


@pytest.mark.failure_mode("F176")
def test_a_row_that_an_attempt_changes_meanwhile_is_left_alone(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    """A claim took the row after the command had read it."""
    move = dismissing._move

    def late(*arguments: Any) -> None:
        person.site.row(KEY, Row(Status.PROCESSING, FENCE + 1, version_id="v1", lease_until=START, lease_owner="w"))
        move(*arguments)

    monkeypatch.setattr(dismissing, "_move", late)
    person.types("dismiss", KEY, "--because", BECAUSE, ends=1)
    assert "has changed meanwhile" in person.complaint
    [operation] = person.reads("operations")["operations"]
    assert operation["result"].startswith("failed: ")
    assert stored(person).status is Status.PROCESSING
    assert dead_letters(person) == 1


@pytest.mark.failure_mode("F176")
def test_a_dismissal_that_was_killed_can_be_repeated(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    """The row moved, and the message stayed."""

    def killed(*_: Any) -> Any:
        raise denied("sqs:ReceiveMessage", "ReceiveMessage")

    with monkeypatch.context() as context:
        context.setattr(drain.Drain, "receive", killed)
        person.types("dismiss", KEY, "--because", BECAUSE, ends=1)
    assert (stored(person).dismissed, dead_letters(person)) == (True, 1)
    person.types("dismiss", KEY, "--because", BECAUSE)
    assert (stored(person).dismissed, dead_letters(person)) == (True, 0)


@pytest.mark.failure_mode("F176")
def test_one_version_can_be_dismissed_alone(sit: Callable[..., Person]) -> None:  # noqa: F811
    person = sit(make_site(Ordering.EVERY_VERSION))
    rejected(person.site)
    rejected(person.site, version="v2", fence=8)
    person.types("dismiss", KEY, "--because", BECAUSE, "--version-id", "v2")
    assert (stored(person).dismissed, stored(person, version="v2").dismissed) == (False, True)
    assert dead_letters(person) == 1


@pytest.mark.failure_mode("F682")
def test_a_dismissed_message_stays_closed_and_other_contents_stay(sit: Callable[..., Person]) -> None:  # noqa: F811
    """The letters of other contents, and of another identity with the same fence, have the only copy of their content.
    They keep the alarm red.
    """
    person = sit(make_message_site())
    name = person.site.deployed.name
    for identity in ("v1", "v2"):
        row = Row(Status.REJECTED, FENCE, version_id=identity, etag="e1", reason="no invoice", rejected_fence=FENCE)
        person.site.row(KEY, row)
        person.site.dead_letter(
            "{}", reason="x", pipeline=name, key=quote(KEY), version_id=identity, rejected_fence=FENCE
        )
    other = {"reason_code": "identity_rejected", "pipeline": name, "key": quote(KEY), "version_id": "v1"}
    person.site.dead_letter('{"pieces": 3}', reason="x", **other)
    done = person.reads("dismiss", KEY, "--version-id", "v1", "--because", BECAUSE)
    assert (done["rows"], done["messages"], done["otherMessages"], dead_letters(person)) == (1, 1, 2, 2)
    assert "1 rejected message of" in person.complaint
    assert "the only copy of the content: after a `retry`, the source has to send it again" in person.complaint
    assert (stored(person).dismissed, stored(person, version="v2").dismissed) == (True, False)


@pytest.mark.failure_mode("F755")
def test_a_dead_letter_without_attributes_is_that_of_the_digest_in_the_row(sit: Callable[..., Person]) -> None:  # noqa: F811
    """Its body names key and identity. Another content of the identity stays."""
    person = sit(make_message_site())
    bodies = [json_text({"order": KEY, "id": "v1", "pieces": number}) for number in (1, 2)]
    row = Row(Status.REJECTED, FENCE, version_id="v1", reason="no pieces", updated_at=START)
    person.site.row(KEY, replace(row, bare_copy_digest=body_digest(bodies[0])))
    for body in bodies:
        person.site.dead_letter(body)
    done = person.reads("dismiss", KEY, "--because", BECAUSE)
    assert (done["messages"], done["otherMessages"], dead_letters(person)) == (1, 1, 1)


@pytest.mark.failure_mode("F757")
@pytest.mark.parametrize(
    ("status", "attributes", "said"),
    [
        (Status.REJECTED, {"rejected_fence": FENCE}, "is the copy of the rejection: run intake-ledger dismiss"),
        (Status.FAILED, {}, "is not finished and may need"),
        (Status.PROCESSED, {"pipeline": "Another"}, "is a dead letter of Another"),
        (Status.PROCESSED, {}, None),
        (Status.REJECTED, {"rejected_fence": FENCE - 1}, None),
    ],
)
def test_one_dead_letter_is_deleted_unless_a_row_needs_it(
    sit: Callable[..., Person],  # noqa: F811
    status: Status,
    attributes: dict[str, str | int],
    said: str | None,
) -> None:
    person = sit(make_message_site())
    person.site.row(KEY, Row(status, FENCE, version_id="v1", rejected_fence=FENCE, updated_at=START))
    person.site.dead_letter(json_text({"order": KEY, "id": "v1"}), **attributes)
    client_ = client("sqs")
    [found] = client_.receive_message(QueueUrl=person.site.deployed.dead_letter_url, VisibilityTimeout=0)["Messages"]
    person.types("dismiss", "--letter", found["MessageId"], "--because", BECAUSE, ends=1 if said else 0)
    assert (said or "") in person.complaint
    assert dead_letters(person) == (1 if said else 0)


@pytest.mark.failure_mode("F757")
def test_a_dead_letter_whose_row_cannot_be_known_stays(sit: Callable[..., Person]) -> None:  # noqa: F811
    """The copy of a rejection whose body names no key, and each letter if the function is of another release."""
    person = sit(make_message_site())
    person.site.dead_letter("{}", rejected_fence=FENCE)
    client_ = client("sqs")
    url = person.site.deployed.dead_letter_url
    [found] = client_.receive_message(QueueUrl=url, VisibilityTimeout=0)["Messages"]
    person.types("dismiss", "--letter", found["MessageId"], "--because", BECAUSE, ends=1)
    assert "names no key" in person.complaint
    del person.functions.environments["consumer"]["INTAKE_PROCESSING_TIMEOUT_SECONDS"]
    person.types("dismiss", "--letter", found["MessageId"], "--because", BECAUSE, ends=1)
    assert "use the command of the release" in person.complaint
    assert dead_letters(person) == 1


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ((), 2, "dismiss needs what to dismiss"),
        ((KEY, "--letter", "1"), 2, "--letter takes one dead letter"),
        (("--letter", "1"), 1, "no visible dead letter has the ID 1"),
    ],
)
def test_what_to_dismiss(sit: Callable[..., Person], arguments: tuple[str, ...], code: int, said: str) -> None:  # noqa: F811
    person = sit(make_site())
    person.types("dismiss", *arguments, "--because", BECAUSE, ends=code)
    assert said in person.complaint


@pytest.mark.failure_mode("F682")
def test_a_dismissed_message_that_is_retried_comes_again_from_its_source(sit: Callable[..., Person]) -> None:  # noqa: F811
    """Its content is gone. Only the same content opens the row then."""
    person = sit(make_message_site())
    row = Row(Status.REJECTED, FENCE, version_id="v1", etag="e1", reason="no invoice", rejected_fence=FENCE)
    person.site.row(KEY, row)
    person.types("dismiss", KEY, "--because", BECAUSE)
    found = person.reads("retry", KEY, "--wait")
    assert (found["choices"][0]["choice"], found["reopened"], dead_letters(person)) == ("reopen", 1, 0)
    assert found["waited"] is None, "no request was sent that could be committed"
    after = stored(person)
    assert (after.dismissed, after.status, after.reason_code) == (False, Status.REJECTED, "copy_lost")
    assert "send the message again" in person.types("inspect", KEY)
    for etag, verdict in (("e1", Verdict.ACCEPTED), ("e2", Verdict.REJECTED)):
        state = State(StateKind.OBJECT, "v1", etag, 1, START)
        again = judge_state(after, created(state), state, now=START, policy=POLICY)
        assert again.verdict is verdict


V1 = State(StateKind.OBJECT, "v1", "e1", 1, START)
MARKER = State(StateKind.MARKER, "m", created_at=START)
V2 = State(StateKind.OBJECT, "v2", "e2", 1, START)


@pytest.mark.failure_mode("F176")
@pytest.mark.parametrize(
    ("change", "state", "verdict"),
    [
        pytest.param(created(V1), V1, Verdict.REJECTED, id="a duplicate"),
        pytest.param(created(V2), V2, Verdict.ACCEPTED, id="a new version"),
        pytest.param(marked(MARKER), MARKER, Verdict.ACCEPTED, id="a removal"),
        pytest.param(redriven(created(V1), FENCE), V1, Verdict.ACCEPTED, id="a redrive"),
        pytest.param(reprocess("01KA0000000000000000000001"), V1, Verdict.ACCEPTED, id="a reprocess"),
    ],
)
@pytest.mark.failure_mode("F176")
def test_the_consumer_judges_a_dismissed_row_as_a_rejected_one(change: Change, state: State, verdict: Verdict) -> None:
    """A dismissal changes no verdict."""
    row = Row(Status.REJECTED, FENCE, version_id="v1", etag="e1", rejected_fence=FENCE, needs_review="p#3")
    for one in (row, replace(row, needs_review="p#dismissed")):
        assert judge_state(one, change, state, now=START + DAY, policy=POLICY).verdict is verdict
