"""A bucket without versions: the bytes name the state. docs/decisions.md has the reasons."""

import pytest

from cdk_intake_ledger.testing import LocalPipeline
from tests.unit.stories import stories, tell
from tests.unit.support import MakeWorld

KEY = "in/a.csv"


def commits(pipeline: LocalPipeline) -> int:
    """Deliver all messages, and count the calls of the processor so far."""
    pipeline.run()
    return len(pipeline.calls)


@pytest.mark.failure_mode("F473", "F604")
@stories("""
    bytes that come back after others, as by a rollback by hand
        without versions: put A; created A commits; put B; created B commits; put A as C; created C commits C
    bytes that come back unseen need no effect, since the others never had one
        without versions: put A; created A commits; put B; put A as C; created C DUPLICATE
    bytes that come back after a removal that was told
        without versions: put A; created A commits; mark M; deleted M commits absent; put A as C; created C commits C
    bytes that come back after a removal that was not told
        deletes off, without versions: put A; created A commits; mark M; deleted M SETTLED; put A as C;
        created C commits C
""")
def test_bytes_that_come_back(make_world: MakeWorld, story: str) -> None:
    tell(make_world, story)


@pytest.mark.failure_mode("F473")
def test_the_same_bytes_again_are_no_change_for_anybody() -> None:
    """Neither for the event nor for the audit: a tool may copy all files each night. A person can ask for more."""
    pipeline = LocalPipeline(lambda change: change.read(9).decode(), versioned=False)
    for _ in range(3):
        pipeline.put(KEY, "A")
        assert commits(pipeline) == 1
    pipeline.put(KEY, "A", metadata={"from": "partner"})
    assert commits(pipeline) == 1
    assert pipeline.run_audit() == []
    pipeline.reprocess(KEY)
    assert commits(pipeline) == 2
