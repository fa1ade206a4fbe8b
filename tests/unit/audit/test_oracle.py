"""The audit against an oracle that was written from docs/audit.md."""

import os
from functools import partial
from random import Random
from typing import TYPE_CHECKING

import pytest

from intake_ledger.audit import one_function
from intake_ledger.audit.diff import NOT_SENT, Line, Window
from intake_ledger.audit.report import NAMED_FINDINGS, Report, Stopped
from intake_ledger.protocol.row import Ordering
from tests.settings import examples
from tests.unit.audit.oracle import LOOK_BACK, SETTLE, OracleWorld, build, random_world
from tests.unit.audit.support import AuditWorld
from tests.unit.support import START

if TYPE_CHECKING:
    from collections.abc import Callable

WORLDS = int(os.environ.get("ORACLE_WORLDS", examples(150)))
"""`make audit-oracle` takes 5,000."""
LOOKS = 8
"""Looks at the time: one for each page, of which there are at most four, and one for each batch of candidates."""


def window(world: OracleWorld) -> Window:
    known_since = 0 if world.known_since is None else world.now - world.known_since
    return Window(world.now - SETTLE, known_since, removals_since=world.now - LOOK_BACK)


def found(report: Report) -> set[tuple[str, str, str]]:
    assert len(report.findings) < NAMED_FINDINGS, "the report names all of them"
    return {(finding["key"], finding["why"], finding["state"]) for finding in report.findings}


def whole(made: AuditWorld, world: OracleWorld) -> Report:
    return made.run(window=window(world))


def shown(world: OracleWorld) -> int:
    """The number of states in a listing of the filters' prefixes."""
    prefixes = tuple(key_filter.prefix for key_filter in world.filters) or ("",)
    stories = [story for story in world.stories if story.key.startswith(prefixes)]
    every = world.ordering is Ordering.EVERY_VERSION
    return sum(len(story.versions) if every else min(len(story.versions), 1) for story in stories)


def side_by_side(made: AuditWorld, world: OracleWorld) -> Report:
    return made.run(window=window(world), readers=3)


def in_many_runs(made: AuditWorld, world: OracleWorld) -> Report:
    """Each run has time for some candidates. All runs together find the same as one long run."""
    names = set[tuple[str, str, str]]()
    for _ in range(1_000):
        looks = iter([900_000] * LOOKS)
        report = made.run(window=window(world), remaining_ms=partial(next, looks, 0))
        assert report.stopped in (None, Stopped.TIME)
        names |= found(report)
        # Each run begins at another candidate.
        made.clock.advance(1)
        if report.complete or names == world.expected():
            report.findings = [{"key": key, "why": why, "state": state} for key, why, state in names]
            return report
    raise AssertionError("it never came to its end")


@pytest.mark.parametrize("run", [whole, side_by_side, in_many_runs])
def test_the_audit_finds_what_the_page_promises(
    run: "Callable[[AuditWorld, OracleWorld], Report]", monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither less nor more, and a message for each finding."""
    monkeypatch.setattr(one_function, "BATCH", 5)
    for seed in range(WORLDS):
        world = random_world(Random(seed), START)
        made = build(world, page_size=1000 if run is in_many_runs else Random(seed).choice([1, 3, 1000]))
        report = run(made, world)
        expected = world.expected()
        assert found(report) == expected, f"seed {seed}: {world}"
        assert made.sent == sorted(key for key, _, _ in expected)


@pytest.mark.failure_mode("F116")
def test_each_state_that_s3_shows_is_in_one_line() -> None:
    """Also in suspended buckets, whose keys may have a version without an ID. Findings are those of the page."""
    found_lines = {Line.RESUBMITTED, *NOT_SENT}
    for seed in range(WORLDS):
        world = random_world(Random(seed), START)
        report = whole(build(world, page_size=3), world)
        assert report.lines.total() == report.listed == shown(world), f"seed {seed}: {world}"
        both = report.lines + report.unlisted
        assert sum(both[line] for line in found_lines) == len(world.expected())
