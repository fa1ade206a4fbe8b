"""The short form of the exhaustive search, in every test run; `make prove` explores the long one."""

from pathlib import Path

import pytest

import intake_ledger
from tests.protocol.explorer import Explorer
from tests.protocol.mutants import MUTANTS, Mutant
from tests.protocol.prove import tell
from tests.protocol.scenarios import FULL, SHORT


@pytest.mark.parametrize("name", SHORT)
def test_every_order_of_steps_keeps_the_guarantees(name: str) -> None:
    """In no order of deliveries, steps and faults is G1, G2, G3 or G4 violated, or work left without a way to go on."""
    result = Explorer(SHORT[name]).explore()
    assert not result.violation, tell(name, result, 0)
    assert result.complete


def test_a_violation_is_told_with_the_steps_that_lead_to_it() -> None:
    """A world in which losses are never found again ends in a trace that a person can read."""
    scenario = SHORT["losses"]._replace(no_audit=True)
    result = Explorer(scenario).explore()
    assert "G4" in result.violation
    assert any("is lost" in step for step in result.trace)


def test_the_long_form_contains_the_short_one() -> None:
    """Nothing is explored in tests alone."""
    assert FULL.items() >= SHORT.items()


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda one: one.name)
def test_a_seeded_defect_still_fits_the_code(mutant: Mutant) -> None:
    """What it replaces is there once, and what is said to find it exists; `make prove` sees whether it does."""
    source = (Path(intake_ledger.__file__).parent / mutant.module).read_text()
    assert source.count(mutant.old) == 1
    if mutant.found_by.startswith("tests/"):
        paths = [word for word in mutant.found_by.split() if word.startswith("tests/")]
        assert all(Path(path).is_file() for path in paths)
    else:
        assert mutant.found_by in FULL
