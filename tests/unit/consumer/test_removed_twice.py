"""The downstream is told of a removal once per time that it may have the object."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdk_intake_ledger.testing import LocalPipeline, MemoryTables
from intake_ledger import Commit, ObjectChange
from intake_ledger.ledger.ledger import Claim
from intake_ledger.protocol import row as row_changes
from intake_ledger.protocol.row import Ordering, Row
from intake_ledger.protocol.verdict import Verdict
from tests.unit.stories import stories, tell
from tests.unit.support import DAY, KEY, MakeWorld, World, created, deleted, marked

if TYPE_CHECKING:
    from intake_ledger.protocol.change import State

pytestmark = pytest.mark.usefixtures("dynamodb")


class Counted:
    """A pipeline that counts the objects that the downstream has, in the transaction of each commit."""

    def __init__(self, *, ordering: Ordering = Ordering.LATEST, versioned: bool = True) -> None:
        self.tables = MemoryTables({"files": {"pk": "S"}})
        self.told: list[str] = []
        self.pipeline = LocalPipeline(
            self._process, deletes=True, dynamodb=self.tables, ordering=ordering, versioned=versioned
        )

    def _process(self, change: ObjectChange) -> Commit:
        self.told.append(change.kind)
        step = {":step": {"N": "1" if change.kind == "created" else "-1"}}
        key = {"pk": {"S": "objects"}}
        update = {
            "TableName": "files",
            "Key": key,
            "UpdateExpression": "ADD n :step",
            "ExpressionAttributeValues": step,
        }
        return Commit("counted", transact=[{"Update": update}])

    @property
    def count(self) -> int:
        item = self.tables.get_item(TableName="files", Key={"pk": {"S": "objects"}}).get("Item")
        return int(item["n"]["N"]) if item else 0

    def step(self, name: str, *, lose: bool = False) -> None:
        """One operation on the key, whose event may be lost."""
        versions = [str(one.version_id) for one in self.pipeline._s3.keys.get(KEY, ())]
        if name == "put":
            self.pipeline.put(KEY, "1")
        elif name == "delete":
            self.pipeline.delete(KEY)
        elif versions:
            self.pipeline.delete_version(KEY, versions[0 if name == "oldest" else -1])
        if lose:
            self.pipeline.lose()
            self.pipeline.clock.advance(DAY)
            self.pipeline.run_audit()

    def run(self, steps: Sequence[str], *, lose: bool = False) -> None:
        for name in steps:
            self.step(name, lose=lose)
            self.pipeline.run()


@pytest.mark.failure_mode("F600", "F601")
@pytest.mark.parametrize("lose", [False, True], ids=["by events", "by the audit"])
@pytest.mark.parametrize(
    ("steps", "told"),
    [
        pytest.param("put delete oldest oldest", "created removed", id="S3 clears the expired marker"),
        pytest.param("put delete delete", "created removed", id="a repeated DELETE"),
        pytest.param("put delete delete newest", "created removed", id="one of two markers goes"),
        pytest.param("delete", "", id="a key that never was"),
        pytest.param("delete delete newest", "", id="a key that never was, deleted twice"),
        pytest.param("put delete put delete delete", "created removed created removed", id="each time"),
        pytest.param("put delete newest delete delete", "created removed created removed", id="an undelete"),
    ],
)
def test_a_removal_is_told_once(steps: str, told: str, *, lose: bool) -> None:
    """Before, a counter in the commit's own transaction ended below 0."""
    counted = Counted()
    counted.run(steps.split(), lose=lose)
    assert counted.told == told.split()
    assert counted.count == 0
    assert counted.pipeline.run_audit() == []


@pytest.mark.failure_mode("F600", "F601")
@given(st.lists(st.sampled_from(["put", "delete", "delete", "oldest", "newest", "run"]), max_size=12), st.booleans())
def test_no_removal_follows_another_one(steps: list[str], versioned: bool) -> None:
    """In whichever way the object goes and comes back, and however late its events are handled."""
    counted = Counted(versioned=versioned)
    for name in steps:
        if name == "run":
            counted.pipeline.run()
        elif versioned or name in ("put", "delete"):
            counted.step(name)
    counted.pipeline.run()
    assert all(pair != ("removed", "removed") for pair in pairwise(["removed", *counted.told]))
    versions = counted.pipeline._s3.keys.get(KEY, [])
    present = bool(versions) and versions[-1].content is not None
    assert counted.told[-1:] in ([], ["removed"]) if not present else counted.told[-1] == "created"


@pytest.mark.failure_mode("F600")
def test_every_version_tells_a_marker_and_its_removal() -> None:
    """Each is a change of its own."""
    counted = Counted(ordering=Ordering.EVERY_VERSION)
    counted.run(["put", "delete", "delete", "newest"])
    assert counted.told == ["created", "removed", "removed", "deleted"]


@pytest.fixture
def told(world: World) -> tuple[World, Claim]:
    """An upload, and its removal, which the processor was told of."""
    world.process(created(world.s3.put(KEY, "1")))
    return world, world.process(marked(world.s3.mark_deleted(KEY)), "gone")


def again(world: World) -> "State":
    """A second marker, which is settled."""
    marker = world.s3.mark_deleted(KEY)
    assert world.verdict(marked(marker)) is Verdict.SETTLED
    return marker


@pytest.mark.failure_mode("F600")
def test_the_row_keeps_the_commit_that_was_told(told: tuple[World, Claim]) -> None:
    """Only the state, the expiry and the fence change. So nothing takes it for another outcome."""
    world, claim = told
    before = world.known(claim.change)
    world.clock.advance(DAY)
    marker = again(world)
    after = world.known(claim.change)
    assert after.fence > before.fence
    assert (after.expires_at or 0) > (before.expires_at or 0)
    same: dict[str, Any] = {"fence": before.fence, "expires_at": before.expires_at, "sequencer": before.sequencer}
    assert replace(after, **same) == replace(
        before, version_id=marker.version_id, committed_state=marker.identity, etag=marker.etag
    )


@pytest.mark.failure_mode("F600")
def test_a_repeated_commit_of_the_told_one_is_recognized(told: tuple[World, Claim]) -> None:
    """The answer to the commit was lost, and the SDK repeats it after the next removal."""
    world, claim = told
    again(world)
    world.ledger.commit(claim)
    assert world.known(claim.change).settled


@pytest.mark.failure_mode("F600", "F601")
@stories("""
    a late worker of the same removal repeats nothing
        put 1; created 1 commits; mark M; marked M dies; marked M commits M; mark N; marked N SETTLED;
        late 1 has nothing; row settled=True
    the upload of a settled marker is not processed, though its event comes after that of the marker
        all rows: put 1; mark M; marked M SETTLED; row status=PROCESSED settled_as=removed_unseen;
        created 1 SETTLED unprocessed; row settled_as=removed_unprocessed unprocessed_state=1;
        mark N; marked N SETTLED; row unprocessed_state=1
    the marker of a key whose row may have expired is told
        put 1; mark M; marked M claims M
""")
def test_a_removal_after_the_told_one(make_world: MakeWorld, story: str) -> None:
    tell(make_world, story)


@pytest.mark.failure_mode("F600")
@pytest.mark.parametrize("reports", ["before", "meanwhile", "after"])
def test_a_late_worker_of_the_object_makes_it_told_again(
    world: World, monkeypatch: pytest.MonkeyPatch, reports: str
) -> None:
    """It may have brought the object back. Its report may come between the judgement and the write."""
    late = world.die(created(world.s3.put(KEY, "1")))
    world.process(marked(world.s3.mark_deleted(KEY)))
    marker = world.s3.mark_deleted(KEY)

    def report() -> None:
        assert world.ledger.report_late_write(late)

    if reports == "before":
        report()
    if reports == "meanwhile":
        _before_the_next_write(world, monkeypatch, report)
    answer = world.answer(marked(marker))
    if reports == "after":
        assert answer.verdict is Verdict.SETTLED
        report()
        answer = world.answer(deleted(marker))
    assert isinstance(answer, Claim)
    assert world.known(late.change).expires_at is None


def _before_the_next_write(world: World, monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> None:
    update, left = world.table.update, [act]

    def first(*arguments: Any) -> None:
        if left:
            left.pop()()
        update(*arguments)

    monkeypatch.setattr(world.table, "update", first)


@pytest.mark.failure_mode("F600")
def test_a_row_that_may_not_expire_stays(told: tuple[World, Claim]) -> None:
    """Versions without a tag, and rejected rows."""
    world, claim = told
    row, retention = world.known(claim.change), world.ledger._retention

    def recorded(**more: object) -> Row:
        change = deleted(claim.state)
        seen = replace(row, **more)  # type: ignore[arg-type]
        return row_changes.removal_recorded(
            seen, change, claim.state, now=world.clock(), retention=retention, partition="p#removed"
        )

    assert recorded().expires_at is not None
    assert recorded(expires_at=None).expires_at is not None, "a late write of the same state has removed it"
    assert recorded(tags_pending="v1").expires_at is None
    assert recorded(rejected_rows=1).expires_at is None
    assert recorded(transactional=1).transactional == 1, "or the late report of the told one is accepted"
