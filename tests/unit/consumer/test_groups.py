"""Several new keys claimed in one request, over the store in memory: moto cannot run PartiQL's INSERT."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import pytest
from botocore.exceptions import ClientError, ConnectTimeoutError

from cdk_intake_ledger.testing import MemoryDynamoDB
from intake_ledger import Commit, ObjectChange
from intake_ledger.consumer.batch import ProcessingTime
from intake_ledger.consumer.circuit_breaker import THRESHOLD, CircuitBreaker
from intake_ledger.consumer.consumer import HOLD_MS
from intake_ledger.events.parser import PATIENCE
from intake_ledger.ledger.conditions import NO_ROW
from intake_ledger.ledger.dynamodb_table import BATCH_STATEMENTS, LedgerTable
from intake_ledger.ledger.ledger import Claim
from intake_ledger.protocol.reasons import OutcomeKind
from intake_ledger.protocol.row import Ordering, Status
from intake_ledger.protocol.settings import KeyFilter
from intake_ledger.protocol.verdict import Verdict
from intake_ledger_testing.consumers import object_consumer
from tests.unit.consumer.test_consumer import OUTAGE, Bench, Context, message, raising
from tests.unit.support import (
    BUCKET,
    LATE_AFTER,
    LEASE,
    MAX_ATTEMPTS,
    MINUTE,
    SECOND,
    Clock,
    FakeS3,
    Wire,
    World,
    created,
    notification,
    record,
)

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


def new_world() -> World:
    """A pipeline's ledger over the store in memory."""
    clock, wire = Clock(), Wire(cast("DynamoDBClient", MemoryDynamoDB()))
    table = LedgerTable(cast("DynamoDBClient", wire), "ledger")
    return World(clock, FakeS3(clock, versioned=True), wire, table, "ledger", Ordering.LATEST, late_after=LATE_AFTER)


@pytest.fixture
def world() -> World:
    return new_world()


def handle(
    bench: Bench,
    processing_time: ProcessingTime,
    *messages: dict[str, Any],
    remaining: int | None = None,
    breaker: CircuitBreaker | None = None,
) -> list[str]:
    """Handle messages with a known processing time. Returns the IDs of the messages that are returned."""
    consumer = object_consumer(
        bench.services(),
        bench.process,
        processing_time=processing_time,
        breaker=breaker,
    )
    left = bench.full_time if remaining is None else remaining
    answer = consumer.handle({"Records": messages}, Context(bench.world.clock, bench.world.clock() + left))
    return [one["itemIdentifier"] for one in answer["batchItemFailures"]]


def uploads(world: World, *keys: str) -> list[str]:
    """A notification's body for an upload under each of these keys."""
    return [notification(record(key, world.s3.put(key, "1"))) for key in keys]


class TestLedger:
    def test_new_keys_are_claimed_in_one_request(self, world: World) -> None:
        """25 and 5 in two requests, and nothing else is asked."""
        changes = [created(world.s3.put(f"k{n}", "1"), key=f"k{n}") for n in range(30)]
        answers = world.ledger.claim_together(changes, lease_ms=LEASE)
        assert [answer.verdict for answer in answers if answer] == [Verdict.ACCEPTED] * 30
        assert world.wire.requests == ["batch_execute_statement"] * 2

    def test_rows_that_exist_are_read_in_one_request_and_judged(self, world: World) -> None:
        """Duplicates among new keys cost one more request for the whole group."""
        done = created(world.s3.put("done", "1"), key="done")
        world.process(done)
        world.wire.requests.clear()
        fresh = created(world.s3.put("fresh", "1"), key="fresh")
        answers = world.ledger.claim_together([fresh, done], lease_ms=LEASE)
        assert [answer.verdict for answer in answers if answer] == [Verdict.ACCEPTED, Verdict.DUPLICATE]
        assert world.wire.requests == ["batch_execute_statement", "batch_get_item"]

    @pytest.mark.failure_mode("F22")
    def test_a_key_is_claimed_once_in_a_group(self, world: World) -> None:
        """The second change of the same key waits for its own turn."""
        first, second = (created(world.s3.put("same", str(n)), key="same") for n in range(2))
        other = created(world.s3.put("other", "1"), key="other")
        answers = world.ledger.claim_together([first, other, second], lease_ms=LEASE)
        assert [answer is not None for answer in answers] == [True, True, False]

    def test_changes_that_need_a_head_are_left_to_single_claims(self, world: World) -> None:
        """Late events, and a single new key, gain nothing from a group."""
        late = created(world.s3.put("late", "1"), key="late", at=world.clock() - LATE_AFTER - 1)
        assert world.ledger.claim_together([late], lease_ms=LEASE) == [None]
        one = created(world.s3.put("one", "1"), key="one")
        assert world.ledger.claim_together([late, one], lease_ms=LEASE) == [None, None]
        assert world.wire.requests == []

    def test_an_audits_mark_is_left_to_the_single_insert(self, world: World) -> None:
        """The audit's mark refuses the INSERT, but it is not a row."""
        changes = [created(world.s3.put(key, "1"), key=key) for key in ("a", "b")]
        world.table.mark(world.key(changes[0]), {"audit_resubmitted_state": "v#1", "audit_resubmitted_at": 1}, NO_ROW)
        answers = world.ledger.claim_together(changes, lease_ms=LEASE)
        assert [answer is not None for answer in answers] == [False, True]
        assert world.verdict(changes[0]) is Verdict.ACCEPTED

    @pytest.mark.failure_mode("F02")
    def test_a_group_whose_answer_was_lost_finds_its_own_claims(self, world: World) -> None:
        """The SDK sends the INSERTs again, and each is refused by its own row."""
        changes = [created(world.s3.put(key, "1"), key=key) for key in ("a", "b")]
        insert = world.wire.client.batch_execute_statement

        def twice(**request: Any) -> Any:
            insert(**request)
            return insert(**request)

        world.wire.client.batch_execute_statement = twice  # type: ignore[method-assign]
        answers = world.ledger.claim_together(changes, lease_ms=LEASE)
        assert [answer.verdict for answer in answers if answer] == [Verdict.ACCEPTED] * 2
        assert all(isinstance(answer, Claim) for answer in answers)

    def test_a_failed_read_does_not_cost_the_others_their_claims(self, world: World) -> None:
        """Inserted keys have answers. Keys that could not be read are claimed alone later."""
        done = created(world.s3.put("done", "1"), key="done")
        world.process(done)
        fresh = created(world.s3.put("fresh", "1"), key="fresh")

        def throttled(**_: Any) -> Any:
            raise ClientError({"Error": {"Code": "ProvisionedThroughputExceededException"}}, "BatchGetItem")

        world.wire.client.batch_get_item = throttled  # type: ignore[method-assign]
        answers = world.ledger.claim_together([fresh, done], lease_ms=LEASE)
        assert [answer is not None for answer in answers] == [True, False]

    @pytest.mark.parametrize("name", ["batch_execute_statement", "batch_get_item"])
    def test_claims_from_before_the_network_failed_stay(self, world: World, name: str) -> None:
        """The connection fails after the first 25. Without answers, these claims would block their keys."""
        changes = [created(world.s3.put(f"k{n:02}", "1"), key=f"k{n:02}") for n in range(30)]
        world.process(changes[29])
        real = getattr(world.wire.client, name)

        def cut_off(**request: Any) -> Any:
            if len(request.get("Statements", ())) == BATCH_STATEMENTS:
                return real(**request)
            raise ConnectTimeoutError(endpoint_url="https://dynamodb")

        setattr(world.wire.client, name, cut_off)
        answers = world.ledger.claim_together(changes, lease_ms=LEASE)
        claimed = [world.row(change) is not None for change in changes[:29]]
        assert [answer is not None for answer in answers[:29]] == claimed
        assert sum(claimed) >= BATCH_STATEMENTS
        assert answers[29] is None


class TestConsumer:
    def test_a_batch_of_new_keys_is_claimed_together(self, world: World) -> None:
        """One request for the claims of all, then one commit each."""
        bench = Bench(world)
        bodies = uploads(world, "a", "b", "c")
        assert handle(bench, ProcessingTime(10), *(message(body, f"m{n}") for n, body in enumerate(bodies))) == []
        assert world.wire.requests == ["batch_execute_statement", *["update_item"] * 3]
        assert {change.key for change in bench.seen} == {"a", "b", "c"}

    def test_nothing_is_claimed_ahead_before_the_processing_time_is_known(self, world: World) -> None:
        """A claim that has to be given back costs two writes."""
        bench = Bench(world)
        bodies = uploads(world, "a", "b")
        handle(bench, ProcessingTime(), *(message(body, f"m{n}") for n, body in enumerate(bodies)))
        assert "batch_execute_statement" not in world.wire.requests

    @pytest.mark.failure_mode("F105")
    def test_a_key_outside_of_the_filters_is_not_claimed_with_the_others(self, world: World) -> None:
        """It would be acknowledged, and its row stay claimed."""
        bench = Bench(world, filters=(KeyFilter("in/"),))
        bodies = uploads(world, "in/a", "out/b", "in/c")
        assert handle(bench, ProcessingTime(10), *(message(body, f"m{n}") for n, body in enumerate(bodies))) == []
        assert world.row(created(world.s3.look("out/b"), key="out/b")) is None
        assert ([change.key for change in bench.seen], bench.telemetry.filtered) == (["in/a", "in/c"], ["out/b"])

    @pytest.mark.failure_mode("F92")
    def test_messages_that_were_received_before_are_claimed_alone(self, world: World) -> None:
        """A batch that its neighbour brings down again and again must not use an innocent's attempts up."""
        bench = Bench(world)
        bodies = uploads(world, "a", "b")
        handle(bench, ProcessingTime(10), *(message(body, f"m{n}", receives=2) for n, body in enumerate(bodies)))
        assert "batch_execute_statement" not in world.wire.requests

    def test_claims_that_cannot_start_in_time_are_released_uncounted(self, world: World) -> None:
        """F20, F92: the neighbour took all the time; the claim is gone and no attempt with it."""
        bench = Bench(world)
        bodies = uploads(world, "slow", "next")
        bench.acts = [lambda _: world.clock.advance(bench.full_time)]
        given_back = handle(bench, ProcessingTime(10), *(message(body, f"m{n}") for n, body in enumerate(bodies)))
        assert given_back == ["m1"]
        assert [change.key for change in bench.seen] == ["slow"]
        following = created(world.s3.look("next"), key="next")
        assert world.row(following) is None

    @pytest.mark.failure_mode("F92")
    def test_a_death_before_the_start_costs_one_attempt_of_two(self, world: World) -> None:
        """The worker dies in the first of a group: the second is processed when it comes again."""
        bench = Bench(world)
        bodies = uploads(world, "fatal", "innocent")

        def die(_: object) -> None:
            raise KeyboardInterrupt

        bench.acts = [die]
        with pytest.raises(KeyboardInterrupt):
            handle(bench, ProcessingTime(10), *(message(body, f"m{n}") for n, body in enumerate(bodies)))
        world.clock.advance(LEASE * 100)
        assert handle(bench, ProcessingTime(10), message(bodies[1], "m1", receives=2)) == []
        row = world.known(created(world.s3.look("innocent"), key="innocent"))
        assert (row.status, row.attempts) == (Status.PROCESSED, 2)

    @pytest.mark.failure_mode("F786")
    def test_two_messages_of_a_spent_file_make_one_dead_letter(self, world: World) -> None:
        """The first one rejects it. What the second one's row said when the batch began is over."""
        bench = Bench(world)
        spent, other = uploads(world, "spent", "other")

        def die(_: object) -> None:
            raise KeyboardInterrupt

        bench.acts = [die] * MAX_ATTEMPTS
        for number in range(MAX_ATTEMPTS):
            with pytest.raises(KeyboardInterrupt):
                handle(bench, ProcessingTime(10), message(spent, "m0", receives=number + 1))
            world.clock.advance(LATE_AFTER // (MAX_ATTEMPTS + 1))
        batch = [message(spent, "m0", receives=PATIENCE + 1), message(spent, "m1"), message(other, "m2")]
        assert handle(bench, ProcessingTime(10), *batch) == []
        assert len(bench.queues.copies) == 1

    @pytest.mark.failure_mode("F22")
    def test_a_message_that_came_twice_in_one_batch_is_processed_once(self, world: World) -> None:
        """Both copies have the same message ID. The group claims for the first copy."""
        bench = Bench(world)
        twice, other = uploads(world, "twice", "other")
        messages = [message(twice, "m0"), message(twice, "m0"), message(other, "m1")]
        assert handle(bench, ProcessingTime(10), *messages) == []
        assert [change.key for change in bench.seen] == ["twice", "other"]

    @pytest.mark.failure_mode("F22")
    def test_a_message_with_one_open_copy_is_named_once(self, world: World) -> None:
        """The copies end differently; Lambda is told of an id that goes back, and only once."""
        bench = Bench(world)
        bench.acts = [raising(ConnectionError("out"))]
        twice, other = uploads(world, "twice", "other")
        messages = [message(twice, "m0"), message(twice, "m0"), message(other, "m1")]
        assert handle(bench, ProcessingTime(10), *messages) == ["m0"]
        assert [change.key for change in bench.seen] == ["twice", "other"]

    @pytest.mark.failure_mode("F123")
    def test_a_message_of_another_bucket_makes_no_row_in_a_group(self, world: World) -> None:
        """It goes to the dead-letter queue, and its neighbours are claimed together and processed."""
        bench = Bench(world)
        a, b = uploads(world, "a", "b")
        foreign = notification(record("a", world.s3.look("a"), bucket="another-bucket"))
        bodies = [a, foreign, b, notification(record("c", world.s3.look("a"), bucket="another-bucket"))]
        assert handle(bench, ProcessingTime(10), *(message(body, f"m{n}") for n, body in enumerate(bodies))) == []
        assert [change.key for change in bench.seen] == ["a", "b"]
        store = cast("MemoryDynamoDB", world.wire.client)
        assert {key for key, _ in store.items} == {f"{BUCKET}/a", f"{BUCKET}/b"}
        assert [attributes["reason"].split(",")[0] for _, attributes in bench.queues.copies] == [
            "the event is about bucket 'another-bucket'"
        ] * 2

    def test_a_group_that_aws_refuses_is_claimed_one_by_one(self, world: World) -> None:
        """An error of one request must not return the whole batch."""
        bench = Bench(world)

        def refused(**_: Any) -> Any:
            raise ClientError({"Error": {"Code": "AccessDeniedException"}}, "BatchExecuteStatement")

        world.wire.client.batch_execute_statement = refused  # type: ignore[method-assign]
        bodies = uploads(world, "a", "b")
        assert handle(bench, ProcessingTime(10), *(message(body, f"m{n}") for n, body in enumerate(bodies))) == []
        assert len(bench.seen) == 2


class TestBreaker:
    @pytest.mark.failure_mode("F23")
    def test_a_group_claim_that_was_not_begun_is_released_uncounted(self, world: World) -> None:
        """All were claimed together, then the downstream went out."""
        bench = Bench(world)
        bodies = uploads(world, *"abcdefgh")
        bench.acts = [raising(ConnectionError("out"))] * 8
        given_back = handle(bench, ProcessingTime(10), *(message(body, f"m{n}") for n, body in enumerate(bodies)))
        assert len(given_back) == 8
        # One more: a first attempt passes.
        assert len(bench.seen) == THRESHOLD + 1
        assert [world.row(created(world.s3.look(key), key=key)) for key in "gh"] == [None] * 2

    @pytest.mark.failure_mode("F23")
    def test_nothing_is_claimed_ahead_while_the_breaker_is_open(self, world: World) -> None:
        """Each of those claims would have to be given back."""
        bench, breaker = Bench(world), CircuitBreaker(MINUTE, MINUTE, lambda: 0.0)
        for n in range(THRESHOLD):
            breaker.failed(f"before {n}", world.clock())
        bodies = uploads(world, "a", "b")
        messages = [message(body, f"m{n}") for n, body in enumerate(bodies)]
        handle(bench, ProcessingTime(10), *messages, breaker=breaker)
        assert "batch_execute_statement" not in world.wire.requests


class TestCommitTogether:
    """`commit_together`: the claims of a group are committed as one request too."""

    @pytest.fixture
    def bench(self, world: World) -> Bench:
        return Bench(world, commit_together=True)

    def test_claims_and_commits_of_a_batch_are_two_requests(self, bench: Bench) -> None:
        """The rows are the same as after single commits."""
        bodies = uploads(bench.world, *"abc")
        bench.acts = [lambda change: change.key * 2] * 3
        assert handle(bench, ProcessingTime(10), *(message(body, f"m{n}") for n, body in enumerate(bodies))) == []
        assert bench.world.wire.requests == ["batch_execute_statement"] * 2
        assert bench.telemetry.outcomes == [OutcomeKind.COMMITTED] * 3
        for key in "abc":
            change = created(bench.world.s3.look(key), key=key)
            grouped = bench.world.known(change)
            assert (grouped.status, grouped.commit_id, grouped.lease_until) == (Status.PROCESSED, key * 2, None)
            alone = created(bench.world.s3.put(f"{key} alone", "1"), key=f"{key} alone")
            bench.world.process(alone, key * 2)
            both = bench.world.table.get_items([bench.world.key(change), bench.world.key(alone)])
            assert len({frozenset(item) for item in both.values()}) == 1

    def test_at_most_25_commits_wait(self, bench: Bench) -> None:
        """DynamoDB takes no more statements."""
        bodies = uploads(bench.world, *(f"k{n}" for n in range(30)))
        assert handle(bench, ProcessingTime(10), *(message(body, f"m{n}") for n, body in enumerate(bodies))) == []
        assert bench.world.wire.requests == ["batch_execute_statement"] * 4

    def test_no_commit_waits_long_behind_a_slow_processor(self, bench: Bench) -> None:
        """The window between effect and commit is a second and the record in work."""
        bench.acts = [lambda _: bench.world.clock.advance(HOLD_MS)] * 3
        statuses = []

        def look(change: ObjectChange) -> None:
            statuses.append(bench.world.known(created(bench.world.s3.look("a"), key="a")).status)
            bench.world.clock.advance(HOLD_MS)

        bench.acts = [lambda _: None, look, look]
        bodies = uploads(bench.world, *"abc")
        assert handle(bench, ProcessingTime(10), *(message(body, f"m{n}") for n, body in enumerate(bodies))) == []
        assert statuses == [Status.PROCESSING, Status.PROCESSED]

    @pytest.mark.failure_mode("F92")
    def test_no_commit_is_held_while_a_message_received_before_is_tried(self, bench: Bench) -> None:
        """This message may have ended its worker before. Held commits are written before it starts."""
        innocent, twin, suspect = uploads(bench.world, "innocent", "twin", "suspect")

        def die(_: object) -> None:
            raise KeyboardInterrupt

        bench.acts = [lambda _: None, lambda _: None, die]
        messages = (message(suspect, "m2", receives=2), message(innocent, "m0"), message(twin, "m1"))
        with pytest.raises(KeyboardInterrupt):
            handle(bench, ProcessingTime(10), *messages)
        for key in ("innocent", "twin"):
            assert bench.world.known(created(bench.world.s3.look(key), key=key)).status is Status.PROCESSED

    @pytest.mark.failure_mode("F92")
    def test_a_death_costs_each_one_attempt_and_then_it_is_alone(self, bench: Bench) -> None:
        """Held changes run again with the same idempotency key. The next death affects one message only."""

        def die(_: object) -> None:
            raise KeyboardInterrupt

        bodies = uploads(bench.world, "innocent", "fatal")
        bench.acts = [lambda _: None, die]
        with pytest.raises(KeyboardInterrupt):
            handle(bench, ProcessingTime(10), *(message(body, f"m{n}") for n, body in enumerate(bodies)))
        bench.world.clock.advance(LEASE * 100)
        bench.acts = [lambda _: None, die]
        with pytest.raises(KeyboardInterrupt):
            handle(bench, ProcessingTime(10), *(message(body, f"m{n}", receives=3) for n, body in enumerate(bodies)))
        row = bench.world.known(created(bench.world.s3.look("innocent"), key="innocent"))
        assert (row.status, row.attempts) == (Status.PROCESSED, 2)
        first, _, second, _ = bench.seen
        assert first.idempotency_key == second.idempotency_key

    @pytest.mark.failure_mode("F03")
    def test_a_commit_that_was_overtaken_is_fenced_and_the_others_are_not(self, bench: Bench) -> None:
        """The second took so long that another attempt has claimed the first row."""
        slow, other = uploads(bench.world, "overtaken", "other")
        state = created(bench.world.s3.look("overtaken"), key="overtaken")
        successors = []

        def outlive(_: object) -> None:
            bench.world.clock.advance(bench.full_time + 120 * SECOND)
            successors.append(bench.world.accept(state))

        bench.acts = [lambda _: None, outlive]
        assert handle(bench, ProcessingTime(10), message(slow, "m0"), message(other, "m1")) == ["m0"]
        late = frozenset({successors[0].state.identity})
        assert bench.world.known(state) == replace(successors[0].row, late_writes=late)
        assert sorted(bench.telemetry.outcomes) == [OutcomeKind.COMMITTED, OutcomeKind.FENCED]
        assert len(bench.queues.woken) == 1, "F96: its effect may have come after its successor's"
        assert bench.queues.delays["handle-m0"] > 0

    @pytest.mark.failure_mode("F82")
    def test_grouped_commits_whose_answer_was_lost_are_no_failures(self, bench: Bench) -> None:
        """The SDK sends them again, each is refused by its own commit, and the row shows that."""
        real = bench.world.wire.client.batch_execute_statement

        def twice(**request: Any) -> Any:
            if request["Statements"][0]["Statement"].startswith("UPDATE"):
                real(**request)
            return real(**request)

        bench.world.wire.client.batch_execute_statement = twice  # type: ignore[method-assign]
        bodies = uploads(bench.world, "a", "b")
        assert handle(bench, ProcessingTime(10), *(message(body, f"m{n}") for n, body in enumerate(bodies))) == []
        assert bench.telemetry.outcomes == [OutcomeKind.COMMITTED] * 2

    def test_commits_that_aws_does_not_take_together_are_written_alone(self, bench: Bench) -> None:
        """A missing permission, a throttled request."""
        real = bench.world.wire.client.batch_execute_statement

        def inserts_only(**request: Any) -> Any:
            if request["Statements"][0]["Statement"].startswith("UPDATE"):
                raise ClientError({"Error": {"Code": "AccessDeniedException"}}, "BatchExecuteStatement")
            return real(**request)

        bench.world.wire.client.batch_execute_statement = inserts_only  # type: ignore[method-assign]
        bodies = uploads(bench.world, "a", "b")
        assert handle(bench, ProcessingTime(10), *(message(body, f"m{n}") for n, body in enumerate(bodies))) == []
        assert bench.world.wire.requests[-2:] == ["update_item"] * 2

    @pytest.mark.failure_mode("F22")
    def test_a_message_that_came_twice_in_one_batch_is_processed_once(self, bench: Bench) -> None:
        """Both copies have the same message ID. The group claims for the first copy."""
        twice, other = uploads(bench.world, "twice", "other")
        messages = [message(twice, "m0"), message(twice, "m0"), message(other, "m1")]
        assert handle(bench, ProcessingTime(10), *messages) == []
        assert [change.key for change in bench.seen] == ["twice", "other"]

    def test_commits_are_written_alone_after_a_network_error(self, bench: Bench) -> None:
        """A failed connection must not repeat a whole batch."""
        real = bench.world.wire.client.batch_execute_statement

        def inserts_only(**request: Any) -> Any:
            if request["Statements"][0]["Statement"].startswith("UPDATE"):
                raise ConnectTimeoutError(endpoint_url="https://dynamodb")
            return real(**request)

        bench.world.wire.client.batch_execute_statement = inserts_only  # type: ignore[method-assign]
        bodies = uploads(bench.world, "a", "b")
        assert handle(bench, ProcessingTime(10), *(message(body, f"m{n}") for n, body in enumerate(bodies))) == []
        assert bench.telemetry.outcomes == [OutcomeKind.COMMITTED] * 2

    @pytest.mark.failure_mode("F72")
    def test_a_commit_that_cannot_be_written_is_not_acknowledged(self, bench: Bench) -> None:
        """DynamoDB is out from the commits on: both come again."""

        def break_down(_: object) -> None:
            bench.world.wire.down = OUTAGE

        bench.acts = [lambda _: None, break_down]
        bodies = uploads(bench.world, "a", "b")
        given_back = handle(bench, ProcessingTime(10), *(message(body, f"m{n}") for n, body in enumerate(bodies)))
        assert given_back == ["m0", "m1"]
        assert bench.telemetry.troubles == [OUTAGE] * 2
        assert set(bench.queues.delays) == {"handle-m0", "handle-m1"}

    def test_a_transaction_is_committed_at_once(self, bench: Bench) -> None:
        """A transaction is a separate request."""
        write = {"Put": {"TableName": "totals", "Item": {"id": {"S": "1"}}}}
        bench.acts = [lambda _: Commit("x", transact=[write])] * 2
        bodies = uploads(bench.world, "a", "b")
        assert handle(bench, ProcessingTime(10), *(message(body, f"m{n}") for n, body in enumerate(bodies))) == []
        assert bench.world.wire.requests == ["batch_execute_statement", *["transact_write_items"] * 2]

    def test_a_change_that_was_claimed_alone_is_committed_alone(self, bench: Bench) -> None:
        """A message that came before must not wait for anybody."""
        [body] = uploads(bench.world, "a")
        assert handle(bench, ProcessingTime(10), message(body, receives=2)) == []
        assert "batch_execute_statement" not in bench.world.wire.requests


class TestFenced:
    @pytest.mark.failure_mode("F04")
    def test_an_unstarted_claim_that_was_overtaken_is_fenced(self, world: World) -> None:
        """The first of a group outlived the lease of the second, whose release is refused."""
        bench = Bench(world)
        bodies = uploads(world, "slow", "next")
        following = created(world.s3.look("next"), key="next")

        def outlive(_: object) -> None:
            world.clock.advance(bench.full_time + 120 * SECOND)
            world.accept(following)

        bench.acts = [outlive]
        assert handle(bench, ProcessingTime(10), *(message(body, f"m{n}") for n, body in enumerate(bodies))) == ["m1"]
        assert bench.telemetry.outcomes[-1] is OutcomeKind.FENCED
        assert bench.telemetry.troubles == []
        assert world.known(following).status is Status.PROCESSING


class TestProcessingTime:
    def test_the_average_follows_the_processor(self) -> None:
        """A slow processor ends groups at once, a fast one brings them back."""
        processing_time = ProcessingTime()
        assert processing_time.fits(60_000) == 0
        processing_time.add(100)
        assert processing_time.fits(60_000) > 200
        for _ in range(20):
            processing_time.add(60_000)
        assert processing_time.fits(60_000) == 0

    def test_without_time_nothing_fits(self) -> None:
        """A window that is over fits nothing."""
        assert ProcessingTime(1).fits(-5) == 0
