"""The row history of a ledger, and its effect on keys without a row."""

from dataclasses import replace
from typing import TYPE_CHECKING, cast

import pytest

from cdk_intake_ledger.testing import MemoryDynamoDB
from intake_ledger.ledger.dynamodb_table import LedgerTable
from intake_ledger.ledger.row_history import RowHistoryRecord, record_key
from intake_ledger.protocol.change import StateKind
from intake_ledger.protocol.row import Ordering, Retention, Row, Status, exhausted
from intake_ledger.protocol.settings import KeyFilter, Settings
from intake_ledger.protocol.verdict import Verdict
from tests.settings import CONSUMER
from tests.unit.support import (
    BUCKET,
    DAY,
    KEY,
    MINUTE,
    PIPELINE,
    RETENTION,
    START,
    AllRows,
    Clock,
    MakeWorld,
    World,
    audited,
    created,
    deleted,
    marked,
    reprocess,
)

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

pytestmark = pytest.mark.usefixtures("dynamodb")

ULID = "01KA0000000000000000000001"
KEEPING = replace(CONSUMER, pipeline=PIPELINE, bucket=BUCKET, table="ledger", keeps_rows=True)
EXPIRING = replace(KEEPING, keeps_rows=False)


class Deployments:
    """One table, and environments of one pipeline that start one after the other."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.store = MemoryDynamoDB()

    def record(self, settings: Settings) -> RowHistoryRecord:
        return RowHistoryRecord(settings, LedgerTable(cast("DynamoDBClient", self.store), settings.table), self.clock)

    def start(self, settings: Settings = KEEPING) -> int | None:
        """Start a new environment of the consumer and return the record, as the audit reads it."""
        self.clock.advance(DAY)
        known = self.record(settings).all_rows_since()
        assert self.record(settings).look() == known
        return known


@pytest.fixture
def deployments() -> Deployments:
    return Deployments()


class TestRecord:
    """It is written by each environment before its first row, and read once."""

    @pytest.mark.failure_mode("F94")
    def test_a_ledger_that_keeps_rows_from_its_first_day_has_all_rows(self, deployments: Deployments) -> None:
        """The pipeline's bucket was empty then, so the ledger knows all objects."""
        assert [deployments.start() for _ in range(3)] == [0, 0, 0]

    @pytest.mark.failure_mode("F94")
    def test_in_a_bucket_that_was_there_before_it_knows_what_came_since(self, deployments: Deployments) -> None:
        """Older objects were never processed."""
        settings = replace(KEEPING, skips_existing=True)
        assert [deployments.start(settings) for _ in range(2)] == [START + DAY] * 2

    @pytest.mark.failure_mode("F94")
    def test_rows_that_ever_expired_are_never_forgotten(self, deployments: Deployments) -> None:
        """Nor by a ledger that kept them at first, and does so again later."""
        assert deployments.start(EXPIRING) is None
        assert deployments.start() is None
        other = Deployments()
        assert [other.start(one) for one in (KEEPING, EXPIRING, KEEPING)] == [0, None, None]

    @pytest.mark.failure_mode("F94")
    def test_two_environments_may_be_first(self, deployments: Deployments) -> None:
        """Whichever order their writes come in."""
        both = [deployments.record(one) for one in (KEEPING, EXPIRING, EXPIRING)]
        for one in both:
            one.begin()
        assert deployments.start() is None

    @pytest.mark.failure_mode("F98")
    def test_a_table_of_another_name_was_restored(self, deployments: Deployments) -> None:
        """States processed after the backup have no row there. This does not change later."""
        assert deployments.start() == 0
        assert [deployments.start(replace(KEEPING, table="restored")) for _ in range(2)] == [None, None]
        assert deployments.start() is None

    @pytest.mark.failure_mode("F94")
    def test_another_ordering_has_rows_of_its_own(self, deployments: Deployments) -> None:
        """The rows of one are none of the other's."""
        every = replace(KEEPING, ordering=Ordering.EVERY_VERSION)
        assert [deployments.start(one) for one in (KEEPING, every, KEEPING)] == [0, None, None]

    @pytest.mark.failure_mode("F94")
    def test_new_filters_begin_anew(self, deployments: Deployments) -> None:
        """Keys that only the new filters match were left alone until now."""
        wider = replace(KEEPING, filters=(KeyFilter("in/"), KeyFilter("more/")))
        deployments.start(replace(KEEPING, filters=(KeyFilter("in/"),)))
        assert deployments.record(wider).look() is None, "until the consumer has written it down"
        since = deployments.start(wider)
        assert since == deployments.clock()
        assert deployments.start(replace(wider, filters=wider.filters[::-1])) == since

    @pytest.mark.failure_mode("F602")
    @pytest.mark.parametrize(
        ("settings", "complete"),
        [
            ([KEEPING], True),
            ([EXPIRING, KEEPING], False),
            ([replace(KEEPING, skips_existing=True)], False),
            # The row of a removal that nobody was told of expires, and the downstream still has the object.
            ([replace(KEEPING, deletes=False), KEEPING], False),
            ([KEEPING, replace(KEEPING, deletes=False), KEEPING], False),
        ],
    )
    def test_a_complete_ledger_has_a_row_for_each_object_downstream(
        self, deployments: Deployments, settings: list[Settings], complete: bool
    ) -> None:
        for one in settings:
            deployments.start(one)
        assert deployments.record(settings[-1]).is_complete() is complete

    @pytest.mark.failure_mode("F602")
    def test_a_table_of_the_same_name_was_restored(self, deployments: Deployments) -> None:
        """Environments that are warm see it too. They ask once in a minute, since a restore takes longer."""
        deployments.start()
        record = deployments.record(KEEPING)
        assert [record.is_complete() for _ in range(3)] == [True] * 3
        assert deployments.store.requests.count("DescribeTable") == 1
        deployments.store.restored = True
        deployments.clock.advance(MINUTE)
        assert [record.is_complete() for _ in range(2)] == [False] * 2
        assert not deployments.record(KEEPING).is_complete()

    def test_an_environment_asks_once(self, deployments: Deployments) -> None:
        """One request for a start, and none for a claim."""
        for settings in (EXPIRING, KEEPING):
            record = deployments.record(settings)
            deployments.store.requests.clear()
            for _ in range(3):
                record.begin()
                record.all_rows_since()
            assert len(deployments.store.requests) == 1

    def test_an_audit_alone_writes_nothing(self, deployments: Deployments) -> None:
        """It processes nothing, so it cannot say when the first row was written."""
        assert deployments.record(KEEPING).look() is None
        assert deployments.store.items == {}

    def test_the_record_is_no_row(self, deployments: Deployments) -> None:
        """A key cannot have the bucket alone for its partition."""
        deployments.start()
        key = record_key(KEEPING)
        assert "/" not in key.pk
        assert LedgerTable(cast("DynamoDBClient", deployments.store), "ledger").get(key) is None


class TestExpiry:
    """A row lives as long as its object."""

    @pytest.mark.parametrize("kind", StateKind)
    def test_only_committed_removals_expire_where_rows_are_kept(self, kind: StateKind) -> None:
        expires_at = Retention(86_400, keeps_rows=True).expires_at(kind, START)
        assert expires_at == (None if kind is StateKind.OBJECT else START // 1000 + 2 * 86_400)
        assert Retention(86_400).expires_at(kind, START) == START // 1000 + 2 * 86_400

    @pytest.mark.failure_mode("F94")
    def test_a_row_has_an_expiry_only_while_its_object_is_gone(self, world: World) -> None:
        """Uploaded, deleted, uploaded again."""
        world.keeps_rows = True
        one = created(world.s3.put(KEY, "1"))
        world.process(one)
        assert world.known(one).expires_at is None
        world.process(marked(world.s3.mark_deleted(KEY)))
        assert world.known(one).expires_at is not None
        world.process(created(world.s3.put(KEY, "2")))
        assert world.known(one).expires_at is None

    @pytest.mark.failure_mode("F94")
    def test_every_version_keeps_the_row_until_the_version_is_deleted(self, make_world: MakeWorld) -> None:
        """Nothing else would ever let it expire."""
        every = make_world(Ordering.EVERY_VERSION)
        every.keeps_rows = True
        one, two = every.s3.put(KEY, "1"), every.s3.put(KEY, "2")
        for state in (one, two):
            every.process(created(state))
        assert every.known(created(one)).expires_at is None
        every.s3.delete_version(KEY, one)
        every.process(deleted(one))
        assert every.known(created(one)).expires_at is not None
        assert every.known(deleted(one)).expires_at is not None
        assert every.known(created(two)).expires_at is None

    def test_half_done_work_on_a_deleted_version_does_not_expire(self, make_world: MakeWorld) -> None:
        """Its reason is not forgotten."""
        every = make_world(Ordering.EVERY_VERSION)
        every.keeps_rows = True
        one = every.s3.put(KEY, "1")
        every.fail(created(one))
        every.s3.delete_version(KEY, one)
        every.process(deleted(one))
        assert every.known(created(one)).expires_at is None


class TestForged:
    """No processor is told of a removal that S3 does not show."""

    @pytest.mark.failure_mode("F104")
    @pytest.mark.parametrize("complete", [None, AllRows()])
    def test_an_existing_object_is_claimed_after_a_false_removal(self, world: World, complete: AllRows | None) -> None:
        """The object exists, although a message reports its removal and the ledger has no row."""
        world.row_history = complete
        one = world.s3.put(KEY, "1")
        marker = replace(one, kind=StateKind.MARKER, version_id="forged", etag=None, size=None)
        claim = world.accept(marked(marker))
        assert (claim.state.kind, claim.state.version_id) == (StateKind.OBJECT, one.version_id)

    @pytest.mark.failure_mode("F104")
    @pytest.mark.parametrize("deletes", [True, False])
    def test_an_existing_version_is_claimed_after_a_false_removal(self, make_world: MakeWorld, deletes: bool) -> None:
        """The messages report an object as a marker, a missing marker, and a deletion of an existing version. The
        version is still processed afterwards.
        """
        every = make_world(Ordering.EVERY_VERSION, deletes=deletes)
        one = every.s3.put(KEY, "1")
        marker = every.s3.mark_deleted(KEY)
        every.s3.delete_version(KEY, marker)
        for change in (marked(one), marked(marker), deleted(one)):
            assert every.verdict(change) is Verdict.STALE
            assert every.row(change) is None
        assert every.verdict(created(one)) is Verdict.ACCEPTED

    @pytest.mark.failure_mode("F104")
    def test_a_removal_that_was_seen_once_is_carried_to_its_end(self, make_world: MakeWorld) -> None:
        """Its marker may be gone when the second attempt comes, and the processor was told of it."""
        every = make_world(Ordering.EVERY_VERSION)
        marker = every.s3.mark_deleted(KEY)
        every.fail(marked(marker))
        every.s3.delete_version(KEY, marker)
        assert every.process(marked(marker)).row.attempts == 2


class TestForgotten:
    """Decisions without a row."""

    @pytest.mark.failure_mode("F94")
    def test_a_removal_of_a_forgotten_object_is_told_once(self, make_world: MakeWorld) -> None:
        """Uploaded, processed, its row expired; then it is deleted, and the event comes twice and much later."""
        world = make_world(versioned=False)
        one = created(world.s3.put(KEY, "1"))
        world.process(one)
        world.clock.advance(40 * DAY)
        world.expire(one)
        world.s3.mark_deleted(KEY)
        removal = deleted(replace(world.s3.put("other", "1"), version_id=None), at=world.clock())
        assert world.process(removal).state.kind is StateKind.ABSENT
        assert world.verdict(removal) is Verdict.STALE
        world.clock.advance(RETENTION + 2 * DAY)
        world.expire(removal)
        assert world.verdict(removal) is Verdict.STALE

    @pytest.mark.failure_mode("F95")
    def test_a_late_event_of_a_replica(self, world: World) -> None:
        """Its date is a year old, its event half a day; the event, not the date, says that it is new."""
        world.clock.now -= 365 * DAY
        one = world.s3.put(KEY, "1")
        world.clock.now += 365 * DAY
        event = created(one, at=START - DAY // 2)
        assert world.verdict(audited(one)) is Verdict.STALE
        world.process(event)
        assert world.verdict(event) is Verdict.DUPLICATE
        world.expire(event)
        world.clock.advance(RETENTION)
        assert world.verdict(event) is Verdict.STALE

    @pytest.mark.failure_mode("F98")
    def test_the_fence_of_a_row_from_a_backup(self, world: World) -> None:
        """It was given out before, and more since."""
        one = created(world.s3.put(KEY, "1"))
        world.process(one)
        backup = world.item(one)
        for number in range(2, 9):
            world.clock.advance(1)
            last = world.process(created(world.s3.put(KEY, str(number)), at=world.clock()))
        world.wire.client.put_item(TableName=world.table_name, Item=backup)
        world.clock.advance(1)
        assert world.accept(reprocess(ULID)).row.fence > last.row.fence

    @pytest.mark.failure_mode("F98")
    def test_exhausted_rows_count_too(self) -> None:
        """The mark on their copy in the dead-letter queue is a fence."""
        seen = Row(Status.PROCESSING, 7, lease_until=1)
        assert exhausted(seen, reprocess(ULID), review_partition="p#0", now=START).rejected_fence == START
