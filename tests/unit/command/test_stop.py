"""`operations stop`, and the ID that redriven messages carry."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from botocore.exceptions import ClientError

from intake_ledger.consumer.stops import has_begun
from intake_ledger.events.copies import REDRIVEN
from intake_ledger.events.parser import Message
from intake_ledger.ledger.dynamodb_table import LedgerTable
from intake_ledger.protocol.change import Change, Origin, State, StateKind
from intake_ledger.protocol.row import Row, Status
from intake_ledger.protocol.ulids import ulid
from intake_ledger.requests.record import batch_item, batch_key, queried_batches
from intake_ledger.requests.redriven import Redriven, packed, redriven
from intake_ledger.requests.stop import Stop, read_stop
from intake_ledger_cli.act import sender
from intake_ledger_cli.app import now_ms
from intake_ledger_cli.aws.dead_letters import from_sqs
from intake_ledger_cli.aws.sending import send
from tests.unit.command.support import Site, client, make_site
from tests.unit.command.test_commands import Person, sit  # noqa: F401 - a fixture
from tests.unit.support import HOUR, START

pytestmark = pytest.mark.usefixtures("dynamodb")
ID, LATER = ulid(START, 7), ulid(START + HOUR, 7)
LETTER: dict[str, str | int] = {
    "reason": "KeyError at invoices:42",
    "reason_code": "processor_error",
    "bucket": "b",
    "key": "in/a",
    "version_id": "v1",
    "attempts": 3,
    "first_claimed_at": START,
    "body_bytes": 7,
}
NO = Row(Status.REJECTED, START, rejected_fence=START, version_id="v1")


@pytest.fixture
def person(sit: Callable[..., Person], monkeypatch: pytest.MonkeyPatch) -> Person:  # noqa: F811
    monkeypatch.setattr(sender, "LOOK_SECONDS", 0)
    return sit(make_site())


def letters(site: Site, number: int = 1) -> None:
    """Rejections as the consumer sends them: with ten attributes, the most that SQS takes."""
    for _ in range(number):
        site.dead_letter("{}", **LETTER, pipeline=site.deployed.name, rejected_fence=START)
    site.row("in/a", NO)


def stop_of(site: Site, request_id: str) -> Stop | None:
    return read_stop(LedgerTable(client("dynamodb"), site.deployed.table), site.deployed.name, request_id)


def ids(person: Person) -> list[str]:
    found = person.reads("operations")["operations"]
    return [one["requestId"] for one in found if "requestId" in one]


@pytest.mark.failure_mode("F434")
def test_a_redriven_message_carries_its_operation_and_its_reasons(person: Person) -> None:
    letters(person.site)
    person.types("retry", "--prefix", "")
    [message] = person.site.messages()
    back = redriven(message.pop(REDRIVEN))
    assert message == {"body": "{}", "rejected_fence": str(START)}
    assert back is not None
    assert [back.request_id] == ids(person)
    assert dict(back.attributes) == LETTER | {"pipeline": person.site.deployed.name}


def test_what_sqs_moves_again_shows_its_reasons() -> None:
    typed = packed(ID, {"reason": {"DataType": "String", "StringValue": "ü"}})
    message: dict[str, Any] = {"MessageId": "1", "Body": "{}", "ReceiptHandle": "r", "MessageAttributes": typed}
    message["Attributes"] = {"SentTimestamp": "1"}
    assert from_sqs(message).reason == "ü"


@pytest.mark.failure_mode("F434")
def test_a_delayed_copy_carries_the_operation() -> None:
    text = Redriven(ID, {"reason": "no invoice"}).text
    record = {"messageId": "1", "body": "{}", "messageAttributes": {REDRIVEN: {"stringValue": text}}}
    assert Message(record).copy(START)["MessageAttributes"][REDRIVEN]["StringValue"] == text


@pytest.mark.parametrize(
    "text", ["{", "7", '["x", {}]', f'["{ID}", []]', f'["{ID}", {{"a": []}}]', f'["{ID}", {{"a": true}}]', "[" * 9_999]
)
def test_senders_choose_attributes(text: str) -> None:
    assert redriven(text) is None


def test_sqs_takes_the_attribute_with_each_reason() -> None:
    """The audit makes it from the row, whose reason is that of an exception."""
    text = Redriven(ID, {"reason": "\uffff\x01\ud800"}).text
    assert text.isascii()
    assert text.isprintable()
    assert redriven(text) == (ID, {"reason": "\uffff\x01\ud800"})


@pytest.mark.parametrize("kind", ["Binary", "Number.float", "String.own"])
def test_a_message_of_the_team_keeps_its_attributes_and_cannot_be_stopped(kind: str) -> None:
    assert packed(ID, {"a": {"DataType": kind, "StringValue": "1"}}) is None


@pytest.mark.failure_mode("F436")
def test_a_body_that_leaves_no_room_is_redriven_without_the_id(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    letters(person.site)

    def too_long(*arguments: Any) -> Any:
        return ["too long"] if REDRIVEN in arguments[2][0].attributes else send(*arguments)

    monkeypatch.setattr(sender, "send", too_long)
    assert person.reads("retry", "--prefix", "")["redriven"]["moved"] == 1
    [message] = person.site.messages()
    assert (REDRIVEN in message, message["reason"]) == (False, LETTER["reason"])
    assert person.reads("operations", "stop", "--because", "wrong")["unreachable"] == 1


@pytest.mark.failure_mode("F434")
def test_the_only_redrive_needs_no_id(person: Person) -> None:
    letters(person.site, 2)
    person.types("retry", "--prefix", "")
    [request_id] = ids(person)
    done = person.reads("operations", "stop", "--because", "the fix is not deployed")
    assert (done["stopped"], done["outstanding"], done["unreachable"]) == (request_id, 2, 0)
    found = stop_of(person.site, request_id)
    assert found is not None
    assert found.because == "the fix is not deployed"
    assert request_id in " ".join(person.types("operations").split())
    [*_, listed] = person.reads("operations")["operations"]
    assert (listed["requestId"], listed["stoppedAt"]) == (request_id, found.at)
    assert (listed["outstanding"], listed["withdrawn"], listed["countedAt"]) == (2, 0, None)
    person.types("operations", "stop", "--because", "again", ends=1)
    assert "no operation of the last 14 days can be stopped" in person.complaint


def test_one_of_several_is_named(person: Person) -> None:
    for _ in range(2):
        letters(person.site)
        person.types("retry", "--prefix", "")
    first, second = ids(person)
    person.types("operations", "stop", "--because", "wrong", ends=1)
    assert f"{first}" in person.complaint
    assert f"{second}" in person.complaint
    person.types("operations", "stop", ID, "--because", "wrong", ends=1)
    assert f"{ID} is no operation" in person.complaint
    person.types("operations", "stop", first, "--because", "wrong")
    assert stop_of(person.site, second) is None


@pytest.mark.failure_mode("F434")
def test_what_was_committed_is_listed(person: Person) -> None:
    site = person.site
    site.put("in/a", "in/b", "in/c")
    person.types("retry", "--again", "--prefix", "in/")
    [request_id] = ids(person)
    [batch] = queried_batches(client("dynamodb"), site.deployed.table, site.deployed.name)
    done = Row(Status.PROCESSED, START, committed_fence=START)
    for key, row in (("in/a", done), ("in/b", replace(done, served_reprocess_id=request_id))):
        site.row(key, row)
    site.row("in/c", replace(NO, status=Status.FAILED, reprocess_id=request_id))
    found = person.reads("operations", "stop", "--because", "the wrong prefix")
    assert (found["outstanding"], found["committed"], found["begun"]) == (1, ["in/b"], ["in/c"])
    assert (found["begunBefore"], found["begunAfter"]) == (2, 0)
    # The audit has found one served before the stop.
    batch.entries.pop()
    table, place = LedgerTable(client("dynamodb"), site.deployed.table), batch_key(site.deployed.name, batch)
    table.write(place, batch_item(batch, made_at=START))
    site.row("in/a", replace(done, served_reprocess_id=request_id, first_claimed_at=now_ms() + HOUR))
    again = person.reads("operations", "stop", request_id, "--because", "again")
    assert (again["begunBefore"], again["begunAfter"], again["outstanding"]) == (2, 1, 0)
    # It counts for the last time.
    batch = replace(batch, entries=[], counts={"begunBefore": 1, "withdrawn": 1}, counted_at=now_ms())
    table.write(place, batch_item(batch, made_at=START))
    again = person.reads("operations", "stop", request_id, "--because", "again")
    assert (again["begunBefore"], again["withdrawn"], again["committed"]) == (2, 1, [])
    listed = person.reads("operations")["operations"][-1]
    assert (listed["begunBefore"], listed["withdrawn"], listed["countedAt"]) == (2, 1, batch.counted_at)
    shown = " ".join(person.types("operations").split())
    assert "2 begun before, 1 withdrawn (last counted at" in shown
    assert shown.count("begun before") == 1, "the lines of the stops keep no numbers"
    person.types("retry", "--again", "--id", request_id, "in/a", ends=1)
    assert "was stopped by" in person.complaint
    assert "because the wrong prefix" in person.complaint


@pytest.mark.failure_mode("F434")
@pytest.mark.parametrize("command", ["redrive", "reprocess"])
def test_a_running_command_ends_when_it_is_stopped(
    person: Person, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    site, batches = person.site, list[int]()
    letters(site, 25)
    site.put(*(f"in/{number:02d}" for number in range(25)))

    def stopped(*arguments: Any) -> Any:
        batches.append(1)
        if len(batches) == 1:
            [request_id] = ids(person)
            stop = Stop(request_id, START, "a colleague", "wrong")
            LedgerTable(client("dynamodb"), site.deployed.table).write(stop.key(site.deployed.name), stop.item)
        return send(*arguments)

    monkeypatch.setattr(sender, "send", stopped)
    person.types(
        *(("retry", "--prefix", "") if command == "redrive" else ("retry", "--again", "--prefix", "in/")), ends=1
    )
    assert "was stopped by a colleague" in person.complaint
    assert len(site.messages()) == 10


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("operations", "stop"), "--because"),
        (("operations", "stop", ID, "another", "--because", "x"), "operations takes nothing, or `stop ID`"),
        (("operations", "end"), "operations takes nothing, or `stop ID`"),
    ],
)
def test_wrong_options_say_the_fix(person: Person, arguments: tuple[str, ...], problem: str) -> None:
    person.types(*arguments, ends=2)
    assert problem in person.complaint


@pytest.mark.failure_mode("F434")
def test_a_retry_is_stopped_by_its_id(person: Person) -> None:
    """It sends redriven messages and requests under one ID."""
    letters(person.site)
    found = person.reads("retry", "in/a", "--because", "the fix is deployed")
    done = person.reads("operations", "stop", found["requestId"], "--because", "it is not deployed")
    assert (done["stopped"], done["command"]) == (found["requestId"], "retry")
    assert done["outstanding"] + done["withdrawn"] == 1


CHANGE = Change("b", "in/a", Origin.S3, "e", "{}", State(StateKind.OBJECT, "v1", "e1"))
COPY, ASKED = replace(CHANGE, rejected_fence=START), replace(CHANGE, reprocess_id=ID)
BEGUN = [
    pytest.param(COPY, NO, False, id="the rejection"),
    pytest.param(COPY, replace(NO, rejected_fence=START + 1), True, id="another rejection"),
    pytest.param(COPY, replace(NO, status=Status.PROCESSING), True, id="claimed"),
    pytest.param(COPY, None, True, id="the object was removed"),
    pytest.param(CHANGE, None, False, id="moved by SQS, never claimed"),
    pytest.param(CHANGE, Row(Status.FAILED, START - 1), False, id="moved by SQS, failed before"),
    pytest.param(CHANGE, Row(Status.FAILED, START), True, id="moved by SQS, failed since"),
    pytest.param(ASKED, None, False, id="asked, never processed"),
    pytest.param(ASKED, Row(Status.FAILED, START, reprocess_id=ID), True, id="asked, failed"),
    pytest.param(ASKED, Row(Status.PROCESSING, START, reprocess_id=LATER), True, id="asked again since"),
    pytest.param(ASKED, Row(Status.PROCESSING, START), False, id="other work of the key"),
    pytest.param(ASKED, Row(Status.PROCESSED, START, reprocess_id=ID), False, id="committed: acknowledged"),
    pytest.param(ASKED, Row(Status.LATER_FORMAT, 0), True, id="a later release"),
    pytest.param(COPY, Row(Status.LATER_FORMAT, 0), True, id="a copy, a later release"),
]


@pytest.mark.failure_mode("F435")
@pytest.mark.parametrize(("change", "row", "expected"), BEGUN)
def test_a_stop_leaves_what_has_begun(change: Change, row: Row | None, expected: bool) -> None:
    assert has_begun(change, row, ID, redriven=change is not ASKED) is expected


@pytest.mark.failure_mode("F437")
def test_status_names_a_redrive_of_sqs_that_is_running(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    """`operations stop` does not reach its messages: they carry no ID."""
    person.site.dead_letter("{}")
    assert person.reads("status")["moveTask"] is None
    sqs, arns = client("sqs"), list[str]()

    def running(**request: str) -> Any:
        arns.append(request["SourceArn"])
        ended = {"Status": "COMPLETED", "StartedTimestamp": 1}
        task = {"Status": "RUNNING", "StartedTimestamp": now_ms() - HOUR, "ApproximateNumberOfMessagesMoved": 1_200}
        return {"Results": [task | {"ApproximateNumberOfMessagesToMove": 5_000}, ended]}

    monkeypatch.setattr(sqs, "list_message_move_tasks", running)
    found = person.reads("status")["moveTask"]
    assert (found["moved"], found["expected"]) == (1_200, 5_000)
    shown = " ".join(person.types("status").split())
    assert "Redrive of SQS 1,200 moved, of 5,000 messages, started" in shown
    queue = sqs.get_queue_attributes(QueueUrl=person.site.deployed.dead_letter_url, AttributeNames=["QueueArn"])
    assert set(arns) == {queue["Attributes"]["QueueArn"]}


def test_a_queue_that_is_no_dead_letter_queue_is_no_error(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(**_: str) -> Any:
        problem: Any = {"Code": "ResourceNotFoundException", "Message": "not a dead-letter queue"}
        raise ClientError({"Error": problem}, "ListMessageMoveTasks")

    monkeypatch.setattr(client("sqs"), "list_message_move_tasks", refused)
    assert "not a dead-letter queue" in person.reads("status")["moveTask"]["unknown"]
    assert "Redrive of SQS" not in person.types("status")
