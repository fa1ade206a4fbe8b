"""F96 as a user sees it: the short form of the rounds with late workers; `make late-workers` plays all 200."""

import pytest

from cdk_intake_ledger.testing import Fault
from tests.protocol.late_workers import OVERTAKEN, play

SEEDS = range(16)


@pytest.mark.failure_mode("F96")
@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_was_written_late_the_last_copy_is_the_current_one(seed: int) -> None:
    """F96: three attempts of a round write after their successor's commit, and learn of it."""
    played = play(seed)
    assert played.wrong == ()
    assert played.outcomes["Fenced"] == OVERTAKEN


@pytest.mark.failure_mode("F96")
def test_late_workers_that_die_before_they_learn_of_it_are_not_repaired() -> None:
    """F96, what is not promised: counted, at most one wrong key for each death."""
    played = [play(seed, Fault.OVERTAKEN_AND_KILLED) for seed in SEEDS]
    wrong = sum(len(one.wrong) for one in played)
    assert 0 < wrong <= OVERTAKEN * len(SEEDS)
    assert sum(one.late_writes for one in played) == 0
