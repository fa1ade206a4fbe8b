"""A message that waits: by its visibility while few messages are in flight, as a delayed copy of itself otherwise."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import pytest
from botocore.exceptions import ClientError
from hypothesis import given
from hypothesis import strategies as st

from intake_ledger.aws.queues import NotDone, Queues
from intake_ledger.consumer.returns import LOOK_MS, MAX_DELAY_SECONDS, Crowd, Returns
from intake_ledger.events.parser import Message
from intake_ledger.protocol.row import Row, Status
from tests.kinds.cells import KEY, Cell
from tests.settings import CONSUMER
from tests.unit.support import DAY, HOUR, MINUTE, SECOND, Clock

TRACE = "Root=1-5e1b4151-5ac6c58f5b5daa6f;Parent=x;Sampled=0;Lineage=a:1|b:0"


def record(
    name: str = "m", *, receives: int = 1, sent_at: int | None = 0, wait: object = None, **attributes: str
) -> dict[str, Any]:
    """A record of a queue. `wait` is the past of a copy."""
    told = {} if sent_at is None else {"SentTimestamp": str(sent_at)}
    marks = {} if wait is None else {"intake_wait": {"stringValue": json.dumps(wait), "dataType": "String"}}
    return {
        "messageId": name,
        "receiptHandle": f"handle-{name}",
        "body": "{}",
        "attributes": {"ApproximateReceiveCount": str(receives), **told, **attributes},
        "messageAttributes": marks,
    }


class Sqs:
    """Takes copies, unless it is told not to."""

    def __init__(self) -> None:
        self.in_flight, self.looks, self.refuses = 0, 0, False
        self.copies: list[Mapping[str, Any]] = []
        self.hidden: dict[str, float] = {}

    def read(self) -> int:
        self.looks += 1
        return self.in_flight

    def send_copies(self, entries: list[Mapping[str, Any]], **_: Any) -> tuple[set[int], NotDone | None]:
        if self.refuses:
            return set(), NotDone("no")
        self.copies += entries
        return {*range(len(entries))}, None

    def deliver_later(self, delays: list[tuple[str, float]], **_: Any) -> None:
        self.hidden |= dict(delays)


class Bench:
    """The returns of one batch, with this number of thousand messages in flight."""

    def __init__(self, thousands: float = 60.001, *, fifo: bool = False) -> None:
        self.clock, self.sqs = Clock(), Sqs()
        self.sqs.in_flight = round(thousands * 1000)
        self.errors: list[Exception] = []

        def report(_: str, error: Exception) -> None:
            self.errors.append(error)

        self.crowd = Crowd(self.sqs.read, limit=120_000, clock=self.clock, report=report)
        self.returns = Returns(
            cast("Queues", self.sqs),
            clock=self.clock,
            time_left_ms=lambda: 10_000,
            report=report,
            settings=replace(CONSUMER, queue_url="queue.fifo") if fifo else CONSUMER,
            crowd=self.crowd,
            jitter=lambda: 0.5,
        )

    def message(self, name: str = "m", *, age: int = 0, receives: int = 1, **more: Any) -> Message:
        return Message(record(name, receives=receives, sent_at=self.clock() - age, **more))

    def ends(self, message: Message, seconds: float) -> str:
        """The kind of the wait: a copy, or hidden."""
        self.returns.add(message, seconds)
        taken, refused = self.returns.send_copies()
        self.returns.flush()
        assert not refused
        return "copy" if taken else "hidden"


@pytest.mark.failure_mode("F330")
class TestTheSwitch:
    """A copy costs more, so it is for a crowded queue, and for a message that SQS would delete."""

    def test_a_long_wait_is_a_copy_while_many_are_in_flight(self) -> None:
        bench = Bench()
        assert bench.ends(bench.message(), CONSUMER.least_copy_seconds) == "copy"
        [entry] = bench.sqs.copies
        assert entry["DelaySeconds"] == CONSUMER.least_copy_seconds

    @pytest.mark.parametrize("in_flight", [0, 60])
    def test_it_is_hidden_while_few_are(self, in_flight: int) -> None:
        bench = Bench(in_flight)
        assert bench.ends(bench.message(), 3_600) == "hidden"

    def test_a_short_wait_is_hidden(self) -> None:
        bench = Bench()
        assert bench.ends(bench.message(), CONSUMER.least_copy_seconds - 1) == "hidden"
        assert bench.sqs.looks == 0, "no request"

    @pytest.mark.failure_mode("F331")
    def test_a_message_copies_itself_once(self) -> None:
        """Its second delivery means that a worker died after the first one. There may be a copy already."""
        bench = Bench()
        again = bench.message(receives=2)
        assert bench.ends(again, 3_600) == "hidden"
        named = Bench()
        message = named.message(receives=2)
        message.is_named = True
        assert named.ends(message, 3_600) == "copy", "this attempt has written its own wait"

    def test_order_is_kept_by_visibility_only(self) -> None:
        bench = Bench(fifo=True)
        assert bench.ends(bench.message(), 3_600) == "hidden"
        shard = Bench()
        message = shard.message()
        message.in_shard = True
        assert shard.ends(message, 3_600) == "hidden"

    def test_the_age_of_the_message_must_be_known(self) -> None:
        bench = Bench()
        assert bench.ends(Message(record(sent_at=None)), 3_600) == "hidden"

    @pytest.mark.failure_mode("F332")
    @pytest.mark.parametrize("receives", [1, 2, 9])
    def test_a_message_that_sqs_would_delete_copies_itself_in_time(self, receives: int) -> None:
        """At each delivery, with each wait. Its copy has another retention."""
        hold = CONSUMER.max_hold_seconds * SECOND
        bench = Bench(0)
        assert bench.ends(bench.message(age=hold - HOUR, receives=receives), 3_600) == "copy"
        bench = Bench(0)
        assert bench.ends(bench.message(age=hold - HOUR, receives=receives), 3_599) == "hidden"

    @pytest.mark.failure_mode("F332")
    def test_a_message_with_many_receives_copies_itself(self) -> None:
        """SQS would move it to the dead-letter queue, without a reason."""
        most = CONSUMER.max_receives
        for receives, end in ((most * 3 // 4 - 1, "hidden"), (most * 3 // 4, "copy"), (most, "copy")):
            bench = Bench(0)
            assert bench.ends(bench.message(receives=receives), 5) == end

    @pytest.mark.failure_mode("F331")
    def test_a_refused_copy_is_none(self) -> None:
        """The message is hidden, and is not acknowledged."""
        bench = Bench()
        bench.sqs.refuses = True
        message = bench.message()
        bench.returns.add(message, 3_600)
        assert bench.returns.send_copies() == ([], [(message, 3_600)])
        bench.returns.add(message, 3_600)
        bench.returns.flush()
        assert bench.sqs.hidden == {"handle-m": 3_600}
        assert [type(one) for one in bench.errors] == [NotDone]

    def test_long_waits_that_begin_together_do_not_end_their_first_hop_together(self) -> None:
        bench = Bench()
        assert bench.ends(bench.message(), 11 * 3_600) == "copy"
        assert bench.sqs.copies[0]["DelaySeconds"] == MAX_DELAY_SECONDS * 0.75
        hop = Bench()
        passed = hop.message(wait=[hop.clock() - HOUR, 1, hop.clock() + HOUR, "m0", []])
        passed.is_passed_on = True
        assert hop.ends(passed, 3_600) == "copy"
        assert hop.sqs.copies[0]["DelaySeconds"] == MAX_DELAY_SECONDS


class TestCrowd:
    """The number of messages in flight is read seldom, and often enough."""

    def test_it_is_read_once_in_a_minute(self) -> None:
        bench = Bench()
        assert [bench.crowd.is_crowded() for _ in range(20)] == [True] * 20
        assert bench.sqs.looks == 1
        bench.clock.advance(LOOK_MS)
        bench.sqs.in_flight = 0
        assert not bench.crowd.is_crowded()
        assert bench.sqs.looks == 2

    def test_it_is_read_again_after_some_messages(self) -> None:
        """A thousand environments must not fill the queue between two looks."""
        bench = Bench(0)
        for _ in range(20):
            assert not bench.crowd.is_crowded()
        bench.sqs.in_flight = 99_000
        assert bench.crowd.is_crowded()

    def test_an_error_changes_nothing(self) -> None:
        bench = Bench()
        assert bench.crowd.is_crowded()
        bench.clock.advance(LOOK_MS)
        bench.sqs.read = lambda: 1 // 0  # type: ignore[method-assign]
        bench.crowd._read = bench.sqs.read
        assert bench.crowd.is_crowded()
        assert [type(one) for one in bench.errors] == [ZeroDivisionError]


class TestWhatACopyCarries:
    """Ages, receives, names, the mark of a redrive and the trace."""

    def test_ages_and_receives_go_on(self) -> None:
        now = 10 * DAY
        first = Message(record("m1", receives=3, sent_at=now - DAY))
        entry = first.copy(now + HOUR)
        copied = received(entry, "m2", sent_at=now)
        assert (copied.sent_at, copied.receives, copied.due, copied.first_id) == (now - DAY, 4, now + HOUR, "m1")
        assert copied.delivered == 1
        passed = copied.copy(now + HOUR)
        assert received(passed, "m3", sent_at=now + 1).receives == 5
        copied.is_passed_on = True
        assert received(copied.copy(now + HOUR), "m3", sent_at=now + 1).receives == 4, "it was not judged"

    @pytest.mark.failure_mode("F333")
    @pytest.mark.parametrize(
        ("receives", "named", "names"),
        [(1, False, ("m3", "m1")), (1, True, ("m3", "m2")), (2, False, ("m3", "m2", "m1")), (2, True, ("m3", "m2"))],
    )
    def test_it_is_known_by_the_names_that_a_row_may_have(
        self, receives: int, named: bool, names: tuple[str, ...]
    ) -> None:
        """An earlier delivery of the same message may have written its ID."""
        now = DAY
        message = Message(record("m2", receives=receives, sent_at=now, wait=[now, 1, now, "m1", ["m1"]]))
        message.is_named = named
        assert received(message.copy(now), "m3", sent_at=now).names == names

    @pytest.mark.failure_mode("F334")
    def test_a_redrive_stays_one(self) -> None:
        marks = {"rejected_fence": {"stringValue": "17", "dataType": "Number"}}
        message = Message(record(sent_at=DAY) | {"messageAttributes": marks})
        assert received(message.copy(DAY), "m2", sent_at=DAY).rejected_fence == 17

    def test_its_trace_stays_the_one_that_it_came_with(self) -> None:
        """Lambda counts the passes of a trace. The hops of a wait must not count as a loop."""
        message = Message(record(sent_at=DAY, AWSTraceHeader=TRACE))
        assert message.copy(DAY)["MessageSystemAttributes"]["AWSTraceHeader"]["StringValue"] == TRACE
        fresh = Message(record(sent_at=DAY)).copy(DAY)["MessageSystemAttributes"]["AWSTraceHeader"]["StringValue"]
        assert fresh.startswith("Root=1-")
        assert "Lineage" not in fresh

    def test_its_group_stays(self) -> None:
        """A standard queue may share its time fairly among groups."""
        assert Message(record(sent_at=DAY, MessageGroupId="g")).copy(DAY)["MessageGroupId"] == "g"
        assert "MessageGroupId" not in Message(record(sent_at=DAY)).copy(DAY)

    @given(
        wait=st.recursive(
            st.none() | st.booleans() | st.integers() | st.text(max_size=3) | st.floats(allow_nan=False),
            lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
        )
    )
    def test_anything_else_is_a_new_message(self, wait: object) -> None:
        """Senders choose attributes."""
        message = Message(record(sent_at=DAY, wait=wait))
        assert (message.sent_at, message.receives, message.due) == (DAY, 1, 0)

    @pytest.mark.parametrize(
        "wait",
        [
            [DAY + HOUR, 1, DAY, "m", []],
            [DAY, 0, DAY, "m", []],
            [DAY, 1, DAY + 13 * HOUR, "m", []],
            [DAY, 1, DAY - HOUR, "m", []],
            [DAY, 1, DAY, "m", ["a", "b", "c", "d"]],
            [True, 1, DAY, "m", []],
        ],
    )
    def test_a_past_that_cannot_be_is_none(self, wait: object) -> None:
        """A copy that was sent after its time was moved by a person, or by SQS: it is new."""
        assert Message(record(sent_at=DAY, wait=wait)).due == 0


@pytest.mark.failure_mode("F333")
@pytest.mark.parametrize(
    ("row", "needless"),
    [
        (Row(Status.FAILED, 1, retry_at=DAY + 1, waiter=f"other {DAY}"), True),
        (Row(Status.FAILED, 1, retry_at=DAY + 1, waiter=f"other {DAY - 1}"), False),
        (Row(Status.FAILED, 1, retry_at=DAY + 1, waiter=f"m {DAY}"), False),
        (Row(Status.FAILED, 1, retry_at=DAY + 1, waiter=f"m0 {DAY}"), False),
        (Row(Status.FAILED, 1, retry_at=DAY + 1), False),
        (Row(Status.FAILED, 1, retry_at=DAY, waiter=f"other {DAY}"), False),
        (Row(Status.PROCESSING, 1, lease_until=DAY + 1, waiter=f"other {DAY}"), False),
    ],
)
def test_a_message_is_needless_if_another_one_waits_that_was_not_sent_before(row: Row, needless: bool) -> None:
    """A purge may have deleted the other one. Then this one, which was sent later, is all that is left."""
    message = Message(record(sent_at=DAY, wait=[DAY, 1, DAY, "m0", ["m0"]]))
    assert message.is_needless(row, DAY) is needless


def received(entry: Mapping[str, Any], name: str, *, sent_at: int) -> Message:
    """The copy, at its first delivery."""
    marks = {
        key: {"stringValue": one["StringValue"], "dataType": one["DataType"]}
        for key, one in entry["MessageAttributes"].items()
    }
    return Message(record(name, sent_at=sent_at) | {"body": entry["MessageBody"], "messageAttributes": marks})


@pytest.mark.failure_mode("F330")
def test_ready_messages_end_although_many_wait() -> None:
    """60 wait for eleven hours, and 24 may be in flight. SQS delivered nothing else until the first wait was over."""
    cell = Cell(in_flight_limit=24)
    for number in range(60):
        cell.answers.append({"notYet": "no rates", "retryInSeconds": 39_600})
        cell.submit_key(f"waits-{number}")
    while cell.turn():
        pass
    for number in range(8):
        cell.submit_key(f"ready-{number}")
    began = cell.clock()
    cell.run(hours=0.1)
    assert {call.key for call in cell.calls if call.key.startswith("ready")} == {f"ready-{n}" for n in range(8)}
    assert cell.sqs.in_flight <= 13
    assert cell.clock() - began <= 6 * MINUTE
    cell.run()
    assert len(cell.calls) == 60 + 8 + 60
    assert not cell.sqs.messages


@pytest.mark.failure_mode("F330")
def test_a_hop_asks_the_ledger_nothing() -> None:
    """It is passed on until its wait is over."""
    cell = Cell(crowded=True, answers=[{"notYet": "no rates", "retryInSeconds": 3_600}])
    cell.submit()
    cell.turn()
    before = len(cell.local.requests)
    cell.run(hours=0.95)
    hops = cell.local.requests[before:]
    assert set(hops) <= {"get_queue_attributes", "send_message_batch", "get_item"}
    assert hops.count("get_item") <= 5, "the request of a person to try again now, once in a minute"
    assert 3 <= hops.count("send_message_batch") <= 5
    cell.run()
    assert [call.attempt for call in cell.calls] == [1, 1]


@pytest.mark.quiet_tables
@pytest.mark.failure_mode("F330")
def test_a_person_reaches_a_copy_within_fifteen_minutes() -> None:
    """Only the copy has the content of a message."""
    cell = Cell("messages", crowded=True, answers=[{"notYet": "no rates", "retryInSeconds": 39_600}])
    cell.submit()
    cell.turn()
    cell.clock.advance(MINUTE)
    cell.retry_now()
    began = cell.clock()
    cell.run(hours=0.26)
    assert [call.key for call in cell.calls] == [KEY, KEY]
    assert cell.clock() - began <= 16 * MINUTE


@pytest.mark.failure_mode("F332")
@pytest.mark.parametrize(("runner", "days"), [("machine", 21), ("durable", 366)])
def test_an_execution_may_run_for_longer_than_the_queue_keeps_a_message(runner: str, days: int) -> None:
    """Three weeks or a year, with a retention of four days."""
    cell = Cell("messages", runner, execution_days=days + 1)
    cell.submit()
    cell.run(hours=(days + 2) * 24, minutes=days * 24 * 60)
    assert cell.known().status is Status.PROCESSED
    assert len(cell.calls) == 1
    assert cell.expired == 0


def test_copies_are_sent_in_requests_that_each_queue_takes() -> None:
    """Ten messages and 256 KiB at most."""
    sent: list[list[str]] = []

    class Client:
        def send_message_batch(self, *, QueueUrl: str, Entries: list[dict[str, Any]]) -> dict[str, Any]:  # noqa: N803
            assert QueueUrl == "queue"
            assert sum(len(one["MessageBody"]) for one in Entries) <= 256 * 1024
            sent.append([one["Id"] for one in Entries])
            if len(sent) == 2:
                raise ClientError({"Error": {"Code": "ServiceUnavailable"}}, "SendMessageBatch")
            return {"Successful": [{"Id": one["Id"]} for one in Entries if one["Id"] != "3"]}

    queues = Queues(lambda: cast("Any", Client()), "queue", "dlq")
    entries = [{"MessageBody": "x" * size} for size in (10, 10, 10, 10, 200_000, 100_000, *[1] * 12)]
    taken, why = queues.send_copies(entries)
    assert sent == [["0", "1", "2", "3", "4"], [str(n) for n in range(5, 15)], ["15", "16", "17"]]
    assert taken == {0, 1, 2, 4, 15, 16, 17}
    assert "11 of 18 copies were not taken, first: " in str(why)
