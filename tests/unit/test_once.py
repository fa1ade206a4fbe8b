"""`intake_ledger.once`: any code runs once for each key and identity."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from intake_ledger.once import (
    Busy,
    Duplicate,
    Fenced,
    NotYet,
    OnceLedger,
    OnceOptions,
    Rejected,
    Unprocessable,
)
from intake_ledger_testing.memory_dynamodb import MemoryDynamoDB
from tests.unit.support import Clock

LEASE_SECONDS = 180
PAGE = (Path(__file__).resolve().parents[2] / "docs" / "messages.md").read_text()


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


def test_it_needs_neither_the_cdk_nor_powertools() -> None:
    """Any program can import it that has boto3."""
    program = (
        "import sys, intake_ledger.once;"
        "print([name for name in ('aws_cdk', 'aws_lambda_powertools', 'intake_ledger.consumer')"
        " if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
