"""docs/cost.md says what is computed, not what somebody typed."""

import re
from pathlib import Path

import pytest
from benchmarks import cost, measure, measured, prices

PLACE = r"<!-- measured: \w+ -->\n.*?\n<!-- end -->"
PAGE = (Path(__file__).resolve().parents[2] / "docs" / "cost.md").read_text()


@pytest.fixture(scope="module")
def computed() -> dict[str, str]:
    return cost.page()


def test_the_tables_are_the_computed_ones(computed: dict[str, str]) -> None:
    """Each between its comments; `python -m benchmarks.cost --write` writes them anew."""
    shown = dict(re.findall(r"<!-- begin: ([\w ]+) -->\n(.*?)\n<!-- end -->", PAGE, flags=re.DOTALL))
    assert shown == computed


def test_the_prices_have_their_date_and_pages() -> None:
    assert prices.AS_OF in PAGE
    assert [page for page in prices.PAGES.values() if page not in PAGE] == []


def test_the_ledger_costs_no_more_than_powertools_idempotency() -> None:
    """For a new object, in what AWS charges; within a cent for a million."""
    rows = cost.compared()
    assert rows["the ledger, batches of 10 claimed together"]["all"] <= rows["Powertools idempotency"]["all"]
    assert rows["naive consumer"]["all"] < rows["Powertools idempotency"]["all"]


def test_measured_tables_have_their_places() -> None:
    """Whatever a machine says, `python -m benchmarks.measured` puts it where it belongs and touches nothing else."""
    figure = {"median": 0.5, "least": 0.4, "most": 0.6}
    rows = {"a row": {"value": figure, "ratio": figure}}
    about = {"at": "2026-11-21", "machine": measure.machine()}
    found = {
        "cpu": about | {"figures": rows},
        "cold": about | {"figures": {"milliseconds": rows, "layer": {"files": 392}}},
    }
    tables = measured.tables(found)
    assert measured.places(PAGE) == [name for name in ("cpu", "machine", "cold", "layer") if name in tables]
    page = measured.written(PAGE, tables)
    assert page.count("| a row | 0.5 | 0.5 (0.4 to 0.6) |") == 2
    assert re.sub(PLACE, "", page, flags=re.DOTALL) == re.sub(PLACE, "", PAGE, flags=re.DOTALL)
