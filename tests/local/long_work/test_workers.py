"""Workers outside of Lambda, on a deployed pipeline: the short form of `make worker-run`."""

from concurrent.futures import Future

import pytest

from tests.local.worker_run.scenario import Outcome

pytestmark = pytest.mark.thorough
LIMIT = 900


@pytest.mark.failure_mode("F135", "F136")
def test_workers_that_are_killed_stopped_and_paused_lose_nothing_and_double_nothing(worked: Future[Outcome]) -> None:
    """Processes of `python -m intake_ledger.worker` get SIGKILL, SIGTERM and SIGSTOP. Work that takes longer than a
    lease runs once, unless its worker is paused for longer than that.
    """
    assert worked.result(timeout=LIMIT).problems() == []
