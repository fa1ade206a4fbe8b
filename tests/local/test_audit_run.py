"""The audit, deployed: the short form of `make audit-run`."""

from concurrent.futures import Future

import pytest

from tests.local.audit_run.scenario import Outcome


@pytest.mark.failure_mode("F39", "F42", "F46", "F74")
def test_what_s3_told_nobody_of_is_found_once_and_nothing_else(audited: Future[Outcome]) -> None:
    """F39, F42, F46, F74: uploads, overwrites, markers, deletions for good and rollbacks while the notifications are
    off: one run finds exactly those, one that is killed half-way is finished by the next, a further one finds nothing.
    """
    assert audited.result(timeout=300).problems() == []
