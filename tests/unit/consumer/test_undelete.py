"""Files that were removed by mistake come back, and the processor was not told that they were gone."""

from dataclasses import asdict
from typing import Any

import pytest

from cdk_intake_ledger.testing import LocalPipeline, LocalSets
from intake_ledger import Commit, ObjectChange
from intake_ledger.protocol import row as row_changes
from intake_ledger.protocol.change import State, StateKind
from intake_ledger.protocol.row import Retention, Row, Status, rejected_rows_partition
from tests.unit.support import DAY, START, created, deleted, marked

KEYS = ("in/a.csv", "in/b.csv", "in/c.csv")
ONE, MARKER = State(StateKind.OBJECT, "v1", "e1", 1, START), State(StateKind.MARKER, "m1")


class Files:
    """A pipeline with its defaults, and some processed files."""

    def __init__(self, **options: Any) -> None:
        self.calls: list[str] = []
        self.pipeline = LocalPipeline(self._process, **options)
        for key in KEYS:
            self.pipeline.put(key, "1")
        self.pipeline.run()

    def _process(self, change: ObjectChange) -> Commit:
        self.calls.append(change.idempotency_key)
        return Commit(f"loaded {change.key}")

    def remove_and_undo(self, *, lose: bool = False) -> None:
        """Delete the files, and remove their markers."""
        markers = {key: self.pipeline.delete(key) for key in KEYS}
        self.pipeline.run()
        for key, marker in markers.items():
            self.pipeline.delete_version(key, str(marker))
        if lose:
            self.pipeline.lose()
            self.pipeline.clock.advance(DAY)
            assert set(self.pipeline.run_audit()) == set(KEYS)
        self.pipeline.run()

    def row(self) -> Row:
        row = self.pipeline.row(KEYS[0])
        assert row is not None
        return row


@pytest.mark.failure_mode("F603")
@pytest.mark.parametrize("lose", [False, True], ids=["by events", "by the audit"])
def test_files_that_come_back_are_not_processed_again(*, lose: bool) -> None:
    """Before, each was processed again under a new idempotency key."""
    files = Files()
    for _ in range(2):
        files.remove_and_undo(lose=lose)
        assert len(files.calls) == len(KEYS)
        row = files.row()
        assert (row.status, row.commit_id, row.settled_as) == (Status.PROCESSED, f"loaded {KEYS[0]}", None)
        assert row.has_committed(row.identity), "the audit agrees, sets see the part, and `wait` ends"
        files.pipeline.clock.advance(DAY)
        assert files.pipeline.run_audit() == []


@pytest.mark.failure_mode("F603")
def test_an_undone_removal_puts_back_all_columns_of_the_commit() -> None:
    """In one write: result, counts, tags and the partition of rows with rejected rows."""
    retention, change = Retention(DAY, rejects_partition=rejected_rows_partition("p")), created(ONE)
    claim = row_changes.claimed(None, change, ONE, owner="me", now=START, lease_until=START + 1)
    before = row_changes.committed(
        claim, "a result", now=START, retention=retention, transactional=True, processor_version="7", tags=True,
        counts=row_changes.RowCounts(10, 2),
    )  # fmt: skip
    settled = row_changes.removal_recorded(
        before, marked(MARKER), MARKER, now=START + 1, retention=retention, partition="p#removed"
    )
    # S3 takes the tag meanwhile.
    tagged = row_changes.tagged(settled, ["v1"], now=START + 2, retention=retention)
    after = row_changes.removal_undone(tagged, deleted(MARKER), ONE, now=START + 3, retention=retention)
    assert after.tagged_at == START + 2
    assert after.expires_at is None, "the output with its rejected rows is still there"
    same = asdict(row_changes.tagged(before, ["v1"], now=START + 2, retention=retention))
    other = {"fence", "updated_at", "attempts", "event_name", "event_id", "sequencer"}
    assert {name for name, value in asdict(after).items() if value != same[name]} <= other


@pytest.mark.failure_mode("F603")
def test_a_set_sees_a_part_that_came_back() -> None:
    """It is woken. The set itself is undone as its parts are, if its marker is removed."""
    calls: list[str] = []
    local = LocalSets(lambda change: calls.append(change.key), manifest="**/manifest.json")
    local.put("in/a.csv", "1")
    local.parts.run()
    marker = local.parts.delete("in/a.csv")
    local.put("in/manifest.json", '["a.csv"]')
    local.parts.run()
    local.run(hours=1)
    assert calls == []
    local.parts.delete_version("in/a.csv", str(marker))
    local.parts.run()
    local.run()
    assert calls == ["in/manifest.json"]
    removed = local.parts.delete("in/manifest.json")
    local.parts.run()
    local.run()
    local.parts.delete_version("in/manifest.json", str(removed))
    local.parts.run()
    local.run()
    assert calls == ["in/manifest.json"]
