"""The lock of a group: the lock of a key whose holder may be any row of the group."""

import json
import re
from collections import Counter, defaultdict
from dataclasses import replace
from typing import Any, cast

import pytest

from cdk_intake_ledger.testing import LocalPipeline, LocalRunner, LocalSets, MemoryDynamoDB
from intake_ledger import Commit, ObjectChange
from intake_ledger.ledger.conditions import Condition
from intake_ledger.ledger.dynamodb_table import LedgerTable
from intake_ledger.ledger.ledger import Claim, Ledger, LedgerOptions
from intake_ledger.options.exclusive_by import GroupLock, holder_hash, holder_name
from intake_ledger.protocol.change import Change, Origin, State, StateKind
from intake_ledger.protocol.errors import Fenced, LateWriteFound
from intake_ledger.protocol.group_pattern import GroupPattern
from intake_ledger.protocol.reasons import Reason, ReasonCode
from intake_ledger.protocol.row import Ordering, Status, group_key
from intake_ledger.protocol.verdict import Policy, Verdict
from tests.conftest import ROOT
from tests.kinds.cells import KEY, Cell
from tests.known import known
from tests.unit.support import DAY, HOUR, MINUTE, SECOND, Clock

LEASE = 5 * MINUTE
PUT: Any = {"Put": {"TableName": "other", "Item": {"id": {"S": "1"}}}}


class Workers:
    """Workers of one pipeline with the groups `{account}/`."""

    def __init__(self, *, longest_work_ms: int | None = None) -> None:
        self.clock = Clock()
        self.items = MemoryDynamoDB()
        self.longest = longest_work_ms
        self.number = 0
        self.woken: list[str] = []
        """The keys that were woken."""
        self.shown: dict[str, State] = {}
        self.table = LedgerTable(cast("Any", self.items), "table")

    def ledger(self) -> Ledger:
        self.number += 1
        worker, owners = self.number, iter(range(100))
        policy = Policy(3, 35 * DAY, deletes=False, executions=self.longest is not None)
        options = LedgerOptions("p", Ordering.LATEST, policy, HOUR)
        return Ledger(
            self.table,
            lambda change, _: self.shown[change.key],
            options,
            clock=self.clock,
            new_owner=lambda: f"{worker}.{next(owners)}",
            guards=[self.locks()],
        )

    def locks(self) -> GroupLock:
        retention = LedgerOptions("p", Ordering.LATEST, Policy(3, 35 * DAY, deletes=False), HOUR).retention
        group_of = GroupPattern("{account}/").group_of
        return GroupLock(
            self.table, "p", retention, group_of, clock=self.clock, wake=self.wake, longest_work_ms=self.longest
        )

    def wake(self, body: str) -> None:
        self.woken.append(json.loads(body)["intakeLedger"]["key"])

    def upload(self, key: str, version: str = "1") -> Change:
        self.shown[key] = State(StateKind.OBJECT, version_id=version, etag=version, created_at=self.clock())
        state = self.shown[key]
        return Change("b", key, Origin.S3, "", "", state=state, reported_as_new=True, event_time=self.clock())

    def lock(self, group: str) -> dict[str, object]:
        place = group_key("p", group)
        return self.table.get_items([place]).get(place, {})


def claimed(ledger: Ledger, change: Change) -> Claim:
    """A claim. Its group may be held by another one."""
    claim = ledger.claim(change, lease_ms=LEASE)
    assert isinstance(claim, Claim)
    return claim


def test_keys_of_a_group_exclude_each_other_and_others_do_not() -> None:
    workers = Workers()
    first = claimed(workers.ledger(), workers.upload("acme/1"))
    held = known(claimed(workers.ledger(), workers.upload("acme/2")).held)
    holder = holder_hash(holder_name(first.key))
    assert str(held) == f"another key of the group acme is in work since 2026-11-18T11:06:40+00:00: {holder}"
    assert claimed(workers.ledger(), workers.upload("other/1")).held is None
    assert claimed(workers.ledger(), workers.upload("no group")).held is None
    assert (first.held, first.lock_fence) == (None, first.row.fence)


def test_a_key_without_a_group_has_no_lock_and_commits_alone() -> None:
    workers = Workers()
    ledger = workers.ledger()
    claim = claimed(ledger, workers.upload("no group"))
    ledger.extend(claim, lease_ms=LEASE)
    ledger.commit(claim)
    ledger.let_go(claim, ended=True)
    assert [*workers.items.items] == [("b/no group", "p@latest")]


def test_a_commit_frees_the_group_and_names_no_key_there() -> None:
    workers = Workers()
    ledger = workers.ledger()
    ledger.commit(claimed(ledger, workers.upload("acme/1")))
    assert workers.lock("acme")["holder"] == ""
    assert claimed(workers.ledger(), workers.upload("acme/2")).held is None


@pytest.mark.failure_mode("F501")
def test_a_worker_that_lost_its_group_commits_nothing() -> None:
    """Its row is still its own. Another key of the group had its effect meanwhile."""
    workers = Workers()
    late, next_ = workers.ledger(), workers.ledger()
    claim = claimed(late, workers.upload("acme/1"))
    workers.clock.advance(LEASE)
    second = claimed(next_, workers.upload("acme/2"))
    assert second.held is None
    assert (second.lock_fence or 0) > (claim.lock_fence or 0)
    with pytest.raises(Fenced):
        late.extend(claim, lease_ms=LEASE)
    with pytest.raises(Fenced):
        late.commit(claim)
    late.let_go(claim, ended=False)
    assert claimed(workers.ledger(), workers.upload("acme/3")).held is not None
    next_.commit(second)


@pytest.mark.failure_mode("F502")
def test_a_late_write_is_found_by_the_commit_of_a_group() -> None:
    """That commit is a transaction, and the effect of this one is not a part of it."""
    workers = Workers()
    late, ledger = workers.ledger(), workers.ledger()
    old = claimed(late, workers.upload("acme/1", "1"))
    workers.clock.advance(LEASE)
    claim = claimed(ledger, workers.upload("acme/1", "2"))
    assert late.report_late_write(old)
    with pytest.raises(LateWriteFound):
        ledger.commit(claim)
    row = known(workers.table.get(claim.key))
    assert row.late_writes == {old.state.identity}
    ledger.commit(claim, transact=[PUT])
    row = known(workers.table.get(claim.key))
    assert (row.settled, row.late_writes, row.transactional) == (True, frozenset(), 1)


def waits(ledger: Ledger, claim: Claim, code: ReasonCode = ReasonCode.GROUP_HELD) -> None:
    """The end of a claim that found its group held."""
    ledger.wait(claim, Reason(code, "x"), retry_at=claim.row.fence + DAY)
    ledger.let_go(claim, ended=True)


@pytest.mark.failure_mode("F630")
def test_the_end_of_an_attempt_wakes_the_first_key_that_waits() -> None:
    workers = Workers()
    ledger = workers.ledger()
    first = claimed(ledger, workers.upload("acme/1"))
    for key in ("acme/3", "acme/2", "other/1"):
        workers.clock.advance(SECOND)
        waits(ledger, claimed(ledger, workers.upload(key)))
    assert workers.woken == []
    ledger.commit(first)
    ledger.let_go(first, ended=True)
    assert workers.woken == ["acme/3"]
    # It may have been lost, and the others go on.
    next_ = claimed(ledger, workers.upload("acme/4"))
    ledger.fail(next_, Reason(ReasonCode.PROCESSOR_ERROR, "x"))
    ledger.let_go(next_, ended=True)
    assert workers.woken == ["acme/3", "acme/2"]


@pytest.mark.failure_mode("F630")
def test_a_key_that_joins_the_line_after_the_end_is_woken() -> None:
    """The group was held when it looked, and the end has found nobody in line."""
    workers = Workers()
    ledger = workers.ledger()
    first = claimed(ledger, workers.upload("acme/1"))
    second = claimed(ledger, workers.upload("acme/2"))
    ledger.commit(first)
    ledger.let_go(first, ended=True)
    assert workers.woken == []
    waits(ledger, second)
    assert workers.woken == ["acme/2"]


@pytest.mark.failure_mode("F630")
def test_a_key_that_waits_no_more_keeps_no_other_from_its_wake() -> None:
    workers = Workers()
    ledger = workers.ledger()
    first = claimed(ledger, workers.upload("acme/1"))
    gone = claimed(ledger, workers.upload("acme/2"))
    waits(ledger, gone)
    waits(ledger, claimed(ledger, workers.upload("acme/3")))
    workers.table.mark(gone.key, {"status": "PROCESSED"}, Condition("attribute_exists(#pk)", ("pk",), {}))
    ledger.commit(first)
    ledger.let_go(first, ended=True)
    assert workers.woken == ["acme/3"]
    assert not [key for key in workers.items.items if "@waits/" in key[1]]


@pytest.mark.failure_mode("F630")
def test_an_execution_that_was_started_wakes_no_key_before_its_end() -> None:
    workers = Workers(longest_work_ms=3 * DAY)
    ledger = workers.ledger()
    claim = claimed(ledger, workers.upload("acme/1"))
    waits(ledger, claimed(ledger, workers.upload("acme/2")))
    ledger.let_go(claim, ended=True)
    assert workers.woken == []
    ledger.reject(claim, Reason(ReasonCode.UNPROCESSABLE, "x"))
    ledger.let_go(claim, ended=True)
    assert workers.woken == ["acme/2"]


@pytest.mark.failure_mode("F631")
@pytest.mark.parametrize(
    ("code", "passes"),
    [(ReasonCode.GROUP_HELD, True), (ReasonCode.NOT_YET, False), (ReasonCode.MAX_RATE, False)],
)
def test_a_wake_passes_the_wait_for_a_group_and_no_other(code: ReasonCode, *, passes: bool) -> None:
    workers = Workers()
    ledger = workers.ledger()
    event = workers.upload("acme/1")
    claim = claimed(ledger, replace(event, event_name="ObjectCreated:Put", event_id="e"))
    waits(ledger, claim, code)
    audit = ledger.claim(replace(event, origin=Origin.AUDIT), lease_ms=LEASE)
    assert audit.verdict is Verdict.BUSY
    woken = ledger.claim(replace(event, origin=Origin.GROUP), lease_ms=LEASE)
    assert woken.verdict is (Verdict.ACCEPTED if passes else Verdict.BUSY)
    if isinstance(woken, Claim):
        assert (woken.row.event_name, woken.row.event_id, woken.row.attempts) == ("ObjectCreated:Put", "e", 1)


@pytest.mark.failure_mode("F632")
def test_a_look_at_a_group_that_is_held_writes_nothing_to_its_lock() -> None:
    """A write could refuse the transaction of the holder's commit, and its effect would be repeated."""
    workers = Workers()
    claimed(workers.ledger(), workers.upload("acme/1"))
    claim = claimed(workers.ledger(), workers.upload("other/1"))
    before = len(workers.items.requests)
    waiter = workers.locks().take(replace(claim, change=workers.upload("acme/2")))
    assert isinstance(waiter, Claim)
    assert waiter.held is not None
    assert {one for one in workers.items.requests[before:] if "Get" not in one} == set()


SIZES = {"objects": 24, "sets": 12}


def grouped(kind: str, number: int, minutes: float, *, wakes: bool = True) -> tuple[LocalPipeline | LocalSets, float]:
    """Executions of one group that all came at once. Returns the time in which their group had no work, in hours."""
    begun = list[int]()

    def process(_: Any) -> dict[str, str]:
        begun.append(local.now)
        return {"commit": "x"}

    local: LocalPipeline | LocalSets
    if kind == "objects":
        local = LocalPipeline(process, exclusive_by="k/{account}/", runner=LocalRunner.STATE_MACHINE, max_wait=21_600)
    else:
        local = LocalSets(process, marker="k/*/*/_END", exclusive_by="k/{account}/", runner=LocalRunner.STATE_MACHINE)
    local._execution_ms = round(minutes * MINUTE)
    if not wakes:
        send = local._sqs.send_message
        local._sqs.send_message = lambda **request: (  # type: ignore[method-assign]
            None if '"kind": "group"' in request["MessageBody"] else send(**request)
        )
    start = local.now
    for one in range(number):
        local.put(f"k/acme/{one}/a", "x")
        if kind == "sets":
            local.put(f"k/acme/{one}/_END", "")
    local.run()
    assert len(begun) == number
    assert not local.dead_letters
    return local, (begun[-1] - start) / HOUR - number * minutes / 60


@pytest.mark.failure_mode("F630")
@pytest.mark.parametrize("kind", ["objects", "sets"])
def test_a_group_is_in_use_as_its_page_says(kind: str) -> None:
    """The numbers are those of docs/options.md."""
    page = (ROOT / "docs/options.md").read_text()
    [(seconds, percent)] = re.findall(r"work of (\d+) seconds or more is in use for at least (\d+) % of the time", page)
    number, minutes = SIZES[kind], int(seconds) / 60
    _, idle = grouped(kind, number, minutes)
    work = number * minutes / 60
    assert work / (work + idle) >= int(percent) / 100


@pytest.mark.failure_mode("F630")
@pytest.mark.parametrize("kind", ["objects", "sets"])
def test_the_looks_of_a_group_grow_with_the_number_of_its_keys(kind: str) -> None:
    """Four times as many looks for twice as many keys would use up the receives of their queue."""
    few, many = (sum(grouped(kind, number, 15)[0].verdicts.values()) for number in (8, 16))
    assert many <= 2.8 * few


@pytest.mark.failure_mode("F630")
def test_lost_wakes_are_made_good_by_growing_waits_that_differ() -> None:
    """Nobody is woken. Keys that came together look at other times, so one finds the group free soon."""
    _, idle = grouped("objects", 20, 1, wakes=False)
    assert idle < 20 / 60


def test_keys_that_came_together_look_at_other_times() -> None:
    pipeline = LocalPipeline(lambda _: None, exclusive_by="k/{account}/", runner=LocalRunner.STATE_MACHINE)
    pipeline._execution_ms = 6 * HOUR
    for number in range(10):
        pipeline.put(f"k/acme/{number}", "x")
    pipeline.run(hours=2)
    rows = [row for number in range(1, 10) if (row := pipeline.row(f"k/acme/{number}")) is not None]
    shares = [(row.retry_at - row.updated_at) / (row.updated_at - row.waiting_since) for row in rows]  # type: ignore[operator]
    assert 1 / 22 < min(shares) < 1 / 17
    assert 1 / 15 < max(shares) < 1 / 12


def test_an_execution_holds_its_group_without_a_lease() -> None:
    workers = Workers(longest_work_ms=3 * DAY)
    ledger = workers.ledger()
    claim = claimed(ledger, workers.upload("acme/1"))
    ledger.let_go(claim, ended=True)
    workers.clock.advance(2 * DAY)
    assert claimed(workers.ledger(), workers.upload("acme/2")).held is not None
    ledger.fail(claim, Reason(ReasonCode.PROCESSOR_ERROR, "x"))
    assert claimed(workers.ledger(), workers.upload("acme/3")).held is None


@pytest.mark.failure_mode("F503")
def test_a_wait_for_a_group_ends_at_max_wait_with_the_reason() -> None:
    """The execution of another key runs for longer."""
    cell = Cell("objects", "machine", exclusive_by="{folder}/", max_wait=3 * 3600, execution_days=1)
    cell.submit()
    cell.turn()
    cell.submit_key("a/2")
    cell.run(minutes=12 * 60)
    waited = cell.row_of("a/2")
    assert (waited.status, waited.reason_code) == (Status.REJECTED, ReasonCode.MAX_WAIT)
    assert waited.reason is not None
    assert waited.reason.startswith("waited for 3 hours (max_wait): another key of the group a is in work since ")
    assert KEY not in waited.reason
    assert cell.known().status is Status.PROCESSED
    cell.redrive()
    cell.run()
    assert cell.row_of("a/2").status is Status.PROCESSED


@pytest.mark.failure_mode("F504")
def test_those_that_wait_for_a_group_do_not_block_others() -> None:
    """50 keys wait for an execution of six hours, and the queue delivers nothing while 20 messages are in flight."""
    cell = Cell("objects", "machine", exclusive_by="{folder}/", in_flight_limit=20)
    cell.submit()
    cell.turn()
    for number in range(50):
        cell.submit_key(f"a/{number}")
    cell.run(hours=0.5, minutes=6 * 60)
    started = cell.clock()
    cell.submit_key("ready/1")
    cell.run(hours=0.1, minutes=6 * 60)
    assert cell.begun == 2
    assert cell.row_of("ready/1").updated_at - started < MINUTE
    rows = [cell.row_of(f"a/{number}") for number in range(50)]
    assert {(row.status, row.attempts) for row in rows} == {(Status.FAILED, 0)}


def test_a_row_that_waits_for_its_group_has_no_execution_to_ask_about() -> None:
    cell = Cell("objects", "machine", exclusive_by="{folder}/")
    cell.submit()
    cell.turn()
    cell.submit_key("a/2")
    cell.turn()
    before = len(cell.local.requests)
    cell.clock.advance(45_000)
    assert cell.turn() == 2
    # That of the key that has the group.
    assert cell.local.requests[before:].count("describe_execution") == 1
    assert cell.row_of("a/2").reason_code == ReasonCode.GROUP_HELD


class Books:
    """A downstream whose accounts are read, and written later: two bookings at the same time would lose one."""

    def __init__(self, exclusive_by: str | None) -> None:
        self.balances = defaultdict[str, int](int)
        self.pipeline = LocalPipeline(self.book, exclusive_by=exclusive_by)
        self.meets = True

    def book(self, change: ObjectChange) -> Commit:
        account = change.key.split("/")[1]
        before = self.balances[account]
        if self.meets:
            # Another worker takes the next message meanwhile.
            self.meets = False
            self.pipeline.turn()
        self.balances[account] = before + int(change.read(100))
        return Commit()


@pytest.mark.parametrize(("exclusive_by", "balance"), [("book/{account}/", 30), (None, 10)])
def test_an_account_keeps_each_booking(exclusive_by: str | None, balance: int) -> None:
    """The example of docs/options.md. Without groups, the second booking is lost."""
    books = Books(exclusive_by)
    books.pipeline._batch_size = 1
    books.pipeline.put("book/acme/1", "10")
    books.pipeline.put("book/acme/2", "20")
    books.pipeline.run()
    assert books.balances["acme"] == balance
    assert len(books.pipeline.calls) == 2


@pytest.mark.failure_mode("F505")
@pytest.mark.parametrize("is_late", [True, False])
def test_a_late_worker_of_a_group_cannot_change_its_total(*, is_late: bool) -> None:
    """The recipe of docs/options.md: each booking puts its fence into the account before it reads."""
    accounts, late = dict[str, Any](balance=0, fence=0, booked={}), list[str]()
    pipeline: LocalPipeline

    def book(change: ObjectChange) -> None:
        assert change.group_fence is not None
        if accounts["fence"] > change.group_fence:
            raise RuntimeError("a later worker has the account")
        accounts["fence"] = change.group_fence
        booked = accounts["booked"] | {change.key: int(change.read(100))}
        if is_late and not late:
            # The worker pauses for longer than its lease, and another key of the account goes on.
            late.append(change.key)
            pipeline.clock.advance(HOUR)
            pipeline.turn()
        if accounts["fence"] != change.group_fence:
            raise RuntimeError("a later worker has the account")
        accounts.update(balance=sum(booked.values()), booked=booked)

    pipeline = LocalPipeline(book, exclusive_by="book/{account}/")
    pipeline._batch_size = 1
    pipeline.put("book/acme/1", "10")
    pipeline.put("book/acme/2", "20")
    pipeline.run()
    assert accounts["balance"] == 30
    assert not pipeline.dead_letters


@pytest.mark.failure_mode("F505")
def test_the_fence_of_a_group_grows_although_a_clock_is_behind() -> None:
    workers = Workers()
    ledger, lock = workers.ledger(), workers.locks()
    first = claimed(ledger, workers.upload("acme/1"))
    ledger.commit(first)
    workers.clock.advance(-MINUTE)
    second = claimed(workers.ledger(), workers.upload("acme/2"))
    assert second.row.fence < first.row.fence
    assert lock.fences(second)["group_fence"] == workers.lock("acme")["fence"] == first.row.fence + 1
    # A claim that continues an execution has not taken the lock itself.
    assert lock.fences(replace(second, lock_fence=None)) == {"group_fence": first.row.fence + 1}
    with pytest.raises(Fenced):
        lock.fences(replace(first, lock_fence=None))


@pytest.mark.parametrize("kind", ["objects", "sets"])
def test_an_execution_gets_the_fence_of_its_group(kind: str) -> None:
    cell = Cell(kind, "machine", exclusive_by="{folder}/")
    cell.submit()
    cell.turn()
    [execution] = cell.local.running()
    assert json.loads(execution.input)["groupFence"] > 0


def test_a_key_without_a_group_has_no_group_fence() -> None:
    fences = dict[str, int | None]()
    pipeline = LocalPipeline(lambda change: fences.update({change.key: change.group_fence}), exclusive_by="a/{b}/")
    pipeline.put("a/b/c", "")
    pipeline.put("a/c", "")
    pipeline.run()
    assert fences["a/b/c"]
    assert fences["a/c"] is None


def test_a_day_of_an_account_closes_while_no_other_day_of_it_does() -> None:
    """The example of docs/options.md: sets with groups."""
    closed, running = list[str](), Counter[str]()
    sets: LocalSets

    def close(files: Any) -> None:
        account = files.key.split("/")[1]
        assert not running[account]
        running[account] += 1
        if len(closed) == 0:
            sets.turn()
        running[account] -= 1
        closed.append(files.key)

    sets = LocalSets(close, marker="book/*/*/_CLOSED", exclusive_by="book/{account}/")
    sets._batch_size = 1
    for day in ("book/acme/1", "book/acme/2", "book/other/1"):
        sets.put(f"{day}/a", "10")
        sets.put(f"{day}/_CLOSED", "")
    sets.run()
    assert sorted(closed) == [f"book/{day}/_CLOSED" for day in ("acme/1", "acme/2", "other/1")]
