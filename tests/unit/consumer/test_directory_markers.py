"""Directory markers: consumer, audit, sets and CLI skip the same objects, and no object with a row."""

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdk_intake_ledger.testing import LocalPipeline
from intake_ledger import Commit, ObjectChange
from intake_ledger.audit.diff import Line
from intake_ledger.ledger.ledger import Claim
from intake_ledger.protocol.change import State, StateKind, is_directory_marker, is_skipped_marker
from intake_ledger.protocol.row import Ordering, Status
from intake_ledger.protocol.settings import ConsumerSettings, environment_of
from intake_ledger.protocol.verdict import Verdict
from intake_ledger.set_members.forms import FormKind, FormSettings
from tests.unit.audit.support import AuditWorld, PagedS3
from tests.unit.sets.bench import SetBench
from tests.unit.support import LEASE, AllRows, created, marked

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.unit.support import MakeWorld, World

FOLDER = "in/2026/"
KEYS = (FOLDER, "in/2026_$folder$", "in/a.pdf")
LATEST, EVERY_VERSION = Ordering.LATEST, Ordering.EVERY_VERSION


class Parser:
    """A pipeline whose processor cannot read an empty file, as libraries for PDF and Parquet cannot."""

    def __init__(
        self, ordering: Ordering = LATEST, *, markers: bool = False, deletes: bool = False, versioned: bool = True
    ) -> None:
        self.effects: dict[str, bytes | None] = {}
        self.pipeline = LocalPipeline(
            self._process, ordering=ordering, deletes=deletes, directory_markers=markers, versioned=versioned
        )

    def _process(self, change: ObjectChange) -> Commit:
        content = None if change.kind != "created" else change.read(10**6)
        if content == b"":
            raise ValueError("no header")
        self.effects[change.key] = content
        return Commit("ok")

    @property
    def called(self) -> list[str]:
        return [change.key for change in self.pipeline.calls]


@pytest.mark.failure_mode("F279")
@pytest.mark.parametrize(
    ("key", "size", "is_marker"),
    [
        ("in/", 0, True),
        ("/", 0, True),
        ("in_$folder$", 0, True),
        ("in/", 1, False),
        ("in/", None, False),
        ("in/a", 0, False),
        ("in_$folder$/a", 0, False),
    ],
)
def test_a_directory_marker_is_an_empty_object_with_such_a_key(key: str, size: int | None, is_marker: bool) -> None:
    """An object of unknown size is none."""
    assert is_directory_marker(key, size) is is_marker


@pytest.mark.failure_mode("F279")
@pytest.mark.parametrize("ordering", list(Ordering))
@pytest.mark.parametrize("versioned", [True, False])
def test_the_folders_of_a_console_are_skipped(ordering: Ordering, versioned: bool) -> None:
    """Before, three folders took 36 calls, and ended in three dead letters."""
    parser = Parser(ordering, versioned=versioned or ordering is EVERY_VERSION)
    folders = ("in/", "in/2026/", "in/2026/11/", "in/2026/12_$folder$")
    for key in folders:
        parser.pipeline.put(key, b"")
    parser.pipeline.put("in/2026/11/a.pdf", b"%PDF")
    parser.pipeline.run()
    assert parser.called == ["in/2026/11/a.pdf"]
    assert not parser.pipeline.dead_letters
    assert [parser.pipeline.row(key) for key in folders] == [None] * 4
    assert parser.pipeline.verdicts == {"SKIPPED": 4, "ACCEPTED": 1}
    for key in folders:
        parser.pipeline.audit(key)
    parser.pipeline.run()
    assert parser.pipeline.verdicts["SKIPPED"] == 8


@pytest.mark.failure_mode("F279")
@pytest.mark.parametrize("ordering", list(Ordering))
def test_a_pipeline_that_asks_for_directory_markers_gets_them(ordering: Ordering) -> None:
    parser = Parser(ordering, markers=True)
    parser.pipeline.put(FOLDER, b"")
    parser.pipeline.run()
    assert set(parser.called) == {FOLDER}


@pytest.mark.failure_mode("F279")
@pytest.mark.parametrize("ordering", list(Ordering))
def test_a_person_gets_the_directory_marker_that_a_request_names(ordering: Ordering) -> None:
    """It has a row from then on, and is a change as every other."""
    parser = Parser(ordering)
    version = parser.pipeline.put(FOLDER, b"")
    parser.pipeline.run()
    parser.pipeline.reprocess(FOLDER, version if ordering is EVERY_VERSION else None)
    parser.pipeline.run()
    row = parser.pipeline.row(FOLDER)
    assert row is not None
    assert (row.status, set(parser.called)) == (Status.REJECTED, {FOLDER})


@pytest.mark.failure_mode("F279")
@pytest.mark.parametrize("deletes", [True, False])
def test_a_folder_that_is_removed_and_made_again_is_skipped_each_time(deletes: bool) -> None:
    """With a row of the removal, the next marker would have a row, too. The markers do not count as unprocessed."""
    parser = Parser(deletes=deletes)
    for _ in range(3):
        parser.pipeline.put(FOLDER, b"")
        parser.pipeline.run()
        parser.pipeline.delete(FOLDER)
        parser.pipeline.run()
    parser.pipeline.put(FOLDER, b"")
    parser.pipeline.delete(FOLDER)
    parser.pipeline.run()
    assert (parser.called, parser.pipeline.row(FOLDER), parser.pipeline.removed_unprocessed) == ([], None, 0)


@pytest.mark.failure_mode("F279")
def test_a_removed_marker_of_a_bucket_without_versions_is_not_counted_as_unprocessed() -> None:
    parser = Parser(versioned=False)
    parser.pipeline.put(FOLDER, b"")
    parser.pipeline.delete(FOLDER)
    parser.pipeline.run()
    assert (parser.pipeline.row(FOLDER), parser.pipeline.removed_unprocessed) == (None, 0)


@pytest.mark.failure_mode("F279")
def test_the_removal_of_an_object_whose_row_may_have_expired_is_told(make_world: "MakeWorld") -> None:
    """Only a ledger that has the rows of all objects knows that nothing was processed."""
    world = make_world(deletes=True)
    world.s3.put(FOLDER, "content")
    removal = marked(world.s3.mark_deleted(FOLDER), key=FOLDER)
    assert world.verdict(removal) is Verdict.ACCEPTED
    world.expire(removal)
    world.row_history = AllRows()
    assert world.verdict(removal) is Verdict.SKIPPED
    assert world.row(removal) is None
    every = make_world(EVERY_VERSION, deletes=True)
    every.row_history = AllRows()
    every.s3.put(FOLDER, "content")
    assert every.verdict(marked(every.s3.mark_deleted(FOLDER), key=FOLDER)) is Verdict.ACCEPTED


@pytest.mark.failure_mode("F279")
def test_the_removal_of_an_upload_with_content_is_recorded(make_world: "MakeWorld") -> None:
    """Its own event says that the key had content, which was not processed."""
    world = make_world(deletes=False)
    upload = created(world.s3.put(FOLDER, "content"), key=FOLDER)
    world.s3.mark_deleted(FOLDER)
    answer = world.answer(upload)
    assert answer.verdict is Verdict.SETTLED
    assert not isinstance(answer, Claim)
    assert answer.unprocessed


@pytest.mark.failure_mode("F281")
def test_a_key_with_a_row_is_never_skipped(make_world: "MakeWorld") -> None:
    """The effect has to follow the key, also to an empty object."""
    world = make_world()
    world.process(created(world.s3.put(FOLDER, "content"), key=FOLDER))
    assert world.verdict(created(world.s3.put(FOLDER, ""), key=FOLDER)) is Verdict.ACCEPTED


@pytest.mark.failure_mode("F281")
def test_an_older_event_with_content_does_not_process_a_state_that_was_replaced(make_world: "MakeWorld") -> None:
    """The skipped marker has left no row that would refuse the older state."""
    world = make_world()
    older = created(world.s3.put(FOLDER, "content"), key=FOLDER)
    newer = created(world.s3.put(FOLDER, ""), key=FOLDER)
    assert world.verdict(newer) is Verdict.SKIPPED
    assert world.verdict(older) is Verdict.SKIPPED
    assert world.ledger.claim_together([older, newer], lease_ms=LEASE) == [None, None]


def _empties(world: "World") -> "Callable[[], None]":
    """Another worker handles the event of an empty upload, between two requests of the first one."""

    def other() -> None:
        empty = created(world.s3.put(FOLDER, ""), key=FOLDER)
        assert world.verdict(empty) in (Verdict.SKIPPED, Verdict.BUSY)

    return other


@pytest.mark.failure_mode("F281")
def test_a_marker_that_is_skipped_during_the_first_claim_is_not_overtaken(make_world: "MakeWorld") -> None:
    """The claim is withdrawn before the processor starts. Otherwise the content would be processed last."""
    world = make_world()
    upload = created(world.s3.put(FOLDER, "content"), key=FOLDER)
    world.s3.after_look.append(_empties(world))
    assert world.verdict(upload) is Verdict.SKIPPED
    assert world.row(upload) is None


@pytest.mark.failure_mode("F281")
def test_an_ordinary_object_takes_no_request_more(make_world: "MakeWorld") -> None:
    """Only keys of directory markers are looked at before and after their first claim."""
    world = make_world()
    world.accept(created(world.s3.put("in/a.pdf", "content"), key="in/a.pdf"))
    assert (world.s3.looks, world.wire.requests) == ([], ["put_item"])
    world.accept(created(world.s3.put(FOLDER, "content"), key=FOLDER))
    assert len(world.s3.looks) == 2


@pytest.mark.failure_mode("F279", "F281")
@given(
    st.lists(
        st.tuples(
            st.sampled_from(KEYS), st.sampled_from(["empty", "content", "delete", "run", "reverse", "twice", "lose"])
        ),
        max_size=14,
    ),
    st.booleans(),
    st.integers(0, 2**32),
)
def test_after_all_messages_each_row_agrees_with_s3(steps: list[tuple[str, str]], deletes: bool, seed: int) -> None:
    """A key without a row is a directory marker or was removed. The audit sends each key at the end."""
    effects: dict[str, bytes | None] = {}

    def process(change: ObjectChange) -> Commit:
        effects[change.key] = None if change.kind != "created" else change.read(10**6)
        return Commit("ok")

    pipeline = LocalPipeline(process, deletes=deletes)
    for number, (key, what) in enumerate(steps):
        match what:
            case "empty":
                pipeline.put(key, b"")
            case "content":
                pipeline.put(key, f"{number}")
            case "delete":
                pipeline.delete(key)
            case "run":
                pipeline.run(seed=seed + number)
            case "reverse":
                pipeline.reverse()
            case "twice":
                pipeline.duplicate()
            case "lose":
                pipeline.lose()
    lost = any(what == "lose" for _, what in steps)
    pipeline.run(seed=seed)
    for key in KEYS if lost else ():
        pipeline.audit(key)
    pipeline.run()
    for key in KEYS:
        current, row = pipeline.s3.current(key), pipeline.row(key)
        content = None if current is None else current.content
        if row is None:
            assert key not in effects
            assert content is None or (content == b"" and key != "in/a.pdf")
        else:
            assert row.settled
            assert content is None or effects[key] == content
    assert not pipeline.dead_letters


@pytest.mark.failure_mode("F280")
@pytest.mark.parametrize("deletes", [True, False])
@pytest.mark.parametrize("backfill", [True, False])
def test_an_audit_counts_directory_markers_and_sends_none(deletes: bool, backfill: bool) -> None:
    """Otherwise each run would send all of them, and the consumer would skip them again."""
    world = AuditWorld(deletes=deletes)
    world.s3.put("in/", size=0)
    world.s3.put("in_$folder$", size=0, age=10**10)
    world.s3.put("removed/", size=0)
    world.s3.mark("removed/")
    world.s3.put("content/")
    world.s3.put("empty.csv", size=0)
    failed = world.s3.put("failed/", size=0)
    world.insert("failed/", failed, Status.FAILED)
    for _ in range(2):
        report = world.run(backfill=backfill)
        assert report.lines[Line.DIRECTORY_MARKERS] == 3
        assert report.checked == 3
        # The query counts them without a look.
        assert sorted(set(world.s3.heads)) == ["content/", "empty.csv", "failed/"]
    assert sorted(set(world.sent)) == ["content/", "empty.csv", "failed/"]
    assert "3 directory markers" in report.summary(world.clock())
    world.settings = replace(world.settings, directory_markers=True)
    assert world.run(backfill=True).lines[Line.DIRECTORY_MARKERS] == 0
    assert {"in/", "in_$folder$"} <= set(world.sent)


@pytest.mark.failure_mode("F280")
def test_a_candidate_that_turns_out_to_be_a_directory_marker_is_not_sent() -> None:
    """The object was replaced, or its row expired, since the run has read them."""

    class Replaced(PagedS3):
        def head_object(self, **arguments: str) -> dict[str, object]:
            self.put("in/", size=0)
            return PagedS3.head_object(self, **arguments)

    world = AuditWorld()
    world.s3 = Replaced(world.clock)
    world.s3.put("in/")
    report = world.run()
    assert (world.sent, report.lines[Line.DIRECTORY_MARKERS]) == ([], 1)


@pytest.mark.failure_mode("F280")
@given(st.sampled_from(["in/", "in_$folder$", "a"]), st.integers(0, 1), st.sampled_from(list(Ordering)))
def test_what_the_audit_leaves_out_is_what_the_consumer_skips(key: str, size: int, ordering: Ordering) -> None:
    """Both judge objects without a row."""
    pipeline = LocalPipeline(lambda _: Commit("ok"), ordering=ordering)
    pipeline.put(key, b"x" * size)
    pipeline.run()
    world = AuditWorld(ordering)
    world.s3.put(key, size=size)
    assert (world.run().lines[Line.DIRECTORY_MARKERS] == 1) is (pipeline.verdicts["SKIPPED"] == 1)


@pytest.mark.failure_mode("F279")
@pytest.mark.parametrize(
    "form", [FormSettings(FormKind.QUIET, "s/*/", quiet_seconds=60), FormSettings(FormKind.MARKER, "s/*/_SUCCESS")]
)
@pytest.mark.parametrize("asked", [True, False])
def test_a_directory_marker_is_no_part_of_a_set(form: FormSettings, asked: bool) -> None:
    """Neither with a row, if the pipeline of the parts processes them."""
    bench = SetBench(form)
    bench.parts._environment |= environment_of(ConsumerSettings, directory_markers=asked)
    for key in ("s/1/", "s/1/sub/", "s/1/sub_$folder$"):
        bench.put(key, b"")
    for key in ("s/1/a.csv", "s/1/sub/b.csv", "s/1/_SUCCESS"):
        bench.put(key)
    bench.run()
    [run] = bench.runs
    assert {key for key, _ in run.parts} == {"s/1/a.csv", "s/1/sub/b.csv"}
    assert bench.dead_letters == []


@pytest.mark.failure_mode("F280")
@pytest.mark.parametrize("every_version", [True, False])
def test_the_predicate_knows_removals_of_latest_only(every_version: bool) -> None:
    """In EVERY_VERSION each removal has another row than the versions of its key."""
    marker = State(StateKind.MARKER, "m")
    assert is_skipped_marker("in/", marker, every_version=every_version) is not every_version
    assert not is_skipped_marker("in/a", marker, every_version=every_version)
    assert not is_skipped_marker("in/", State(StateKind.DELETED, "1"), every_version=every_version)
