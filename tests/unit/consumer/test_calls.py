"""Several changes in one call of the processor: docs/protocol.md, "Several changes in one call"."""

from asyncio import CancelledError
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdk_intake_ledger.testing import Fault, Killed, LocalMessages, LocalPipeline, LocalRunner
from intake_ledger import InvalidEffectError, NotYet, ObjectChange, Rejects, Unprocessable
from intake_ledger.consumer.circuit_breaker import CircuitBreaker
from intake_ledger.protocol.row import Ordering, Status

Act = Callable[[int], object]
"""The result of a change, by the number of its calls so far."""


class Table:
    """A downstream with one write for a call, and a fence for each row."""

    def __init__(self, **acts: Act) -> None:
        self.rows: dict[str, tuple[int, Any]] = {}
        self.writes: list[list[str]] = []
        self.tries = Counter[str]()
        self.acts = acts
        """Of keys that do not just succeed."""

    def load(self, changes: Sequence[Any]) -> dict[str, Any]:
        """Write all rows in one transaction."""
        self.writes.append([change.key for change in changes])
        self.tries.update(change.key for change in changes)
        results = {change.idempotency_key: self.result(change.key) for change in changes}
        for change in changes:
            if not isinstance(results[change.idempotency_key], BaseException):
                fence, _ = self.rows.get(change.key, (0, None))
                if change.fence > fence:
                    self.rows[change.key] = change.fence, content_of(change)
        return results

    def result(self, key: str) -> object:
        act = self.acts.get(key)
        return act(self.tries[key]) if act else key


def content_of(change: Any) -> object:
    return change.read(100) if isinstance(change, ObjectChange) else change.body


def dies(_: int) -> object:
    raise Killed


def raises(_: int) -> object:
    raise RuntimeError("the sink names no row")


def fails(_: int) -> object:
    return ValueError("the sink refused this row")


def loaded(table: Table, count: int = 6, **options: Any) -> LocalPipeline:
    """A pipeline that has handled this number of objects."""
    pipeline = LocalPipeline(table.load, max_per_call=4, max_attempts=3, **options)
    for number in range(count):
        pipeline.put(f"k{number}", str(number))
    pipeline.run()
    return pipeline


def check_good(pipeline: LocalPipeline, table: Table, *numbers: int, attempts: int | None = 1) -> None:
    """These objects are committed, the table has their content, and no call with others has spent an attempt."""
    for number in numbers:
        row = pipeline.row(f"k{number}")
        assert row is not None
        assert row.status is Status.PROCESSED, row
        assert row.call_mark is None
        assert attempts in (None, row.attempts)
        assert table.rows[f"k{number}"][1] == str(number).encode()


def test_one_write_is_made_for_several_changes_and_each_is_committed_after_it() -> None:
    table = Table()
    pipeline = loaded(table)
    assert table.writes == [["k0", "k1", "k2", "k3"], ["k4", "k5"]]
    check_good(pipeline, table, *range(6))
    assert pipeline.row("k0").commit_id == "k0"  # type: ignore[union-attr]
    # Two claims, and the commits of each call in one request after it.
    assert pipeline.requests.count("batch_execute_statement") == 4
    assert "update_item" not in pipeline.requests


def test_each_change_ends_by_its_own_result() -> None:
    """Of one call: a commit, a rejection, a failure, a wait, and a result that is missing or malformed."""
    table = Table(
        k1=lambda _: Unprocessable("no table for it"),
        k2=lambda tries: fails(tries) if tries == 1 else None,
        k3=lambda tries: NotYet("no customer") if tries == 1 else None,
    )
    pipeline = loaded(table)
    assert pipeline.row("k1").reason == "no table for it"  # type: ignore[union-attr]
    assert [one.attributes["reason_code"] for one in pipeline.dead_letters] == ["unprocessable"]
    check_good(pipeline, table, 0, 3, 4, 5)
    check_good(pipeline, table, 2, attempts=2)
    assert table.tries == Counter(k0=1, k1=1, k2=2, k3=2, k4=1, k5=1)


def test_a_change_without_a_result_is_not_committed() -> None:
    """It fails by itself, with the fix in its reason, and its neighbours are committed."""
    pipeline = LocalPipeline(
        lambda changes: {one.idempotency_key: None for one in changes if one.key != "k1"},
        max_per_call=4,
        max_attempts=2,
    )
    for number in range(3):
        pipeline.put(f"k{number}", "1")
    pipeline.run()
    row = pipeline.row("k1")
    assert row is not None
    assert (row.status, row.attempts) == (Status.REJECTED, 2)
    assert "no result for this change" in str(row.reason)
    assert "change.idempotency_key" in str(row.reason)
    assert [one.key for one in pipeline.calls[1]] == ["k1"]  # type: ignore[attr-defined]


@pytest.mark.failure_mode("F540")
@pytest.mark.parametrize("count", [1, 3])
def test_a_cancelled_task_is_a_failure_that_is_tried_again(count: int) -> None:
    """`asyncio.gather(..., return_exceptions=True)` returns it as a result. It is no Exception."""
    table = Table(k0=lambda tries: CancelledError() if tries == 1 else None)
    pipeline = loaded(table, count)
    assert not pipeline.dead_letters
    check_good(pipeline, table, 0, attempts=2)
    check_good(pipeline, table, *range(1, count))


def test_a_malformed_result_rejects_its_change_only() -> None:
    table = Table(k1=lambda _: 5)
    with pytest.raises(InvalidEffectError, match="int"):
        loaded(table)
    pipeline = LocalPipeline(table.load, max_per_call=4)
    pipeline.put("k0", "0")
    pipeline.put("k1", "1")
    with pytest.raises(InvalidEffectError):
        pipeline.run()
    assert pipeline.row("k1").reason_code == "wrong_return"  # type: ignore[union-attr]
    check_good(pipeline, table, 0)


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (lambda changes: {one.key: None for one in changes}, "2 results have keys of no change in the call"),
        (lambda _: None, "returned None"),
        (lambda changes: [*changes], "returned list"),
    ],
)
def test_an_answer_that_names_no_change_rejects_none_of_a_call_with_several(answer: Any, text: str) -> None:
    """Each runs alone then. There, the answer is a malformed effect as any other."""
    pipeline = LocalPipeline(answer, max_per_call=4)
    pipeline.put("k0", "0")
    pipeline.put("k1", "1")
    with pytest.raises(InvalidEffectError, match=text):
        pipeline.run()
    rows = [pipeline.row(key) for key in ("k0", "k1")]
    assert [(row.status, row.attempts, row.call_mark) for row in rows if row] == [(Status.FAILED, 0, "alone")] * 2
    with pytest.raises(InvalidEffectError):
        pipeline.run()
    rows = [pipeline.row(key) for key in ("k0", "k1")]
    assert {row.status for row in rows if row} == {Status.REJECTED}


@pytest.mark.failure_mode("F480")
@pytest.mark.parametrize("death", [dies, raises])
def test_a_poison_spends_no_attempt_of_its_neighbours(death: Act) -> None:
    """The call dies with it, by a kill or by an error. Afterwards each runs alone, and only the poison is rejected."""
    table = Table(k1=death)
    pipeline = loaded(table)
    check_good(pipeline, table, 0, 2, 3, 4, 5)
    row = pipeline.row("k1")
    assert row is not None
    assert (row.status, row.attempts) == (Status.REJECTED, 3)
    assert table.tries["k1"] == 4
    assert [sorted(keys) for keys in table.writes if len(keys) > 1] == [["k0", "k1", "k2", "k3"], ["k4", "k5"]]
    assert [dead.attributes["key"] for dead in pipeline.dead_letters] == ["k1"]


@pytest.mark.failure_mode("F786")
def test_three_messages_of_a_spent_change_make_one_dead_letter() -> None:
    """The first one rejects it. What the row said before the call is over."""
    table = Table(k0=dies)
    pipeline = LocalPipeline(table.load, max_per_call=3, max_attempts=2)
    pipeline.put("k0", "0")
    for _ in range(2):
        pipeline.turn()
        pipeline.clock.advance(10**6)
    for _ in range(2):
        pipeline.duplicate()
    for number in (1, 2):
        pipeline.put(f"k{number}", "1")
    pipeline.run()
    assert [dead.attributes["key"] for dead in pipeline.dead_letters] == ["k0"]


@pytest.mark.failure_mode("F480")
def test_a_poison_that_a_person_sends_again_runs_alone() -> None:
    table = Table(k1=dies)
    pipeline = loaded(table)
    pipeline.redrive()
    pipeline.put("k9", "9")
    pipeline.run()
    assert [keys for keys in table.writes if len(keys) > 1 and "k1" in keys] == [["k0", "k1", "k2", "k3"]]
    table.acts.clear()
    pipeline.redrive()
    pipeline.run()
    check_good(pipeline, table, *range(6))


def test_a_poison_is_free_again_after_the_commit_of_its_next_state() -> None:
    table = Table(k1=dies)
    pipeline = loaded(table)
    table.acts.clear()
    for calls in ([["k0"], ["k1"]], [["k0", "k1"]]):
        table.writes.clear()
        for number in (0, 1):
            pipeline.put(f"k{number}", str(number))
        pipeline.run()
        assert table.writes == calls
    check_good(pipeline, table, *range(6))


@pytest.mark.failure_mode("F481")
@pytest.mark.parametrize("after", [False, True])
def test_a_worker_may_die_at_each_request(after: bool) -> None:
    """Between claims, sink and commits: each row has its content once, and no attempt of a good change is spent."""
    for request in range(1, 40):
        table = Table()
        pipeline = LocalPipeline(table.load, max_per_call=3, max_attempts=2)
        for number in range(4):
            pipeline.put(f"k{number}", str(number))
        pipeline.duplicate()
        pipeline.kill(request, after=after)
        pipeline.run()
        if pipeline.will_die:
            break
        # The worker may have died with a change that ran alone.
        check_good(pipeline, table, *range(4), attempts=None)
        assert not pipeline.dead_letters
        assert max(table.tries.values()) <= 2
    else:
        pytest.fail("a run has fewer requests")


@pytest.mark.failure_mode("F480")
@given(
    acts=st.dictionaries(
        st.sampled_from([f"k{number}" for number in range(8)]), st.sampled_from([dies, raises, fails]), max_size=4
    ),
    size=st.integers(2, 5),
    copies=st.booleans(),
    ordering=st.sampled_from(Ordering),
)
def test_any_bad_changes_among_good_ones(acts: dict[str, Act], size: int, copies: bool, ordering: Ordering) -> None:
    table = Table(**acts)
    pipeline = LocalPipeline(table.load, max_per_call=size, max_attempts=2, ordering=ordering)
    for number in range(8):
        pipeline.put(f"k{number}", str(number))
    if copies:
        pipeline.duplicate()
        pipeline.reverse()
    pipeline.run()
    good = [number for number in range(8) if f"k{number}" not in acts]
    check_good(pipeline, table, *good)
    assert all(table.tries[f"k{number}"] <= 2 for number in good)
    for key in acts:
        row = pipeline.row(key)
        assert row is not None
        assert (row.status, row.attempts) == (Status.REJECTED, 2)
        # Once in a call with others.
        assert table.tries[key] <= 3
    assert sorted(dead.attributes["key"] for dead in pipeline.dead_letters) == sorted(acts)


@pytest.mark.failure_mode("F481")
@given(seed=st.integers(0, 2**32), every_version=st.booleans())
def test_random_faults_leave_the_table_right(seed: int, every_version: bool) -> None:
    """Kills before and after the write, timeouts, cut connections and overtaken workers, with copies and overwrites."""
    table = Table()
    ordering = Ordering.EVERY_VERSION if every_version else Ordering.LATEST
    pipeline = LocalPipeline(table.load, max_per_call=3, max_attempts=12, ordering=ordering)
    for number in (*range(6), 1, 4):
        pipeline.put(f"k{number}", str(number))
    pipeline.run(seed=seed)
    check_good(pipeline, table, *range(6), attempts=None)
    assert not pipeline.dead_letters


@pytest.mark.failure_mode("F482")
def test_a_call_that_dies_counts_once_for_the_breaker(monkeypatch: pytest.MonkeyPatch) -> None:
    failures = []
    failed = CircuitBreaker.failed

    def counted(self: CircuitBreaker, key: str, now: int) -> bool:
        failures.append(key)
        return failed(self, key, now)

    monkeypatch.setattr(CircuitBreaker, "failed", counted)
    pipeline = LocalPipeline(Table(k0=raises).load, max_per_call=6)
    for number in range(6):
        pipeline.put(f"k{number}", str(number))
    pipeline.turn()
    assert len(failures) == 1


@pytest.mark.failure_mode("F482")
def test_while_the_downstream_is_out_each_change_is_tried_alone() -> None:
    """And no outage rejects anything: afterwards all changes are committed."""
    out = [True]

    def load(changes: Sequence[Any]) -> dict[str, Any]:
        if out[0]:
            raise ConnectionError
        return {one.idempotency_key: None for one in changes}

    pipeline = LocalPipeline(load, max_per_call=3, max_attempts=2)
    worker = pipeline.new_worker()
    for number in range(30):
        pipeline.put(f"k{number}", str(number))
    for _ in range(40):
        pipeline.turn(worker)
        pipeline.clock.advance(20_000)
    # At most five calls of this worker died before its breaker opened.
    assert sum(len(call) > 1 for call in pipeline.calls) <= 5  # type: ignore[arg-type]
    assert not pipeline.dead_letters
    out[0] = False
    pipeline.run()
    rows = [pipeline.row(f"k{number}") for number in range(30)]
    assert {row.status for row in rows if row} == {Status.PROCESSED}


def test_a_call_that_cannot_start_in_time_gives_its_claims_back() -> None:
    """The claims took long. Nothing is counted, and the next invocation makes the call."""
    table = Table()
    pipeline = LocalPipeline(table.load, max_per_call=4)
    for number in range(3):
        pipeline.put(f"k{number}", str(number))
    worker = pipeline.new_worker()
    claim, ledger = worker.services.ledger.claim_together, worker.services.ledger

    def slow(*arguments: Any, **others: Any) -> Any:
        pipeline.clock.advance(80_000)
        return claim(*arguments, **others)

    ledger.claim_together = slow  # type: ignore[method-assign]
    pipeline.turn(worker)
    assert not table.writes
    assert pipeline.row("k0") is None
    pipeline.run()
    assert [sorted(keys) for keys in table.writes] == [["k0", "k1", "k2"]]
    check_good(pipeline, table, *range(3))


@pytest.mark.failure_mode("F481")
def test_an_overtaken_call_reports_each_late_write() -> None:
    table = Table()
    pipeline = LocalPipeline(table.load, max_per_call=4)
    for number in range(3):
        pipeline.put(f"k{number}", str(number))
    pipeline.next(Fault.OVERTAKEN)
    pipeline.run()
    check_good(pipeline, table, *range(3), attempts=None)
    assert pipeline.outcomes["Fenced"] == 3


def test_an_object_that_vanishes_is_judged_again() -> None:
    """The processor returns the error that it got for one object. The others are committed."""

    def load(changes: Sequence[ObjectChange]) -> dict[str, Any]:
        results: dict[str, Any] = {}
        for change in changes:
            if change.key == "k1":
                pipeline.delete_version("k1", str(change.version_id))
            try:
                change.read(10)
                results[change.idempotency_key] = None
            except Exception as error:  # noqa: BLE001 - it is the result
                results[change.idempotency_key] = error
        return results

    pipeline = LocalPipeline(load, max_per_call=4)
    for number in range(3):
        pipeline.put(f"k{number}", str(number))
    pipeline.run()
    assert [row.status for number in (0, 2) if (row := pipeline.row(f"k{number}"))] == [Status.PROCESSED] * 2
    assert pipeline.removed_unprocessed == 1
    assert not pipeline.dead_letters


class TestMessages:
    """The same with the lock of a key, and one transaction for each commit."""

    def intake(self, table: Table, count: int = 6, **options: Any) -> LocalMessages:
        intake = LocalMessages(table.load, key="key", identity="id", max_per_call=4, max_attempts=3, **options)
        for number in range(count):
            intake.send({"key": f"k{number}", "id": 1})
        return intake

    def test_one_write_is_made_for_several_messages(self) -> None:
        table = Table()
        intake = self.intake(table)
        intake.run()
        assert table.writes == [["k0", "k1", "k2", "k3"], ["k4", "k5"]]
        assert intake.outcomes["Committed"] == 6

    def test_messages_of_a_key_are_never_in_one_call(self) -> None:
        table = Table()
        intake = self.intake(table, 2)
        intake.send({"key": "k0", "id": 2})
        intake.send({"key": "k1", "id": 2})
        intake.send({"key": "k0", "id": 1})
        intake.run()
        assert table.writes == [["k0", "k1"]] * 2
        assert intake.outcomes["Committed"] == 4

    @pytest.mark.failure_mode("F480")
    @pytest.mark.parametrize("death", [dies, raises])
    def test_a_poison_spends_no_attempt_of_its_neighbours(self, death: Act) -> None:
        table = Table(k1=death)
        intake = self.intake(table)
        intake.run()
        rows = [intake.row(f"k{number}", 1) for number in range(6)]
        assert [(row.status, row.attempts) for row in rows if row] == [
            (Status.PROCESSED, 1), (Status.REJECTED, 3), *[(Status.PROCESSED, 1)] * 4
        ]  # fmt: skip
        assert len(intake.dead_letters) == 1

    @pytest.mark.failure_mode("F481")
    @pytest.mark.parametrize("after", [False, True])
    def test_a_worker_may_die_at_each_request(self, after: bool) -> None:
        for request in range(1, 60):
            table = Table()
            intake = self.intake(table, 3)
            intake.duplicate()
            intake.kill(request, after=after)
            intake.run()
            if intake.will_die:
                break
            rows = [intake.row(f"k{number}", 1) for number in range(3)]
            assert [row.status for row in rows if row] == [Status.PROCESSED] * 3
            assert not intake.dead_letters
            assert not intake.expired
        else:
            pytest.fail("a run has fewer requests")


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: LocalPipeline(Table().load, max_per_call=0), "max_per_call is '0'"),
        (lambda: LocalPipeline(Table().load, max_per_call=101), "1 to 100"),
        (lambda: LocalPipeline(Table().load, max_per_call=2, commit_together=True), "commit_together is true"),
        (lambda: LocalPipeline(Table().load, max_per_call=2, runner=LocalRunner.FUNCTION), "another function"),
        (lambda: LocalPipeline(Table().load, max_per_call=2, exclusive_by="{a}/"), "exclusive_by is set"),
        (
            lambda: LocalMessages(Table().load, key="key", identity="id", source="fifo", max_per_call=2),
            "max_per_call is 2, and source is fifo",
        ),
    ],
)
def test_the_kit_refuses_what_the_function_refuses(make: Callable[[], object], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        make()


def test_rejected_rows_belong_to_their_own_file() -> None:
    """Its commit has the counts, and is written alone. The commits of the others are together."""

    def load(changes: Sequence[ObjectChange]) -> dict[str, str]:
        rows = {one.idempotency_key: list(one.csv_rows(on_error=Rejects(max_share=None))) for one in changes}
        return {name: str(len(found)) for name, found in rows.items()}

    pipeline = LocalPipeline(load, max_per_call=4, keep_rejects=True)
    for number, line in enumerate(("1,2", "1", "3,4")):
        pipeline.put(f"k{number}", f"a,b\n{line}\n")
    pipeline.run()
    assert len(pipeline.calls) == 1
    rows = [pipeline.row(f"k{number}") for number in range(3)]
    assert [(row.commit_id, row.rejected_rows) for row in rows if row] == [("1", None), ("0", 1), ("1", None)]
    assert pipeline.requests.count("update_item") == 1


@pytest.mark.thorough
@pytest.mark.failure_mode("F481")
@pytest.mark.parametrize("after", [False, True])
def test_two_workers_may_die_at_any_of_their_requests(after: bool) -> None:
    """The second one dies while members of the first one's call run alone, or in a call with others."""
    for first in range(1, 60):
        for second in range(1, 60):
            table = Table()
            pipeline = LocalPipeline(table.load, max_per_call=2, max_attempts=3)
            for number in range(3):
                pipeline.put(f"k{number}", str(number))
            pipeline.kill(first, after=after)
            pipeline.run(hours=0.01)
            if pipeline.will_die:
                return
            pipeline.duplicate()
            pipeline.kill(second, after=after)
            pipeline.run()
            check_good(pipeline, table, *range(3), attempts=None)
            assert not pipeline.dead_letters
            if pipeline.will_die:
                break


def test_a_shared_file_has_rows_twice_and_a_file_for_each_object_has_them_once() -> None:
    """The members of a dead call come again in other calls. So no name of a shared file replaces the first one."""
    for is_shared in (True, False):
        files: dict[str, list[str]] = {}

        def load(changes: Sequence[ObjectChange]) -> dict[str, None]:
            keys = [change.key for change in changes]
            files.update({"+".join(keys): keys} if is_shared else {key: [key] for key in keys})  # noqa: B023 - called here
            return {change.idempotency_key: None for change in changes}

        pipeline = LocalPipeline(load, max_per_call=3)
        for number in range(3):
            pipeline.put(f"k{number}", "1")
        pipeline.next(Fault.KILLED_AFTER_EFFECT)
        pipeline.run()
        rows = sorted(key for keys in files.values() for key in keys)
        assert (rows == ["k0", "k1", "k2"]) is not is_shared
        assert len(rows) == (6 if is_shared else 3)


@pytest.mark.failure_mode("F510")
def test_each_change_of_a_call_takes_a_start() -> None:
    """Those without a start wait, without an attempt, and are in later calls."""
    table = Table()
    pipeline = LocalPipeline(table.load, max_per_call=4, max_rate=0.5)  # a burst of three
    begin = pipeline.now
    for number in range(8):
        pipeline.put(f"k{number}", str(number))
    pipeline.turn()
    assert sum(map(len, table.writes)) == 3
    pipeline.run()
    assert sum(map(len, table.writes)) == len(table.rows) == 8
    assert pipeline.now - begin >= 2_000 * (8 - 3)
    assert {row.attempts for number in range(8) if (row := pipeline.row(f"k{number}")) is not None} == {1}
