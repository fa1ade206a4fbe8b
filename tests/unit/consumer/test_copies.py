"""The copy of a rejected message. Nothing else remains of it, so it stays whole, and its redrive opens the row."""

import json
from dataclasses import replace
from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from cdk_intake_ledger.testing import LocalMessages
from intake_ledger.events.parser import own_message
from intake_ledger.protocol.change import Origin, State, StateKind
from intake_ledger.protocol.row import Row, Status
from intake_ledger.protocol.verdict import Policy, Verdict, judge_state
from intake_ledger_testing.memory_sqs import DEAD_LETTER_URL, MAX_MESSAGE_BYTES, MemorySQS
from tests.kinds.cells import KEY, Refusing
from tests.kinds.conformance import CELLS
from tests.unit.support import one_change


@pytest.fixture(params=CELLS, ids=" ".join)
def kind(request: pytest.FixtureRequest) -> Refusing:
    return Refusing(*request.param)


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """No copy has room for attributes."""
    send = MemorySQS.send_message

    def send_message(self: MemorySQS, **request: Any) -> None:
        if request["QueueUrl"].startswith(DEAD_LETTER_URL) and request.get("MessageAttributes"):
            raise ClientError({"Error": {"Code": "InvalidParameterValue", "Message": "too long"}}, "SendMessage")
        send(self, **request)

    monkeypatch.setattr(MemorySQS, "send_message", send_message)


def rejected(kind: Refusing) -> str:
    """Upload, and return the body of the copy."""
    kind.submit()
    kind.run()
    assert (kind.known().status, len(kind.calls)) == (Status.REJECTED, 1)
    [letter] = kind.sqs.dead_letters
    kind.sqs.dead_letters.clear()
    assert letter.attributes == {}
    return letter.body


@pytest.mark.usefixtures("bare")
class TestBareCopies:
    """A copy without attributes looks like a late duplicate of the rejected message."""

    @pytest.mark.failure_mode("F260")
    def test_a_redriven_copy_is_processed_once(self, kind: Refusing) -> None:
        """SQS gives it another ID."""
        body = rejected(kind)
        kind.refuses = False
        kind.sqs.send(body)
        kind.sqs.send(body)
        kind.run()
        assert (kind.known().status, len(kind.calls), kind.sqs.dead_letters) == (Status.PROCESSED, 2, [])
        assert (kind.known().bare_copy_digest, kind.known().spent_messages) == (None, None)

    @pytest.mark.failure_mode("F260")
    def test_a_duplicate_of_the_rejected_message_opens_nothing(self, kind: Refusing) -> None:
        """SQS delivers a message twice at times, with the same ID."""
        body = rejected(kind)
        before = kind.known()
        assert before.spent_messages is not None
        kind.refuses = False
        kind.sqs.send(body)
        kind.sqs.messages[-1].id = before.spent_messages
        kind.run()
        assert (kind.known(), len(kind.calls)) == (before, 1)

    @pytest.mark.failure_mode("F260")
    def test_another_message_about_the_state_opens_nothing(self, kind: Refusing) -> None:
        """A copy has the body that was sent. An event that S3 sends again has another one."""
        body = rejected(kind)
        before = kind.known()
        kind.refuses = False
        kind.sqs.send(body.replace("{", "{ ", 1))
        kind.run()
        assert (kind.known(), len(kind.calls)) == (before, 1)

    @pytest.mark.failure_mode("F260")
    def test_a_copy_that_is_rejected_again_has_another_copy(self, kind: Refusing) -> None:
        """Each rejection leaves one copy, and each copy opens the row once."""
        body = rejected(kind)
        for _ in range(2):
            kind.sqs.send(body)
            kind.run()
            [letter] = kind.sqs.dead_letters
            kind.sqs.dead_letters.clear()
            body = letter.body
        assert (kind.known().status, len(kind.calls), kind.known().redrive_count) == (Status.REJECTED, 3, 2)
        kind.refuses = False
        kind.sqs.send(body)
        kind.run()
        assert (kind.known().status, len(kind.calls)) == (Status.PROCESSED, 4)

    @pytest.mark.failure_mode("F755")
    @pytest.mark.parametrize("runner", ["inline", "machine"])
    def test_a_person_opens_other_content_without_attributes(self, runner: str) -> None:
        """The body names key and identity. The first content is not acknowledged behind it."""
        kind = Refusing("messages", runner)
        body = rejected(kind)
        kind.sqs.send(other := body.replace("}", ', "corrected": true}', 1))
        kind.run()
        assert len(kind.calls) == 1, "it is not tried by itself"
        [letter] = kind.sqs.dead_letters
        assert (letter.body, letter.attributes) == (other, {})
        kind.refuses = False
        assert isinstance(kind.local, LocalMessages)
        kind.local.open(letter)
        kind.run()
        assert (kind.known().status, len(kind.calls), kind.known().opened) == (Status.PROCESSED, 2, 1)
        kind.sqs.send(body)
        kind.run()
        assert (len(kind.calls), [one.body for one in kind.sqs.dead_letters]) == (2, [body])


@pytest.mark.failure_mode("F260")
@pytest.mark.parametrize(("room", "attributes"), [(400, 9), (40, 1), (33, 1), (32, 0), (0, 0)])
def test_a_copy_keeps_its_fence_as_long_as_there_is_room(room: int, attributes: int) -> None:
    """The fence needs 33 bytes: its name, its type and its value. Each copy is whole, and its redrive is processed."""
    messages = Refusing("messages")
    body = json.dumps({"order": KEY, "event": "1", "pad": ""})
    body = json.dumps({"order": KEY, "event": "1", "pad": "x" * (MAX_MESSAGE_BYTES - room - len(body))})
    messages.sqs.send(body)
    messages.run()
    [letter] = messages.sqs.dead_letters
    assert (letter.body == body, len(letter.attributes)) == (True, attributes)
    assert attributes != 1 or [*letter.attributes] == ["rejected_fence"]
    messages.refuses = False
    messages.sqs.send(letter.body, letter.attributes)
    messages.run()
    assert (messages.known().status, len(messages.calls)) == (Status.PROCESSED, 2)


class Refusals:
    """A dead-letter queue that refuses some copies. Between two tries, the row of the work is noted."""

    def __init__(self, kind: Refusing, monkeypatch: pytest.MonkeyPatch, number: int, error: Exception) -> None:
        self.left, self.rows = number, list[Row]()
        send = MemorySQS.send_message

        def send_message(queue: MemorySQS, **request: Any) -> None:
            if request["QueueUrl"].startswith(DEAD_LETTER_URL):
                if self.left < number:
                    self.rows.append(kind.known())
                if self.left:
                    self.left -= 1
                    raise error
            send(queue, **request)

        monkeypatch.setattr(MemorySQS, "send_message", send_message)


DENIED = ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, "SendMessage")
SILENT = EndpointConnectionError(endpoint_url="https://sqs")


class TestRefusedCopies:
    """The dead-letter queue does not take a copy, so nothing remains but the message."""

    @pytest.mark.failure_mode("F261")
    @pytest.mark.parametrize("error", [DENIED, SILENT], ids=["denied", "silent"])
    def test_the_message_stays_until_the_queue_takes_the_copy(
        self, kind: Refusing, monkeypatch: pytest.MonkeyPatch, error: Exception
    ) -> None:
        """The processor is not called again, and the row says why. In the end, row and copy have the first reason."""
        refusals = Refusals(kind, monkeypatch, 3, error)
        kind.submit()
        kind.run()
        assert len(refusals.rows) == 3
        for row in refusals.rows:
            assert (row.status, row.reason_code, row.attempts) == (Status.FAILED, "dead_letter_refused", 1)
            assert "the dead-letter queue does not take the copy" in str(row.reason)
            assert str(row.reason).endswith("It was rejected: no invoice")
        rejected = kind.known()
        assert (rejected.status, rejected.reason) == (Status.REJECTED, "no invoice")
        assert rejected.reason_code == "unprocessable"
        [letter] = kind.sqs.dead_letters
        assert (letter.reason, letter.attributes["reason_code"]) == ("no invoice", "unprocessable")
        assert letter.attributes["rejected_fence"] == rejected.rejected_fence
        assert len(kind.calls) == 1
        kind.refuses = False
        kind.sqs.send(letter.body, letter.attributes)
        kind.run()
        assert (kind.known().status, len(kind.calls)) == (Status.PROCESSED, 2)
        assert kind.known().pending_reason_code is None

    @pytest.mark.failure_mode("F261")
    def test_a_lower_limit_than_that_of_the_queue_truncates_nothing(self) -> None:
        """Its text names the size and the fix. The copy is whole when the limit was raised."""
        messages = Refusing("messages")
        messages.sqs.dead_letter_bytes = 256 * 1024
        body = json.dumps({"order": KEY, "event": "1", "pad": "x" * 300_000})
        messages.sqs.send(body)
        messages.turn()
        assert messages.sqs.dead_letters == []
        assert "below the 300,0" in str(messages.known().reason)
        assert "Raise its MaximumMessageSize" in str(messages.known().reason)
        messages.sqs.dead_letter_bytes = MAX_MESSAGE_BYTES
        messages.run()
        [letter] = messages.sqs.dead_letters
        assert (letter.body == body, letter.reason, len(messages.calls)) == (True, "no invoice", 1)

    @pytest.mark.failure_mode("F261")
    def test_a_person_may_ask_for_another_attempt_meanwhile(self) -> None:
        """A reprocess request does not wait for the copy."""
        state = State(StateKind.OBJECT, "v1")
        row = Row(Status.FAILED, 7, version_id="v1", pending_reason_code="unprocessable", retry_at=0)
        change = one_change(own_message(Origin.REPROCESS, "b", "k", state, reprocess_id=f"{1:026}"))
        policy = Policy(3, 10**9, deletes=False)
        assert judge_state(row, change, state, now=1, policy=policy).verdict is Verdict.ACCEPTED
        event = replace(change, reprocess_id=None)
        assert judge_state(row, event, state, now=1, policy=policy).verdict is Verdict.EXHAUSTED
