"""Search small worlds whose messages wait, by their visibility and as delayed copies."""

import pytest

from tests.kinds.waiting_worlds import WORLDS, explore
from tests.settings import examples, quick


@pytest.mark.failure_mode("F331", "F332", "F333", "F334")
@pytest.mark.parametrize("name", quick(WORLDS, 5))
def test_no_wait_loses_or_multiplies_messages(name: str) -> None:
    """With deaths at each request, duplicates, refused copies, and a queue that deletes old messages."""
    result = explore(name, states=examples(2_500))
    assert not result.violation, "\n".join([result.violation, *result.trace])
