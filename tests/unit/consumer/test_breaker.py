"""F23, F99: the breaker alone, and in front of the real consumer. An outage costs a few attempts, not the backlog's.
Bad files do not look like an outage.
"""

from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError
from hypothesis import given
from hypothesis import strategies as st

from cdk_intake_ledger.testing import LocalPipeline, LocalSets
from intake_ledger import FileSet, ObjectChange
from intake_ledger.consumer.circuit_breaker import (
    CLOSE_MS,
    MAX_BAD_KEYS,
    RECENT_MS,
    SHARE_MS,
    THRESHOLD,
    CircuitBreaker,
    least_wait_ms,
)
from intake_ledger.protocol.errors import Unprocessable
from intake_ledger.protocol.row import RowKey, Status, breaker_key, success_key
from intake_ledger_testing.consumers import object_consumer
from intake_ledger_testing.memory_s3 import MemoryS3
from intake_ledger_testing.outcome_counter import OutcomeCounter
from tests.unit.consumer.test_consumer import FULL_TIME, OUTAGE, Bench, Context, message, put, raising, raising_now
from tests.unit.support import DAY, HOUR, MINUTE, PIPELINE, SECOND, World, created

MIN, MAX = 15 * SECOND, 30 * MINUTE
LONGEST = 60 * SECOND
ARCHIVED = ClientError(
    cast("Any", {"Error": {"Code": "InvalidObjectState"}, "ResponseMetadata": {"HTTPStatusCode": 403}}), "GetObject"
)

keys = st.sampled_from("abcdefgh")


def breaker(jitter: float = 0.0) -> CircuitBreaker:
    return CircuitBreaker(MIN, MAX, lambda: jitter)


def opened(now: int = 0, jitter: float = 0.0) -> CircuitBreaker:
    """A breaker that has just opened."""
    one = breaker(jitter)
    assert [one.failed(str(n), now) for n in range(THRESHOLD)] == [False] * (THRESHOLD - 1) + [True]
    return one


class TestAlone:
    @given(st.lists(keys, max_size=THRESHOLD - 1, unique=True), st.integers(1, 50))
    def test_few_keys_never_open_it_however_often_they_fail(self, few: list[str], times: int) -> None:
        """The same key counts once."""
        one = breaker()
        assert not any(one.failed(key, 0) for _ in range(times) for key in few)
        assert not one.is_open
        assert one.wait_ms("new", 0, first=False) == 0

    @given(st.lists(st.lists(keys, max_size=THRESHOLD - 1), max_size=20))
    def test_a_success_begins_the_count_again(self, runs: list[list[str]]) -> None:
        """Successes that are far from each other too."""
        one = breaker()
        for n, run in enumerate(runs):
            assert not any(one.failed(key, n * HOUR) for key in run)
            assert not one.succeeded("good", n * HOUR)

    @pytest.mark.failure_mode("F99")
    def test_keys_that_failed_between_two_successes_no_longer_open_it(self) -> None:
        """The downstream was there, so they are bad. A thousand of them fail in a row, and it stays closed."""
        one, bad = breaker(), [f"bad {n}" for n in range(1_000)]
        one.succeeded("good", 0)
        for n, key in enumerate(bad):
            one.failed(key, n)
            one.succeeded("good", n + 1)
        assert not any(one.failed(key, CLOSE_MS) for key in bad)
        assert not one.is_open

    def test_a_bad_key_that_succeeds_is_no_longer_bad(self) -> None:
        """Its next failure is evidence again."""
        one = breaker()
        one.succeeded("good", 0)
        one.failed("a", 1)
        one.succeeded("good", 2)
        one.succeeded("a", 3)
        assert [one.failed(key, MINUTE) for key in "abcde"] == [False] * 4 + [True]

    def test_keys_that_failed_in_an_outage_are_not_bad(self) -> None:
        """The successes before and after it are far from each other."""
        one = breaker()
        one.succeeded("good", 0)
        failing = [str(n) for n in range(THRESHOLD)]
        assert any(one.failed(key, RECENT_MS) for key in failing)
        one.succeeded("good", CLOSE_MS + 1)
        assert any(one.failed(key, 2 * CLOSE_MS) for key in failing)

    @pytest.mark.failure_mode("F99")
    def test_a_downstream_with_a_success_seconds_ago_is_not_out(self) -> None:
        """A burst of new bad files between two good ones opens nothing."""
        one = breaker()
        one.succeeded("good", 0)
        assert not any(one.failed(f"bad {n}", RECENT_MS - 1) for n in range(1_000))
        assert one.failed("one more", RECENT_MS)

    @pytest.mark.failure_mode("F99")
    def test_another_environments_success_closes_it(self) -> None:
        """Asked for at most once in five seconds, and only while it is open; an old success says nothing."""
        one = breaker()
        assert not one.take_read_turn(HOUR)
        one = opened(HOUR)
        assert one.take_read_turn(HOUR)
        assert not one.heard(HOUR - RECENT_MS, HOUR)
        assert not one.take_read_turn(HOUR + SHARE_MS - 1)
        assert one.take_read_turn(HOUR + SHARE_MS)
        assert one.heard(HOUR + 1, HOUR + SHARE_MS)
        assert not one.is_open

    def test_a_success_is_shared_only_after_failures(self) -> None:
        """When it closes the breaker, or when several keys have failed since; at most once in five seconds."""
        one = breaker()
        one.failed("bad", HOUR)
        one.succeeded("good", HOUR)
        assert not one.take_share_turn(HOUR)
        one = opened(HOUR)
        one.succeeded("good", HOUR)
        assert one.take_share_turn(HOUR)
        for n in range(THRESHOLD):
            one.failed(f"bad {n}", HOUR)
        one.succeeded("good", HOUR + 1)
        assert not one.take_share_turn(HOUR + SHARE_MS - 1)
        assert one.take_share_turn(HOUR + SHARE_MS)
        assert not one.take_share_turn(2 * HOUR)

    def test_bad_keys_are_not_remembered_without_bound(self) -> None:
        """When there are too many, all are forgotten."""
        one = breaker()
        one.succeeded("good", 0)
        for n in range(MAX_BAD_KEYS + 1):
            one.failed(f"bad {n}", 0)
            one.succeeded("good", 0)
        assert any(one.failed(f"bad {n}", RECENT_MS) for n in range(THRESHOLD))

    @given(st.integers(0, MIN - 1), st.floats(0, 1))
    def test_no_key_that_may_have_been_tried_is_claimed_while_the_pause_lasts(self, after: int, jitter: float) -> None:
        """It waits for a pause, and for half a one more at most."""
        wait = opened(jitter=jitter).wait_ms("old", after, first=False)
        assert MIN <= wait <= MIN + MIN // 2

    @pytest.mark.failure_mode("F99")
    def test_first_attempts_pass_while_it_is_open(self) -> None:
        """A good file does not wait for bad ones."""
        one = opened()
        assert one.wait_ms("new", 1, first=True) == 0
        assert one.wait_ms("newer", 1, first=True) == 0

    def test_first_attempts_that_fail_slowly_take_half_of_the_time(self) -> None:
        """A downstream that hangs does not keep the worker for all of its time."""
        one = opened()
        assert one.wait_ms("new", 0, first=True) == 0
        one.failed("new", 10 * SECOND)
        assert one.wait_ms("newer", 10 * SECOND, first=True) == 10 * SECOND
        assert one.wait_ms("newer", 20 * SECOND, first=True) == 0

    def test_one_probe_passes_and_the_others_wait(self) -> None:
        """Until it is known how it ended; the probe itself may ask again."""
        one = opened()
        assert one.wait_ms("probe", MIN, first=False) == 0
        assert one.wait_ms("other", MIN, first=False) > 0
        assert one.wait_ms("probe", MIN, first=False) == 0

    @pytest.mark.failure_mode("F99")
    def test_a_key_that_failed_is_not_probed_again_before_the_others(self) -> None:
        """It waits for a second pause. Then it is better than nothing."""
        one = opened()
        assert one.wait_ms("0", MIN, first=False) > 0
        assert one.wait_ms("other", MIN, first=False) == 0
        one = opened()
        assert one.wait_ms("0", 2 * MIN, first=False) == 0

    def test_a_success_closes_it(self) -> None:
        """And the next failure is the first again."""
        one = opened()
        one.wait_ms("probe", MIN, first=False)
        assert one.succeeded("probe", MIN)
        assert one.wait_ms("other", MIN, first=False) == 0
        assert not one.succeeded("probe", MIN)
        assert not one.failed("x", MIN)

    def test_each_failed_probe_doubles_the_pause_up_to_a_minute(self) -> None:
        """So that recovery takes two minutes at most, however long the outage was."""
        one, now, pauses = opened(), 0, []
        for n in range(5):
            now += one.pause_ms
            assert one.wait_ms(f"probe {n}", now, first=False) == 0
            assert not one.failed(f"probe {n}", now)
            pauses.append(one.pause_ms // SECOND)
        assert pauses == [30, 60, 60, 60, 60]

    def test_a_probe_without_an_attempt_lets_the_next_key_pass(self) -> None:
        """A duplicate, a busy key: no attempt was made, and no pause is waited for again."""
        one = opened()
        one.wait_ms("duplicate", MIN, first=False)
        one.undecided("another")
        assert one.wait_ms("next", MIN, first=False) > 0
        one.undecided("duplicate")
        assert one.wait_ms("next", MIN, first=False) == 0

    def test_an_attempt_from_before_it_opened_does_not_change_the_pause(self) -> None:
        """A key that was begun before it opened, and fails after, does not lengthen the pause."""
        one = opened()
        one.failed("straggler", 1)
        assert one.pause_ms == MIN

    @pytest.mark.failure_mode("F23")
    @given(st.floats(0, 1), st.integers(1, 14), st.sampled_from([30, 300, 1_000]))
    def test_no_outage_that_a_message_survives_uses_its_receives_up(
        self, jitter: float, days: int, max_receives: int
    ) -> None:
        """The queue's own limit would dead-letter it without a reason. Worst case: each receive meets a breaker
        whose pause is short.
        """
        now, receives, hold = 0, 0, days * DAY * 3 // 4
        while now < hold:
            receives += 1
            now += max(round(jitter * LONGEST), least_wait_ms(receives, max_receives=max_receives, max_hold_ms=hold))
        assert receives < max_receives

    @pytest.mark.failure_mode("F99")
    def test_waits_stay_short_for_eight_hours(self) -> None:
        """With the queue that the pipeline makes, a held message comes back about once a minute for that long."""
        now, receives = 0, 0
        while now < 8 * HOUR:
            receives += 1
            wait = max(LONGEST * 5 // 4, least_wait_ms(receives, max_receives=1_000, max_hold_ms=3 * DAY))
            assert wait <= 90 * SECOND
            now += wait


class Downstream:
    """One worker's batches over a downstream that can be out."""

    def __init__(self, world: World) -> None:
        self.bench = Bench(world)
        self.out = True
        self.consumer = object_consumer(
            self.bench.services(),
            self.process,
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
    @pytest.mark.failure_mode("F23")
    def test_an_outage_costs_five_attempts_and_returns_the_rest_unclaimed(self, downstream: Downstream) -> None:
        """Their rows are not there, so their budget is whole; they wait for the pause."""
        bodies = downstream.uploads(THRESHOLD + 3)
        given_back = [*downstream.handle(*bodies[:THRESHOLD]), *downstream.handle(*bodies[THRESHOLD:], receives=2)]
        bench = downstream.bench
        assert len(given_back) == THRESHOLD + 3
        assert len(bench.seen) == THRESHOLD
        untouched = created(bench.world.s3.look(f"k{THRESHOLD}"), key=f"k{THRESHOLD}")
        assert bench.world.row(untouched) is None
        assert bench.telemetry.said == ["out", *["held back"] * 3]
        assert {bench.queues.delays[f"handle-m{n}"] for n in range(3)} == {15}

    @pytest.mark.failure_mode("F23")
    def test_the_wait_grows_with_the_pause_and_with_the_receives(self, downstream: Downstream) -> None:
        """The longer of the two."""
        downstream.handle(*downstream.uploads(THRESHOLD))
        settings = downstream.bench.settings()
        longest = least_wait_ms(740, max_receives=settings.max_receives, max_hold_ms=settings.max_hold_seconds * 1000)
        for receives, seconds in ((2, 15), (740, round(longest / 1000))):
            downstream.handle(*downstream.uploads(1, "new"), receives=receives)
            assert downstream.bench.queues.delays["handle-m0"] == pytest.approx(seconds, abs=1)

    @pytest.mark.failure_mode("F23")
    def test_one_probe_after_the_pause_and_everything_after_its_success(self, downstream: Downstream) -> None:
        """The downstream is back. A probe that failed has spent no attempt, and the others were never tried."""
        bench = downstream.bench
        bodies = downstream.uploads(THRESHOLD + 4)
        downstream.handle(*bodies[:THRESHOLD])
        bench.world.clock.advance(MINUTE)
        assert downstream.handle(*bodies[THRESHOLD:], receives=2) == ["m1", "m2", "m3", "m0"]
        assert len(bench.seen) == THRESHOLD + 1
        downstream.out = False
        bench.world.clock.advance(HOUR)
        assert downstream.handle(*bodies, receives=3) == []
        assert bench.telemetry.said[-1] == "back"
        rows = [bench.world.known(created(bench.world.s3.look(f"k{n}"), key=f"k{n}")) for n in range(THRESHOLD + 4)]
        assert [row.attempts for row in rows] == [2] * THRESHOLD + [1] * 4
        assert {row.status for row in rows} == {Status.PROCESSED}
        assert bench.queues.copies == []

    def test_the_last_failure_of_a_key_counts_too(self, downstream: Downstream) -> None:
        """A rejection after the last attempt says as much about the downstream as the failures before it."""
        bench = downstream.bench
        bodies = downstream.uploads(THRESHOLD - 1)
        for _ in range(3):
            downstream.handle(*bodies)
            bench.world.clock.advance(HOUR)
        assert len(bench.queues.copies) == THRESHOLD - 1
        downstream.handle(*downstream.uploads(1, "last"))
        assert bench.telemetry.said == ["out"]

    @pytest.mark.failure_mode("F99")
    def test_failures_while_it_is_open_count_no_attempt_and_come_back_soon(self, downstream: Downstream) -> None:
        """New keys are tried once. They wait for a minute and a half at most, however long the outage has been."""
        bench = downstream.bench
        downstream.handle(*downstream.uploads(THRESHOLD))
        for n in range(20):
            bench.world.clock.advance(MINUTE)
            [body] = downstream.uploads(1, f"new{n}-")
            assert downstream.handle(body) == ["m0"]
            assert bench.queues.delays["handle-m0"] <= 90
            row = bench.world.known(created(bench.world.s3.look(f"new{n}-0"), key=f"new{n}-0"))
            assert (row.status, row.attempts) == (Status.FAILED, 0)
        assert len(bench.seen) == THRESHOLD + 20
        assert bench.queues.copies == []

    @pytest.mark.failure_mode("F99")
    def test_a_message_that_waited_for_too_long_is_rejected_with_its_last_reason(self, downstream: Downstream) -> None:
        """SQS would drop it without one. It is not held back any more, and its failure decides."""
        bench = downstream.bench
        bodies = downstream.uploads(THRESHOLD + 2, "held")
        downstream.handle(*bodies[:THRESHOLD])
        bench.world.clock.advance(bench.settings().max_hold_seconds * SECOND)
        assert downstream.handle(*bodies[THRESHOLD:], receives=500) == []
        assert ["ConnectionError" in copy["reason"] for _, copy in bench.queues.copies] == [True] * 2
        row = bench.world.known(created(bench.world.s3.look(f"held{THRESHOLD}"), key=f"held{THRESHOLD}"))
        assert row.status is Status.REJECTED

    @pytest.mark.failure_mode("F99")
    def test_another_environments_success_closes_it(self, downstream: Downstream) -> None:
        """It is in the ledger's table; where that does not answer, nothing changes."""
        bench = downstream.bench
        downstream.handle(*downstream.uploads(THRESHOLD))
        bench.world.ledger.tell_success(bench.world.clock())
        downstream.out = False
        assert downstream.handle(*downstream.uploads(2, "more"), receives=2) == []
        assert bench.telemetry.said == ["out", "back"]

    @pytest.mark.failure_mode("F158")
    def test_the_table_shows_the_breaker_and_is_written_on_changes_only(
        self, downstream: Downstream, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """People see when it opened, why, and when it tries again. Messages that are held back write nothing."""
        bench, table, written = downstream.bench, downstream.bench.world.table, []
        write = table.write

        def noted(key: RowKey, content: Any) -> None:
            written.append(key.sk)
            write(key, content)

        monkeypatch.setattr(table, "write", noted)
        downstream.handle(*downstream.uploads(THRESHOLD))
        shown = table.read(breaker_key(PIPELINE))
        assert (shown["opened_at"], shown["reason_code"]) == (bench.world.clock(), "processor_error")
        assert shown["next_probe_at"] > shown["opened_at"]
        downstream.handle(*downstream.uploads(3, "held"), receives=2)
        assert written == ["breaker"]
        downstream.out = False
        bench.world.clock.advance(2 * MINUTE)
        downstream.handle(*downstream.uploads(1, "good"))
        assert set(table.read(breaker_key(PIPELINE))) == {"pk", "sk", "closed_at"}

    @pytest.mark.failure_mode("F158")
    def test_a_person_closes_it(self, downstream: Downstream) -> None:
        """A request from before the outage does nothing."""
        bench, table = downstream.bench, downstream.bench.world.table
        table.write(success_key(PIPELINE), {"retry_now_at": bench.world.clock() - 1})
        downstream.handle(*downstream.uploads(THRESHOLD))
        downstream.out = False
        assert downstream.handle(*downstream.uploads(1, "held"), receives=2) == ["m0"]
        bench.world.clock.advance(SHARE_MS)
        table.write(success_key(PIPELINE), {"retry_now_at": bench.world.clock()})
        assert downstream.handle(*downstream.uploads(2, "asked"), receives=2) == []
        assert bench.telemetry.said == ["out", "held back", "back"]

    @pytest.mark.failure_mode("F100")
    @pytest.mark.parametrize("kind", ["unprocessable", "no bytes", "refused by S3"])
    def test_failures_that_are_not_the_downstreams_do_not_open_it(self, downstream: Downstream, kind: str) -> None:
        """A verdict on the object, S3's own trouble, and an object that S3 does not hand out."""
        bench = downstream.bench
        if kind == "unprocessable":
            bench.acts = [raising(Unprocessable("sick"))] * 10
        elif kind == "refused by S3":
            bench.world.s3.before_open = [raising_now(ARCHIVED) for _ in range(10)]
        else:
            bench.world.s3.before_open = [raising_now(OUTAGE) for _ in range(10)]
        downstream.handle(*downstream.uploads(10))
        assert bench.telemetry.said == []

    @pytest.mark.failure_mode("F90")
    def test_a_duplicate_does_not_count_as_a_probe(self, downstream: Downstream) -> None:
        """A duplicate that passes after the pause lets the next key pass."""
        bench = downstream.bench
        [done] = downstream.uploads(1, "done")
        downstream.out = False
        downstream.handle(done)
        bench.world.clock.advance(MINUTE)
        downstream.out = True
        bodies = downstream.uploads(THRESHOLD + 1)
        downstream.handle(*bodies)
        downstream.out = False
        bench.world.clock.advance(MINUTE)
        assert downstream.handle(done, bodies[-1]) == []

    def test_a_message_without_time_does_not_count_as_a_probe(self, downstream: Downstream) -> None:
        """A message that is returned for lack of time must not keep another key from passing."""
        bench = downstream.bench
        bodies = downstream.uploads(THRESHOLD + 2)
        downstream.handle(*bodies)
        bench.world.clock.advance(MINUTE)
        short = Context(bench.world.clock, bench.world.clock() + SECOND)
        downstream.consumer.handle({"Records": [message(bodies[-1], "short")]}, short)
        downstream.out = False
        assert downstream.handle(bodies[-2]) == []


class Reads:
    """S3 opens each object once, and then cuts it, refuses it or does not answer."""

    def __init__(self, s3: Any, problem: str) -> None:
        self._open, self._cut, self._problem = s3.get_object, s3.cut, problem
        self._opened: set[str] = set()

    def __call__(self, **request: Any) -> Any:
        if self._problem != "cut" and request["Key"] in self._opened:
            self._opened.clear()
            error: Exception = {
                "refused": ARCHIVED,
                "out": OUTAGE,
                "unreachable": EndpointConnectionError(endpoint_url="https://s3"),
            }[self._problem]
            raise error.with_traceback(None)  # otherwise it grows each time
        self._opened.add(request["Key"])
        answer = self._open(**request)
        if self._problem == "cut":
            self._cut()
        return answer


def read_twice(change: ObjectChange) -> None:
    change.read(max_bytes=100)
    change.read(max_bytes=100)


def read_all_twice(changes: Sequence[ObjectChange]) -> dict[str, None]:
    for change in changes:
        read_twice(change)
    return {change.idempotency_key: None for change in changes}


def read_parts_twice(set_: FileSet) -> None:
    for _ in range(2):
        for part in set_.parts:
            part.read(max_bytes=100)


@pytest.mark.failure_mode("F660")
@pytest.mark.parametrize("problem", ["cut", "refused", "out", "unreachable"])
@pytest.mark.parametrize("kind", ["objects", "objects of one call", "sets"])
def test_errors_of_the_consumers_own_reads_do_not_open_it(
    monkeypatch: pytest.MonkeyPatch, kind: str, problem: str
) -> None:
    """A processor's own request to S3 may be its downstream."""
    opened: list[str] = []
    monkeypatch.setattr(OutcomeCounter, "downstream_out", lambda *_, **__: opened.append("out"))
    tests: dict[str, Callable[[], LocalPipeline | LocalSets]] = {
        "objects": lambda: LocalPipeline(read_twice),
        "objects of one call": lambda: LocalPipeline(read_all_twice, max_per_call=2),
        "sets": lambda: LocalSets(read_parts_twice, marker="in/*/_SUCCESS"),
    }
    local = tests[kind]()
    for number in range(12):
        local.put(f"in/{number}/part", "10 EUR")
        if kind == "sets":
            local.put(f"in/{number}/_SUCCESS", "")
    monkeypatch.setattr(local._s3, "get_object", Reads(local._s3, problem))
    local.run(hours=0.02)
    assert local.outcomes["Failed"] >= THRESHOLD
    assert not opened


@pytest.mark.failure_mode("F660")
def test_a_processors_own_request_to_s3_opens_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its downstream may be S3."""
    opened: list[str] = []
    monkeypatch.setattr(OutcomeCounter, "downstream_out", lambda *_, **__: opened.append("out"))
    other = MemoryS3(clock=lambda: 0)
    local = LocalPipeline(lambda _: other.get_object(Bucket="b", Key="another object"))
    for number in range(6):
        local.put(str(number), "10 EUR")
    local.run(hours=0.02)
    assert opened
