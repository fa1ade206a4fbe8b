"""Workers that are killed or late at each statement of a transaction with `lock_object`, and without it."""

from examples.postgres import Postgres

from tests.integration.sql_rounds import POINTS, run
from tests.settings import examples

COUNT = examples(48)
"""Rounds. `make sql-rounds` plays more."""


def test_the_rows_are_those_of_the_last_state_whoever_dies_or_is_late(postgres: Postgres) -> None:
    result = run(postgres.new_database(), COUNT, fenced=True)
    assert result.wrong == []
    for point in POINTS:
        assert result.done[f"killed at {point}"] > 0
        assert result.done[f"paused at {point}"] > 0
    assert result.done["late: overtaken"] > 0


def test_plain_transactions_leave_the_rows_of_a_late_worker(postgres: Postgres) -> None:
    """The defect that `lock_object` prevents."""
    assert run(postgres.new_database(), COUNT, fenced=False).wrong
