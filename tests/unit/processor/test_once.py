"""`intake_ledger.once`: any code runs once for each key and identity."""

import random
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, cast

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from cdk_intake_ledger.testing import MemoryDynamoDB
from intake_ledger.keyed.names import idempotency_key
from intake_ledger.ledger.starts import Starts
from intake_ledger.once import (
    Busy,
    Duplicate,
    Fenced,
    InvalidTransactionError,
    NotYet,
    OnceClaim,
    OnceLedger,
    OnceOptions,
    Rate,
    Rejected,
    TransactionRefused,
    Unprocessable,
)
from intake_ledger.protocol.handover import MAX_RESULT_BYTES
from tests.unit.support import Clock

LEASE_SECONDS = 180
PAGE = (Path(__file__).resolve().parents[3] / "docs" / "messages.md").read_text()


def make(table: MemoryDynamoDB | None = None, clock: Clock | None = None, **options: Any) -> OnceLedger:
    return OnceLedger(
        "payments",
        "ledger",
        OnceOptions(**options),
        client=cast("Any", table or MemoryDynamoDB()),
        clock=clock or Clock(),
    )


def test_the_documented_example() -> None:
    """The second try answers with the result of the first one."""
    ledger = make()
    charged = []

    def pay(order: str, event: str) -> str | None:
        try:
            with ledger.once(key=order, identity=event) as claim:
                charged.append(claim.idempotency_key)
                claim.result = f"receipt of {event}"
        except Duplicate as done:
            return done.result
        return claim.result

    assert [pay("o-1", "e-1"), pay("o-1", "e-1"), pay("o-1", "e-2")] == [
        "receipt of e-1",
        "receipt of e-1",
        "receipt of e-2",
    ]
    assert len(set(charged)) == len(charged) == 2


def test_the_example_of_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """The code of docs/messages.md runs: once for each event, and not while another event of the order is paid."""
    section = PAGE.split("\n## Code without a queue\n", 1)[1]
    [code] = re.findall(r"```python\n(.*?)```", section.split("\n## ", 1)[0], flags=re.DOTALL)
    table, charged, waits = MemoryDynamoDB(), list[str](), list[float]()
    names: dict[str, Any] = {}

    def charge(order: str, *, idempotency_key: str) -> str:
        charged.append(idempotency_key)
        assert names["pay"](order, "e-2" if len(charged) == 1 else "e-1") is None
        return f"receipt {len(charged)} of {order}"

    names |= {"charge": charge, "retry_later": waits.append}
    monkeypatch.setattr("intake_ledger.once.ledger_client", lambda: table)
    exec(compile(code, "docs/messages.md", "exec"), names)
    pay = names["pay"]
    assert [pay("o-1", "e-1"), pay("o-1", "e-1")] == ["receipt 1 of o-1"] * 2
    assert len(charged) == 1
    assert [0 < wait <= LEASE_SECONDS for wait in waits] == [True]


def test_the_key_is_held_during_the_block_and_for_no_longer() -> None:
    """Another key is free."""
    table, clock = MemoryDynamoDB(), Clock()
    ledger, other = make(table, clock), make(table, clock)
    with ledger.once("o-1", "e-1") as first:
        with pytest.raises(Busy) as busy, other.once("o-1", "e-2"):
            pytest.fail("two blocks of one key run")
        with other.once("o-2", "e-3"):
            pass
    assert 0 < busy.value.retry_after <= LEASE_SECONDS
    with other.once("o-1", "e-2") as second:
        pass
    assert second.fence > first.fence


@pytest.mark.failure_mode("F146")
@pytest.mark.parametrize("error", [RuntimeError("out"), KeyboardInterrupt(), SystemExit(1)])
def test_an_exception_propagates_and_frees_the_key(error: BaseException) -> None:
    """The next try is the second attempt."""
    ledger = make()
    with pytest.raises(type(error)), ledger.once("o-1", "e-1"):
        raise error
    with ledger.once("o-1", "e-2"):
        pass
    with ledger.once("o-1", "e-1") as claim:
        pass
    assert claim.attempt == 2


@pytest.mark.failure_mode("F147")
def test_a_block_whose_process_died_holds_the_key_until_its_lease_ends() -> None:
    """Nothing ends the block of a process that was killed."""
    table, clock = MemoryDynamoDB(), Clock()
    make(table, clock)._claim("o-1", "e-1")
    ledger = make(table, clock)
    clock.advance(LEASE_SECONDS * 1000 - 1)
    with pytest.raises(Busy), ledger.once("o-1", "e-2"):
        pass
    clock.advance(1)
    with ledger.once("o-1", "e-2"):
        pass
    with ledger.once("o-1", "e-1") as claim:
        pass
    assert claim.attempt == 2


@pytest.mark.failure_mode("F148")
def test_a_block_that_outlives_its_lease_is_not_committed_after_another() -> None:
    """`extend` would have held the key."""
    table, clock = MemoryDynamoDB(), Clock()
    ledger, other = make(table, clock), make(table, clock)
    with pytest.raises(Fenced), ledger.once("o-1", "e-1") as claim:  # noqa: PT012 - the end of the block raises it
        clock.advance(LEASE_SECONDS * 1000)
        with other.once("o-1", "e-2"):
            pass
        with pytest.raises(Fenced):
            claim.extend(60)
    with ledger.once("o-1", "e-1"):
        pass


@pytest.mark.failure_mode("F234")
@pytest.mark.parametrize("same", [False, True])
def test_the_error_of_a_block_that_lost_its_key_reaches_the_caller(same: bool) -> None:
    """The end of another attempt on the identity, or of another identity of the key, stays as it is."""
    table, clock = MemoryDynamoDB(), Clock()
    ledger, other, counted = make(table, clock), make(table, clock), list[str]()
    ledger.count = counted.append
    with pytest.raises(ZeroDivisionError), ledger.once("o-1", "e-1"):  # noqa: PT012 - the block raises it
        clock.advance(LEASE_SECONDS * 1000)
        with other.once("o-1", "e-1" if same else "e-2") as claim:
            claim.result = "receipt"
        raise ZeroDivisionError
    with pytest.raises(Duplicate) as done, other.once("o-1", "e-1" if same else "e-2"):
        pass
    assert done.value.result == "receipt"
    if same:
        assert counted == ["Fenced"]


def test_a_block_that_extends_its_lease_may_run_for_longer() -> None:
    """By the time of the last extension."""
    table, clock = MemoryDynamoDB(), Clock()
    ledger, other = make(table, clock), make(table, clock)
    with ledger.once("o-1", "e-1") as claim:
        for _ in range(5):
            clock.advance(LEASE_SECONDS * 900)
            claim.extend(60)
        clock.advance(LEASE_SECONDS * 1000 - 1)
        with pytest.raises(Busy), other.once("o-1", "e-2"):
            pass
    with pytest.raises(Duplicate), other.once("o-1", "e-1"):
        pass


def test_unprocessable_is_the_end_of_an_identity() -> None:
    """The reason is the text that the block gave."""
    ledger = make()
    with pytest.raises(Unprocessable), ledger.once("o-1", "e-1"):
        raise Unprocessable("unknown product")
    with pytest.raises(Rejected, match="unknown product"), ledger.once("o-1", "e-1"):
        pass


def test_a_block_may_wait_for_something() -> None:
    """Busy until then, and no attempt is counted."""
    clock = Clock()
    ledger = make(clock=clock)
    with pytest.raises(NotYet), ledger.once("o-1", "e-1"):
        raise NotYet("the customer", retry_in=300)
    with pytest.raises(Busy) as busy, ledger.once("o-1", "e-1"):
        pass
    assert busy.value.retry_after == 300
    clock.advance(300_000)
    with ledger.once("o-1", "e-1") as claim:
        pass
    assert claim.attempt == 1


def test_attempts_may_be_limited() -> None:
    """The last error is the reason."""
    ledger = make(max_attempts=2)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError), ledger.once("o-1", "e-1"):
            raise ZeroDivisionError
    for _ in range(2):
        with pytest.raises(Rejected, match="ZeroDivisionError"), ledger.once("o-1", "e-1"):
            pass


def test_writes_to_other_tables_are_one_transaction_with_the_commit() -> None:
    """They are sent with the row and the lock."""
    table = MemoryDynamoDB()
    put = {"Put": {"TableName": "receipts", "Item": {"id": {"S": "r-1"}}}}
    with make(table).once("o-1", "e-1") as claim:
        claim.transact = [put]
    assert table.transacted == [put]


@pytest.mark.failure_mode("F151")
@pytest.mark.parametrize(("key", "identity"), [("", "e"), ("o", "null"), (None, "e"), ("o", 1.5), ("x" * 1025, "e")])
def test_unusable_names_are_refused(key: Any, identity: Any) -> None:
    """Before any request."""
    table = MemoryDynamoDB()
    with pytest.raises(ValueError, match=r"the (key|identity) "), make(table).once(key, identity):
        pass
    assert table.requests == []


@pytest.mark.parametrize("name", ["", "a@b", "a#b"])
def test_names_that_could_be_another_ledgers_are_refused(name: str) -> None:
    """Both characters separate parts of the rows' keys."""
    with pytest.raises(ValueError, match="the name is"):
        OnceLedger(name, "ledger", client=cast("Any", MemoryDynamoDB()))


@pytest.mark.failure_mode("F230")
@pytest.mark.parametrize("result", [42, 1.5, True, b"c-1", {"id": 1}, [1], float("nan"), object()], ids=type)
def test_a_result_that_is_no_text_does_not_undo_the_effect(result: Any, caplog: pytest.LogCaptureFixture) -> None:
    """The block is committed, and only then the caller gets TypeError. Row, count and log have the reason."""
    table, counts = MemoryDynamoDB(), list[str]()
    ledger = make(table)
    ledger.count = counts.append
    charges, errors, results = 0, [], []
    for _ in range(20):
        try:
            with ledger.once("o-1", "e-1") as claim:
                charges += 1
                claim.result = result
        except Duplicate as done:
            results.append(done.result)
        except TypeError as error:
            errors.append(str(error))
    assert charges == 1
    assert results == [None] * 19
    [text] = errors
    assert type(result).__name__ in text
    assert text.endswith(", expected a text or None: the effect is committed without its result")
    [row] = [one for one in table.items.values() if "status" in one]
    assert (row["status"]["S"], row["reason_code"]["S"], row["reason"]["S"]) == ("PROCESSED", "result_not_kept", text)
    assert counts == ["Committed", "ResultNotKept"]
    assert "committed without its result: key o-1, identity e-1" in caplog.text


@pytest.mark.failure_mode("F561")
@pytest.mark.parametrize("result", ["x" * MAX_RESULT_BYTES, "é" * 8_000, '{"lines": []}', "", "\ud800"])
def test_a_duplicate_gets_the_whole_result(result: str) -> None:
    """It has valid Unicode only."""
    ledger = make()
    with ledger.once("o-1", "e-1") as claim:
        claim.result = result
    with pytest.raises(Duplicate) as done, ledger.once("o-1", "e-1"):
        pass
    assert done.value.result == result.replace("\ud800", "?")


@pytest.mark.failure_mode("F561")
@pytest.mark.parametrize("result", ["x" * (MAX_RESULT_BYTES + 1), "é" * 8_193])
def test_a_result_that_is_too_long_is_not_cut(result: str) -> None:
    """A copy could not tell a part from the whole. The block is committed, and the error names the way out."""
    table = MemoryDynamoDB()
    ledger = make(table)
    with pytest.raises(ValueError, match=r"a row keeps 16,384.*to S3 under a key"), ledger.once("o-1", "e-1") as claim:
        claim.result = result
    with pytest.raises(Duplicate) as done, ledger.once("o-1", "e-1"):
        pass
    assert done.value.result is None
    [row] = [one for one in table.items.values() if "status" in one]
    assert (row["status"]["S"], row["reason_code"]["S"]) == ("PROCESSED", "result_not_kept")


@pytest.mark.failure_mode("F562")
@pytest.mark.parametrize("late", [False, True])
def test_a_longer_result_is_in_s3_under_a_key_with_the_fence(late: bool) -> None:
    """A worker outlives its lease, and writes before or after a later one. The row names the result of the commit."""
    s3, clock = dict[str, str](), Clock()
    ledger = make(clock=clock)

    def keep(claim: OnceClaim) -> None:
        key = f"results/{claim.idempotency_key}/{claim.fence}"
        assert s3.setdefault(key, f"by attempt {claim.attempt}") == f"by attempt {claim.attempt}"
        claim.result = key

    with ExitStack() as first:
        early = first.enter_context(ledger.once("o-1", "e-1"))
        if not late:
            keep(early)
        clock.advance(3_600_000)
        with ledger.once("o-1", "e-1") as claim:
            keep(claim)
        if late:
            keep(early)
        with pytest.raises(Fenced):
            first.close()
    with pytest.raises(Duplicate) as done, ledger.once("o-1", "e-1"):
        pass
    assert s3[str(done.value.result)] == "by attempt 2"
    assert len(s3) == 2


def test_an_error_of_the_count_is_not_an_error_of_the_block() -> None:
    """The block is committed by then."""
    ledger = make()
    ledger.count = lambda _: 1 / 0
    with ledger.once("o-1", "e-1"):
        pass
    with pytest.raises(Duplicate), ledger.once("o-1", "e-1"):
        pass


@pytest.mark.failure_mode("F233")
@pytest.mark.failure_mode("F680")
def test_a_rejected_identity_is_reopened_by_a_person_only() -> None:
    """It is refused for ever otherwise. The error says how it was rejected, and that no block ran now."""
    clock = Clock()
    ledger = make(clock=clock)
    put = {"Put": {"TableName": "receipts", "Item": {"id": {"S": "r-1"}}}}
    calls = []

    def pay(transact: Any) -> None:
        with ledger.once("o-1", "e-1") as claim:
            calls.append(claim)
            claim.transact = transact

    with pytest.raises(InvalidTransactionError, match="element 1 must be a dict"):
        pay([5])
    clock.advance(400 * 86_400_000)
    with pytest.raises(Rejected) as rejected:
        pay([put])
    assert rejected.value.code == "invalid_transaction"
    assert "rejected earlier, and its block did not run now" in str(rejected.value)
    assert "OnceLedger.reopen" in str(rejected.value)
    assert ledger.reopen("o-1", "e-1")
    assert not ledger.reopen("o-1", "e-1"), "it is open already"
    pay([put])
    first, second = calls
    assert first.idempotency_key == second.idempotency_key
    assert second.fence > first.fence
    assert second.attempt == 1
    assert not ledger.reopen("o-1", "e-1"), "it is committed"
    with pytest.raises(Duplicate):
        pay([put])
    assert not ledger.reopen("o-1", "e-2"), "it is unknown"


@pytest.mark.failure_mode("F233")
def test_a_block_in_work_is_not_reopened() -> None:
    """The row is changed only if it has not changed since it was read."""
    table, clock = MemoryDynamoDB(), Clock()
    ledger, other = make(table, clock), make(table, clock)
    with pytest.raises(Unprocessable), ledger.once("o-1", "e-1"):
        raise Unprocessable("unknown product")
    real = table.update_item

    def meanwhile(**request: Any) -> Any:
        table.update_item = real  # type: ignore[method-assign]
        assert other.reopen("o-1", "e-1")
        other._claim("o-1", "e-1")
        return real(**request)

    table.update_item = meanwhile  # type: ignore[method-assign]
    assert not ledger.reopen("o-1", "e-1")
    with pytest.raises(Busy), ledger.once("o-1", "e-1"):
        pass


@pytest.mark.failure_mode("F233")
@pytest.mark.parametrize("seed", range(30))
def test_any_order_of_blocks_ends_deaths_and_reopenings(seed: int) -> None:
    """An identity is committed once at most. A rejected one does not run until it is reopened. Fences grow."""
    chance = random.Random(seed)
    table, clock = MemoryDynamoDB(), Clock()
    ledgers = [make(table, clock, max_attempts=chance.choice([None, 1, 2, 3])) for _ in range(2)]
    committed, rejected, last_fence = set[str](), set[str](), 0
    ends: list[Callable[[OnceClaim], object]] = [
        lambda _: None,
        lambda claim: setattr(claim, "result", 42),
        lambda claim: setattr(claim, "transact", [5]),
        lambda _: raising(RuntimeError("out")),
        lambda _: raising(Unprocessable("no")),
        lambda _: raising(NotYet("later", retry_in=60)),
        lambda _: raising(Fenced("of another ledger")),
        lambda _: clock.advance(LEASE_SECONDS * 1000),
    ]
    for _ in range(60):
        ledger, identity = chance.choice(ledgers), chance.choice(["e-1", "e-2"])
        match chance.randrange(6):
            case 0:
                clock.advance(chance.choice([1, 60_000, LEASE_SECONDS * 1000]))
            case 1:
                assert ledger.reopen("o-1", identity) == (identity in rejected)
                rejected.discard(identity)
            case 2:
                try:
                    claim = ledger._claim("o-1", identity)  # its process dies
                    assert (claim.lock_fence or 0) > last_fence
                    last_fence = claim.lock_fence or 0
                    assert identity not in committed | rejected
                except Rejected:
                    rejected.add(identity)
                except (Busy, Duplicate):
                    pass
            case _:
                try:
                    with ledger.once("o-1", identity) as run:
                        assert run.fence > last_fence
                        last_fence = run.fence
                        assert identity not in committed | rejected
                        chance.choice(ends)(run)
                    committed.add(identity)
                except TypeError:
                    committed.add(identity)
                except Duplicate:
                    assert identity in committed
                except (Rejected, Unprocessable, InvalidTransactionError):
                    rejected.add(identity)
                except (Busy, NotYet, RuntimeError, Fenced):
                    pass


def raising(error: BaseException) -> None:
    raise error


@pytest.mark.failure_mode("F234")
def test_a_fence_of_another_ledger_is_a_failure_of_the_block() -> None:
    """The identity is free at once, its attempt is counted, and the row has the reason."""
    table, clock = MemoryDynamoDB(), Clock()
    ledger = make(table, clock)
    with pytest.raises(Fenced, match="of another ledger"), ledger.once("o-1", "e-1"):
        raise Fenced("of another ledger")
    [row] = [one for one in table.items.values() if "status" in one]
    assert (row["status"]["S"], row["reason_code"]["S"]) == ("FAILED", "processor_error")
    assert row["reason"]["S"].startswith("Fenced at tests.unit.processor.test_once:")
    with ledger.once("o-1", "e-1") as claim:
        assert claim.attempt == 2


@pytest.mark.failure_mode("F148")
def test_an_extension_without_the_key_leaves_the_row() -> None:
    """A row that is extended alone would keep the identity from its next attempt."""
    table, clock = MemoryDynamoDB(), Clock()
    ledger, other = make(table, clock), make(table, clock)
    held = ledger._claim("o-1", "e-1")
    clock.advance(LEASE_SECONDS * 1000)
    with other.once("o-1", "e-2"):
        pass
    before = dict(table.items)
    with pytest.raises(Fenced):
        ledger._ledger.extend(held, lease_ms=60_000)
    assert table.items == before


@pytest.mark.failure_mode("F577")
@pytest.mark.failure_mode("F148")
def test_the_lock_of_a_block_that_extends_its_lease_does_not_expire() -> None:
    """Without it, another block of the key would run at the same time, and the first one could not commit."""
    table, clock = MemoryDynamoDB(), Clock()
    ledger = make(table, clock, retention_seconds=3_600)

    def expire() -> None:
        for place, item in [*table.items.items()]:
            if int(item.get("expires_at", {"N": "9" * 12})["N"]) * 1000 < clock.now:
                del table.items[place]

    with ledger.once("o-1", "e-1") as claim:
        for _ in range(72):
            claim.extend(3_600)
            clock.advance(3_600_000)
            expire()
            with pytest.raises(Busy), ledger.once("o-1", "e-2"):
                raise AssertionError


@pytest.mark.failure_mode("F234")
def test_dynamodb_fails_while_a_failure_is_recorded(caplog: pytest.LogCaptureFixture) -> None:
    """The error of the block reaches the caller. The key is free after the lease."""
    table, clock = MemoryDynamoDB(), Clock()
    ledger = make(table, clock)
    real = table.update_item
    with pytest.raises(ZeroDivisionError), ledger.once("o-1", "e-1"):  # noqa: PT012 - the block raises it
        table.update_item = unreachable  # type: ignore[method-assign]
        raise ZeroDivisionError
    table.update_item = real  # type: ignore[method-assign]
    assert "a failure was not recorded: key o-1, identity e-1" in caplog.text
    with pytest.raises(Busy), ledger.once("o-1", "e-1"):
        pass
    clock.advance(LEASE_SECONDS * 1000)
    with ledger.once("o-1", "e-1") as claim:
        assert claim.attempt == 2


def test_a_failure_that_is_not_recorded_frees_the_key() -> None:
    """The row shows a block in work. Only that identity waits for the end of its lease."""
    table, clock = MemoryDynamoDB(), Clock()
    ledger, real = make(table, clock), table.update_item

    def only_locks(**request: Any) -> Any:
        return real(**request) if request["Key"]["sk"]["S"].endswith("@lock") else unreachable()

    with pytest.raises(ZeroDivisionError), ledger.once("o-1", "e-1"):  # noqa: PT012 - the block raises it
        table.update_item = only_locks  # type: ignore[method-assign]
        raise ZeroDivisionError
    table.update_item = real  # type: ignore[method-assign]
    with pytest.raises(Busy), ledger.once("o-1", "e-1"):
        pass
    with ledger.once("o-1", "e-2") as claim:
        assert claim.attempt == 1


def unreachable(**_: Any) -> Any:
    raise EndpointConnectionError(endpoint_url="https://dynamodb")


def refusing(*codes: str) -> MemoryDynamoDB:
    """A table that refuses the writes of each transaction, with these codes for row, lock and write."""

    class Refusing(MemoryDynamoDB):
        def write_others(self, elements: Sequence[Mapping[str, Any]]) -> None:
            if elements:
                error: Any = ClientError({"Error": {"Code": "TransactionCanceledException"}}, "TransactWriteItems")
                error.response["CancellationReasons"] = [{"Code": code} for code in codes]
                raise error

    return Refusing()


@pytest.mark.failure_mode("F234")
def test_writes_that_are_refused_while_the_key_is_held_are_no_lost_key() -> None:
    """DynamoDB refuses the transaction in both cases. Only the lock shows which one it is."""
    table = refusing("None", "ConditionalCheckFailed", "None")
    put = {
        "Put": {"TableName": "receipts", "Item": {"id": {"S": "r-1"}}, "ConditionExpression": "attribute_exists(id)"}
    }
    attempts = []

    def pay() -> None:
        with make(table).once("o-1", "e-1") as claim:
            attempts.append(claim.attempt)
            claim.transact = [put]

    for _ in range(2):
        with pytest.raises(TransactionRefused, match="ConditionalCheckFailed"):
            pay()
    assert attempts == [1, 2]
    [row] = [one for one in table.items.values() if "status" in one]
    assert (row["status"]["S"], row["reason_code"]["S"]) == ("FAILED", "transaction_refused")


@pytest.mark.parametrize(("max_attempts", "attempts"), [(None, [1, 1, 1]), (2, [1, 1, 1]), (1, [1])])
def test_writes_that_meet_others_spend_no_attempt(max_attempts: int | None, attempts: list[int]) -> None:
    """Except with one attempt: the block has run, and must not run again."""
    ledger = make(refusing("None", "TransactionConflict", "None"), max_attempts=max_attempts)
    seen = []
    for _ in range(3):
        with suppress(TransactionRefused, Rejected), ledger.once("o-1", "e-1") as claim:
            seen.append(claim.attempt)
            claim.transact = [{"Put": {"TableName": "receipts", "Item": {"id": {"S": "r-1"}}}}]
    assert seen == attempts


@pytest.mark.failure_mode("F236")
@pytest.mark.parametrize("dies", [False, True])
def test_one_attempt_is_at_most_once(dies: bool) -> None:
    """The block does not run again after a failure or the death of its process, until a person reopens it."""
    table, clock = MemoryDynamoDB(), Clock()
    ledger = make(table, clock, max_attempts=1)
    if dies:
        ledger._claim("o-1", "e-1")
    else:
        with pytest.raises(ZeroDivisionError), ledger.once("o-1", "e-1"):
            raise ZeroDivisionError
    clock.advance(LEASE_SECONDS * 1000)
    for _ in range(2):
        with pytest.raises(Rejected), ledger.once("o-1", "e-1"):
            pytest.fail("it runs a second time")
    assert ledger.reopen("o-1", "e-1")
    with ledger.once("o-1", "e-1"):
        pass


@pytest.mark.failure_mode("F236")
def test_a_rejection_that_meets_another_attempt_is_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A person has reopened the identity since it was judged, and its block runs. It is not rejected."""
    table, clock = MemoryDynamoDB(), Clock()
    ledger, other = make(table, clock, max_attempts=1), make(table, clock, max_attempts=1)
    ledger._claim("o-1", "e-1")
    clock.advance(LEASE_SECONDS * 1000)
    exhaust = ledger._ledger.exhaust

    def late(*arguments: Any) -> bool:
        with pytest.raises(Rejected), other.once("o-1", "e-1"):
            pass
        assert other.reopen("o-1", "e-1")
        other._claim("o-1", "e-1")
        return exhaust(*arguments)

    monkeypatch.setattr(ledger._ledger, "exhaust", late)
    with pytest.raises(Busy), ledger.once("o-1", "e-1"):
        pytest.fail("it runs a second time")


@pytest.mark.failure_mode("F236")
@pytest.mark.parametrize(
    "options",
    [
        {"lease_seconds": -500},
        {"lease_seconds": 0},
        {"lease_seconds": float("nan")},
        {"lease_seconds": float("inf")},
        {"lease_seconds": "60"},
        {"lease_seconds": True},
        {"clock_skew_seconds": -1},
        {"retention_seconds": 0},
        {"retention_seconds": -86_400},
        {"retention_seconds": 1.5},
        {"max_attempts": 0},
        {"max_attempts": -1},
        {"max_attempts": 2.0},
    ],
    ids=str,
)
def test_options_that_protect_nothing_are_refused(options: dict[str, Any]) -> None:
    """A lease that has ended at its beginning would let two blocks run at once."""
    [(name, value)] = options.items()
    with pytest.raises(ValueError, match=re.escape(f"{name} is {value!r}: it must be a ")):
        OnceOptions(**options)


@pytest.mark.parametrize("seconds", [0, -60, float("nan")])
def test_an_extension_of_no_time_is_refused(seconds: float) -> None:
    """It would end the lease."""
    with pytest.raises(ValueError, match="extend is "), make().once("o-1", "e-1") as claim:
        claim.extend(seconds)


@pytest.mark.failure_mode("F151")
def test_the_parts_of_an_idempotency_key_do_not_run_into_each_other() -> None:
    """`ab` and `c` are not `a` and `bc`: two payments with one idempotency key would be one."""
    parts = ["a", "ab", "abc", "b", "bc", "c", "1:a", "1", ":"]
    names = [(one, two, three) for one in parts for two in parts for three in parts]
    assert len({idempotency_key(*name) for name in names}) == len(names)


def test_it_needs_neither_the_cdk_nor_powertools() -> None:
    """Any program can import it that has boto3."""
    program = (
        "import sys, intake_ledger.once;"
        "print([name for name in ('aws_cdk', 'aws_lambda_powertools', 'intake_ledger.consumer')"
        " if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.failure_mode("F510")
def test_blocks_start_at_a_rate_and_duplicates_take_no_start() -> None:
    """Identities that find no start stand in line. No attempt is counted, and the key is free."""
    clock, rate = Clock(), Rate(1, burst=2)
    ledger, ran = make(clock=clock), list[tuple[str, int]]()

    def run(identity: str) -> float | None:
        """Seconds until the next try."""
        try:
            with ledger.once(f"key of {identity}", identity, rate) as claim:
                ran.append((identity, claim.attempt))
        except Busy as busy:
            return busy.retry_after
        return None

    assert [run(name) for name in "abcd"] == [None, None, 1, 2]
    with pytest.raises(Duplicate), ledger.once("key of a", "a", rate):
        raise AssertionError
    assert run("c") == 1
    clock.now += 1_000
    assert [run("e"), run("c"), run("d")] == [2, None, 1]
    clock.now += 1_000
    assert run("d") is None
    assert ran == [("a", 1), ("b", 1), ("c", 1), ("d", 1)]


@pytest.mark.failure_mode("F635")
def test_rates_with_other_names_are_counted_apart_and_must_have_them() -> None:
    clock = Clock()
    ledger = make(clock=clock)

    def run(identity: str, rate: Rate) -> None:
        with ledger.once(identity, identity, rate):
            pass

    slow, fast = Rate(1 / 600, burst=1), Rate(50, name="mail")
    run("a", slow)
    run("b", fast)
    clock.now += 1_000
    with pytest.raises(Busy):
        run("c", slow)
    run("e", fast)
    with pytest.raises(ValueError, match=r"give each rate of 'payments' a name of its own, such as Rate\(50, name="):
        run("d", Rate(50))
    with pytest.raises(ValueError, match="must be a text of at most 256 bytes"):
        Rate(1, name="x" * 257)


@pytest.mark.parametrize("rate", [5, [5]])
def test_a_start_that_fails_spends_no_attempt_and_frees_the_key(rate: Any) -> None:
    """Such a program is corrected, and the block may run once even then."""
    ledger = make(max_attempts=1)
    with pytest.raises((AttributeError, TypeError)), ledger.once("k", "1", rate):
        raise AssertionError
    with ledger.once("k", "2"), suppress(Busy), ledger.once("k", "1"):
        raise AssertionError
    with ledger.once("k", "1") as claim:
        assert claim.attempt == 1


def test_a_start_that_is_interrupted_spends_no_attempt_and_frees_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """The claim is made by then."""

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    ledger = make(max_attempts=1)
    with monkeypatch.context() as patch:
        patch.setattr(Starts, "take", interrupted)
        with pytest.raises(KeyboardInterrupt), ledger.once("k", "1", Rate(1)):
            raise AssertionError
    with ledger.once("k", "1") as claim:
        assert claim.attempt == 1


def test_blocks_that_find_no_start_free_their_key() -> None:
    ledger, rate = make(clock=Clock()), Rate(1, burst=1)
    with ledger.once("k", "1", rate):
        pass
    with pytest.raises(Busy, match="the rate has no start now"), ledger.once("k", "2", rate):
        raise AssertionError
    with ledger.once("k", "3"):
        pass


@pytest.mark.parametrize(
    ("per_second", "burst"), [(0, None), (401, None), (True, None), ("5", None), (1, 0), (1, 3_601)]
)
def test_a_rate_that_cannot_be_kept_is_refused(per_second: Any, burst: int | None) -> None:
    value = per_second if burst is None else burst
    with pytest.raises(ValueError, match=re.escape(f"is {value!r}: it must be")):
        Rate(per_second, burst)
