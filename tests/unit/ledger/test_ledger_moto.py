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
from intake_ledger.protocol.row import Ordering, Row, RowKey, Status, review_partitions, row_from_attributes
from intake_ledger.protocol.verdict import Ruling, Verdict
from intake_ledger_testing.consumers import object_ledger
from tests.unit.stories import stories, tell
from tests.unit.support import (
    DAY,
    KEY,
    LATE_AFTER,
    LEASE,
    MAX_ATTEMPTS,
    MINUTE,
    PIPELINE,
    SECOND,
    START,
    MakeWorld,
    World,
    audited,
    created,
    deleted,
    make_reason,
    marked,
)

pytestmark = pytest.mark.usefixtures("dynamodb")


@pytest.fixture
def deaf(make_world: MakeWorld) -> World:
    """A pipeline whose processor is not told of removals."""
    return make_world(deletes=False)


@pytest.fixture
def every(make_world: MakeWorld) -> World:
    """A pipeline with a row for each version."""
    return make_world(Ordering.EVERY_VERSION)


def test_the_requests_of_a_claim(world: World) -> None:
    """Most keys are new: one write, no read and no HEAD. A refused insert brings its row. A late event reads first."""
    change = created(world.s3.put(KEY, "1"))
    assert world.accept(change).seen is None
    assert (world.wire.requests, world.s3.looks) == (["put_item"], [])
    world.clock.advance(LEASE)
    world.process(change)
    world.wire.requests.clear()
    world.s3.looks.clear()
    assert world.verdict(change) is Verdict.DUPLICATE
    assert (world.wire.requests, world.s3.looks) == (["put_item"], [])
    world.process(created(world.s3.put(KEY, "2")))
    assert (world.wire.requests[1:], world.s3.looks) == (["put_item", "update_item", "update_item"], [KEY])
    world.wire.requests.clear()
    late = created(world.s3.put("late", "1"), key="late", at=world.clock() - LATE_AFTER - 1)
    assert world.verdict(late) is Verdict.ACCEPTED
    assert (world.wire.requests, world.s3.looks) == (["get_item", "put_item"], [KEY, "late"])


@pytest.mark.failure_mode("F190")
def test_a_commit_has_the_version_of_the_processor(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert len(ledger.commit_together([(claim, None) for claim in group])) == len(group)
    assert [row.processor_version for row in written] == ["1.4", "1.4"]


def test_an_audits_mark_alone_is_no_row(world: World) -> None:
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


def test_an_outage_is_an_error_and_no_verdict(world: World) -> None:
    """The caller must not acknowledge the message."""
    world.wire.down = ClientError({"Error": {"Code": "ProvisionedThroughputExceededException"}}, "PutItem")
    with pytest.raises(ClientError, match="ProvisionedThroughput"):
        world.answer(created(world.s3.put(KEY, "1")))


@pytest.mark.failure_mode("F02")
def test_an_insert_whose_answer_was_lost_is_accepted(world: World) -> None:
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
def test_a_swap_whose_answer_was_lost_is_accepted(world: World) -> None:
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


ENDINGS: dict[str, Callable[[World, Claim], object]] = {
    "commit": lambda world, claim: world.ledger.commit(claim, "invoice-17"),
    "failure": lambda world, claim: world.ledger.fail(claim, make_reason("why")),
    "rejection": lambda world, claim: world.ledger.reject(claim, make_reason("why")),
    "release": lambda world, claim: world.ledger.release(claim),
    "abandonment": lambda world, claim: world.ledger.abandon(claim, make_reason("gone"), begun=True),
}
BEFORE: dict[str, Callable[[World, Change], object]] = {
    "no row": lambda _world, _change: None,
    "a failed row": World.fail,
    "another state's commit": lambda world, _: world.process(created(world.s3.put(KEY, "0"))),
}


@pytest.mark.failure_mode("F82")
@pytest.mark.parametrize("end", ENDINGS.values(), ids=ENDINGS)
@pytest.mark.parametrize("before", BEFORE.values(), ids=BEFORE)
def test_an_ending_whose_answer_was_lost_is_written_once(
    make_world: MakeWorld, before: Callable[[World, Change], object], end: Callable[[World, Claim], None]
) -> None:
    """It is not reported as fenced. The row is the one that an ending with an answer leaves."""
    items = []
    for lost in (0, 1):
        world = make_world()
        change = created(world.s3.put(KEY, "1"))
        before(world, change)
        change = created(world.s3.put(KEY, "1"))
        claim = world.accept(change)
        world.wire.lose = lost
        end(world, claim)
        assert world.wire.lose == 0
        items.append(world.item(change))
    assert items[0] == items[1]


@pytest.mark.failure_mode("F82")
def test_a_lost_commit_is_recognised_although_a_successor_has_claimed(world: World) -> None:
    """`committed_fence` stays through the next claim."""
    claim = world.process(created(world.s3.put(KEY, "1")))
    world.accept(created(world.s3.put(KEY, "2")))
    world.ledger.commit(claim)


def test_a_settled_removal_whose_answer_was_lost_is_acknowledged(make_world: MakeWorld) -> None:
    """With `deletes` off the repeated write finds its own result."""
    world = make_world(deletes=False)
    world.wire.lose = 1
    assert world.verdict(marked(world.s3.mark_deleted(KEY))) in (Verdict.DUPLICATE, Verdict.STALE)


SUCCESSORS: dict[str, Callable[[World, Change], object]] = {
    "works": World.accept,
    "has committed": World.process,
    "has failed": World.fail,
    "was rejected": World.reject,
    "has released": lambda world, change: world.ledger.release(world.accept(change)),
}


@pytest.mark.failure_mode("F03", "F04")
@pytest.mark.parametrize("end", ENDINGS.values(), ids=ENDINGS)
@pytest.mark.parametrize("successor", SUCCESSORS.values(), ids=SUCCESSORS)
def test_an_ending_past_the_lease_is_refused(
    world: World, successor: Callable[[World, Change], object], end: Callable[[World, Claim], None]
) -> None:
    """It frees no claim of its successor, and changes nothing that the successor has written."""
    change = created(world.s3.put(KEY, "1"))
    late = world.die(change)
    successor(world, change)
    item = world.item(change)
    with pytest.raises(Fenced, match="no longer current"):
        end(world, late)
    assert world.item(change) == item


@pytest.mark.failure_mode("F03")
@pytest.mark.parametrize("end", ENDINGS.values(), ids=ENDINGS)
def test_an_equal_fence_is_not_enough(world: World, end: Callable[[World, Claim], None]) -> None:
    """A row that was released and inserted again in the same millisecond has the same fence: the owner tells."""
    released = world.accept(created(world.s3.put(KEY, "1")))
    world.ledger.release(released)
    successor = world.accept(released.change)
    assert successor.row.fence == released.row.fence
    with pytest.raises(Fenced):
        end(world, released)
    assert world.known(released.change) == successor.row


@pytest.mark.failure_mode("F13")
def test_a_clock_ahead_by_less_than_the_margin_steals_no_live_lease(world: World) -> None:
    """The lease is compared with the clock at the moment of the claim, not one millisecond earlier."""
    change = created(world.s3.put(KEY, "1"))
    world.accept(change, lease=MINUTE + 2 * MINUTE)  # a minute's work, two of margin
    world.clock.advance(MINUTE + 90 * SECOND)
    assert world.verdict(change) is Verdict.BUSY
    world.clock.advance(30 * SECOND - 1)
    assert world.verdict(change) is Verdict.BUSY
    world.clock.advance(1)
    assert world.verdict(change) is Verdict.ACCEPTED


def test_a_live_lease_refuses_the_swap_itself(world: World) -> None:
    """The condition of a swap holds the lease too: a slow clock that judged wrongly is refused by the table."""
    claim = world.accept(created(world.s3.put(KEY, "1")))
    with pytest.raises(ConditionFailed):
        world.table.update(
            claim.key, claim.row, replace(claim.row, lease_owner="thief"), row_unchanged(claim.row, world.clock())
        )


@stories("""
    F18 a second copy while the first one runs is busy, and costs no attempt
        put 1; created 1 claims; created 1 BUSY; created 1 BUSY; created 1 BUSY; row attempts=1; then commits
    F04 a removal that is settled over half-done work
        deletes off: put 1; created 1 dies; mark M; marked M SETTLED unprocessed; late 1 reports
    a worker past its lease may commit while nobody took over: the fence decides, not the clock
        put 1; created 1 claims; wait 1 d; then commits
    F83 of two that judged the same row, one swaps
        put 1; created 1 commits; put 2; meanwhile created 2 claims; created 2 BUSY
    F83 the one that lost brings about what S3 shows by then
        put 1; created 1 commits; put 2; meanwhile put 3, created 3 commits; created 2 STALE; row committed_state=3
    F01 a write checks more than that nobody is processing
        put 1; created 1 commits; put 2; meanwhile created 2 commits; created 2 DUPLICATE; row attempts=1
    F01 a release in between leaves the same row with another fence, so S3 is looked at again
        put 1; created 1 commits; put 2; meanwhile created 2 releases; created 2 claims 2; looks 3
    a row that expired meanwhile is inserted again
        put 1; created 1 commits; put 2; meanwhile expire; created 2 claims 2; row committed_state=None
    a message that looks first also has to insert
        put 1; meanwhile created 1 claims; audited 1 BUSY
""")
def test_of_two_workers_one_wins(make_world: MakeWorld, story: str) -> None:
    """The other one's write is refused, and it judges again."""
    tell(make_world, story)


def test_a_row_that_changes_at_every_try_is_left_to_its_winners(world: World) -> None:
    """BUSY: the message comes again later, nothing is acknowledged and nothing spins."""
    world.process(created(world.s3.put(KEY, "1")))
    change = created(world.s3.put(KEY, "2"))
    world.s3.after_look.extend([lambda: world.ledger.release(world.accept(change)), lambda: None] * 6)
    assert world.verdict(change) is Verdict.BUSY


def test_of_two_that_reject_an_exhausted_row_one_succeeds(world: World) -> None:
    """The other is told to judge again."""
    change = created(world.s3.put(KEY, "1"))
    for _ in range(MAX_ATTEMPTS):
        world.die(change)
    one, other = world.answer(change), world.answer(change)
    assert one.row is not None
    assert other.row is not None
    assert world.ledger.exhaust(change, one.row, world.ledger.exhausted_row(change, one.row))
    assert not world.ledger.exhaust(change, other.row, world.ledger.exhausted_row(change, other.row))


@stories("""
    F32 the original event after the audit's
        put 1; put 2; audited 2 commits 2; created 2 DUPLICATE; wait 30 d; created 2 DUPLICATE
    F33 an older version's event after the audit's
        put 1; put 2; audited 2 commits 2; created 1 STALE; wait 30 d; created 1 STALE
    F50 an older version is deleted permanently
        put 1; put 2; created 2 commits 2; remove 1; deleted 1 STALE; wait 30 d; deleted 1 STALE
    F59 the same change over EventBridge
        put 1; put 2; created 2 commits 2; eventbridge 2 DUPLICATE; wait 30 d; eventbridge 2 DUPLICATE
    F65 an older version's event
        put 1; put 2; created 2 commits 2; created 1 STALE; wait 30 d; created 1 STALE
    F66 a replayed archive
        put 1; put 2; eventbridge 2 commits 2; eventbridge 2 DUPLICATE; wait 30 d; eventbridge 2 DUPLICATE
    F66 the same, an older version
        put 1; put 2; eventbridge 2 commits 2; eventbridge 1 STALE; wait 30 d; eventbridge 1 STALE
""")
def test_nothing_runs_after_the_commit_of_the_newest_state(make_world: MakeWorld, story: str) -> None:
    """At once, and as long as the row is there."""
    tell(make_world, story)


@stories("""
    F05 an older event claims the newer state
        put 1; put 2; created 2 dies; created 1 claims 2 attempt 2; row committed_state=None sequencer=None
    F06 a failure keeps the committed state
        put 1; created 1 commits; put 2; created 2 fails; row committed_state=1
    F07 each claim has a higher fence
        put 1; created 1 fails; created 1 dies; created 1 commits; put 2; created 2 commits; mark M; marked M commits M;
        reprocess a commits M; put 3; created 3 rejects
    F48 the same bytes again are a new version
        put same as 1; created 1 commits; put same as 2; created 2 claims 2
    F49 a removed marker brings the object back
        put 1; created 1 commits; mark M; marked M commits M; remove M; deleted M claims 1
    F51 a rollback by permanent deletion
        put 1; created 1 commits; put 2; created 2 commits; remove 2; deleted 2 claims 1 attempt 1
    F51 the last version is deleted for good
        put 1; created 1 commits; remove 1; deleted 1 commits absent; deleted 1 STALE
    F52 the claimed state is the one that S3 shows
        put 1; created 1 commits; put 22 as 2; deleted 1 claims 2
    F53 a version that is gone before the retry is no poison
        put 0; put 1; created 1 fails; remove 1; created 1 claims 0 attempt 1
    F55 a create after its delete finds the tombstone
        put 1; mark M; marked M commits M; wait 14 d; created 1 STALE
    F58 changes with one sequencer all count
        put 1; created 1 commits; put 2; created 2 dies; created 2 commits; mark M; marked M claims M
    F37 new bytes without versions are a new change
        without versions: put A; created A commits; put B; created B claims B
    F72 a death keeps the change and raises the fence
        put 1; created 1 dies; created 1 claims 1 attempt 2
    F73 a state that comes back over an unsettled row runs again
        put 1; created 1 commits; put 2; created 2 dies; remove 2; deleted 2 releases 1; created 1 releases 1
    F80 A, B, A without versions
        without versions: put A; created A commits; put B; created B dies; put A; created A claims A
    a key that never was
        all rows: put 1; remove 1; deleted 1 STALE; no row
""")
def test_the_state_that_s3_shows_is_processed(make_world: MakeWorld, story: str) -> None:
    """For any order of the events."""
    tell(make_world, story)


@stories("""
    without an earlier row, the row goes
        put 1; created 1 releases; no row; created 1 claims 1 attempt 1
    F10 a failed row
        put 1; created 1 fails for 8 s; wait 8 s; created 1 releases; created 1 claims 1 attempt 2
    F77 a rejection
        put 1; created 1 rejects; put 2; created 2 releases; row status=REJECTED; remove 2; deleted 2 REJECTED
    F90 a committed row
        put 1; created 1 commits; put 2; created 2 releases; remove 2; deleted 2 STALE
    F90 a key that was never processed is not reported as removed
        all rows: put 1; created 1 releases; remove 1; deleted 1 STALE; no row
    a dead worker's claim
        put 1; created 1 dies; created 1 releases; created 1 claims 1 attempt 2
    F53 a version that was given up
        every version: put 1; created 1 commits; reprocess a:1 abandons; row status=PROCESSED served_reprocess_id=a;
        created 1 DUPLICATE
    F81 the same bytes come again after it was given up
        every version, without versions: put A; created A abandons; created A claims A attempt 1
""")
def test_a_claim_without_an_attempt_leaves_the_row_as_it_was(make_world: MakeWorld, story: str) -> None:
    """Nothing was begun, or only a version that is gone mattered."""
    tell(make_world, story)


@stories("""
    F23 each message for the state
        put 1; put 2; created 2 fails for 8 s; wait 7999 ms; created 2 BUSY; eventbridge 2 BUSY; audited 2 BUSY;
        created 1 BUSY; deleted 1 BUSY; wait 1 ms; created 2 claims 2 attempt 2
    F78 no request of a person
        put 1; created 1 rejects; copy 1 fails for 8 s; reprocess a fails attempt 2 for 8 s; copy 1 claims 1 attempt 3
    F73 no other state
        put 1; created 1 commits; put 2; created 2 fails for 1 d; remove 2; deleted 2 claims 1
    no other version
        every version: put 1; put 2; created 1 fails for 8 s; created 1 BUSY; created 2 claims 2
""")
def test_a_failed_state_waits(make_world: MakeWorld, story: str) -> None:
    """Until its next attempt is due."""
    tell(make_world, story)


@stories("""
    failures and deaths count, and a new state begins at one
        put 1; created 1 fails attempt 1; created 1 dies attempt 2; created 1 dies attempt 3; put 2;
        created 2 claims 2 attempt 1
    F44 the last known error is the reason
        put 1; created 1 fails; created 1 dies; created 1 dies; created 1 EXHAUSTED; exhaust;
        row status=REJECTED reason=fails; created 1 REJECTED
    F44 no error is known
        put 1; created 1 dies; created 1 dies; created 1 dies; exhaust; row reason_code=attempts_exhausted
    F86 no unsettled row expires
        put 1; created 1 fails; created 1 rejects; copy 1 dies; created 1 commits
    F84 a state that was committed at its last attempt is processed again
        put 1; created 1 fails; created 1 fails; created 1 commits attempt 3; reprocess a commits attempt 1
""")
def test_attempts_are_counted_and_end(make_world: MakeWorld, story: str) -> None:
    """The budget is the ledger's."""
    tell(make_world, story)


@stories("""
    F76 a duplicate and an audit open no round
        put 1; created 1 rejects; created 1 REJECTED; audited 1 REJECTED; eventbridge 1 REJECTED
    F63 the copy opens a round
        put 1; created 1 rejects; copy 1 commits 1 attempt 1 round 1
    F64 each copy opens one round
        put 1; created 1 rejects; copy 1 rejects 1 round 1; copy 1 REJECTED; copy 2 fails 1 round 2;
        copy 1 claims 1 round 2
    F64 a round has a budget
        put 1; created 1 rejects; copy 1 fails attempt 1; copy 1 fails attempt 2; copy 1 fails attempt 3;
        copy 1 EXHAUSTED
    F10 a copy comes back after 13 days
        put 1; created 1 rejects; wait 13 d; row attempts=1 reason=rejects; copy 1 claims 1
    F77 a dead version's message does not erase it
        put 1; put 2; created 2 rejects; created 1 REJECTED; remove 1; deleted 1 REJECTED
    a newer version begins without rounds
        put 1; created 1 rejects; put 2; created 2 commits 2 round 0
""")
def test_a_rejection_stays_until_a_person_asks(make_world: MakeWorld, story: str) -> None:
    """Only the copy of this rejection opens a round."""
    tell(make_world, story)


def test_the_sparse_index_holds_rows_that_need_review(world: World) -> None:
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


@stories("""
    F78 A, B, A
        put 1; created 1 commits; reprocess a commits; reprocess b commits; reprocess a DUPLICATE;
        reprocess b DUPLICATE; reprocess c commits
    F78 an audit serves a request that failed
        put 1; created 1 commits; reprocess a fails; row reprocess_id=a; audited 1 commits; row served_reprocess_id=a;
        reprocess a DUPLICATE
    F88 a request that failed comes back before the audit
        put 1; created 1 commits; reprocess a fails; reprocess a commits; audited 1 DUPLICATE
    F87 the row has expired
        put 1; created 1 commits; wait 37 d; expire; reprocess a commits; reprocess a DUPLICATE
    F76 a request opens one round
        put 1; created 1 commits; reprocess a rejects; reprocess a REJECTED; copy 1 rejects 1 round 1;
        row reprocess_id=a; reprocess a REJECTED; reprocess b commits 1 round 2; row served_reprocess_id=b
    a rejected state
        put 1; created 1 rejects; reprocess a claims 1 round 1
    an older request runs once with a newer one
        put 1; created 1 commits; reprocess b fails; reprocess a commits; row served_reprocess_id=b;
        reprocess b DUPLICATE
""")
def test_each_request_to_process_again_is_served_once(make_world: MakeWorld, story: str) -> None:
    """In order, repeated, and out of order."""
    tell(make_world, story)


@stories("""
    F65 old events after the row has expired
        put 1; put 2; created 2 commits; wait 37 d; expire; created 1 STALE; created 2 STALE; audited 2 STALE; no row
    F75 an older version is deleted after the row has expired
        put 1; put 2; created 2 commits; wait 37 d; expire; remove 1; deleted 1 STALE
    F75 a forgotten delete marker is not reported again
        put 1; mark M; marked M commits M; wait 37 d; expire; remove 1; deleted 1 STALE
    F08 a row past its expiry still counts
        put 1; created 1 commits; wait 45 d; created 1 DUPLICATE; put 2; created 2 claims 2
    F08 a failed row keeps its budget
        put 1; created 1 fails; wait 45 d; created 1 claims 1 attempt 2
    F79 the fence goes on after the row has expired
        put 1; created 1 commits; wait 37 d; expire; put 2; created 2 claims 2
""")
def test_old_events_and_expired_rows(make_world: MakeWorld, story: str) -> None:
    """The current state decides."""
    tell(make_world, story)


@pytest.mark.failure_mode("F09")
def test_the_expiry_is_a_number_of_seconds_after_the_retention(world: World) -> None:
    """By the stored type and magnitude, not by our own reading of it."""
    change = created(world.s3.put(KEY, "1"))
    world.process(change)
    stored = world.item(change)["expires_at"]
    assert list(stored) == ["N"]
    assert int(stored["N"]) == START // 1000 + 35 * 86_400 + 86_400


@stories("""
    a removal is recorded once
        deletes off: put 1; created 1 commits; mark M; marked M SETTLED; row status=PROCESSED committed_state=M;
        marked M DUPLICATE
    a marker on an unknown key leaves a tombstone
        deletes off: put 1; mark M; marked M SETTLED; created 1 SETTLED unprocessed; created 1 STALE
    F89 a removal whose attempts are used up
        put 1; created 1 commits; mark M; marked M dies; marked M dies; marked M dies; marked M EXHAUSTED; deletes off;
        marked M SETTLED; row committed_state=M
    F89 a marker, an un-delete and a marker: who judged before the un-delete must not settle after it
        deletes off: put 1; created 1 commits; mark M; meanwhile marked M SETTLED, remove M, deleted M STALE undone;
        marked M STALE; row committed_state=1; mark N; marked N SETTLED
    F604 the same version written late changes nothing, since the downstream has it in any case
        deletes off: put 1; created 1 dies; created 1 commits; mark M; marked M SETTLED; late 1 reports;
        audited M SETTLED; remove M; deleted M STALE undone; row committed_state=1
    every version
        every version, deletes off: put 1; mark M; marked M SETTLED; created 1 claims 1; remove 1; deleted 1 SETTLED
""")
def test_removals_are_settled_with_deletes_off(make_world: MakeWorld, story: str) -> None:
    """Without a claim. The row says that the removal is committed."""
    tell(make_world, story)


@pytest.mark.failure_mode("F603")
@pytest.mark.parametrize("event", [deleted, marked, lambda _: audited(ABSENT)], ids=["undelete", "late", "audit"])
def test_an_undelete_writes_the_commit_back(deaf: World, event: Callable[[State], Change]) -> None:
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
    deaf: World, monkeypatch: pytest.MonkeyPatch, *, meanwhile: bool, undone: bool
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


@stories("""
    each is processed once in any order
        every version: put 0; put 1; put 2; created 2 commits 2; created 1 commits 1; created 0 commits 0;
        created 0 DUPLICATE; created 1 DUPLICATE; created 2 DUPLICATE; looks 0
    F81 a permanent deletion is a change of its own
        every version: put 1; created 1 commits; remove 1; deleted 1 commits; row kind=deleted; deleted 1 DUPLICATE;
        created 1 DUPLICATE
    F81 overwritten null versions differ by their ETags
        every version, without versions: put A; put B; created B commits B; created A commits A; created B DUPLICATE
    a version is tried again, rejected and redriven
        every version: put 1; created 1 fails attempt 1; created 1 dies attempt 2; created 1 dies attempt 3; exhaust;
        created 1 REJECTED; copy 1 commits 1 round 1
    a delete marker is a version
        every version: mark M; marked M commits M; marked M DUPLICATE
    F65 an event is older than the retention
        every version: put 1; created 1 commits; wait 37 d; expire; created 1 STALE
    a removal that names no version has no row
        every version, without versions: deleted absent STALE
""")
def test_each_version_has_its_own_row(make_world: MakeWorld, story: str) -> None:
    """The ledger does not look."""
    tell(make_world, story)


@pytest.mark.failure_mode("F54")
def test_two_versions_of_one_key_may_run_at_once(every: World) -> None:
    """Documented: a processor that writes one name for both has the fence to order them."""
    one = every.accept(created(every.s3.put(KEY, "1")))
    every.clock.advance(1)
    two = every.accept(created(every.s3.put(KEY, "2")))
    assert one.key != two.key
    assert two.row.fence > one.row.fence


@pytest.mark.failure_mode("F14")
def test_a_version_id_of_1024_bytes(every: World) -> None:
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
