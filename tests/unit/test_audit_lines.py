"""The report's lines: each state that S3 lists is in exactly one of them, in random worlds.

The worlds are made of situations. Each one says in which line its state belongs, from the documentation
(docs/audit.md) and not from the code.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from copy import deepcopy
from dataclasses import replace
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intake_ledger.audit import shown
from intake_ledger.audit.diff import NOT_JUDGED, WAITING, Line, Window
from intake_ledger.audit.progress import Progress
from intake_ledger.audit.report import NAMED_PASSES, Pass, Report, Stopped, report_of, summed
from intake_ledger.rows import FORMAT, Ordering, Status
from intake_ledger.settings import KeyFilter
from intake_ledger.states import State, StateKind
from intake_ledger.table import NO_ROW
from tests.unit.audit_support import AuditWorld
from tests.unit.support import DAY, HOUR, MINUTE
from tests.unit.test_audit_compare import resumed


@pytest.fixture(autouse=True, scope="module")
def small_filters() -> Iterator[None]:
    """Of four places in place of 128: each run has three of them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shown, "PARTS", 4)
        yield


FOUND = "found"
"""A difference: its line depends on what the run may send."""
Make = Callable[[AuditWorld, str], None]


class Situation(NamedTuple):
    """A way to put one state of a key into bucket and ledger, and the line it belongs to."""

    line: str
    make: Make


def _put(old: int = 2 * HOUR, status: Status | None = None, **row: Any) -> Make:
    def make(world: AuditWorld, key: str) -> None:
        state = world.s3.put(key, age=old)
        if status is not None:
            more = {"committed_state": state.identity} if status is Status.PROCESSED else {}
            times = {name: world.clock() + value for name, value in row.items() if name in ("lease_until", "retry_at")}
            world.insert(key, state, status, **(more | row | times))

    return make


def _another_state_committed(world: AuditWorld, key: str) -> None:
    world.insert(key, world.s3.put(key), Status.PROCESSED, committed_state="v#another")


def _marked(world: AuditWorld, key: str) -> None:
    state = world.s3.put(key)
    mark = {"audit_resubmitted_state": state.identity, "audit_resubmitted_at": world.clock() - MINUTE}
    world.ledger.mark(world.row_key(key, state), mark, NO_ROW)


SITUATIONS = {
    "committed": Situation(Line.AGREES, _put(status=Status.PROCESSED)),
    "committed, fresh": Situation(Line.AGREES, _put(MINUTE, Status.PROCESSED, age=MINUTE)),
    "committed, old": Situation(Line.AGREES, _put(40 * DAY, Status.PROCESSED, age=40 * DAY)),
    "fresh": Situation(Line.SETTLING, _put(MINUTE)),
    "failed a moment ago": Situation(Line.SETTLING, _put(status=Status.FAILED, age=MINUTE)),
    "with a worker": Situation(Line.LEASED, _put(status=Status.PROCESSING, lease_until=HOUR)),
    "due later": Situation(Line.NOT_YET, _put(status=Status.FAILED, retry_at=DAY)),
    "rejected": Situation(Line.REJECTED, _put(status=Status.REJECTED)),
    "rejected a moment ago": Situation(Line.REJECTED, _put(status=Status.REJECTED, age=MINUTE)),
    "from before the pipeline": Situation(Line.BASELINE, _put(40 * DAY)),
    "old": Situation(Line.LOOK_BACK, _put(20 * DAY)),
    "of a later release": Situation(Line.LATER_FORMAT, _put(status=Status.PROCESSED, format=FORMAT + 1)),
    "resubmitted a moment ago": Situation(Line.MARKED, _marked),
    "lost": Situation(FOUND, _put()),
    "failed": Situation(FOUND, _put(status=Status.FAILED)),
    "its worker died": Situation(FOUND, _put(status=Status.PROCESSING, lease_until=-HOUR)),
    "another state was committed": Situation(FOUND, _another_state_committed),
}


def _row(status: Status, **row: Any) -> Make:
    def make(world: AuditWorld, key: str) -> None:
        times = {name: world.clock() + value for name, value in row.items() if name == "lease_until"}
        state = State(StateKind.OBJECT, f"{key}-gone", "gone", 1)
        if status is Status.PROCESSED and world.ordering is Ordering.LATEST:
            world.commit(key, state)
        else:
            world.insert(key, state, status, **(row | times))

    return make


UNLISTED = {
    "gone, failed": Situation(FOUND, _row(Status.FAILED)),
    "gone, failed a moment ago": Situation(Line.SETTLING, _row(Status.FAILED, age=MINUTE)),
    "gone, with a worker": Situation(Line.LEASED, _row(Status.PROCESSING, lease_until=HOUR)),
}


class Plan(NamedTuple):
    """A world to build."""

    ordering: Ordering
    versioned: bool
    page_size: int
    listed: list[list[str]]
    """The situations of each key's versions; only EVERY_VERSION has several."""
    outside: int
    gone: list[str]

    def build(self, **more: Any) -> tuple[AuditWorld, Counter[str], Counter[str]]:
        """The world, and the expected lines of listed states and of rows that no listing shows."""
        world = AuditWorld(
            self.ordering, self.versioned, page_size=self.page_size, filters=(KeyFilter("", ".csv"),), **more
        )
        listed, unlisted = Counter[str](), Counter[str]()
        for number, versions in enumerate(self.listed):
            for name in versions:
                SITUATIONS[name].make(world, f"{number:03}.csv")
                listed[SITUATIONS[name].line] += 1
        for number in range(self.outside):
            world.s3.put(f"{number:03}.txt")
            listed[Line.FILTERS] += 1
        for number, name in enumerate(self.gone):
            UNLISTED[name].make(world, f"gone-{number:03}.csv")
            unlisted[UNLISTED[name].line] += 1
        return world, listed, unlisted


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    ordering = draw(st.sampled_from(Ordering))
    # An unversioned bucket has no ids of versions, by which EVERY_VERSION tells them apart.
    versioned = ordering is Ordering.EVERY_VERSION or draw(st.booleans())
    most = 3 if ordering is Ordering.EVERY_VERSION else 1
    names = st.lists(st.sampled_from(sorted(SITUATIONS)), min_size=1, max_size=most)
    gone = st.lists(st.sampled_from(sorted(UNLISTED)), max_size=4)
    return Plan(
        ordering,
        versioned,
        draw(st.integers(1, 5)),
        draw(st.lists(names, max_size=12)),
        draw(st.integers(0, 3)),
        draw(gone),
    )


def window(world: AuditWorld) -> Window:
    now = world.clock()
    return Window(now - HOUR, now - 14 * DAY, baseline=now - 30 * DAY)


def in_bucket(world: AuditWorld) -> int:
    """How many states a listing shows."""
    every = world.ordering is Ordering.EVERY_VERSION
    return sum(len(states) if every else 1 for states in world.s3.keys.values())


def told(lines: Mapping[Line, int], *sent: Line) -> Counter[str]:
    """The lines, with those of a difference under one name."""
    names = Counter[str]()
    for line, number in lines.items():
        names[FOUND if line in sent else line.value] += number
    return +names


def by_name(lines: Counter[str]) -> Counter[str]:
    return Counter({str(line): number for line, number in lines.items()})


@given(plans(), st.sampled_from([Line.RESUBMITTED, Line.DRY_RUN, Line.HELD_BACK]))
def test_f116_each_state_of_the_listing_is_in_exactly_one_line(plan: Plan, sent: Line) -> None:
    """F116: in the line that its situation belongs to; what was not judged is never said to agree."""
    world, listed, unlisted = plan.build()
    progress = world.fresh()
    progress.report.dry_run = sent is Line.DRY_RUN
    report = world.run(progress, resubmit=sent is Line.RESUBMITTED, window=window(world))
    assert report.complete
    assert (told(report.lines, sent), told(report.unlisted, sent)) == (by_name(listed), by_name(unlisted))
    assert report.lines.total() == report.listed == in_bucket(world)
    found = listed[FOUND] + unlisted[FOUND]
    assert report.resubmitted == len(world.sent) == (found if sent is Line.RESUBMITTED else 0)
    assert report.counts.total() == found + listed[Line.MARKED]
    waiting = sum(number for line, number in (listed + unlisted).items() if line in {*WAITING, *NOT_JUDGED})
    assert report.checked == (listed + unlisted).total() - waiting


@given(plans(), st.lists(st.integers(0, 4), min_size=1, max_size=12), st.booleans())
def test_f116_f42_the_lines_of_a_run_in_many_calls_add_up_too(plan: Plan, calls: list[int], killed: bool) -> None:
    """F116, F42: stopped between pages or killed within one; and the run says when each part was listed."""
    world, listed, unlisted = plan.build()
    progress, stored, times = world.fresh(), list[Progress](), list[int]()
    for pages in calls:
        left, began = [900_000] * pages + [0], world.clock()

        def saved(progress: Progress = progress, left: list[int] = left) -> None:
            left.pop(0)
            stored.append(snapshot(world, progress))
            if killed and len(left) == 1:
                raise _Killed

        with suppress(_Killed):
            world.run(progress, window=window(world), remaining_ms=partial(itemgetter(0), left), saved=saved)
        report = progress.report
        assert report.lines.total() == report.listed == sum(one.listed for one in report.passes)
        times.append(began)
        progress = stored[-1] if stored else world.fresh()
        world.clock.advance(1)
        if report.complete:
            break
    report = world.run(progress, window=window(world))
    assert report.complete
    sent = (Line.RESUBMITTED, Line.MARKED)
    assert told(report.lines, *sent) == told_found(listed)
    assert told(report.unlisted, *sent) == told_found(unlisted)
    assert report.lines.total() == report.listed == sum(one.listed for one in report.passes) == in_bucket(world)
    assert all(one.begun_at <= one.ended_at for one in report.passes)
    assert {one.begun_at for one in report.passes} <= {*times, world.clock()}


def snapshot(world: AuditWorld, progress: Progress) -> Progress:
    return resumed(world, replace(progress, report=deepcopy(progress.report)))


def told_found(lines: Counter[str]) -> Counter[str]:
    """A difference that a call has sent before it was stopped is marked for the next call."""
    names = by_name(lines)
    names[FOUND] += names.pop(Line.MARKED.value, 0)
    return +names


class _Killed(BaseException):
    pass


@given(plans(), st.integers(0, 5))
def test_f116_what_the_budget_leaves_over_has_a_line(plan: Plan, budget: int) -> None:
    """F116: a run that stops there counts as many states as it has listed."""
    world, _, _ = plan.build(budget=budget)
    report = world.run(window=window(world))
    assert report.lines.total() == report.listed <= in_bucket(world)
    both = report.lines + report.unlisted
    assert both[Line.RESUBMITTED] == report.resubmitted == len(world.sent) <= budget
    assert (report.stopped is Stopped.BUDGET) == (both[Line.OVER_BUDGET] > 0)


@pytest.mark.parametrize("deletes", [True, False])
def test_f116_delete_markers(deletes: bool) -> None:
    """F116: one of an unknown key is nothing to process in a pipeline that is not told of removals."""
    world = AuditWorld(deletes=deletes)
    world.s3.mark("unknown")
    world.commit("committed", world.s3.mark("committed"))
    world.commit("lost", world.s3.put("lost"))
    world.s3.mark("lost")
    report = world.run()
    found = 2 if deletes else 1
    assert report.lines == {Line.AGREES: 3 - found, Line.RESUBMITTED: found}


def test_f116_the_summary_says_what_was_not_judged() -> None:
    """F116: nobody takes a bucket for compared of which nothing was."""
    world, _, _ = Plan(
        Ordering.LATEST, True, 10, [["committed"], ["old"], ["old"], ["fresh"], ["rejected"]], 1, []
    ).build()
    assert world.run(window=window(world)).summary(world.clock()) == (
        "1 objects agree with the ledger; 1 rejected; 1 waiting (1 younger than the settle time); "
        "3 not judged (2 older than the look-back, 1 outside the filters)"
    )


def test_f42_a_run_in_parts_says_when_each_was_listed() -> None:
    """F42: of more parts than a report names, the first ones are united; no state is lost or counted twice."""
    report = Report("run", 0)
    for number in range(NAMED_PASSES + 10):
        report.begin_pass(number * HOUR)
        report.add_listed(Counter({Line.AGREES: 2}), number * HOUR + MINUTE)
    assert len(report.passes) == NAMED_PASSES
    assert report.passes[0] == Pass(0, 10 * HOUR + MINUTE, 22)
    assert sum(one.listed for one in report.passes) == report.listed
    assert f"listed in {NAMED_PASSES} parts within 2 days" in report.summary(0)
    both = Report("run", 0)
    content = report.as_json(0)
    summed(both, [content, content])
    assert (both.listed, len(both.passes)) == (2 * report.listed, NAMED_PASSES)
    assert sum(one.listed for one in both.passes) == both.lines.total() == both.listed


def test_a_report_is_restored_as_it_was() -> None:
    """Lines that were not counted stay away, so that a sum of reports has none of zero."""
    report = Report("run", 5, dry_run=True, listed=3, lines=Counter({Line.LEASED: 3}), unlisted=Counter())
    report.passes.append(Pass(1, 2, 3))
    assert report_of(report.as_json(9)) == report
