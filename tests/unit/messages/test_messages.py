"""A message of SQS is processed once, and the messages of one key exclude each other."""

import json
from typing import Any, cast

import pytest
from botocore.exceptions import ClientError
from hypothesis import given, settings
from hypothesis import strategies as st

from cdk_intake_ledger.testing import MemoryDynamoDB
from intake_ledger import NotYet, Unprocessable
from intake_ledger.contract import METRICS_NAMESPACE
from intake_ledger.keyed.key_lock import KeyLock
from intake_ledger.kinds.messages import Messages
from intake_ledger.ledger.conditions import Condition
from intake_ledger.ledger.dynamodb_table import LedgerTable
from intake_ledger.ledger.ledger import Claim, Ledger
from intake_ledger.messages.keyed_message import KeyedMessage
from intake_ledger.messages.reader import MessageReader
from intake_ledger.messages.settings import MessageSettings, MessageSourceType, message_settings
from intake_ledger.observability.powertools import PowertoolsTelemetry
from intake_ledger.protocol.change import Change
from intake_ledger.protocol.errors import ObjectGone, SettingsError
from intake_ledger.protocol.reasons import OutcomeKind
from intake_ledger.protocol.row import RowKey
from intake_ledger.protocol.verdict import Ruling, content_differs
from tests.known import known
from tests.settings import examples
from tests.unit.messages.support import LEASE_MS, SETTINGS, SOURCE_NAME, Intake, Killed, kinesis, sqs
from tests.unit.support import DAY, HOUR, START, Wire

ENVIRONMENT = {
    "INTAKE_PIPELINE_NAME": "orders",
    "INTAKE_TABLE_NAME": "ledger",
    "INTAKE_BUCKET_NAME": SOURCE_NAME,
    "INTAKE_ORDERING": "EVERY_VERSION",
    "INTAKE_DELETES": "false",
    "INTAKE_RETENTION_SECONDS": "3024000",
    "INTAKE_CLOCK_SKEW_SECONDS": "120",
    "INTAKE_QUEUE_URL": "https://queue",
    "INTAKE_DLQ_URL": "https://dlq",
    "INTAKE_PROCESSOR": "orders:process",
    "INTAKE_PROCESSING_TIMEOUT_SECONDS": "60",
    "INTAKE_MAX_ATTEMPTS": "5",
    "INTAKE_MIN_BACKOFF_SECONDS": "10",
    "INTAKE_MAX_BACKOFF_SECONDS": "900",
    "INTAKE_MAX_EVENT_AGE_SECONDS": "21600",
    "INTAKE_MESSAGE_SOURCE": "sqs",
    "INTAKE_MESSAGE_KEY": "order",
    "INTAKE_MESSAGE_IDENTITY": "event",
}


def raise_(error: BaseException) -> Any:
    raise error


def test_a_message_reaches_the_processor_with_key_identity_and_fence() -> None:
    """The whole argument, and the commit in the row."""
    intake = Intake()
    assert intake.handle([sqs("o-1", "e-1", total=7)]) == []
    [message] = intake.calls
    assert (message.key, message.identity, message.source, message.attempt) == ("o-1", "e-1", "sqs", 1)
    assert message.body == {"order": "o-1", "event": "e-1", "total": 7}
    assert json.loads(message.raw) == message.body
    assert message.fence == intake.lock("o-1")["fence"] >= START
    assert message.sent_at == START
    assert 0 < message.remaining_seconds <= SETTINGS.processing_timeout_seconds
    row = known(intake.row("o-1", "e-1"))
    assert (row.status, row.commit_id) == ("PROCESSED", "e-1")
    assert not intake.is_locked("o-1")


@pytest.mark.failure_mode("F380")
def test_copies_with_other_content_are_acknowledged_and_counted(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five orders with one constant identity: one commit, and four copies that differ."""
    monkeypatch.setenv("POWERTOOLS_METRICS_NAMESPACE", METRICS_NAMESPACE)
    intake, telemetry = Intake(identity="'order'"), PowertoolsTelemetry()
    for number in range(5):
        change = intake.change(sqs("o-1", number))
        answer = intake.ledger.claim(change, lease_ms=1000)
        telemetry.decided(change, answer, now=intake.clock())
        if isinstance(answer, Claim):
            intake.ledger.commit(answer)
            telemetry.ended(answer, OutcomeKind.COMMITTED, duration_ms=1)
    row = intake.row("o-1", "order")
    telemetry.flush()
    counted = capsys.readouterr().out
    assert '"IdentityCollisions":[4.0]' in counted.replace(" ", "")
    assert row is not None
    assert row.status == "PROCESSED"


def test_an_exact_copy_does_not_count() -> None:
    """SQS delivers a message twice, and a copy of the dead-letter queue has the same body."""
    intake = Intake()
    intake.handle([sqs("o-1", "e-1")])
    change = intake.change(sqs("o-1", "e-1"))
    ruling = intake.ledger.claim(change, lease_ms=1000)
    assert isinstance(ruling, Ruling)
    assert not content_differs(change, ruling)
    other = intake.change(sqs("o-1", "e-1", sent_at=2))
    assert content_differs(other, ruling)


def test_a_sender_that_repeats_with_a_new_time_is_acknowledged() -> None:
    """The content is the same, and so is the row."""
    intake = Intake()
    intake.handle([sqs("o-1", "e-1", sent_at=1)])
    before = intake.row("o-1", "e-1")
    assert intake.handle([sqs("o-1", "e-1", sent_at=2)]) == []
    assert (intake.called, intake.sqs.dead_letters, intake.row("o-1", "e-1")) == (["e-1"], [], before)


@pytest.mark.failure_mode("F381")
@pytest.mark.parametrize("source", [MessageSourceType.SQS, MessageSourceType.FIFO])
def test_a_copy_with_another_fingerprint_is_a_dead_letter(source: MessageSourceType) -> None:
    """The committed row stays as it is. A new time alone is no difference. A redriven copy is refused again."""
    intake = Intake(source, fingerprint="[amount, currency]")
    intake.handle([sqs("o-1", "e-1", amount=5, sent_at=1, group="g")])
    before = intake.row("o-1", "e-1")
    assert intake.handle([sqs("o-1", "e-1", amount=5, sent_at=2, group="g")]) == []
    assert intake.sqs.dead_letters == []
    other = sqs("o-1", "e-1", amount=6, sent_at=3, group="g")
    assert intake.handle([other]) == []
    assert intake.handle([other | {"messageId": "redriven"}]) == []
    assert (intake.called, intake.row("o-1", "e-1")) == (["e-1"], before)
    assert {one.attributes["reason_code"] for one in intake.sqs.dead_letters} == {"identity_collides"}
    assert [one.body for one in intake.sqs.dead_letters] == [other["body"]] * 2


@pytest.mark.failure_mode("F381")
def test_a_record_of_a_stream_with_another_fingerprint_is_a_dead_letter() -> None:
    """The shard goes on."""
    intake = Intake(MessageSourceType.KINESIS, fingerprint="amount")
    first, second = (json.dumps({"order": "o", "event": "e", "amount": amount}) for amount in (1, 2))
    assert intake.handle([kinesis("o", "e", 1, first), kinesis("o", "e", 2, second)]) == []
    assert (len(intake.calls), [one.attributes["reason_code"] for one in intake.sqs.dead_letters]) == (
        1,
        ["identity_collides"],
    )


@pytest.mark.failure_mode("F381")
@pytest.mark.parametrize("error", [RuntimeError("out"), Unprocessable("no")])
def test_a_message_with_another_fingerprint_does_not_take_an_unfinished_or_rejected_row(error: Exception) -> None:
    """Both have one idempotency key, so that the downstream would drop the second one's effect."""
    intake = Intake(fingerprint="amount", process=lambda _: raise_(error))
    intake.handle([sqs("o-1", "e-1", amount=5)])
    before = intake.row("o-1", "e-1")
    intake.clock.advance(3_600_000)
    assert intake.handle([sqs("o-1", "e-1", amount=6)]) == []
    assert (len(intake.calls), intake.row("o-1", "e-1")) == (1, before)
    code = "identity_rejected" if isinstance(error, Unprocessable) else "identity_collides"
    assert intake.sqs.dead_letters[-1].attributes["reason_code"] == code


def _sent(intake: Intake, number: int, **content: Any) -> dict[str, Any]:
    """A message of the intake's source, with an ID of its own."""
    if intake.source is MessageSourceType.KINESIS:
        return kinesis("o-1", "e-1", number, json.dumps({"order": "o-1", "event": "e-1", **content}))
    return sqs("o-1", "e-1", group="g", **content) | {"messageId": f"m-{number}"}


@pytest.mark.failure_mode("F610")
@pytest.mark.parametrize("source", [MessageSourceType.SQS, MessageSourceType.FIFO, MessageSourceType.KINESIS])
@pytest.mark.parametrize("fingerprint", ["", "pieces"])
@pytest.mark.parametrize(("days", "pieces", "letters"), [(0, 0, 1), (13, 0, 1), (14, 0, 2), (400, 0, 2), (0, 3, 2)])
def test_no_message_about_a_rejected_identity_is_acknowledged_without_a_trace(
    source: MessageSourceType, fingerprint: str, days: int, pieces: int, letters: int
) -> None:
    """Only a copy of the dead letter that may still be there is. The letter names the identity, and opens nothing."""
    intake = Intake(source, lambda _: raise_(Unprocessable("no")), fingerprint=fingerprint)
    intake.handle([_sent(intake, 1, pieces=0)])
    before = intake.row("o-1", "e-1")
    intake.clock.advance(days * DAY)
    assert intake.handle([_sent(intake, 2, pieces=pieces)]) == []
    assert (len(intake.calls), intake.row("o-1", "e-1")) == (1, before)
    assert len(intake.sqs.dead_letters) == letters
    for one in intake.sqs.dead_letters[1:]:
        names = {"bucket": SOURCE_NAME, "key": "o-1", "version_id": "e-1", "reason_code": "identity_rejected"}
        assert names.items() <= one.attributes.items()
        assert "rejected_fence" not in one.attributes


@pytest.mark.failure_mode("F610")
def test_a_content_that_cannot_be_compared_with_the_rejected_one_is_a_dead_letter() -> None:
    """A deployment has changed the fingerprint since."""
    intake = Intake(process=lambda _: raise_(Unprocessable("no")))
    intake.handle([_sent(intake, 1)])
    deployed = Intake(fingerprint="event")
    deployed.table.items.update(intake.table.items)
    assert deployed.handle([_sent(intake, 2)]) == []
    assert [one.attributes["reason_code"] for one in deployed.sqs.dead_letters] == ["identity_rejected"]


@pytest.mark.failure_mode("F610")
def test_a_letter_that_is_refused_keeps_its_message(monkeypatch: pytest.MonkeyPatch) -> None:
    intake = Intake(process=lambda _: raise_(Unprocessable("no")))
    intake.handle([_sent(intake, 1, pieces=0)])
    with monkeypatch.context() as refusing:
        denied = ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, "SendMessage")
        refusing.setattr(intake, "send_message", lambda **_: raise_(denied))
        assert intake.handle([_sent(intake, 2, pieces=3)]) == ["m-2"]
    assert intake.handle([_sent(intake, 2, pieces=3)]) == []
    assert len(intake.sqs.dead_letters) == 2


@pytest.mark.failure_mode("F611")
def test_the_copy_of_the_last_attempt_is_about_the_content_that_the_row_names() -> None:
    """Two contents share an unfinished row, and the second one sends the copy. The first one is in no dead letter."""
    intake = Intake(process=lambda _: raise_(Killed()))
    for _ in range(3):
        with pytest.raises(Killed):
            intake.handle([_sent(intake, 1, pieces=1)], intake.worker())
        intake.clock.advance(HOUR)
    assert intake.handle([_sent(intake, 2, pieces=2)], intake.worker()) == []
    assert intake.handle([_sent(intake, 1, pieces=1)], intake.worker()) == []
    bodies = [json.loads(one.body)["pieces"] for one in intake.sqs.dead_letters]
    assert (len(intake.calls), bodies) == (3, [2, 1])


@pytest.mark.failure_mode("F611")
def test_a_swap_does_not_take_the_row_of_another_content_within_a_millisecond(monkeypatch: pytest.MonkeyPatch) -> None:
    """The row that was judged is released, and another content inserts one with the same fence."""
    intake = Intake()
    first, second = (intake.change(_sent(intake, number, pieces=number)) for number in (1, 2))
    claim = intake.ledger.claim(first, lease_ms=0)
    assert isinstance(claim, Claim)
    update = LedgerTable.update

    def late(*given: Any, **named: Any) -> None:
        monkeypatch.setattr(LedgerTable, "update", update)
        intake.ledger.release(claim)
        assert isinstance(intake.ledger.claim(second, lease_ms=0), Claim)
        update(*given, **named)

    monkeypatch.setattr(LedgerTable, "update", late)
    again = intake.ledger.claim(first, lease_ms=LEASE_MS)
    row = intake.row("o-1", "e-1")
    assert isinstance(again, Claim)
    assert row is not None
    assert row.etag == again.row.etag == (first.state and first.state.etag)


@pytest.mark.failure_mode("F612")
@pytest.mark.parametrize("attribute", ["rejected_fence", "reason_code", "intake_request"])
def test_a_redriven_message_does_not_vanish_behind_another_content_of_its_identity(attribute: str) -> None:
    """It goes back. A message of the source is a copy, as before, and so is one with the content that was processed."""
    intake = Intake()
    intake.handle([_sent(intake, 1, pieces=10)])
    letter = {"messageAttributes": {attribute: {"stringValue": "7", "dataType": "String"}}}
    assert intake.handle([_sent(intake, 2, pieces=10) | letter, _sent(intake, 3, pieces=12)]) == []
    assert intake.sqs.dead_letters == []
    assert intake.handle([_sent(intake, 4, pieces=12) | letter]) == []
    [back] = intake.sqs.dead_letters
    assert (back.attributes["reason_code"], json.loads(back.body)["pieces"]) == ("identity_collides", 12)
    assert len(intake.calls) == 1


@pytest.mark.failure_mode("F612")
def test_a_redriven_message_that_waits_as_a_copy_is_still_one() -> None:
    """SQS's own redrive keeps no other attribute of ours."""
    intake = Intake()
    record = _sent(intake, 1) | {"messageAttributes": {"reason_code": {"stringValue": "x", "dataType": "String"}}}
    [message] = intake.kind().read({"Records": [record]}).messages
    attributes = message.copy(START)["MessageAttributes"]
    copied = {name: {"stringValue": one["StringValue"]} for name, one in attributes.items()}
    [copy] = intake.kind().read({"Records": [record | {"messageAttributes": copied}]}).messages
    assert copy.is_letter


@pytest.mark.failure_mode("F613")
@pytest.mark.parametrize(("pieces", "calls"), [(10, 2), (12, 1)])
def test_only_the_content_of_a_lost_copy_opens_its_row(pieces: int, calls: int) -> None:
    """Both have one idempotency key."""
    intake = Intake(process=lambda _: raise_(Unprocessable("no")))
    intake.handle([_sent(intake, 1, pieces=10)])
    place = RowKey(f"{SOURCE_NAME}/o-1", "orders@v#e-1")
    rejected = Condition("#status = :rejected", ("status",), {":rejected": "REJECTED"})
    LedgerTable(intake.table, "table").mark(place, {"reason_code": "copy_lost"}, rejected)
    assert intake.handle([_sent(intake, 2, pieces=pieces)]) == []
    assert (len(intake.calls), len(intake.sqs.dead_letters)) == (calls, 2)


@pytest.mark.failure_mode("F578")
@pytest.mark.parametrize("number", ["1e999", "-1e999", "NaN", "Infinity"])
def test_a_number_that_json_cannot_write_is_not_sent_to_another_function_or_execution(number: str) -> None:
    """AWS would refuse each start, and a start that is refused holds the key and is never given up."""
    intake = Intake()
    record = sqs("o-1", "e-1")
    record["body"] = f'{{"order": "o-1", "event": "e-1", "amount": [{number}]}}'
    kind = intake.kind()
    claim = intake.ledger_of(kind).claim(intake.change(record), lease_ms=LEASE_MS)
    assert isinstance(claim, Claim)
    with pytest.raises(Unprocessable, match="JSON cannot write"):
        kind.work(claim).request()


@pytest.mark.failure_mode("F381")
def test_a_row_of_an_earlier_release_without_a_digest_is_claimed_with_a_fingerprint() -> None:
    """Nothing is known about its content, so that there is nothing to compare."""
    intake = Intake(fingerprint="amount", process=lambda _: raise_(RuntimeError("out")))
    message = sqs("o-1", "e-1", amount=5)
    intake.handle([message])
    for item in intake.table.items.values():
        item.pop("etag", None)
    intake.process = lambda _: None
    intake.clock.advance(3_600_000)
    assert intake.handle([message]) == []
    assert intake.status("o-1", "e-1") == "PROCESSED"


@pytest.mark.failure_mode("F575")
@pytest.mark.failure_mode("F381")
@pytest.mark.parametrize(("before", "after"), [("", "amount"), ("amount", "[amount]"), ("amount", "")])
def test_another_fingerprint_expression_is_no_other_content(before: str, after: str) -> None:
    """A deployment of it loses no message that is not finished, and no copy is taken for another message."""
    intake = Intake(fingerprint=before, process=lambda _: raise_(RuntimeError("out")))
    message = sqs("o-1", "e-1", amount=5)
    intake.handle([message])
    deployed = Intake(fingerprint=after)
    deployed.table.items.update(intake.table.items)
    deployed.clock.advance(3_600_000)
    assert deployed.handle([message]) == []
    assert deployed.handle([sqs("o-1", "e-1", amount=5)]) == []
    assert (deployed.called, deployed.sqs.dead_letters) == (["e-1"], [])


@pytest.mark.failure_mode("F382")
@pytest.mark.parametrize("fingerprint", ["amout", "[amout, curency]", "{a: amout}"])
def test_a_fingerprint_that_a_message_does_not_have_is_a_reason(fingerprint: str) -> None:
    """A misspelt field would be null in each message, and would compare nothing."""
    intake = Intake(fingerprint=fingerprint)
    assert intake.handle([sqs("o-1", "e-1", amount=5)]) == []
    assert "the fingerprint is missing or null" in intake.sqs.dead_letters[0].reason
    assert intake.called == []


def test_a_row_with_its_digest_fits_into_a_write_unit() -> None:
    """A key of 256 bytes, an identity of the length of a UUID, and the longest name of an intake."""
    intake = Intake()
    change = intake.change(sqs("k" * 256, "i" * 36))
    claim = intake.ledger.claim(change, lease_ms=1000)
    assert isinstance(claim, Claim)
    intake.ledger.commit(claim, "c" * 36)
    [item] = [one for (_, sk), one in intake.table.items.items() if "@v#" in sk]
    size = sum(len(name) + len(next(iter(value.values()))) for name, value in item.items())
    assert size + 2 * (64 - len("orders")) <= 1024


def test_each_identity_of_a_key_is_processed_and_the_fence_grows() -> None:
    """Also within one millisecond of the clock."""
    intake = Intake()
    intake.handle([sqs("o-1", f"e-{number}") for number in range(5)])
    fences = [message.fence for message in intake.calls]
    assert intake.called == [f"e-{number}" for number in range(5)]
    assert fences == sorted(set(fences))
    assert len({message.idempotency_key for message in intake.calls}) == 5


@pytest.mark.failure_mode("F145")
def test_two_messages_of_one_key_are_never_processed_at_once() -> None:
    """A second worker gets another message of the key while the first one's processor runs."""
    intake = Intake()
    failed: list[str] = []
    inside: list[str] = []

    def process(message: KeyedMessage) -> None:
        if message.identity == "e-1":
            failed.extend(intake.handle([sqs("o-1", "e-2"), sqs("o-2", "e-3")], intake.worker()))
            inside.extend(intake.called)

    intake.process = process
    assert intake.handle([sqs("o-1", "e-1")]) == []
    assert failed == ["o-1.e-2"]
    assert inside == ["e-1", "e-3"]
    assert intake.row("o-1", "e-2") is None, "the claim was released as if it had never been made"
    assert intake.handle([sqs("o-1", "e-2", receives=2)]) == []
    assert intake.called == ["e-1", "e-3", "e-2"]


@pytest.mark.failure_mode("F146")
@pytest.mark.parametrize("error", [RuntimeError("out"), NotYet("part 2"), Unprocessable("no"), SystemExit(1)])
def test_a_failure_after_the_lock_frees_it(error: BaseException) -> None:
    """Otherwise the key's other messages would wait for the rest of the lease."""
    intake = Intake(process=lambda message: raise_(error) if message.identity == "e-1" else None)
    intake.handle([sqs("o-1", "e-1")])
    assert not intake.is_locked("o-1")
    assert intake.handle([sqs("o-1", "e-2")], intake.worker()) == []
    assert intake.called == ["e-1", "e-2"]


@pytest.mark.failure_mode("F146")
def test_a_failure_that_cannot_be_written_frees_the_lock_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """DynamoDB refuses the write, so the attempt ends without an outcome."""
    intake = Intake(process=lambda message: raise_(Unprocessable("no")) if message.identity == "e-1" else None)
    monkeypatch.setattr(Ledger, "reject", lambda *_, **__: raise_(refused("UpdateItem")))
    assert intake.handle([sqs("o-1", "e-1")]) == ["o-1.e-1"]
    assert intake.status("o-1", "e-1") == "PROCESSING"
    assert not intake.is_locked("o-1")
    monkeypatch.undo()
    assert intake.handle([sqs("o-1", "e-2")], intake.worker()) == []


@pytest.mark.failure_mode("F147")
def test_a_lapsed_lock_is_not_held() -> None:
    """The item of a worker that died is still there. Only the row of its message says whether it holds the key."""
    intake = Intake(process=lambda message: raise_(Killed()) if message.identity == "e-1" else None)
    with pytest.raises(Killed):
        intake.handle([sqs("o-1", "e-1")])
    # The process is gone, so nothing was freed.
    intake.table.items[(f"{SOURCE_NAME}/o-1", "orders@lock")]["holder"] = {"S": "orders@v#e-1"}
    intake.clock.advance(LEASE_MS - 1)
    assert intake.handle([sqs("o-1", "e-2")], intake.worker()) == ["o-1.e-2"]
    intake.clock.advance(1)
    assert intake.handle([sqs("o-1", "e-2", receives=2)], intake.worker()) == []
    first, second = intake.calls
    assert second.fence > first.fence


def test_a_later_attempt_of_the_holder_that_has_not_taken_the_key_does_not_hold_it() -> None:
    """The lock names the row and its fence. The fence is that of an attempt that has ended."""
    intake = Intake(process=lambda message: raise_(Killed()) if message.attempt == 1 else None)
    with pytest.raises(Killed):
        intake.handle([sqs("o-1", "e-1")])
    intake.table.items[(f"{SOURCE_NAME}/o-1", "orders@lock")]["holder"] = {"S": "orders@v#e-1"}
    intake.clock.advance(LEASE_MS)
    intake.process = lambda _: None
    update, handled = intake.table.update_item, list[list[str]]()

    def between(**request: Any) -> Any:
        if request["Key"]["sk"]["S"].endswith("@lock") and not handled:
            handled.append([])
            handled[0] = intake.handle([sqs("o-1", "e-2")], intake.worker())
        return update(**request)

    intake.table.update_item = between
    assert intake.handle([sqs("o-1", "e-1", receives=2)], intake.worker()) == []
    assert handled == [[]], "the other message was not processed between the claim of the row and that of the key"
    fences = [message.fence for message in intake.calls]
    assert [message.identity for message in intake.calls] == ["e-1", "e-2", "e-1"]
    assert fences == sorted(set(fences))


def test_a_lapsed_key_that_another_message_takes_first_is_not_taken_with_an_old_fence() -> None:
    """Both messages find the lock of a worker that died."""
    intake = Intake(process=lambda message: raise_(Killed()) if message.identity == "e-1" else None)
    with pytest.raises(Killed):
        intake.handle([sqs("o-1", "e-1")])
    intake.table.items[(f"{SOURCE_NAME}/o-1", "orders@lock")]["holder"] = {"S": "orders@v#e-1"}
    intake.clock.advance(LEASE_MS)
    update, tries = intake.table.update_item, list[Any]()

    def between(**request: Any) -> Any:
        if request["Key"]["sk"]["S"].endswith("@lock"):
            tries.append(request)
            if len(tries) == 2:
                assert intake.handle([sqs("o-1", "e-3")], intake.worker()) == []
        return update(**request)

    intake.table.update_item = between
    assert intake.handle([sqs("o-1", "e-2")], intake.worker()) == []
    assert intake.called == ["e-1", "e-3", "e-2"]
    fences = [message.fence for message in intake.calls]
    assert fences == sorted(set(fences))


def test_each_message_of_a_batch_is_claimed_when_its_processor_can_start() -> None:
    """Claimed before, the first message of a key would hold it while the second one is claimed."""
    intake = Intake()
    intake.handle([sqs("o-1", "e-1")])
    assert intake.handle([sqs("o-1", "e-2"), sqs("o-1", "e-3")]) == []
    assert intake.called == ["e-1", "e-2", "e-3"]
    assert intake.verdicts == {"ACCEPTED": 3}


@pytest.mark.failure_mode("F148")
def test_a_late_commit_does_not_come_after_a_later_message_of_the_key() -> None:
    """Its row is still its own, because no copy of its message came. Its lock is not."""
    intake = Intake()

    def process(message: KeyedMessage) -> None:
        if message.identity == "e-1" and message.attempt == 1:
            intake.clock.advance(LEASE_MS + 1)
            intake.handle([sqs("o-1", "e-2")], intake.worker())

    intake.process = process
    assert intake.handle([sqs("o-1", "e-1")]) == ["o-1.e-1"]
    assert intake.outcomes == {"Committed": 1, "Fenced": 1}
    assert intake.status("o-1", "e-1") == "PROCESSING"
    assert intake.handle([sqs("o-1", "e-1", receives=2)]) == []
    assert [message.fence for message in intake.calls] == sorted({message.fence for message in intake.calls})


def test_busy_messages_wait_for_as_long_as_the_lock_is_held_already() -> None:
    """Most processors end long before their lease. A poll of each second would be a request for each second."""
    intake = Intake()
    waits = []

    def process(message: KeyedMessage) -> None:
        if message.identity == "e-1":
            for held in (0, 30_000, LEASE_MS - 31_000):
                intake.clock.advance(held)
                ledger = intake.ledger
                change = intake.kind()._reader.from_queue(sqs("o-1", "e-2")).parsed[0]
                assert isinstance(change, Change)
                answer = ledger.claim(change, lease_ms=LEASE_MS)
                assert answer.row is not None
                waits.append((answer.row.lease_until or 0) - intake.clock())

    intake.process = process
    intake.handle([sqs("o-1", "e-1")])
    assert waits == [1_000, 30_000, 1_000]


def test_an_error_of_s3_is_a_failure_and_no_end() -> None:
    """`ObjectGone` settles the row of an object. A message would be lost by it."""
    intake = Intake(process=lambda _: raise_(ObjectGone("gone")))
    assert intake.handle([sqs("o-1", "e-1")]) == ["o-1.e-1"]
    assert intake.status("o-1", "e-1") == "FAILED"


def test_an_attempt_whose_lock_could_not_be_taken_does_not_count() -> None:
    """DynamoDB does not answer between the claim and the lock."""
    intake = Intake()
    update = intake.table.update_item
    intake.table.update_item = lambda **_: raise_(refused("UpdateItem"))
    assert intake.handle([sqs("o-1", "e-1")]) == ["o-1.e-1"]
    intake.table.update_item = update
    assert intake.row("o-1", "e-1") is None
    assert intake.handle([sqs("o-1", "e-1", receives=2)]) == []
    assert [message.attempt for message in intake.calls] == [1]


def test_the_lock_of_a_repeated_request_is_our_own() -> None:
    """The answer to the first write was lost, and the SDK repeated it."""
    intake = Intake()
    update = intake.table.update_item
    seen: list[Any] = []

    def twice(**request: Any) -> Any:
        if request["Key"]["sk"]["S"].endswith("@lock") and not seen:
            seen.append(update(**request))
        return update(**request)

    intake.table.update_item = twice
    assert intake.handle([sqs("o-1", "e-1")]) == []
    assert intake.called == ["e-1"]


@pytest.mark.failure_mode("F297")
def test_a_lock_in_a_transaction_is_busy() -> None:
    """DynamoDB refuses the write with its own code, and SDKs do not retry it."""
    intake = Intake()
    update = intake.table.update_item
    intake.table.update_item = lambda **_: raise_(refused("UpdateItem", "TransactionConflictException"))
    assert intake.handle([sqs("o-1", "e-1")]) == ["o-1.e-1"]
    intake.table.update_item = update
    assert intake.verdicts == {"BUSY": 1}


def test_the_lock_stays_for_longer_than_the_rows() -> None:
    """A fence that began again would let an old worker write."""
    intake = Intake()
    intake.handle([sqs("o-1", "e-1")])
    row = known(intake.row("o-1", "e-1"))
    assert row.expires_at is not None
    assert intake.lock("o-1")["expires_at"] > row.expires_at > (START + SETTINGS.retention_seconds * 1000) // 1000


def test_the_lock_of_long_work_stays_for_longer_than_its_row() -> None:
    """The row expires some time after the end of the work, and a free key would let another message begin before."""
    intake = Intake()
    table, longest = LedgerTable(intake.table, "table"), 300 * DAY
    lock = KeyLock(table, "orders", intake.options.retention, clock=intake.clock, longest_work_ms=longest)
    kind = Messages(MessageSettings(SETTINGS, MessageSourceType.SQS, "order", "event"), lock)
    ledger = intake.ledger_of(kind)
    change = intake.kind()._reader.from_queue(sqs("o-1", "e-1")).parsed[0]
    assert isinstance(change, Change)
    claim = ledger.claim(change, lease_ms=LEASE_MS)
    assert isinstance(claim, Claim)
    intake.clock.advance(longest)
    ledger.commit(claim)
    row = known(intake.row("o-1", "e-1"))
    assert row.expires_at is not None
    assert intake.lock("o-1")["expires_at"] > row.expires_at


def test_a_fence_ahead_of_the_clock_still_grows() -> None:
    """The clock of the last worker was ahead by an hour."""
    intake = Intake()
    intake.clock.advance(3_600_000)
    intake.handle([sqs("o-1", "e-1")])
    intake.clock.advance(-3_600_000)
    intake.handle([sqs("o-1", "e-2")], intake.worker())
    first, second = intake.calls
    assert second.fence == first.fence + 1


def test_old_messages_of_a_long_queue_are_processed() -> None:
    """No row tells whether one has expired. A message that is lost is worse than a repeated one."""
    intake = Intake()
    intake.clock.advance(100 * DAY)
    assert intake.handle([sqs("o-1", "e-1")]) == []
    assert intake.called == ["e-1"]


@pytest.mark.failure_mode("F151")
@pytest.mark.parametrize(
    ("record", "why"),
    [
        (sqs(None, "e-1"), "the key is missing or null"),
        (sqs("o-1", None), "the identity is missing or null"),
        (sqs("", "e-1"), "the key has 0 bytes"),
        (sqs("ä" * 513, "e-1"), "the key has 1026 bytes"),
        (sqs(["o-1"], "e-1"), "the key is list, expected a text or a whole number"),
        (sqs({"a": 1}, "e-1"), "the key is dict"),
        (sqs(1.5, "e-1"), "the key is float"),
        (sqs(True, "e-1"), "the key is bool"),
        (sqs("\ud800", "e-1"), "the key is not valid Unicode"),
        (sqs("o-1", "null"), "the identity is the text 'null'"),
        (sqs("o-1", "e-1") | {"body": "no JSON"}, "not JSON"),
        (sqs("o-1", "e-1") | {"body": "[" * 100_000}, "not JSON"),
        (sqs("o-1", "e-1") | {"body": "[1]"}, "the key is missing or null"),
    ],
)
def test_a_message_without_a_usable_name_is_dead_lettered_with_a_reason(record: dict[str, Any], why: str) -> None:
    """Its neighbours are processed. The text has no value of the message."""
    intake = Intake()
    assert intake.handle([record, sqs("o-2", "e-2")]) == []
    [letter] = intake.sqs.dead_letters
    assert why in letter.reason
    assert letter.attributes["reason_code"] == "unparseable_message"
    assert letter.body == record["body"]
    assert intake.called == ["e-2"]


def test_an_expression_whose_function_fails_is_a_reason() -> None:
    """`join` of a number raises an error of JMESPath."""
    intake = Intake(key="join('-', [order, customer])")
    intake.handle([sqs("o-1", "e-1", customer=5), sqs("o-1", "e-2", customer="c")])
    assert [message.key for message in intake.calls] == ["o-1-c"]
    assert "cannot be evaluated: JMESPathTypeError" in intake.sqs.dead_letters[0].reason


NAMES = st.one_of(
    st.text(max_size=40), st.integers(), st.floats(), st.booleans(), st.none(), st.lists(st.integers(), max_size=2)
)


@settings(max_examples=examples(200), deadline=None)
@given(NAMES, NAMES)
def test_any_name_is_taken_or_refused_and_never_raises(key: object, identity: object) -> None:
    """A name that is taken is the text of the value, and a refused one has a reason."""
    reader = MessageReader(MessageSettings(SETTINGS, MessageSourceType.SQS, "order", "event"))
    [part] = reader.from_queue(sqs(key, identity)).parsed
    if isinstance(part, Change):
        assert (part.key, part.state and part.state.version_id) == (str(key), str(identity))
    else:
        assert part.why


def test_the_settings_are_those_of_the_construct() -> None:
    """The contract with `MessageIntake`."""
    found = message_settings(ENVIRONMENT)
    assert (found.source, found.key, found.identity) == (MessageSourceType.SQS, "order", "event")
    assert found.consumer.bucket == SOURCE_NAME


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"INTAKE_MESSAGE_SOURCE": "rabbit"}, "INTAKE_MESSAGE_SOURCE is 'rabbit', expected one of sqs, fifo"),
        ({"INTAKE_MESSAGE_KEY": "detail["}, "INTAKE_MESSAGE_KEY: 'detail[' is not JMESPath"),
        ({"INTAKE_MESSAGE_IDENTITY": ""}, "INTAKE_MESSAGE_IDENTITY is not set"),
        ({"INTAKE_ORDERING": "LATEST"}, "INTAKE_ORDERING is LATEST, expected EVERY_VERSION"),
        ({"INTAKE_CONCURRENCY": "4"}, "INTAKE_CONCURRENCY is 4, expected 1"),
    ],
)
def test_wrong_settings_are_refused_with_the_variable(change: dict[str, str], why: str) -> None:
    """At the cold start, before any message is read."""
    with pytest.raises(SettingsError) as refused_:
        message_settings(ENVIRONMENT | change)
    assert why in str(refused_.value)


def test_an_event_without_records_is_refused() -> None:
    """The function was invoked directly."""
    with pytest.raises(ValueError, match="no records"):
        Intake().consumer.handle({"hello": 1}, Intake())


def test_a_message_takes_three_requests_and_a_duplicate_one() -> None:
    """A new message takes three requests: the row, the lock, and one transaction for both."""
    table = Wire(cast("Any", MemoryDynamoDB()))
    intake = Intake(table=table)
    intake.handle([sqs("o-1", "e-1")])
    assert table.requests == ["put_item", "update_item", "transact_write_items"]
    intake.handle([sqs("o-1", "e-1", receives=2)])
    assert table.requests[3:] == ["put_item"], "the row that refuses the write is in its answer"


def refused(operation: str, code: str = "InternalServerError") -> ClientError:
    return ClientError({"Error": {"Code": code}}, operation)


def sns_envelope(message: str, **more: str) -> str:
    """A notification as SNS sends it to a queue without raw message delivery."""
    topic = "arn:aws:sns:eu-central-1:111122223333:orders"
    return json.dumps({"Type": "Notification", "MessageId": "m-1", "TopicArn": topic, "Message": message, **more})


class TestSns:
    """Notifications of SNS, in queues whose subscription has no raw message delivery."""

    @pytest.mark.failure_mode("F265")
    def test_the_message_in_a_notification_is_processed_if_the_source_unwraps(self) -> None:
        """A message that another sender sent is processed too. Both are copies of one message."""
        intake = Intake(unwrap_sns=True)
        direct = sqs("o-1", "e-1")
        wrapped = direct | {"messageId": "n", "body": sns_envelope(direct["body"])}
        assert intake.handle([wrapped, direct]) == []
        [message] = intake.calls
        assert (message.key, message.identity, message.raw) == ("o-1", "e-1", direct["body"])
        assert message.body == {"order": "o-1", "event": "e-1"}

    @pytest.mark.failure_mode("F265")
    def test_a_notification_stays_as_it_is_by_default(self) -> None:
        """Expressions on the envelope see its `MessageId`."""
        intake = Intake(key="TopicArn", identity="MessageId")
        assert intake.handle([sqs("o", "e") | {"body": sns_envelope("no JSON")}]) == []
        [message] = intake.calls
        assert (message.identity, message.body["Message"]) == ("m-1", "no JSON")

    @pytest.mark.parametrize(
        "body",
        [
            sns_envelope("no JSON"),
            sns_envelope(json.dumps({"order": 1})),
            json.dumps({"Type": "Notification", "Message": {"order": "o", "event": "e"}}),
            json.dumps({"Type": "SubscriptionConfirmation", "Message": json.dumps({"order": "o", "event": "e"})}),
            json.dumps(["Notification"]),
        ],
    )
    def test_an_unreadable_notification_is_dead_lettered_whole(self, body: str) -> None:
        """The copy has the envelope, so that a redrive reads it again."""
        intake = Intake(unwrap_sns=True)
        assert intake.handle([sqs("o", "e") | {"body": body}]) == []
        assert (intake.calls, [letter.body for letter in intake.sqs.dead_letters]) == ([], [body])

    def test_a_redriven_copy_is_unwrapped_again(self) -> None:
        """The copy of a rejected notification is the notification."""
        refuses = [True]
        intake = Intake(process=lambda _: raise_(Unprocessable("no")) if refuses.pop() else None, unwrap_sns=True)
        wrapped = sqs("o-1", "e-1") | {"body": sns_envelope(json.dumps({"order": "o-1", "event": "e-1"}))}
        assert intake.handle([wrapped]) == []
        [letter] = intake.sqs.dead_letters
        fence = {"rejected_fence": {"stringValue": str(letter.attributes["rejected_fence"])}}
        refuses.append(False)
        assert intake.handle([wrapped | {"messageId": "r", "body": letter.body, "messageAttributes": fence}]) == []
        assert intake.status("o-1", "e-1") == "PROCESSED"
