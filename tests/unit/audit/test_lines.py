"""The report's lines: each state that S3 lists is in exactly one of them, in random worlds.

The worlds are made of situations. Each one says in which line its state belongs, from the documentation
(docs/audit.md) and not from the code.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from intake_ledger.audit.diff import NOT_JUDGED, WAITING, Line, Window
from intake_ledger.audit.report import NAMED_PASSES, Pass, Report, Stopped, few_passes, report_of
from intake_ledger.ledger.conditions import NO_ROW
from intake_ledger.protocol.change import State, StateKind
from intake_ledger.protocol.row import FORMAT, Ordering, Status
from intake_ledger.protocol.settings import KeyFilter
from tests.unit.audit.support import AuditWorld
from tests.unit.support import DAY, HOUR, MINUTE

FOUND = "found"
"""A difference, whose line depends on the messages that the run may send."""
NOT_COUNTED = ""
"""A row that is younger than the settle time: its object may be younger than the listing."""
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


def _directory(old: int = 2 * HOUR, ending: str = "/", status: Status | None = None) -> Make:
    def make(world: AuditWorld, key: str) -> None:
        state = world.s3.put(key + ending, age=old, size=0)
        if status is not None:
            world.insert(key + ending, state, status)

    return make


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
    "dismissed": Situation(Line.DISMISSED, _put(status=Status.REJECTED, needs_review="p#dismissed")),
    "from before the pipeline": Situation(Line.BASELINE, _put(40 * DAY)),
    "old": Situation(Line.LOOK_BACK, _put(20 * DAY)),
    "of a later release": Situation(Line.LATER_FORMAT, _put(status=Status.PROCESSED, format=FORMAT + 1)),
    "resubmitted a moment ago": Situation(Line.MARKED, _marked),
    "a directory marker": Situation(Line.DIRECTORY_MARKERS, _directory()),
    "a fresh directory marker": Situation(Line.DIRECTORY_MARKERS, _directory(MINUTE)),
    "an old directory marker of Hadoop": Situation(Line.DIRECTORY_MARKERS, _directory(20 * DAY, "_$folder$")),
    "a directory marker that failed": Situation(FOUND, _directory(status=Status.FAILED)),
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
    "gone, failed a moment ago": Situation(NOT_COUNTED, _row(Status.FAILED, age=MINUTE)),
    "gone, with a worker": Situation(Line.LEASED, _row(Status.PROCESSING, lease_until=HOUR)),
}


FILTERS = tuple(KeyFilter("", suffix) for suffix in (".csv", ".csv/", ".csv_$folder$"))


class Plan(NamedTuple):
    """A world to build."""

    ordering: Ordering
    versioned: bool
    page_size: int
    listed: list[list[str]]
    """The situations of each key's versions; only EVERY_VERSION has several."""
    outside: int
    gone: list[str]
    readers: int = 1

    def build(self, **more: Any) -> tuple[AuditWorld, Counter[str], Counter[str]]:
        """The world, and the expected lines of listed states and of rows that no listing shows."""
        world = AuditWorld(self.ordering, self.versioned, page_size=self.page_size, filters=FILTERS, **more)
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
            unlisted[UNLISTED[name].line] += UNLISTED[name].line != NOT_COUNTED
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
        draw(st.sampled_from([1, 1, 1, 3])),
    )


def window(world: AuditWorld) -> Window:
    now = world.clock()
    return Window(now - HOUR, now - 14 * DAY, baseline=now - 30 * DAY)


def in_bucket(world: AuditWorld) -> int:
    """The number of states in a listing."""
    every = world.ordering is Ordering.EVERY_VERSION
    return sum(len(states) if every else 1 for states in world.s3.keys.values())


def told(lines: Mapping[Line, int], *sent: Line) -> Counter[str]:
    """The lines, with those of a difference under one name."""
    names = Counter[str]()
    for line, number in lines.items():
        names[FOUND if line in sent else line.value] += number
    return +names


def by_name(lines: Counter[str]) -> Counter[str]:
    return +Counter({str(line): number for line, number in lines.items()})


@pytest.mark.failure_mode("F116")
@given(plans(), st.sampled_from([Line.RESUBMITTED, Line.DRY_RUN, Line.HELD_BACK]))
def test_each_state_of_the_listing_is_in_exactly_one_line(plan: Plan, sent: Line) -> None:
    """In the line of its situation. A state that was not judged is never in `agrees`."""
    world, listed, unlisted = plan.build()
    report = world.run(
        dry_run=sent is Line.DRY_RUN, resubmit=sent is Line.RESUBMITTED, window=window(world), readers=plan.readers
    )
    assert report.complete
    assert (told(report.lines, sent), told(report.unlisted, sent)) == (by_name(listed), by_name(unlisted))
    assert report.lines.total() == report.listed == in_bucket(world)
    findings = listed[FOUND] + unlisted[FOUND]
    assert report.resubmitted == len(world.sent) == (findings if sent is Line.RESUBMITTED else 0)
    assert report.counts.total() == findings + listed[Line.MARKED]
    waiting = sum(number for line, number in (listed + unlisted).items() if line in {*WAITING, *NOT_JUDGED})
    assert report.checked == (listed + unlisted).total() - waiting


@pytest.mark.failure_mode("F116", "F42")
@given(plans(), st.integers(0, 40))
@example(Plan(Ordering.LATEST, True, 10, [["lost"]] * 3, 1, []), 2)  # read, and out of time before the first look
def test_the_lines_of_a_run_out_of_time_add_up_too(plan: Plan, requests: int) -> None:
    """A run compares nothing before it has read everything. Each candidate that is left has a line."""
    world, listed, unlisted = plan.build()
    left = iter([900_000] * requests)
    report = world.run(window=window(world), remaining_ms=lambda: next(left, 0))
    assert report.lines.total() == report.listed == (0 if report.stopped is Stopped.READING else in_bucket(world))
    if report.stopped is not Stopped.READING:
        both, expected = report.lines + report.unlisted, by_name(listed + unlisted)
        assert both.total() == expected.total()
        # Most lines need no look.
        for line in (Line.AGREES, Line.BASELINE, Line.LOOK_BACK, Line.FILTERS):
            assert both[line] == expected[line.value]


@pytest.mark.failure_mode("F116")
@given(plans(), st.integers(0, 5))
def test_what_the_budget_leaves_over_has_a_line(plan: Plan, budget: int) -> None:
    """A run that stops there counts as many states as it has listed."""
    world, _, _ = plan.build(budget=budget)
    report = world.run(window=window(world))
    assert report.lines.total() == report.listed == in_bucket(world)
    both = report.lines + report.unlisted
    assert both[Line.RESUBMITTED] == report.resubmitted == len(world.sent) <= budget
    assert (report.stopped is Stopped.BUDGET) == (both[Line.OVER_BUDGET] > 0)


@pytest.mark.failure_mode("F116")
@pytest.mark.parametrize("deletes", [True, False])
def test_a_delete_marker_of_an_unknown_key_is_sent_if_deletes_are_told(deletes: bool) -> None:
    """One of an unknown key is nothing to process in a pipeline that is not told of removals."""
    world = AuditWorld(deletes=deletes)
    world.s3.mark("unknown")
    world.commit("committed", world.s3.mark("committed"))
    world.commit("lost", world.s3.put("lost"))
    world.s3.mark("lost")
    report = world.run()
    findings = 2 if deletes else 1
    assert report.lines == {Line.AGREES: 3 - findings, Line.RESUBMITTED: findings}


@pytest.mark.failure_mode("F116")
def test_the_summary_says_what_was_not_judged() -> None:
    """The report does not say that such a bucket was compared."""
    world, _, _ = Plan(
        Ordering.LATEST, True, 10, [["committed"], ["old"], ["old"], ["fresh"], ["rejected"]], 1, []
    ).build()
    assert world.run(window=window(world)).summary(world.clock()) == (
        "1 objects agree with the ledger; 1 rejected; 1 waiting (1 younger than the settle time); "
        "3 not judged (2 older than the look-back, 1 outside the filters)"
    )


@pytest.mark.failure_mode("F42")
def test_of_many_parts_the_first_ones_are_united() -> None:
    """Of more than a report names; no state is lost or counted twice."""
    passes = few_passes([Pass(number * HOUR, number * HOUR + MINUTE, 2) for number in range(NAMED_PASSES + 10)])
    assert len(passes) == NAMED_PASSES
    assert passes[0] == Pass(0, 10 * HOUR + MINUTE, 22)
    assert f"listed in {NAMED_PASSES} parts within 2 days" in Report("run", 0, passes=passes).summary(0)


def test_a_report_is_restored_as_it_was() -> None:
    """Lines that were not counted stay away, so that a sum of reports has none of zero."""
    report = Report("run", 5, dry_run=True, listed=3, lines=Counter({Line.LEASED: 3}), unlisted=Counter())
    report.passes.append(Pass(1, 2, 3))
    assert report_of(report.as_json(9)) == report
