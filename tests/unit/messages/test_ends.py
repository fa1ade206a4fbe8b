"""A message whose source has no audit ends before its source deletes it: committed, or with a whole copy."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from botocore.exceptions import ClientError
from hypothesis import given, settings
from hypothesis import strategies as st

from intake_ledger import NotYet
from intake_ledger.messages.keyed_message import KeyedMessage
from intake_ledger.messages.settings import MessageSourceType
from intake_ledger.protocol.errors import NotBegun
from intake_ledger.protocol.row import FORMAT
from intake_ledger.protocol.settings import HOLD_SHARE, ConsumerSettings
from intake_ledger_testing.memory_sqs import DEAD_LETTER_URL
from tests.settings import examples
from tests.unit.messages.support import LEASE_MS, SETTINGS, Intake, Killed, copy_record, kinesis, sqs
from tests.unit.support import DAY, HOUR, SECOND, START

KEPT = {MessageSourceType.SQS: 4 * DAY, MessageSourceType.FIFO: 4 * DAY, MessageSourceType.KINESIS: DAY}
"""The retention of each source, in milliseconds."""
THROTTLED = ClientError({"Error": {"Code": "ThrottlingException"}}, "PutItem")


class Source:
    """One message of a source that keeps it for a time. `ends` are the ends of its attempts; the last one repeats."""

    def __init__(self, source: MessageSourceType, ends: Sequence[str], **options: Any) -> None:
        kept = KEPT[source]
        self.settings: ConsumerSettings = replace(
            SETTINGS, max_hold_seconds=int(kept * HOLD_SHARE) // SECOND, max_wait_seconds=kept // SECOND, **options
        )
        dlq = DEAD_LETTER_URL
        if source is MessageSourceType.FIFO:
            dlq = "memory://dead-letters.fifo"
            self.settings = replace(self.settings, queue_url="memory://queue.fifo")
        self.intake = Intake(source, self.process, settings=self.settings, dlq_url=dlq)
        self.ends = list(ends)
        self.kept = kept
        self.expires_at = START + kept
        self.record = kinesis("o", "e", 1) if source is MessageSourceType.KINESIS else sqs("o", "e", group="g")
        self.calls: list[int] = []
        """The time of each call of the processor."""
        self.attempts: list[int] = []

    def process(self, message: KeyedMessage) -> None:
        now = self.intake.clock()
        self.calls.append(now)
        self.attempts.append(message.attempt)
        match self.ends.pop(0) if len(self.ends) > 1 else self.ends[0]:
            case "fails":
                raise RuntimeError
            case "waits":
                raise NotYet("the customer", retry_in=600)
            case "throttled":
                raise NotBegun("throttled")
            case "dies" if now + LEASE_MS < START + self.kept - DAY // 20:
                raise Killed
            case "dies":
                raise RuntimeError

    def run(self, age: int) -> "Source":
        """Deliver the message from this age on, until it is finished or its source deletes it."""
        self.intake.clock.now = START + age
        receives = deliveries = 0
        while self.intake.clock() < self.expires_at:
            receives += 1
            deliveries += 1
            assert deliveries < 3_000
            if "attributes" in self.record:
                self.record["attributes"]["ApproximateReceiveCount"] = str(receives)
            worker = self.intake.worker()
            try:
                if not self.intake.handle([self.record], worker):
                    if not self.intake.delayed:
                        return self
                    [entry] = self.intake.delayed
                    self.intake.delayed.clear()
                    now = self.intake.clock()
                    self.record = copy_record(entry, name=f"copy {deliveries}", sent_at=now)
                    self.expires_at, receives = now + self.kept, 0
                    self.intake.clock.advance(entry["DelaySeconds"] * SECOND)
                    continue
            except KeyboardInterrupt:
                self.intake.clock.advance(LEASE_MS + SECOND)
                continue
            self._wait()
        raise AssertionError(f"the source deletes the message: {self.intake.row('o', 'e')}")

    def _wait(self) -> None:
        if self.intake.source is MessageSourceType.KINESIS:
            # Lambda delivers it at once. Before its next attempt is due, nothing happens.
            row = self.intake.row("o", "e")
            due = row.retry_at if row and row.retry_at else 0
            self.intake.clock.now = max(self.intake.clock() + 200, due - SECOND)
        else:
            self.intake.clock.advance(self.intake.delays[self.record["receiptHandle"]] * SECOND)

    @property
    def copies(self) -> list[Any]:
        return self.intake.sqs.dead_letters


sources = st.sampled_from(list(KEPT))
ends = st.lists(st.sampled_from(["fails", "waits", "throttled", "dies"]), min_size=1, max_size=4)


@pytest.mark.failure_mode("F253")
@settings(max_examples=examples(200), deadline=None)
@given(
    source=sources,
    ends=ends,
    share=st.floats(0, 0.999),
    attempts=st.integers(2, 12),
    backoff=st.sampled_from([(1, 60), (15, 1_800), (600, 8 * 3_600), (12 * 3_600, 12 * 3_600)]),
)
def test_no_message_leaves_its_source_without_an_end(
    source: MessageSourceType, ends: list[str], share: float, attempts: int, backoff: tuple[int, int]
) -> None:
    """Whenever it is first tried, and however its attempts end. Synthesis refuses most of these schedules."""
    one = Source(
        source, ends, max_attempts=attempts, min_backoff_seconds=backoff[0], max_backoff_seconds=backoff[1]
    ).run(int(KEPT[source] * share))
    assert one.intake.status("o", "e") == "REJECTED"
    [copy] = one.copies
    assert copy.attributes["rejected_fence"]


@pytest.mark.failure_mode("F253")
@pytest.mark.parametrize("source", KEPT)
@pytest.mark.parametrize("age", [0.0, 0.5, 0.74, 0.76, 0.9])
def test_a_backlogged_message_gets_its_attempts_faster(source: MessageSourceType, age: float) -> None:
    """Also with waits that would not fit into the rest of the retention."""
    options = {"min_backoff_seconds": 4 * 3_600, "max_backoff_seconds": 8 * 3_600}
    one = Source(source, ["fails"], max_attempts=8, **options).run(int(KEPT[source] * age))
    assert one.attempts == list(range(1, 9))
    assert one.copies[0].reason.startswith("RuntimeError")


@pytest.mark.failure_mode("F253")
@pytest.mark.parametrize(("age", "attempt"), [(0.7, 1), (0.8, 3)])
def test_in_an_outage_an_old_message_spends_its_attempts(age: float, attempt: int) -> None:
    """A younger one is held back, and its failure spends none."""
    one = Source(MessageSourceType.SQS, ["fails"])
    one.intake.clock.advance(int(4 * DAY * age))
    worker = one.intake.worker()
    for key in "abcde":
        one.intake.handle([sqs(key, key)], worker)
    for _ in range(SETTINGS.max_attempts):
        one.intake.handle([one.record], worker)
        one.intake.clock.advance(HOUR)
    assert one.attempts[-1] == attempt
    assert one.intake.status("o", "e") == ("REJECTED" if attempt == SETTINGS.max_attempts else "FAILED")


@pytest.mark.failure_mode("F253")
@pytest.mark.parametrize("source", [MessageSourceType.FIFO, MessageSourceType.KINESIS])
@pytest.mark.parametrize("age", [0.0, 0.3, 0.5, 0.9])
def test_a_message_that_waits_is_tried_until_its_source_keeps_it_no_longer(
    source: MessageSourceType, age: float
) -> None:
    """`NotYet` at each attempt. The reason says so, and a metric counts it."""
    kept = KEPT[source]
    one = Source(source, ["waits"]).run(int(kept * age))
    assert one.calls[-1] - START == pytest.approx(kept * 0.95, rel=0.001)
    assert "(the retention of its source): the customer" in one.copies[0].reason
    assert one.copies[0].attributes["reason_code"] == "max_wait"


@pytest.mark.failure_mode("F332")
@pytest.mark.parametrize("age", [0.0, 0.3, 0.9])
def test_a_message_of_a_standard_queue_waits_longer_than_its_source_keeps_it(age: float) -> None:
    """Its copies wait for all of `max_wait`. Each has another retention."""
    one = Source(MessageSourceType.SQS, ["waits"])
    one.intake.settings = one.settings = replace(one.settings, max_wait_seconds=20 * DAY // SECOND)
    began = START + int(4 * DAY * age)
    one.run(int(4 * DAY * age))
    assert one.calls[-1] - began == pytest.approx(20 * DAY, rel=0.001)
    assert "(max_wait): the customer" in one.copies[0].reason
    assert len(one.calls) < 400


@pytest.mark.failure_mode("F253")
@pytest.mark.parametrize("source", KEPT)
def test_an_attempt_that_no_other_can_follow_is_the_last_one(source: MessageSourceType) -> None:
    """Its copy says that there was no time for another one."""
    one = Source(source, ["fails"]).run(int(KEPT[source] * 0.97))
    assert len(one.calls) == 1
    assert one.copies[0].reason.startswith("its source keeps it too short for another attempt: RuntimeError")
    assert one.copies[0].body


@pytest.mark.failure_mode("F253")
@pytest.mark.parametrize("source", KEPT)
def test_a_message_that_dynamodb_never_takes_leaves_a_copy(
    source: MessageSourceType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no row, so the copy is tried as a new message when it is redriven."""
    one = Source(source, ["fails"], min_backoff_seconds=12 * 3_600, max_backoff_seconds=12 * 3_600)
    with monkeypatch.context() as out:
        out.setattr(one.intake.table, "put_item", _refuse)
        one.run(int(KEPT[source] * 0.94))
    [copy] = one.copies
    assert (copy.attributes["reason_code"], one.calls) == ("consumer_error", [])
    one.intake.process = lambda message: message.identity
    assert one.intake.handle([sqs("o", "e", group="g") | {"body": copy.body}]) == []
    assert one.intake.status("o", "e") == "PROCESSED"


@pytest.mark.failure_mode("F253")
def test_a_message_whose_row_a_later_release_wrote_leaves_a_copy() -> None:
    """This release can neither judge nor reject it."""
    one = Source(MessageSourceType.SQS, ["waits"])
    assert one.intake.handle([one.record]) != []
    [item] = [item for item in one.intake.table.items.values() if "status" in item]
    item["format"] = {"N": str(FORMAT + 1)}
    one.run(HOUR)
    [copy] = one.copies
    assert copy.attributes["reason_code"] == "consumer_error"


def _refuse(**_: object) -> None:
    raise THROTTLED.with_traceback(None)
