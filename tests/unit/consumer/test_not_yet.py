"""F102: the processor needs something that is not there yet. It says so, and no attempt is spent."""

from typing import Any

import pytest

from cdk_intake_ledger.testing import LocalPipeline
from intake_ledger import NotYet, ObjectChange
from intake_ledger.audit.diff import Finding, Window, judge
from intake_ledger.events.parser import own_message
from intake_ledger.protocol.change import Origin
from intake_ledger.protocol.errors import MAX_RETRY_IN
from intake_ledger.protocol.row import Status
from tests.unit.consumer.test_consumer import SENT_AT, Bench, bench, message, put, raising  # noqa: F401 - a fixture
from tests.unit.support import BUCKET, DAY, HOUR, KEY, MINUTE, SECOND, World, created, make_reason

WHY = "the customer file is missing"


class Waiting:
    """A pipeline whose processor needs input that comes after some hours, or never."""

    def __init__(self, hours: float | None, *, retry_in: float | None = 600, **options: Any) -> None:
        self.pipeline = LocalPipeline(self.process, **options)
        self.began = self.pipeline.now
        self.there_at = None if hours is None else self.began + int(hours * HOUR)
        self.retry_in = retry_in
        self.tries: list[int] = []
        self.done: list[str | None] = []

    def process(self, change: ObjectChange) -> None:
        self.tries.append(self.pipeline.now - self.began)
        assert len(self.tries) < 5_000, "it waits for ever"
        if self.there_at is None or self.pipeline.now < self.there_at:
            raise NotYet(WHY, retry_in=self.retry_in)
        self.done.append(change.version_id)


class TestWhatComesLate:
    @pytest.mark.failure_mode("F102")
    @pytest.mark.parametrize("retry_in", [None, 1, 600, MAX_RETRY_IN])
    def test_thirty_hours_late_loses_nothing(self, retry_in: float | None) -> None:
        """No attempt is spent, the budget is whole, and few receives are used."""
        waiting = Waiting(30, retry_in=retry_in, max_attempts=2)
        waiting.pipeline.put("order.csv", "1")
        waiting.pipeline.duplicate()
        waiting.pipeline.run()
        row = waiting.pipeline.row("order.csv")
        assert row is not None
        assert (row.status, row.attempts, row.waiting_since, row.reason) == (Status.PROCESSED, 1, None, None)
        assert len(waiting.done) == 1
        assert waiting.pipeline.dead_letters == []
        assert waiting.tries[-1] < 45 * HOUR
        assert len(waiting.tries) < 200, "the queue's own limit of receives is far"

    @pytest.mark.failure_mode("F102")
    def test_it_never_comes(self) -> None:
        """After `max_wait` the change is rejected with its reason; the last try is when the time is over."""
        waiting = Waiting(None, max_wait=30 * 3600)
        waiting.pipeline.put("order.csv", "1")
        waiting.pipeline.run()
        [letter] = waiting.pipeline.dead_letters
        assert letter.reason == f"waited for 30 hours (max_wait): {WHY}"
        row = waiting.pipeline.row("order.csv")
        assert row is not None
        assert (row.status, row.waiting_since) == (Status.REJECTED, None)
        assert waiting.tries[-1] == pytest.approx(30 * HOUR, abs=MINUTE)

    @pytest.mark.failure_mode("F102")
    def test_a_redrive_waits_again(self) -> None:
        """For the whole of `max_wait`."""
        waiting = Waiting(50, max_wait=30 * 3600)
        waiting.pipeline.put("order.csv", "1")
        waiting.pipeline.run()
        waiting.pipeline.redrive()
        waiting.pipeline.run()
        assert len(waiting.done) == 1

    @pytest.mark.failure_mode("F102")
    def test_failures_while_it_waits_are_counted(self) -> None:
        """Only the waits are free."""
        tries: list[int] = []

        def process(change: ObjectChange) -> None:
            tries.append(change.attempt)
            raise ValueError("no") if len(tries) % 2 == 0 else NotYet(WHY)

        pipeline = LocalPipeline(process, max_attempts=3)
        pipeline.put("order.csv", "1")
        pipeline.run()
        assert tries == [1, 1, 2, 2, 3, 3]
        [letter] = pipeline.dead_letters
        assert letter.reason.startswith("ValueError")


class TestRow:
    @pytest.mark.failure_mode("F102")
    def test_the_row_waits_in_a_partition_of_its_own(self, bench: Bench) -> None:  # noqa: F811
        """With its reason, since when, and until when; the failures' partitions do not have it."""
        bench.acts = [raising(NotYet(WHY, retry_in=600))]
        state, body = put(bench)
        now = bench.world.clock()
        assert bench.handle(message(body)) == ["m1"]
        row = bench.row(state)
        assert (row.status, row.attempts, row.reason) == (Status.FAILED, 0, WHY)
        assert (row.waiting_since, row.retry_at) == (now, now + 600 * SECOND)
        assert str(row.needs_review).endswith("#waiting")
        assert bench.queues.delays["handle-m1"] == 600
        assert bench.telemetry.said == [], "neutral to the breaker"

    @pytest.mark.failure_mode("F102")
    def test_a_duplicate_does_not_try_early(self, bench: Bench) -> None:  # noqa: F811
        """It is BUSY until the wait is over."""
        bench.acts = [raising(NotYet(WHY, retry_in=600))]
        _, body = put(bench)
        bench.handle(message(body))
        assert bench.handle(message(body, "m2", sent_at=SENT_AT + 1)) == ["m2"]
        assert bench.queues.delays["handle-m2"] == 600
        assert bench.handle(message(body, "m3")) == [], "it was not sent later than the one that waits"
        assert len(bench.seen) == 1

    @pytest.mark.failure_mode("F102")
    def test_a_reprocess_passes(self, bench: Bench) -> None:  # noqa: F811
        """A person need not wait."""
        bench.acts = [raising(NotYet(WHY, retry_in=600))]
        state, body = put(bench)
        bench.handle(message(body))
        asked = own_message(Origin.REPROCESS, BUCKET, KEY, reprocess_id=f"{1:026}")
        assert bench.handle(message(asked, "m2")) == []
        assert bench.row(state).status is Status.PROCESSED

    @pytest.mark.failure_mode("F102")
    def test_the_wait_keeps_its_beginning(self, bench: Bench) -> None:  # noqa: F811
        """Over a failure too; a commit and another state end it."""
        bench.acts = [raising(NotYet(WHY)), raising(ValueError("no")), raising(NotYet(WHY))]
        state, body = put(bench)
        began = bench.world.clock()
        for _ in range(3):
            bench.handle(message(body))
            bench.wait()
            assert bench.row(state).waiting_since == began
        bench.handle(message(body))
        assert bench.row(state).waiting_since is None
        assert bench.row(state).needs_review is None

    @pytest.mark.failure_mode("F102")
    def test_many_waiting_keys_are_no_outage(self, bench: Bench) -> None:  # noqa: F811
        """Nothing was wrong downstream."""
        bench.acts = [raising(NotYet(WHY)) for _ in range(20)]
        bodies = [put(bench, key=f"k{n}")[1] for n in range(20)]
        bench.handle(*(message(body, f"m{n}") for n, body in enumerate(bodies)))
        assert len(bench.seen) == 20
        assert bench.telemetry.said == []

    @pytest.mark.failure_mode("F102")
    def test_the_audit_leaves_alone_what_is_due_later(self, world: World) -> None:
        """Its message waits in the queue. When nothing came of it for long, the audit sends another one."""
        state = world.s3.put(KEY, "a")
        claim = world.accept(created(state), lease=MINUTE)
        now = world.clock()
        world.ledger.wait(claim, make_reason(WHY), retry_at=now + 10 * HOUR)
        row = world.known(created(state))

        def resubmits(after: int) -> bool:
            window = Window(settled_before=now + after - HOUR, known_since=now - 14 * DAY)
            return isinstance(judge(row, state, window, now=now + after, deletes=False), Finding)

        assert not resubmits(10 * HOUR)
        assert resubmits(12 * HOUR)


@pytest.mark.parametrize("retry_in", [0, -1, MAX_RETRY_IN + 1])
def test_a_wait_that_sqs_cannot_keep_is_refused(retry_in: float) -> None:
    """The error names the value and the range; it is an ordinary failure."""
    with pytest.raises(ValueError, match=f"retry_in is {retry_in} seconds: it must be 1 to 39,600"):
        NotYet(WHY, retry_in=retry_in)
