"""Check F96 from the user's view with a few rounds of late workers. `make late-workers` runs all 200 rounds."""

import pytest

from cdk_intake_ledger.testing import Fault
from tests.protocol.late_workers import OVERTAKEN, play

SEEDS = range(16)


@pytest.mark.failure_mode("F96")
@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_was_written_late_the_last_copy_is_the_current_one(seed: int) -> None:
    """Three attempts of a round write after their successor's commit, and their commit is refused."""
    played = play(seed)
    assert played.wrong == ()
    assert played.outcomes["Fenced"] == OVERTAKEN


@pytest.mark.failure_mode("F96")
def test_late_workers_that_die_before_they_learn_of_it_are_not_repaired() -> None:
    """The documents do not promise this case. Each death leaves at most one wrong key."""
    played = [play(seed, Fault.OVERTAKEN_AND_KILLED) for seed in SEEDS]
    wrong = sum(len(one.wrong) for one in played)
    assert 0 < wrong <= OVERTAKEN * len(SEEDS)
    assert sum(one.late_writes for one in played) == 0


@pytest.mark.failure_mode("F129")
@pytest.mark.parametrize("end", [Fault.OVERTAKEN, Fault.OVERTAKEN_AND_KILLED])
def test_no_late_worker_changes_an_output(end: Fault) -> None:
    """Also if it dies before the ledger learns of it, so that nothing repairs its write."""
    played = [play(seed, end, fenced=True) for seed in SEEDS]
    assert [one.wrong for one in played] == [()] * len(SEEDS)
