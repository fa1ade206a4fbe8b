"""Run the examples that compare, without the ledger: a lost event stays lost. Orders are in `test_orders`."""

import pytest

from tests.examples.runs import ran


@pytest.mark.thorough
def test_without_the_ledger_the_replaced_file_is_not_loaded() -> None:
    found = ran("daily_load", "--without-ledger")
    assert found.returncode == 1, found.stdout + found.stderr
    assert "days/monday/manifest.json: (3, 35) is loaded, (4, 60) is in the files" in found.stderr


@pytest.mark.thorough
def test_without_the_ledger_the_text_has_no_result() -> None:
    found = ran("long_work", "--without-ledger")
    assert found.returncode == 1, found.stdout + found.stderr
    assert found.stderr.splitlines()[-1] == "in/lost.txt: no result"


@pytest.mark.thorough
def test_with_the_ledger_the_audit_finds_the_text_whose_event_was_lost() -> None:
    found = ran("long_work")
    assert found.returncode == 0, found.stdout + found.stderr
    assert "'in/lost.txt': 6" in found.stdout.splitlines()[-1]
