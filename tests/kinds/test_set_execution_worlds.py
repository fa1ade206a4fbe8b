"""Search small worlds of sets that a state machine processes."""

import pytest

from tests.kinds.set_execution_worlds import WORLDS, explore
from tests.settings import examples, quick


@pytest.mark.failure_mode("F620")
@pytest.mark.parametrize("name", quick(WORLDS, 1))
def test_one_execution_for_each_fence_and_nothing_is_lost(name: str) -> None:
    """With deaths and pauses at each request, replaced parts, duplicates and lost events."""
    result = explore(WORLDS[name], states=examples(4_000))
    assert not result.violation, "\n".join([result.violation, *result.trace])


def test_an_old_delivery_cannot_forget_the_message_of_a_claim() -> None:
    """A worker pauses with the first delivery, and another one claims with the second. Lambda's timeout prevents it."""
    result = explore(WORLDS["sets, pauses"], receipts_end=False)
    assert not result.violation, "\n".join([result.violation, *result.trace])
