"""The short form of the fault runs (`make faults` runs the full one)."""

from concurrent.futures import Future

import pytest

from tests.local.faults import IN_TESTS
from tests.local.faults.outcomes import Outcome
from tests.local.faults.sizes import SHORT

pytestmark = pytest.mark.thorough
LIMIT = 2 * SHORT.timeout


@pytest.mark.failure_mode("F16", "F18", "F19", "F20", "F23", "F63", "F64")
@pytest.mark.parametrize("line", IN_TESTS)
def test_nothing_is_lost_and_no_innocent_is_dead_lettered(faults: dict[str, Future[list[Outcome]]], line: str) -> None:
    """Workers killed in mid-batch and while others were given the same message (Killed: F18, F19, F20); DynamoDB and S3
    failing, a hot key (Wired: F16); poison, and dead letters moved back (Plain: F63, F64); an outage (Outage: F23).
    """
    outcomes = faults[line].result(timeout=LIMIT)

    assert [(one.name, one.report) for one in outcomes if not one.report.right] == []
    assert all(one.report.sent and one.report.processed for one in outcomes)
