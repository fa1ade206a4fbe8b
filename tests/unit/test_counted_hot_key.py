"""A key that is overwritten while it is processed: what that may cost."""

import pytest
from benchmarks import hotkey


@pytest.mark.quiet_tables
@pytest.mark.parametrize("overwrites", [100, 200])
def test_an_overwrite_of_a_hot_key_costs_a_few_requests_however_many_there_are(overwrites: int) -> None:
    """Each event is refused and set back once, then looked up once; only the newest is processed."""
    found = hotkey.count(overwrites)
    assert found["processed"] == 2
    assert found["all requests per overwrite"] <= 4.1
    assert found["HEAD"] <= overwrites
