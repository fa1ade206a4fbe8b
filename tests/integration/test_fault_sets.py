"""Test the judge of the fault run of sets: each requirement is violated once."""

import json
from dataclasses import replace

import pytest

from tests.local.faults.downstream import Call, Delivery
from tests.local.faults.judge import Letter, Row
from tests.local.faults.set_judge import Part, SetFacts, SetRow, SetsExpected, judge_sets

OLD, NEW, OTHER = Part("s/a", "v1", "old"), Part("s/a", "v2", "new"), Part("s/b", "v3", "other")
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


IN_FOLDER = SetsExpected(folders=True, quiet_seconds=2)
FOLDER = replace(
    RIGHT,
    manifests={SET: ["s/a", "s/b"]},
    uploads=[OLD, OTHER, NEW],
    begun=[0, 0, 2.5],
    closed={SET: 2},
    set_calls=[processed("one", 3, OLD, OTHER), processed("two", 5, NEW, OTHER)],
)


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
    assert judge_sets(RIGHT, EXPECTED).right
    found = judge_sets(facts, EXPECTED).problems

    assert any(problem in one for one in found), found
