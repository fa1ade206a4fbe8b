"""The lock of a key: held while the row of its holder is in work, and for no other reason."""

from collections.abc import Callable
from typing import Any, cast

import pytest

from cdk_intake_ledger.testing import MemoryDynamoDB
from intake_ledger.keyed.key_lock import KeyLock
from intake_ledger.ledger.dynamodb_table import LedgerTable
from intake_ledger.ledger.ledger import Claim, Ledger, LedgerOptions
from intake_ledger.protocol.change import Change, Origin, State, StateKind
from intake_ledger.protocol.errors import Fenced
from intake_ledger.protocol.reasons import Reason, ReasonCode
from intake_ledger.protocol.row import Ordering, Row, RowKey
from intake_ledger.protocol.verdict import Policy, Verdict
from tests.unit.support import DAY, HOUR, MINUTE, Clock

LEASE = 5 * MINUTE
LOCK = RowKey("m/k", "p@lock")


class Table(LedgerTable):
    """A table that lets another worker act after one of its reads."""

    after_read: Callable[[], object] | None = None

    def get(self, key: RowKey) -> Row | None:
        row = super().get(key)
        if (act := self.after_read) is not None:
            self.after_read = None
            act()
        return row


class Workers:
    """Workers of one intake. Each has a separate table object over the same items."""

    def __init__(self, *, longest_work_ms: int | None = None) -> None:
        self.clock = Clock()
        self.items = MemoryDynamoDB()
        self.longest = longest_work_ms
        self.number = 0

    def table(self) -> Table:
        return Table(cast("Any", self.items), "table")

    def ledger(self, table: Table | None = None) -> Ledger:
        self.number += 1
        used, worker = table or self.table(), self.number
        policy = Policy(3, 35 * DAY, deletes=False, executions=self.longest is not None)
        options = LedgerOptions("p", Ordering.EVERY_VERSION, policy, HOUR)
        lock = KeyLock(used, "p", options.retention, clock=self.clock, longest_work_ms=self.longest)
        owners = iter(range(100))
        return Ledger(
            used,
            lambda change, _: change.state,
            options,
            clock=self.clock,
            new_owner=lambda: f"{worker}.{next(owners)}",
            guards=[lock],
        )

    def message(self, identity: str) -> Change:
        state = State(StateKind.OBJECT, version_id=identity)
        return Change("m", "k", Origin.S3, "", "", state=state, reported_as_new=True, event_time=self.clock())

    def lock(self) -> dict[str, object]:
        return self.table().get_items([LOCK]).get(LOCK, {})


def claimed(ledger: Ledger, change: Change) -> Claim:
    claim = ledger.claim(change, lease_ms=LEASE)
    assert isinstance(claim, Claim)
    return claim


def verdict(ledger: Ledger, change: Change) -> Verdict:
    return ledger.claim(change, lease_ms=LEASE).verdict


def test_a_lease_that_is_extended_excludes_a_worker_that_has_seen_its_end() -> None:
    """It has read the row before, and takes the lock after it. One of both is told."""
    workers = Workers()
    first, table = workers.ledger(), workers.table()
    second = workers.ledger(table)
    claim = claimed(first, workers.message("1"))
    workers.clock.advance(LEASE)
    table.after_read = lambda: first.extend(claim, lease_ms=LEASE)
    assert verdict(second, workers.message("2")) is Verdict.BUSY
    first.commit(claim)
    assert verdict(second, workers.message("2")) is Verdict.ACCEPTED


def test_a_lease_is_not_extended_after_another_message_has_the_key() -> None:
    workers = Workers()
    first, second = workers.ledger(), workers.ledger()
    claim = claimed(first, workers.message("1"))
    workers.clock.advance(LEASE)
    later = claimed(second, workers.message("2"))
    with pytest.raises(Fenced):
        first.extend(claim, lease_ms=LEASE)
    with pytest.raises(Fenced):
        first.commit(claim)
    second.commit(later)
    assert (later.lock_fence or 0) > (claim.lock_fence or 0)


@pytest.mark.parametrize("end", ["fail", "wait", "reject", "release"])
def test_a_row_that_shows_its_end_holds_no_key(end: str) -> None:
    """Without a write on the lock."""
    workers = Workers()
    first, second = workers.ledger(), workers.ledger()
    claim, reason = claimed(first, workers.message("1")), Reason(ReasonCode.PROCESSOR_ERROR, "x")
    before = workers.lock()
    match end:
        case "fail":
            first.fail(claim, reason)
        case "wait":
            first.wait(claim, reason, retry_at=workers.clock() + HOUR)
        case "reject":
            first.reject(claim, reason)
        case _:
            first.release(claim)
    first.let_go(claim, ended=True)
    assert workers.lock() == before
    assert verdict(second, workers.message("2")) is Verdict.ACCEPTED


def test_an_attempt_whose_end_is_not_written_frees_its_key() -> None:
    workers = Workers()
    first, second = workers.ledger(), workers.ledger()
    claim = claimed(first, workers.message("1"))
    assert verdict(second, workers.message("2")) is Verdict.BUSY
    first.let_go(claim, ended=False)
    assert verdict(second, workers.message("2")) is Verdict.ACCEPTED


def test_a_late_worker_does_not_free_the_key_of_its_successor() -> None:
    workers = Workers()
    first, second = workers.ledger(), workers.ledger()
    claim = claimed(first, workers.message("1"))
    workers.clock.advance(LEASE)
    claimed(second, workers.message("1"))
    first.let_go(claim, ended=False)
    assert verdict(workers.ledger(), workers.message("2")) is Verdict.BUSY


def test_work_that_outlives_leases_holds_its_key_until_its_row_shows_the_end() -> None:
    workers = Workers(longest_work_ms=3 * DAY)
    first, second = workers.ledger(), workers.ledger()
    claim = claimed(first, workers.message("1"))
    first.let_go(claim, ended=True)
    workers.clock.advance(2 * DAY)
    assert verdict(second, workers.message("2")) is Verdict.BUSY
    first.let_go(claim, ended=False)
    assert verdict(second, workers.message("2")) is Verdict.BUSY
    first.commit(claim)
    assert verdict(second, workers.message("2")) is Verdict.ACCEPTED


def test_a_lock_stays_for_longer_than_the_row_of_the_longest_work() -> None:
    for longest in (None, 3 * DAY):
        workers = Workers(longest_work_ms=longest)
        claim = claimed(workers.ledger(), workers.message("1"))
        end = max(claim.row.lease_until or 0, workers.clock() + (longest or 0))
        assert cast("int", workers.lock()["expires_at"]) * 1000 > end + 35 * DAY + DAY


def test_a_holder_of_a_later_format_may_be_in_work() -> None:
    """A later release works on a message of the key, in a gradual deployment or before a rollback."""
    workers = Workers()
    claim = claimed(workers.ledger(), workers.message("1"))
    workers.items.items[claim.key.pk, claim.key.sk]["format"] = {"N": "99"}
    workers.clock.advance(LEASE)
    answer = workers.ledger().claim(workers.message("2"), lease_ms=LEASE)
    assert answer.verdict is Verdict.BUSY
    assert answer.row is not None
    assert (answer.row.lease_until or 0) >= workers.clock() + 15 * MINUTE


def test_a_lock_that_is_found_is_written_again() -> None:
    """Its worker took it and lost its row, and a clock shows the same millisecond again. One of both is told."""
    workers = Workers()
    first, second, table = workers.ledger(), workers.ledger(), workers.table()
    claim = claimed(first, workers.message("1"))
    first.release(claim)
    other, taken = workers.ledger(table), list[Claim]()
    # The other worker has read that the holder has no row.
    table.after_read = lambda: taken.append(claimed(second, workers.message("1")))
    assert verdict(other, workers.message("2")) is Verdict.BUSY
    assert [one.row.fence for one in taken] == [claim.row.fence]
    second.commit(taken[0])


@pytest.mark.failure_mode("F320")
@pytest.mark.parametrize("longest", [None, 3 * DAY])
def test_a_worker_that_lost_its_row_does_not_take_the_key_from_its_successor(longest: int | None) -> None:
    """It pauses before the lock. The next attempt on the message works, and no message of the key comes between."""
    workers = Workers(longest_work_ms=longest)
    second, table = workers.ledger(), workers.table()
    paused, mark, taken = workers.ledger(table), table.mark, list[Claim]()

    def late(key: RowKey, *marks: Any) -> None:
        table.mark = mark  # type: ignore[method-assign]
        workers.clock.advance(LEASE)
        if longest is None:
            taken.append(claimed(second, workers.message("1")))
        else:
            # Its execution has failed, and the next one runs.
            row = workers.table().get(RowKey("m/k", "p@v#1"))
            assert row is not None
            claim = Claim.of_row(RowKey("m/k", "p@v#1"), workers.message("1"), row, row, "")
            second.fail(claim, Reason(ReasonCode.PROCESSOR_ERROR, "x"))
            answer = second.claim_ended(workers.message("1"), lease_ms=LEASE, ended=row.fence)
            assert isinstance(answer, Claim)
            taken.append(answer)
        mark(key, *marks)

    table.mark = late  # type: ignore[method-assign, assignment]
    assert verdict(paused, workers.message("1")) is Verdict.BUSY
    [claim] = taken
    assert workers.lock()["holder_fence"] == claim.row.fence
    assert verdict(workers.ledger(), workers.message("2")) is Verdict.BUSY
    second.commit(claim)


def test_a_worker_that_lost_its_row_does_not_take_a_key_that_is_free_again() -> None:
    """It pauses before the lock. Its fence of the key would be above those of all messages that came meanwhile."""
    workers = Workers()
    second, table = workers.ledger(), workers.table()
    paused, mark = workers.ledger(table), table.mark

    def late(key: RowKey, *marks: Any) -> None:
        table.mark = mark  # type: ignore[method-assign]
        workers.clock.advance(LEASE)
        for identity in ("1", "2"):
            second.commit(claimed(second, workers.message(identity)))
        mark(key, *marks)

    table.mark = late  # type: ignore[method-assign, assignment]
    assert verdict(paused, workers.message("1")) is Verdict.BUSY
    assert verdict(workers.ledger(), workers.message("1")) is Verdict.DUPLICATE
    second.commit(claimed(second, workers.message("3")))


def test_a_worker_that_lost_its_row_does_not_take_a_key_that_an_older_row_has_had() -> None:
    """The row of another message, with a fence below that of the worker that pauses, took the key after the successor.

    Its message was claimed before and its lease extended, or the clock of its worker is behind.
    """
    workers = Workers()
    second, table = workers.ledger(), workers.table()
    paused, mark = workers.ledger(table), table.mark

    def late(key: RowKey, *marks: Any) -> None:
        table.mark = mark  # type: ignore[method-assign]
        workers.clock.advance(LEASE)
        second.commit(claimed(second, workers.message("1")))
        workers.clock.advance(-2 * LEASE)
        second.commit(claimed(second, workers.message("2")))
        workers.clock.advance(2 * LEASE)
        mark(key, *marks)

    table.mark = late  # type: ignore[method-assign, assignment]
    assert verdict(paused, workers.message("1")) is Verdict.BUSY


def test_a_released_row_that_comes_back_with_a_lower_fence_takes_the_key() -> None:
    """The clock of its worker is behind."""
    workers = Workers()
    first, second = workers.ledger(), workers.ledger()
    first.release(claimed(first, workers.message("1")))
    workers.clock.advance(-MINUTE)
    claim = claimed(second, workers.message("1"))
    assert verdict(workers.ledger(), workers.message("2")) is Verdict.BUSY
    second.commit(claim)
