"""An object that is removed before it was processed leaves a trace, and the copy of its rejection stays."""

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from cdk_intake_ledger.testing import LocalPipeline
from intake_ledger import Commit, ObjectChange, Unprocessable
from intake_ledger.protocol import row as row_changes
from intake_ledger.protocol.change import ABSENT, State, StateKind
from intake_ledger.protocol.row import Ordering, Retention, Row, Settlement, Status, removed_partition
from intake_ledger.set_members.forms import FormKind, FormSettings
from intake_ledger_testing.local_settings import PIPELINE
from tests.unit.executions.support import ExecutionPipeline
from tests.unit.sets.bench import SetBench
from tests.unit.stories import stories, tell
from tests.unit.support import DAY, RETENTION, START, MakeWorld, created, deleted, marked

if TYPE_CHECKING:
    from collections.abc import Callable

KEY = "in/a.csv"
ONE = State(StateKind.OBJECT, "v1", "e1", 1, START)
MARKER = State(StateKind.MARKER, "m1")


class Uploads:
    """A pipeline whose processor fails, rejects or commits."""

    def __init__(self, *, versioned: bool = True, ordering: Ordering = Ordering.LATEST, deletes: bool = False) -> None:
        self.does: list[str] = []
        self.on_call: Callable[[], None] = lambda: None
        self.pipeline = LocalPipeline(self._process, versioned=versioned, ordering=ordering, deletes=deletes)

    def _process(self, change: ObjectChange) -> Commit:
        self.on_call()
        does = self.does.pop(0) if self.does else "commit"
        if does == "fail":
            raise ConnectionError("downstream is out")
        if does == "reject":
            raise Unprocessable("bad header")
        return Commit(f"done {change.key}")

    def end(self, version: str | None = None) -> tuple[object, ...]:
        row = self.pipeline.row(KEY, version)
        assert row is not None
        return row.status, row.settled_as, row.attempts, row.reason


@pytest.fixture(params=[True, False], ids=["versioned", "unversioned"])
def uploads(request: pytest.FixtureRequest) -> Uploads:
    return Uploads(versioned=request.param)


@pytest.mark.failure_mode("F240")
def test_a_failed_object_that_is_removed_keeps_reason_and_attempts(uploads: Uploads) -> None:
    """Before, the row said PROCESSED after no attempt, without a reason."""
    uploads.does = ["fail"] * 3
    calls: list[int] = []

    def remove() -> None:
        calls.append(1)
        if len(calls) == 3:
            uploads.pipeline.delete(KEY)

    uploads.on_call = remove
    uploads.pipeline.put(KEY, "1")
    uploads.pipeline.run()
    status, name, attempts, reason = uploads.end()
    assert (status, name, attempts) == (Status.PROCESSED, Settlement.REMOVED_UNPROCESSED, 3)
    assert "ConnectionError" in str(reason)
    row = uploads.pipeline.row(KEY)
    assert row is not None
    assert row.needs_review == removed_partition(PIPELINE)
    assert row.expires_at is not None, "settled"
    assert uploads.pipeline.removed_unprocessed == 1


@pytest.mark.failure_mode("F240")
def test_the_copy_of_a_rejected_object_that_was_removed_stays(uploads: Uploads) -> None:
    """A redrive says why it cannot run. It is not a duplicate of anything."""
    uploads.does = ["reject"]
    uploads.pipeline.put(KEY, "1")
    uploads.pipeline.run()
    uploads.pipeline.delete(KEY)
    uploads.pipeline.run()
    assert uploads.end() == (Status.PROCESSED, Settlement.REMOVED_UNPROCESSED, 1, "bad header")
    for _ in range(2):
        uploads.pipeline.redrive()
        uploads.pipeline.run()
        [copy] = uploads.pipeline.dead_letters
        assert copy.attributes["reason_code"] == "removed_unprocessed"
        text = copy.attributes["reason"]
        assert text == "removed before it was processed, so it cannot run: bad header"
    assert uploads.pipeline.removed_unprocessed == 1


@pytest.mark.failure_mode("F240")
@stories("""
    a redrive finds the removal
        deletes off: put 1; created 1 rejects; mark M; copy 1 SETTLED unprocessed;
        row settled_as=removed_unprocessed attempts=1 reason=rejects
    a redrive finds the removal without versions
        deletes off, without versions: put 1; created 1 rejects; mark M; copy 1 SETTLED unprocessed;
        row settled_as=removed_unprocessed attempts=1 reason=rejects
    the audit settles a lost removal once
        deletes off: put 1; created 1 rejects; mark M; audited M SETTLED unprocessed; audited M DUPLICATE;
        row settled_as=removed_unprocessed attempts=1 reason=rejects
    a new upload after it is new
        deletes off: put 1; created 1 rejects; mark M; marked M SETTLED unprocessed; put 1 as 2; created 2 commits 2;
        row settled_as=None attempts=1 needs_review=None unprocessed_state=None
    a rollback of the removal processes the object
        deletes off: put 1; created 1 rejects; mark M; marked M SETTLED unprocessed; remove M; deleted M commits 1;
        row settled_as=None attempts=1
    a second removal keeps the trace, as of a lifecycle rule or of a person
        deletes off: put 1; created 1 rejects; mark M; marked M SETTLED unprocessed; mark N; marked N SETTLED;
        row settled_as=removed_unprocessed attempts=1 reason=rejects unprocessed_state=1
    a processed object that is removed is not listed
        deletes off: put 1; created 1 commits; mark M; marked M SETTLED;
        row settled_as=removal attempts=0 needs_review=None
    a processed object that is removed without versions
        deletes off, without versions: put 1; created 1 commits; mark M; deleted M SETTLED;
        row settled_as=removal attempts=0 needs_review=None
    the upload's own event comes after its removal, and shows that it was never processed
        deletes off: put 1; mark M; marked M SETTLED; created 1 SETTLED unprocessed; created 1 STALE;
        row settled_as=removed_unprocessed attempts=0 unprocessed_state=1
    a removal without an upload has a name of its own, since the row of the object may have expired
        deletes off: put 1; mark M; marked M SETTLED; row settled_as=removed_unseen attempts=0 reason=None
    with deletes, the processor is told, and its commit is the trace
        put 1; created 1 rejects; mark M; marked M commits M; row settled_as=None attempts=1
""")
def test_what_the_row_says_of_a_removal(make_world: MakeWorld, story: str) -> None:
    tell(make_world, story)


@pytest.mark.failure_mode("F240")
def test_without_a_marker_it_is_counted() -> None:
    uploads = Uploads(versioned=False)
    uploads.pipeline.put(KEY, "1")
    uploads.pipeline.delete(KEY)
    uploads.pipeline.run()
    assert uploads.pipeline.row(KEY) is None
    assert uploads.pipeline.removed_unprocessed == 1


class TestEveryVersion:
    """Each version has a row of its own."""

    @pytest.fixture(params=[True, False], ids=["deletes", "no deletes"])
    def uploads(self, request: pytest.FixtureRequest) -> Uploads:
        return Uploads(ordering=Ordering.EVERY_VERSION, deletes=request.param)

    @pytest.mark.failure_mode("F240")
    def test_a_version_that_is_gone_keeps_reason_and_attempts(self, uploads: Uploads) -> None:
        uploads.does = ["fail"] * 3
        version = uploads.pipeline.put(KEY, "1")
        assert version is not None
        calls: list[int] = []

        def remove() -> None:
            calls.append(1)
            if len(calls) == 3:
                uploads.pipeline.delete_version(KEY, version)

        uploads.on_call = remove
        uploads.pipeline.run()
        status, name, attempts, reason = uploads.end(version)
        assert (status, name, attempts) == (Status.PROCESSED, Settlement.REMOVED_UNPROCESSED, 3)
        assert "ConnectionError" in str(reason)
        assert uploads.pipeline.removed_unprocessed == 1

    @pytest.mark.failure_mode("F240")
    def test_the_copy_of_a_rejected_version_that_is_gone_stays(self, uploads: Uploads) -> None:
        """Before, the redrive was acknowledged, and the row stayed REJECTED without a copy."""
        uploads.does = ["reject"]
        version = uploads.pipeline.put(KEY, "1")
        assert version is not None
        uploads.pipeline.run()
        uploads.pipeline.delete_version(KEY, version)
        uploads.pipeline.run()
        for _ in range(2):
            uploads.pipeline.redrive()
            uploads.pipeline.run()
            assert uploads.end(version) == (Status.PROCESSED, Settlement.REMOVED_UNPROCESSED, 1, "bad header")
            [copy] = uploads.pipeline.dead_letters
            assert copy.attributes["reason_code"] == "removed_unprocessed"
        assert uploads.pipeline.removed_unprocessed == 1

    @pytest.mark.failure_mode("F240")
    def test_a_version_that_is_gone_before_its_first_delivery_is_counted(self, uploads: Uploads) -> None:
        version = uploads.pipeline.put(KEY, "1")
        assert version is not None
        uploads.pipeline.delete_version(KEY, version)
        uploads.pipeline.run()
        assert uploads.pipeline.row(KEY, version) is None
        assert uploads.pipeline.removed_unprocessed == 1


class TestRow:
    """The rule itself."""

    def recorded(self, seen: Row | None, *, at: int = START, event: int = START, keeps_rows: bool = False) -> Row:
        return row_changes.removal_recorded(
            seen,
            created(ONE, at=event),
            ABSENT,
            now=at,
            retention=Retention(RETENTION // 1000, keeps_rows),
            partition="p#removed",
        )

    @pytest.mark.failure_mode("F240")
    def test_the_event_of_an_upload_proves_nothing_when_its_row_may_have_expired(self) -> None:
        assert self.recorded(None).settled_as == Settlement.REMOVED_UNPROCESSED
        assert self.recorded(None, at=START + RETENTION + DAY).settled_as == Settlement.REMOVED_UNSEEN

    @pytest.mark.failure_mode("F240")
    def test_a_complete_ledger_lets_the_row_expire_too(self) -> None:
        row = self.recorded(Row(Status.FAILED, 7, "v1", attempts=4, reason="no"), keeps_rows=True)
        assert row.expires_at == (START + RETENTION + DAY) // 1000
        assert (row.attempts, row.reason, row.unprocessed_state) == (4, "no", "v#v1")

    @pytest.mark.failure_mode("F240")
    @pytest.mark.parametrize("status", [Status.FAILED, Status.REJECTED, Status.PROCESSING])
    def test_the_row_of_a_removal_that_was_not_told_is_no_object(self, status: Status) -> None:
        """`deletes` was switched off."""
        seen = Row(status, 7, "m1", kind=StateKind.MARKER)
        assert self.recorded(seen).settled_as == Settlement.REMOVAL

    @pytest.mark.failure_mode("F240")
    def test_a_removal_event_proves_no_upload(self) -> None:
        for change in (deleted(ONE), marked(MARKER), replace(created(ONE), event_time=None)):
            row = row_changes.removal_recorded(
                None, change, MARKER, now=START, retention=Retention(RETENTION // 1000), partition="p#removed"
            )
            assert row.settled_as == Settlement.REMOVED_UNSEEN


class TestOtherKinds:
    """Sets of files and executions of a state machine are claimed by the same ledger."""

    @pytest.mark.failure_mode("F240")
    @pytest.mark.parametrize("end", ["waits", "rejected"])
    def test_a_set_whose_manifest_is_removed_keeps_its_reason(self, end: str) -> None:
        bench = SetBench(FormSettings(FormKind.MANIFEST, "**/manifest.json"), max_wait=3_600)
        bench.put("in/manifest.json", json.dumps(["a.csv"]))
        bench.run(hours=0.5)
        if end == "rejected":
            bench.run()
        bench.delete("in/manifest.json")
        bench.run()
        row = bench.known("in/manifest.json")
        assert (row.status, row.settled_as) == (Status.PROCESSED, Settlement.REMOVED_UNPROCESSED)
        assert "a.csv" in str(row.reason)
        assert bench.removed_unprocessed == 1
        assert len(bench.dead_letters) == (end == "rejected")

    @pytest.mark.failure_mode("F240")
    def test_an_object_that_is_removed_while_its_execution_runs_keeps_its_reason(self) -> None:
        """The execution decides first. Then S3 shows the removal."""
        pipeline = ExecutionPipeline(deletes=False)
        version = pipeline.put()
        pipeline.turn()
        pipeline.s3.delete("a.csv")
        [execution] = pipeline.running()
        pipeline.finish(execution, "FAILED", error="States.TaskFailed")
        pipeline.drain(lambda _: None)
        row = pipeline.row()
        assert (row.status, row.settled_as) == (Status.PROCESSED, Settlement.REMOVED_UNPROCESSED)
        assert (row.attempts, row.unprocessed_state) == (1, f"v#{version}")
        assert "States.TaskFailed" in str(row.reason)
        assert len(pipeline.telemetry.removed) == 1
