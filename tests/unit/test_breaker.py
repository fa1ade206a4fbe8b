"""F23: the breaker alone, and in front of the real consumer. An outage costs a few attempts, not the backlog's."""

from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intake_ledger.breaker import FREE_RECEIVES, THRESHOLD, Breaker, least_wait_ms
from intake_ledger.consumer import Consumer
from intake_ledger.errors import Unprocessable
from intake_ledger.rows import Status
from tests.unit.support import DAY, HOUR, MINUTE, SECOND, World, created
from tests.unit.test_consumer import FULL_TIME, OUTAGE, Bench, Context, message, put, raising, raising_now

MIN, MAX = 15 * SECOND, 30 * MINUTE
MAX_RECEIVE_COUNT = 300
"""The queue's; tests/synth/test_pipeline.py holds the construct to it."""

keys = st.sampled_from("abcdefgh")


def breaker(jitter: float = 0.0) -> Breaker:
    return Breaker(MIN, MAX, lambda: jitter)


def opened(now: int = 0, jitter: float = 0.0) -> Breaker:
    """One that has just opened."""
    one = breaker(jitter)
    assert [one.failed(str(n), now) for n in range(THRESHOLD)] == [False] * (THRESHOLD - 1) + [True]
    return one


class TestAlone:
    @given(st.lists(keys, max_size=THRESHOLD - 1, unique=True), st.integers(1, 50))
    def test_few_keys_never_open_it_however_often_they_fail(self, few: list[str], times: int) -> None:
        """Sick objects are no outage: the same key counts once."""
        one = breaker()
        assert not any(one.failed(key, 0) for _ in range(times) for key in few)
        assert not one.is_open
        assert one.wait_ms("new", 0) == 0

    @given(st.lists(st.lists(keys, max_size=THRESHOLD - 1), max_size=20))
    def test_a_success_begins_the_count_anew(self, runs: list[list[str]]) -> None:
        """Poison among healthy keys never opens it, however much there is of it in all."""
        one = breaker()
        for run in runs:
            assert not any(one.failed(key, 0) for key in run)
            assert not one.succeeded()

    @given(st.integers(0, MIN - 1), st.floats(0, 1))
    def test_nothing_is_claimed_while_the_pause_lasts(self, after: int, jitter: float) -> None:
        """The wait is the rest of the pause, and a quarter of it at most on top."""
        wait = opened(jitter=jitter).wait_ms("new", after)
        assert MIN - after <= wait <= MIN - after + MIN // 4

    def test_one_probe_is_let_through_and_the_others_wait(self) -> None:
        """Until it is known how it ended; the probe itself may ask again."""
        one = opened()
        assert one.wait_ms("probe", MIN) == 0
        assert one.wait_ms("other", MIN) > 0
        assert one.wait_ms("probe", MIN) == 0

    def test_a_success_closes_it(self) -> None:
        """And the next failure is the first again."""
        one = opened()
        one.wait_ms("probe", MIN)
        assert one.succeeded()
        assert one.wait_ms("other", MIN) == 0
        assert not one.succeeded()
        assert not one.failed("x", MIN)

    def test_each_failed_probe_doubles_the_pause_up_to_the_longest(self) -> None:
        """From `min_backoff` to `max_backoff`."""
        one, now, pauses = opened(), 0, []
        for _ in range(10):
            now += one.wait_ms("probe", now)
            assert one.wait_ms("probe", now) == 0
            assert not one.failed("probe", now)
            pauses.append(one.wait_ms("other", now) // SECOND)
        assert pauses == [30, 60, 120, 240, 480, 960, 1800, 1800, 1800, 1800]

    def test_a_probe_that_showed_nothing_leaves_its_place_to_the_next(self) -> None:
        """A duplicate, a busy key: no attempt was made, and no pause is waited for again."""
        one = opened()
        one.wait_ms("duplicate", MIN)
        one.undecided("somebody else")
        assert one.wait_ms("next", MIN) > 0
        one.undecided("duplicate")
        assert one.wait_ms("next", MIN) == 0

    def test_a_straggler_says_nothing_new(self) -> None:
        """What was begun before it opened, and fails after, does not lengthen the pause."""
        one = opened()
        one.failed("straggler", 1)
        assert one.wait_ms("new", 0) == MIN

    @given(st.floats(0, 1), st.integers(1, 14), st.integers(1, 1800))
    def test_f23_no_outage_that_a_message_survives_uses_its_receives_up(
        self, jitter: float, days: int, longest: int
    ) -> None:
        """F23: the queue's own limit would dead-letter it without a reason. Worst case: every receive meets a breaker
        whose pause is all but over, and the pauses are short.
        """
        now, receives = 0, 0
        while now < days * DAY:
            receives += 1
            now += max(round(jitter * longest), least_wait_ms(receives))
        assert receives < MAX_RECEIVE_COUNT


class Downstream:
    """One worker's batches over a downstream that can be out."""

    def __init__(self, world: World) -> None:
        self.bench = Bench(world)
        self.out = True
        self.consumer = Consumer(
            self.bench.settings(),
            world.ledger,
            cast("Any", world.s3),
            cast("Any", self.bench.queues),
            self.process,
            telemetry=cast("Any", self.bench.telemetry),
            clock=world.clock,
            jitter=lambda: 0.0,
        )

    def process(self, change: Any) -> None:
        self.bench.process(change)
        if self.out:
            raise ConnectionError("the downstream is out")

    def handle(self, *bodies: str, receives: int = 1) -> list[str]:
        clock = self.bench.world.clock
        records = [message(body, f"m{n}", receives=receives) for n, body in enumerate(bodies)]
        answer = self.consumer.handle({"Records": records}, Context(clock, clock() + FULL_TIME * 20))
        return [one["itemIdentifier"] for one in answer["batchItemFailures"]]

    def uploads(self, number: int, name: str = "k") -> list[str]:
        return [put(self.bench, key=f"{name}{n}")[1] for n in range(number)]


@pytest.fixture
def downstream(world: World) -> Downstream:
    return Downstream(world)


class TestInFront:
    def test_f23_an_outage_spends_five_attempts_and_gives_the_rest_back_unclaimed(self, downstream: Downstream) -> None:
        """F23: their rows are not there, so their budget is whole; they wait for the pause."""
        bodies = downstream.uploads(THRESHOLD + 3)
        given_back = downstream.handle(*bodies)
        bench = downstream.bench
        assert len(given_back) == THRESHOLD + 3
        assert len(bench.seen) == THRESHOLD
        untouched = created(bench.world.s3.look(f"k{THRESHOLD}"), key=f"k{THRESHOLD}")
        assert bench.world.row(untouched) is None
        assert bench.telemetry.said == ["out", *["held back"] * 3]
        assert {bench.queues.delays[f"handle-m{n}"] for n in range(THRESHOLD, THRESHOLD + 3)} == {15}

    def test_f23_the_wait_grows_with_the_pause_and_with_the_receives(self, downstream: Downstream) -> None:
        """F23: the longer of the two."""
        downstream.handle(*downstream.uploads(THRESHOLD))
        for receives, seconds in ((FREE_RECEIVES, 15), (FREE_RECEIVES + 2, 2 * 60)):
            downstream.handle(*downstream.uploads(1, "new"), receives=receives)
            assert downstream.bench.queues.delays["handle-m0"] == seconds

    def test_f23_one_probe_after_the_pause_and_everything_after_its_success(self, downstream: Downstream) -> None:
        """F23: the downstream is back; what was given back is processed at its first attempt."""
        bench = downstream.bench
        bodies = downstream.uploads(THRESHOLD + 4)
        downstream.handle(*bodies)
        bench.world.clock.advance(MINUTE)
        assert downstream.handle(*bodies[THRESHOLD:]) == ["m0", "m1", "m2", "m3"]
        assert len(bench.seen) == THRESHOLD + 1
        downstream.out = False
        bench.world.clock.advance(HOUR)
        assert downstream.handle(*bodies) == []
        assert bench.telemetry.said[-1] == "back"
        rows = [bench.world.known(created(bench.world.s3.look(f"k{n}"), key=f"k{n}")) for n in range(THRESHOLD + 4)]
        assert [row.attempts for row in rows] == [2] * (THRESHOLD + 1) + [1] * 3
        assert {row.status for row in rows} == {Status.PROCESSED}
        assert bench.queues.copies == []

    def test_a_failure_that_uses_the_budget_up_counts_too(self, downstream: Downstream) -> None:
        """A rejection after the last attempt says as much about the downstream as the failures before it."""
        bench = downstream.bench
        bodies = downstream.uploads(THRESHOLD - 1)
        for _ in range(3):
            downstream.handle(*bodies)
            bench.world.clock.advance(HOUR)
        assert len(bench.queues.copies) == THRESHOLD - 1
        downstream.handle(*downstream.uploads(1, "last"))
        assert bench.telemetry.said == ["out"]

    @pytest.mark.parametrize("kind", ["unprocessable", "no bytes"])
    def test_what_is_not_the_downstreams_fault_does_not_open_it(self, downstream: Downstream, kind: str) -> None:
        """A verdict on the object, and S3's own trouble."""
        bench = downstream.bench
        if kind == "unprocessable":
            bench.acts = [raising(Unprocessable("sick"))] * 10
        else:
            bench.world.s3.before_open = [raising_now(OUTAGE) for _ in range(10)]
        downstream.handle(*downstream.uploads(10))
        assert bench.telemetry.said == []

    def test_f90_a_duplicate_is_no_probe(self, downstream: Downstream) -> None:
        """What is let through after the pause and turns out to be done leaves its place to the next."""
        bench = downstream.bench
        [done] = downstream.uploads(1, "done")
        downstream.out = False
        downstream.handle(done)
        downstream.out = True
        bodies = downstream.uploads(THRESHOLD + 1)
        downstream.handle(*bodies)
        downstream.out = False
        bench.world.clock.advance(MINUTE)
        assert downstream.handle(done, bodies[-1]) == []

    def test_without_time_nothing_is_a_probe(self, downstream: Downstream) -> None:
        """A message that goes back for lack of time must not keep the place of one that could be tried."""
        bench = downstream.bench
        bodies = downstream.uploads(THRESHOLD + 2)
        downstream.handle(*bodies)
        bench.world.clock.advance(MINUTE)
        short = Context(bench.world.clock, bench.world.clock() + SECOND)
        downstream.consumer.handle({"Records": [message(bodies[-1], "short")]}, short)
        downstream.out = False
        assert downstream.handle(bodies[-2]) == []
