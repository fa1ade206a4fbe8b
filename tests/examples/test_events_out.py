"""Run the example of events out."""

import pytest

from tests.examples.runs import ran


@pytest.mark.thorough
def test_each_outcome_is_noted_once_also_when_it_is_sent_again() -> None:
    found = ran("events_out")
    assert found.returncode == 0, found.stdout + found.stderr
    assert found.stdout.splitlines()[1:4] == [
        "a.txt: Intake Committed, 9 characters",
        "b.txt: Intake Rejected, no amount in it",
        "c.txt: Intake Committed, 8 characters",
    ]
    assert found.stdout.splitlines()[-1] == "3 events were sent again, without an effect"
