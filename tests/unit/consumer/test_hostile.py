"""Messages from anyone who may send to the queue: the answer is always valid, nothing is lost, and no other message of
the batch is harmed.
"""

import json
import tracemalloc
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import pytest
from botocore.exceptions import ClientError
from hypothesis import given, settings
from hypothesis import strategies as st

from intake_ledger.aws.queues import Queues
from intake_ledger.consumer.batch import ProcessingTime
from intake_ledger.consumer.composition import handler
from intake_ledger.consumer.consumer import Consumer
from intake_ledger.events import parser as changes
from intake_ledger.events.parser import Ignored, Message, Unparseable, own_message, parse_message, read_batch
from intake_ledger.protocol.change import Change, Origin, State, StateKind
from intake_ledger_testing.consumers import object_consumer
from tests.settings import examples
from tests.unit.consumer.test_consumer import Bench, Context, message, put, raising
from tests.unit.consumer.test_groups import new_world
from tests.unit.support import (
    BUCKET,
    SECOND,
    created,
    eventbridge,
    notification,
    record,
    sns,
)

if TYPE_CHECKING:
    from cdk_intake_ledger.testing import MemoryDynamoDB

MIB = 1024 * 1024
STATE = State(StateKind.OBJECT, "v1", "e1", 1)
GOOD = ("good 1", "good 2", "good 3")


class Sqs:
    """SQS as it refuses: texts that are no UTF-8 or too long, more than ten entries, missing handles."""

    def __init__(self, limit: int = MIB) -> None:
        self.limit = limit
        self.copies: list[tuple[str, dict[str, Any]]] = []

    def send_message(
        self,
        *,
        QueueUrl: str,  # noqa: N803
        MessageBody: str,  # noqa: N803
        MessageAttributes: Mapping[str, Any] | None = None,  # noqa: N803
    ) -> None:
        assert QueueUrl == "dlq"
        attributes = {name: one["StringValue"] for name, one in (MessageAttributes or {}).items()}
        texts = [MessageBody, *attributes, *attributes.values()]
        assert all(texts)
        for text in texts:
            assert all(
                c in "\t\n\r" or " " <= c <= "\ud7ff" or (c >= "\ue000" and c not in "\ufffe\uffff") for c in text
            )
        if sum(len(text.encode()) for text in texts) > self.limit:
            raise ClientError({"Error": {"Code": "InvalidParameterValue"}}, "SendMessage")
        self.copies.append((MessageBody, attributes))

    def get_queue_attributes(self, **_: Any) -> dict[str, Any]:
        """Few messages are in flight."""
        return {"Attributes": {"ApproximateNumberOfMessagesNotVisible": "0"}}

    def change_message_visibility_batch(self, *, QueueUrl: str, Entries: list[dict[str, Any]]) -> dict[str, Any]:  # noqa: N803
        assert QueueUrl == "queue"
        assert 1 <= len(Entries) <= 10
        assert all(one["ReceiptHandle"] and 0 <= one["VisibilityTimeout"] <= 43_200 for one in Entries)
        return {}


def consumer(bench: Bench, sqs: Sqs) -> Consumer:
    return object_consumer(
        replace(bench.services(), queues=Queues(lambda: cast("Any", sqs), "queue", "dlq")),
        bench.process,
        processing_time=ProcessingTime(1.0),
    )


def handle(bench: Bench, sqs: Sqs, *records: Mapping[str, Any]) -> list[str]:
    """The names of the messages that are given back."""
    clock = bench.world.clock
    answer = consumer(bench, sqs).handle({"Records": [*records]}, Context(clock, clock() + 800 * SECOND))
    assert set(answer) == {"batchItemFailures"}
    json.dumps(answer).encode()
    return [one["itemIdentifier"] for one in answer["batchItemFailures"]]


def unreadable(number: int) -> list[dict[str, Any]]:
    """Records of an unknown version, with additional fields."""
    return [
        {"eventSource": "aws:s3", "eventName": "ObjectCreated:Put", "eventVersion": f"9.{n}"} for n in range(number)
    ]


class TestOneDeadLetter:
    """F107: one copy for a message, however much is wrong with it."""

    @pytest.mark.failure_mode("F107")
    def test_a_thousand_unreadable_records_are_one(self) -> None:
        """As they came, with their number and the first reason."""
        bench, sqs = Bench(new_world()), Sqs()
        body = notification(*unreadable(1_000))
        assert handle(bench, sqs, message(body)) == []
        [(copy, attributes)] = sqs.copies
        assert copy == body
        assert attributes["unreadable_records"] == "1000"
        assert attributes["reason"].startswith("1000 records cannot be handled, the first one: eventVersion is '9.0'")
        assert len(bench.telemetry.unparsed) == 1

    @pytest.mark.failure_mode("F107")
    def test_unreadable_records_beside_readable_ones_are_one(self) -> None:
        """The readable records are processed. The others become one separate message."""
        bench, sqs = Bench(new_world()), Sqs()
        state = bench.world.s3.put("good", "1")
        foreign = [record(f"{n}", state, bucket="another") for n in range(3)]
        bad = unreadable(3)
        body = notification(foreign[0], bad[0], record("good", state), bad[1], foreign[1], bad[2], foreign[2])
        assert handle(bench, sqs, message(body)) == []
        assert [change.key for change in bench.seen] == ["good"]
        [(copy, attributes)] = sqs.copies
        assert json.loads(copy)["Records"] == [*foreign, *bad]
        assert attributes["unreadable_records"] == "6"

    @pytest.mark.failure_mode("F107")
    def test_a_copy_that_is_moved_back_does_no_harm(self) -> None:
        """The message becomes another copy, and committed states stay committed."""
        bench, sqs = Bench(new_world()), Sqs()
        state = bench.world.s3.put("good", "1")
        assert handle(bench, sqs, message(notification(record("good", state), *unreadable(2)))) == []
        [(copy, _)] = sqs.copies
        assert handle(bench, sqs, message(copy)) == []
        assert len(bench.seen) == 1
        assert sqs.copies[1] == sqs.copies[0]

    @pytest.mark.failure_mode("F107")
    def test_nothing_is_copied_while_a_neighbour_is_open(self) -> None:
        """The message comes back with all of it."""
        bench, sqs = Bench(new_world()), Sqs()
        bench.acts = [raising(ValueError("no"))]
        state = bench.world.s3.put("good", "1")
        body = notification(*unreadable(5), record("good", state))
        assert handle(bench, sqs, message(body)) == ["m1"]
        assert sqs.copies == []
        bench.world.clock.advance(60 * SECOND)
        assert handle(bench, sqs, message(body, receives=2)) == []
        assert len(sqs.copies) == 1

    @pytest.mark.failure_mode("F107")
    @pytest.mark.parametrize(
        "body",
        [
            "x" * MIB,
            "[" * MIB,
            '{"Records":' * (MIB // 11),
            '{"Records":[' + "{}," * (MIB // 24) + "{}]}",
            '{"Records":' + "9" * (MIB - 12) + "}",
            "ä" * (MIB // 2),
        ],
        ids=["text", "brackets", "nested", "empty records", "one number", "not ASCII"],
    )
    def test_a_megabyte_of_garbage_is_one_copy_in_bounded_memory(self, body: str) -> None:
        """As it came; the reason has no room, and the log has it. Its neighbour is processed."""
        bench, sqs = Bench(new_world()), Sqs()
        state, good = put(bench, key="good")
        tracemalloc.start()
        try:
            assert handle(bench, sqs, message(body, "bad"), message(good, "good")) == []
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert [copy for copy, _ in sqs.copies] == [body]
        assert bench.row(state, "good").settled
        assert peak < 64 * MIB

    @pytest.mark.failure_mode("F107")
    def test_each_record_is_written_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The work grows as the message, in counted characters: 300,000 records of garbage take a second."""
        state = new_world().s3.put("good", "1")
        body = notification(*unreadable(500), *[record("good", state)] * 500)
        written = []

        def count(size: Callable[..., Any], result: Callable[[Any], int]) -> Callable[..., Any]:
            def call(*arguments: Any, **options: Any) -> Any:
                answer = size(*arguments, **options)
                written.append(result(answer))
                return answer

            return call

        monkeypatch.setattr(json, "dumps", count(json.dumps, len))
        monkeypatch.setattr(changes, "_utf8_bytes", count(changes._utf8_bytes, int))
        assert len(parse_message(body)) == 501
        assert sum(written) < 3 * len(body)

    @pytest.mark.failure_mode("F261")
    def test_a_dead_letter_queue_with_a_lower_limit_gets_no_part(self) -> None:
        """A queue of the team may take 256 KiB, as all of them did until 2025. The message is the only whole one."""
        bench, sqs = Bench(new_world()), Sqs(limit=256 * 1024)
        body = "ä" * (MIB // 2)
        assert handle(bench, sqs, message(body)) == ["m1"]
        assert sqs.copies == []
        [error] = bench.telemetry.troubles
        assert "1,048,576 bytes of the message. Raise its MaximumMessageSize" in str(error)

    @pytest.mark.failure_mode("F107")
    def test_a_part_is_never_longer_than_the_message(self) -> None:
        """Also of text that ASCII would make three times as long."""
        state = new_world().s3.put("good", "1")
        bad = unreadable(1)[0] | {"more": "ä" * 1_000}
        body = json.dumps({"Records": [record("good", state), bad]}, ensure_ascii=False)
        change, refused = parse_message(body)
        assert isinstance(change, Change)
        assert isinstance(refused, Unparseable)
        assert json.loads(refused.body) == {"Records": [bad]}
        assert len(refused.body.encode()) < len(body.encode())

    @pytest.mark.failure_mode("F107")
    def test_what_sqs_does_not_take_stays_in_its_envelope(self) -> None:
        """The text inside an SNS envelope may have any character."""
        bench, sqs = Bench(new_world()), Sqs()
        body = sns(json.dumps({"Records": [unreadable(1)[0] | {"more": "\uffff\x01"}]}, ensure_ascii=False))
        assert handle(bench, sqs, message(body), message(sns('\x00"\uffff'), "m2")) == []
        assert [copy for copy, _ in sqs.copies] == [body, sns('\x00"\uffff')]


@pytest.mark.parametrize("event", [{}, {"Records": None}, {"Records": "x"}, {"Records": [1]}, {"key1": "value1"}])
def test_an_event_that_is_not_of_sqs_is_refused_in_words(event: Any) -> None:
    """This happens when a person tests the function in the console."""
    with pytest.raises(ValueError, match="send messages to the pipeline's queue"):
        read_batch(event)
    assert callable(handler)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=10**30, max_value=10**60)
    | st.floats()
    | st.text(st.characters(), max_size=20)
    | st.sampled_from(["", "null", "\x00", "\uffff", "%FF", "s3:TestEvent", "9" * 5_000, "aws:s3", "2.1", BUCKET]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


@st.composite
def altered(draw: st.DrawFn, content: Any) -> Any:
    """The content with one to three of its values replaced, left out or wrapped in many lists."""
    content = json.loads(json.dumps(content))
    for _ in range(draw(st.integers(1, 3))):
        where, place = content, None
        while isinstance(where, dict | list) and where:
            parent = where
            place = draw(st.sampled_from(sorted(where) if isinstance(where, dict) else range(len(where))))
            where = parent[place]
            if draw(st.booleans()):
                break
        if place is None:
            return draw(json_values)
        match draw(st.integers(0, 5)):
            case 0:
                del parent[place]
            case 1:
                depth = draw(st.sampled_from((1, 100, 5_000)))
                parent[place] = json.loads("[" * min(depth, 900) + "1" + "]" * min(depth, 900))
            case _:
                parent[place] = draw(json_values)
    return content


def _shapes() -> list[Any]:
    state = new_world().s3.put("hostile", "1")
    return [
        json.loads(notification(record("hostile", state))),
        json.loads(notification(record("hostile", state), record("other", state), *unreadable(2))),
        json.loads(eventbridge("hostile", state)),
        json.loads(eventbridge("hostile", state, "ObjectRemoved:Delete")),
        json.loads(own_message(Origin.AUDIT, BUCKET, "hostile", state)),
        json.loads(own_message(Origin.REPROCESS, BUCKET, "hostile", state, reprocess_id="0" * 26)),
        json.loads(sns(notification(record("hostile", state)))),
    ]


bodies = (
    st.text(st.characters(), min_size=1)
    | json_values.map(json.dumps)
    | st.sampled_from(_shapes()).flatmap(altered).map(json.dumps)
    | st.sampled_from(_shapes()).flatmap(altered).map(lambda content: json.dumps(content, ensure_ascii=False))
    | st.sampled_from(_shapes()).flatmap(altered).map(lambda content: sns(json.dumps(content, ensure_ascii=False)))
    | st.integers(1, 60_000).map(lambda n: '{"Records":[' + "[" * n + "]" * n + "]}")
)


ATTRIBUTES = ("rejected_fence", "intake_wait")


@st.composite
def hostile_records(draw: st.DrawFn) -> dict[str, Any]:
    """A message of SQS with a body of anything, of which all but the id may be missing or of another type."""
    one = message(draw(bodies), draw(st.sampled_from(("h1", "h2", "h3"))), receives=draw(st.integers(1, 200)))
    past = st.tuples(*[json_values | st.integers(1, 2**41)] * 3, json_values, json_values | st.lists(st.text()))
    attribute = st.fixed_dictionaries({"stringValue": past.map(json.dumps) | json_values}) | json_values
    one["messageAttributes"] = {name: draw(attribute) for name in draw(st.sets(st.sampled_from(ATTRIBUTES)))}
    for name in draw(st.sets(st.sampled_from(sorted({*one} - {"messageId"})), max_size=2)):
        if draw(st.booleans()):
            del one[name]
        else:
            one[name] = draw(json_values)
    return one


@pytest.mark.failure_mode("F27")
@pytest.mark.parametrize("value", [None, 1, "x", [], {}, [["rejected_fence"]]])
@pytest.mark.parametrize("name", sorted({*message("{}")} - {"messageId"}))
def test_a_member_of_another_type_harms_nothing(name: str, value: Any) -> None:
    """Lambda writes the record, and a caller of the function may write anything."""
    assert Message(message("{}") | {name: value}).id


@pytest.mark.failure_mode("F27", "F107")
@settings(max_examples=examples(80))
@given(st.lists(hostile_records(), min_size=1, max_size=3), st.permutations(range(6)), st.sampled_from((1, 1, 1, 3)))
def test_a_hostile_batch_harms_nobody(hostile: list[dict[str, Any]], order: list[int], threads: int) -> None:
    """All valid records are processed. Each acknowledged message is done, requests nothing, or is in the dead-letter
    queue with one copy.
    """
    bench, sqs = Bench(new_world(), threads=threads), Sqs()
    states = {key: put(bench, key=key) for key in GOOD}
    records = [message(body, key) for key, (_, body) in states.items()] + hostile
    places = [place for place in order if place < len(records)]
    given_back = handle(bench, sqs, *(records[place] for place in places))
    assert set(given_back) <= {"h1", "h2", "h3"}
    assert len(given_back) == len(set(given_back))
    for key, (state, _) in states.items():
        assert bench.row(state, key).has_committed(state.identity)
    acknowledged = [Message(one) for one in hostile if one["messageId"] not in given_back]
    refused = Counter(one.id for one in acknowledged if any(_is_refused(parsed) for parsed in one.parsed))
    # One copy for each message, and one for a change that cannot be processed.
    assert len(sqs.copies) >= refused.total()
    assert len(sqs.copies) <= len(hostile) + bench.telemetry.outcomes.count(cast("Any", "Rejected"))
    store = cast("MemoryDynamoDB", bench.world.wire.client)
    for (pk, _), item in store.items.items():
        assert pk.startswith(f"{BUCKET}/")
        assert all(len(one["N"]) <= 38 for one in item.values() if "N" in one)
        assert all(one["S"].encode() for one in item.values() if "S" in one)


def _is_refused(parsed: object) -> bool:
    return isinstance(parsed, Unparseable) or (isinstance(parsed, Change) and parsed.bucket != BUCKET)


@pytest.mark.failure_mode("F27")
@settings(max_examples=examples(120))
@given(bodies)
def test_parsing_never_raises_and_leaves_nothing_out(body: str) -> None:
    """Each record of a message is in exactly one of its parts."""
    parsed = parse_message(body)
    assert parsed
    assert sum(isinstance(one, Unparseable) for one in parsed) <= 1
    assert all(isinstance(one, Change | Ignored | Unparseable) for one in parsed)
    try:
        content = json.loads(body)
        inner = json.loads(content["Message"]) if content.get("Type") == "Notification" else content
        total = len(inner["Records"]) if isinstance(inner["Records"], list) else 1
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return
    if "Event" not in inner and "source" not in inner and "intakeLedger" not in inner:
        assert sum(one.records if isinstance(one, Unparseable) else 1 for one in parsed) == max(total, 1)


def test_a_message_without_an_id_fails_as_a_whole_batch_or_not_at_all() -> None:
    """Lambda takes an unknown id for the failure of all, so that nothing is deleted."""
    bench, sqs = Bench(new_world()), Sqs()
    bench.acts = [raising(ValueError("no"))]
    state, body = put(bench)
    one = message(body)
    del one["messageId"]
    assert handle(bench, sqs, one) == [""]
    bench.world.clock.advance(60 * SECOND)
    assert handle(bench, sqs, one) == []
    assert bench.world.known(created(state)).settled


@pytest.mark.failure_mode("F107")
@pytest.mark.parametrize("digits", [19, 39, 4_000])
def test_a_number_that_dynamodb_cannot_store_is_unreadable(digits: int) -> None:
    """Its claim would fail at every delivery, and with it the claims of its group."""
    bench, sqs = Bench(new_world()), Sqs()
    body = notification(record("a", bench.world.s3.put("a", "1"))).replace('"size": 1,', f'"size": {"9" * digits},')
    assert handle(bench, sqs, message(body)) == []
    [(_, attributes)] = sqs.copies
    assert attributes["reason"] == "size has more digits than any number of S3"


@pytest.mark.failure_mode("F107")
def test_a_record_that_cannot_be_written_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python may read more levels of nesting than it writes; then the whole message is the copy."""
    bench, sqs = Bench(new_world()), Sqs()
    bodies = [
        notification(record(key, bench.world.s3.put(key, "1")), record(key, STATE, bucket="x"), *more)
        for key, more in (("a", ()), ("b", unreadable(2)))
    ]

    def too_deep(*_: object, **__: object) -> str:
        raise RecursionError

    monkeypatch.setattr(json, "dumps", too_deep)
    messages = [message(body, f"m{n}") for n, body in enumerate(bodies)]
    clock = bench.world.clock
    answer = consumer(bench, sqs).handle({"Records": messages}, Context(clock, clock() + 800 * SECOND))
    assert answer == {"batchItemFailures": []}
    assert [change.key for change in bench.seen] == ["a", "b"]
    assert [copy for copy, _ in sqs.copies] == bodies
    assert [attributes["unreadable_records"] for _, attributes in sqs.copies] == ["1", "3"]
