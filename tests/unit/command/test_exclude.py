"""Commands about files that are left out (`exclude`): a clear answer by name, and counted below a prefix."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from intake_ledger.ledger.dynamodb_table import LedgerTable
from intake_ledger.ledger.row_history import EXCLUDED, record_key
from intake_ledger.protocol.exclude import Exclude, noted
from intake_ledger_cli.app import now_ms
from tests.unit.command.support import Site, client, make_site
from tests.unit.command.test_commands import Person, sit
from tests.unit.command.test_wait import commit, ticks
from tests.unit.support import HOUR

__all__ = ["sit", "ticks"]
pytestmark = pytest.mark.usefixtures("dynamodb")
PATTERNS = ("_*", "*.tmp")


def make(*patterns: str) -> Site:
    site = make_site()
    site.deployed = replace(site.deployed, exclude=Exclude(patterns) if patterns else None)
    return site


def note(site: Site, *patterns: str, ended: int | None = None) -> None:
    """The ledger's record of the patterns, of which those that are deployed have not ended."""
    record = noted(Exclude(patterns), None, 0)
    if ended is not None:
        record = noted(site.deployed.exclude, record, ended)
    place = record_key(site.deployed)
    LedgerTable(client("dynamodb"), site.deployed.table).write(place, {EXCLUDED: record})


@pytest.mark.failure_mode("F765")
def test_a_named_key_that_is_left_out_is_refused_and_one_with_a_row_is_requested(sit: Callable[..., Person]) -> None:
    """The consumer would acknowledge the request, and nobody would see why."""
    site = make(*PATTERNS)
    person = sit(site)
    _, version = site.put("in/_a", "in/_b")
    commit(site, "in/_b", version)
    person.types("retry", "--again", "in/_a", ends=1)
    assert "in/_a is left out by `exclude` of the pipeline, and has no row" in person.complaint
    assert site.messages() == []
    person.types("retry", "--again", "in/_b")
    assert [change.key for change in site.changes()] == ["in/_b"]


@pytest.mark.failure_mode("F765")
def test_below_a_prefix_they_are_counted_and_those_with_a_row_are_requested(sit: Callable[..., Person]) -> None:
    site = make(*PATTERNS)
    person = sit(site)
    *_, version = site.put("in/a", "in/_SUCCESS", "in/b.tmp", "in/_c")
    commit(site, "in/_c", version)
    said = person.types("retry", "--again", "--prefix", "in/")
    assert "left out  2  by exclude of the pipeline" in said
    assert [change.key for change in site.changes()] == ["in/_c", "in/a"]


@pytest.mark.failure_mode("F765", "F761")
@pytest.mark.parametrize("former", [True, False])
def test_wait_and_inspect_leave_them_out(
    sit: Callable[..., Person], ticks: list[Callable[[], object]], former: bool
) -> None:
    """Also those that a former pattern left out: nothing processes them, so a wait for them would never end."""
    site = make(*(() if former else PATTERNS))
    person = sit(site)
    version, *_ = site.put("in/a", "in/_SUCCESS", "in/b.tmp")
    commit(site, "in/a", version)
    if former:
        note(site, *PATTERNS, ended=now_ms() + HOUR)
    found = person.reads("wait", "--prefix", "in/", "--expect", "1", "--until", "1h")
    assert (found["outcome"], found["committed"]) == ("committed", 1)
    [state] = person.reads("inspect", "in/_SUCCESS")["states"]
    assert (state["agree"], state["row"]) == (True, None)
    assert "the pipeline leaves it out" in state["why"]


@pytest.mark.failure_mode("F761")
def test_a_file_from_after_the_end_of_a_pattern_is_missed(sit: Callable[..., Person]) -> None:
    site = make()
    person = sit(site)
    note(site, *PATTERNS, ended=now_ms() - HOUR)
    site.put("in/_SUCCESS")
    [state] = person.reads("inspect", "in/_SUCCESS")["states"]
    assert "leaves it out" not in state["why"]
