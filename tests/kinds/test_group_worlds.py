"""Every order of steps of two keys of a group."""

import pytest

from tests.kinds.group_worlds import FULL, GroupSearch
from tests.protocol.prove import tell
from tests.settings import quick


@pytest.mark.failure_mode("F500", "F501")
@pytest.mark.parametrize("name", quick(FULL, 2))
def test_every_order_of_a_world_of_groups_holds(name: str) -> None:
    result = GroupSearch(FULL[name]).explore()
    assert not result.violation, tell(name, result)
    assert result.complete
    assert result.states > 15
