"""The real ledger and its real requests against moto's DynamoDB: every way in which a row comes about and changes."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import Any

import pytest
from botocore.exceptions import ClientError

from intake_ledger.ledger.conditions import ConditionFailed, lease_owned, row_unchanged
from intake_ledger.ledger.dynamodb_table import LedgerTable
from intake_ledger.ledger.ledger import Claim, LedgerOptions
from intake_ledger.protocol.change import ABSENT, Change, State, StateKind
from intake_ledger.protocol.errors import Fenced
from intake_ledger.protocol.row import (
    Ordering,
    Row,
    RowKey,
    Status,
    review_partition,
    review_partitions,
    row_from_attributes,
)
from intake_ledger.protocol.verdict import Ruling, Verdict
from intake_ledger_testing.consumers import object_ledger
from tests.unit.support import (
    DAY,
    KEY,
    LATE_AFTER,
    LEASE,
    MAX_ATTEMPTS,
    MINUTE,
    PIPELINE,
    RETENTION,
    SECOND,
    START,
    AllRows,
    MakeWorld,
    World,
    audited,
    created,
    deleted,
    eventbridge,
    make_reason,
    marked,
    one_change,
    redriven,
    reprocess,
)

pytestmark = pytest.mark.usefixtures("dynamodb")

LATE_AND_A_BIT = LATE_AFTER + 1
ULID_1, ULID_2, ULID_3 = "01KA0000000000000000000001", "01KA0000000000000000000002", "01KA0000000000000000000003"


def exhaust(world: World, change_claim: Claim) -> Row:
    """Let a claim's change use up its budget by dying, and have it rejected as the consumer does."""
    change = change_claim.change
    for _ in range(MAX_ATTEMPTS - 1):
        world.die(change)
    answer = world.answer(change)
    assert answer.verdict is Verdict.EXHAUSTED
    assert answer.row is not None
    after = world.ledger.exhausted_row(change, answer.row)
    assert world.ledger.exhaust(change, answer.row, after)
    return after


class TestInsert:
    """The hot path: one conditional write."""

    def test_a_new_key_is_claimed_by_one_write_without_a_look(self, world: World) -> None:
        """Most keys are new: no read, no HEAD."""
        claim = world.accept(created(world.s3.put(KEY, "1")))
        assert world.wire.requests == ["put_item"]
        assert world.s3.looks == []
        assert claim.row.attempts == 1
        assert claim.seen is None

    def test_commit_settles_the_row(self, world: World) -> None:
        """A commit is one more write; afterwards the row names the state, the fence and the downstream's identity."""
        change = created(world.s3.put(KEY, "1"))
        claim = world.process(change, "invoice-17")
        row = world.known(change)
        assert world.wire.requests == ["put_item", "update_item", "get_item"]
        assert (row.status, row.committed_state, row.commit_id) == (Status.PROCESSED, change.identity, "invoice-17")
        assert (row.committed_fence, row.fence) == (claim.row.fence, claim.row.fence)
        assert (row.lease_until, row.lease_owner) == (None, None)

    @pytest.mark.failure_mode("F190")
    def test_a_commit_has_the_version_of_the_processor(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        """In the same write, alone and in a group."""
        changes = [created(world.s3.put(f"{KEY}-{number}", "1"), key=f"{KEY}-{number}") for number in range(3)]
        options = LedgerOptions(PIPELINE, world.ordering, world.policy, world.late_after, processor_version="1.4")
        ledger = object_ledger(world.table, world.s3, options, clock=world.clock, new_owner=world.new_owner)
        alone, *group = [world.accept(change) for change in changes]
        ledger.commit(alone)
        assert world.known(changes[0]).processor_version == "1.4"
        written: list[Row] = []

        def keep(_: LedgerTable, updates: Mapping[RowKey, tuple[Row, Row]]) -> set[RowKey]:
            written.extend(after for _, after in updates.values())
            return set(updates)

        monkeypatch.setattr(LedgerTable, "commit_many", keep)
        assert not ledger.commit_together([(claim, None) for claim in group])
        assert [row.processor_version for row in written] == ["1.4", "1.4"]

    def test_a_duplicate_after_the_commit_needs_no_look(self, world: World) -> None:
        """The refused insert brings the row with it."""
        change = created(world.s3.put(KEY, "1"))
        world.process(change)
        world.wire.requests.clear()
        assert world.verdict(change) is Verdict.DUPLICATE
        assert world.wire.requests == ["put_item"]
        assert world.s3.looks == []

    @pytest.mark.failure_mode("F18")
    def test_a_second_copy_while_the_first_runs_is_busy(self, world: World) -> None:
        """A live claim is BUSY for all other workers, and costs no attempt."""
        change = created(world.s3.put(KEY, "1"))
        claim = world.accept(change)
        for _ in range(10):
            assert world.verdict(change) is Verdict.BUSY
        assert world.known(change) == claim.row
        world.ledger.commit(claim)

    def test_an_overwrite_is_looked_at_and_swapped_in(self, world: World) -> None:
        """The second version of a key: refused insert, look, swap with the next fence."""
        first = world.process(created(world.s3.put(KEY, "1")))
        second = world.accept(created(world.s3.put(KEY, "2")))
        assert second.row.fence == first.row.fence + 1
        assert second.row.attempts == 1
        assert second.row.expires_at is None
        assert world.s3.looks == [KEY]

    def test_an_audits_mark_alone_is_no_row(self, world: World) -> None:
        """The insert replaces it, its expiry included."""
        change = created(world.s3.put(KEY, "1"))
        key = world.key(change)
        world.wire.client.put_item(
            TableName=world.table_name,
            Item={
                "pk": {"S": key.pk},
                "sk": {"S": key.sk},
                "audit_resubmitted_state": {"S": str(change.identity)},
                "expires_at": {"N": "1"},
            },
        )
        assert world.row(change) is None
        world.accept(change)
        assert "expires_at" not in world.item(change)
        assert "audit_resubmitted_state" not in world.item(change)

    def test_an_outage_is_an_error_and_no_verdict(self, world: World) -> None:
        """The caller must not acknowledge the message."""
        world.wire.down = ClientError({"Error": {"Code": "ProvisionedThroughputExceededException"}}, "PutItem")
        with pytest.raises(ClientError, match="ProvisionedThroughput"):
            world.answer(created(world.s3.put(KEY, "1")))


class TestLostAnswers:
    """The SDK repeats a write whose answer did not come, and its own first write refuses it."""

    @pytest.mark.failure_mode("F02")
    def test_an_insert_whose_answer_was_lost_is_accepted(self, world: World) -> None:
        """The owner in the old item shows whose claim it is."""
        world.wire.lose = 1
        change = created(world.s3.put(KEY, "1"))
        claim = world.accept(change)
        assert world.wire.requests == ["put_item"]
        assert claim.seen is None
        assert claim.state.identity == change.identity
        world.ledger.commit(claim)
        assert world.known(change).settled

    @pytest.mark.failure_mode("F02")
    def test_a_swap_whose_answer_was_lost_is_accepted(self, world: World) -> None:
        """Also for a swap, and the row that was judged before is still known, to be put back."""
        world.process(created(world.s3.put(KEY, "1")))
        before = world.known(created(world.s3.put(KEY, "2")))
        change = created(world.s3.look(KEY))
        world.wire.lose = 2  # the insert, which is refused both times, and the swap
        claim = world.accept(change)
        assert claim.seen == before
        assert claim.state.identity == change.identity
        assert claim.row.fence == before.fence + 1
        world.ledger.release(claim)
        assert world.known(change) == replace(before, fence=claim.row.fence)

    @pytest.mark.failure_mode("F82")
    def test_a_commit_whose_answer_was_lost_is_success(self, world: World) -> None:
        """Not fenced, and not written twice."""
        change = created(world.s3.put(KEY, "1"))
        claim = world.accept(change)
        world.wire.lose = 1
        world.ledger.commit(claim, "once")
        assert world.known(change).commit_id == "once"

    @pytest.mark.failure_mode("F82")
    def test_a_lost_commit_is_recognised_although_a_successor_has_claimed(self, world: World) -> None:
        """`committed_fence` stays through the next claim."""
        claim = world.process(created(world.s3.put(KEY, "1")))
        world.accept(created(world.s3.put(KEY, "2")))
        world.ledger.commit(claim)

    @pytest.mark.parametrize("ending", ["fail", "reject"])
    def test_an_ending_whose_answer_was_lost_is_success(self, world: World, ending: str) -> None:
        """A failure that was written is not reported as fenced."""
        claim = world.accept(created(world.s3.put(KEY, "1")))
        world.wire.lose = 1
        getattr(world.ledger, ending)(claim, make_reason("why"))
        assert world.known(claim.change).reason == "why"

    def test_a_release_whose_answer_was_lost_is_success(self, world: World) -> None:
        """With a row before and without."""
        claim = world.accept(created(world.s3.put(KEY, "1")))
        world.wire.lose = 1
        world.ledger.release(claim)
        assert world.row(claim.change) is None
        world.fail(claim.change)
        again = world.accept(claim.change)
        world.wire.lose = 1
        world.ledger.release(again)
        assert world.known(claim.change).status is Status.FAILED

    def test_a_settled_removal_whose_answer_was_lost_is_acknowledged(self, make_world: MakeWorld) -> None:
        """With `deletes` off the repeated write finds its own result."""
        world = make_world(deletes=False)
        world.wire.lose = 1
        assert world.verdict(marked(world.s3.mark_deleted(KEY))) in (Verdict.DUPLICATE, Verdict.STALE)


class TestFence:
    """A worker whose lease has ended changes nothing."""

    def _zombie(self, world: World, ending: str) -> tuple[Claim, Row]:
        """A worker past its lease, and the row after its successor has ended in this way."""
        change = created(world.s3.put(KEY, "1"))
        zombie = world.die(change)
        successor = world.accept(change)
        assert successor.row.fence > zombie.row.fence
        if ending != "works":
            ends: dict[str, Callable[..., None]] = {"fails": world.ledger.fail, "rejects": world.ledger.reject}
            ends[ending](successor, make_reason("no"))
        return zombie, world.known(change)

    @pytest.mark.failure_mode("F03")
    @pytest.mark.parametrize("ending", ["works", "fails", "rejects"])
    def test_a_commit_past_the_lease_is_refused(self, world: World, ending: str) -> None:
        """Even when the successor has failed since."""
        zombie, row = self._zombie(world, ending)
        with pytest.raises(Fenced, match="no longer current"):
            world.ledger.commit(zombie, "late")
        assert world.known(zombie.change) == row

    @pytest.mark.failure_mode("F04")
    @pytest.mark.parametrize("ending", ["works", "fails", "rejects"])
    @pytest.mark.parametrize("report", ["fail", "reject"])
    def test_a_failure_past_the_lease_does_not_free_the_successors_claim(
        self, world: World, ending: str, report: str
    ) -> None:
        """It cannot reject the successor's claim either."""
        zombie, row = self._zombie(world, ending)
        with pytest.raises(Fenced):
            getattr(world.ledger, report)(zombie, make_reason("late"))
        assert world.known(zombie.change) == row

    def test_a_release_past_the_lease_is_refused(self, world: World) -> None:
        """A new key's zombie must not delete its successor's row, another's must not put an old one back."""
        zombie, row = self._zombie(world, "works")
        with pytest.raises(Fenced):
            world.ledger.release(zombie)
        assert world.known(zombie.change) == row

    @pytest.mark.parametrize("ending", ["commit", "release"])
    def test_an_equal_fence_is_not_enough(self, world: World, ending: str) -> None:
        """A row that was released and inserted again in the same millisecond has the same fence: the owner tells."""
        released = world.accept(created(world.s3.put(KEY, "1")))
        world.ledger.release(released)
        successor = world.accept(released.change)
        assert successor.row.fence == released.row.fence
        with pytest.raises(Fenced):
            getattr(world.ledger, ending)(released)
        assert world.known(released.change) == successor.row

    def test_a_worker_past_its_lease_may_commit_while_nobody_took_over(self, world: World) -> None:
        """The fence decides, not the clock."""
        late = world.die(created(world.s3.put(KEY, "1")))
        world.ledger.commit(late)
        assert world.known(late.change).settled

    @pytest.mark.failure_mode("F07")
    def test_every_claim_has_a_higher_fence(self, world: World) -> None:
        """Retries, overwrites, removals, reprocesses: a write downstream that is conditional on it stays safe."""
        change = created(world.s3.put(KEY, "1"))
        fences = [world.fail(change).row.fence, world.die(change).row.fence, world.process(change).row.fence]
        fences.append(world.process(created(world.s3.put(KEY, "2"))).row.fence)
        fences.append(world.process(marked(world.s3.mark_deleted(KEY))).row.fence)
        fences.append(world.process(reprocess(ULID_1)).row.fence)
        fences.append(world.reject(created(world.s3.put(KEY, "3"))).row.fence)
        assert fences == sorted(set(fences))

    @pytest.mark.failure_mode("F72")
    def test_a_death_between_effect_and_commit_keeps_the_change_and_raises_the_fence(self, world: World) -> None:
        """The next attempt is the same change (`first_claimed_at`) with a higher fence."""
        first = world.die(created(world.s3.put(KEY, "1")))
        second = world.accept(first.change)
        assert second.row.first_claimed_at == first.row.first_claimed_at
        assert second.row.fence > first.row.fence
        assert second.row.attempts == 2

    @pytest.mark.failure_mode("F13")
    def test_a_clock_ahead_by_less_than_the_margin_steals_no_live_lease(self, world: World) -> None:
        """The lease is compared with the clock at the moment of the claim, not one millisecond earlier."""
        change = created(world.s3.put(KEY, "1"))
        world.accept(change, lease=MINUTE + 2 * MINUTE)  # a minute's work, two of margin
        world.clock.advance(MINUTE + 90 * SECOND)
        assert world.verdict(change) is Verdict.BUSY
        world.clock.advance(30 * SECOND - 1)
        assert world.verdict(change) is Verdict.BUSY
        world.clock.advance(1)
        assert world.verdict(change) is Verdict.ACCEPTED

    def test_a_live_lease_refuses_the_swap_itself(self, world: World) -> None:
        """The condition of a swap holds the lease too: a slow clock that judged wrongly is refused by the table."""
        claim = world.accept(created(world.s3.put(KEY, "1")))
        with pytest.raises(ConditionFailed):
            world.table.update(
                claim.key, claim.row, replace(claim.row, lease_owner="thief"), row_unchanged(claim.row, world.clock())
            )

    @pytest.mark.failure_mode("F79")
    def test_the_fence_does_not_start_again_when_a_row_has_expired(self, world: World) -> None:
        """It starts from the clock."""
        old = world.process(created(world.s3.put(KEY, "1")))
        world.clock.advance(RETENTION + 2 * DAY)
        world.expire(old.change)
        new = world.accept(created(world.s3.put(KEY, "2"), at=world.clock()))
        assert new.row.fence > old.row.fence


class TestRaces:
    """Two workers, one row."""

    @pytest.mark.failure_mode("F83")
    def test_of_two_that_judged_the_same_row_one_swaps(self, world: World) -> None:
        """The other's swap is refused, and it judges again."""
        world.process(created(world.s3.put(KEY, "1")))
        change = created(world.s3.put(KEY, "2"))
        won: list[Claim] = []
        world.s3.after_look.append(lambda: won.append(world.accept(change)))
        assert world.verdict(change) is Verdict.BUSY
        assert world.known(change) == won[0].row

    @pytest.mark.failure_mode("F83")
    def test_the_one_that_lost_brings_about_what_s3_shows_by_then(self, world: World) -> None:
        """S3 changes between its look and its swap."""
        world.process(created(world.s3.put(KEY, "1")))
        two = world.s3.put(KEY, "2")

        def meanwhile() -> None:
            world.process(created(world.s3.put(KEY, "3")))

        world.s3.after_look.append(meanwhile)
        assert world.verdict(created(two)) is Verdict.STALE
        assert world.known(created(two)).committed_state == world.s3.look(KEY).identity

    @pytest.mark.failure_mode("F01")
    def test_a_write_checks_more_than_that_nobody_is_processing(self, world: World) -> None:
        """B claims, works and frees a newer change between A's read and A's write."""
        world.process(created(world.s3.put(KEY, "1")))
        change = created(world.s3.put(KEY, "2"))
        world.s3.after_look.append(lambda: world.process(change))
        assert world.verdict(change) is Verdict.DUPLICATE
        assert world.known(change).attempts == 1

    @pytest.mark.failure_mode("F01")
    def test_a_release_in_between_is_noticed(self, world: World) -> None:
        """The row looks as before and still is another: a release keeps its own fence."""
        world.process(created(world.s3.put(KEY, "1")))
        change = created(world.s3.put(KEY, "2"))
        world.s3.after_look.append(lambda: world.ledger.release(world.accept(change)))
        claim = world.accept(change)
        assert claim.seen is not None
        assert claim.row.fence == claim.seen.fence + 1
        assert len(world.s3.looks) == 3  # ours, theirs, and ours again

    def test_a_row_that_went_meanwhile_is_inserted_again(self, world: World) -> None:
        """The TTL sweep may come between look and swap."""
        change = created(world.s3.put(KEY, "1"))
        world.process(change)
        two = created(world.s3.put(KEY, "2"))
        world.s3.after_look.append(lambda: world.expire(change))
        assert world.accept(two).seen is None

    def test_a_row_that_changes_at_every_try_is_left_to_its_winners(self, world: World) -> None:
        """BUSY: the message comes again later, nothing is acknowledged and nothing spins."""
        world.process(created(world.s3.put(KEY, "1")))
        change = created(world.s3.put(KEY, "2"))
        world.s3.after_look.extend([lambda: world.ledger.release(world.accept(change)), lambda: None] * 6)
        assert world.verdict(change) is Verdict.BUSY

    def test_of_two_that_saw_no_row_one_inserts(self, world: World) -> None:
        """A message that looks first also has to insert."""
        state = world.s3.put(KEY, "1")
        won: list[Claim] = []
        world.s3.after_look.append(lambda: won.append(world.accept(created(state))))
        assert world.verdict(audited(state)) is Verdict.BUSY
        assert world.known(created(state)) == won[0].row


def over_eventbridge(state: State) -> Change:
    return one_change(eventbridge(KEY, state))


class TestOrder:
    """The ledger processes the state that S3 shows, for any order of the events."""

    @pytest.mark.failure_mode("F32", "F33", "F50", "F59", "F65", "F66")
    @pytest.mark.parametrize(
        ("done", "late", "version", "verdict"),
        [
            pytest.param(audited, created, 2, Verdict.DUPLICATE, id="F32 the original event after the audit's"),
            pytest.param(audited, created, 1, Verdict.STALE, id="F33 an older version's event after the audit's"),
            pytest.param(created, deleted, 1, Verdict.STALE, id="F50 an older version is deleted permanently"),
            pytest.param(created, over_eventbridge, 2, Verdict.DUPLICATE, id="F59 the same change over EventBridge"),
            pytest.param(created, created, 1, Verdict.STALE, id="F65 an older version's event"),
            pytest.param(over_eventbridge, over_eventbridge, 2, Verdict.DUPLICATE, id="F66 a replayed archive"),
            pytest.param(over_eventbridge, over_eventbridge, 1, Verdict.STALE, id="F66 the same, an older version"),
        ],
    )
    def test_nothing_runs_after_the_commit_of_the_newest_state(
        self, world: World, done: Callable[..., Change], late: Callable[..., Change], version: int, verdict: Verdict
    ) -> None:
        """At once, and as long as the row is there."""
        states = [world.s3.put(KEY, "1"), world.s3.put(KEY, "2")]
        world.process(done(states[1]))
        if late is deleted:
            world.s3.delete_version(KEY, states[0])
        for days in (0, 13, 17):
            world.clock.advance(days * DAY)
            assert world.verdict(late(states[version - 1])) is verdict
        assert world.known(created(states[1])).committed_state == states[1].identity

    @pytest.mark.failure_mode("F05")
    def test_a_late_older_event_brings_about_the_newer_state(self, world: World) -> None:
        """Version 2's worker died. Version 1's event then claims version 2."""
        one, two = world.s3.put(KEY, "1"), world.s3.put(KEY, "2")
        world.die(created(two))
        claim = world.accept(created(one))
        assert claim.state.version_id == two.version_id
        assert claim.row.attempts == 2
        assert claim.row.committed_state is None
        assert claim.row.sequencer is None  # the message's belongs to version 1

    @pytest.mark.failure_mode("F06")
    def test_a_failure_does_not_move_the_marks_back(self, world: World) -> None:
        """The committed state stays the same through claims and failures of other states."""
        one = world.process(created(world.s3.put(KEY, "1")), "first")
        two = world.fail(created(world.s3.put(KEY, "2")))
        row = world.known(two.change)
        assert (row.committed_state, row.committed_fence, row.commit_id) == (
            one.state.identity,
            one.row.fence,
            "first",
        )
        assert row.version_id == two.state.version_id

    @pytest.mark.failure_mode("F48")
    def test_the_same_bytes_again_are_a_new_version(self, world: World) -> None:
        """In a versioned bucket the version id is the identity."""
        world.process(created(world.s3.put(KEY, "same")))
        assert world.verdict(created(world.s3.put(KEY, "same"))) is Verdict.ACCEPTED

    @pytest.mark.failure_mode("F49")
    def test_a_removed_delete_marker_brings_the_object_back(self, world: World) -> None:
        """Reported as `ObjectRemoved:Delete` with the newest sequencer; the current version is processed."""
        one = world.s3.put(KEY, "1")
        world.process(created(one))
        marker = world.s3.mark_deleted(KEY)
        assert world.process(marked(marker)).state.removed
        world.s3.delete_version(KEY, marker)
        claim = world.accept(deleted(marker))
        assert claim.state.identity == one.identity
        assert not claim.state.removed

    @pytest.mark.failure_mode("F51")
    def test_a_rollback_by_permanent_deletion_is_processed(self, world: World) -> None:
        """Version 1 is current again, and no event says created."""
        one = world.s3.put(KEY, "1")
        world.process(created(one))
        two = world.s3.put(KEY, "2")
        before = world.process(created(two))
        world.s3.delete_version(KEY, two)
        claim = world.accept(deleted(two))
        assert claim.state.identity == one.identity
        assert claim.row.attempts == 1
        assert claim.row.first_claimed_at > before.row.first_claimed_at, "another idempotency key"

    @pytest.mark.failure_mode("F51")
    def test_the_last_version_deleted_for_good_is_a_removal(self, world: World) -> None:
        """Nothing is left; the processor hears of it once."""
        one = world.s3.put(KEY, "1")
        world.process(created(one))
        world.s3.delete_version(KEY, one)
        assert world.process(deleted(one)).state == ABSENT
        assert world.verdict(deleted(one)) is Verdict.STALE

    @pytest.mark.failure_mode("F52")
    def test_the_claimed_state_is_the_one_that_s3_shows(self, world: World) -> None:
        """Version, ETag and size are bound together, and the row holds the same."""
        one = world.s3.put(KEY, "1")
        world.process(created(one))
        two = world.s3.put(KEY, "22")
        claim = world.accept(deleted(one))
        row = world.known(claim.change)
        assert (claim.state.version_id, claim.state.etag, claim.state.size) == (two.version_id, two.etag, 2)
        assert (row.version_id, row.etag, row.size) == (two.version_id, two.etag, 2)

    @pytest.mark.failure_mode("F53")
    def test_a_version_that_is_gone_before_the_retry_is_no_poison(self, world: World) -> None:
        """The ledger judges again by S3's current state."""
        world.s3.put(KEY, "0")
        one = world.s3.put(KEY, "1")
        world.fail(created(one))
        world.s3.delete_version(KEY, one)
        claim = world.accept(created(one))
        assert claim.state.identity == world.s3.look(KEY).identity
        assert claim.row.attempts == 1

    @pytest.mark.failure_mode("F55")
    def test_a_create_after_its_delete_finds_the_tombstone(self, world: World) -> None:
        """The marker's row outlives the latest possible create."""
        one = world.s3.put(KEY, "1")
        marker = marked(world.s3.mark_deleted(KEY))
        world.process(marker)
        expires = world.known(marker).expires_at
        assert expires is not None
        assert expires * 1000 > START + RETENTION
        world.clock.advance(14 * DAY)
        assert world.verdict(created(one)) is Verdict.STALE

    @pytest.mark.failure_mode("F58")
    def test_an_equal_sequencer_does_not_make_two_changes_one(self, world: World) -> None:
        """Different versions both count, and so does another operation."""
        world.process(created(world.s3.put(KEY, "1"), sequencer="AA"))
        two = world.s3.put(KEY, "2")
        assert world.verdict(created(two, sequencer="AA")) is Verdict.ACCEPTED
        world.clock.advance(LEASE)
        world.process(created(two, sequencer="AA"))
        assert world.verdict(marked(world.s3.mark_deleted(KEY))) is Verdict.ACCEPTED

    @pytest.mark.failure_mode("F73")
    def test_a_state_that_comes_back_over_an_unsettled_row_runs_again(self, world: World) -> None:
        """Version 1 committed, version 2's worker died after its effect, version 2 is deleted for good."""
        one = world.s3.put(KEY, "1")
        world.process(created(one))
        two = world.s3.put(KEY, "2")
        world.die(created(two))
        world.s3.delete_version(KEY, two)
        for change in (deleted(two), created(one)):
            claim = world.accept(change)
            assert claim.state.identity == one.identity
            world.ledger.release(claim)

    @pytest.mark.failure_mode("F80")
    def test_unversioned_a_b_a(self, make_world: MakeWorld) -> None:
        """B's worker died before its commit, so that A's bytes have to be processed again."""
        world = make_world(versioned=False)
        a = created(world.s3.put(KEY, "A"))
        world.process(a)
        world.die(created(world.s3.put(KEY, "B")))
        again = world.s3.put(KEY, "A")
        assert world.accept(created(again)).state.identity == a.identity

    @pytest.mark.failure_mode("F37")
    def test_unversioned_new_bytes_are_a_new_change(self, make_world: MakeWorld) -> None:
        """Also where versioning is suspended and the id is `null`."""
        world = make_world(versioned=False)
        world.process(created(replace(world.s3.put(KEY, "A"), version_id="null")))
        change = created(replace(world.s3.put(KEY, "B"), version_id="null"))
        assert world.verdict(change) is Verdict.ACCEPTED

    def test_a_key_that_never_was_is_stale(self, world: World) -> None:
        """A permanent deletion of something unknown leaves no row behind."""
        world.row_history = AllRows()
        one = world.s3.put(KEY, "1")
        world.s3.delete_version(KEY, one)
        change = deleted(one)
        assert world.verdict(change) is Verdict.STALE
        assert world.row(change) is None


class TestRelease:
    """A claim under which nothing was begun is as if it had never been made."""

    def test_without_an_earlier_row_the_row_goes(self, world: World) -> None:
        """And the next claim starts at attempt 1."""
        change = created(world.s3.put(KEY, "1"))
        world.ledger.release(world.accept(change))
        assert world.item(change) == {}
        assert world.accept(change).row.attempts == 1

    @pytest.mark.failure_mode("F10")
    def test_with_an_earlier_row_only_the_fence_moves(self, world: World) -> None:
        """Attempts, rounds, reason and time of the failed attempts before are still there."""
        change = created(world.s3.put(KEY, "1"))
        world.fail(change, "one", retry_in=8_000)
        world.clock.advance(8_000)
        before = world.item(change)
        claim = world.accept(change)
        world.ledger.release(claim)
        assert world.item(change) == before | {"fence": {"N": str(claim.row.fence)}}

    @pytest.mark.failure_mode("F90")
    def test_a_committed_row_is_put_back_settled(self, world: World) -> None:
        """Version 2 vanished before the processor was called; version 1 does not run again for nothing."""
        one = world.s3.put(KEY, "1")
        world.process(created(one))
        two = world.s3.put(KEY, "2")
        claim = world.accept(created(two))
        world.s3.delete_version(KEY, two)
        world.ledger.release(claim)
        assert world.known(claim.change).expires_at is not None
        assert world.verdict(deleted(two)) is Verdict.STALE

    @pytest.mark.failure_mode("F90")
    def test_a_key_that_was_never_processed_is_not_reported_as_removed(self, world: World) -> None:
        """Its row went with the release."""
        world.row_history = AllRows()
        one = world.s3.put(KEY, "1")
        claim = world.accept(created(one))
        world.s3.delete_version(KEY, one)
        world.ledger.release(claim)
        assert world.verdict(deleted(one)) is Verdict.STALE

    def test_a_released_claim_of_a_dead_workers_change_leaves_the_dead_one_fenced(self, world: World) -> None:
        """The row that is put back says PROCESSING without a lease: it can be claimed, and not be committed."""
        zombie = world.die(created(world.s3.put(KEY, "1")))
        world.ledger.release(world.accept(zombie.change))
        with pytest.raises(Fenced):
            world.ledger.commit(zombie)
        assert world.accept(zombie.change).row.attempts == 2

    @pytest.mark.failure_mode("F77")
    def test_a_rejection_is_put_back(self, world: World) -> None:
        """With its reason and its place in the index."""
        rejected = world.reject(created(world.s3.put(KEY, "1")), "not a CSV")
        before = world.known(rejected.change)
        two = world.s3.put(KEY, "2")
        claim = world.accept(created(two))
        world.s3.delete_version(KEY, two)
        world.ledger.release(claim)
        assert world.known(claim.change) == replace(before, fence=claim.row.fence)
        assert world.verdict(deleted(two)) is Verdict.REJECTED


class TestAbandon:
    """A version that is gone, and only it mattered."""

    @pytest.mark.failure_mode("F53")
    def test_what_was_committed_stays_what_it_was(self, make_world: MakeWorld) -> None:
        """The row is settled and may expire, its reason says what happened."""
        every = make_world(Ordering.EVERY_VERSION)
        state = every.s3.put(KEY, "1")
        done = every.process(created(state), "invoice-17")
        claim = every.accept(reprocess(ULID_1, state=state))
        every.ledger.abandon(claim, make_reason("gone"), begun=True)
        row = every.known(done.change)
        assert (row.status, row.reason, row.commit_id) == (Status.PROCESSED, "gone", "invoice-17")
        assert (row.committed_fence, row.fence) == (done.row.fence, claim.row.fence)
        assert "N" in every.item(done.change)["expires_at"]
        assert every.verdict(created(state)) is Verdict.DUPLICATE

    @pytest.mark.failure_mode("F81")
    def test_the_same_bytes_may_come_again(self, make_world: MakeWorld) -> None:
        """Without versions, an ETag may come back."""
        every = make_world(Ordering.EVERY_VERSION, versioned=False)
        change = created(every.s3.put(KEY, "A"))
        every.ledger.abandon(every.accept(change), make_reason("gone"), begun=True)
        assert every.accept(change).row.attempts == 1

    @pytest.mark.failure_mode("F03")
    def test_an_abandonment_past_the_lease_is_refused(self, make_world: MakeWorld) -> None:
        """The successor's claim stays."""
        every = make_world(Ordering.EVERY_VERSION)
        zombie = every.die(created(every.s3.put(KEY, "1")))
        successor = every.accept(zombie.change)
        with pytest.raises(Fenced):
            every.ledger.abandon(zombie, make_reason("gone"), begun=True)
        assert every.known(zombie.change) == successor.row

    @pytest.mark.failure_mode("F82")
    def test_an_abandonment_whose_answer_was_lost_is_success(self, make_world: MakeWorld) -> None:
        """Neither fenced nor repeated."""
        every = make_world(Ordering.EVERY_VERSION)
        claim = every.accept(created(every.s3.put(KEY, "1")))
        every.wire.lose = 1
        every.ledger.abandon(claim, make_reason("gone"), begun=True)
        assert every.known(claim.change).settled


class TestRetryAt:
    """When the next attempt at a failed state is due."""

    @pytest.mark.failure_mode("F23")
    def test_every_message_for_the_state_waits(self, world: World) -> None:
        """S3's duplicate, the other channel's, the audit's, another version's: none of them claims."""
        old, state = world.s3.put(KEY, "1"), world.s3.put(KEY, "2")
        failed = world.fail(created(state), retry_in=8_000)
        assert world.known(failed.change).retry_at == world.clock() + 8_000
        before = world.item(failed.change)
        world.clock.advance(7_999)
        for change in (created(state), one_change(eventbridge(KEY, state)), audited(state), created(old), deleted(old)):
            answer = world.answer(change)
            assert answer.verdict is Verdict.BUSY
            assert answer.row is not None
            assert answer.row.retry_at == world.clock() + 1, "the consumer reads it there"
        assert world.item(failed.change) == before
        world.clock.advance(1)
        claim = world.accept(created(state))
        assert (claim.row.attempts, claim.row.retry_at) == (2, None)

    @pytest.mark.failure_mode("F78")
    def test_a_person_does_not_wait(self, world: World) -> None:
        """F63, F78: neither a reprocess nor a copy that was moved back."""
        change = created(world.s3.put(KEY, "1"))
        world.fail(change, retry_in=8_000)
        again = world.accept(reprocess(ULID_1))
        assert again.row.attempts == 2
        world.ledger.fail(again, make_reason("no"), retry_at=world.clock() + 8_000)
        assert world.accept(redriven(change, 7)).row.attempts == 3

    @pytest.mark.failure_mode("F73")
    def test_a_newer_state_does_not_wait(self, world: World) -> None:
        """And the older one, when it comes back over it, has not to either: its time was another claim's."""
        one = world.s3.put(KEY, "1")
        world.process(created(one))
        two = world.s3.put(KEY, "2")
        world.fail(created(two), retry_in=DAY)
        world.s3.delete_version(KEY, two)
        assert world.accept(deleted(two)).state.identity == one.identity

    def test_every_version_waits_for_each_alone(self, make_world: MakeWorld) -> None:
        """With EVERY_VERSION, the message names the state."""
        every = make_world(Ordering.EVERY_VERSION)
        one, two = every.s3.put(KEY, "1"), every.s3.put(KEY, "2")
        every.fail(created(one), retry_in=8_000)
        assert every.verdict(created(one)) is Verdict.BUSY
        assert every.verdict(created(two)) is Verdict.ACCEPTED


class TestBudget:
    """The retry budget is the ledger's."""

    def test_attempts_count_real_claims(self, world: World) -> None:
        """Failures and deaths alike, and a new state starts again at one."""
        change = created(world.s3.put(KEY, "1"))
        assert [world.fail(change).row.attempts, world.die(change).row.attempts] == [1, 2]
        assert world.accept(change).row.attempts == 3
        world.clock.advance(LEASE)
        assert world.accept(created(world.s3.put(KEY, "2"))).row.attempts == 1

    @pytest.mark.failure_mode("F44")
    def test_deaths_exhaust_it_and_the_row_gets_a_terminal_reason(self, world: World) -> None:
        """Not PROCESSING for ever; the last known error is the reason."""
        first = world.fail(created(world.s3.put(KEY, "1")), "ValueError: 7")
        after = exhaust(world, first)
        row = world.known(first.change)
        assert row == after
        assert (row.status, row.reason) == (Status.REJECTED, "ValueError: 7")
        assert row.needs_review == review_partition(PIPELINE, first.key)
        assert row.rejected_fence == row.fence
        assert world.verdict(first.change) is Verdict.REJECTED

    @pytest.mark.failure_mode("F44")
    def test_without_any_known_error_the_reason_says_that_the_worker_died(self, world: World) -> None:
        """Crashes leave no error behind."""
        after = exhaust(world, world.die(created(world.s3.put(KEY, "1"))))
        assert after.reason == "the worker died or timed out at every attempt"

    def test_of_two_that_reject_an_exhausted_row_one_succeeds(self, world: World) -> None:
        """The other is told to judge again."""
        change = created(world.s3.put(KEY, "1"))
        for _ in range(MAX_ATTEMPTS):
            world.die(change)
        one, other = world.answer(change), world.answer(change)
        assert one.row is not None
        assert other.row is not None
        assert world.ledger.exhaust(change, one.row, world.ledger.exhausted_row(change, one.row))
        assert not world.ledger.exhaust(change, other.row, world.ledger.exhausted_row(change, other.row))

    @pytest.mark.failure_mode("F84")
    def test_a_reprocess_of_a_state_committed_at_its_last_attempt_runs(self, world: World) -> None:
        """It is not exhausted."""
        change = created(world.s3.put(KEY, "1"))
        for _ in range(MAX_ATTEMPTS - 1):
            world.fail(change)
        assert world.process(change).row.attempts == MAX_ATTEMPTS
        assert world.process(reprocess(ULID_1)).row.attempts == 1


class TestRejection:
    """Rejected for good, until a person asks."""

    @pytest.mark.failure_mode("F76")
    def test_a_late_duplicate_or_an_audit_opens_no_round(self, world: World) -> None:
        """Only the copy of this very rejection does."""
        state = world.s3.put(KEY, "1")
        claim = world.reject(created(state))
        assert world.verdict(created(state)) is Verdict.REJECTED
        assert world.verdict(audited(state)) is Verdict.REJECTED
        assert world.verdict(one_change(eventbridge(KEY, state))) is Verdict.REJECTED
        assert world.verdict(redriven(claim.change, claim.row.fence - 1)) is Verdict.REJECTED

    @pytest.mark.failure_mode("F63")
    def test_the_copy_from_the_dead_letter_queue_is_processed(self, world: World) -> None:
        """Not acknowledged as already failed; the round counts, the attempts start again, the reason stays."""
        claim = world.reject(created(world.s3.put(KEY, "1")), "not a CSV")
        again = world.accept(redriven(claim.change, claim.row.fence))
        assert (again.row.redrive_count, again.row.attempts, again.row.reason) == (1, 1, "not a CSV")
        assert again.row.first_claimed_at == claim.row.first_claimed_at
        assert again.row.needs_review is None
        world.ledger.commit(again)
        row = world.known(claim.change)
        assert (row.reason, row.rejected_fence) == (None, None)

    @pytest.mark.failure_mode("F64")
    def test_rounds_and_reasons_are_kept_and_each_copy_works_once(self, world: World) -> None:
        """Permanent failures come back bounded: the first copy opens nothing after the second rejection."""
        first = world.reject(created(world.s3.put(KEY, "1")), "one")
        copy = redriven(first.change, first.row.fence)
        second = world.reject(copy, "two")
        row = world.known(copy)
        assert (row.redrive_count, row.reason, row.rejected_fence) == (1, "two", second.row.fence)
        assert world.verdict(copy) is Verdict.REJECTED
        third = world.accept(redriven(first.change, second.row.fence))
        assert third.row.redrive_count == 2
        world.ledger.fail(third, make_reason("three"))
        assert world.known(copy).redrive_count == 2
        assert world.accept(copy).row.redrive_count == 2

    @pytest.mark.failure_mode("F64")
    def test_a_redriven_copy_still_has_a_budget(self, world: World) -> None:
        """Transient failures come back too; the round has as many attempts as the first."""
        claim = world.reject(created(world.s3.put(KEY, "1")))
        copy = redriven(claim.change, claim.row.fence)
        for attempt in range(1, MAX_ATTEMPTS + 1):
            assert world.fail(copy).row.attempts == attempt
        assert world.verdict(copy) is Verdict.EXHAUSTED

    @pytest.mark.failure_mode("F10")
    def test_a_copy_that_comes_back_after_13_days_finds_its_row(self, world: World) -> None:
        """Rows that need review do not expire."""
        claim = world.reject(created(world.s3.put(KEY, "1")), "not a CSV")
        world.clock.advance(13 * DAY)
        row = world.known(claim.change)
        assert (row.attempts, row.reason, row.expires_at) == (1, "not a CSV", None)
        assert world.verdict(redriven(claim.change, claim.row.fence)) is Verdict.ACCEPTED

    @pytest.mark.failure_mode("F77")
    def test_a_dead_versions_message_does_not_erase_the_rejection(self, world: World) -> None:
        """S3 shows the rejected version, so its row and its reason stay."""
        one, two = world.s3.put(KEY, "1"), world.s3.put(KEY, "2")
        claim = world.reject(created(two), "not a CSV")
        before = world.known(claim.change)
        assert world.verdict(created(one)) is Verdict.REJECTED
        world.s3.delete_version(KEY, one)
        assert world.verdict(deleted(one)) is Verdict.REJECTED
        assert world.known(claim.change) == before

    def test_a_newer_version_of_a_rejected_key_is_processed(self, world: World) -> None:
        """It starts without redrive count, reason and rejection."""
        world.reject(created(world.s3.put(KEY, "1")))
        row = world.process(created(world.s3.put(KEY, "2"))).row
        assert (row.redrive_count, row.reason, row.rejected_fence) == (0, None, None)

    @pytest.mark.failure_mode("F86")
    def test_unsettled_rows_never_expire(self, world: World) -> None:
        """Half done, failed or rejected: no TTL is set, and a claim removes a settled row's."""
        claim = world.accept(created(world.s3.put(KEY, "1")))
        assert "expires_at" not in world.item(claim.change)
        world.ledger.fail(claim, make_reason("no"))
        assert "expires_at" not in world.item(claim.change)
        world.process(claim.change)
        assert "expires_at" in world.item(claim.change)
        world.reject(created(world.s3.put(KEY, "2")))
        assert "expires_at" not in world.item(claim.change)

    def test_the_sparse_index_holds_rows_that_need_review(self, world: World) -> None:
        """FAILED and REJECTED rows, and no others."""
        for key, end in (("ok", world.process), ("bad", world.reject), ("again", world.fail), ("runs", world.accept)):
            end(created(world.s3.put(key, "1"), key=key))
        found = [
            item
            for partition in review_partitions(PIPELINE)
            for item in world.wire.client.query(
                TableName=world.table_name,
                IndexName="needs_review",
                KeyConditionExpression="needs_review = :partition",
                ExpressionAttributeValues={":partition": {"S": partition}},
            )["Items"]
        ]
        assert sorted(item["pk"]["S"] for item in found) == ["uploads/again", "uploads/bad"]


class TestReprocess:
    """A person asks for a committed state again."""

    @pytest.mark.failure_mode("F78")
    def test_a_b_a_each_request_runs_once(self, world: World) -> None:
        """In order, repeated, and out of order."""
        world.process(created(world.s3.put(KEY, "1")))
        world.process(reprocess(ULID_1))
        world.process(reprocess(ULID_2))
        assert world.verdict(reprocess(ULID_1)) is Verdict.DUPLICATE
        assert world.verdict(reprocess(ULID_2)) is Verdict.DUPLICATE
        world.process(reprocess(ULID_3))

    @pytest.mark.failure_mode("F78")
    def test_a_request_that_failed_is_not_swallowed_by_an_audit_in_between(self, world: World) -> None:
        """The request stays with the state through all retries, and is served once."""
        state = world.s3.put(KEY, "1")
        world.process(created(state))
        assert world.fail(reprocess(ULID_1)).row.reprocess_id == ULID_1
        claim = world.process(audited(state))
        assert claim.row.reprocess_id == ULID_1
        assert world.known(claim.change).served_reprocess_id == ULID_1
        assert world.verdict(reprocess(ULID_1)) is Verdict.DUPLICATE

    @pytest.mark.failure_mode("F88")
    def test_a_request_that_failed_comes_back_first(self, world: World) -> None:
        """The other way round: the request runs, the audit's message finds it done."""
        state = world.s3.put(KEY, "1")
        world.process(created(state))
        world.fail(reprocess(ULID_1))
        world.process(reprocess(ULID_1))
        assert world.verdict(audited(state)) is Verdict.DUPLICATE

    @pytest.mark.failure_mode("F87")
    def test_a_reprocess_of_an_object_whose_row_has_expired_runs(self, world: World) -> None:
        """However old the object is."""
        change = created(world.s3.put(KEY, "1"))
        world.process(change)
        world.clock.advance(RETENTION + 2 * DAY)
        world.expire(change)
        world.process(reprocess(ULID_1))
        assert world.verdict(reprocess(ULID_1)) is Verdict.DUPLICATE

    @pytest.mark.failure_mode("F76")
    def test_a_request_opens_one_round_however_often_it_is_delivered(self, world: World) -> None:
        """Its copy from the dead-letter queue opens another, and so does a newer request."""
        state = world.s3.put(KEY, "1")
        world.process(created(state))
        claim = world.reject(reprocess(ULID_1))
        assert world.verdict(reprocess(ULID_1)) is Verdict.REJECTED
        second = world.reject(redriven(claim.change, claim.row.fence))
        assert (second.row.redrive_count, second.row.reprocess_id) == (1, ULID_1)
        assert world.verdict(reprocess(ULID_1)) is Verdict.REJECTED
        assert world.process(reprocess(ULID_2)).row.redrive_count == 2
        assert world.known(created(state)).served_reprocess_id == ULID_2

    def test_a_reprocess_opens_a_round_of_a_rejected_state(self, world: World) -> None:
        """A person asked."""
        world.reject(created(world.s3.put(KEY, "1")))
        assert world.accept(reprocess(ULID_1)).row.redrive_count == 1

    def test_an_older_request_beside_a_newer_pending_one_runs_once_for_both(self, world: World) -> None:
        """The newest waiting ID is served."""
        world.process(created(world.s3.put(KEY, "1")))
        world.fail(reprocess(ULID_2))
        assert world.process(reprocess(ULID_1)).row.reprocess_id == ULID_2
        assert world.verdict(reprocess(ULID_2)) is Verdict.DUPLICATE


class TestLateAndForgotten:
    """Old messages, and rows that have expired."""

    def test_a_late_event_is_not_trusted_to_be_new(self, world: World) -> None:
        """It reads and looks before it claims."""
        change = created(world.s3.put(KEY, "1"))
        world.clock.advance(LATE_AND_A_BIT)
        assert world.verdict(change) is Verdict.ACCEPTED
        assert world.wire.requests == ["get_item", "put_item"]
        assert world.s3.looks == [KEY]

    @pytest.mark.failure_mode("F65")
    def test_an_old_event_after_the_row_has_expired(self, world: World) -> None:
        """The current state is older than the retention, so its row was settled; nothing is applied."""
        one, two = world.s3.put(KEY, "1"), world.s3.put(KEY, "2")
        world.process(created(two))
        world.clock.advance(RETENTION + 2 * DAY)
        world.expire(created(two))
        for change in (created(one), created(two), audited(two)):
            answer = world.answer(change)
            assert answer.verdict is Verdict.STALE
            assert "retention" in answer.why
            assert world.row(change) is None

    @pytest.mark.failure_mode("F75")
    def test_a_noncurrent_version_deleted_after_the_row_expired(self, world: World) -> None:
        """The current version does not run again."""
        one, two = world.s3.put(KEY, "1"), world.s3.put(KEY, "2")
        world.process(created(two))
        world.clock.advance(RETENTION + 2 * DAY)
        world.expire(created(two))
        world.s3.delete_version(KEY, one)
        assert world.verdict(deleted(one, at=world.clock())) is Verdict.STALE

    @pytest.mark.failure_mode("F75")
    def test_a_forgotten_delete_marker_is_not_reported_again(self, world: World) -> None:
        """A marker's age is asked for, since HEAD does not tell it."""
        one = world.s3.put(KEY, "1")
        world.process(marked(world.s3.mark_deleted(KEY)))
        world.clock.advance(RETENTION + 2 * DAY)
        world.expire(created(one))
        world.s3.delete_version(KEY, one)
        assert world.verdict(deleted(one, at=world.clock())) is Verdict.STALE

    @pytest.mark.failure_mode("F08")
    def test_a_row_past_its_expiry_still_counts(self, world: World) -> None:
        """Sweeps come days late; expiry decides nothing."""
        change = created(world.s3.put(KEY, "1"))
        world.process(change)
        world.clock.advance(RETENTION + 10 * DAY)
        expires = world.known(change).expires_at
        assert expires is not None
        assert expires * 1000 < world.clock()
        assert world.verdict(change) is Verdict.DUPLICATE
        assert world.verdict(created(world.s3.put(KEY, "2"), at=world.clock())) is Verdict.ACCEPTED

    @pytest.mark.failure_mode("F08")
    def test_a_failed_row_as_old_as_the_retention_keeps_its_budget(self, world: World) -> None:
        """Its age does not reset the attempts either."""
        change = created(world.s3.put(KEY, "1"))
        world.fail(change)
        world.clock.advance(RETENTION + 10 * DAY)
        assert world.accept(change).row.attempts == 2

    @pytest.mark.failure_mode("F09")
    def test_the_expiry_is_a_number_of_seconds_after_the_retention(self, world: World) -> None:
        """By the stored type and magnitude, not by our own reading of it."""
        change = created(world.s3.put(KEY, "1"))
        world.process(change)
        stored = world.item(change)["expires_at"]
        assert list(stored) == ["N"]
        assert int(stored["N"]) == START // 1000 + 35 * 86_400 + 86_400


class TestDeletesOff:
    """The processor does not want to hear of removals."""

    @pytest.fixture
    def deaf(self, make_world: MakeWorld) -> World:
        return make_world(deletes=False)

    def test_a_removal_is_settled_in_one_write(self, deaf: World) -> None:
        """Without a claim; the row then says that the removal is committed."""
        one = created(deaf.s3.put(KEY, "1"))
        fence = deaf.process(one).row.fence
        change = marked(deaf.s3.mark_deleted(KEY))
        answer = deaf.answer(change)
        row = deaf.known(change)
        assert answer.verdict is Verdict.SETTLED
        assert not isinstance(answer, Claim)
        assert (row.status, row.committed_state, row.fence) == (Status.PROCESSED, change.identity, fence + 1)
        assert row.expires_at is not None
        assert deaf.verdict(change) is Verdict.DUPLICATE

    def test_a_marker_on_an_unknown_key_leaves_a_tombstone(self, deaf: World) -> None:
        """A create that comes later has to look."""
        one = deaf.s3.put(KEY, "1")
        assert deaf.verdict(marked(deaf.s3.mark_deleted(KEY))) is Verdict.SETTLED
        assert deaf.verdict(created(one)) is Verdict.SETTLED, "the row notes that it was not processed"
        assert deaf.verdict(created(one)) is Verdict.STALE

    @pytest.mark.failure_mode("F89")
    def test_marker_undelete_marker_with_a_stale_swap_in_between(self, deaf: World) -> None:
        """Who judged before the un-delete must not settle after it: the fence has moved on."""
        one = deaf.s3.put(KEY, "1")
        deaf.process(created(one))
        marker = deaf.s3.mark_deleted(KEY)

        def meanwhile() -> None:
            assert deaf.verdict(marked(marker)) is Verdict.SETTLED
            deaf.s3.delete_version(KEY, marker)
            assert deaf.verdict(deleted(marker)) is Verdict.STALE

        deaf.s3.after_look.append(meanwhile)
        assert deaf.verdict(marked(marker)) is Verdict.STALE
        assert deaf.known(created(one)).committed_state == one.identity
        again = deaf.s3.mark_deleted(KEY)
        assert deaf.verdict(marked(again)) is Verdict.SETTLED

    @pytest.mark.failure_mode("F603")
    @pytest.mark.parametrize("event", [deleted, marked, lambda _: audited(ABSENT)], ids=["undelete", "late", "audit"])
    def test_an_undelete_writes_the_commit_back(self, deaf: World, event: Callable[[State], Change]) -> None:
        """Nobody was told of the removal, so the downstream still has the version."""
        one = deaf.s3.put(KEY, "1")
        deaf.process(created(one), "first")
        before = deaf.known(created(one))
        deaf.clock.advance(DAY)
        markers = list[State]()
        for _ in range(2):
            markers.append(deaf.s3.mark_deleted(KEY))
            assert deaf.verdict(marked(markers[-1])) is Verdict.SETTLED
        for marker in markers:
            deaf.s3.delete_version(KEY, marker)
        assert deaf.verdict(event(markers[0])) in (Verdict.STALE, Verdict.DUPLICATE)
        after = deaf.known(created(one))
        assert after.fence > before.fence
        assert (after.expires_at or 0) > (before.expires_at or 0)
        other = {"fence", "expires_at", "updated_at", "attempts", "event_name", "event_id", "sequencer"}
        assert {name for name, value in asdict(after).items() if value != getattr(before, name)} <= other
        assert deaf.verdict(created(one)) is Verdict.DUPLICATE

    @pytest.mark.failure_mode("F604")
    @pytest.mark.parametrize("meanwhile", [False, True])
    @pytest.mark.parametrize("undone", [False, True])
    def test_another_version_written_late_is_repaired_after_an_undelete(
        self, deaf: World, monkeypatch: pytest.MonkeyPatch, *, meanwhile: bool, undone: bool
    ) -> None:
        """Its report comes before the removal is settled or undone, or between judgement and write."""
        late = deaf.die(created(deaf.s3.put(KEY, "1")))
        two = deaf.s3.put(KEY, "2")
        deaf.process(created(two))
        marker = deaf.s3.mark_deleted(KEY)
        update = deaf.table.update

        def report() -> None:
            monkeypatch.setattr(deaf.table, "update", update)
            assert deaf.ledger.report_late_write(late)

        def reported(*arguments: Any) -> None:
            report()
            update(*arguments)

        def act(change: Change) -> Claim | Ruling:
            if meanwhile:
                monkeypatch.setattr(deaf.table, "update", reported)
            else:
                report()
            return deaf.answer(change)

        answer = deaf.answer(marked(marker)) if undone else act(marked(marker))
        assert answer.verdict is Verdict.SETTLED
        deaf.s3.delete_version(KEY, marker)
        again = act(deleted(marker)) if undone else deaf.answer(deleted(marker))
        assert isinstance(again, Claim)
        assert again.state.identity == two.identity

    @pytest.mark.failure_mode("F604")
    def test_the_same_version_written_late_changes_nothing(self, deaf: World) -> None:
        """The downstream has it in any case."""
        one = deaf.s3.put(KEY, "1")
        late = deaf.die(created(one))
        deaf.process(created(one))
        marker = deaf.s3.mark_deleted(KEY)
        assert deaf.verdict(marked(marker)) is Verdict.SETTLED
        assert deaf.ledger.report_late_write(late)
        assert deaf.verdict(audited(marker)) is Verdict.SETTLED
        deaf.s3.delete_version(KEY, marker)
        assert deaf.verdict(deleted(marker)) is Verdict.STALE
        assert deaf.known(created(one)).has_committed(one.identity)

    @pytest.mark.failure_mode("F89")
    def test_a_removal_at_the_end_of_its_budget_is_settled(self, world: World) -> None:
        """Three workers died over it while removals were told; switched off, there is nothing to reject."""
        world.process(created(world.s3.put(KEY, "1")))
        marker = world.s3.mark_deleted(KEY)
        for _ in range(MAX_ATTEMPTS):
            world.die(marked(marker))
        assert world.verdict(marked(marker)) is Verdict.EXHAUSTED
        world.deletes = False
        assert world.verdict(marked(marker)) is Verdict.SETTLED
        assert world.known(marked(marker)).has_committed(marker.identity)

    def test_a_removal_over_half_done_work_is_settled(self, deaf: World) -> None:
        """The object is gone, and the old worker is fenced off."""
        zombie = deaf.die(created(deaf.s3.put(KEY, "1")))
        assert deaf.verdict(marked(deaf.s3.mark_deleted(KEY))) is Verdict.SETTLED
        with pytest.raises(Fenced):
            deaf.ledger.commit(zombie)


class TestEveryVersion:
    """Each version has a separate row, and the ledger does not look."""

    @pytest.fixture
    def every(self, make_world: MakeWorld) -> World:
        return make_world(Ordering.EVERY_VERSION)

    def test_every_version_is_processed_in_any_order(self, every: World) -> None:
        """Also a version that was overwritten; none is processed twice."""
        states = [every.s3.put(KEY, str(n)) for n in range(3)]
        for state in reversed(states):
            assert every.process(created(state)).state.version_id == state.version_id
        for state in states:
            assert every.verdict(created(state)) is Verdict.DUPLICATE
        assert every.s3.looks == []

    @pytest.mark.failure_mode("F54")
    def test_two_versions_of_one_key_may_run_at_once(self, every: World) -> None:
        """Documented: a processor that writes one name for both has the fence to order them."""
        one = every.accept(created(every.s3.put(KEY, "1")))
        every.clock.advance(1)
        two = every.accept(created(every.s3.put(KEY, "2")))
        assert one.key != two.key
        assert two.row.fence > one.row.fence

    @pytest.mark.failure_mode("F81")
    def test_a_permanent_deletion_is_a_change_of_its_own(self, every: World) -> None:
        """Not the duplicate of its version's creation."""
        one = every.s3.put(KEY, "1")
        every.process(created(one))
        every.s3.delete_version(KEY, one)
        claim = every.process(deleted(one))
        assert claim.state.kind is StateKind.DELETED
        assert claim.key.sk == f"{PIPELINE}@d#{one.version_id}"
        assert every.verdict(deleted(one)) is Verdict.DUPLICATE
        assert every.verdict(created(one)) is Verdict.DUPLICATE

    @pytest.mark.failure_mode("F81")
    def test_overwritten_null_versions_are_separate_changes(self, make_world: MakeWorld) -> None:
        """By their ETags."""
        every = make_world(Ordering.EVERY_VERSION, versioned=False)
        a, b = every.s3.put(KEY, "A"), every.s3.put(KEY, "B")
        assert every.process(created(b)).key.sk == f"{PIPELINE}@e#{b.etag}"
        assert every.process(created(a)).key.sk == f"{PIPELINE}@e#{a.etag}"

    def test_failures_deaths_and_rejections_work_per_version(self, every: World) -> None:
        """Busy, retried, exhausted and redriven like in the default ordering."""
        change = created(every.s3.put(KEY, "1"))
        claim = every.accept(change)
        assert every.verdict(change) is Verdict.BUSY
        every.ledger.fail(claim, make_reason("one"))
        assert every.die(change).row.attempts == 2
        assert every.die(change).row.attempts == 3
        answer = every.answer(change)
        assert answer.verdict is Verdict.EXHAUSTED
        assert answer.row is not None
        after = every.ledger.exhausted_row(change, answer.row)
        assert every.ledger.exhaust(change, answer.row, after)
        assert every.verdict(change) is Verdict.REJECTED
        assert every.process(redriven(change, after.fence)).row.redrive_count == 1

    def test_a_delete_marker_is_a_version(self, every: World) -> None:
        """It is processed once, like the other versions."""
        change = marked(every.s3.mark_deleted(KEY))
        assert every.process(change).state.removed
        assert every.verdict(change) is Verdict.DUPLICATE

    def test_deletes_off_settles_markers_and_deletions(self, make_world: MakeWorld) -> None:
        """The processor hears of versions alone."""
        every = make_world(Ordering.EVERY_VERSION, deletes=False)
        one = every.s3.put(KEY, "1")
        assert every.verdict(marked(every.s3.mark_deleted(KEY))) is Verdict.SETTLED
        assert every.verdict(created(one)) is Verdict.ACCEPTED
        every.s3.delete_version(KEY, one)
        assert every.verdict(deleted(one)) is Verdict.SETTLED

    @pytest.mark.failure_mode("F65")
    def test_an_event_older_than_the_retention_is_forgotten(self, every: World) -> None:
        """Its row was settled and has expired."""
        change = created(every.s3.put(KEY, "1"))
        every.process(change)
        every.clock.advance(RETENTION + 2 * DAY)
        every.expire(change)
        assert every.verdict(change) is Verdict.STALE

    def test_a_removal_that_names_no_version_has_no_row(self, make_world: MakeWorld) -> None:
        """Nothing can be said about which version went."""
        every = make_world(Ordering.EVERY_VERSION, versioned=False)
        assert every.verdict(deleted(State(StateKind.ABSENT))) is Verdict.STALE

    @pytest.mark.failure_mode("F14")
    def test_a_version_id_of_1024_bytes(self, every: World) -> None:
        """With the longest key that there is: no ValidationException, and duplicates are still found."""
        key = "€" * 341 + "k"
        assert len(key.encode()) == 1024
        change = created(State(StateKind.OBJECT, "v" * 1024, "e" * 32, 1), key=key)
        every.process(change)
        assert every.verdict(change) is Verdict.DUPLICATE


@pytest.mark.failure_mode("F69")
def test_attributes_of_a_newer_release_stay(world: World) -> None:
    """An update writes the known attributes and keeps the others."""
    change = created(world.s3.put(KEY, "1"))
    world.process(change)
    key = world.key(change)
    world.wire.client.update_item(
        TableName=world.table_name,
        Key={"pk": {"S": key.pk}, "sk": {"S": key.sk}},
        UpdateExpression="SET tomorrow = :map, digests = :set",
        ExpressionAttributeValues={":map": {"M": {"a": {"BOOL": True}}}, ":set": {"SS": ["x"]}},
    )
    world.process(created(world.s3.put(KEY, "2")))
    assert world.item(change)["tomorrow"] == {"M": {"a": {"BOOL": True}}}
    assert world.item(change)["digests"] == {"SS": ["x"]}


@pytest.mark.failure_mode("F15")
def test_keys_that_look_like_separators_do_not_meet(world: World) -> None:
    """Each key has a separate row in one table, for both orderings."""
    keys = [
        "a#b",
        "a|b",
        "a//b",
        "/a",
        "a",
        "v#1",
        "@latest",
        "a ",
        " a",
        "🎉",
        "..",
        "a/../a",
        "a@latest",
        "a/b",
        "a%2Fb",
    ]
    for key in keys:
        world.process(created(world.s3.put(key, key), key=key))
    for key in keys:
        assert world.verdict(created(world.s3.look(key), key=key)) is Verdict.DUPLICATE
    found = world.wire.client.scan(TableName=world.table_name)["Items"]
    assert sorted(item["pk"]["S"] for item in found) == sorted(f"uploads/{key}" for key in keys)


def test_the_batch_read_finds_rows_and_marks_alike(world: World) -> None:
    """The answer names no row that does not exist."""
    change = created(world.s3.put(KEY, "1"))
    world.process(change)
    missing = RowKey("uploads/none", "x")
    found = world.table.get_items([world.key(change), missing])
    assert list(found) == [world.key(change)]
    assert row_from_attributes(found[world.key(change)]) == world.known(change)


def test_the_conditions_of_a_swap_and_of_an_outcome_on_a_missing_row_are_refused(world: World) -> None:
    """There is nothing to compare with, and the refusal says so."""
    row = Row(Status.PROCESSING, 7, lease_owner="me")
    for condition in (row_unchanged(row, START), lease_owned(row)):
        with pytest.raises(ConditionFailed) as refused:
            world.table.update(RowKey("uploads/none", "x"), row, replace(row, attempts=2), condition)
        assert refused.value.row is None
