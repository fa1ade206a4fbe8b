"""Search small worlds of messages of one key that a state machine processes."""

import pytest

from tests.kinds.message_execution_worlds import WORLDS, explore
from tests.settings import examples, quick


@pytest.mark.failure_mode("F621")
@pytest.mark.parametrize("name", quick(WORLDS, 2))
def test_one_execution_of_a_key_and_no_message_is_lost(name: str) -> None:
    """With deaths and pauses at each request, duplicates and failures. The ends are found by polls only."""
    result = explore(WORLDS[name], states=examples(4_000))
    assert not result.violation, "\n".join([result.violation, *result.trace])


@pytest.mark.failure_mode("F673")
def test_a_key_whose_execution_runs_can_be_forgotten_after_its_end() -> None:
    """The command may come at each request of a worker, which may die after it. No execution begins later."""
    result = explore(WORLDS["messages, a key that is forgotten"])
    assert not result.violation, "\n".join([result.violation, *result.trace])
