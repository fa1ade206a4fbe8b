"""The audit's pass over bucket and ledger, against both in memory."""

import pytest

from intake_ledger.audit.diff import Line
from intake_ledger.audit.look import BATCH
from intake_ledger.audit.report import Stopped
from intake_ledger.protocol.change import State, StateKind
from intake_ledger.protocol.row import Ordering, Status
from intake_ledger.protocol.settings import KeyFilter
from tests.unit.audit.support import AuditWorld
from tests.unit.support import DAY, HOUR, MINUTE


@pytest.fixture
def world() -> AuditWorld:
    return AuditWorld()


@pytest.mark.failure_mode("F39")
def test_a_lost_removal_is_found_by_its_row(world: AuditWorld) -> None:
    """The ledger against the listing."""
    world.commit("gone", world.s3.put("gone"))
    world.commit("kept", world.s3.put("kept"))
    del world.s3.keys["gone"]
    report = world.run()
    assert world.sent == ["gone"]
    assert report.findings == [{"key": "gone", "why": "removed", "state": "absent"}]
    assert report.complete


@pytest.mark.failure_mode("F39")
def test_a_lost_delete_marker_is_found_in_the_listing(world: AuditWorld) -> None:
    """And its row is not asked about again."""
    world.commit("gone", world.s3.put("gone"))
    world.s3.mark("gone")
    assert world.run().counts == {"removed": 1}
    assert world.s3.heads == ["gone"]


def test_no_head_for_what_the_listing_has_shown(world: AuditWorld) -> None:
    """A HEAD for each live key would cost more than all the rest."""
    for number in range(500):
        key = f"key-{number}"
        world.commit(key, world.s3.put(key))
    world.commit("gone", State(StateKind.OBJECT, "1", "1", 1))
    report = world.run()
    assert world.s3.heads == ["gone"]
    assert (report.listed, report.checked) == (500, 501)


def test_a_removal_that_was_committed_is_not_asked_about(world: AuditWorld) -> None:
    """Such rows stay for the retention."""
    world.commit("gone", State(StateKind.ABSENT))
    assert world.run().checked == 0
    assert world.s3.heads == []


@pytest.mark.failure_mode("F74")
def test_version_1_processed_and_version_2s_event_lost(world: AuditWorld) -> None:
    """The row is neither missing nor failed nor stuck: states are compared."""
    world.commit("key", world.s3.put("key"))
    second = world.s3.put("key")
    assert world.run().findings == [{"key": "key", "why": "overtaken", "state": second.identity}]


@pytest.mark.failure_mode("F75")
def test_a_noncurrent_version_deleted_after_the_row_expired(world: AuditWorld) -> None:
    """The current version, older than the look-back, is not run again."""
    world.s3.put("key", age=60 * DAY)
    world.s3.put("key", age=50 * DAY)
    world.s3.keys["key"].pop(0)
    assert not world.run().counts


@pytest.mark.failure_mode("F70")
def test_the_table_restored_from_a_backup_hours_old(world: AuditWorld) -> None:
    """States that were committed since then are sent again. The downstream sees their commit identity."""
    world.commit("before", world.s3.put("before", age=DAY), age=DAY)
    world.s3.put("since")
    assert world.run().counts == {"missing": 1}
    assert world.sent == ["since"]


@pytest.mark.failure_mode("F40")
def test_lifecycle_deletions_are_found_like_any_other(world: AuditWorld) -> None:
    """The listing shows a delete marker, or no key."""
    world.commit("expired", world.s3.put("expired", age=30 * DAY), age=30 * DAY)
    world.s3.mark("expired")
    assert world.run().counts == {"removed": 1}


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
    """F31: two runs do not resubmit the same twice."""

    @pytest.mark.failure_mode("F31")
    def test_the_next_run_reports_but_does_not_resubmit(self, world: AuditWorld) -> None:
        """The first run's message may still be in the queue."""
        world.s3.put("key")
        world.run()
        again = world.run()
        assert (again.counts, again.resubmitted, world.sent) == ({"missing": 1}, 0, ["key"])

    @pytest.mark.failure_mode("F91")
    def test_a_message_that_is_lost_is_sent_again(self, world: AuditWorld) -> None:
        """The mark lapses after the settle time."""
        world.s3.put("key")
        world.run()
        world.clock.advance(HOUR + 1)
        world.run()
        assert world.sent == ["key", "key"]

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

    @pytest.mark.failure_mode("F43")
    def test_what_was_rejected_is_left_alone(self, world: AuditWorld) -> None:
        """A message each day would be a flood of known failures."""
        world.insert("key", world.s3.put("key"), Status.REJECTED)
        assert not world.run().counts


class TestEveryVersion:
    """Each version has a row."""

    @pytest.fixture
    def world(self) -> AuditWorld:
        return AuditWorld(Ordering.EVERY_VERSION)

    def test_each_lost_version_is_found(self, world: AuditWorld) -> None:
        """The overtaken one too."""
        first, second = world.s3.put("key"), world.s3.put("key")
        world.commit("key", second)
        assert world.run().findings == [{"key": "key", "why": "missing", "state": first.identity}]

    @pytest.mark.failure_mode("F44")
    @pytest.mark.parametrize("status", [Status.PROCESSING, Status.FAILED])
    def test_a_version_that_vanished_half_done_gets_its_reason(self, world: AuditWorld, status: Status) -> None:
        """Its message died, no listing shows it: the consumer is asked to settle it, or it would stay for ever."""
        world.insert("key", State(StateKind.OBJECT, "1", "e", 5), status)
        assert world.run().findings == [{"key": "key", "why": "unsettled", "state": "v#1"}]
        assert [body["versionId"] for body in world.sqs.bodies] == ["1"]

    @pytest.mark.failure_mode("F44")
    def test_a_version_half_done_that_is_still_there_is_found_once(self, world: AuditWorld) -> None:
        """By the listing, and not by its row too."""
        world.insert("key", world.s3.put("key"), Status.FAILED)
        assert world.run().counts == {"unsettled": 1}

    def test_a_version_that_is_gone_and_settled_is_nobodys_loss(self, world: AuditWorld) -> None:
        """Lifecycle removes it some day."""
        world.commit("key", State(StateKind.OBJECT, "1", "e", 5))
        world.insert("other", State(StateKind.OBJECT, "1", "e", 5), Status.REJECTED)
        assert not world.run().counts


class TestUnversioned:
    """An existing bucket without versioning."""

    @pytest.mark.failure_mode("F37")
    def test_new_bytes_are_found_by_their_etag(self) -> None:
        """The listing shows one state of each key."""
        world = AuditWorld(versioned=False)
        world.commit("key", world.s3.put("key", version="one"))
        world.commit("same", world.s3.put("same", version="two"))
        world.s3.put("key", version="three")
        assert world.run().findings == [{"key": "key", "why": "overtaken", "state": "e#three"}]


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

    def test_the_budget_is_not_exceeded_within_a_page(self) -> None:
        """It is looked at before each send."""
        world = AuditWorld(budget=3)
        for number in range(5):
            world.s3.put(f"{number}")
        report = world.run()
        assert (report.resubmitted, report.stopped, len(world.sent)) == (3, Stopped.BUDGET, 3)

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

    def test_a_budget_that_suffices_exactly_is_not_used_up(self) -> None:
        """Nothing is left over."""
        world = AuditWorld(budget=2)
        for number in range(2):
            world.s3.put(f"{number}")
        assert world.run().complete

    def test_a_dry_run_that_is_out_of_time_promises_nothing(self, world: AuditWorld) -> None:
        """No later run continues it."""
        for number in range(30):
            world.s3.put(f"{number}")
        report = world.run(dry_run=True, remaining_ms=lambda: 0 if world.s3.heads else 900_000)
        assert report.summary(world.clock()).endswith("; out of time, the rest was not looked at")

    def test_a_dry_run_writes_and_sends_nothing(self, world: AuditWorld) -> None:
        """And is not stopped by the budget."""
        for number in range(3):
            world.s3.put(f"{number}")
        report = world.run(dry_run=True)
        assert (report.counts, report.resubmitted, world.sent) == ({"missing": 3}, 0, [])
        assert world.store.items == {}


@pytest.mark.failure_mode("F34")
def test_a_multipart_upload_begun_ten_days_ago(world: AuditWorld) -> None:
    """Its date is its beginning."""
    world.s3.put("large", age=10 * DAY)
    assert world.run().counts == {"missing": 1}


@pytest.mark.failure_mode("F38")
def test_an_old_object_whose_row_has_expired(world: AuditWorld) -> None:
    """It was settled."""
    world.s3.put("old", age=40 * DAY)
    assert not world.run().counts


@pytest.mark.failure_mode("F31")
def test_a_fresh_object_is_left_to_its_message(world: AuditWorld) -> None:
    """The settle time."""
    world.s3.put("fresh", age=HOUR - MINUTE)
    assert not world.run().counts
