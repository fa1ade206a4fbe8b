"""The measures that may not grow in silence: the route of a record, the files that name an option, and resources.

A change that makes one greater raises its number here, with its reason in the commit. Lower it when it is smaller.
"""

import ast
import json
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from scripts.trace_record import EXECUTIONS, MESSAGES, OBJECTS, SETS, route, trace

from intake_ledger.consumer import hooks
from tests.settings import CONSUMER

ROOT = Path(__file__).resolve().parents[2]
CALLS_AND_CHANGES = {OBJECTS: (139, 85), MESSAGES: (139, 94), SETS: (274, 140), EXECUTIONS: (122, 82)}
"""The calls for a record after the first one, and the changes from one file to another."""
FILES = {
    "after_commit": 17,
    "max_rate": 12,
    "exclusive_by": 11,
    "rejects": 29,
    "stop_overtaken": 16,
    "outcome_events": 4,
    "exclude": 21,
    "ready_when": 18,
    "same_content": 14,
}
"""For an option, the number of files of production code that use its own names."""
NAMES = {
    "after_commit": """after_commit CommitTag CommitTags commit_tag tag_problems TagRefused TagsFull
        TAG_CODES tagged untagged tags_pending tags_unchanged judge_tags MAX_UNTAGGED""",
    "max_rate": """max_rate max_burst MaxRate Starts Rate StartTimes rate_problem rate_key in_line MAX_RATE MIN_RATE
        read_rate read_burst MAX_BURST_SECONDS LONGEST_LINE_SECONDS""",
    "exclusive_by": """exclusive_by GroupPattern GroupPatternError group_pattern GroupLock GroupHeld group_fence""",
    "ready_when": """ready_when ReadyWhen ReadyTag AwaitedTag awaited_tag awaited_tag_problems RefusedByTag TAG_MISSING
        TAG_REFUSES TAGGED lacks_tag put_tag on_tags""",
    "same_content": """same_content SameContent ContentRule content_rule content_problem Unchanged held_content
        committed_again SAME_CONTENT SAME_CONTENT_RULE SAME_CONTENT_NEEDS_VERSIONS SAME_CONTENT_EXECUTIONS
        SAME_CONTENT_EACH_VERSION""",
    "rejects": """rejects keep_rejects Rejects ClaimRejects claim_rejects AttemptRejects RejectedRows RowCounts
        rejects_place rejects_may_exist no_place begin_rejects rejected_rows rejected_rows_partition TooManyRejects
        max_share forgets_rejects rejects_partition""",
    "stop_overtaken": "stop_overtaken stops_overtaken STOP_OVERTAKEN is_overtaken",
    "outcome_events": "OutcomeEvents HasOutcomes Outcomes outcome_of check_loops",
    # One of the files has the option of the same name of CDK's bundling.
    "exclude": """exclude excludes Exclude LeavesOut leaves_out excluded EXCLUDED EXCLUDE_PATTERNS look_at_patterns
        with_former noted read_exclude pattern_problem patterns_problem""",
}
RESOURCES = 40
"""Of the stack of the start page."""


@pytest.mark.quiet_tables
@pytest.mark.parametrize("work", CALLS_AND_CHANGES)
def test_the_route_of_a_record_grows_no_longer(work: str) -> None:
    """An option that is not set, and what is always on and has nothing to say, cost no call."""
    measured = route(trace(work))
    calls, changes = CALLS_AND_CHANGES[work]
    assert measured.calls <= calls  # a cache that an earlier test has filled saves a call
    assert measured.changes <= changes


@cache
def _names() -> dict[str, frozenset[str]]:
    """The names that each file uses."""
    paths = [path for tree in ("lambda_src", "constructs", "tools") for path in sorted((ROOT / tree).rglob("*.py"))]
    return {str(path.relative_to(ROOT)): frozenset(_used(ast.parse(path.read_text()))) for path in paths}


def _used(tree: ast.AST) -> Iterator[str]:
    """Names in code. Imports, docstrings and texts only pass them on."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name) | ast.keyword(arg=str(name)):
                yield name
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield name


@pytest.mark.parametrize("option", FILES)
def test_no_more_files_name_an_option(option: str) -> None:
    own = set(NAMES[option].split())
    found = [path for path, names in _names().items() if own & names]
    assert len(found) == FILES[option], found


def test_the_default_stack_has_no_more_resources() -> None:
    folder = ROOT / "tests" / "ordinary" / "__snapshots__" / "test_1_template"
    [snapshot] = folder.glob("*.json")
    assert len(json.loads(snapshot.read_text())["Resources"]) == RESOURCES


class Both(hooks.Option):
    """An option at both points."""

    def __init__(self, name: str, wait: float | None, asked: list[str]) -> None:
        self.name, self.wait, self.asked = name, wait, asked

    def before_start(self, claim: Any, message: Any) -> None:
        self.asked.append(self.name)

    def settled(self, key: Any, change: Any, row: Any, message: Any) -> float | None:
        return self.wait


def test_options_are_asked_in_order_and_only_at_their_points() -> None:
    """A start that `max_rate` gives is lost if anything ends the attempt after it, so it is asked last."""
    assert hooks.OPTIONS[-1] == "max_rate"
    asked: list[str] = []
    made: Any = hooks.Hooks.of([Both("first", None, asked), hooks.Option(), Both("second", 3.0, asked)])
    for ask in made.before_start:
        ask(None, None)
    assert asked == ["first", "second"]
    assert [act(None, None, None, None) for act in made.settled] == [None, 3.0]
    assert hooks.Hooks.of([hooks.Option()]) == hooks.NO_HOOKS


def test_an_option_is_set_if_it_differs_from_its_default() -> None:
    """A default of False or 1 is off as well. No module has the name of such an option."""
    assert hooks.modules_of(CONSUMER, ("commit_together", "max_per_call", "rejects", *hooks.OPTIONS)) == []
    [module] = hooks.modules_of(replace(CONSUMER, rejects="outputs/rejects/"), ("commit_together", "rejects"))
    assert module.__name__ == "intake_ledger.options.rejects"
