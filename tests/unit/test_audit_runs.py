"""Runs never overlap, and the next invocation finishes what one left; on DynamoDB in moto."""

import json
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING

import pytest

from intake_ledger.audit.diff import Finding
from intake_ledger.audit.listing import Place
from intake_ledger.audit.progress import Progress
from intake_ledger.audit.report import Report
from intake_ledger.audit.runs import CHECKPOINT_MS, KEPT_FINDINGS, AuditRuns, Held, LostRun, NotNow
from intake_ledger.audit.shown import Shown
from intake_ledger.audit.table import AuditTable
from intake_ledger.rows import STORED_STATUSES, Ordering, Row, RowKey, Status
from intake_ledger.states import ABSENT, StateKind
from intake_ledger.table import LedgerTable
from tests.unit.support import BUCKET, DAY, HOUR, MINUTE, PIPELINE, START, Clock, create_table

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

LEASE = 16 * MINUTE
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


@pytest.fixture
def make(dynamodb: "DynamoDBClient", table: str, clock: Clock) -> Make:
    """An invocation of this name, with a salt of its own for each fresh run."""
    salts = count(1)

    def new(owner: str) -> AuditRuns:
        return AuditRuns(
            dynamodb,
            table,
            bucket=BUCKET,
            pipeline=PIPELINE,
            clock=clock,
            owner=owner,
            new_salt=lambda: bytes([next(salts)]),
        )

    return new


def take(runs: AuditRuns, *, only_if_due: bool = False) -> Held:
    return runs.take(lease_ms=LEASE, only_if_due=only_if_due)


def filters(progress: Progress) -> tuple[Shown, Shown, Shown]:
    return progress.known.rows, progress.known.settled, progress.shown


def advance(runs: AuditRuns, held: Held, *, place: str) -> None:
    """As a page does."""
    held.progress.listing = Place("in/", place, "1")
    held.progress.report.listed += 1_000
    for one in filters(held.progress):
        one.add(RowKey(place, "p@latest"))
    runs.done(held.progress)


class TestLock:
    """F42: runs do not overlap."""

    @pytest.mark.parametrize("only_if_due", [True, False])
    def test_f42_while_one_works_others_do_not(self, make: Make, only_if_due: bool) -> None:
        """F42: neither the schedule's tick nor a person's call."""
        take(make("a"))
        with pytest.raises(NotNow):
            take(make("b"), only_if_due=only_if_due)

    def test_f42_the_lease_of_a_dead_invocation_runs_out(self, make: Make, clock: Clock) -> None:
        """F42: and no sooner."""
        take(make("a"))
        clock.advance(LEASE - 1)
        with pytest.raises(NotNow):
            take(make("b"))
        clock.advance(1)
        take(make("b"))

    @pytest.mark.parametrize("way", ["done", "keep", "stop", "finish", "give_back"])
    def test_whoever_outlived_its_lease_writes_nothing_any_more(self, make: Make, clock: Clock, way: str) -> None:
        """The successor's checkpoint must not be overwritten by an older one."""
        late = make("a")
        held = take(late)
        clock.advance(LEASE)
        take(make("b"))
        ways: dict[str, Callable[[], None]] = {
            "done": lambda: late.done(held.progress),
            "stop": lambda: late.stop(held.progress, due_at=0, anew=False),
            "keep": lambda: late.keep(held.progress.report),
            "finish": lambda: late.finish(due_at=0),
            "give_back": late.give_back,
        }
        with pytest.raises(LostRun):
            ways[way]()
        with pytest.raises(NotNow):
            take(make("c"))

    def test_another_pipeline_has_a_run_of_its_own(self, dynamodb: "DynamoDBClient", table: str, clock: Clock) -> None:
        """Two may share a table and a bucket."""
        for name in ("one", "other"):
            runs = AuditRuns(
                dynamodb, table, bucket=BUCKET, pipeline=name, clock=clock, owner="a", new_salt=lambda: b"1"
            )
            take(runs)


class TestContinuing:
    """F42: checkpoint, continue, finish."""

    def test_f42_a_stopped_run_goes_on_where_it_was(self, make: Make) -> None:
        """F42: with its counts, and with what the listing has shown."""
        first = make("a")
        held = take(first)
        advance(first, held, place="in/a")
        held.progress.report.listed += 17  # of a page that was not finished
        first.stop(held.progress, due_at=0, anew=False)
        again = take(make("b"), only_if_due=True).progress
        assert again.listing == Place("in/", "in/a", "1")
        assert (again.report.run_id, again.report.listed) == (held.progress.report.run_id, 1_000)
        for one in filters(again):
            assert one.has(RowKey("in/a", "p@latest"))
            assert not one.has(RowKey("in/b", "p@latest"))

    def test_f42_a_run_killed_half_way_is_finished_by_the_next(self, make: Make, clock: Clock) -> None:
        """F42: from its last checkpoint on, which is at most two minutes old."""
        first = make("a")
        held = take(first)
        advance(first, held, place="in/a")
        clock.advance(CHECKPOINT_MS)
        advance(first, held, place="in/b")
        clock.advance(CHECKPOINT_MS - 1)
        advance(first, held, place="in/c")
        clock.advance(LEASE)
        again = take(make("b")).progress
        assert again.listing == Place("in/", "in/b", "1")
        assert again.shown.has(RowKey("in/a", "p@latest"))

    def test_after_an_error_the_last_checkpoint_stands(self, make: Make, clock: Clock) -> None:
        """And nobody waits for the lease."""
        first = make("a")
        held = take(first)
        clock.advance(CHECKPOINT_MS)
        advance(first, held, place="in/a")
        first.give_back()
        assert take(make("b")).progress.listing == Place("in/", "in/a", "1")

    def test_a_finished_run_leaves_nothing(self, make: Make) -> None:
        """The next one begins at the beginning."""
        first = make("a")
        held = take(first)
        advance(first, held, place="in/a")
        first.stop(held.progress, due_at=0, anew=False)
        second = make("b")
        take(second)
        second.finish(due_at=0)
        again = take(make("c")).progress
        assert (again.listing, again.listed, again.scanned, again.report.listed) == (None, False, None, 0)
        assert not again.shown.has(RowKey("in/a", "p@latest")), "another salt's parts are not taken over"

    def test_what_an_earlier_run_was_shown_is_not_taken_over(self, make: Make) -> None:
        """Its parts still lie there; a key that was removed since then would count as shown."""
        first = make("a")
        held = take(first)
        advance(first, held, place="in/a")
        first.stop(held.progress, due_at=0, anew=False)
        second = make("b")
        take(second)
        second.finish(due_at=0)
        third = make("c")
        third.stop(take(third).progress, due_at=0, anew=False)
        again = take(make("d")).progress
        for old, now in zip(filters(held.progress), filters(again), strict=True):
            assert old.has(RowKey("in/a", "p@latest"))
            assert old.salt != now.salt
            assert list(now.parts()) == []

    def test_findings_of_a_page_that_was_not_finished_are_found_again(self, make: Make) -> None:
        """A checkpoint says what was done by then, not what the report went on to say."""
        first = make("a")
        held = take(first)
        advance(first, held, place="in/a")
        held.progress.report.found("in/b", Finding.MISSING, ABSENT)
        first.stop(held.progress, due_at=0, anew=False)
        assert take(make("b")).progress.report.findings == []

    def test_the_rest_of_a_budget_is_a_run_of_its_own(self, make: Make, clock: Clock) -> None:
        """With counts and a budget of its own, from where the last one stopped."""
        first = make("a")
        held = take(first)
        advance(first, held, place="in/a")
        first.stop(held.progress, due_at=START + DAY, anew=True)
        clock.advance(DAY)
        again = take(make("b"), only_if_due=True).progress
        assert again.listing == Place("in/", "in/a", "1")
        assert again.report == Report(str(clock()), clock())
        assert again.shown.has(RowKey("in/a", "p@latest"))
        assert not again.known.complete
        assert not again.known.has(RowKey("in/a", "p@latest")), "what the ledger has committed is read anew"

    def test_rows_that_were_read_are_not_read_again(self, make: Make, clock: Clock) -> None:
        """Nor stored again, once they are complete."""
        first = make("a")
        held = take(first)
        known = held.progress.known
        for number in range(3):
            known.add(RowKey(f"uploads/{number}", "p@latest"), "v#1" if number else None)
        known.after, known.complete = RowKey("uploads/2", "p@latest"), True
        first.done(held.progress)
        clock.advance(CHECKPOINT_MS)
        first.done(held.progress)
        known.add(RowKey("uploads/later", "p@latest"), None)
        first.stop(held.progress, due_at=0, anew=False)
        again = take(make("b")).progress.known
        assert (again.count, again.after, again.complete) == (3, known.after, True)
        assert again.agrees(RowKey("uploads/1", "p@latest"), "v#1")
        assert again.has(RowKey("uploads/0", "p@latest"))
        assert not again.agrees(RowKey("uploads/0", "p@latest"), "v#1")
        assert not again.has(RowKey("uploads/later", "p@latest"))

    @pytest.mark.parametrize("which", ["rows", "settled", "shown"])
    def test_f42_a_part_of_a_filter_that_is_gone_hides_no_loss(
        self, make: Make, dynamodb: "DynamoDBClient", table: str, which: str
    ) -> None:
        """F42: TTL may have taken it. Where a lost removal would stay unnoticed, the rows are read again; the others
        cost requests and no more. The listing goes on where it was.
        """
        first = make("a")
        held = take(first)
        advance(first, held, place="in/a")
        held.progress.known.after, held.progress.known.complete = RowKey("in/a", "p@latest"), True
        first.done(held.progress)
        first.stop(held.progress, due_at=0, anew=False)
        parts = [item for item in dynamodb.scan(TableName=table)["Items"] if f"#{which}#" in item["sk"]["S"]]
        dynamodb.delete_item(TableName=table, Key={name: parts[0][name] for name in ("pk", "sk")})
        again = take(make("b")).progress
        assert again.listing == Place("in/", "in/a", "1")
        assert again.known.complete is (which != "rows")
        assert [one.has(RowKey("in/a", "p@latest")) for one in filters(again)] == {
            "rows": [False, False, True],
            "settled": [True, False, True],
            "shown": [True, True, False],
        }[which]

    def test_f42_parts_of_another_runs_rows_are_none(self, make: Make, clock: Clock) -> None:
        """F42: what was stored of a reading that has just begun anew is not taken for the one that was complete."""
        first = make("a")
        held = take(first)
        advance(first, held, place="in/a")
        held.progress.known.complete = True
        first.done(held.progress)
        first.stop(held.progress, due_at=0, anew=False)
        # As it is when somebody dies between the filters and the checkpoint.
        other, anew = make("b"), Shown(b"anew")
        take(other)
        for number, part in held.progress.known.rows.parts():
            anew.restore(number, part)
        other._store_filter("rows", anew)
        clock.advance(LEASE)
        assert not take(make("c")).progress.known.complete


class TestDue:
    """The schedule ticks more often than runs are due."""

    def test_a_tick_before_the_time_does_nothing(self, make: Make, clock: Clock) -> None:
        """A person's call does not wait."""
        first = make("a")
        take(first, only_if_due=True)
        first.finish(due_at=START + DAY)
        with pytest.raises(NotNow):
            take(make("b"), only_if_due=True)
        by_hand = make("c")
        take(by_hand)
        by_hand.finish(due_at=None)
        clock.advance(DAY - 1)
        with pytest.raises(NotNow):
            take(make("d"), only_if_due=True)
        clock.advance(1)
        take(make("e"), only_if_due=True)

    def test_f41_the_first_run_is_remembered(self, make: Make, clock: Clock) -> None:
        """F41: the baseline is the time of the first run for good; a dry run does not set it."""
        assert make("look").since() == START
        clock.advance(HOUR)
        first = make("a")
        assert take(first).since == START + HOUR
        first.finish(due_at=0)
        clock.advance(30 * DAY)
        assert take(make("b")).since == START + HOUR
        assert make("look").since() == START + HOUR


class TestTable:
    """Going through all rows."""

    @pytest.fixture
    def ledger(self, dynamodb: "DynamoDBClient", table: str, make: Make, clock: Clock) -> AuditTable:
        rows = LedgerTable(dynamodb, table)
        for number, status in enumerate(STORED_STATUSES):
            rows.insert(
                RowKey(f"{BUCKET}/{number}", f"{PIPELINE}@latest"),
                Row(status, 1, version_id=f"{number}", size=5, committed_state="v#0"),
            )
            rows.insert(RowKey(f"{BUCKET}/{number}", f"{PIPELINE}@v#1"), Row(status, 1, kind=StateKind.DELETED))
            rows.insert(RowKey(f"{BUCKET}/{number}", f"{PIPELINE}-2@v#1"), Row(status, 1))
        runs = make("a")
        held = take(runs)
        clock.advance(CHECKPOINT_MS)
        advance(runs, held, place="in/a")
        return AuditTable(dynamodb, table)

    def test_rows_of_one_sort_key(self, ledger: AuditTable) -> None:
        """As LATEST has them; from any row on."""
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
        """As EVERY_VERSION has them: the run's own items and another pipeline's rows are left out."""
        (page,) = ledger.held(PIPELINE, Ordering.EVERY_VERSION)
        gone = [row for row in page.rows if row.may_be_gone]
        half_done = {f"{BUCKET}/{STORED_STATUSES.index(one)}" for one in (Status.PROCESSING, Status.FAILED)}
        assert {row.row_key.pk for row in gone} == half_done
        assert {row.row_key.sk for row in gone} == {f"{PIPELINE}@latest", f"{PIPELINE}@v#1"}
        # What became of them is the row's to say.
        assert [row for row in page.rows if row.state is not None] == gone


def test_the_last_report_stays_with_a_few_of_its_findings(make: Make, dynamodb: "DynamoDBClient", table: str) -> None:
    """The item is written at every tick: it must not carry a hundred keys of a kilobyte each."""
    first = make("a")
    held = take(first)
    for number in range(KEPT_FINDINGS + 5):
        held.progress.report.found(f"in/{number}", Finding.MISSING, ABSENT)
    first.keep(held.progress.report)
    first.finish(due_at=0)
    take(make("b"))
    item = dynamodb.get_item(TableName=table, Key={"pk": {"S": BUCKET}, "sk": {"S": f"{PIPELINE}@audit"}})["Item"]
    last = json.loads(item["last_report"]["S"])
    assert (len(last["findings"]), last["counts"]["missing"]) == (KEPT_FINDINGS, KEPT_FINDINGS + 5)
