"""The audit, deployed: the short form of `make audit-run`."""

from concurrent.futures import Future

import pytest

from tests.local.audit_run.scenario import Outcome

pytestmark = pytest.mark.thorough
LIMIT = 900


@pytest.mark.failure_mode("F39", "F42", "F46", "F74")
def test_what_s3_told_nobody_of_is_found_once_and_nothing_else(audited: Future[Outcome]) -> None:
    """While the notifications are off, objects are uploaded, overwritten, deleted and rolled back. One run finds
    exactly these. The next run finishes a run that was killed. Another run finds nothing.
    """
    assert audited.result(timeout=LIMIT).problems() == []
