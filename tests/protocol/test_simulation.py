"""The short form of the replay: one production bucket's measured reality, scaled down; `make prove` runs it whole."""

import random

import pytest

from intake_ledger.consumer.circuit_breaker import MAX_PAUSE_MS, THRESHOLD
from intake_ledger.ledger import dynamodb_table
from tests.protocol.simulation import HOUR, Measured, Misfortune, Simulation
from tests.settings import quick


@pytest.fixture(scope="module", params=quick([(2, True), (1, False)], 1), ids=["a busy table", "a quiet table"])
def run(request: pytest.FixtureRequest) -> Simulation:
    """Four hours of 3,000 keys, the measured extremes among the gaps, and far more misfortune than anybody has.

    A busy table carries batches out in part, and refuses writes because of transactions.
    """
    seed, is_busy = request.param
    measured = Measured(keys=3_000, twice=30, thrice=3, hours=4)
    misfortune = Misfortune(overwritten=0.05, removed=0.01, lost=0.01, deaths=0.002, cut=0.01)
    simulation = Simulation(measured, misfortune, seed=seed)
    with pytest.MonkeyPatch.context() as patch:
        if is_busy:
            patch.setattr(dynamodb_table, "pause", lambda _: None)
            simulation.table.busy = random.Random(seed)
        simulation.run()
    return simulation


def test_nothing_is_lost_repeated_or_stale(run: Simulation) -> None:
    """F19, F23, F31, F32, F93: every key ends as S3 holds it; nothing runs twice but what died half-way."""
    assert run.tally.wrong == []


def test_the_misfortune_was_real(run: Simulation) -> None:
    """The run means something: messages were lost and found, workers died, the outage failed calls."""
    assert run.tally.lost > 5
    assert run.tally.resubmitted >= run.tally.lost // 2
    assert run.tally.deaths > 5
    assert run.tally.cuts > 5
    assert run.tally.breaker["given back"] > 1_000
    assert run.tally.verdicts["DUPLICATE"] >= 30


@pytest.mark.failure_mode("F23")
def test_an_hour_of_outage_dead_letters_nobody_and_costs_few_attempts(run: Simulation) -> None:
    """Each file of the outage is tried once. Beside that each worker learns for five attempts and probes about once a
    minute, however long the backlog is. Without the breaker 5,128 attempts failed, and each spent one of its file's.
    """
    assert run.tally.dead_lettered == 0
    tried_once = 1.2 * run.measured.keys * run.misfortune.outage_hours / run.measured.hours
    probes = run.misfortune.outage_hours * HOUR / MAX_PAUSE_MS
    assert run.tally.breaker["opened"] >= 1
    most = tried_once + run.workers * (THRESHOLD + probes) + run.tally.cuts
    assert THRESHOLD <= run.tally.outcomes["Failed"] <= most
