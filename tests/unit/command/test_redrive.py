"""Redrives from the dead-letter queue to the queue, with moto's SQS."""

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError
from rich.console import Console

from intake_ledger.aws.queues import body_digest
from intake_ledger.events.copies import REDRIVEN
from intake_ledger.events.parser import parse_message
from intake_ledger.protocol.change import State, StateKind
from intake_ledger.protocol.row import Row, Status
from intake_ledger.requests.record import Entry, queried_batches
from intake_ledger.requests.redriven import redriven
from intake_ledger_cli.act.retrying import Redrive, RedriveResult, update_row
from intake_ledger_cli.act.sender import Request
from intake_ledger_cli.aws import drain, reading
from intake_ledger_cli.aws.dead_letters import NO_REASON, NO_ROOM, MessageFilter
from intake_ledger_cli.errors import CliError
from intake_ledger_cli.show import json_output, render
from tests.unit.command.support import SENDER_ID, Site, client, denied, make_message_site, make_sender, make_site
from tests.unit.support import KEY, START, notification, record

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


@pytest.fixture
def site(dynamodb: "DynamoDBClient", monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.setattr(drain, "WAIT_SECONDS", 0)
    return make_site()


EVERYTHING = MessageFilter()


class Through:
    """A client of SQS with some methods replaced."""

    def __init__(self, **replaced: Callable[..., Any]) -> None:
        self._real = client("sqs")
        self._replaced = replaced

    def __getattr__(self, name: str) -> Any:
        return self._replaced.get(name) or getattr(self._real, name)


def redrive(site: Site, sqs: Any = None, *, dry_run: bool = False, wanted: MessageFilter = EVERYTHING) -> RedriveResult:
    return Redrive(make_sender(site.deployed, sqs), wanted, dry_run=dry_run).run()


def event(key: str) -> str:
    return notification(record(key, State(StateKind.OBJECT, "v1", "e1", 1), bucket="b"))


def rejected(site: Site, key: str, reason: str = "no invoice in it", fence: int = 7) -> None:
    """Send a dead-letter message as the consumer does: the key is percent-encoded."""
    site.dead_letter(event(key), reason=reason, key=key.replace(" ", "%20"), attempts=3, rejected_fence=fence)


@pytest.mark.failure_mode("F63")
def test_a_message_comes_back_with_its_mark(site: Site) -> None:
    """The body and the attributes do not change, so that the ledger accepts the state again."""
    rejected(site, KEY)
    assert redrive(site).moved == 1
    [message] = site.messages()
    back = redriven(message.pop(REDRIVEN))
    assert back == (SENDER_ID, {"reason": "no invoice in it", "key": KEY.replace(" ", "%20"), "attempts": 3})
    assert message == {"body": event(KEY), "rejected_fence": "7"}
    [change] = parse_message(message["body"], rejected_fence=int(message["rejected_fence"]))
    assert getattr(change, "asked_for", False)
    assert site.visible(site.deployed.dead_letter_url) == 0


def letter(site: Site, reason_code: str = "identity_rejected") -> str:
    """Send the dead letter of another content of `o 1`, identity `v1`. Returns its ID."""
    site.dead_letter('{"pieces": 3}', reason="it was rejected", reason_code=reason_code, key="o%201", version_id="v1")
    return redrive(site, dry_run=True, wanted=MessageFilter()).closed[0].id


@pytest.mark.failure_mode("F614")
def test_another_content_of_a_rejected_identity_moves_only_if_it_is_chosen(site: Site) -> None:
    """Then it is the copy of the rejection, which it opens. Until then the command shows its ID."""
    site = make_message_site()  # the fixture lets nothing wait
    site.reject("o 1", "no pieces", at=START)
    chosen = letter(site)
    found = redrive(site)
    assert (found.moved, [one.id for one in found.closed], site.messages()) == (0, [chosen], [])
    console = Console(width=200)
    with console.capture() as shown:
        console.print(*render.view("redriven", json_output.document(found), START))
    assert f"{chosen}  o 1" in shown.get()
    assert redrive(site, wanted=MessageFilter("o 1", "identity_rejected")).moved == 0
    assert redrive_letter(site, chosen).moved == 1
    [message] = site.messages()
    assert (message["body"], message["rejected_fence"]) == ('{"pieces": 3}', str(START))


@pytest.mark.failure_mode("F614")
@pytest.mark.parametrize(
    ("status", "why"),
    [(Status.PROCESSED, "was processed meanwhile: send the content"), (Status.FAILED, "is not finished: wait")],
)
def test_a_dead_letter_opens_no_row_that_is_not_rejected(dynamodb: "DynamoDBClient", status: Status, why: str) -> None:
    site = make_message_site()
    site.row("o 1", Row(status, START, version_id="v1", updated_at=START))
    chosen = letter(site)
    with pytest.raises(CliError, match=why):
        redrive_letter(site, chosen)
    assert site.messages() == []


BODY = '{"order": "o 1", "id": "v1", "pieces": 3}'


def copy_digest(site: Site) -> str | None:
    [entry] = reading.read_rows(client("dynamodb"), site.deployed, "o 1")
    return entry.row.bare_copy_digest


@pytest.mark.failure_mode("F755")
def test_a_dead_letter_without_attributes_opens_its_row(dynamodb: "DynamoDBClient") -> None:
    """Its body names key and identity. The row is told its digest, unless an attempt has changed it. Looking writes
    nothing.
    """
    site = make_message_site()
    site.row("o 1", Row(Status.REJECTED, START, version_id="v1", updated_at=START))
    site.dead_letter(BODY)
    [chosen] = redrive(site, dry_run=True, wanted=MessageFilter("o 1")).dead_letters
    assert redrive(site, dry_run=True, wanted=MessageFilter(letter=chosen.id)).matched == 1
    assert copy_digest(site) is None
    aws, [before] = make_sender(site.deployed).aws, reading.read_rows(client("dynamodb"), site.deployed, "o 1")
    site.row("o 1", replace(before.row, fence=START + 1))
    assert not update_row(aws, site.deployed, before, bare_copy_digest="other")
    assert redrive_letter(site, chosen.id).moved == 1
    [message] = site.messages()
    assert (message["body"], copy_digest(site)) == (BODY, body_digest(BODY))


@pytest.mark.failure_mode("F755")
@pytest.mark.parametrize("former", [None, "the digest of its copy"])
@pytest.mark.parametrize("error", [None, denied("sqs:SendMessage", "SendMessageBatch"), KeyboardInterrupt()])
def test_a_dead_letter_that_is_not_sent_leaves_the_row_its_own_copy(
    dynamodb: "DynamoDBClient", former: str | None, error: BaseException | None
) -> None:
    """Otherwise the copy of the rejection would not open it any more."""
    site, seen = make_message_site(), list[str | None]()
    site.row("o 1", Row(Status.REJECTED, START, version_id="v1", updated_at=START, bare_copy_digest=former))
    site.dead_letter(BODY)
    [chosen] = redrive(site, dry_run=True).dead_letters

    def send(**request: Any) -> Any:
        seen.append(copy_digest(site))
        if error is not None:
            raise error
        return {"Failed": [{"Id": one["Id"], "Code": "Busy"} for one in request["Entries"]]}

    with suppress(ClientError, KeyboardInterrupt):
        assert redrive_letter(site, chosen.id, Through(send_message_batch=send)).failed
    assert set(seen) == {body_digest(BODY)}
    assert copy_digest(site) == former


@pytest.mark.failure_mode("F755")
@pytest.mark.parametrize("status", [Status.FAILED, Status.PROCESSED])
def test_what_sqs_gave_up_goes_to_its_row_unless_it_has_ended(dynamodb: "DynamoDBClient", status: Status) -> None:
    """A row that waits needs its message. A committed one may have had other content."""
    site = make_message_site()
    site.row("o 1", Row(status, START, version_id="v1", updated_at=START))
    site.dead_letter(BODY)
    [chosen] = redrive(site, dry_run=True).dead_letters
    if status is Status.FAILED:
        assert redrive_letter(site, chosen.id).moved == 1
        return
    with pytest.raises(CliError, match="was processed meanwhile"):
        redrive_letter(site, chosen.id)


@pytest.mark.failure_mode("F755")
@pytest.mark.parametrize("attributes", [{"reason_code": "identity_rejected"}, {"rejected_fence": 7}])
def test_an_opening_without_room_takes_its_fence_alone(
    dynamodb: "DynamoDBClient", attributes: dict[str, str | int]
) -> None:
    site = make_message_site()
    site.row("o 1", Row(Status.REJECTED, START, version_id="v1", updated_at=START))
    site.dead_letter(BODY, **attributes)

    def send(**request: Any) -> Any:
        [entry] = request["Entries"]
        if [*entry["MessageAttributes"]] != ["rejected_fence"]:
            return {"Failed": [{"Id": entry["Id"], "Code": "InvalidParameterValue", "Message": "too long"}]}
        return client("sqs").send_message_batch(**request)

    look = redrive(site, dry_run=True)
    [chosen] = [*look.closed, *look.dead_letters]
    done = redrive_letter(site, chosen.id, Through(send_message_batch=send))
    assert (done.moved, done.failed, done.unmarked) == (1, [], 1)
    assert site.messages() == [{"body": BODY, "rejected_fence": str(START)}]


def test_a_dead_letter_without_a_row_or_a_name_moves_as_it_is(site: Site) -> None:
    """A message is new then. Of an object, S3 has the content."""
    for other in (make_message_site(), site):
        assert redrive_letter(other, letter(other)).moved == 1
        [message] = other.messages()
        assert "rejected_fence" not in message


def redrive_letter(site: Site, chosen: str, sqs: Any = None) -> RedriveResult:
    return redrive(site, sqs, wanted=MessageFilter(letter=chosen))


def test_what_sqs_gave_up_is_moved_too(site: Site) -> None:
    """Such a message has no attributes. A body that is not JSON has no key."""
    site.dead_letter(event("in/a"))
    site.dead_letter("garbage")
    done = redrive(site)
    assert (done.moved, done.reasons) == (2, {NO_REASON: 2})
    assert sorted(message["body"] for message in site.messages()) == sorted([event("in/a"), "garbage"])


@pytest.mark.failure_mode("F260")
def test_a_copy_without_room_for_its_reason_was_not_given_up_by_sqs(site: Site) -> None:
    """It has its fence alone, and the row has the reason."""
    site.dead_letter(event("in/a"), rejected_fence=7)
    assert redrive(site, wanted=MessageFilter(reason="max_receives")).moved == 0
    done = redrive(site)
    assert (done.moved, done.reasons) == (1, {NO_ROOM: 1})
    [message] = site.messages()
    assert message["rejected_fence"] == "7"


def test_what_another_pipeline_set_aside_is_left_to_it(site: Site) -> None:
    """Two pipelines may share an imported dead-letter queue, which synthesis cannot see. In the wrong queue, the other
    processor would get the object.
    """
    for name, pipeline in (("in/ours", site.deployed.name), ("in/theirs", "Other-Pipeline")):
        site.dead_letter(event(name), reason="no invoice in it", pipeline=pipeline)
    done = redrive(site)
    assert (done.moved, done.of_others, done.left) == (1, {"Other-Pipeline": 1}, 0)
    assert [change.key for change in site.changes()] == ["in/ours"]
    assert site.visible(site.deployed.dead_letter_url) == 1


@pytest.mark.parametrize(
    ("wanted", "moved"),
    [
        (MessageFilter(reason="INVOICE"), {"in/a 1", "in/b"}),
        (MessageFilter(reason="KeyError"), {"in/c"}),
        (MessageFilter(reason=NO_REASON), {"in/d"}),
        (MessageFilter(keys=frozenset({"in/a 1"})), {"in/a 1"}),
        (MessageFilter(keys=frozenset({"in/d"})), {"in/d"}),
        (MessageFilter("in/"), {"in/a 1", "in/b", "in/c", "in/d"}),
        (MessageFilter(keys=frozenset({"in/a"})), set[str]()),
        (MessageFilter("in/", "keyerror"), {"in/c"}),
    ],
)
def test_a_filter_moves_what_fits_and_gives_the_rest_back(site: Site, wanted: MessageFilter, moved: set[str]) -> None:
    """The filter uses the text of the reason, and the key of the attribute or of the body. Other messages become
    visible again.
    """
    rejected(site, "in/a 1")
    rejected(site, "in/b")
    rejected(site, "in/c", "KeyError: 'total'")
    site.dead_letter(event("in/d"))
    site.dead_letter("garbage", reason="not JSON")
    done = redrive(site, wanted=wanted)
    assert {change.key for change in site.changes()} == moved
    assert (done.moved, done.left) == (len(moved), 5 - len(moved))
    assert site.visible(site.deployed.dead_letter_url) == 5 - len(moved)


@pytest.mark.parametrize(
    ("wanted", "moved"),
    [
        ("processor_timeout", {"in/new"}),
        ("processor_error", set[str]()),
        ("ran longer", {"in/new"}),
        ("max_receives", {"in/given-up"}),
    ],
)
def test_a_code_selects_exactly_and_a_text_in_part(site: Site, wanted: str, moved: set[str]) -> None:
    text = "the processor_error ran longer than its limit of 60 s"
    site.dead_letter(event("in/new"), reason=text, reason_code="processor_timeout")
    site.dead_letter(event("in/given-up"))
    done = redrive(site, wanted=MessageFilter(reason=wanted))
    assert {change.key for change in site.changes()} == moved
    assert (done.moved, done.left) == (len(moved), 2 - len(moved))


def test_what_does_not_fit_is_received_once(site: Site) -> None:
    """A message that becomes visible early would be received again and again."""
    for number in range(25):
        rejected(site, f"in/{number}")
    received: list[str] = []

    def receive(**request: Any) -> Any:
        answer = client("sqs").receive_message(**request)
        received.extend(one["MessageId"] for one in answer.get("Messages", ()))
        assert len(received) < 100, "it goes round"
        return answer

    done = redrive(site, Through(receive_message=receive), wanted=MessageFilter(keys=frozenset({"in/3"})))
    assert (done.moved, done.left, len(received)) == (1, 24, 25)


def test_a_dry_run_moves_nothing_and_hides_nothing(site: Site) -> None:
    """The result lists the messages that would be moved."""
    rejected(site, "in/a")
    rejected(site, "in/b", "KeyError")
    done = redrive(site, dry_run=True, wanted=MessageFilter(reason="invoice"))
    assert [message.keys for message in done.dead_letters] == [("in/a",)]
    assert (done.matched, done.moved, done.left) == (1, 0, 1)
    assert site.messages() == []
    assert site.visible(site.deployed.dead_letter_url) == 2


@pytest.mark.parametrize("kept", [0, 1])
def test_a_death_between_send_and_delete_leaves_two_copies_never_none(site: Site, kept: int) -> None:
    """F85: the message is sent before it is deleted."""
    rejected(site, "in/a")

    def dies(**_: Any) -> Any:
        raise KeyboardInterrupt

    call = ("send_message_batch", "delete_message_batch")[kept]
    with pytest.raises(KeyboardInterrupt):
        redrive(site, Through(**{call: dies}))
    assert len(site.messages()) == kept
    assert site.visible(site.deployed.dead_letter_url) == 1


def test_a_message_that_cannot_be_sent_stays(site: Site) -> None:
    """The other messages of the batch are moved, and the error is reported."""
    for key in ("in/a", "in/b", "in/c"):
        rejected(site, key)

    def send(**request: Any) -> Any:
        bad = [one for one in request["Entries"] if "in%2Fb" in one["MessageBody"]]
        request["Entries"] = [one for one in request["Entries"] if one not in bad]
        answer = client("sqs").send_message_batch(**request) if request["Entries"] else {}
        return {**answer, "Failed": [{"Id": one["Id"], "Code": "X", "Message": "not today"} for one in bad]}

    done = redrive(site, Through(send_message_batch=send))
    assert [(one.keys, one.why) for one in done.failed] == [(("in/b",), "not today")]
    assert {change.key for change in site.changes()} == {"in/a", "in/c"}
    assert site.visible(site.deployed.dead_letter_url) == 1


def test_a_message_that_sqs_refuses_for_a_while_keeps_its_attributes(site: Site) -> None:
    """Only the ID of the operation may go: its body may leave no room for it."""
    site.dead_letter(event("in/a"), reason="no invoice in it")
    tries = iter(range(9))

    def send(**request: Any) -> Any:
        if next(tries) < 2:
            return {"Failed": [{"Id": one["Id"], "Code": "Busy"} for one in request["Entries"]]}
        return client("sqs").send_message_batch(**request)

    done = redrive(site, Through(send_message_batch=send))
    assert (done.moved, done.unmarked) == (1, 1)
    assert site.messages() == [{"body": event("in/a"), "reason": "no invoice in it"}]


@pytest.mark.failure_mode("F721")
def test_no_more_is_recorded_than_is_sent_next(site: Site) -> None:
    """A command that is killed leaves its records, and the audit sends what they have. At a low rate, it would do so
    before the command. Ctrl-C while a record is written leaves none.
    """
    queried = partial(queried_batches, client("dynamodb"), site.deployed.table, site.deployed.name)
    unsent, sent = list[int](), 0

    def counted(**request: Any) -> Any:
        nonlocal sent
        unsent.append(sum(len(one.entries) for one in queried()) - sent)
        sent += len(request["Entries"])
        return client("sqs").send_message_batch(**request)

    sender = make_sender(site.deployed, Through(send_message_batch=counted), records=True)
    answered = list[int]()
    asked = [Request("{}", Entry(f"in/{number}", fence=7)) for number in range(250)]
    assert sender.send(asked, lambda place, _: answered.append(place)) == [None] * 250
    assert answered == [*range(250)]
    assert (sender.recorded, sent, max(unsent) <= 100) == (250, 250, True), unsent

    def interrupted(**request: Any) -> Any:
        client("dynamodb").put_item(**request)
        raise KeyboardInterrupt

    sender = make_sender(site.deployed, records=True)
    put = SimpleNamespace(put_item=interrupted)
    sender.aws = SimpleNamespace(dynamodb=put, sqs=client("sqs"))  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):
        sender.send([Request("{}", Entry("in/last", fence=7))])
    assert all(entry.key != "in/last" for batch in queried() for entry in batch.entries)


def test_what_is_too_much_together_goes_one_by_one(site: Site) -> None:
    """Ten long messages exceed SQS's limit of a batch."""
    for key in ("in/a", "in/b", "in/c"):
        rejected(site, key)

    def send(**request: Any) -> Any:
        if len(request["Entries"]) > 1:
            error: Any = {"Error": {"Code": "AWS.SimpleQueueService.BatchRequestTooLong", "Message": "too long"}}
            raise ClientError(error, "SendMessageBatch")
        return client("sqs").send_message_batch(**request)

    assert redrive(site, Through(send_message_batch=send)).moved == 3
    assert len(site.messages()) == 3


def test_a_refusal_ends_it_and_everything_is_given_back(site: Site) -> None:
    """A person without permission to send loses nothing."""
    rejected(site, "in/a")

    def refuses(**_: Any) -> Any:
        raise denied("sqs:SendMessage", "SendMessageBatch")

    with pytest.raises(ClientError):
        redrive(site, Through(send_message_batch=refuses))
    assert site.visible(site.deployed.dead_letter_url) == 1


def test_what_fails_again_does_not_go_round(site: Site) -> None:
    """A consumer that rejects immediately sends new messages during the command. They wait for the next call."""
    rounds = iter(range(50))

    def send(**request: Any) -> Any:
        next(rounds)
        answer = client("sqs").send_message_batch(**request)
        for entry in request["Entries"]:
            site.dead_letter(entry["MessageBody"], reason="no invoice in it", rejected_fence=8)
        return answer

    for number in range(15):
        rejected(site, f"in/{number}")
    chosen = frozenset(one.id for one in redrive(site, dry_run=True).dead_letters)
    done = redrive(site, Through(send_message_batch=send), wanted=MessageFilter(ids=chosen))
    assert (done.moved, done.left) == (15, 15)
    assert site.visible(site.deployed.dead_letter_url) == 15


def test_what_others_look_at_is_told(site: Site) -> None:
    """Otherwise the queue would look empty for 15 minutes after a killed redrive."""
    rejected(site, "in/a")
    client("sqs").receive_message(QueueUrl=site.deployed.dead_letter_url, VisibilityTimeout=60)
    done = redrive(site)
    assert (done.moved, done.hidden_by_others) == (0, 1)


def test_a_queue_that_hides_no_more_ends_it(site: Site) -> None:
    """SQS limits the messages in flight. The received messages become visible again, and the result says so."""
    rejected(site, "in/a")
    calls: Iterator[int] = iter(range(9))

    def receive(**request: Any) -> Any:
        if next(calls) == 0:
            return client("sqs").receive_message(**request)
        error: Any = {"Error": {"Code": "OverLimit", "Message": "too many"}}
        raise ClientError(error, "ReceiveMessage")

    done = redrive(site, Through(receive_message=receive), wanted=MessageFilter("other"))
    assert (done.overfull, done.left) == (True, 1)
    assert site.visible(site.deployed.dead_letter_url) == 1


def test_one_body_with_several_records_fits_by_any_of_them(site: Site) -> None:
    """The whole message is moved."""
    state = State(StateKind.OBJECT, "v1", "e1", 1)
    site.dead_letter(notification(record("in/a", state), record("in/b", state)))
    site.dead_letter(json.dumps({"Records": []}))
    assert redrive(site, wanted=MessageFilter(keys=frozenset({"in/b"}))).moved == 1


@pytest.mark.failure_mode("F240")
def test_a_copy_whose_object_was_removed_stays_with_its_reason(site: Site) -> None:
    """The consumer has sent it back, because it cannot run. A person may still choose it, after a restore."""
    why = "removed before it was processed, so it cannot run: no invoice in it"
    site.dead_letter(event(KEY), reason=why, reason_code="removed_unprocessed", rejected_fence=7)
    rejected(site, "in/other")
    found = redrive(site)
    assert (found.moved, found.removed) == (1, 1)
    terminal = Console(width=300)
    with terminal.capture() as capture:
        terminal.print(*render.view("redriven", json_output.document(found), START))
    assert "1  their objects were removed before they were processed, see: list --status removed" in capture.get()
    chosen = redrive(site, wanted=MessageFilter(reason="removed_unprocessed"))
    assert (chosen.moved, chosen.removed) == (1, 0)
