"""The example of small files in one write, on a real PostgreSQL server."""

from collections.abc import Iterator

import pytest
from examples.bulk_load import readings
from examples.bulk_load.run import load
from examples.postgres import Postgres, postgres

from cdk_intake_ledger.testing import Fault


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with postgres() as running:
        yield running


def test_a_thousand_files_are_ten_writes(server: Postgres) -> None:
    """And bad files in each of them are rejected alone. One by one, each file has a transaction."""
    together = load(server.new_database(), 1_000, per_call=100)
    assert together.is_right
    assert together.transactions == 10
    alone = load(server.new_database(), 30, per_call=1)
    assert alone.is_right
    assert alone.transactions == 30
    assert together.requests / 1_000 < alone.requests / 30 / 2


@pytest.mark.failure_mode("F481")
@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(seed, marks=pytest.mark.thorough) for seed in range(2, 12))]
)  # fmt: skip
def test_faults_leave_the_table_right(server: Postgres, seed: int) -> None:
    """Copies in any order, overwrites, kills before and after the transaction, timeouts and late workers."""
    found = load(server.new_database(), 120, per_call=20, seed=seed)
    assert found.wrong == []


@pytest.mark.failure_mode("F481")
@pytest.mark.parametrize("fenced", [True, False])
def test_a_late_call_is_refused_row_by_row(server: Postgres, fenced: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has older versions of some files. Without the fence, their rows stay."""
    if not fenced:
        plain, _, _ = readings.UPSERT.partition("WHERE")
        monkeypatch.setattr(readings, "UPSERT", plain)
    found = load(server.new_database(), 40, per_call=20, faults=(Fault.OVERTAKEN_AND_KILLED,))
    assert found.is_right is fenced
    assert set(found.wrong) <= {"00000.json", "00010.json"}
