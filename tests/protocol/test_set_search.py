"""The short form of the search of sets of files, in every test run; `make prove` searches the long one."""

import pytest

from intake_ledger.set_members.wakes import Wakes
from tests.protocol.scenarios import FULL
from tests.protocol.set_search import SHORT, WORLDS, Scenario, SetSearch, explore


@pytest.mark.parametrize("name", SHORT)
def test_every_order_of_steps_keeps_the_promises(name: str) -> None:
    holds, told = explore(name)
    assert holds, told


def test_the_search_calls_the_processor_of_sets_in_many_orders() -> None:
    """A search that never completes a set would find nothing."""
    search = SetSearch(SHORT["sets: the manifest, then its part"])
    assert search.search() is None
    assert search.states > 300
    assert search.calls > 30


def test_the_search_shows_the_steps_to_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without wakes, a part that is replaced after the commit of its set is never seen."""
    monkeypatch.setattr(Wakes, "wake", lambda *_: [])
    found = SetSearch(Scenario("a m:a", workers=1)).search()
    assert found is not None
    assert found[0] in ("a", "m:a")
    assert "G4" in found[-1]


def test_no_two_worlds_have_one_name() -> None:
    assert not WORLDS.keys() & FULL.keys()
    assert WORLDS.items() >= SHORT.items()
