"""A bucket without versions: the bytes name the state. docs/decisions.md has the reasons."""

import pytest

from cdk_intake_ledger.testing import LocalPipeline
from intake_ledger import ObjectChange

KEY = "in/a.csv"


def process(change: ObjectChange) -> str:
    if change.kind == "removed":
        return "removed"
    with change.open() as stream:
        return stream.read().decode()


def make_pipeline(*, versioned: bool = False, deletes: bool = False) -> LocalPipeline:
    return LocalPipeline(process, versioned=versioned, deletes=deletes)


def commits(pipeline: LocalPipeline) -> int:
    """Deliver all messages, and count the calls of the processor so far."""
    pipeline.run()
    return len(pipeline.calls)


def test_copies_of_one_event_are_one_change() -> None:
    pipeline = make_pipeline()
    pipeline.put(KEY, "A")
    pipeline.duplicate()
    assert commits(pipeline) == 1


@pytest.mark.failure_mode("F473")
def test_the_same_bytes_again_are_no_change_for_anybody() -> None:
    """Neither for the event nor for the audit: a tool may copy all files each night. A person can ask for more."""
    pipeline = make_pipeline()
    for _ in range(3):
        pipeline.put(KEY, "A")
        assert commits(pipeline) == 1
    pipeline.put(KEY, "A", metadata={"from": "partner"})
    assert commits(pipeline) == 1
    assert pipeline.run_audit() == []
    pipeline.reprocess(KEY)
    assert commits(pipeline) == 2


@pytest.mark.failure_mode("F473")
def test_bytes_that_come_back_after_others_are_a_change() -> None:
    """A rollback by hand."""
    pipeline = make_pipeline()
    for number, content in enumerate(("A", "B", "A"), 1):
        pipeline.put(KEY, content)
        assert commits(pipeline) == number


@pytest.mark.failure_mode("F473")
def test_bytes_that_come_back_unseen_need_no_effect() -> None:
    """The event of the others was lost, and they never had an effect."""
    pipeline = make_pipeline()
    pipeline.put(KEY, "A")
    assert commits(pipeline) == 1
    pipeline.put(KEY, "B")
    pipeline.lose()
    pipeline.put(KEY, "A")
    assert commits(pipeline) == 1
    assert pipeline.run_audit() == []


@pytest.mark.failure_mode("F473")
@pytest.mark.parametrize(("deletes", "calls"), [(False, 2), (True, 3)])
def test_bytes_that_come_back_after_a_removal_are_a_change(*, deletes: bool, calls: int) -> None:
    pipeline = make_pipeline(deletes=deletes)
    pipeline.put(KEY, "A")
    commits(pipeline)
    pipeline.delete(KEY)
    commits(pipeline)
    pipeline.put(KEY, "A")
    assert commits(pipeline) == calls


def test_with_versions_each_upload_is_a_change() -> None:
    """The way out."""
    pipeline = make_pipeline(versioned=True)
    for number in (1, 2, 3):
        pipeline.put(KEY, "A")
        assert commits(pipeline) == number
