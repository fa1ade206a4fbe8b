"""Streams and FIFO queues: the order of a key is kept, and a bad message holds up nothing but its key."""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, cast

import pytest
from botocore.exceptions import ClientError
from hypothesis import given, settings
from hypothesis import strategies as st

from intake_ledger import NotYet, Unprocessable
from intake_ledger.events.parser import OWN_MESSAGE
from intake_ledger.ledger.ledger import Claim
from intake_ledger.messages.keyed_message import KeyedMessage
from intake_ledger.messages.settings import MessageSourceType
from tests.settings import examples
from tests.unit.messages.stream_mapping import FunctionError, Record, StreamMapping, number_of
from tests.unit.messages.support import (
    INVOCATION_MS,
    LEASE_MS,
    SETTINGS,
    SOURCE_NAME,
    STREAM_ARN,
    Intake,
    dynamodb,
    kinesis,
    sqs,
)
from tests.unit.support import HOUR, MINUTE, START

FIFO_DLQ = "memory://dead-letters.fifo"


def numbered(*records: tuple[str, str]) -> list[dict[str, Any]]:
    """Records of Kinesis, of these orders and events."""
    return [kinesis(order, event, number) for number, (order, event) in enumerate(records, 1)]


def orders_of(intake: Intake, order: str) -> list[str]:
    return [message.identity for message in intake.calls if message.key == order]


def dying_function(intake: Intake) -> Callable[[Sequence[Record]], list[str]]:
    """A function whose process ends with a `KeyboardInterrupt` of the processor, and frees no locks."""

    def function(batch: Sequence[Record]) -> list[str]:
        worker = intake.worker()
        worker._services.ledger.let_go = lambda *_, **__: None  # type: ignore[method-assign]
        try:
            return intake.handle(list(batch), worker)
        except KeyboardInterrupt:
            raise FunctionError from None

    return function


def test_a_record_of_kinesis_reaches_the_processor() -> None:
    """Its data is decoded."""
    intake = Intake(MessageSourceType.KINESIS)
    assert intake.handle([kinesis("o-1", "e-1", 1)]) == []
    [message] = intake.calls
    assert (message.key, message.identity, message.source) == ("o-1", "e-1", "kinesis")
    assert message.body == json.loads(message.raw) == {"order": "o-1", "event": "e-1"}
    assert message.sent_at == START


def test_a_record_of_dynamodb_has_plain_values() -> None:
    """The expressions see them too."""
    intake = Intake(MessageSourceType.DYNAMODB, key="dynamodb.Keys.order", identity="eventID")
    assert intake.handle([dynamodb("o-1", "e-1", 1)]) == []
    [message] = intake.calls
    assert (message.key, message.identity) == ("o-1", "e-1")
    assert message.body["dynamodb"]["NewImage"] == {
        "order": "o-1",
        "amount": Decimal("12.5"),
        "lines": [{"count": 3, "gift": True, "note": None}],
        "tags": {"new", "paid"},
        "photo": b"\x00\xff",
    }
    assert (message.body["eventName"], message.body["dynamodb"]["SequenceNumber"]) == ("MODIFY", "1")
    assert json.loads(message.raw)["dynamodb"]["NewImage"]["amount"] == {"N": "12.50"}


@pytest.mark.failure_mode("F576")
def test_a_record_of_dynamodb_can_be_sent_to_another_function() -> None:
    """JSON has neither sets nor bytes nor exact numbers."""
    intake = Intake(MessageSourceType.DYNAMODB, key="dynamodb.Keys.order", identity="eventID")
    record, kind = dynamodb("o-1", "e-1", 1), intake.kind()
    record["dynamodb"]["NewImage"] |= {"sum": {"N": "0." + "12345" * 7}, "parts": {"NS": ["8", "0", "1.5"]}}
    [message] = kind.read({"Records": [record]}).messages
    claim = intake.ledger_of(kind).claim(cast("Any", message.parsed[0]), lease_ms=LEASE_MS)
    assert isinstance(claim, Claim)
    assert json.loads(json.dumps(kind.work(claim).request()))["body"]["dynamodb"]["NewImage"] == {
        "order": "o-1",
        "amount": 12.5,
        "lines": [{"count": 3, "gift": True, "note": None}],
        "tags": ["new", "paid"],
        "photo": "AP8=",
        "sum": "0." + "12345" * 7,
        "parts": [0, 1.5, 8],
    }


@pytest.mark.failure_mode("F653")
@pytest.mark.parametrize("source", [MessageSourceType.DYNAMODB, MessageSourceType.KINESIS, MessageSourceType.SQS])
@given(
    numbers=st.lists(
        st.one_of(
            st.integers(-(2**64), 2**64),
            st.decimals(min_value=-(10**30), max_value=10**30, allow_nan=False, places=9),
        ),
        min_size=1,
        max_size=4,
        unique=True,
    )
)
@settings(max_examples=examples(100))
def test_a_number_reaches_other_languages_as_it_is_or_as_a_text(
    source: MessageSourceType, numbers: list[int | Decimal]
) -> None:
    """JavaScript's numbers are doubles. Neither lists nor sets of a message lose a digit there."""
    shown = [format(one, "f") if isinstance(one, Decimal) else str(one) for one in numbers]
    intake = Intake(source)
    if source is MessageSourceType.DYNAMODB:
        record = dynamodb("o-1", "e-1", 1)
        record["dynamodb"]["NewImage"] = {"list": {"L": [{"N": one} for one in shown]}, "set": {"NS": shown}}
        intake = Intake(source, key="dynamodb.Keys.order", identity="eventID")
    else:
        numbers = [one for one in numbers if isinstance(one, int)] or [2**53 + 1]
        content: dict[str, Any] = {"order": "o-1", "event": "e-1", "list": numbers, "set": numbers}
        record = (
            kinesis("o-1", "e-1", 1, json.dumps(content)) if source is MessageSourceType.KINESIS else sqs(**content)
        )
    kind = intake.kind()
    [message] = kind.read({"Records": [record]}).messages
    claim = intake.ledger_of(kind).claim(cast("Any", message.parsed[0]), lease_ms=LEASE_MS)
    assert isinstance(claim, Claim)
    # Whole numbers become doubles, as in JavaScript.
    sent = json.loads(json.dumps(kind.work(claim).request()), parse_int=float)["body"]
    sent = sent["dynamodb"]["NewImage"] if source is MessageSourceType.DYNAMODB else sent
    for name in ("list", "set"):
        exact = {Decimal(repr(one)) if isinstance(one, float) else Decimal(one) for one in sent[name]}
        assert exact == {Decimal(one) for one in numbers}, name


@pytest.mark.failure_mode("F544")
@pytest.mark.failure_mode("F381")
def test_the_order_of_a_set_is_no_other_fingerprint() -> None:
    """Python orders the same set otherwise in another process, so a retry there would be taken for another message."""
    intake = Intake(
        MessageSourceType.DYNAMODB, key="dynamodb.Keys.order", identity="eventID", fingerprint="dynamodb.NewImage"
    )
    for numbers in (["0", "8"], ["8", "0"]):
        record = dynamodb("o-1", "e-1", 1)
        record["dynamodb"]["NewImage"]["parts"] = {"NS": numbers}
        assert intake.handle([record]) == []
    assert (intake.called, intake.sqs.dead_letters) == (["e-1"], [])


@pytest.mark.failure_mode("F264")
def test_a_record_of_dynamodb_tells_who_removed_the_item() -> None:
    """DynamoDB's TTL has a user identity, and a writer has none. A redriven copy has it too."""
    ttl = {"type": "Service", "principalId": "dynamodb.amazonaws.com"}
    record = dynamodb("o-1", "e-1", 1) | {"eventName": "REMOVE", "userIdentity": ttl}
    refuses = True

    def process(_: KeyedMessage) -> None:
        if refuses:
            raise Unprocessable("no")

    intake = Intake(MessageSourceType.DYNAMODB, process, key="dynamodb.Keys.order", identity="eventID")
    assert intake.handle([record, dynamodb("o-2", "e-2", 2)]) == []
    letter, _ = intake.sqs.dead_letters
    refuses = False
    fence = {"rejected_fence": {"stringValue": str(letter.attributes["rejected_fence"])}}
    assert intake.handle([sqs("o-1", "e-1") | {"body": letter.body, "messageAttributes": fence}]) == []
    first, other, again = intake.calls
    for message in (first, again):
        assert message.body["userIdentity"] == json.loads(message.raw)["userIdentity"] == ttl
        assert json.loads(message.raw) == record
    assert "userIdentity" not in other.body


@pytest.mark.failure_mode("F149")
def test_after_a_failure_the_later_records_of_its_key_wait_and_other_keys_go_on() -> None:
    """Lambda delivers from the lowest failed record on. The other keys are duplicates then."""
    down = True

    def process(message: KeyedMessage) -> None:
        if down and message.identity == "a-2":
            raise RuntimeError

    intake = Intake(MessageSourceType.KINESIS, process)
    records = numbered(("a", "a-1"), ("a", "a-2"), ("b", "b-1"), ("a", "a-3"), ("b", "b-2"))
    assert intake.handle(records) == [number_of(records[1])]
    assert intake.called == ["a-1", "a-2", "b-1", "b-2"]
    down = False
    intake.clock.advance(3_600_000)
    assert intake.handle(records[1:]) == []
    assert orders_of(intake, "a") == ["a-1", "a-2", "a-2", "a-3"]
    assert orders_of(intake, "b") == ["b-1", "b-2"]


@pytest.mark.failure_mode("F292")
@pytest.mark.parametrize(("left", "slept"), [(9_000, [5.0]), (7_000, [4.0]), (3_100, [0.1]), (3_000, []), (1_000, [])])
def test_the_wait_ends_before_the_function_does(left: int, slept: list[float]) -> None:
    """A function at its timeout answers nothing, and Lambda would deliver the whole batch again."""
    rest = INVOCATION_MS

    class Short(Intake):
        def get_remaining_time_in_millis(self) -> int:
            return rest

    def process(_: KeyedMessage) -> None:
        nonlocal rest
        rest = left
        raise NotYet("the customer", retry_in=60)

    intake = Short(MessageSourceType.KINESIS, process)
    assert intake.handle(numbered(("a", "a-1"))) != []
    assert intake.slept == pytest.approx(slept)


def test_a_record_that_waits_is_not_asked_for_all_the_time() -> None:
    """Lambda retries a stream at once, so the function waits a little before it answers."""
    intake = Intake(MessageSourceType.KINESIS, lambda _: (_ for _ in ()).throw(NotYet("the customer", retry_in=60)))
    assert intake.handle(numbered(("a", "a-1"))) != []
    assert intake.slept == [5.0]


@pytest.mark.parametrize(("left", "pause"), [(65.0, 2.0), (63.5, 0.5)])
def test_the_pause_of_a_stream_ends_before_its_invocation(left: float, pause: float) -> None:
    """Otherwise Lambda would end the function, and would deliver the whole batch again."""
    intake = Intake(MessageSourceType.KINESIS)
    ends = intake.clock() + round(left * 1000)
    intake.get_remaining_time_in_millis = lambda: ends - intake.clock()  # type: ignore[method-assign]

    def process(_: KeyedMessage) -> None:
        intake.clock.advance(60_000)
        raise NotYet("the customer", retry_in=60)

    intake.process = process
    assert intake.handle(numbered(("a", "a-1"))) != []
    assert intake.slept == [pause]


@pytest.mark.failure_mode("F150")
@pytest.mark.parametrize("bisect", [True, False])
def test_a_poisonous_record_is_dead_lettered_and_the_shard_goes_on(*, bisect: bool) -> None:
    """It raises at each attempt."""

    def process(message: KeyedMessage) -> None:
        if message.identity == "poison":
            raise RuntimeError

    intake = Intake(MessageSourceType.KINESIS, process)
    records = numbered(*((f"o-{number % 3}", "poison" if number == 4 else f"e-{number}") for number in range(12)))
    mapping = StreamMapping(intake.handle, batch_size=6, bisect=bisect)
    mapping.run(records)
    assert [letter.attributes["version_id"] for letter in intake.sqs.dead_letters] == ["poison"]
    assert intake.status("o-1", "poison") == "REJECTED"
    assert intake.outcomes["Committed"] == 11
    assert orders_of(intake, "o-1") == ["e-1", *["poison"] * SETTINGS.max_attempts, "e-7", "e-10"]
    assert mapping.dropped == []


class ShortQueues(Intake):
    """An intake whose dead-letter queue refuses long messages, as SQS does."""

    limit = 1024 * 1024

    def send_message(self, **request: Any) -> None:
        if len(request["MessageBody"]) > self.limit:
            raise ClientError({"Error": {"Code": "InvalidParameterValue", "Message": "too long"}}, "SendMessage")
        super().send_message(**request)


@pytest.mark.failure_mode("F617")
def test_a_record_too_long_for_its_copy_is_processed_with_another_identity() -> None:
    """A redrive of its place says so. Under its own identity it stays closed, as the content is."""

    def refuse(_: KeyedMessage) -> None:
        raise Unprocessable("no")

    intake = ShortQueues(MessageSourceType.KINESIS, refuse)

    def data(event: str) -> str:
        return json.dumps({"order": "o-1", "event": event, "text": "x" * 900_000})

    intake.handle([kinesis("o-1", "e-1", 7, data("e-1"))])
    intake.process = lambda _: None
    [letter] = intake.sqs.dead_letters
    fence = {"rejected_fence": {"stringValue": str(letter.attributes["rejected_fence"])}}
    intake.handle([sqs("o-1", "e-1") | {"body": letter.body, "messageAttributes": fence}])
    assert "put it again with another identity" in intake.sqs.dead_letters[-1].reason
    assert intake.handle([kinesis("o-1", "e-2", 8, data("e-2"))]) == []
    assert (intake.status("o-1", "e-1"), intake.status("o-1", "e-2")) == ("REJECTED", "PROCESSED")


@pytest.mark.failure_mode("F250")
@pytest.mark.parametrize(
    ("before", "bad", "batch_size"), [(0, 5, 5), (0, 5, 10), (0, 12, 12), (10, 10, 10), (5, 12, 10)]
)
def test_bad_records_of_many_keys_leave_their_shard_after_their_attempts(
    before: int, bad: int, batch_size: int
) -> None:
    """They open the circuit breaker, and no good record can come to close it: the shard delivers none."""

    def process(message: KeyedMessage) -> None:
        if message.key.startswith("bad"):
            raise RuntimeError

    intake = Intake(MessageSourceType.KINESIS, process)
    keys = [f"before-{n}" for n in range(before)] + [f"bad-{n}" for n in range(bad)] + [f"after-{n}" for n in range(10)]
    StreamMapping(lambda batch: intake.handle(list(batch)), batch_size).run(numbered(*((key, key) for key in keys)))
    calls = Counter(intake.called)
    assert calls == {key: SETTINGS.max_attempts if key.startswith("bad") else 1 for key in keys}
    assert {letter.attributes["attempts"] for letter in intake.sqs.dead_letters} == {SETTINGS.max_attempts}
    assert len(intake.sqs.dead_letters) == bad
    assert intake.clock() - START < HOUR


@pytest.mark.failure_mode("F250")
def test_an_outage_costs_a_stream_few_records() -> None:
    """The circuit breaker spreads the attempts: one probe for each pause."""
    intake = Intake(MessageSourceType.KINESIS)
    end = intake.clock() + HOUR

    def process(_: KeyedMessage) -> None:
        if intake.clock() < end:
            raise RuntimeError

    intake.process = process
    keys = [f"key-{number}" for number in range(40)]
    StreamMapping(lambda batch: intake.handle(list(batch))).run(numbered(*((key, key) for key in keys)))
    assert 1 <= len(intake.sqs.dead_letters) <= HOUR / (SETTINGS.max_attempts - 1) / MINUTE
    assert all(intake.status(key, key) in ("PROCESSED", "REJECTED") for key in keys)


@pytest.mark.failure_mode("F167")
def test_the_copy_of_a_record_that_is_too_long_says_where_the_record_is() -> None:
    """Base64 makes a record of 1 MiB longer than SQS's limit. A cut copy could not be redriven."""
    intake = ShortQueues(MessageSourceType.KINESIS, lambda _: (_ for _ in ()).throw(Unprocessable("no pieces")))
    data = json.dumps({"order": "o-1", "event": "e-1", "text": "x" * 900_000})
    assert intake.handle([kinesis("o-1", "e-1", 7, data)]) == []
    [letter] = intake.sqs.dead_letters
    pointer = json.loads(letter.body)[OWN_MESSAGE]
    assert (pointer["stream"], pointer["shard"]) == (STREAM_ARN, "shardId-000000000000")
    assert int(pointer["sequence_number"]) == 7
    assert int(letter.attributes["body_bytes"]) > ShortQueues.limit
    assert (letter.reason, letter.attributes["key"]) == ("no pieces", "o-1")


@pytest.mark.failure_mode("F167")
def test_the_redriven_copy_of_a_record_that_is_too_long_is_dead_lettered_again() -> None:
    """Its reason says where the record is."""
    intake = ShortQueues(MessageSourceType.KINESIS, lambda _: (_ for _ in ()).throw(Unprocessable("no pieces")))
    intake.handle([kinesis("o-1", "e-1", 7, json.dumps({"order": "o-1", "event": "e-1", "text": "x" * 900_000}))])
    [letter] = intake.sqs.dead_letters
    assert intake.handle([sqs("o-1", "e-1") | {"body": letter.body}]) == []
    again = intake.sqs.dead_letters[-1]
    assert again.body == letter.body
    assert STREAM_ARN in again.reason
    assert f"shard shardId-000000000000, sequence number {7:056}" in again.reason


@pytest.mark.failure_mode("F167")
def test_the_copy_of_a_record_that_fits_is_whole() -> None:
    """Its redrive is processed."""
    intake = ShortQueues(MessageSourceType.KINESIS, lambda _: (_ for _ in ()).throw(Unprocessable("no pieces")))
    record = kinesis("o-1", "e-1", 7, json.dumps({"order": "o-1", "event": "e-1", "text": "x" * 700_000}))
    intake.handle([record])
    [letter] = intake.sqs.dead_letters
    assert json.loads(letter.body)[OWN_MESSAGE]["record"] == record


@pytest.mark.failure_mode("F150")
@pytest.mark.parametrize("bisect", [True, False])
def test_a_record_that_kills_the_process_is_dead_lettered_and_the_shard_goes_on(*, bisect: bool) -> None:
    """Out of memory: no code of the function runs any more, and the function's error has no sequence number."""
    intake = Intake(MessageSourceType.KINESIS)

    def process(message: KeyedMessage) -> None:
        if message.identity == "poison":
            raise KeyboardInterrupt

    intake.process = process
    records = numbered(*((f"o-{number % 3}", "poison" if number == 4 else f"e-{number}") for number in range(12)))

    mapping = StreamMapping(dying_function(intake), batch_size=6, bisect=bisect)
    mapping.run(records)
    assert intake.called.count("poison") == SETTINGS.max_attempts
    [letter] = intake.sqs.dead_letters
    assert letter.attributes["version_id"] == "poison"
    assert letter.attributes["reason_code"] == "attempts_exhausted"
    assert intake.outcomes["Committed"] == 11
    assert mapping.dropped == []
    for order in ("o-0", "o-2"):
        assert len(orders_of(intake, order)) == 4
    # The lapse of a lease takes some invocations, and not one for each millisecond.
    assert len(mapping.invocations) < 3 * SETTINGS.max_attempts * (LEASE_MS / 5_000)


def test_a_stream_is_redriven_through_the_intakes_queue() -> None:
    """The copy has the record in an envelope."""
    intake = Intake(MessageSourceType.KINESIS, lambda _: (_ for _ in ()).throw(Unprocessable("no")))
    assert intake.handle([kinesis("o-1", "e-1", 1)]) == []
    [letter] = intake.sqs.dead_letters
    assert json.loads(letter.body)["intakeLedger"]["kind"] == "record"
    intake.process = lambda _: None
    fence = {"rejected_fence": {"stringValue": str(letter.attributes["rejected_fence"])}}
    copy = sqs("x", "y") | {"body": letter.body, "messageAttributes": fence}
    assert intake.handle([copy]) == []
    assert intake.status("o-1", "e-1") == "PROCESSED"
    first, second = intake.calls
    assert (second.body, second.idempotency_key) == (first.body, first.idempotency_key)
    assert second.fence > first.fence


@pytest.mark.failure_mode("F151")
@pytest.mark.parametrize(
    ("record", "why"),
    [
        (kinesis("o-1", "e-1", 1, data="no JSON"), "not JSON"),
        (kinesis("o-1", "e-1", 1) | {"kinesis": {"sequenceNumber": "1", "data": "!"}}, "no UTF-8 text"),
        (kinesis("o-1", "e-1", 1) | {"kinesis": {"sequenceNumber": "1", "data": "/w=="}}, "no UTF-8 text"),
        (kinesis("o-1", "e-1", 1, data='{"order": 1}'), "the identity is missing or null"),
    ],
)
def test_an_unreadable_record_of_a_stream_is_dead_lettered(record: dict[str, Any], why: str) -> None:
    """The shard goes on at once. No attempt could read it."""
    intake = Intake(MessageSourceType.KINESIS)
    assert intake.handle([record, kinesis("o-2", "e-2", 2)]) == []
    [letter] = intake.sqs.dead_letters
    assert why in letter.reason
    assert intake.called == ["e-2"]


@pytest.mark.parametrize("body", ["{}", '{"intakeLedger": {"kind": "audit"}}', '{"intakeLedger": 1}'])
def test_another_message_in_the_queue_of_a_stream_is_dead_lettered(body: str) -> None:
    """Only copies of records belong there."""
    intake = Intake(MessageSourceType.KINESIS)
    assert intake.handle([sqs("o-1", "e-1") | {"body": body}]) == []
    assert "not a record of kinesis" in intake.sqs.dead_letters[0].reason


def test_a_malformed_image_is_dead_lettered() -> None:
    """No code of this library may fail at it."""
    intake = Intake(MessageSourceType.DYNAMODB, key="dynamodb.Keys.order", identity="eventID")
    record = dynamodb("o-1", "e-1", 1)
    record["dynamodb"]["NewImage"] = {"order": {"X": 1}}
    other = dynamodb("o-1", "e-2", 2) | {"dynamodb": []}
    assert intake.handle([record, other]) == []
    reasons = [letter.reason.partition(":")[0] for letter in intake.sqs.dead_letters]
    assert reasons == ["the record's images are not DynamoDB's JSON", "the record has no change of DynamoDB"]


def test_after_a_failure_the_later_messages_of_a_fifo_group_are_returned() -> None:
    """Other groups go on. The order within the batch stays."""
    intake = Intake(MessageSourceType.FIFO, lambda message: 1 / 0 if message.identity == "e-2" else None)
    batch = [
        sqs("a", "e-1", group="g"),
        sqs("a", "e-2", group="g", receives=4),
        sqs("b", "e-3", group="h"),
        sqs("c", "e-4", group="g"),
    ]
    assert intake.handle(batch) == ["a.e-2", "c.e-4"]
    assert intake.called == ["e-1", "e-2", "e-3"]


def test_a_rejected_message_of_a_fifo_queue_does_not_hold_up_its_group() -> None:
    """Its copy goes to a FIFO dead-letter queue, in its group, and the copy of a second rejection too."""
    intake = Intake(
        MessageSourceType.FIFO,
        lambda message: (_ for _ in ()).throw(Unprocessable("no")) if message.identity == "e-1" else None,
        dlq_url=FIFO_DLQ,
    )
    assert intake.handle([sqs("a", "e-1", group="g"), sqs("a", "e-2", group="g")]) == []
    assert intake.called == ["e-1", "e-2"]
    fence = {"rejected_fence": {"stringValue": str(intake.sqs.dead_letters[0].attributes["rejected_fence"])}}
    assert intake.handle([sqs("a", "e-1", group="g") | {"messageAttributes": fence}]) == []
    assert [sent["MessageGroupId"] for sent in intake.fifo_sends] == ["g", "g"]
    assert len({sent["MessageDeduplicationId"] for sent in intake.fifo_sends}) == 2


def test_records_that_do_not_fit_into_the_invocation_are_returned() -> None:
    """Each takes two minutes of the five."""
    intake = Intake(MessageSourceType.KINESIS)
    began = intake.clock()
    intake.process = lambda _: intake.clock.advance(120_000)
    intake.get_remaining_time_in_millis = lambda: INVOCATION_MS - (intake.clock() - began)  # type: ignore[method-assign]
    records = numbered(*((f"o-{number}", "e") for number in range(5)))
    assert intake.handle(records) == [number_of(records[2])]
    assert len(intake.calls) == 2


@settings(max_examples=examples(24), deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.sampled_from(["good", "fails once", "poison", "kills"])), max_size=14
    ),
    st.integers(1, 7),
    st.booleans(),
)
def test_the_order_of_each_key_is_the_streams(script: list[tuple[str, str]], batch_size: int, bisect: bool) -> None:
    """With failures, kills and bisection, nothing is lost, and no key is committed in another order."""
    intake = Intake(MessageSourceType.KINESIS)
    kinds = {f"e-{number}": kind for number, (_, kind) in enumerate(script)}

    def process(message: KeyedMessage) -> None:
        kind = kinds[message.identity]
        if kind == "poison" or (kind == "fails once" and message.attempt == 1):
            raise RuntimeError
        if kind == "kills":
            raise KeyboardInterrupt

    intake.process = process

    mapping = StreamMapping(dying_function(intake), batch_size=batch_size, bisect=bisect)
    mapping.run([kinesis(key, f"e-{number}", number) for number, (key, _) in enumerate(script)])
    assert mapping.dropped == []
    dead = {str(letter.attributes["version_id"]) for letter in intake.sqs.dead_letters}
    for number, (key, kind) in enumerate(script):
        good = kind in ("good", "fails once")
        assert intake.status(key, f"e-{number}") == ("PROCESSED" if good else "REJECTED")
        assert (f"e-{number}" in dead) is not good
    for key in "abc":
        begun = list(dict.fromkeys(orders_of(intake, key)))
        assert begun == [f"e-{number}" for number, (its, _) in enumerate(script) if its == key]
        fences = [message.fence for message in intake.calls if message.key == key]
        assert fences == sorted(set(fences))


def test_the_rows_are_those_of_the_intake() -> None:
    """Operators look for them by this partition key."""
    intake = Intake(MessageSourceType.KINESIS)
    intake.handle([kinesis("o/1", "e-1", 1)])
    assert sorted(intake.table.items) == [(f"{SOURCE_NAME}/o/1", "orders@lock"), (f"{SOURCE_NAME}/o/1", "orders@v#e-1")]
