"""The audit in parts, as the state machine calls it, with S3, SQS and DynamoDB in moto."""

import json
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any, cast

import boto3
import pytest

from intake_ledger.audit import in_parts, shown
from intake_ledger.audit.compare import STOP_BEFORE_MS
from intake_ledger.audit.diff import Window
from intake_ledger.audit.handed import HandedOn
from intake_ledger.audit.in_parts import ADDED_UP, AuditInParts, Judgement, Step, Tools, Warm, _order
from intake_ledger.audit.inventory import InventoryError
from intake_ledger.audit.report import Report
from intake_ledger.audit.runs import CHECKPOINT_MS, AuditRuns, NotNow
from intake_ledger.rows import Ordering, Row, Status, row_key
from intake_ledger.settings import AuditSettings, KeyFilter
from intake_ledger.states import State, StateKind, identity_of
from intake_ledger.table import LedgerTable
from tests.unit import test_audit_function as whole
from tests.unit.audit_support import FakeSQS, PagedS3
from tests.unit.support import BUCKET, DAY, HOUR, PIPELINE, Clock, create_table
from tests.unit.test_audit_inventory import as_csv, manifest

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

deployed = whole.deployed
_NUMBERS = count(1)
SHARDS, SEGMENTS = 3, 2


class S3(PagedS3):
    """The intake bucket is paged; the reports of its inventory are in moto."""

    def __getattr__(self, name: str) -> Any:
        return getattr(boto3.client("s3"), name)

    def get_paginator(self, operation: str) -> Any:
        return super().get_paginator(operation) if operation == "list_object_versions" else self._reports(operation)

    def _reports(self, operation: str) -> Any:
        return boto3.client("s3").get_paginator(operation)  # type: ignore[call-overload]


class World:
    """One pipeline, and the state machine's part in Python."""

    def __init__(self, dynamodb: "DynamoDBClient") -> None:
        self.table = f"parts-{next(_NUMBERS)}"
        self.clock = Clock()
        self.dynamodb = dynamodb
        # Small pages, so that a small bucket has several.
        self.s3, self.sqs = S3(self.clock, page_size=4), FakeSQS()
        create_table(dynamodb, self.table)
        self.ledger = LedgerTable(dynamodb, self.table)
        self.held = ""
        self.warm = Warm()
        self.settings = AuditSettings(
            pipeline=PIPELINE,
            bucket=BUCKET,
            bucket_owner=None,
            table=self.table,
            queue_url="https://sqs/queue",
            ordering=Ordering.LATEST,
            deletes=True,
            retention_seconds=35 * DAY // 1000,
            clock_skew_seconds=120,
            settle_seconds=3_600,
            look_back_seconds=14 * DAY // 1000,
            budget=1_000,
            filters=(),
        )

    def tools(self) -> Tools:
        salts = count(1)
        now = self.clock()
        return Tools(
            settings=self.settings,
            s3=cast("Any", self.s3),
            sqs=cast("Any", self.sqs),
            dynamodb=self.dynamodb,
            clock=self.clock,
            new_salt=lambda: bytes([next(salts)]),
            judge=lambda _: Judgement(Window(now - HOUR, now - 14 * DAY), resubmit=True, held=self.held),
            delivery=lambda: ["the rule is disabled"],
            warm=self.warm,
        )

    def run(self, name: str) -> AuditInParts:
        return AuditInParts(self.tools(), name)

    def plan(self, name: str = "run", **asked: Any) -> dict[str, Any]:
        event = {"input": asked, "leaseSeconds": 86_400, "parts": SHARDS, "segments": SEGMENTS}
        return self.run(name).plan(event)

    def step(self, step: Step, planned: dict[str, Any], *, without: int | None = None) -> None:
        """All parts of one step, each until it is done, as the map does it; one may fail for good."""
        for number in planned["parts" if step is Step.LIST else "segments"]:
            while number != without and not self.run(planned["run"]).work(step, number, lambda: 900_000):
                pass

    def audit(self, name: str = "run", **asked: Any) -> Report:
        planned = self.plan(name, **asked)
        for step in Step:
            self.step(step, planned)
        return self.run(name).finish()

    def put(self, key: str) -> State:
        return self.s3.put(key)

    def commit(self, key: str, state: State) -> None:
        committed = identity_of(state.kind, state.version_id, state.etag)
        at = self.clock() - 6 * HOUR
        row = Row(Status.PROCESSED, 7, version_id=state.version_id, committed_state=committed, updated_at=at)
        self.ledger.insert(row_key(PIPELINE, self.settings.ordering, BUCKET, key, state.identity), row)

    def processed(self, *keys: str) -> None:
        for key in keys:
            self.commit(key, self.put(key))

    def sent(self) -> list[str]:
        """The keys of the messages that were sent since the last time."""
        found, self.sqs.bodies = sorted(body["key"] for body in self.sqs.bodies), []
        return found


@pytest.fixture(autouse=True)
def small_filters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of four places in place of 128: moto takes its time for each request."""
    for module in (shown, in_parts):
        monkeypatch.setattr(module, "PARTS", 4)


@pytest.fixture
def world(dynamodb: "DynamoDBClient") -> World:
    return World(dynamodb)


def names(number: int = 20) -> list[str]:
    return [f"in/{n:03d}.csv" for n in range(number)]


def test_few_shards_are_found_behind_a_long_common_beginning(world: World) -> None:
    """Dated folders and zero-filled numbers: the way to where the keys part takes more looks than two shards bring."""
    world.processed(*(f"in/2026/11/document-{number:010}" for number in range(60)))
    event = {"input": {}, "leaseSeconds": 86_400, "parts": 2, "segments": SEGMENTS}
    assert sorted(world.run("run").plan(event)["parts"]) == [0, 1]


def test_f39_what_was_lost_is_found_exactly_wherever_it_is(world: World) -> None:
    """F39: an upload, an overwrite, a marker and a row of a key that is gone, in different shards; once each."""
    keys = names()
    world.processed(*keys)
    world.put("in/003-lost.csv")
    world.put("in/007.csv")
    world.s3.mark("in/015.csv")
    del world.s3.keys["in/010.csv"]
    report = world.audit(everySeconds=86_400)
    assert world.sent() == ["in/003-lost.csv", "in/007.csv", "in/010.csv", "in/015.csv"]
    assert report.counts == {"missing": 1, "overtaken": 1, "removed": 2}
    # The two versions of one key are entries of which one is current.
    assert (report.listed, report.checked, report.resubmitted) == (20, 21, 4)
    assert (report.complete, report.unfinished, report.delivery) == (True, [], ["the rule is disabled"])
    assert len(world.plan("another", dryRun=True)["parts"]) == SHARDS


def test_f31_a_second_run_resubmits_nothing(world: World) -> None:
    """F31: the marks are on the rows, whichever part comes to them."""
    world.put("lost")
    world.audit("first")
    assert world.sent() == ["lost"]
    report = world.audit("second")
    assert (report.counts, report.resubmitted, world.sent()) == ({"missing": 1}, 0, [])


def test_no_head_for_what_another_shard_has_shown(world: World) -> None:
    """The filters of all shards add up, and those of all segments."""
    world.processed(*names())
    report = world.audit()
    assert (world.s3.heads, report.counts, report.checked) == ([], {}, 20)


def test_f42_runs_do_not_overlap(world: World) -> None:
    """F42: nor does a planner that is called again see its own run as another's."""
    world.put("lost")
    first = world.plan("first")
    with pytest.raises(NotNow):
        world.plan("second")
    assert sorted(world.plan("first")["parts"]) == sorted(first["parts"])
    for step in Step:
        world.step(step, first)
    world.run("first").finish()
    world.plan("second")


def test_the_next_run_is_due_after_the_interval(world: World) -> None:
    """The schedule ticks more often; a person's own run does not wait."""
    world.audit("first", everySeconds=86_400)
    with pytest.raises(NotNow):
        world.plan("second", everySeconds=86_400)
    world.audit("by-hand")
    world.clock.advance(DAY)
    world.plan("third", everySeconds=86_400)


def test_f42_a_part_that_is_out_of_time_is_continued(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """F42: from its last page on, with its counts and with what it was shown; likewise for the rows."""
    monkeypatch.setattr("tests.unit.test_audit_in_parts.SHARDS", 1)
    world.processed(*names())
    world.put("in/lost.csv")
    planned = world.plan()
    calls = 0
    for step in Step:
        for number in planned["parts" if step is Step.LIST else "segments"]:
            done = False
            while not done:
                calls += 1
                # One page or two, then the time is up.
                left = iter([STOP_BEFORE_MS] * 3)
                done = world.run("run").work(step, number, lambda left=left: next(left, 0))  # type: ignore[misc]
    report = world.run("run").finish()
    assert calls > 5
    assert (report.listed, report.checked, report.counts) == (21, 21, {"missing": 1})
    assert world.sent() == ["in/lost.csv"]


def test_f42_a_part_that_died_goes_on_where_it_was_stored(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """F42: the state machine calls again; what was sent before the death is not sent twice."""
    world.put("a-lost.csv")
    world.processed(*names())
    planned = world.plan()
    for step in (Step.READ, Step.KNOWN):
        world.step(step, planned)
    run = world.run("run")
    monkeypatch.setattr(run._parts, "save", lambda *_: (_ for _ in ()).throw(RuntimeError("killed")))
    for number in planned["parts"]:
        with pytest.raises(RuntimeError, match="killed"):
            run.work(Step.LIST, number, lambda: 900_000)
    for step in list(Step)[2:]:
        world.step(step, planned)
    assert world.sent() == ["a-lost.csv"]
    assert world.run("run").finish().complete


@pytest.mark.parametrize(
    ("step", "named"),
    [
        (Step.READ, "segment 0 of the ledger's rows was not read"),
        (Step.LIST, "keys from the beginning up to 'in/0"),
        (Step.KNOWN, "what was read was not added up, share 0"),
        (Step.SHOWN, "what was listed was not added up, share 0"),
        (Step.SCAN, "segment 0 of the ledger's rows was not looked through for keys that are gone"),
    ],
)
def test_a_part_that_fails_for_good_is_named(world: World, step: Step, named: str) -> None:
    """The run says what is missing, keeps nobody away, and asks S3 about nothing that was not listed."""
    world.processed(*names())
    planned = world.plan(everySeconds=86_400)
    for phase in Step:
        world.step(phase, planned, without=0 if phase is step else None)
    report = world.run("run").finish()
    assert not report.complete
    assert len(report.unfinished) == 1
    assert report.unfinished[0].startswith(named)
    assert "not all of it was audited" in report.summary(world.clock())
    assert (report.counts, world.sent(), world.s3.heads) == ({}, [], [])
    world.clock.advance(DAY)
    assert world.audit("next", everySeconds=86_400).complete


def test_f42_adding_up_that_is_out_of_time_is_continued(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """F42: there may be 10,000 parts to add up, a few places at a time."""
    monkeypatch.setattr(in_parts, "parts_for", lambda _: 4)
    world.processed(*names())
    planned = world.plan()
    calls = 0
    for step in Step:
        if step not in ADDED_UP:
            world.step(step, planned)
            continue
        for number in planned["segments"]:
            done = False
            while not done:
                calls += 1
                left = iter([STOP_BEFORE_MS])
                done = world.run("run").work(step, number, lambda left=left: next(left, 0))  # type: ignore[misc]
    report = world.run("run").finish()
    # Two places each, one in a call.
    assert calls == 2 * len(ADDED_UP) * SEGMENTS
    assert (report.complete, report.counts, world.s3.heads) == (True, {}, [])


def test_a_warm_environment_reads_the_rows_filters_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many shards it is called for; and goes by none of another run, whose rows are others."""
    read: list[str] = []
    begin = HandedOn.begin_all

    def noted(self: HandedOn, name: str, content: shown.Shown) -> None:
        read.append(name)
        begin(self, name, content)

    monkeypatch.setattr(HandedOn, "begin_all", noted)
    world.processed(*names())
    world.audit("first")
    assert sorted(read) == ["rows", "settled", *["shown"] * SEGMENTS]
    planned = world.plan("cold")
    for step in Step:
        if step is Step.SCAN:
            read.clear()
            world.warm = Warm()
        world.step(step, planned)
    # Whoever only looks for what is gone need not know what was committed.
    assert sorted(read) == ["rows", *["shown"] * SEGMENTS]
    world.run("cold").finish()
    world.processed("in/new", "in/old")
    del world.s3.keys["in/new"]
    assert world.audit("second").counts == {"removed": 1}
    assert world.sent() == ["in/new"]


def test_f42_adding_up_that_dies_goes_on_where_it_was_stored(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """F42: every two minutes, as everything else."""
    monkeypatch.setattr(in_parts, "parts_for", lambda _: 4)
    world.processed(*names())
    planned = world.plan()
    world.step(Step.READ, planned)
    added: list[int] = []
    add_up = HandedOn.add_up

    def slowly(self: HandedOn, name: str, at: int, **sizes: int) -> None:
        if len(added) == 3:
            raise RuntimeError("killed")
        add_up(self, name, at, **sizes)
        added.append(at)
        world.clock.advance(CHECKPOINT_MS)

    monkeypatch.setattr(HandedOn, "add_up", slowly)
    with pytest.raises(RuntimeError, match="killed"):
        world.run("run").work(Step.KNOWN, 0, lambda: 900_000)
    assert added == [0, 0, 2]
    added_at: list[int] = []

    def noted(self: HandedOn, name: str, at: int, **sizes: int) -> None:
        added_at.append(at)
        add_up(self, name, at, **sizes)

    monkeypatch.setattr(HandedOn, "add_up", noted)
    for step in list(Step)[1:]:
        world.step(step, planned)
    # The first place, both of whose filters were added up, is not among what was done again.
    assert added_at[:2] == [2, 2]
    assert world.run("run").finish().complete


def test_a_run_of_the_release_before_is_left_incomplete(world: World) -> None:
    """Its state machine goes on without adding up: nothing is compared with filters that nobody has added up."""
    world.processed(*names())
    planned = world.plan()
    items = world.dynamodb.scan(TableName=world.table)["Items"]
    for item in items:
        if item["pk"]["S"].endswith(("#known", "#shown")):
            world.dynamodb.delete_item(TableName=world.table, Key={name: item[name] for name in ("pk", "sk")})
    for step in (Step.READ, Step.LIST, Step.SCAN):
        world.step(step, planned)
    report = world.run("run").finish()
    assert (report.complete, report.counts, world.sent()) == (False, {}, [])
    assert len(report.unfinished) == SHARDS


def test_the_budget_is_the_runs_not_each_parts(world: World) -> None:
    """And what is left over is the next run's."""
    world.settings = replace(world.settings, budget=7)
    keys = names()
    for key in keys:
        world.put(key)
    report = world.audit("first")
    assert (report.resubmitted, report.complete) == (7, False)
    assert "budget" in report.summary(world.clock())
    first = world.sent()
    world.audit("second")
    second = world.sent()
    assert len({*first, *second}) == 14


def test_a_dry_run_changes_nothing(world: World) -> None:
    """It needs not be due, holds nothing, sends nothing and marks nothing."""
    world.put("lost")
    world.plan("at-work")
    report = world.audit("look", dryRun=True)
    assert (report.counts, report.dry_run, world.sent()) == ({"missing": 1}, True, [])
    items = world.dynamodb.scan(TableName=world.table)["Items"]
    assert not [item for item in items if "audit_resubmitted_state" in item]


def test_all_that_a_run_writes_down_expires_and_is_no_row(world: World) -> None:
    """The table is the ledger's."""
    world.processed(*names(5))
    world.audit()
    items = world.dynamodb.scan(TableName=world.table)["Items"]
    own = [item for item in items if "/" not in item["pk"]["S"]]
    (held,) = [item for item in own if item["pk"]["S"] == BUCKET]
    assert "lease_owner" not in held
    rest = [item for item in own if item is not held]
    assert rest
    assert not [item for item in rest if "status" in item or int(item["expires_at"]["N"]) < world.clock() // 1000]


def test_f47_only_what_passes_the_filters_is_divided(world: World) -> None:
    """F47: each prefix for itself; rows beside them are nobody's business."""
    world.settings = replace(world.settings, filters=(KeyFilter("in/", ".csv"), KeyFilter("more/")))
    for key in [*names(8), "out/a.csv", "in/x.txt", "more/a"]:
        world.put(key)
    world.commit("out/gone.csv", State(StateKind.OBJECT, "1", "1", 1))
    world.audit()
    assert world.sent() == [*names(8), "more/a"]


def test_each_version_of_a_key_is_in_one_shard(world: World) -> None:
    """Whatever the edges are: a key with more versions than a page."""
    world.settings = replace(world.settings, ordering=Ordering.EVERY_VERSION)
    for key in names(8):
        world.put(key)
    for _ in range(9):
        world.put("in/007.csv")
    report = world.audit()
    assert (report.listed, report.counts) == (17, {"missing": 17})
    assert len(world.sent()) == 17


def test_what_was_left_to_a_backlog_is_said(world: World) -> None:
    """By any part that saw it."""
    world.held = "the queue is 2.0 hours behind"
    world.processed(*names(5))
    assert world.audit().held == "the queue is 2.0 hours behind"


def test_the_heaviest_shares_come_first_and_others_of_about_their_weight_in_any_order() -> None:
    """Whoever is last has little to do; and who may find the budget used up is not the same in every run."""
    shares = [{"weight": 1}, *({"weight": 1_000 + n} for n in range(10)), {"weight": 20}]
    orders = [_order(shares) for _ in range(20)]
    assert {tuple(order[-2:]) for order in orders} == {(11, 0)}
    assert len({order[0] for order in orders}) > 1
    assert sorted(_order([{"file": "a"}, {"file": "b"}])) == [0, 1]


def test_a_part_that_was_held_back_once_says_so(world: World) -> None:
    """Its later calls may find an empty queue."""
    world.put("lost")
    planned = world.plan()
    for step in (Step.READ, Step.KNOWN):
        world.step(step, planned)
    world.held = "the queue is 2.0 hours behind"
    for number in planned["parts"]:
        assert not world.run("run").work(Step.LIST, number, lambda: 0)
    world.held = ""
    for step in list(Step)[2:]:
        world.step(step, planned)
    assert world.run("run").finish().held == "the queue is 2.0 hours behind"


def test_f46_a_summing_up_that_is_called_again_tells_the_same(world: World) -> None:
    """F46: whoever died between giving the run back and the metrics has told nobody of its losses."""
    world.put("lost")
    first = world.audit()
    assert world.run("run").finish() == first
    world.plan("next")
    assert world.run("run").finish() == first
    with pytest.raises(NotNow):
        world.plan("third")


class TestInventory:
    """Over the files of a report."""

    @pytest.fixture
    def reports(self, world: World) -> str:
        name = f"{world.table}-reports"
        boto3.client("s3").create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": "eu-central-1"})
        return name

    def deliver(self, world: World, reports: str, files: list[list[tuple[str, State, bool]]]) -> None:
        """A report that S3 began to make an hour and a half ago."""
        begun = world.clock() - 90 * 60_000
        for number, entries in enumerate(files):
            boto3.client("s3").put_object(Bucket=reports, Key=f"inv/data/{number}.csv.gz", Body=as_csv(entries))
        content = manifest(
            sourceBucket=BUCKET,
            creationTimestamp=str(begun),
            files=[{"key": f"inv/data/{number}.csv.gz"} for number in range(len(files))],
        )
        key = "inv/2026-11-20T01-00Z/manifest.json"
        boto3.client("s3").put_object(Bucket=reports, Key=key, Body=json.dumps(content).encode())

    def audit(self, world: World, reports: str, name: str = "run") -> Report:
        event = {
            "input": {},
            "leaseSeconds": 86_400,
            "parts": 10_000,
            "segments": SEGMENTS,
            "inventory": {"bucket": reports, "prefix": "inv/"},
        }
        planned = world.run(name).plan(event)
        for step in Step:
            world.step(step, planned)
        return world.run(name).finish()

    def reported(self, world: World, key: str, state: State, *, age: int = 5 * HOUR) -> tuple[str, State, bool]:
        return key, replace(state, created_at=world.clock() - age), True

    def test_what_the_report_shows_is_compared(self, world: World, reports: str) -> None:
        """A lost upload in one file, a lost marker in another, and a row of a key that no file has."""
        kept, lost = world.put("kept"), world.put("lost")
        world.commit("kept", kept)
        world.processed("marked")
        marker = world.s3.mark("marked")
        world.commit("gone", State(StateKind.OBJECT, "1", "1", 1))
        files = [
            [self.reported(world, "kept", kept)],
            [
                self.reported(world, "lost", lost),
                self.reported(world, "marked", marker),
            ],
        ]
        self.deliver(world, reports, files)
        report = self.audit(world, reports)
        assert report.counts == {"missing": 1, "removed": 2}
        assert world.sent() == ["gone", "lost", "marked"]
        assert (report.listed, report.complete) == (3, True)

    def test_a_report_of_an_empty_bucket_shows_that_all_is_gone(self, world: World, reports: str) -> None:
        """It has no files, and so the listing has no parts: nothing was left out."""
        world.commit("gone", State(StateKind.OBJECT, "1", "1", 1))
        self.deliver(world, reports, [])
        report = self.audit(world, reports)
        assert (report.complete, report.counts, world.sent()) == (True, {"removed": 1}, ["gone"])

    def test_what_has_changed_since_the_report_is_no_loss(self, world: World, reports: str) -> None:
        """It is looked at before it counts: a key that was deleted since then, an overwritten one, a new one."""
        old = world.put("overwritten")
        world.processed("new")
        world.commit("overwritten", world.put("overwritten"))
        files = [
            [
                self.reported(world, "overwritten", old),
                self.reported(world, "deleted", State(StateKind.OBJECT, "1", "1", 1)),
            ]
        ]
        self.deliver(world, reports, files)
        report = self.audit(world, reports)
        assert (report.counts, world.sent()) == ({}, [])

    def test_what_came_a_moment_before_the_report_is_left_alone(self, world: World, reports: str) -> None:
        """Its event may still have been on its way then; tomorrow's report shows it again."""
        self.deliver(world, reports, [[self.reported(world, "fresh", world.put("fresh"), age=2 * HOUR)]])
        assert self.audit(world, reports).counts == {}

    def test_f42_the_number_of_files_is_not_bounded_by_an_item(self, world: World, reports: str) -> None:
        """F42: DynamoDB takes 400 KB, which the names of all files of a large bucket's report exceed."""
        files = [{"key": f"inv/data/{number:0980}.csv.gz"} for number in range(450)]
        content = manifest(sourceBucket=BUCKET, creationTimestamp=str(world.clock()), files=files)
        key = "inv/2026-11-20T01-00Z/manifest.json"
        boto3.client("s3").put_object(Bucket=reports, Key=key, Body=json.dumps(content).encode())
        event = {"input": {}, "leaseSeconds": 86_400, "parts": 10_000, "segments": SEGMENTS}
        planned = world.run("run").plan(event | {"inventory": {"bucket": reports, "prefix": "inv/"}})
        assert sorted(planned["parts"]) == list(range(450))

    def test_f46_reports_that_come_no_more_are_told(self, world: World, reports: str) -> None:
        """F46: by the last one there ever was, nothing that came since would be found, and all would be green."""
        self.deliver(world, reports, [])
        assert self.audit(world, reports).delivery == ["the rule is disabled"]
        world.clock.advance(10 * DAY)
        (_, problem) = self.audit(world, reports, "next").delivery
        assert problem.startswith("the newest inventory report is 10 days old")

    def test_without_a_report_the_run_is_given_back(self, world: World, reports: str) -> None:
        """The error names the fix, and the next run need not wait for a lease."""
        with pytest.raises(InventoryError, match="no inventory report"):
            self.audit(world, reports)
        AuditRuns(
            world.dynamodb, world.table, bucket=BUCKET, pipeline=PIPELINE, clock=world.clock, owner="next",
            new_salt=lambda: b"1",
        ).take(lease_ms=1, only_if_due=False)  # fmt: skip


def test_the_handler_takes_the_steps_and_tells_of_the_run(
    deployed: whole.Deployed, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the state machine calls it: the last answer is the report, and only then are there metrics of the run."""
    deployed.upload("in/a", "in/b")
    begin: dict[str, Any] = {
        "step": "plan",
        "run": "r",
        "leaseSeconds": 60,
        "parts": SHARDS,
        "segments": 1,
        "input": {},
    }
    planned = deployed.audit(**begin)
    assert planned == {"run": "r", "parts": [0], "segments": [0]}
    assert "skipped" in deployed.audit(**begin | {"run": "another"})
    for step in ("read", "known", "list", "shown", "scan"):
        asked: dict[str, Any] = {"step": step, "run": "r", "part": 0}
        assert deployed.audit(**asked) == asked | {"done": True}
    assert set(whole.metrics(capsys.readouterr().out)) == {"AuditDeliveryProblems"}
    report = deployed.audit(step="finish", run="r")
    assert report["summary"].startswith("2 of 2 objects never reached the ledger; oldest 0 minutes; resubmitted")
    assert deployed.receive() == ["in/a", "in/b"]
    assert deployed.last() == report
    assert whole.metrics(capsys.readouterr().out) == {
        "AuditRuns": 1,
        "AuditIncomplete": 0,
        "AuditCheckedKeys": 2,
        "AuditUnjudgedKeys": 0,
        "AuditFindings": 2,
        "AuditResubmitted": 2,
    }


def test_a_run_with_gaps_is_incomplete_and_no_run(deployed: whole.Deployed, capsys: pytest.CaptureFixture[str]) -> None:
    """Two alarms hear of it: at once, and when no run comes to its end any more."""
    begin: dict[str, Any] = {
        "step": "plan",
        "run": "r",
        "leaseSeconds": 60,
        "parts": SHARDS,
        "segments": 1,
        "input": {},
    }
    deployed.audit(**begin)
    assert deployed.audit(step="finish", run="r")["unfinished"] == ["segment 0 of the ledger's rows was not read"]
    told = whole.metrics(capsys.readouterr().out)
    assert (told["AuditRuns"], told["AuditIncomplete"]) == (0, 1)
