"""Requests that SDKs do not repeat: batches that DynamoDB carries out in part, and writes that meet a transaction."""

import random
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, cast

import pytest
from botocore.client import BaseClient
from botocore.exceptions import ClientError
from hypothesis import given
from hypothesis import strategies as st

from cdk_intake_ledger.testing import MemoryDynamoDB
from intake_ledger.ledger import dynamodb_table
from intake_ledger.ledger.conditions import NO_ROW, ConditionFailed
from intake_ledger.ledger.dynamodb_table import LedgerTable, is_conflict, read_batch, send_write, write_batch
from intake_ledger.protocol.row import Row, RowKey, Status
from tests.unit.command.support import Site, make_site
from tests.unit.command.test_commands import Person, sit  # noqa: F401 - a fixture
from tests.unit.messages.support import Intake, sqs

pytestmark = pytest.mark.quiet_tables
THROTTLED = "ProvisionedThroughputExceededException"


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The waits of the requests, which take no time here."""
    waited: list[float] = []
    monkeypatch.setattr(dynamodb_table, "pause", waited.append)
    return waited


def keys(size: int) -> list[RowKey]:
    return [RowKey(f"bucket/{number}", "p@latest") for number in range(size)]


def rows(size: int) -> dict[RowKey, Row]:
    return {key: Row(Status.PROCESSING, 1, version_id="1", lease_owner="o", lease_until=1) for key in keys(size)}


def table_of(store: Any) -> LedgerTable:
    return LedgerTable(store, "table")


class Answers:
    """A client with scripted answers for each statement of the batches: a code, or None. Then it takes all."""

    def __init__(self, *batches: Sequence[str | None]) -> None:
        self.batches = list(batches)
        self.sent: list[int] = []

    def batch_execute_statement(self, *, Statements: Sequence[Any]) -> dict[str, Any]:  # noqa: N803 - boto3's name
        self.sent.append(len(Statements))
        codes = self.batches.pop(0) if self.batches else [None] * len(Statements)
        answers = [{"Error": {"Code": code, "Message": "m"}} if code else {} for code in codes]
        assert len(answers) == len(Statements)
        return {"Responses": answers}


class TestBatches:
    """BatchGetItem and BatchWriteItem."""

    @pytest.mark.failure_mode("F295")
    def test_a_throttled_batch_ends_in_an_error_after_some_waits(self, waits: list[float]) -> None:
        """Without waits, a throttled partition got two hundred requests in a second, without an end."""
        store = MemoryDynamoDB()
        store.partial_batches = 10**4
        with pytest.raises(ClientError, match="did not carry out 1 of 1 entries in 7 tries: it throttles") as failed:
            table_of(store).get_items(keys(1))
        assert failed.value.response["Error"]["Code"] == THROTTLED
        assert store.requests == ["BatchGetItem"] * 7
        assert waits == sorted(waits)
        with pytest.raises(ClientError, match="WriteThrottleEvents"):
            write_batch(cast("Any", store), "table", [{"pk": {"S": "a"}, "sk": {"S": "b"}}])

    @pytest.mark.failure_mode("F295")
    def test_a_batch_that_makes_progress_goes_on(self, waits: list[float]) -> None:
        """An answer of 16 MB leaves items out, although nothing is throttled. One item at a time is progress."""

        class OneByOne:
            def batch_get_item(self, *, RequestItems: dict[str, Any]) -> dict[str, Any]:  # noqa: N803 - boto3's name
                first, *rest = RequestItems["table"]["Keys"]
                left = {"table": {"Keys": rest, "ConsistentRead": True}} if rest else {}
                return {"Responses": {"table": [first]}, "UnprocessedKeys": left}

        wanted = keys(100)
        assert set(table_of(OneByOne()).get_items(wanted)) == set(wanted)
        assert waits == [0.05] * 99

    @pytest.mark.failure_mode("F295")
    @given(seed=st.integers(0, 2**32), size=st.integers(1, 100), partial=st.integers(0, 4))
    def test_each_item_is_read_and_written_once(self, seed: int, size: int, partial: int) -> None:
        """Whatever part of each batch DynamoDB carries out."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(dynamodb_table, "pause", lambda _: None)
            patch.setattr(MemoryDynamoDB, "busy", random.Random(seed))
            store, wanted = cast("Any", MemoryDynamoDB()), keys(size)
            items = [{"pk": {"S": key.pk}, "sk": {"S": key.sk}} for key in wanted]
            store.partial_batches = partial
            write_batch(store, "table", items[:25])
            store.partial_batches = partial
            assert sorted(map(str, read_batch(store, "table", items))) == sorted(map(str, items[:25]))


class TestStatements:
    """BatchExecuteStatement has an answer for each statement."""

    @pytest.mark.failure_mode("F296")
    @pytest.mark.parametrize(
        "code",
        [
            "InternalServerError",
            "ProvisionedThroughputExceeded",
            "RequestLimitExceeded",
            "ThrottlingError",
            "TransactionConflict",
        ],
    )
    def test_statements_that_may_pass_are_sent_again(self, code: str, waits: list[float]) -> None:
        client = Answers([None, code, "DuplicateItem", code], [code, None])
        first, second, third, last = rows(4)
        assert table_of(client).insert_many(rows(4)) == {first, second, last}
        assert client.sent == [4, 2, 1]
        assert third not in {first, second, last}
        assert waits == [0.05, 0.1]

    @pytest.mark.failure_mode("F296")
    def test_they_are_left_to_single_requests_after_some_tries(self, waits: list[float]) -> None:
        """SDKs repeat those."""
        client = Answers(["ThrottlingError", None], *[["ThrottlingError"]] * 9)
        assert table_of(client).insert_many(rows(2)) == {keys(2)[1]}
        assert len(waits) == 4

    @pytest.mark.failure_mode("F296")
    @pytest.mark.parametrize("code", ["AccessDenied", "ThrottlingError", "ValidationError"])
    @pytest.mark.usefixtures("waits")
    def test_a_mark_that_is_not_written_is_an_error(self, code: str) -> None:
        """Without marks, each run of an audit would send the messages again, and say nothing about it."""
        client = Answers(["ConditionalCheckFailed", code], *[[code]] * 9)
        with pytest.raises(ClientError, match=code):
            table_of(client).mark_many({key: ({"audit_resubmitted_at": 1}, None) for key in keys(2)})

    @pytest.mark.failure_mode("F296")
    def test_throttled_marks_get_the_waits_of_a_batch(self, waits: list[float]) -> None:
        """Nobody sends them alone."""
        client = Answers(*[["ThrottlingError"]] * 6)
        table_of(client).mark_many({key: ({"audit_resubmitted_at": 1}, None) for key in keys(1)})
        assert waits == [0.05, 0.1, 0.2, 0.4, 0.8, 1.6]

    @pytest.mark.failure_mode("F296")
    def test_marks_whose_conditions_do_not_hold_are_left_out(self) -> None:
        """A worker has the row. No mark is needed."""
        client = Answers(["ConditionalCheckFailed", "DuplicateItem"])
        table_of(client).mark_many({key: ({"audit_resubmitted_at": 1}, None) for key in keys(2)})
        assert client.sent == [2]


class TestConflicts:
    """Single writes that DynamoDB refuses, because a transaction on their item is under way."""

    @pytest.mark.failure_mode("F297")
    def test_each_write_of_the_table_is_sent_again(self, waits: list[float]) -> None:
        """The condition is checked again with each try."""
        store = MemoryDynamoDB()
        table, [(key, row)] = table_of(store), rows(1).items()
        after = Row(Status.PROCESSING, 2, version_id="1", lease_owner="o", lease_until=2)
        for write in (
            lambda: table.insert(key, row),
            lambda: table.update(key, row, after, NO_ROW._replace(expression="attribute_exists(#status)")),
            lambda: table.mark(key, {"x": 1}, NO_ROW._replace(expression="attribute_exists(#status)")),
            lambda: table.write(key, {"fence": 1}),
            lambda: table.put_new(key, {"fence": 1}),
            lambda: table.delete(key, NO_ROW),
        ):
            store.conflicts = 4
            waits.clear()
            write()
            assert waits == [0.05, 0.1, 0.2, 0.4]

    @pytest.mark.failure_mode("F297")
    def test_a_condition_that_no_longer_holds_ends_the_tries(self, waits: list[float]) -> None:
        """The transaction has changed the item."""
        store = MemoryDynamoDB()
        table, [(key, row)] = table_of(store), rows(1).items()
        table.insert(key, row)
        store.conflicts = 2
        with pytest.raises(ConditionFailed) as refused:
            table.insert(key, row)
        assert refused.value.row == row
        assert len(waits) == 2

    @pytest.mark.failure_mode("F297")
    @pytest.mark.usefixtures("waits")
    def test_transactions_without_end_are_an_error(self) -> None:
        """A caller may tell it from others, as the lock of a key does."""
        store = MemoryDynamoDB()
        store.conflicts = 5
        with pytest.raises(ClientError) as refused:
            send_write(store.put_item, {"Item": {"pk": {"S": "a"}, "sk": {"S": "b"}, "fence": {"N": "1"}}})
        assert is_conflict(refused.value)

    @pytest.mark.failure_mode("F297")
    @pytest.mark.parametrize("write", range(3))
    def test_an_attempt_survives_the_transactions_of_others(self, write: int, waits: list[float]) -> None:
        """Its claim, its lock and its failure are written at a later try, and it is tried again.

        A row that shows the failure holds no key.
        """
        intake = Intake(process=lambda _: fail())
        writes = count()

        def fail() -> None:
            raise ValueError("no")

        class Busy(MemoryDynamoDB):
            def _check(self, *arguments: Any) -> Any:
                if next(writes) == write:
                    self.conflicts = 4
                return super()._check(*arguments)

        intake.table.__class__ = Busy
        assert intake.handle([sqs("o-1", "e-1")]) == ["o-1.e-1"]
        assert (intake.called, intake.verdicts) == (["e-1"], {"ACCEPTED": 1})
        assert (intake.status("o-1", "e-1"), intake.is_locked("o-1")) == ("FAILED", False)
        assert waits == [0.05, 0.1, 0.2, 0.4]


@pytest.mark.usefixtures("dynamodb")
class TestCommands:
    """The command line meets the same answers."""

    @pytest.fixture
    def site(self) -> Site:
        return make_site()

    @pytest.fixture
    def person(self, site: Site, sit: Callable[..., Person], monkeypatch: pytest.MonkeyPatch) -> Person:  # noqa: F811
        """The first write of a row meets a transaction, and the first BatchGetItem is throttled."""
        person, real, begun = sit(site), vars(BaseClient)["_make_api_call"], set[str]()

        def busy(client: BaseClient, operation: str, params: Any) -> Any:
            on_row = operation == "UpdateItem" and "ConditionExpression" in params
            if operation in begun or not (on_row or operation == "BatchGetItem"):
                return real(client, operation, params)
            begun.add(operation)
            if operation == "BatchGetItem":
                return {"Responses": {}, "UnprocessedKeys": params["RequestItems"]}
            raise ClientError({"Error": {"Code": "TransactionConflictException"}}, operation)

        monkeypatch.setattr(BaseClient, "_make_api_call", busy)
        return person

    @pytest.mark.failure_mode("F295")
    def test_a_status_is_whole_although_the_table_throttles(self, person: Person) -> None:
        """Without the rest of the batch, it would show no pause."""
        person.types("pause", "--because", "the warehouse is being moved", "--yes")
        assert person.reads("status")["pause"]["because"] == "the warehouse is being moved"

    @pytest.mark.failure_mode("F297")
    def test_a_dismissal_survives_a_transaction(self, site: Site, person: Person) -> None:
        site.reject("in/a", "no invoice")
        assert person.reads("dismiss", "in/a", "--because", "a test file")["rows"] == 1

    @pytest.mark.failure_mode("F297")
    def test_a_retry_survives_a_transaction(self, site: Site, person: Person) -> None:
        site.row("in/a", Row(Status.FAILED, 1, version_id="v1", retry_at=2**45, updated_at=1))
        assert person.reads("retry", "in/a")["due"]["retried"] == 1
