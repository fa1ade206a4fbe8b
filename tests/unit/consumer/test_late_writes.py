"""A worker writes after its lease and after its successor. The current state is then processed again."""

import json
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
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
from intake_ledger.protocol.row import Ordering, Row, RowKey, Status
from intake_ledger.protocol.verdict import Verdict
from intake_ledger.runners.inline import Inline
from tests.unit.consumer.test_consumer import FULL_TIME, SKEW, Bench, message, put, raising
from tests.unit.consumer.test_groups import handle, new_world
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
    marked,
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


class TestLedger:
    """Late writes in the row."""

    @pytest.mark.failure_mode("F96")
    def test_the_current_state_is_processed_once_more_under_a_new_key(self, world: World) -> None:
        """The whole way: a late write, a claim that repairs it, and rest."""
        first = late(world)
        current = created(world.s3.put(KEY, "2"))
        before = world.process(current)
        assert report(world, first)
        row = row_of(world)
        assert (row.status, row.late_writes, row.expires_at) == (
            Status.PROCESSED,
            frozenset({first.state.identity}),
            None,
        )
        assert not row.settled
        again = world.accept(current)
        assert again.state.identity == before.state.identity
        assert again.row.first_claimed_at > before.row.first_claimed_at, "another idempotency key"
        assert row_of(world).late_writes == frozenset()
        world.ledger.commit(again)
        assert row_of(world).settled
        assert world.verdict(current) is Verdict.DUPLICATE

    @pytest.mark.failure_mode("F96")
    def test_the_same_state_written_late_changes_nothing(self, world: World) -> None:
        """A successor on the same state commits, whether the report comes before or after."""
        first = late(world)
        change = created(first.state)
        second = world.accept(change)
        assert report(world, first)
        world.ledger.commit(second)
        assert row_of(world).settled
        assert not report(world, first), "what it wrote is what is committed"
        assert world.verdict(change) is Verdict.DUPLICATE

    @pytest.mark.failure_mode("F96")
    def test_a_commit_is_refused_after_a_late_write_of_another_state(self, world: World) -> None:
        """The successor's own effect may be older: its claim holds, and nothing is committed."""
        first = late(world)
        second = world.accept(created(world.s3.put(KEY, "2")))
        assert report(world, first)
        with pytest.raises(LateWriteFound):
            world.ledger.commit(second)
        world.ledger.fail(second, make_reason("written late"), counted=False)
        row = row_of(world)
        assert (row.status, row.attempts, row.late_writes) == (Status.FAILED, 0, frozenset({first.state.identity}))
        third = world.accept(audited(second.state))
        assert third.row.attempts == 1
        assert third.row.first_claimed_at > second.row.first_claimed_at, "another idempotency key"
        world.ledger.commit(third)
        assert row_of(world).settled

    @pytest.mark.failure_mode("F96")
    def test_a_claim_keeps_what_it_has_not_read(self, world: World) -> None:
        """A report between the judgement and the claim: the claim keeps it, and its commit is refused."""
        first = late(world)
        second = world.fail(created(world.s3.put(KEY, "2")))
        world.s3.after_look.append(lambda: report(world, first))
        claim = world.accept(audited(second.state))
        assert claim.row.late_writes == frozenset()
        assert row_of(world).late_writes == {first.state.identity}
        with pytest.raises(LateWriteFound):
            world.ledger.commit(claim)

    @pytest.mark.failure_mode("F96")
    def test_a_b_a_b(self, make_world: MakeWorld) -> None:
        """The late worker's state is in flight and is given back: the row says B, the downstream has A."""
        world = make_world(versioned=False)
        first = late(world, "A")
        world.process(created(world.s3.put(KEY, "B")))
        in_flight = world.accept(created(world.s3.put(KEY, "A")))
        assert in_flight.state.identity == first.state.identity
        assert report(world, first)
        back = created(world.s3.put(KEY, "B"))
        world.ledger.release(in_flight)
        assert not row_of(world).settled
        assert world.verdict(back) is Verdict.ACCEPTED

    @pytest.mark.failure_mode("F96")
    def test_a_release_puts_back_what_its_claim_read_and_keeps_what_came(self, world: World) -> None:
        """Two late workers: one reported before the claim, one during it."""
        one = late(world)
        two = world.die(created(world.s3.put(KEY, "2")))
        world.process(created(world.s3.put(KEY, "3")))
        assert report(world, one)
        claim = world.accept(created(world.s3.put(KEY, "4")))
        assert report(world, two)
        world.ledger.release(claim)
        row = row_of(world)
        assert row.late_writes == {one.state.identity, two.state.identity}
        assert (row.status, row.expires_at) == (Status.PROCESSED, None)

    @pytest.mark.failure_mode("F96")
    def test_a_row_that_is_put_back_does_not_expire_after_a_report(self, world: World) -> None:
        """The claim read a row that would have expired; the report came during it."""
        first = late(world)
        world.process(marked(world.s3.mark_deleted(KEY)))
        settled = row_of(world)
        claim = world.accept(created(world.s3.put(KEY, "3")))
        assert report(world, first)
        world.ledger.release(claim)
        row = row_of(world)
        assert (row.status, row.expires_at, row.late_writes) == (
            Status.PROCESSED,
            None,
            frozenset({first.state.identity}),
        )
        again = world.accept(marked(claim.state))
        world.ledger.release(again)
        assert settled.expires_at is not None
        assert row_of(world).late_writes == {first.state.identity}

    @pytest.mark.failure_mode("F96")
    def test_a_row_that_is_put_back_expires_as_before(self, world: World) -> None:
        """Without a late write, the row and its expiry are unchanged, also when the answer is lost."""
        world.process(marked(world.s3.mark_deleted(KEY)))
        before = row_of(world)
        claim = world.accept(created(world.s3.put(KEY, "1")))
        world.wire.lose = 1
        world.ledger.release(claim)
        assert row_of(world) == replace(before, fence=claim.row.fence)

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
    def test_every_version_is_left_alone(self, make_world: MakeWorld) -> None:
        """The row is one state's only: written twice, it is the same."""
        world = make_world(Ordering.EVERY_VERSION)
        claim = late(world)
        world.process(created(claim.state))
        assert not report(world, claim)

    @pytest.mark.failure_mode("F96")
    def test_a_removal_that_is_not_told_ends_it(self, make_world: MakeWorld) -> None:
        """With `deletes` off nothing has to be repaired after a removal."""
        world = make_world(deletes=False)
        first = late(world)
        world.process(created(world.s3.put(KEY, "2")))
        assert report(world, first)
        assert world.verdict(marked(world.s3.mark_deleted(KEY))) is Verdict.SETTLED
        assert row_of(world).settled

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
