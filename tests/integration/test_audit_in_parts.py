"""The audit in parts, as the state machine calls it, with S3 and SQS in memory, and DynamoDB in moto."""

from dataclasses import replace
from functools import cached_property
from itertools import count
from typing import TYPE_CHECKING, Any, cast

import pytest

from intake_ledger.audit import in_parts, look
from intake_ledger.audit.diff import Line, Window
from intake_ledger.audit.in_parts import AuditInParts, _order
from intake_ledger.audit.inventory import InventoryError
from intake_ledger.audit.join import duckdb
from intake_ledger.audit.join import parts as join
from intake_ledger.audit.join.parts import join_parts
from intake_ledger.audit.look import BACKFILL_ID
from intake_ledger.audit.report import Report, Stopped
from intake_ledger.audit.runs import AuditRuns, RunNotDue
from intake_ledger.audit.scratch import Scratch
from intake_ledger.audit.tools import Judgement, Tools
from intake_ledger.ledger.dynamodb_table import LedgerTable
from intake_ledger.protocol.change import State, StateKind, identity_of
from intake_ledger.protocol.row import Ordering, Row, Status, row_key
from intake_ledger.protocol.settings import KeyFilter
from intake_ledger.protocol.settings_audit import AuditSettings
from tests.integration.test_audit_inventory import as_csv, manifest, put_data, put_manifest
from tests.unit.audit import test_function as whole
from tests.unit.audit.support import FakeSQS, MemoryFiles, PagedS3
from tests.unit.command.support import client
from tests.unit.support import BUCKET, DAY, HOUR, PIPELINE, Clock, create_table, execute_without_partiql

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

deployed = whole.deployed
_NUMBERS = count(1)
SHARDS, SEGMENTS = 3, 2


class S3(PagedS3):
    """The intake bucket is paged. The files of the run and the reports of an inventory are in another store."""

    @cached_property
    def client(self) -> MemoryFiles:
        return MemoryFiles()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.client, name)

    def get_paginator(self, operation: str) -> Any:
        return super().get_paginator(operation) if operation == "list_object_versions" else self._reports(operation)

    def _reports(self, operation: str) -> Any:
        return self.client.get_paginator(operation)


class PartsWorld:
    """One pipeline, and the state machine's part in Python."""

    def __init__(self, dynamodb: "DynamoDBClient") -> None:
        self.table = f"parts-{next(_NUMBERS)}"
        self.clock = Clock()
        self.dynamodb = dynamodb
        # Small pages, so that a small bucket has several.
        self.s3, self.sqs = S3(self.clock, page_size=4), FakeSQS()
        create_table(dynamodb, self.table)
        self.ledger = LedgerTable(dynamodb, self.table)
        self.held, self.waiting = "", 0
        self.files = f"{self.table}-files"
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
        now = self.clock()
        return Tools(
            settings=self.settings,
            s3=cast("Any", self.s3),
            sqs=cast("Any", self.sqs),
            dynamodb=self.dynamodb,
            clock=self.clock,
            judge=lambda since, backfill: Judgement(
                Window(now - HOUR, 0 if backfill else max(now - 14 * DAY, since * self.settings.skips_existing)),
                resubmit=True,
                held=self.held,
                waiting=self.waiting,
            ),
            delivery=lambda: ["the rule is disabled"],
            scratch=self.files,
            heads=1,
            sleep=lambda seconds: self.clock.advance(round(seconds * 1000)),
        )

    def run(self, name: str) -> AuditInParts:
        return AuditInParts(self.tools(), name)

    def plan(self, name: str = "run", **asked: Any) -> dict[str, Any]:
        event = {"input": asked, "leaseSeconds": 86_400, "parts": SHARDS, "segments": SEGMENTS, "looks": 2}
        return self.run(name).plan(event)

    def scratch(self, name: str = "run") -> Scratch:
        return Scratch(cast("Any", self.s3), self.files, name)

    def work(self, step: str, planned: dict[str, Any], *, without: str | None = None, left: Any = None) -> int:
        """All parts of one step, each until it is done, as the map does it; one may fail for good. The calls."""
        calls = 0
        for part in planned["parts"]:
            event = {
                "step": step,
                "run": planned["run"],
                "part": part,
                "slice": 0,
                "after": "",
                "done": part == without,
            }
            while not event["done"]:
                calls += 1
                run = self.run(planned["run"])
                event = (run.write if step == "write" else run.look)(event, left() if left else lambda: 900_000)
        return calls

    def go_on(self, planned: dict[str, Any]) -> Report:
        """The steps after the listing."""
        self.work("look", join_parts(self.scratch(planned["run"])))
        return self.run(planned["run"]).finish()

    def audit(self, name: str = "run", **asked: Any) -> Report:
        planned = self.plan(name, **asked)
        self.work("write", planned)
        return self.go_on(planned)

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
        found = sorted(body["key"] for body in self.sqs.bodies)
        self.sqs.messages.clear()
        return found


@pytest.fixture
def world(dynamodb: "DynamoDBClient", monkeypatch: pytest.MonkeyPatch) -> PartsWorld:
    monkeypatch.setattr(LedgerTable, "_execute", execute_without_partiql)
    return PartsWorld(dynamodb)


def names(number: int = 20) -> list[str]:
    return [f"in/{n:03d}.csv" for n in range(number)]


def test_few_shards_are_found_behind_a_long_common_beginning(world: PartsWorld) -> None:
    """Dated folders and zero-filled numbers: the way to where the keys part takes more looks than two shards bring."""
    world.processed(*(f"in/2026/11/document-{number:010}" for number in range(60)))
    event = {"input": {}, "leaseSeconds": 86_400, "parts": 2, "segments": SEGMENTS}
    parts = world.run("run").plan(event)["parts"]
    assert sorted(parts) == ["held-00000", "held-00001", "listed-00000", "listed-00001"]


@pytest.mark.failure_mode("F39")
def test_what_was_lost_is_found_exactly_wherever_it_is(world: PartsWorld) -> None:
    """An upload, an overwrite, a marker and a row of a key that is gone, in different shards; once each."""
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
    assert (report.candidates, report.dismissed) == (4, 0)
    assert len(world.plan("another", dryRun=True)["parts"]) == SHARDS + SEGMENTS


@pytest.mark.failure_mode("F31")
def test_a_second_run_resubmits_nothing(world: PartsWorld) -> None:
    """The marks are on the rows, whichever part comes to them."""
    world.put("lost")
    world.audit("first")
    assert world.sent() == ["lost"]
    report = world.audit("second")
    assert (report.counts, report.resubmitted, world.sent()) == ({"missing": 1}, 0, [])


def test_no_head_for_what_another_shard_has_shown(world: PartsWorld) -> None:
    """A state that agrees is not a candidate."""
    world.processed(*names())
    report = world.audit()
    assert (world.s3.heads, report.counts, report.checked) == ([], {}, 20)
    assert (report.candidates, report.dismissed) == (0, 0)


@pytest.mark.failure_mode("F42")
def test_runs_do_not_overlap(world: PartsWorld) -> None:
    """Nor does a planner that is called again see its own run as another's."""
    world.put("lost")
    first = world.plan("first")
    with pytest.raises(RunNotDue):
        world.plan("second")
    assert sorted(world.plan("first")["parts"]) == sorted(first["parts"])
    world.work("write", first)
    world.go_on(first)
    world.plan("second")


def test_the_next_run_is_due_after_the_interval(world: PartsWorld) -> None:
    """The schedule ticks more often; a person's own run does not wait."""
    world.audit("first", everySeconds=86_400)
    with pytest.raises(RunNotDue):
        world.plan("second", everySeconds=86_400)
    world.audit("by-hand")
    world.clock.advance(DAY)
    world.plan("third", everySeconds=86_400)


@pytest.mark.failure_mode("F42", "F35")
def test_a_part_that_is_out_of_time_is_continued(world: PartsWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """From its last page on, in another file. The keys have equal dates."""
    monkeypatch.setattr("tests.integration.test_audit_in_parts.SHARDS", 1)
    world.processed(*names())
    world.put("in/lost.csv")
    planned = world.plan()
    # A page in each call, then the time is up.
    calls = world.work("write", planned, left=lambda: lambda: 0)
    report = world.go_on(planned)
    assert calls >= 5 + SEGMENTS
    assert (report.listed, report.checked, report.counts) == (21, 21, {"missing": 1})
    assert world.sent() == ["in/lost.csv"]


@pytest.mark.failure_mode("F118")
@pytest.mark.parametrize(("limit", "value"), [("SLICE_ROWS", 8), ("SLICE_TEXT", 8 * len("in/000.csv"))])
def test_a_slice_ends_before_it_takes_longer_than_the_stop_margin(
    world: PartsWorld, monkeypatch: pytest.MonkeyPatch, limit: str, value: int
) -> None:
    """However much time is left, a file has no more than can be written within the margin, and on the disk."""
    monkeypatch.setattr(in_parts, limit, value)
    monkeypatch.setattr("tests.integration.test_audit_in_parts.SHARDS", 1)
    world.processed(*names())
    planned = world.plan()
    assert world.work("write", {**planned, "parts": ["listed-00000"]}) == 3
    assert [name for name in world.scratch().etags() if name.startswith("listed")] == [
        f"listed-00000-{number:05d}.parquet" for number in range(3)
    ]


@pytest.mark.failure_mode("F42")
def test_a_slice_that_is_repeated_with_another_end_leaves_no_gap(world: PartsWorld) -> None:
    """The call's answer was lost. The second call writes a shorter file, and the next slice begins there."""
    world.processed(*names())
    world.put("in/zzz-lost.csv")
    planned = world.plan()
    world.work("write", planned)
    world.work("write", planned, left=lambda: lambda: 0)
    report = world.go_on(planned)
    assert (report.complete, report.listed, report.counts) == (True, 21, {"missing": 1})
    # And more of it: the slices of the first calls that come after the end are not counted twice.
    world.work("write", planned)
    again = world.go_on(planned)
    assert (again.complete, again.listed) == (True, 21)


@pytest.mark.failure_mode("F42")
def test_a_gap_between_slices_is_named(world: PartsWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is taken for complete because its last file is there."""
    monkeypatch.setattr("tests.integration.test_audit_in_parts.SHARDS", 1)
    world.processed(*names())
    planned = world.plan()
    world.work("write", planned, left=lambda: lambda: 0)
    world.s3.client.delete_object(Bucket=world.files, Key="run/listed-00000-00002.parquet")
    report = world.go_on(planned)
    assert (report.complete, report.unfinished, report.counts) == (False, ["keys from the beginning to the end"], {})


@pytest.mark.failure_mode("F42")
def test_slices_that_do_not_meet_are_a_gap(world: PartsWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that had timed out wrote the first file again, and it ends before the second one begins."""
    monkeypatch.setattr("tests.integration.test_audit_in_parts.SHARDS", 1)
    world.processed(*names())
    planned = world.plan()
    world.work("write", planned, left=lambda: lambda: 0)
    world.s3.page_size = 2
    world.run("run").write({"part": "listed-00000", "slice": 0, "after": ""}, lambda: 0)
    report = world.go_on(planned)
    assert (report.complete, report.unfinished) == (False, ["keys from the beginning to the end"])


@pytest.mark.failure_mode("F42")
def test_a_look_that_died_goes_on_where_it_was_stored(world: PartsWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """The state machine calls again. Messages from before the death are not sent twice."""
    monkeypatch.setattr(in_parts, "BATCH", 3)
    for key in names(8):
        world.put(key)
    planned = world.plan()
    world.work("write", planned)
    chunks = join_parts(world.scratch())
    left = iter([900_000])
    event = {"part": 0}
    assert not world.run("run").look(event, lambda: next(left, 0))["done"]
    assert len(world.sqs.bodies) == 3
    with monkeypatch.context() as dying:
        dying.setattr(FakeSQS, "send_message_batch", lambda *_, **__: (_ for _ in ()).throw(OSError("dead")))
        with pytest.raises(OSError, match="dead"):
            world.run("run").look(event, lambda: 900_000)
    world.work("look", chunks)
    report = world.run("run").finish()
    assert world.sent() == names(8)
    assert (report.complete, report.counts, report.resubmitted) == (True, {"missing": 8}, 8)
    assert (report.candidates, report.dismissed) == (8, 0)


@pytest.mark.failure_mode("F119")
def test_what_sqs_refuses_is_sent_by_a_run_at_the_next_tick(world: PartsWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """It costs neither the budget nor an interval, and the report says why."""
    monkeypatch.setattr(look, "PAUSES", ())
    world.settings = replace(world.settings, budget=3)
    for key in names(3):
        world.put(key)
    planned = world.plan(everySeconds=86_400)
    world.work("write", planned)
    chunks = join_parts(world.scratch())
    refused = {"Failed": [{"Id": "1", "Code": "InternalError", "SenderFault": False}]}
    with monkeypatch.context() as refusing:
        refusing.setattr(FakeSQS, "send_message_batch", lambda *_, **__: refused)
        world.work("look", chunks)
    report = world.run("run").finish()
    assert (report.complete, report.stopped, report.resubmitted) == (False, Stopped.REFUSED, 2)
    assert report.lines == {"resubmitted": 2, "refused": 1}
    assert report.delivery == ["the rule is disabled", "SQS refused messages: InternalError"]
    sent = [item["sent"]["N"] for item in world.dynamodb.scan(TableName=world.table)["Items"] if "sent" in item]
    assert sent == ["2"]
    again = world.audit("again", everySeconds=86_400)
    # The fake has taken two of the messages without a trace: their keys are marked.
    assert (again.complete, len(world.sent()), again.lines) == (True, 1, {"resubmitted": 1, "marked": 2})


@pytest.mark.parametrize(
    ("part", "named"),
    [
        ("held-00000", "segment 0 of the ledger's rows was not read"),
        ("listed-00000", "keys from the beginning up to 'in/0"),
    ],
)
def test_a_part_that_fails_for_good_is_named(world: PartsWorld, part: str, named: str) -> None:
    """The run reports the missing part, ends its lease, and asks S3 about listed objects only."""
    world.processed(*names())
    planned = world.plan(everySeconds=86_400)
    world.work("write", planned, without=part)
    report = world.go_on(planned)
    assert not report.complete
    assert len(report.unfinished) == 1
    assert report.unfinished[0].startswith(named)
    assert "not all of it was audited" in report.summary(world.clock())
    assert (report.counts, report.candidates, world.sent(), world.s3.heads) == ({}, 0, [], [])
    world.clock.advance(DAY)
    assert world.audit("next", everySeconds=86_400).complete


def test_a_run_whose_plan_is_gone_is_given_back(world: PartsWorld) -> None:
    """The next run need not wait for the end of the lease."""
    world.run("older")._runs.take(lease_ms=86_400_000, only_if_due=False)
    report = world.run("older").finish()
    assert (report.complete, report.unfinished[0].startswith("all of it: the plan")) == (False, True)
    assert world.audit("next").complete


def test_what_was_listed_is_compared_though_a_shard_failed(world: PartsWorld) -> None:
    """A loss in another shard is found in this run."""
    world.processed(*names())
    world.put("in/019-lost.csv")
    planned = world.plan()
    world.work("write", planned, without="listed-00000")
    assert world.go_on(planned).counts == {"missing": 1}
    assert world.sent() == ["in/019-lost.csv"]


@pytest.mark.parametrize(("died", "named"), [("join", "the join failed"), ("look", "candidates from 0 on were not")])
def test_a_step_that_fails_for_good_is_named(world: PartsWorld, died: str, named: str) -> None:
    """The run is summed up, and the next one does not wait."""
    world.put("lost")
    planned = world.plan(everySeconds=86_400)
    world.work("write", planned)
    if died == "look":
        join_parts(world.scratch())
    report = world.run("run").finish()
    assert (report.complete, len(report.unfinished)) == (False, 1)
    assert named in report.unfinished[0]
    world.clock.advance(DAY)
    assert world.audit("next", everySeconds=86_400).complete


def test_the_budget_is_the_runs_not_each_parts(world: PartsWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next run sends the rest."""
    monkeypatch.setattr(in_parts, "CHUNK", 4)
    monkeypatch.setattr(join, "CHUNK", 4)
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


class TestRate:
    """A large loss, or a bucket that was full before, reaches the queue at the rate that the team has chosen."""

    @pytest.mark.failure_mode("F41")
    def test_a_backfill_sends_each_object_of_before_once(self, world: PartsWorld) -> None:
        """As a person's request where it is too old for an event, and as the audit's where it may have one."""
        world.settings = replace(world.settings, backfills=True, skips_existing=True, backfill_rate=10)
        for key in ("old", "known"):
            world.s3.put(key, age=400 * DAY)
        world.s3.put("young")
        world.commit("known", world.s3.keys["known"][-1])
        report = world.audit("first", everySeconds=86_400)
        kinds = {body["key"]: (body["kind"], body.get("reprocessId")) for body in world.sqs.bodies}
        assert kinds == {"old": ("reprocess", BACKFILL_ID), "young": ("audit", None)}
        assert (report.complete, report.lines) == (True, {"resubmitted": 2, "agrees": 1})
        world.sqs.messages.clear()
        world.s3.put("very old", age=500 * DAY)
        world.clock.advance(DAY)
        assert world.audit("second", everySeconds=86_400).counts == {}, "it is over"

    @pytest.mark.failure_mode("F41")
    def test_a_backfill_that_was_cut_short_goes_on_at_the_next_tick(
        self, world: PartsWorld, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """There are more candidates than one run takes. Sent messages are marked."""
        monkeypatch.setattr(in_parts, "MOST_CANDIDATES", 3)
        monkeypatch.setattr(duckdb, "MOST_CANDIDATES", 3)
        world.settings = replace(world.settings, backfills=True, budget=1)
        for key in names(6):
            world.s3.put(key, age=400 * DAY)
        report = world.audit("first", everySeconds=86_400)
        assert (report.stopped, report.resubmitted, report.lines[Line.NOT_LOOKED]) == (Stopped.MORE, 4, 2)
        assert "2 objects are left: 0 minutes at 3 a second" in report.summary(world.clock())
        first = world.sent()
        for key in first:
            world.commit(key, world.s3.keys[key][-1])
        report = world.audit("second", everySeconds=86_400)
        assert (report.complete, sorted([*first, *world.sent()])) == (True, names(6))

    @pytest.mark.failure_mode("F41")
    def test_a_slow_backfill_ends_before_its_state_machine_does(
        self, world: PartsWorld, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """An execution that is ended has no report, and keeps others away."""
        monkeypatch.setattr(in_parts, "SENDING_SECONDS", 2)
        world.settings = replace(world.settings, backfills=True, backfill_rate=2)
        for key in names(6):
            world.s3.put(key, age=400 * DAY)
        report = world.audit("first", everySeconds=86_400)
        assert (report.stopped, report.resubmitted, len(world.sqs.bodies)) == (Stopped.MORE, 4, 4)
        assert "2 objects are left" in report.summary(world.clock())
        assert world.plan("second", everySeconds=86_400)["parts"]

    def test_a_look_keeps_to_its_share_of_the_rate(self, world: PartsWorld) -> None:
        """Two of them send one message in a second each."""
        world.settings = replace(world.settings, resubmit_rate=2)
        for key in names(30):
            world.put(key)
        planned = world.plan()
        world.work("write", planned)
        began = world.clock()
        world.go_on(planned)
        assert len(world.sqs.bodies) == 30
        assert 29_000 <= world.clock() - began <= 31_000

    def test_a_backfill_waits_while_the_queue_is_long(self, world: PartsWorld) -> None:
        """New uploads would stand behind all of it."""
        world.settings = replace(world.settings, backfills=True, backfill_rate=1)
        world.put("lost")
        planned = world.plan()
        world.work("write", planned)
        chunks, began = join_parts(world.scratch()), world.clock()
        world.waiting = 901
        assert not world.run("run").look({"part": 0}, lambda: 900_000)["done"]
        assert (world.sqs.bodies, world.clock() - began) == ([], 60_000)
        world.waiting = 900
        world.work("look", chunks)
        assert world.sent() == ["lost"]

    def test_the_table_tells_how_far_a_run_has_come(self, world: PartsWorld) -> None:
        """For those who ask meanwhile: messages, candidates, and the time of the first message."""
        for key in names(7):
            world.put(key)
        began = world.clock()
        world.audit()
        (item,) = [item_ for item_ in world.dynamodb.scan(TableName=world.table)["Items"] if "sent" in item_]
        assert [item[name]["N"] for name in ("sent", "of", "begun_at")] == ["7", "7", str(began)]


def test_a_dry_run_changes_nothing(world: PartsWorld) -> None:
    """It needs not be due, holds nothing, sends nothing and marks nothing."""
    world.put("lost")
    world.plan("at-work")
    report = world.audit("look", dryRun=True)
    assert (report.counts, report.dry_run, world.sent()) == ({"missing": 1}, True, [])
    items = world.dynamodb.scan(TableName=world.table)["Items"]
    assert not [item for item in items if "audit_resubmitted_state" in item]


def test_all_that_a_run_writes_down_expires_and_is_no_row(world: PartsWorld) -> None:
    """The table is the ledger's."""
    world.processed(*names(5))
    world.put("lost")
    world.audit()
    items = world.dynamodb.scan(TableName=world.table)["Items"]
    own = [item for item in items if "/" not in item["pk"]["S"]]
    (held,) = [item for item in own if item["pk"]["S"] == BUCKET]
    assert "lease_owner" not in held
    rest = [item for item in own if item is not held]
    assert not [item for item in rest if "status" in item or int(item["expires_at"]["N"]) < world.clock() // 1000]


@pytest.mark.failure_mode("F47")
def test_only_what_passes_the_filters_is_divided(world: PartsWorld) -> None:
    """Each prefix separately. Rows outside of them are ignored."""
    world.settings = replace(world.settings, filters=(KeyFilter("in/", ".csv"), KeyFilter("more/")))
    for key in [*names(8), "out/a.csv", "in/x.txt", "more/a"]:
        world.put(key)
    world.commit("out/gone.csv", State(StateKind.OBJECT, "1", "1", 1))
    world.audit()
    assert world.sent() == [*names(8), "more/a"]


def test_each_version_of_a_key_is_in_one_shard(world: PartsWorld) -> None:
    """A key with more versions than a page, at each edge."""
    world.settings = replace(world.settings, ordering=Ordering.EVERY_VERSION)
    for key in names(8):
        world.put(key)
    for _ in range(9):
        world.put("in/007.csv")
    report = world.audit()
    assert (report.listed, report.counts) == (17, {"missing": 17})
    assert len(world.sent()) == 17


def test_what_was_left_to_a_backlog_is_said(world: PartsWorld) -> None:
    """By any part that saw it."""
    world.held = "the queue is 2.0 hours behind"
    world.put("lost")
    assert world.audit().held == "the queue is 2.0 hours behind"


def test_the_heaviest_shares_come_first_and_others_of_about_their_weight_in_any_order() -> None:
    """The last part is short, and the budget runs out at another part in each run."""
    shares = [{"weight": 1}, *({"weight": 1_000 + n} for n in range(10)), {"weight": 20}]
    orders = [_order(shares) for _ in range(20)]
    assert {tuple(order[-2:]) for order in orders} == {(11, 0)}
    assert len({order[0] for order in orders}) > 1
    assert sorted(_order([{"file": "a"}, {"file": "b"}])) == [0, 1]


def test_a_part_that_was_held_back_once_says_so(world: PartsWorld) -> None:
    """Its later calls may find an empty queue."""
    world.put("lost")
    planned = world.plan()
    world.work("write", planned)
    chunks = join_parts(world.scratch())
    world.held = "the queue is 2.0 hours behind"
    assert not world.run("run").look({"part": 0}, lambda: 0)["done"]
    world.held = ""
    world.work("look", chunks)
    assert world.run("run").finish().held == "the queue is 2.0 hours behind"


@pytest.mark.failure_mode("F46")
def test_a_summing_up_that_is_called_again_tells_the_same(world: PartsWorld) -> None:
    """A call that died between the end of the run and its metrics has reported no losses."""
    world.put("lost")
    first = world.audit()
    assert world.run("run").finish() == first
    world.plan("next")
    assert world.run("run").finish() == first
    with pytest.raises(RunNotDue):
        world.plan("third")


class TestInventory:
    """Over the files of a report."""

    @pytest.fixture
    def reports(self, world: PartsWorld) -> str:
        return f"{world.table}-reports"

    def deliver(self, world: PartsWorld, reports: str, files: list[list[tuple[str, State, bool]]]) -> None:
        """A report that S3 began to make an hour and a half ago."""
        begun = world.clock() - 90 * 60_000
        data = [
            put_data(cast("Any", world.s3), reports, f"inv/data/{n}.csv.gz", as_csv(file))
            for n, file in enumerate(files)
        ]
        content = manifest(sourceBucket=BUCKET, creationTimestamp=str(begun), files=data)
        put_manifest(cast("Any", world.s3), reports, "inv/2026-11-20T01-00Z/", content)

    def audit(self, world: PartsWorld, reports: str, name: str = "run") -> Report:
        event = {
            "input": {},
            "leaseSeconds": 86_400,
            "parts": 10_000,
            "segments": SEGMENTS,
            "inventory": {"bucket": reports, "prefix": "inv/"},
        }
        planned = world.run(name).plan(event)
        world.work("write", planned)
        return world.go_on(planned)

    def reported(self, world: PartsWorld, key: str, state: State, *, age: int = 5 * HOUR) -> tuple[str, State, bool]:
        return key, replace(state, created_at=world.clock() - age), True

    def test_what_the_report_shows_is_compared(self, world: PartsWorld, reports: str) -> None:
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

    def test_a_report_of_an_empty_bucket_shows_that_all_is_gone(self, world: PartsWorld, reports: str) -> None:
        """It has no files, and so the listing has no parts: nothing was left out."""
        world.commit("gone", State(StateKind.OBJECT, "1", "1", 1))
        self.deliver(world, reports, [])
        report = self.audit(world, reports)
        assert (report.complete, report.counts, world.sent()) == (True, {"removed": 1}, ["gone"])

    def test_what_has_changed_since_the_report_is_no_loss(self, world: PartsWorld, reports: str) -> None:
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

    def test_what_came_a_moment_before_the_report_is_left_alone(self, world: PartsWorld, reports: str) -> None:
        """Its event may still have been on its way then; tomorrow's report shows it again."""
        self.deliver(world, reports, [[self.reported(world, "fresh", world.put("fresh"), age=2 * HOUR)]])
        assert self.audit(world, reports).counts == {}

    @pytest.mark.failure_mode("F42")
    def test_the_number_of_files_is_not_bounded_by_an_item(self, world: PartsWorld, reports: str) -> None:
        """DynamoDB takes 400 KB, which the names of all files of a large bucket's report exceed."""
        files = [{"key": f"inv/data/{number:0980}.csv.gz"} for number in range(450)]
        content = manifest(sourceBucket=BUCKET, creationTimestamp=str(world.clock()), files=files)
        put_manifest(cast("Any", world.s3), reports, "inv/2026-11-20T01-00Z/", content)
        event = {"input": {}, "leaseSeconds": 86_400, "parts": 10_000, "segments": SEGMENTS}
        planned = world.run("run").plan(event | {"inventory": {"bucket": reports, "prefix": "inv/"}})
        assert len(planned["parts"]) == 450 + SEGMENTS

    @pytest.mark.failure_mode("F121")
    def test_a_data_file_with_another_checksum_is_refused(self, world: PartsWorld, reports: str) -> None:
        """The report says why, and nothing is taken for gone because that file was not read."""
        world.processed("a", "b")
        files = [[self.reported(world, key, world.s3.keys[key][-1])] for key in ("a", "b")]
        self.deliver(world, reports, files)
        world.s3.client.put_object(Bucket=reports, Key="inv/data/1.csv.gz", Body=as_csv([]))
        report = self.audit(world, reports)
        assert (report.complete, report.counts, report.listed, len(report.unfinished)) == (False, {}, 1, 1)
        assert report.unfinished[0].startswith("the inventory's file inv/data/1.csv.gz has the MD5")
        assert world.s3.heads == []

    @pytest.mark.failure_mode("F46")
    def test_reports_that_come_no_more_are_told(self, world: PartsWorld, reports: str) -> None:
        """By the last one there ever was, nothing that came since would be found, and all would be green."""
        self.deliver(world, reports, [])
        assert self.audit(world, reports).delivery == ["the rule is disabled"]
        world.clock.advance(10 * DAY)
        (_, problem) = self.audit(world, reports, "next").delivery
        assert problem.startswith("the newest inventory report is 10 days old")

    def test_without_a_report_the_run_is_given_back(self, world: PartsWorld, reports: str) -> None:
        """The error names the fix, and the next run need not wait for a lease."""
        with pytest.raises(InventoryError, match="no inventory report"):
            self.audit(world, reports)
        AuditRuns(world.dynamodb, world.settings, clock=world.clock, owner="next").take(lease_ms=1, only_if_due=False)


@pytest.fixture
def files(deployed: whole.LiveAudit, monkeypatch: pytest.MonkeyPatch) -> str:
    """The bucket of the run's files, as both functions are told."""
    name = f"files-{next(_NUMBERS)}"
    client("s3").create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": "eu-central-1"})
    monkeypatch.setenv("INTAKE_AUDIT_FILES", name)
    return name


BEGIN: dict[str, Any] = {"step": "plan", "run": "r", "leaseSeconds": 60, "parts": SHARDS, "segments": 1, "input": {}}


def test_the_handlers_take_the_steps_and_tell_of_the_run(
    deployed: whole.LiveAudit, files: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The state machine's calls. The last answer is the report, and only this call writes the run's metrics."""
    assert files
    deployed.upload("in/a", "in/b")
    with pytest.raises(ValueError, match="no step 'known': its state machine is another release's"):
        deployed.audit(step="known", run="r", part=0)
    planned = deployed.audit(**BEGIN)
    assert planned == {"run": "r", "parts": ["held-00000", "listed-00000"]}
    assert "skipped" in deployed.audit(**BEGIN | {"run": "another"})
    for part in planned["parts"]:
        asked: dict[str, Any] = {"step": "write", "run": "r", "part": part, "slice": 0, "after": ""}
        assert deployed.audit(**asked) == asked | {"slice": 1, "done": True}
    assert join.handler({"run": "r"}, None) == {"run": "r", "parts": [0], "done": True}
    assert deployed.audit(step="look", run="r", part=0)["done"]
    assert set(whole.metrics(capsys.readouterr().out)) == {"AuditDeliveryProblems", "AuditRuns"}
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


def test_a_run_with_gaps_is_incomplete_and_no_run(
    deployed: whole.LiveAudit, files: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two alarms go off: one at once, and one when no run ends any more."""
    assert files
    deployed.audit(**BEGIN)
    join.handler({"run": "r"}, None)
    unfinished = deployed.audit(step="finish", run="r")["unfinished"]
    assert unfinished == ["segment 0 of the ledger's rows was not read", "keys from the beginning to the end"]
    told = whole.metrics(capsys.readouterr().out)
    assert (told["AuditRuns"], told["AuditIncomplete"]) == (0, 1)
