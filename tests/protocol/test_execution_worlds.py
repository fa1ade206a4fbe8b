"""Search the small worlds of executions. `make prove` searches the long ones, too."""

import pytest

from tests.protocol.execution_worlds import WORLDS, explore
from tests.settings import quick

SHORT = (
    "executions, deaths",
    "executions, overwrites",
    "executions, pauses",
    "executions, duplicates",
    "executions, refused",
    "durable, deaths",
    "durable, queued starts and deaths",
    "durable, queued starts and pauses",
)


@pytest.mark.failure_mode("F138", "F139")
@pytest.mark.parametrize("name", SHORT)
def test_one_execution_for_each_fence_and_nothing_is_lost(name: str) -> None:
    """With deaths and pauses at each request, overwrites, duplicates and lost events."""
    result = explore(WORLDS[name])
    assert not result.violation, "\n".join([result.violation, *result.trace])


@pytest.mark.thorough
@pytest.mark.failure_mode("F141")
def test_a_task_that_outlives_its_execution_does_not_write_over_a_newer_version() -> None:
    """The next claim waits for the longest task."""
    result = explore(WORLDS["executions, aborted with a task"])
    assert not result.violation, "\n".join([result.violation, *result.trace])


@pytest.mark.thorough
@pytest.mark.failure_mode("F142")
def test_a_redriven_execution_is_healed() -> None:
    """The row is taken back, or the late write is recorded and the key is processed again."""
    result = explore(WORLDS["executions, redriven"], states=1_500)
    assert not result.violation, "\n".join([result.violation, *result.trace])


@pytest.mark.thorough
@pytest.mark.failure_mode("F186")
def test_no_late_write_is_recorded_without_a_redrive() -> None:
    """A worker that pauses while others record the end of its execution has written nothing."""
    result = explore(WORLDS["executions, pauses and overwrites"], states=1_500)
    assert not result.violation, "\n".join([result.violation, *result.trace])


@pytest.mark.failure_mode("F528")
@pytest.mark.parametrize(
    "name", quick(["durable, stopped and deaths", "executions, stopped for a version that vanishes"], 1)
)
def test_a_stop_spends_no_attempt_and_no_task_writes_after_it(name: str) -> None:
    """Newer versions stop executions whose tasks run on. A newer version may vanish before the stop is recorded."""
    result = explore(WORLDS[name])
    assert not result.violation, "\n".join([result.violation, *result.trace])
