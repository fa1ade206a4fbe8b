"""Search the short worlds of messages. `make prove` searches all of them."""

import pytest

from tests.protocol.message_worlds import FULL, SHORT, MessageSearch
from tests.protocol.prove import tell


@pytest.mark.parametrize("name", SHORT)
def test_every_order_of_a_short_world_of_messages_holds(name: str) -> None:
    """Also the worlds that are searched must go somewhere."""
    result = MessageSearch(SHORT[name]).explore()
    assert not result.violation, tell(name, result)
    assert result.complete
    assert result.states > 15


def test_every_short_world_is_proved_too() -> None:
    """`prove` lists all worlds by name."""
    assert SHORT.items() <= FULL.items()
