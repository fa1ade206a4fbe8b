"""The audit's pass over bucket and ledger, against both in memory."""

import pytest

from intake_ledger.audit.diff import Line
from intake_ledger.audit.look import BATCH
from intake_ledger.audit.report import Stopped
from intake_ledger.protocol.change import State, StateKind
from intake_ledger.protocol.row import Status
from intake_ledger.protocol.settings import KeyFilter
from tests.unit.audit.stories import tell
from tests.unit.audit.support import AuditWorld
from tests.unit.stories import stories
from tests.unit.support import HOUR


@pytest.fixture
def world() -> AuditWorld:
    return AuditWorld()


@stories("""
    F39 a lost removal is found by its row
        latest: put gone kept; commit gone; commit kept; lose gone; run; finds removed gone; sends gone; complete
    F39 a lost delete marker is found in the listing, and its row is not asked about again
        latest: put gone; commit gone; mark gone; run; finds removed gone; heads gone
    F40 lifecycle deletions are found like any other
        latest: put old 30 d old; commit old 30 d ago; mark old; run; finds removed old
    a removal that was committed is not asked about
        latest: commit gone absent; run; finds; checked 0; heads
    F74 version 1 is processed, and the event of version 2 is lost: the row is neither missing nor failed nor stuck
        latest: put k; commit k; put k; run; finds overtaken k
    F70 the table is restored from a backup of hours ago: states that were committed since then are sent again
        latest: put before 1 d old; commit before 1 d ago; put since; run; finds missing since; sends since
    F34 a multipart upload was begun ten days ago, which is its date
        latest: put large 10 d old; run; finds missing large
    F38 F75 an old object whose row has expired was settled, also after a noncurrent version was deleted
        latest, each version: put old 40 d old; put older 60 d old; run; finds; asks Scan
    F31 a fresh object is left to its message, with a row or without one
        latest, each version: put k 59 min old; put new begun 0 min old; row begun FAILED; forget requests; run; finds;
        asks Scan
    only what is due is sent
        latest, each version: put fresh 30 min old; put due 2 h old; put old 30 d old; run; sends due
    F43 what was rejected is left alone, since a message each day would be a flood of known failures
        latest: put k; row k REJECTED; run; finds
    F37 new bytes without versions are found by their ETag
        latest, without versions: put k same; commit k; commit same; put k; run; finds overtaken k
    F31 the next run reports and does not send the same again
        latest: put k; run; run; finds missing k; resubmitted 0; sends k
    F91 a message that is lost is sent again after the settle time
        latest: put k; run; wait 1 h; wait 1 ms; run; sends k k
    each lost version is found, the overtaken one too
        each version: put k; put k; commit k; run; finds missing k@1
    F44 a version that vanished half done gets its reason, since no listing shows it
        each version: row k FAILED; row m PROCESSING; run; finds unsettled k, unsettled m; sends k m
    F44 a version that is half done and still there is found once
        each version: put k; row k FAILED; run; finds unsettled k
    a version that is gone and settled is no loss
        each version: commit k; row m REJECTED; run; finds
    an old state is judged where there is a row: a rollback shows it
        latest, each version: put k 60 d old; row k FAILED; run; finds unsettled k
    a row that was committed since the rows were read is no finding
        latest, each version: put k; meanwhile commit k; run; finds; dismissed 1
    the budget is not exceeded within a page
        latest, budget 3: put a b c d e; run; resubmitted 3; stopped BUDGET
    a budget that suffices exactly is not used up
        latest, budget 2: put a b; run; complete
    a dry run writes and sends nothing, and no budget stops it
        latest, budget 2: put a b c; dry run; finds missing a, missing b, missing c; sends; resubmitted 0;
        writes nothing
    F31 a state that is younger than the oldest message in the queue waits
        latest, backlog 5 h of 1000: put waiting 4 h old; put lost 6 h old; run; finds missing lost; sends lost
    F31 a key that is gone has no date, and its removal may wait in the queue
        latest, backlog 5 h of 1000: put gone 1 d old; commit gone 1 d ago; lose gone; run; finds
    F31 unless the queue is up to date
        latest, backlog 60 s of 1000: put gone 1 d old; commit gone 1 d ago; lose gone; run; finds removed gone
    a backfill leaves a key with a row alone, since the ledger knows it
        latest, backfill: put k m 365 d old; commit k; row m REJECTED; run; resubmitted 0
    F31 nothing is sent into a queue of unknown age: it is found, told, and left to the next run
        latest, backlog unknown of 1: put k 1 d old; run; finds missing k; sends
""")
def test_a_run_finds_what_is_lost(story: str) -> None:
    tell(story)


def test_no_head_for_what_the_listing_has_shown(world: AuditWorld) -> None:
    """A HEAD for each live key would cost more than all the rest."""
    for number in range(500):
        key = f"key-{number}"
        world.commit(key, world.s3.put(key))
    world.commit("gone", State(StateKind.OBJECT, "1", "1", 1))
    report = world.run()
    assert world.s3.heads == ["gone"]
    assert (report.listed, report.checked) == (500, 501)


@pytest.mark.failure_mode("F46")
def test_nothing_was_ever_delivered(world: AuditWorld) -> None:
    """Queue empty, everything green, and every object is found."""
    for key in ("a", "b"):
        world.s3.put(key)
    assert world.run().counts == {"missing": 2}
    first = next(body for body in world.sqs.bodies if body["key"] == "a")
    assert first == {
        "kind": "audit",
        "bucket": "uploads",
        "key": "a",
        "state": "object",
        "versionId": "a-0",
        "etag": "a-0",
        "size": 1,
        "createdAt": world.clock() - 2 * HOUR,
    }


class TestFilters:
    """F47: keys that the filters do not take are not lost."""

    @pytest.mark.failure_mode("F47")
    def test_keys_beside_the_filters(self) -> None:
        """Neither objects nor rows."""
        world = AuditWorld(filters=(KeyFilter("in/", ".csv"), KeyFilter("in/more/", ".json")))
        for key in ("in/a.csv", "in/a.txt", "out/a.csv", "in/more/a.json"):
            world.s3.put(key)
        world.commit("in/old.txt", State(StateKind.OBJECT, "1", "1", 1))
        world.run()
        assert world.sent == world.s3.heads == ["in/a.csv", "in/more/a.json"]
        assert [request["Prefix"] for request in world.s3.listed] == ["in/"], "the broader prefix covers the other"

    @pytest.mark.failure_mode("F47")
    def test_another_pipelines_rows(self, world: AuditWorld) -> None:
        """Two pipelines share a table, or two buckets whose names begin alike."""
        world.commit("key", world.s3.put("key"))
        for (pk, sk), item in list(world.store.items.items()):
            for other in ((pk, f"Other-{sk}"), (f"uploads-2/{pk.partition('/')[2]}", sk)):
                world.store.items[other] = item | {"pk": {"S": other[0]}, "sk": {"S": other[1]}}
        del world.s3.keys["key"]
        world.run()
        assert world.sent == ["key"]
        assert world.s3.heads == ["key"]


class TestMarks:
    def test_a_row_that_changes_meanwhile_gets_no_mark(self, world: AuditWorld) -> None:
        """A worker has it: the message is one more, and the row stays as the worker writes it."""
        world.insert("key", world.s3.put("key"), Status.FAILED)
        mark = world.ledger.mark_many

        def first_somebody_claims(*arguments: object) -> None:
            for item in world.store.items.values():
                item["fence"] = {"N": "8"}
            mark(*arguments)  # type: ignore[arg-type]

        world.ledger.mark_many = first_somebody_claims  # type: ignore[method-assign, assignment]
        assert world.run().resubmitted == 1
        assert world.sent == ["key"]
        assert not any("audit_resubmitted_at" in item for item in world.store.items.values())


class TestStopping:
    """F42: the end of a run by time, budget or SQS."""

    @pytest.mark.failure_mode("F42")
    @pytest.mark.parametrize("pages", range(4))
    def test_a_run_without_time_to_read_all_compares_nothing(self, pages: int) -> None:
        """Without some rows most objects would seem lost, and without some of the listing most rows gone."""
        world = AuditWorld(page_size=2)
        for number in range(7):
            world.s3.put(f"in/{number}")
        left = [900_000] * pages + [0]
        report = world.run(remaining_ms=lambda: left.pop(0))
        assert (report.complete, report.stopped, report.listed, world.sent) == (False, Stopped.READING, 0, [])
        assert "AuditScale.shards()" in report.summary(world.clock())

    @pytest.mark.failure_mode("F42")
    def test_a_run_without_time_to_look_at_all_counts_the_rest(self, world: AuditWorld) -> None:
        """Listed and unlisted ones, each in its line."""
        for number in range(30):
            world.commit(f"gone-{number}", State(StateKind.OBJECT, "1", "1", 1))
            world.s3.put(f"lost-{number}")
        report = world.run(remaining_ms=lambda: 0 if world.s3.heads else 900_000)
        assert len(world.s3.heads) == len(world.sent) == BATCH
        assert report.stopped is Stopped.TIME
        assert (report.lines.total(), report.unlisted.total()) == (report.listed, 30) == (30, 30)
        assert report.lines[Line.NOT_LOOKED] + report.unlisted[Line.NOT_LOOKED] == 60 - BATCH

    def test_candidates_that_fail_each_time_do_not_hold_up_the_others(self) -> None:
        """Each run takes its candidates in another order."""
        world = AuditWorld(budget=3)
        for number in range(12):
            world.s3.put(f"{number}")
        for _ in range(60):
            report = world.run()
            world.clock.advance(2 * HOUR)
        assert report.stopped is Stopped.BUDGET
        assert set(world.sent) == {f"{number}" for number in range(12)}

    def test_a_dry_run_that_is_out_of_time_promises_nothing(self, world: AuditWorld) -> None:
        """No later run continues it."""
        for number in range(30):
            world.s3.put(f"{number}")
        report = world.run(dry_run=True, remaining_ms=lambda: 0 if world.s3.heads else 900_000)
        assert report.summary(world.clock()).endswith("; out of time, the rest was not looked at")
