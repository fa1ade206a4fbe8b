"""Search the world of executions with two workers that pause at the same time."""

from pathlib import Path

import pytest

from tests.protocol.execution_sleepers import WORLDS, SleepersWorld, explore, steps
from tests.protocol.execution_worlds import ExecutionWorld

PAGE = Path(__file__).resolve().parents[2] / "docs" / "protocol.md"


@pytest.mark.thorough
@pytest.mark.failure_mode("F138", "F139")
def test_one_execution_for_each_fence_while_two_workers_pause() -> None:
    """The page has the number of states."""
    result = explore(WORLDS["executions, two pausing workers"])
    assert not result.violation, "\n".join([result.violation, *result.trace])
    assert f"{result.states:,} states" in " ".join(PAGE.read_text().split())


@pytest.mark.failure_mode("F254")
def test_the_fence_does_not_grow_past_a_start_that_was_refused() -> None:
    """A worker pauses before its start, and goes on after the start of another one was refused."""
    result = explore(WORLDS["executions, a pausing worker and a refused start"])
    assert not result.violation, "\n".join([result.violation, *result.trace])


@pytest.mark.thorough
@pytest.mark.failure_mode("F522")
def test_no_start_comes_late_next_to_another_fence() -> None:
    """A worker pauses before its start, and goes on after Lambda's queue has dropped the start of another one."""
    result = explore(WORLDS["durable, a pausing worker and a queued start"])
    assert not result.violation, "\n".join([result.violation, *result.trace])


def test_a_worker_that_goes_on_sends_the_rest_of_its_requests() -> None:
    """It claims before the pause and starts the execution after it. Another worker may pause meanwhile."""
    w = SleepersWorld(ExecutionWorld(pauses=2))

    def step(words: str) -> None:
        [(_, move)] = [(label, move) for label, move in steps(w) if words in label]
        move(w)

    step("an upload")
    sends = [label for label, _ in steps(w) if "pauses before request" in label]
    # The last request returns the message to the queue.
    step(f"pauses before request {len(sends) - 1}")
    assert (w.row is not None, len(w.asleep), w.running()) == (True, 1, 0)
    step("pauses before request 1")
    assert len(w.asleep) == 2
    steps_of_the_first = [move for label, move in steps(w) if "goes on" in label]
    steps_of_the_first[0](w)
    assert (len(w.asleep), w.running()) == (1, 1)
