"""Run the example of a daily load."""

import pytest

from tests.examples.runs import ran

pytestmark = pytest.mark.thorough


def test_each_day_is_loaded_once_it_is_complete_and_again_when_a_file_is_replaced() -> None:
    found = ran("daily_load", timeout=300)
    assert found.returncode == 0, found.stdout + found.stderr
    assert found.stdout.splitlines()[-3:] == [
        "days/monday/manifest.json: 3 orders, amount 35",
        "days/tuesday/manifest.json: 3 orders, amount 35",
        "days/monday/manifest.json: 4 orders, amount 60",
    ]
