"""Search small worlds of messages of one key that a state machine processes."""

import pytest

from tests.kinds.message_execution_worlds import WORLDS, explore
from tests.settings import examples


@pytest.mark.parametrize("name", WORLDS)
def test_one_execution_of_a_key_and_no_message_is_lost(name: str) -> None:
    """With deaths and pauses at each request, duplicates and failures. The ends are found by polls only."""
    result = explore(WORLDS[name], states=examples(4_000))
    assert not result.violation, "\n".join([result.violation, *result.trace])
