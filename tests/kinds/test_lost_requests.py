"""Each order of losses, changes, deliveries and looks of the audit: a request of a person is served, once."""

from collections.abc import Callable
from itertools import product

import pytest

from intake_ledger.protocol.row import Status
from intake_ledger.requests.record import queried_batches
from tests.kinds.cells import KEY, Cell
from tests.settings import THOROUGH
from tests.unit.support import HOUR

NEVER = {"unprocessable": "no invoice"}


def look(cell: Cell) -> None:
    cell.clock.advance(3 * HOUR)
    cell.check_requests()


def die(cell: Cell) -> None:
    """A worker claims the first message and dies before its effect."""
    before, cell.inside = cell.inside, lambda _: cell.die()
    cell.turn()
    cell.inside = before
    cell.process = cell.start()


STEPS: dict[str, Callable[[Cell], object]] = {
    "turn": Cell.turn,
    "lose": Cell.lose,
    "look": look,
    "replace": lambda cell: cell.submit("2"),
    "die": die,
}


@pytest.mark.failure_mode("F430", "F432")
@pytest.mark.parametrize("ask", ["reprocess", "redrive"])
@pytest.mark.parametrize("name", ["objects", "every version", "sets"])
def test_each_order_of_losses_and_changes_ends_served(name: str, ask: str) -> None:
    """No record is left, and each attempt more has a reason: a change, or a death."""
    for order in product(STEPS, repeat=3 if THOROUGH else 2):
        cell = Cell(name, answers=[NEVER] if ask == "redrive" else [])
        cell.submit()
        cell.run()
        done = len(cell.calls)
        cell.clock.advance(HOUR)
        getattr(cell, ask)()
        for step in order:
            STEPS[step](cell)
        for _ in range(4):
            look(cell)
            cell.check()
            cell.run()
        client, settings = cell.dynamodb, cell.settings
        assert list(queried_batches(client, settings.table, settings.pipeline)) == [], order
        replaced = "replace" in order
        assert cell.known("2" if replaced else "1").status is Status.PROCESSED, order
        deaths = sum(step == "die" for step in order)
        assert 1 <= len(cell.calls) - done <= 1 + order.count("replace") + deaths, order
        assert not cell.source_messages, order


@pytest.mark.failure_mode("F642")
@pytest.mark.parametrize("ask", ["reprocess", "redrive"])
@pytest.mark.parametrize("name", ["objects", "every version", "sets"])
def test_a_request_for_a_version_that_is_gone_ends(name: str, ask: str) -> None:
    """No event told of it. A version that S3 has, is asked for again, as often as its message is lost."""
    cell = Cell(name, answers=[NEVER] if ask == "redrive" else [])
    cell.submit()
    cell.run()
    getattr(cell, ask)()
    for _ in range(3):
        cell.lose()
        cell.clock.advance(3 * HOUR)
        assert cell.check_requests().resent == 1
    version = cell.s3.keys[KEY].pop()
    cell.run()
    resent = 0
    for _ in range(5):
        cell.clock.advance(3 * HOUR)
        resent += cell.check_requests().resent
        cell.run()
    assert resent == 0, version
    assert len(cell.calls) == 1
    assert list(queried_batches(cell.dynamodb, cell.settings.table, cell.settings.pipeline)) == []
