"""The short form of the breaker's runs: `python -m tests.protocol.breaker_runs` runs all of them."""

import pytest

from tests.protocol.breaker_runs import MINUTE, SECOND, Run, go

SHORT = {
    "bad files": Run(100, 5, good_every_ms=5 * SECOND, hours=3),
    "bad files and an outage": Run(
        60, 5, outage_hours=1, good_every_ms=30 * SECOND, hours=4, arrive_within_ms=30 * MINUTE, life_ms=20 * MINUTE
    ),
}


@pytest.mark.failure_mode("F99")
@pytest.mark.parametrize("name", SHORT)
def test_bad_files_are_told_from_an_outage(name: str) -> None:
    """F23, F99: good files do not wait for bad ones. Each bad file is dead-lettered with its reason, and no good one.
    After an outage all good files are committed within two minutes.
    """
    found = go(SHORT[name])
    assert found.problems() == []
    assert all(reason.startswith("RuntimeError") for reason in found.reasons)
