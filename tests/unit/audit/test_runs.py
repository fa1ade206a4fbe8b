"""Runs never overlap, and begin when they are due; on DynamoDB in moto."""

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

from intake_ledger.audit.diff import Finding
from intake_ledger.audit.report import SOON, Report, Stopped
from intake_ledger.audit.runs import KEPT_FINDINGS, MOST_REPEATS, AuditRuns, RunLeaseLost, RunNotDue
from intake_ledger.audit.table import AuditTable
from intake_ledger.ledger.dynamodb_table import LedgerTable
from intake_ledger.protocol.change import ABSENT, StateKind
from intake_ledger.protocol.row import STORED_STATUSES, Ordering, Row, RowKey, Status
from intake_ledger.protocol.settings_audit import AuditSettings
from tests.settings import AUDIT
from tests.unit.support import BUCKET, DAY, HOUR, MINUTE, PIPELINE, START, Clock, create_table

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

LEASE = 16 * MINUTE
GIVEN_UP = "the backfill was given up after 9 days"
_TABLES = count(1)

Make = Callable[[str], AuditRuns]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def table(dynamodb: "DynamoDBClient") -> str:
    name = f"audit-{next(_TABLES)}"
    create_table(dynamodb, name)
    return name


def settings(table: str, pipeline: str = PIPELINE) -> AuditSettings:
    return replace(AUDIT, table=table, bucket=BUCKET, pipeline=pipeline)


@pytest.fixture
def make(dynamodb: "DynamoDBClient", table: str, clock: Clock) -> Make:
    """An invocation of this name."""

    def new(owner: str) -> AuditRuns:
        return AuditRuns(dynamodb, settings(table), clock=clock, owner=owner)

    return new


def take(runs: AuditRuns, *, only_if_due: bool = False) -> int:
    return runs.take(lease_ms=LEASE, only_if_due=only_if_due)


def report(clock: Clock, **more: Any) -> Report:
    return Report("run", clock(), **more)


class TestLock:
    """F42: runs do not overlap."""

    @pytest.mark.failure_mode("F42")
    @pytest.mark.parametrize("only_if_due", [True, False])
    def test_while_one_works_others_do_not(self, make: Make, only_if_due: bool) -> None:
        """Neither the schedule's tick nor a person's call."""
        take(make("a"))
        with pytest.raises(RunNotDue):
            take(make("b"), only_if_due=only_if_due)

    @pytest.mark.failure_mode("F42")
    def test_the_lease_of_a_dead_invocation_runs_out(self, make: Make, clock: Clock) -> None:
        """And no sooner."""
        take(make("a"))
        clock.advance(LEASE - 1)
        with pytest.raises(RunNotDue):
            take(make("b"))
        clock.advance(1)
        take(make("b"))

    @pytest.mark.parametrize("way", ["finish", "give_back"])
    def test_whoever_outlived_its_lease_writes_nothing_any_more(self, make: Make, clock: Clock, way: str) -> None:
        """The report and the lease are the successor's."""
        late = make("a")
        take(late)
        clock.advance(LEASE)
        take(make("b"))
        with pytest.raises(RunLeaseLost):
            late.give_back() if way == "give_back" else late.finish(report(clock), every_seconds=60)
        with pytest.raises(RunNotDue):
            take(make("c"))

    def test_another_pipeline_has_a_run_of_its_own(self, dynamodb: "DynamoDBClient", table: str, clock: Clock) -> None:
        """Two may share a table and a bucket."""
        for name in ("one", "other"):
            take(AuditRuns(dynamodb, settings(table, name), clock=clock, owner="a"))


class TestDue:
    """The schedule ticks more often than runs are due."""

    def test_a_tick_before_the_time_does_nothing(self, make: Make, clock: Clock) -> None:
        """A person's call does not wait."""
        first = make("a")
        take(first, only_if_due=True)
        first.finish(report(clock), every_seconds=DAY // 1000)
        with pytest.raises(RunNotDue):
            take(make("b"), only_if_due=True)
        by_hand = make("c")
        take(by_hand)
        by_hand.finish(report(clock), every_seconds=None)
        clock.advance(DAY - 60_000 - 1)
        with pytest.raises(RunNotDue):
            take(make("d"), only_if_due=True)
        clock.advance(1)
        take(make("e"), only_if_due=True)

    @pytest.mark.failure_mode("F119")
    @pytest.mark.parametrize("stopped", sorted(SOON))
    def test_a_run_that_was_stopped_is_repeated_a_few_times(self, make: Make, clock: Clock, stopped: Stopped) -> None:
        """At the next ticks, and then after the interval: a message that SQS never takes costs four runs."""
        for number in range(MOST_REPEATS + 1):
            runs = make(f"{number}")
            take(runs, only_if_due=True)
            runs.finish(report(clock, stopped=stopped), every_seconds=DAY // 1000)
        with pytest.raises(RunNotDue):
            take(make("b"), only_if_due=True)
        clock.advance(DAY)
        runs = make("c")
        take(runs, only_if_due=True)
        runs.finish(report(clock), every_seconds=60)
        clock.advance(DAY)
        take(make("d"), only_if_due=True)

    @pytest.mark.failure_mode("F31")
    def test_a_run_that_was_held_back_is_repeated_until_it_is_not(self, make: Make, clock: Clock) -> None:
        """States that were left to a backlog are judged again at the next tick."""
        for number in range(2 * MOST_REPEATS):
            runs = make(f"{number}")
            take(runs, only_if_due=True)
            runs.finish(report(clock, held="the queue is 2.0 hours behind"), every_seconds=DAY // 1000)

    @pytest.mark.failure_mode("F41")
    def test_the_first_run_is_remembered(self, make: Make, clock: Clock) -> None:
        """The baseline is the time of the first run for good; a dry run does not set it."""
        assert make("look").since() == START
        clock.advance(HOUR)
        first = make("a")
        assert take(first) == START + HOUR
        first.finish(report(clock), every_seconds=60)
        clock.advance(30 * DAY)
        assert take(make("b")) == START + HOUR
        assert make("look").since() == START + HOUR

    @pytest.mark.failure_mode("F41")
    @pytest.mark.parametrize("keeps_rows", [True, False])
    def test_a_backfill_never_outlasts_its_first_rows(self, make: Make, clock: Clock, keeps_rows: bool) -> None:
        """Objects whose rows have expired would be processed again. A ledger with all rows keeps its rows."""
        told = replace(AUDIT, backfills=True, keeps_rows=keeps_rows, retention_seconds=10 * DAY // 1000)
        for days, due in ((0, True), (9 * DAY - 1, True), (9 * DAY, keeps_rows)):
            clock.now = START + days
            runs = make(f"{days}")
            take(runs)
            backfill, problems = runs.backfill(told)
            assert backfill is due
            assert [problem.partition(",")[0] for problem in problems] == ([] if due else [GIVEN_UP])
            runs.finish(report(clock, stopped=Stopped.MORE), every_seconds=60, backfill=backfill)
        assert make("d").backfill(replace(told, backfills=False)) == (False, [])


class TestTable:
    """Going through all rows."""

    @pytest.fixture
    def ledger(self, dynamodb: "DynamoDBClient", table: str, make: Make) -> AuditTable:
        rows = LedgerTable(dynamodb, table)
        for number, status in enumerate(STORED_STATUSES):
            rows.insert(
                RowKey(f"{BUCKET}/{number}", f"{PIPELINE}@latest"),
                Row(status, 1, version_id=f"{number}", size=5, committed_state="v#0"),
            )
            rows.insert(RowKey(f"{BUCKET}/{number}", f"{PIPELINE}@v#1"), Row(status, 1, kind=StateKind.DELETED))
            rows.insert(RowKey(f"{BUCKET}/{number}", f"{PIPELINE}-2@v#1"), Row(status, 1))
        take(make("a"))
        return AuditTable(dynamodb, table)

    def test_rows_of_one_sort_key(self, ledger: AuditTable) -> None:
        """Rows of LATEST, from any row on."""
        (page,) = ledger.held(PIPELINE, Ordering.LATEST)
        assert {row.row_key.pk for row in page.rows} == {f"{BUCKET}/{number}" for number in range(4)}
        settled = STORED_STATUSES.index(Status.PROCESSED)
        committed = {f"{BUCKET}/{number}": "v#0" if number == settled else None for number in range(4)}
        assert {row.row_key.pk: row.committed for row in page.rows} == committed
        assert page.after is None
        (rest,) = ledger.held(PIPELINE, Ordering.LATEST, page.rows[0].row_key)
        assert rest.rows == page.rows[1:]
        assert all(row.may_be_gone for row in page.rows)

    def test_rows_of_every_version(self, ledger: AuditTable) -> None:
        """All of this pipeline's, and no item of a run; a version that was given up has committed nothing."""
        (page,) = ledger.held(PIPELINE, Ordering.EVERY_VERSION)
        assert {row.row_key.sk for row in page.rows} == {f"{PIPELINE}@latest", f"{PIPELINE}@v#1"}
        assert {row.committed for row in page.rows if row.row_key.sk.endswith("v#1")} == {None}

    def test_half_done_rows_of_a_pipeline(self, ledger: AuditTable) -> None:
        """Rows of EVERY_VERSION, without the run's items and another pipeline's rows."""
        (page,) = ledger.held(PIPELINE, Ordering.EVERY_VERSION)
        gone = [row for row in page.rows if row.may_be_gone]
        half_done = {f"{BUCKET}/{STORED_STATUSES.index(status)}" for status in (Status.PROCESSING, Status.FAILED)}
        assert {row.row_key.pk for row in gone} == half_done
        assert {row.row_key.sk for row in gone} == {f"{PIPELINE}@latest", f"{PIPELINE}@v#1"}
        # What became of them is the row's to say.
        assert [row for row in page.rows if row.state is not None] == gone


def test_the_last_report_stays_with_a_few_of_its_findings(
    make: Make, dynamodb: "DynamoDBClient", table: str, clock: Clock
) -> None:
    """The item is written at every tick: it must not carry a hundred keys of a kilobyte each."""
    runs, made = make("a"), report(clock)
    take(runs)
    for number in range(KEPT_FINDINGS + 5):
        made.found(f"in/{number}", Finding.MISSING, ABSENT)
    runs.finish(made, every_seconds=60)
    item = dynamodb.get_item(TableName=table, Key={"pk": {"S": BUCKET}, "sk": {"S": f"{PIPELINE}@audit"}})["Item"]
    last = json.loads(item["last_report"]["S"])
    assert (len(last["findings"]), last["counts"]["missing"]) == (KEPT_FINDINGS, KEPT_FINDINGS + 5)
