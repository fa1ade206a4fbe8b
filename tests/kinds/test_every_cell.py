"""The same promises in each cell of kinds, runners and hosts."""

from typing import Any

import pytest

from intake_ledger.protocol import Status
from tests.kinds.cells import CELLS, KEY, Cell, Killed
from tests.unit.support import MINUTE

every_cell = pytest.mark.parametrize(("kind", "runner", "host"), CELLS, ids=[" ".join(cell) for cell in CELLS])


@every_cell
def test_a_thing_is_processed_and_committed_once(kind: str, runner: str, host: str) -> None:
    cell = Cell(kind, runner, host)
    cell.submit()
    cell.run()
    [call] = cell.calls
    assert call.key == KEY
    assert call.attempt == 1
    assert cell.known().status is Status.PROCESSED
    assert cell.known().commit_id == "done"
    assert cell.outcomes["Committed"] == 1
    assert not cell.sqs.messages


@every_cell
def test_duplicates_before_and_after_the_commit_run_nothing(kind: str, runner: str, host: str) -> None:
    cell = Cell(kind, runner, host)
    cell.submit()
    cell.duplicate()
    cell.turn()
    cell.clock.advance(MINUTE)
    cell.duplicate()
    cell.run()
    cell.duplicate()
    cell.run()
    assert len(cell.calls) == 1
    assert not cell.sqs.messages
    assert cell.late_writes == 0


@every_cell
def test_a_worker_that_dies_after_the_effect_repeats_its_idempotency_key(kind: str, runner: str, host: str) -> None:
    """An execution outlives its worker, so that nothing is repeated."""
    cell = Cell(kind, runner, host)

    def die(_: Any) -> None:
        cell.inside = lambda _: None
        cell.die()

    cell.inside = die
    if runner == "machine":
        cell.machine.after = [Killed()]  # type: ignore[list-item]
    cell.submit()
    cell.run()
    assert cell.known().status is Status.PROCESSED
    assert len({call.idempotency_key for call in cell.calls}) == 1
    assert len(cell.calls) == (1 if runner == "machine" else 2)
    fences = [call.fence for call in cell.calls]
    assert fences == sorted(set(fences))


@every_cell
def test_a_failure_is_tried_again_and_the_last_one_is_rejected(kind: str, runner: str, host: str) -> None:
    cell = Cell(kind, runner, host, answers=[{"fail": "one"}, {"fail": "two"}, {"fail": "three"}])
    cell.submit()
    cell.run()
    assert [call.attempt for call in cell.calls] == [1, 2, 3]
    assert len({call.idempotency_key for call in cell.calls}) == 1
    assert cell.known().status is Status.REJECTED
    assert len(cell.sqs.dead_letters) == 1


@every_cell
def test_what_can_never_be_processed_is_rejected_at_once(kind: str, runner: str, host: str) -> None:
    cell = Cell(kind, runner, host, answers=[{"unprocessable": "no invoice"}])
    cell.submit()
    cell.run()
    assert len(cell.calls) == 1
    assert cell.known().reason == "no invoice"
    [copy] = cell.sqs.dead_letters
    assert copy.reason == "no invoice"


@every_cell
def test_a_wait_counts_no_attempt(kind: str, runner: str, host: str) -> None:
    cell = Cell(kind, runner, host, answers=[{"notYet": "no rates"}] * 5)
    cell.submit()
    cell.run()
    assert len(cell.calls) == 6
    assert {call.attempt for call in cell.calls} == {1}
    assert cell.known().status is Status.PROCESSED


@pytest.mark.failure_mode("F145")
@every_cell
def test_a_newer_one_of_the_key_runs_after_the_first(kind: str, runner: str, host: str) -> None:
    """Never at the same time, and its effect is the last one."""
    cell = Cell(kind, runner, host)

    def overwrite(_: Any) -> None:
        cell.inside = lambda _: None
        cell.submit("2")
        assert cell.turn(cell.start()), "another worker sees the newer one while the first runs"
        assert cell.begun == 1

    cell.inside = overwrite
    cell.submit()
    cell.turn()
    if runner == "machine":
        overwrite(None)
    cell.run()
    assert len(cell.calls) == 2
    assert cell.calls[0].fence < cell.calls[1].fence
    assert cell.known("2" if kind == "messages" else "1").committed_fence is not None
    assert cell.most_running <= 1
    assert not cell.sqs.messages
    assert cell.outcomes["Committed"] == 2
