"""The team's DynamoDB writes and the ledger's commit are one: both happen, once, or neither does."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TYPE_CHECKING, Any, cast

import pytest
from botocore.exceptions import ClientError

from intake_ledger import Commit, ObjectChange
from intake_ledger.consumer.services import Services
from intake_ledger.ledger import dynamodb_table as table
from intake_ledger.ledger.dynamodb_table import LedgerTable
from intake_ledger.ledger.ledger import Claim, LedgerOptions
from intake_ledger.ledger.transactions import refusal
from intake_ledger.protocol.errors import Fenced, InvalidTransactionError, TransactionRefused
from intake_ledger.protocol.handover import MAX_RESULT_BYTES, check_transact
from intake_ledger.protocol.row import Row, Status
from intake_ledger_testing.consumers import object_consumer, object_ledger
from tests.settings import CONSUMER
from tests.unit.support import (
    BUCKET,
    KEY,
    LATE_AFTER,
    LEASE,
    MAX_ATTEMPTS,
    MINUTE,
    PIPELINE,
    SECOND,
    World,
    created,
    notification,
    record,
)

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

    from intake_ledger.aws.bucket import Bucket
    from intake_ledger.aws.queues import Queues
    from intake_ledger.observability.telemetry import Telemetry

pytestmark = pytest.mark.usefixtures("dynamodb")

_TABLES = count(1)


def put(table_name: str = "orders", **item: str) -> dict[str, Any]:
    return {"Put": {"TableName": table_name, "Item": {name: {"S": value} for name, value in item.items()}}}


def delete(table_name: str = "orders", **key: str) -> dict[str, Any]:
    return {"Delete": {"TableName": table_name, "Key": {name: {"S": value} for name, value in key.items()}}}


def refused(transact: Any) -> str:
    """Return why the writes cannot be in a transaction with the ledger's commit."""
    with pytest.raises(InvalidTransactionError) as problem:
        check_transact(transact, "ledger")
    assert not problem.value.passing
    return str(problem.value)


def reasons(*codes: str) -> list[dict[str, str]]:
    return [{"Code": code} for code in codes]


class TestCheck:
    """Writes that DynamoDB would refuse are refused first, with the element's number."""

    def test_99_elements_with_different_items_pass_the_check(self) -> None:
        """99 elements, different items, any table but the ledger's."""
        check_transact([put(id=str(number), x="y") for number in range(99)], "ledger")
        check_transact(
            [put(id="1"), put("other", id="1"), delete(id="2"), delete(id="3", sort="1"), delete(id="3", sort="2")], "l"
        )

    def test_100_elements_are_refused(self) -> None:
        """100 are DynamoDB's limit, and one is the ledger's."""
        assert "100 elements, at most 99" in refused([delete(id=str(number)) for number in range(100)])

    def test_elements_of_more_than_4_mb_are_refused(self) -> None:
        """The limit is 4 MB, with names and contents of any type."""
        item = {"id": {"S": "1"}, "data": {"B": b"x" * 400_000}, "list": {"L": [{"S": "ä" * 10}]}}
        elements = [{"Put": {"TableName": "orders", "Item": item | {"id": {"S": str(one)}}}} for one in range(11)]
        assert "DynamoDB allows 4 MB" in refused(elements)
        check_transact(elements[:10], "ledger")

    @pytest.mark.failure_mode("F564")
    def test_the_longest_result_has_room_in_the_transaction(self) -> None:
        """The row with its result is an item of the transaction. DynamoDB would refuse it at each attempt."""
        row = MAX_RESULT_BYTES + 1024
        elements = [put(id=str(number), data="x" * 400_000) for number in range(10)]
        check_transact([*elements, put(id="10", data="x" * 150_000)], "ledger")
        most = 4 * 1024 * 1024 - row - 10 * 400_000
        assert "DynamoDB allows 4 MB" in refused([*elements, put(id="10", data="x" * most)])

    @pytest.mark.parametrize(
        "pair",
        [
            (delete(id="1"), delete(id="1")),
            (put(id="1", a="b"), delete(id="1")),
            (delete(id="1"), put(id="1", a="b")),
            (put(id="1", a="b"), put(id="1", a="b")),
            (delete(id="1"), delete("arn:aws:dynamodb:eu-central-1:111122223333:table/orders", id="1")),
        ],
    )
    def test_the_same_item_twice(self, pair: tuple[dict[str, Any], dict[str, Any]]) -> None:
        """The two are named."""
        assert "elements 2 and 3 are about the same item of orders" in refused([put("x", id="0"), *pair])

    @pytest.mark.parametrize("name", ["ledger", "arn:aws:dynamodb:eu-central-1:111122223333:table/ledger"])
    def test_the_ledgers_table_is_the_ledgers(self, name: str) -> None:
        """No processor writes a row, its own or another's."""
        assert "element 1 (Put) is about the ledger's own table" in refused([put(name, pk="a", sk="b")])

    @pytest.mark.parametrize(
        "element", [None, "Put", {}, {"Get": {}}, {"Put": {}, "Delete": {}}, {"Put": None}, put(id="1")["Put"]]
    )
    def test_a_value_that_is_not_an_element_is_refused(self, element: object) -> None:
        """A dict of Python values, as boto3's resource takes it, is refused too."""
        assert "element 1 must be a dict with one of Put, Update, Delete, ConditionCheck" in refused([element])

    @pytest.mark.parametrize(
        "element", [{"Put": {"Item": {}}}, {"Put": {"TableName": "x", "Key": {}}}, {"Delete": {"TableName": "x"}}]
    )
    def test_what_is_missing(self, element: object) -> None:
        """Table, item or key."""
        assert "needs a TableName and a" in refused([element])

    def test_all_problems_at_once(self) -> None:
        """Like the construct's."""
        why = refused([None, {"Put": {}}, put("ledger", id="1")])
        assert all(f"element {number} " in why for number in (1, 2, 3))


class TestRefusal:
    """Whose fault a cancelled transaction is."""

    @pytest.mark.parametrize("code", ["TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded"])
    @pytest.mark.parametrize("place", [0, 1, 2])
    def test_a_refusal_because_of_other_writes_may_pass(self, code: str, place: int) -> None:
        """Others at the same item, or too many of them; the ledger's own row included."""
        codes = ["None"] * 3
        codes[place] = code
        found = refusal(reasons(*codes), [put(id="1"), delete(id="2")])
        assert found.passing
        assert code in str(found)

    @pytest.mark.parametrize("code", ["ConditionalCheckFailed", "ValidationError", "ItemCollectionSizeLimitExceeded"])
    def test_what_does_not(self, code: str) -> None:
        """This also holds together with a conflict: an immediate retry would not help."""
        found = refusal(reasons("None", "TransactionConflict", code), [put(id="1"), delete(id="2")])
        assert not found.passing
        assert str(found) == f"the transaction was cancelled, element 2 (Delete): {code}"


@pytest.fixture
def orders(dynamodb: "DynamoDBClient") -> str:
    """A table of the team."""
    name = f"orders-{next(_TABLES)}"
    dynamodb.create_table(
        TableName=name,
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    return name


def booked(world: World, orders: str, key: str = KEY) -> int:
    """Number of times that the effect happened."""
    item = world.wire.client.get_item(TableName=orders, Key={"id": {"S": key}}).get("Item", {})
    return int(item.get("booked", {}).get("N", "0"))


def book(orders: str, key: str = KEY, **more: Any) -> dict[str, Any]:
    """An effect that is not idempotent at all."""
    return {
        "Update": {
            "TableName": orders,
            "Key": {"id": {"S": key}},
            "UpdateExpression": "ADD booked :one",
            "ExpressionAttributeValues": {":one": {"N": "1"}},
        }
        | more
    }


class TestLedger:
    """The commit with the team's writes, on DynamoDB's own conditions."""

    @pytest.fixture
    def claim(self, world: World) -> Claim:
        return world.accept(created(world.s3.put(KEY, "a")))

    @pytest.fixture(autouse=True)
    def _no_waits(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(table, "CONFLICT_WAITS", (0.0, 0.0))

    def test_both_are_written(self, world: World, orders: str, claim: Claim) -> None:
        """The row equals the row of a plain commit."""
        world.ledger.commit(claim, "x", [book(orders)])
        assert world.wire.requests[-1] == "transact_write_items"
        row = world.known(claim.change)
        assert (row.status, row.commit_id, row.committed_fence) == (Status.PROCESSED, "x", claim.row.fence)
        assert booked(world, orders) == 1

    def test_without_writes_it_is_no_transaction(self, world: World, claim: Claim) -> None:
        """A transaction would cost twice as much."""
        world.ledger.commit(claim, "x")
        assert "transact_write_items" not in world.wire.requests

    @pytest.mark.failure_mode("F03")
    def test_the_fence_refuses_all_of_it(self, world: World, orders: str) -> None:
        """A worker whose lease has ended writes to no table."""
        change = created(world.s3.put(KEY, "a"))
        late = world.die(change)
        now = world.accept(change)
        with pytest.raises(Fenced):
            world.ledger.commit(late, "late", [book(orders)])
        assert booked(world, orders) == 0
        world.ledger.commit(now, "now", [book(orders)])
        with pytest.raises(Fenced):
            world.ledger.commit(late, "late", [book(orders)])
        assert booked(world, orders) == 1
        assert world.known(change).commit_id == "now"

    @pytest.mark.failure_mode("F82")
    def test_a_commit_whose_answer_was_lost(self, world: World, orders: str, claim: Claim) -> None:
        """Sent again it is a success, and has happened once; even when DynamoDB has forgotten the token."""
        world.ledger.commit(claim, "x", [book(orders)])
        world.ledger.commit(claim, "x", [book(orders)])
        assert booked(world, orders) == 1

    def test_every_repetition_carries_the_same_token(self, world: World, orders: str, claim: Claim) -> None:
        """One per attempt: DynamoDB then knows a repetition."""
        sent = script(world, [cancelled("None", "TransactionConflict")])
        world.ledger.commit(claim, "x", [book(orders)])
        assert [one["ClientRequestToken"] for one in sent] == [claim.row.lease_owner] * 2
        assert booked(world, orders) == 1

    def test_the_teams_condition(self, world: World, orders: str, claim: Claim) -> None:
        """It is not taken for the fence; the claim stays, for the failure to be recorded."""
        condition = {"ConditionExpression": "attribute_exists(id)"}
        with pytest.raises(TransactionRefused, match=r"element 2 \(Update\): ConditionalCheckFailed") as failed:
            world.ledger.commit(claim, "x", [book(orders, "other"), book(orders, **condition)])
        assert not failed.value.passing
        assert booked(world, orders) == booked(world, orders, "other") == 0
        assert world.known(claim.change).status is Status.PROCESSING

    def test_a_lost_fence_goes_before_the_teams_condition(self, world: World, orders: str) -> None:
        """A worker that lost the row has no failure to record."""
        change = created(world.s3.put(KEY, "a"))
        late = world.die(change)
        world.accept(change)
        with pytest.raises(Fenced):
            world.ledger.commit(late, None, [book(orders, ConditionExpression="attribute_exists(id)")])

    def test_a_conflict_is_tried_again_and_then_passed_on(self, world: World, orders: str, claim: Claim) -> None:
        """A few times at once, since the processor's work is done already."""
        sent = script(world, [cancelled("None", "TransactionConflict")] * 3)
        with pytest.raises(TransactionRefused) as conflict:
            world.ledger.commit(claim, None, [book(orders)])
        assert conflict.value.passing
        assert len(sent) == 3
        assert booked(world, orders) == 0

    @pytest.mark.parametrize("code", ["ValidationException", "ResourceNotFoundException", "AccessDeniedException"])
    def test_what_dynamodb_will_never_do(self, world: World, orders: str, claim: Claim, code: str) -> None:
        """A mistake of the team's: nothing was written, and the reason says what DynamoDB says."""
        sent = script(world, [ClientError({"Error": {"Code": code, "Message": "says why"}}, "T")])
        with pytest.raises(TransactionRefused, match=f"{code}: says why") as never:
            world.ledger.commit(claim, None, [book(orders)])
        assert not never.value.passing
        assert len(sent) == 1

    @pytest.mark.parametrize(
        "code", ["ThrottlingException", "ProvisionedThroughputExceededException", "RequestLimitExceeded"]
    )
    def test_throttling_of_the_whole_passes_too(self, world: World, orders: str, claim: Claim, code: str) -> None:
        """DynamoDB says it of an element, or of the request: nothing is wrong with the writes in both cases."""
        sent = script(world, [ClientError({"Error": {"Code": code, "Message": "says why"}}, "T")] * 3)
        with pytest.raises(TransactionRefused, match=f"{code}: says why") as throttled:
            world.ledger.commit(claim, None, [book(orders)])
        assert throttled.value.passing
        assert len(sent) == 3

    def test_what_nobody_can_tell(self, world: World, orders: str, claim: Claim) -> None:
        """It may have been carried out: nothing is recorded, the lease decides."""
        script(world, [ClientError({"Error": {"Code": "InternalServerError"}}, "T")])
        with pytest.raises(ClientError):
            world.ledger.commit(claim, None, [book(orders)])

    def test_the_resources_form(self, world: World, orders: str, claim: Claim) -> None:
        """boto3 refuses untyped Python values, with a reason."""
        with pytest.raises(TransactionRefused, match="not in DynamoDB's typed form"):
            world.ledger.commit(claim, None, [{"Put": {"TableName": orders, "Item": {"id": "1"}}}])

    def test_checked_against_the_ledgers_own_table(self, world: World, claim: Claim) -> None:
        """By its real name, before anything is sent."""
        with pytest.raises(TransactionRefused, match="ledger's own table"):
            world.ledger.commit(claim, None, [put(world.table_name, pk="a", sk="b")])
        assert "transact_write_items" not in world.wire.requests


def cancelled(*codes: str) -> ClientError:
    error = ClientError({"Error": {"Code": "TransactionCanceledException"}}, "TransactWriteItems")
    error.response["CancellationReasons"] = [{"Code": code} for code in codes]
    return error


def script(world: World, errors: Sequence[Exception]) -> list[dict[str, Any]]:
    """Let DynamoDB answer the next transactions with these errors, and collect the requests."""
    sent: list[dict[str, Any]] = []
    coming = list(errors)
    real = world.wire.client.transact_write_items

    class Scripted:
        def __getattr__(self, name: str) -> Any:
            return getattr(world.wire.client, name)

        def transact_write_items(self, **arguments: Any) -> Any:
            sent.append(arguments)
            if coming:
                raise coming.pop(0)
            return real(**arguments)

    world.table = LedgerTable(cast("DynamoDBClient", Scripted()), world.table_name)
    return sent


class Death(KeyboardInterrupt):
    """The worker is killed."""


@dataclass(slots=True)
class Steps:
    """Every call that a worker makes, to whomever; something may happen before one of them, or after it."""

    number: int = -1
    """The call at which it happens."""
    after: bool = False
    happens: Callable[[], object] | None = None
    repeat: bool = False
    """The answer of that call is lost, and it is sent again."""
    made: int = 0

    def call(self, real: Callable[..., Any], *plain: Any, **arguments: Any) -> Any:
        here, self.made = self.made == self.number, self.made + 1
        if here and not self.after and self.happens:
            self.happens()
        if here and self.repeat:
            real(*plain, **arguments)
        answer = real(*plain, **arguments)
        if here and self.after and self.happens:
            self.happens()
        return answer


@dataclass(slots=True)
class Stepped:
    """A service whose every call is a step."""

    real: Any
    steps: Steps

    def __getattr__(self, name: str) -> Any:
        real = getattr(self.real, name)
        return lambda *plain, **arguments: self.steps.call(real, *plain, **arguments)


class _Silence:
    def __getattr__(self, _: str) -> Callable[..., None]:
        return lambda *_, **__: None


class _Context:
    def get_remaining_time_in_millis(self) -> int:
        return LEASE - 120 * SECOND


@dataclass(slots=True)
class Pipeline:
    """Workers that meet in the tables only."""

    world: World
    orders: str
    process: Callable[[ObjectChange], Any]
    reasons: list[str] = field(default_factory=list)

    def deliver(self, body: str, steps: Steps | None = None) -> bool:
        """One delivery of the message; whether it was acknowledged."""
        steps, world = steps or Steps(), self.world
        table = LedgerTable(cast("DynamoDBClient", Stepped(world.wire.client, steps)), world.table_name)
        options = LedgerOptions(PIPELINE, world.ordering, world.policy, LATE_AFTER)
        s3 = cast("Any", Stepped(world.s3, steps))
        consumer = object_consumer(
            Services(
                SETTINGS,
                object_ledger(table, s3, options, clock=world.clock, new_owner=world.new_owner),
                cast("Bucket", s3),
                cast("Queues", Stepped(_Silence(), steps)),
                telemetry=cast("Telemetry", _Silence()),
                clock=world.clock,
                jitter=lambda: 0.0,
            ),
            lambda change: steps.call(self.process, change),
        )
        message = {"messageId": "m", "receiptHandle": "r", "body": body, "attributes": {}}
        return consumer.handle({"Records": [message]}, _Context()) == {"batchItemFailures": []}

    def finish(self, body: str) -> None:
        """SQS delivers the message until it is acknowledged."""
        for _ in range(MAX_ATTEMPTS + 2):
            self.world.clock.advance(LEASE + MINUTE)
            if self.deliver(body):
                return
        raise AssertionError("never acknowledged")


SETTINGS = replace(
    CONSUMER,
    pipeline=PIPELINE,
    bucket=BUCKET,
    table="ledger",
    processor="unused:process",
    processing_timeout_seconds=30,
    max_attempts=MAX_ATTEMPTS,
    min_backoff_seconds=1,
    max_backoff_seconds=1,
)


class TestExactlyOnce:
    """An effect that is not idempotent happens once, with a fault at any step."""

    def pipeline(self, world: World, orders: str) -> Pipeline:
        return Pipeline(world, orders, lambda _: Commit("x", transact=[book(orders)]))

    def new(self, world: World, orders: str) -> Iterator[tuple[Pipeline, str, int]]:
        """A fresh object for each step that a worker makes."""
        pipeline = self.pipeline(world, orders)
        steps = Steps()
        assert pipeline.deliver(notification(record("first", world.s3.put("first", "a"))), steps)
        assert steps.made >= 4  # claim, open, process, commit
        for number in range(steps.made):
            key = f"key {number}"
            effect = Commit("x", transact=[book(orders, key)])
            state = world.s3.put(key, "a")
            body = notification(record(key, state, at=world.clock()))
            yield Pipeline(world, orders, lambda _, effect=effect: effect), body, number  # type: ignore[misc]
            assert booked(world, orders, key) == 1, number
            assert row_of(world, key).status is Status.PROCESSED

    @pytest.mark.failure_mode("F72")
    @pytest.mark.parametrize("after", [False, True])
    def test_a_kill_at_every_step(self, world: World, orders: str, after: bool) -> None:
        """Before a call, or between its effect and its answer; then the message comes back."""
        for pipeline, body, number in self.new(world, orders):
            with pytest.raises(Death):
                pipeline.deliver(body, Steps(number, after, happens=_die))
            pipeline.finish(body)

    @pytest.mark.failure_mode("F07")
    @pytest.mark.parametrize("after", [False, True])
    def test_a_successor_at_every_step(self, world: World, orders: str, after: bool) -> None:
        """The worker sleeps through its lease, its successor does everything, and then it wakes."""
        for pipeline, body, number in self.new(world, orders):
            pipeline.deliver(body, Steps(number, after, happens=lambda p=pipeline, b=body: p.finish(b)))  # type: ignore[misc]

    @pytest.mark.failure_mode("F02")
    def test_every_answer_lost(self, world: World, orders: str) -> None:
        """F02, F82: any call is sent twice by the SDK."""
        for pipeline, body, number in self.new(world, orders):
            if not pipeline.deliver(body, Steps(number, repeat=True)):
                pipeline.finish(body)

    def test_the_effect_happens_once_if_two_workers_die(self, world: World, orders: str) -> None:
        """The successor dies as well, at every one of its steps."""
        for first in range(4):
            for second in range(6):
                key = f"twice {first} {second}"
                effect = Commit("x", transact=[book(orders, key)])
                body = notification(record(key, world.s3.put(key, "a"), at=world.clock()))
                pipeline = Pipeline(world, orders, lambda _, effect=effect: effect)  # type: ignore[misc]
                for number in (first, second):
                    try:
                        pipeline.deliver(body, Steps(number, after=True, happens=_die))
                    except Death:
                        world.clock.advance(LEASE + MINUTE)
                pipeline.finish(body)
                assert booked(world, orders, key) == 1

    def test_the_same_without_a_transaction_is_not_exactly_once(self, world: World, orders: str) -> None:
        """Without `transact`, an effect happens again if the worker dies before its commit."""

        def process(_: ObjectChange) -> None:
            world.wire.client.update_item(**book(orders)["Update"])

        pipeline, body = Pipeline(world, orders, process), notification(record(KEY, world.s3.put(KEY, "a")))
        with pytest.raises(Death):
            pipeline.deliver(body, Steps(2, after=True, happens=_die))
        pipeline.finish(body)
        assert booked(world, orders) == 2


class TestConsumer:
    """Attempts whose transaction is refused."""

    def refuse(self, world: World, orders: str, make: Callable[[], Mapping[str, Any]]) -> tuple[Pipeline, str]:
        state = world.s3.put(KEY, "a")
        return Pipeline(world, orders, lambda _: Commit(transact=[make()])), notification(record(KEY, state))

    def test_the_teams_condition_is_an_ordinary_failure(self, world: World, orders: str) -> None:
        """With its reason, retried within the budget, and rejected with it in the end."""
        condition = {"ConditionExpression": "attribute_exists(id)"}
        pipeline, body = self.refuse(world, orders, lambda: book(orders, **condition))
        assert not pipeline.deliver(body)
        row = row_of(world)
        assert (row.status, row.attempts) == (Status.FAILED, 1)
        assert row.reason is not None
        assert "element 1 (Update): ConditionalCheckFailed" in row.reason
        pipeline.finish(body)
        row = row_of(world)
        assert (row.status, row.attempts) == (Status.REJECTED, MAX_ATTEMPTS)

    @pytest.mark.failure_mode("F72")
    def test_throttled_behind_a_commit_whose_answer_was_lost(self, world: World, orders: str) -> None:
        """It was carried out before: the fence shows that, and it is neither repeated nor a failure."""
        pipeline, body = self.refuse(world, orders, lambda: book(orders))
        real = world.wire.client.transact_write_items

        def throttled(**arguments: Any) -> Any:
            real(**arguments)
            raise ClientError({"Error": {"Code": "ThrottlingException"}}, "TransactWriteItems")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(table, "CONFLICT_WAITS", ())
            patch.setattr(world.wire.client, "transact_write_items", throttled)
            assert not pipeline.deliver(body)
        assert pipeline.deliver(body)
        assert booked(world, orders) == 1
        assert row_of(world).status is Status.PROCESSED

    @pytest.mark.failure_mode("F101")
    @pytest.mark.parametrize("transact", [7, {"Put": {}}, (one for one in "ab")])
    def test_what_is_no_list_is_rejected(self, world: World, transact: Any) -> None:
        """The reason names the type, and the lease ends at once."""
        state = world.s3.put(KEY, "a")
        pipeline = Pipeline(world, "orders", lambda _: Commit(transact=transact))
        assert pipeline.deliver(notification(record(KEY, state)))
        row = row_of(world)
        assert row.status is Status.REJECTED
        assert str(row.reason).startswith("transact is ")
        assert str(row.reason).endswith(", expected a list or tuple of elements")

    @pytest.mark.failure_mode("F231")
    def test_a_mistake_takes_one_attempt(self, world: World, orders: str) -> None:
        """No attempt of the same code can succeed. The reason says which element."""
        pipeline, body = self.refuse(world, orders, dict)
        assert pipeline.deliver(body)
        row = row_of(world)
        assert (row.status, row.attempts, row.reason_code) == (Status.REJECTED, 1, "invalid_transaction")
        assert row.reason == "transact: element 1 must be a dict with one of Put, Update, Delete, ConditionCheck"

    @pytest.mark.failure_mode("F231")
    @pytest.mark.parametrize(
        "item",
        [{"id": {"N": "1"}}, {"id": {"S": ""}}, {"id": {"S": "1"}, "x": {"S": "y" * 410_000}}],
    )
    def test_what_dynamodb_refuses_at_any_time_takes_one_attempt(self, world: World, orders: str, item: Any) -> None:
        """The key has another type than the table's or is empty, or the item is too large."""
        pipeline, body = self.refuse(world, orders, lambda: {"Put": {"TableName": orders, "Item": item}})
        assert pipeline.deliver(body)
        row = row_of(world)
        assert (row.status, row.attempts, row.reason_code) == (Status.REJECTED, 1, "invalid_transaction")

    def test_a_conflict_spends_nothing_of_the_budget(
        self, world: World, orders: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """However often: nothing is wrong with the object, and it is committed when the others have gone."""
        monkeypatch.setattr(table, "CONFLICT_WAITS", ())
        pipeline, body = self.refuse(world, orders, lambda: book(orders))
        real = world.wire.client.transact_write_items
        with monkeypatch.context() as busy:
            busy.setattr(world.wire.client, "transact_write_items", _raising(cancelled("None", "TransactionConflict")))
            for _ in range(3 * MAX_ATTEMPTS):
                assert not pipeline.deliver(body)
                row = row_of(world)
                assert (row.status, row.attempts) == (Status.FAILED, 0)
                assert row.reason == "the transaction was cancelled, element 1 (Update): TransactionConflict"
                world.clock.advance(MINUTE)
        assert world.wire.client.transact_write_items == real
        assert pipeline.deliver(body)
        assert booked(world, orders) == 1


def _raising(error: Exception) -> Callable[..., Any]:
    def call(**_: Any) -> Any:
        raise error

    return call


def _die() -> None:
    raise Death


def row_of(world: World, key: str = KEY) -> Row:
    return world.known(created(world.s3.look(key), key=key))
