"""Stops of redrives whose messages name no rejection: SQS moved them, and most were never claimed."""

import pytest

from tests.inside.kit import DeadLetter
from tests.kinds.cells import Cell


@pytest.mark.failure_mode("F434")
def test_messages_without_a_rejection_go_back_although_they_are_claimed_in_groups() -> None:
    """New keys are claimed together, before any message is handled."""
    cell = Cell("objects")
    for key in ("in/0", "in/1", "in/2"):
        cell.submit_key(key)
    cell.run()
    assert len(cell.calls) == 3
    for key in ("in/3", "in/4", "in/5"):
        cell.submit_key(key)
    letters = [DeadLetter(one.body) for one in cell.sqs.messages]
    cell.sqs.purge()
    cell.sqs.dead_letters = list(letters)
    cell.redrive()
    cell.stop()
    cell.run()
    assert (len(cell.calls), cell.sqs.dead_letters) == (3, letters)
    cell.redrive()
    cell.run()
    assert len(cell.calls) == 6
