"""Batches of Lambda's maximum size: the requests to SQS, and the response when time is short."""

from collections import Counter
from dataclasses import dataclass, field, replace
from threading import Event
from typing import TYPE_CHECKING, Any, cast

import pytest

from intake_ledger import ObjectChange
from intake_ledger.aws.queues import Queues
from intake_ledger.consumer.consumer import Consumer
from intake_ledger.consumer.returns import ANSWER_MS, FULL, LATE_REQUESTS, Crowd, Returns
from intake_ledger.events.parser import Message, own_message
from intake_ledger.protocol.change import Origin
from intake_ledger_testing.consumers import object_consumer
from tests.unit.consumer.test_consumer import OUTAGE, TIMEOUT, Bench, Context, message, put
from tests.unit.consumer.test_groups import new_world
from tests.unit.support import BUCKET, SECOND, Clock

if TYPE_CHECKING:
    from collections.abc import Callable


BATCH = 10_000
"""Lambda's greatest batch of a standard queue."""


@dataclass
class SlowSqs:
    """An SQS that takes time for each request and refuses invalid requests."""

    clock: Clock
    request_ms: int = 10
    asked: Counter[str] = field(default_factory=Counter)
    delays: dict[str, int] = field(default_factory=dict)
    deleted: list[str] = field(default_factory=list)
    copies: list[dict[str, Any]] = field(default_factory=list)

    def get_queue_attributes(self, **_: Any) -> dict[str, Any]:
        """Few messages are in flight."""
        return {"Attributes": {"ApproximateNumberOfMessagesNotVisible": "0"}}

    def change_message_visibility_batch(self, **request: Any) -> dict[str, Any]:
        self._ask("ChangeMessageVisibilityBatch", request)
        self.delays |= {one["ReceiptHandle"]: one["VisibilityTimeout"] for one in request["Entries"]}
        return {}

    def delete_message_batch(self, **request: Any) -> dict[str, Any]:
        self._ask("DeleteMessageBatch", request)
        self.deleted += [one["ReceiptHandle"] for one in request["Entries"]]
        return {}

    def send_message(self, **request: Any) -> None:
        self.asked["SendMessage"] += 1
        self.copies.append(request)

    def _ask(self, operation: str, request: dict[str, Any]) -> None:
        assert 1 <= len(request["Entries"]) <= 10
        self.asked[operation] += 1
        self.clock.advance(self.request_ms)


def consumer(bench: Bench, sqs: SlowSqs, process: "Callable[[ObjectChange], Any] | None" = None) -> Consumer:
    return object_consumer(
        replace(bench.services(), queues=Queues(lambda: cast("Any", sqs), "queue", "dlq")),
        process or bench.process,
        end_process=lambda: None,
    )


def wakes(number: int) -> list[dict[str, Any]]:
    """Messages about as many keys."""
    return [message(own_message(Origin.AUDIT, BUCKET, f"key {n}"), f"m{n}") for n in range(number)]


@pytest.mark.failure_mode("F109")
@pytest.mark.parametrize("threads", [1, 4])
def test_ten_thousand_messages_are_given_back_in_tens(threads: int) -> None:
    """No time is left for any of them. SQS gets a thousand requests, and the answer names all of them."""
    bench = Bench(new_world(), threads=threads)
    clock = bench.world.clock
    sqs = SlowSqs(clock)
    records = wakes(BATCH)
    answer = consumer(bench, sqs).handle({"Records": records}, Context(clock, clock() + 30 * SECOND))
    assert {one["itemIdentifier"] for one in answer["batchItemFailures"]} == {one["messageId"] for one in records}
    assert sqs.delays == {f"handle-m{n}": 0 for n in range(BATCH)}
    # After a second without a finished message the consumer flushes. A busy machine may have some such seconds.
    assert BATCH / 10 <= sqs.asked["ChangeMessageVisibilityBatch"] <= BATCH / 10 + 10
    assert bench.telemetry.troubles == []


@pytest.mark.failure_mode("F109")
def test_the_answer_does_not_wait_for_what_sqs_takes_too_long_for() -> None:
    """Messages that were not returned come back after the visibility timeout. The response names them too."""
    bench = Bench(new_world())
    clock = bench.world.clock
    sqs = SlowSqs(clock, request_ms=50)
    records, end = wakes(BATCH), clock() + 5 * SECOND
    answer = consumer(bench, sqs).handle({"Records": records}, Context(clock, end))
    assert len(answer["batchItemFailures"]) == BATCH
    assert sqs.asked["ChangeMessageVisibilityBatch"] == (5 * SECOND - ANSWER_MS) / 50 + LATE_REQUESTS
    assert end - clock() == ANSWER_MS - LATE_REQUESTS * 50
    assert bench.telemetry.troubles


@pytest.mark.failure_mode("F109")
def test_a_failure_is_given_back_before_the_next_processor_begins() -> None:
    """The next processor may run for minutes, and a retry must not wait for it."""
    bench = Bench(new_world())
    clock = bench.world.clock
    sqs = SlowSqs(clock, request_ms=0)
    seen: list[dict[str, int]] = []
    bench.acts = [lambda _: 1 / 0, lambda _: seen.append(dict(sqs.delays))]
    records = [message(put(bench, key=key)[1], key) for key in "ab"]
    consumer(bench, sqs).handle({"Records": records}, Context(clock, clock() + 200 * SECOND))
    assert seen == [{"handle-a": 8}]


@pytest.mark.failure_mode("F109")
def test_threads_give_back_while_the_last_one_works() -> None:
    """A failed message does not wait for another record that runs for minutes."""
    returned, ended = Event(), []

    class Watched(SlowSqs):
        def change_message_visibility_batch(self, **request: Any) -> dict[str, Any]:
            returned.set()
            return super().change_message_visibility_batch(**request)

    bench = Bench(new_world(), threads=2)
    clock = bench.world.clock
    began = Event()

    def process(change: ObjectChange) -> None:
        if change.key == "a":
            assert began.wait(30)
            raise ValueError("no")
        began.set()
        ended.append(returned.wait(30))

    records = [message(put(bench, key=key)[1], key) for key in "ab"]
    consumer(bench, Watched(clock), process).handle({"Records": records}, Context(clock, clock() + 200 * SECOND))
    assert ended == [True]


class TestReturns:
    """Returned messages, in groups of ten."""

    def make(self, bench: Bench, left: "Callable[[], int]" = lambda: 10_000) -> Returns:
        return Returns(
            cast("Queues", bench.queues),
            clock=bench.world.clock,
            time_left_ms=left,
            report=lambda ids, error: bench.telemetry.log_error("", ids, error),
            settings=bench.settings(),
            crowd=Crowd(lambda: 0, limit=2, clock=bench.world.clock, report=lambda _, error: None),
            jitter=lambda: 0.0,
        )

    def test_ten_are_sent_at_once(self) -> None:
        bench = Bench(new_world())
        returns = self.make(bench)
        for n in range(FULL - 1):
            returns.add(Message(message("{}", f"m{n}")), 5)
        assert bench.queues.delays == {}
        returns.add(Message(message("{}", "last")), 7)
        assert len(bench.queues.delays) == FULL

    def test_the_time_that_a_message_waited_for_the_others_is_not_added(self) -> None:
        """It is due when it would have been."""
        bench = Bench(new_world())
        returns = self.make(bench)
        returns.add(Message(message("{}", "a")), 5)
        returns.add(Message(message("{}", "b")), 1)
        bench.world.clock.advance(2 * SECOND)
        returns.flush()
        assert bench.queues.delays == {"handle-a": 3, "handle-b": 0}

    def test_an_error_is_reported_and_no_message_is_sent_twice(self) -> None:
        """SQS brings them after the queue's own visibility."""
        bench = Bench(new_world())
        bench.queues.broken = OUTAGE
        returns = self.make(bench)
        returns.add(Message(message("{}", "a")), 5)
        returns.flush()
        returns.flush()
        assert bench.telemetry.troubles == [OUTAGE]

    def test_a_record_without_a_receipt_handle_costs_its_neighbours_nothing(self) -> None:
        """F109: SQS would refuse the whole request."""
        bench = Bench(new_world())
        clock, sqs = bench.world.clock, SlowSqs(bench.world.clock)
        records = wakes(3)
        del records[1]["receiptHandle"]
        answer = consumer(bench, sqs).handle({"Records": records}, Context(clock, clock() + (TIMEOUT + 1) * SECOND))
        assert len(answer["batchItemFailures"]) == 3
        assert set(sqs.delays) == {"handle-m0", "handle-m2"}
