"""Run the example of orders without the ledger. tests/local has the run with it."""

import pytest

from tests.examples.runs import ran


@pytest.mark.thorough
def test_without_the_ledger_each_copy_is_booked_again() -> None:
    found = ran("orders", "--without-ledger")
    assert found.returncode == 1, found.stdout + found.stderr
    assert found.stdout.splitlines()[-2:] == ["48 booked, 0 copies without an effect", "rejected: (no reason)"]
