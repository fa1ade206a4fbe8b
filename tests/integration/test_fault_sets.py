"""Test the judge of the fault run of sets: each requirement is violated once."""

import json
from dataclasses import replace

import pytest

from tests.local.faults.downstream import Call, Delivery
from tests.local.faults.judge import Letter, Row
from tests.local.faults.set_judge import Part, SetFacts, SetRow, SetsExpected, judge_sets

OLD, NEW, OTHER = Part("s/a", "v1", "old"), Part("s/a", "v2", "new"), Part("s/b", "v3", "other")
BAD = Part("s/b", "v4", "bad")
SET = "s/manifest.json"


def call(key: str, version: str, at: float, *, content: str = "", fence: int = 1, taken: bool = True) -> Call:
    """A call that takes almost a second."""
    delivery = Delivery(
        key=key, version=version, content=content, attempt=1, fence=fence, idempotency_key=f"i{version}", pid=1
    )
    return Call(delivery, at, at + 0.9, taken)


def processed(version: str, at: int, *parts: Part) -> Call:
    """A call of the sets' processor. Its fence is its time."""
    return call(SET, version, at, content=json.dumps(parts), fence=at)


PARTS = [call("s/a", "v1", 1), call("s/b", "v3", 2), call("s/a", "v2", 4)]
FIRST, LAST = processed("one", 3, OTHER, OLD), processed("two", 5, OTHER, NEW)
UNNAMED = LAST._replace(delivery=replace(LAST.delivery, idempotency_key="i"))
RIGHT = SetFacts(
    manifests={SET: ["s/b", "s/a"]},
    uploads=[OLD, OTHER, NEW],
    parts={"s/a": Row("PROCESSED", "v2"), "s/b": Row("PROCESSED", "v3")},
    rows={SET: SetRow("PROCESSED", "two", "itwo")},
    letters=[],
    part_calls=PARTS,
    set_calls=[FIRST, LAST],
)
EXPECTED = SetsExpected()


def test_a_run_in_which_all_is_right() -> None:
    """Each number is counted from the facts."""
    report = judge_sets(RIGHT, EXPECTED)

    assert report.right, report.problems
    assert (report.sent, report.processed, report.repeated, report.rejected) == (1, 2, 0, 0)
    assert (report.lost, report.innocents) == (0, 0)


def test_a_part_whose_newer_version_was_refused_keeps_the_committed_one() -> None:
    facts = replace(
        RIGHT, uploads=[*RIGHT.uploads, BAD], parts={**RIGHT.parts, "s/b": Row("REJECTED", "v3", "no rows in it")}
    )

    assert judge_sets(facts, SetsExpected(refused=frozenset({"s/b"}))).right
    assert not judge_sets(facts, EXPECTED).right


def test_an_effect_may_be_repeated_for_a_killed_worker_and_for_an_unheard_commit() -> None:
    """Without one of these causes, the same facts are a problem."""
    facts = replace(RIGHT, set_calls=[FIRST, LAST, processed("two", 6, OTHER, NEW)])

    assert judge_sets(facts, SetsExpected(killed={SET: 1})).right
    assert judge_sets(facts, SetsExpected(unheard=1)).right
    assert not judge_sets(facts, SetsExpected(killed={"another": 1})).right


IN_FOLDER = SetsExpected(folders=True, quiet_seconds=2)
FOLDER = replace(
    RIGHT,
    manifests={SET: ["s/a", "s/b"]},
    uploads=[OLD, OTHER, NEW],
    begun=[0, 0, 2.5],
    closed={SET: 2},
    set_calls=[processed("one", 3, OLD, OTHER), processed("two", 5, NEW, OTHER)],
)


def test_a_folder_whose_effects_had_what_was_there() -> None:
    """A marker that came first closes a folder with fewer parts. A folder may be quiet for a second less."""
    early = replace(FOLDER, closed={SET: 0}, set_calls=[processed("none", 2, OLD), *FOLDER.set_calls])

    assert judge_sets(FOLDER, IN_FOLDER).problems == ()
    assert judge_sets(early, IN_FOLDER).problems == ()
    assert judge_sets(replace(FOLDER, begun=[0, 0, 4]), IN_FOLDER).problems == ()


@pytest.mark.parametrize(
    ("facts", "problem"),
    [
        (replace(FOLDER, set_calls=[processed("none", 2, OLD), *FOLDER.set_calls]), "had no s/b, which had been"),
        (
            replace(FOLDER, closed={}, set_calls=[FOLDER.set_calls[0], processed("half", 5, NEW)]),
            "had no s/b, which had been uploaded",
        ),
        (replace(FOLDER, begun=[0, 0, 4.5]), "an effect began 0.5 s after an upload, and not 2 s"),
    ],
)
def test_each_violation_in_a_folder_is_found(facts: SetFacts, problem: str) -> None:
    """Without a manifest, the folder says which parts an effect must have."""
    found = judge_sets(facts, IN_FOLDER).problems

    assert any(problem in one for one in found), found
    assert not any(problem in one for one in judge_sets(facts, SetsExpected()).problems)


def test_the_version_of_a_folder_may_run_once_more_after_an_upload_that_made_no_new_one() -> None:
    """Under another idempotency key, and not a third time."""
    again = processed("two", 7, OTHER, NEW)
    twice = replace(RIGHT, set_calls=[FIRST, UNNAMED, again])
    thrice = replace(twice, set_calls=[*twice.set_calls, processed("two", 8, OTHER, NEW)])
    returned = SetsExpected(returned=frozenset({SET}))

    assert judge_sets(twice, returned).right
    assert not judge_sets(twice, replace(EXPECTED, unheard=1)).right
    assert not judge_sets(thrice, returned).right


def with_last(last: Call) -> SetFacts:
    return replace(RIGHT, set_calls=[FIRST, last])


@pytest.mark.parametrize(
    ("facts", "problem"),
    [
        (replace(RIGHT, rows={}), "no row"),
        (replace(RIGHT, rows={SET: SetRow("FAILED", "two", "itwo", "1 part")}), "the ledger says FAILED: 1 part"),
        (replace(RIGHT, rows={SET: SetRow("PROCESSED", "one", "ione")}), "the ledger has committed 'one'"),
        (replace(RIGHT, rows={SET: SetRow("PROCESSED", "two", "ione")}), "the ledger has committed 'two'"),
        (replace(RIGHT, set_calls=[]), "no effect"),
        (replace(RIGHT, set_calls=[FIRST]), "the last effect had"),
        (with_last(processed("two", 5, NEW, OTHER)), "the last effect had"),
        (with_last(processed("two", 5, OTHER)), "the last effect had"),
        (replace(RIGHT, manifests={SET: ["s/b"]}), "the last effect had"),
        (with_last(processed("two", 5, OTHER, NEW._replace(content="old"))), "other bytes of s/a"),
        (replace(RIGHT, part_calls=PARTS[:2]), "had s/a at 'v2', which was not committed"),
        (replace(RIGHT, part_calls=[*PARTS[:2], call("s/a", "v2", 4.5)]), "which was not committed"),
        (replace(RIGHT, part_calls=[*PARTS[:2], call("s/a", "v2", 4, taken=False)]), "which was not committed"),
        (replace(RIGHT, part_calls=[*PARTS, call("s/a", "v2", 8)]), "which was not committed"),
        (replace(RIGHT, set_calls=[LAST, processed("one", 6, OTHER, OLD)]), "s/a went back to 'v1'"),
        (replace(RIGHT, set_calls=[FIRST, LAST, processed("two", 6, OTHER, NEW)]), "without a killed worker"),
        (
            replace(
                RIGHT,
                set_calls=[
                    FIRST,
                    UNNAMED,
                    processed("two", 6, OTHER, NEW),
                ],
            ),
            "2 idempotency keys",
        ),
        (replace(RIGHT, set_calls=[FIRST, LAST._replace(started=3.5)]), "processed at the same time"),
        (with_last(call(SET, "two", 5, content=LAST.delivery.content, fence=3)), "the fence went from 3 to 3"),
        (replace(RIGHT, letters=[Letter(SET, "1 part is missing")]), "a dead letter, '1 part is missing'"),
        (replace(RIGHT, parts={"s/b": Row("PROCESSED", "v3")}), "s/a: the ledger says nothing of a part"),
        (replace(RIGHT, parts={**RIGHT.parts, "s/b": Row("FAILED", "v3")}), "s/b: the ledger says FAILED"),
        (replace(RIGHT, parts={**RIGHT.parts, "s/a": Row("PROCESSED", "v1")}), "committed 'v1' of a part"),
    ],
)
def test_each_violation_is_found(facts: SetFacts, problem: str) -> None:
    """One thing at a time is altered in facts that were right."""
    found = judge_sets(facts, EXPECTED).problems

    assert any(problem in one for one in found), found


def test_lost_sets_and_innocents_are_counted() -> None:
    report = judge_sets(replace(RIGHT, set_calls=[FIRST], letters=[Letter(SET, "")]), EXPECTED)

    assert (report.lost, report.innocents) == (1, 1)
