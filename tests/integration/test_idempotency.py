"""The tables of docs/messages.md about Powertools' idempotency, compared with new runs of their scenarios."""

import re
from functools import cache
from pathlib import Path

import pytest
from benchmarks import idempotency, measured

from tests.idempotency.libraries import LIBRARIES, Library, Messages, Once, Powertools, PowertoolsPlain
from tests.idempotency.scenarios import (
    SCENARIOS,
    Scenario,
    fails_late,
    find,
    has_other_content,
    returns_a_structure,
    saves_late,
    shares_its_key,
    title,
)

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "messages.md").read_text()
SHOWN = dict(re.findall(r"<!-- measured: (\w+) -->\n(.*?)\n<!-- end -->", PAGE, flags=re.DOTALL))
WRITE = "write the page: make bench BENCH=idempotency && python -m benchmarks.measured"


found = cache(find)
counted = cache(idempotency.counted)


def cells(table: str) -> dict[str, list[str]]:
    """The cells of a table by the first one of their row."""
    _, _, *rows = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("|")]
    return {row: others for row, *others in rows}


@pytest.mark.parametrize("kind", LIBRARIES, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_the_page_says_what_happens(scenario: Scenario, kind: type[Library]) -> None:
    """Each cell is the text of a scenario with a library."""
    shown = cells(SHOWN["faults"])[title(scenario)]
    assert str(found(scenario, kind)) == shown[LIBRARIES.index(kind)], WRITE


def test_the_page_has_the_rows_and_the_versions_of_the_scenarios() -> None:
    """Another version of Powertools needs another run."""
    assert list(cells(SHOWN["faults"])) == [title(scenario) for scenario in SCENARIOS]
    for name, version in idempotency.versions().items():
        assert f"{name} {version}" in SHOWN["faults"], WRITE


def test_the_page_counts_the_requests() -> None:
    assert SHOWN["library_requests"] == measured.plain(counted()), WRITE


@pytest.mark.parametrize("kind", [Once, Messages], ids=lambda kind: kind.__name__)
def test_ours_survive_what_powertools_does_not(kind: type[Library]) -> None:
    """These rows are the reason for the price."""
    for scenario in (shares_its_key, saves_late, fails_late):
        assert found(scenario, kind).survives
        assert not found(scenario, Powertools).survives


@pytest.mark.parametrize("kind", [Powertools, PowertoolsPlain], ids=lambda kind: kind.__name__)
def test_powertools_is_better_in_some_rows(kind: type[Library]) -> None:
    """The page must not hide them."""
    for scenario, ours in ((returns_a_structure, Messages), (has_other_content, Once)):
        assert found(scenario, kind).survives
        assert not found(scenario, ours).survives


def test_powertools_costs_less() -> None:
    """Its lock is one item. Ours is a row and a lock, which one transaction commits."""
    new = counted()["a new message"]
    powertools, once = ([int(part) for part in new[kind.name].split(" / ")] for kind in (Powertools, Once))
    assert powertools[0] < once[0]
    assert powertools[1] < once[1]
