"""A worker writes after its lease and after its successor. The current state is then processed again."""

import json
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, cast

import pytest

from cdk_intake_ledger.testing import Fault, LocalPipeline
from intake_ledger import Commit, ObjectChange
from intake_ledger.audit.table import AuditTable
from intake_ledger.consumer.attempt import Attempts, Failures
from intake_ledger.consumer.batch import ProcessingTime
from intake_ledger.consumer.circuit_breaker import CircuitBreaker
from intake_ledger.consumer.downstream import Downstream
from intake_ledger.events.parser import Message, own_message
from intake_ledger.kinds.objects import Objects
from intake_ledger.ledger.ledger import Claim
from intake_ledger.observability.powertools import PowertoolsTelemetry
from intake_ledger.protocol.change import Origin
from intake_ledger.protocol.errors import Fenced, LateWriteFound, ObjectGone
from intake_ledger.protocol.reasons import OutcomeKind
from intake_ledger.protocol.row import Ordering, Row, RowKey
from intake_ledger.runners.inline import Inline
from tests.unit.consumer.test_consumer import FULL_TIME, SKEW, Bench, message, put, raising
from tests.unit.consumer.test_groups import handle, new_world
from tests.unit.stories import stories, tell
from tests.unit.support import (
    BUCKET,
    KEY,
    MINUTE,
    PIPELINE,
    START,
    MakeWorld,
    World,
    audited,
    created,
    make_reason,
    notification,
    one_change,
    record,
)

pytestmark = pytest.mark.usefixtures("dynamodb")

EFFECT: list[Any] = [{"Put": {"TableName": "effects", "Item": {"id": {"S": "1"}}}}]


@pytest.fixture
def bench(world: World) -> Bench:
    return Bench(world)


def late(world: World, data: str = "1") -> Claim:
    """A claim on a new upload whose lease has run out while its worker lives on."""
    return world.die(created(world.s3.put(KEY, data)))


def report(world: World, claim: Claim) -> bool:
    """Report the late write, as a worker does when the ledger refuses its commit."""
    with pytest.raises(Fenced):
        world.ledger.commit(claim)
    return world.ledger.report_late_write(claim)


def row_of(world: World) -> Row:
    [row] = world.table.get_items([RowKey(f"{BUCKET}/{KEY}", f"{PIPELINE}@latest")]).values()
    found = world.table.get(RowKey(row["pk"], row["sk"]))
    assert found is not None
    return found


@pytest.mark.failure_mode("F96")
@stories("""
    the current state is processed once more under a new key
        put 1; created 1 dies; put 2; created 2 commits; late 1 reports; row late_writes=1 expires_at=None;
        created 2 claims 2; row late_writes=; then commits; row settled=True; created 2 DUPLICATE
    the same state, written late, changes nothing
        put 1; created 1 dies; created 1 claims 1; late 1 reports; then commits; row settled=True; late 1 has nothing;
        created 1 DUPLICATE
    a commit is refused after a late write of another state, since the effect may be older
        put 1; created 1 dies; put 2; created 2 claims 2; late 1 reports; then is refused;
        row status=FAILED attempts=0 late_writes=1; audited 2 commits 2 attempt 1; row settled=True
    a claim keeps what it has not read
        put 1; created 1 dies; put 2; created 2 fails; meanwhile late 1 reports; audited 2 claims 2; row late_writes=1;
        then is refused
    A, B, A, B: the late worker's state is in flight and is given back
        without versions: put A; created A dies; put B; created B commits; put A; created A claims A; late 1 reports;
        put B; then releases; row settled=False; created B claims B
    a release puts back what its claim read and keeps what came
        put 1; created 1 dies; put 2; created 2 dies; put 3; created 3 commits; late 1 reports; put 4;
        created 4 claims 4; late 2 reports; then releases; row late_writes=1,2 status=PROCESSED expires_at=None
    a row that is put back does not expire after a report
        put 1; created 1 dies; mark M; marked M commits M; put 3; created 3 claims 3; late 1 reports; then releases;
        row status=PROCESSED expires_at=None late_writes=1; created 3 claims 3; then releases; row late_writes=1
    every version is left alone, since its row is one state's only
        every version: put 1; created 1 dies; created 1 commits 1; late 1 has nothing
    a removal that is not told ends it
        deletes off: put 1; created 1 dies; put 2; created 2 commits; late 1 reports; mark M; marked M SETTLED;
        row settled=True
""")
def test_late_writes_in_the_row(make_world: MakeWorld, story: str) -> None:
    tell(make_world, story)


class TestLedger:
    """Late writes in the row, in transactions, and to the audit."""

    @pytest.mark.failure_mode("F96")
    def test_a_transaction_is_carried_out_once(self, world: World) -> None:
        """Late writes before it are removed with it, those after it are not recorded: it cannot be repeated."""
        world.wire.client.create_table(
            TableName="effects",
            KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
        )
        first = late(world)
        second = world.accept(created(world.s3.put(KEY, "2")))
        assert report(world, first)
        world.ledger.commit(second, transact=EFFECT)
        row = row_of(world)
        assert (row.settled, row.transactional, row.late_writes) == (True, 1, frozenset())
        assert not report(world, first)
        third = world.accept(created(world.s3.put(KEY, "3")))
        assert report(world, first), "the next state may be written without a transaction"
        with pytest.raises(LateWriteFound):
            world.ledger.commit(third)
        world.ledger.fail(third, make_reason("written late"), counted=False)
        world.process(audited(third.state))
        assert row_of(world).transactional is None

    @pytest.mark.failure_mode("F96")
    def test_nothing_is_recorded_without_a_later_claim(self, world: World) -> None:
        """A key without a row, and a row of the same claim."""
        claim = late(world)
        assert not world.ledger.report_late_write(claim)
        world.ledger.fail(claim, make_reason("timed out"))
        assert not world.ledger.report_late_write(claim)
        world.expire(created(claim.state))
        assert not world.ledger.report_late_write(claim)
        assert not world.item(created(claim.state)), "no row comes into being"

    @pytest.mark.failure_mode("F96")
    def test_the_audit_finds_what_nobody_was_woken_for(self, world: World) -> None:
        """The audit's projection of the rows goes by the same rule."""
        first = late(world)
        second = world.process(created(world.s3.put(KEY, "2")))
        table = AuditTable(cast("Any", world.wire), world.table_name)

        def committed() -> list[str | None]:
            return [row.committed for page in table.held(PIPELINE, Ordering.LATEST) for row in page.rows]

        assert committed() == [second.state.identity]
        assert report(world, first)
        assert committed() == [None]


class TestConsumer:
    """Late workers in the consumer."""

    def overtaken(self, bench: Bench, act: Any = lambda _: None) -> ObjectChange:
        """A worker stands still until another has processed the next version; then it writes, and acts."""
        _, body = put(bench)

        def outlive(change: ObjectChange) -> Any:
            bench.world.clock.advance(FULL_TIME + SKEW * 1_000)
            bench.world.process(created(put(bench, "2")[0]))
            return act(change)

        bench.acts = [outlive]
        assert bench.handle(message(body)) == ["m1"]
        [change] = bench.seen
        return change

    @pytest.mark.failure_mode("F96")
    @pytest.mark.parametrize("act", [lambda _: Commit("1"), raising(ValueError("no")), raising(ObjectGone("gone"))])
    def test_a_late_worker_wakes_its_key(self, bench: Bench, act: Any) -> None:
        """Commit, failure, vanished version: each is refused, and each may have written."""
        change = self.overtaken(bench, act)
        assert bench.telemetry.outcomes == [OutcomeKind.FENCED]
        assert bench.telemetry.late_writes == [f"v#{change.version_id}"]
        [wake] = bench.queues.woken
        assert wake == own_message(Origin.LATE, BUCKET, KEY)
        assert one_change(wake).event_name == "IntakeLedger:Late"
        assert bench.handle(message(wake, "m2")) == []
        assert [one.version_id for one in bench.seen[1:]] == [bench.world.s3.look(KEY).version_id]
        assert row_of(bench.world).settled

    @pytest.mark.failure_mode("F96")
    def test_a_late_write_is_a_metric_and_a_line(
        self, bench: Bench, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """`LateWrites` is counted when the row says it."""
        # Powertools keeps a logger for each service, with the output of the test that made it.
        monkeypatch.setenv("POWERTOOLS_SERVICE_NAME", "late-writes")
        monkeypatch.setenv("POWERTOOLS_METRICS_NAMESPACE", "IntakeLedger")
        bench.telemetry = cast("Any", PowertoolsTelemetry())
        self.overtaken(bench)
        lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert [line["LateWrites"] for line in lines if "LateWrites" in line] == [[1.0]]
        [said] = [line for line in lines if line.get("message") == "late write"]
        assert (said["key"], said["version_id"]) == (KEY, bench.seen[0].version_id)

    @pytest.mark.failure_mode("F96")
    def test_a_key_that_cannot_be_woken_is_the_audits(self, bench: Bench) -> None:
        """SQS refuses the message: the row says it all the same, and the batch goes on."""
        bench.queues.broken = ConnectionError("SQS")
        self.overtaken(bench)
        assert bench.telemetry.late_writes
        assert bench.telemetry.troubles
        assert not row_of(bench.world).settled

    @pytest.mark.failure_mode("F96")
    def test_what_was_not_begun_was_not_written(self, bench: Bench) -> None:
        """The version has vanished before the processor starts, and the claim is another's."""
        state, body = put(bench)

        def overtake() -> None:
            bench.world.clock.advance(FULL_TIME + SKEW * 1_000)
            bench.world.process(created(put(bench, "2")[0]))
            bench.world.s3.delete_version(KEY, state)

        bench.world.s3.before_open.append(overtake)
        assert bench.handle(message(body)) == ["m1"]
        assert bench.telemetry.outcomes == [OutcomeKind.FENCED]
        assert not bench.queues.woken
        assert row_of(bench.world).settled

    @pytest.mark.failure_mode("F96")
    def test_a_commit_after_a_late_write_is_repeated_at_once(self, bench: Bench) -> None:
        """The successor's message comes back without delay, and no attempt is spent."""
        first = late(bench.world)
        _, body = put(bench, "2")
        bench.acts = [lambda _: report(bench.world, first) and None]
        assert bench.handle(message(body)) == ["m1"]
        assert bench.telemetry.outcomes == [OutcomeKind.FAILED]
        assert bench.queues.delays["handle-m1"] == 0
        assert bench.handle(message(body, receives=2)) == []
        assert [one.attempt for one in bench.seen] == [1, 1]
        assert len({one.idempotency_key for one in bench.seen}) == 2

    @pytest.mark.failure_mode("F96")
    def test_a_commit_of_a_group_is_written_alone_after_a_late_write(self) -> None:
        """The group's statement is refused; alone it tells why."""
        bench = Bench(new_world(), commit_together=True)
        first = late(bench.world)
        other = bench.world.s3.put("other", "x")
        body = notification(record("other", other, at=START))
        _, mine = put(bench, "2")
        bench.acts = [lambda _: report(bench.world, first) and None]
        given_back = handle(bench, ProcessingTime(10), message(mine, "m0"), message(body, "m1"))
        assert given_back == ["m0"]
        assert sorted(bench.telemetry.outcomes) == [OutcomeKind.COMMITTED, OutcomeKind.FAILED]
        assert row_of(bench.world).late_writes == {first.state.identity}

    @pytest.mark.failure_mode("F96")
    def test_an_overrun_in_a_thread_is_reported_too(self, bench: Bench) -> None:
        """The process ends after that, so a message is all that is left."""
        first = late(bench.world)
        bench.world.process(created(put(bench, "2")[0]))
        services, breaker = bench.services(), CircuitBreaker(MINUTE, MINUTE, lambda: 0.0)
        attempts = Attempts(
            services,
            Objects(services.settings, services.bucket),
            Inline(bench.process),
            Failures(services, breaker),
            Downstream(services, breaker),
            limit=lambda *_: nullcontext(),
            processing_time=ProcessingTime(),
        )
        assert attempts.overran(first, Message(message(notification()))).late_write


class TestOlderCode:
    """A worker with older code pauses, and the present code processes the same state meanwhile."""

    @staticmethod
    def run(write: Callable[[ObjectChange, bytes], None], ordering: Ordering) -> LocalPipeline:
        codes = [b"new", b"old"]  # in the order in which they write

        def process(change: ObjectChange) -> None:
            write(change, codes.pop(0))

        pipeline = LocalPipeline(process, ordering=ordering)
        pipeline.put("a", "1")
        pipeline.next(Fault.OVERTAKEN)
        pipeline.run()
        assert not codes
        return pipeline

    @pytest.mark.failure_mode("F290")
    @pytest.mark.parametrize("ordering", Ordering)
    def test_a_plain_effect_of_older_code_on_the_same_state_stays(self, ordering: Ordering) -> None:
        """docs/protocol.md does not promise its repair, which would be a second effect of a committed state."""
        written: list[bytes] = []
        pipeline = self.run(lambda _, code: written.append(code), ordering)
        assert written == [b"new", b"old"]
        row = pipeline.row("a")
        assert row is not None
        assert row.settled
        assert pipeline.late_writes == 0

    @pytest.mark.failure_mode("F290")
    @pytest.mark.parametrize("ordering", Ordering)
    def test_an_output_of_older_code_is_refused(self, ordering: Ordering) -> None:
        def write(change: ObjectChange, code: bytes) -> None:
            change.output("results", "a").put(b"%d,%b" % (change.fence, code))

        assert (self.run(write, ordering).output("results", "a") or b"").endswith(b",new")
