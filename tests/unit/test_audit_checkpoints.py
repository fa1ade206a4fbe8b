"""Checkpoints that take long: the audit ends before Lambda ends it, and goes on where it was."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from intake_ledger.audit.report import Report, Stopped
from intake_ledger.audit.runs import CHECKPOINT_MS
from intake_ledger.rows import Status
from intake_ledger.states import State, StateKind
from tests.unit.audit_invocations import INTERVAL, SMALL_FILTERS, Invocations
from tests.unit.audit_support import AuditWorld
from tests.unit.support import SECOND

PAGES = 100
PAGE_MS = 20 * SECOND


class Slow:
    """A world in which requests take time: pages of the listing, and parts of a filter that a checkpoint writes."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        world = AuditWorld(page_size=2)
        for number in range(2 * PAGES):
            key = f"{number:03}"
            world.commit(key, world.s3.put(key))
        world.s3.put("lost")
        # The listing has not shown it: a HEAD for each of these, if that is forgotten.
        world.insert("waits", world.s3.put("waits"), Status.FAILED, retry_at=world.clock() * 2)
        self.audit = Invocations(world, patch)
        self.audit.gate.before = self._take_time
        self.part_ms = 0
        """How long a write of a part of a filter takes, in milliseconds."""
        self.stored = list[str]()
        """The parts that were written, by name."""

    def _take_time(self, operation: str, arguments: dict[str, Any]) -> None:
        clock = self.audit.world.clock
        if operation == "put_item":
            self.stored.append(arguments["Item"]["sk"]["S"])
            clock.advance(self.part_ms)
        elif operation == "list_object_versions":
            clock.advance(PAGE_MS)

    def invocations(self) -> Iterator[Report]:
        """Ticks until the run is complete. Each ends before Lambda ends it, or `Killed` is raised."""
        for _ in range(20):
            yield (report := self.audit.tick())
            if report.complete:
                return
            self.audit.next_tick(2)
        raise AssertionError("the run does not come to its end")


@pytest.fixture
def slow() -> Iterator[Slow]:
    with pytest.MonkeyPatch.context() as patch:
        yield Slow(patch)


@pytest.mark.parametrize("part_ms", [0, 5 * SECOND, 20 * SECOND, 80 * SECOND])
def test_f118_a_slow_checkpoint_costs_time_and_no_progress(slow: Slow, part_ms: int) -> None:
    """F118: each page is listed once, though the last checkpoint takes longer than 30 seconds."""
    slow.part_ms = part_ms
    reports = list(slow.invocations())
    listed = sum(part.listed for part in reports[-1].passes)
    assert listed == reports[-1].listed == 2 * PAGES + 2
    begun = [report.listed for report in reports]
    # The next invocation begins with the state at which this one has stopped.
    assert [report.listed - report.passes[-1].listed for report in reports[1:]] == begun[:-1]
    assert all(report.stopped is Stopped.TIME for report in reports[:-1])
    assert slow.audit.world.sent == ["lost"]
    assert slow.audit.world.s3.heads == []


@pytest.mark.parametrize(("part_ms", "left_ms"), [(25 * SECOND, 170 * SECOND), (50 * SECOND, 220 * SECOND)])
def test_f118_an_invocation_knows_how_long_the_checkpoint_before_took(slow: Slow, part_ms: int, left_ms: int) -> None:
    """F118: also if it has no time for one of its own before the last; and each invocation does some work."""
    slow.part_ms = part_ms
    ticks = slow.invocations()
    next(ticks)
    slow.audit.left_ms = left_ms
    second, third = next(ticks), next(ticks)
    assert second.passes[-1].listed > 0
    assert third.listed - third.passes[-1].listed == second.listed


def test_f118_a_checkpoint_that_becomes_slow_is_given_up(slow: Slow) -> None:
    """F118: the one before stands. The next invocation knows of it and stops earlier."""
    ticks = slow.invocations()
    take_time = slow.audit.gate.before
    puts = Counter[str]()

    def slow_at_last(operation: str, arguments: dict[str, Any]) -> None:
        puts[operation] += 1
        # The first checkpoints are quick.
        slow.part_ms = 20 * SECOND if puts["list_object_versions"] > 38 else SECOND
        take_time(operation, arguments)

    slow.audit.gate.before = slow_at_last
    first = next(ticks)
    assert first.stopped is Stopped.TIME
    second = next(ticks)
    lost = first.listed - (second.listed - second.passes[-1].listed)
    assert 0 < lost <= 2 * (CHECKPOINT_MS // PAGE_MS + 1)
    third = next(ticks)
    assert third.listed - third.passes[-1].listed == second.listed, "nothing is lost a second time"
    *_, last = third, *ticks
    assert last.complete
    assert last.listed == 2 * PAGES + 2


def test_f118_filters_that_do_not_change_any_more_are_not_stored_again(slow: Slow) -> None:
    """F118: those of the rows once the rows were read, that of the listing once it was listed."""
    slow.audit.world.settings = replace(slow.audit.world.settings, budget=1)
    for number in range(3):
        slow.audit.world.commit(f"gone-{number}", State(StateKind.OBJECT, "1", "1", 1))
    report = slow.audit.tick()
    while report.stopped is not Stopped.BUDGET:
        slow.audit.next_tick(2)
        report = slow.audit.tick()
    assert len([name for name in slow.stored if "#rows#" in name]) == SMALL_FILTERS
    before = len(slow.stored)
    # The budget of each run suffices for one of the rows.
    slow.audit.world.clock.advance(INTERVAL)
    assert slow.audit.tick().stopped is Stopped.BUDGET
    assert {name for name in slow.stored[before:] if "#shown#" in name} == set()
