"""Files that are left out (`exclude`): no row, no call, no dead letter. A key with a row is never left out."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from cdk_intake_ledger.testing import Fault, LocalMessages, LocalPipeline, LocalSets
from intake_ledger import Unprocessable
from intake_ledger.audit.diff import Line
from intake_ledger.ledger.row_history import EXCLUDED, RowHistoryRecord, record_key
from intake_ledger.protocol.errors import SettingsError
from intake_ledger.protocol.exclude import Exclude, noted, pattern_problem, read_exclude, with_former
from intake_ledger.protocol.row import Ordering, Status
from tests.kinds.cells import Cell
from tests.unit.audit.support import AuditWorld
from tests.unit.support import DAY, HOUR

SPARK = ["_*", ".*", "*.filepart", "_temporary/"]
LATEST, EVERY_VERSION = Ordering.LATEST, Ordering.EVERY_VERSION


def pipeline(process: Callable[[Any], Any] = lambda _: None, **options: Any) -> LocalPipeline:
    return LocalPipeline(process, exclude=options.pop("exclude", SPARK), **options)


def deploy(local: LocalPipeline, *patterns: str) -> None:
    """The next workers have these patterns."""
    local._environment.pop("INTAKE_EXCLUDE", None)
    if patterns:
        local._environment["INTAKE_EXCLUDE"] = json.dumps(patterns)
    local._row_history = RowHistoryRecord(local._settings, local._table, local.clock)


def called(local: LocalPipeline) -> list[str]:
    return [change.key for change in local.calls]


@pytest.mark.failure_mode("F764")
@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("_*", ["_a", "in/_SUCCESS", "_/_"], ["a_", "_in/a", "in/"]),
        (".*", [".a", "in/.part.crc"], ["in/a.csv", ".in/a"]),
        ("*.filepart", ["a.filepart", "in/a.csv.filepart", ".filepart"], ["a.filepart.csv", "a.FILEPART"]),
        ("_temporary/", ["_temporary/a", "in/_temporary/0/a", "in/_temporary/"], ["_temporary", "a_temporary/b"]),
        ("tmp-?/", ["tmp-1/a", "in/tmp-x/b/c"], ["tmp-12/a", "tmp-/a"]),
        ("in/*.tmp", ["in/a.tmp"], ["a.tmp", "in/b/a.tmp", "x/in/a.tmp"]),
        ("in/tmp/", ["in/tmp/a", "in/tmp/a/b", "in/tmp/"], ["in/tmp", "x/in/tmp/a", "in/a"]),
        ("in/*/tmp/", ["in/a/tmp/b"], ["in/tmp/b", "in/a/b/tmp/c"]),
        ("[ab].csv", ["a.csv", "in/b.csv"], ["c.csv", "ab.csv"]),
        ("a+b.csv", ["a+b.csv"], ["aab.csv"]),
        ("a\nb", ["a\nb"], ["a"]),
    ],
)
def test_a_pattern_is_about_the_last_part_a_folder_or_the_whole_key(
    pattern: str, matching: list[str], others: list[str]
) -> None:
    exclude = Exclude((pattern,))
    assert [key for key in [*matching, *others] if exclude.matches(key)] == matching


@pytest.mark.failure_mode("F764")
def test_a_key_of_the_longest_length_takes_no_long_time() -> None:
    """A sender chooses keys. With a regular expression that goes back, this pattern would take years."""
    assert not Exclude(("*a*a*a*a*a*a*a*b",)).matches("a" * 1024)


@pytest.mark.failure_mode("F764")
@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("", "1 to 128 characters"),
        ("a" * 129, "1 to 128 characters"),
        (7, "1 to 128 characters"),
        ("*", "all keys"),
        ("?*", "all keys"),
        ("**/*", "all keys"),
        ("/tmp/", "begins with a slash"),
        ("in/**/tmp/", r"\*\* has no meaning"),
        ("!a", "no exceptions"),
        ("*.{tmp,part}", "a pattern for each alternative"),
        ("s3://bucket/tmp/", "no URI"),
    ],
)
def test_a_pattern_that_would_mean_nothing_is_refused(pattern: Any, why: str) -> None:
    with pytest.raises(SettingsError, match=why):
        read_exclude("INTAKE_EXCLUDE", json.dumps([pattern]))
    with pytest.raises(ValueError, match=f"exclude is .*{why}"):
        pipeline(exclude=[pattern])


@pytest.mark.failure_mode("F764")
def test_settings_that_are_no_patterns_are_refused() -> None:
    for text in ("{}", "[", "7"):
        with pytest.raises(SettingsError, match="expected a JSON list"):
            read_exclude("INTAKE_EXCLUDE", text)
    with pytest.raises(SettingsError, match="there are 51 patterns"):
        read_exclude("INTAKE_EXCLUDE", json.dumps([str(n) for n in range(51)]))
    assert read_exclude("INTAKE_EXCLUDE", "") is None
    assert pattern_problem("in/{date}.tmp") is None


@pytest.mark.failure_mode("F759")
@pytest.mark.quiet_tables
@pytest.mark.parametrize("deletes", [True, False])
@pytest.mark.parametrize("versioned", [True, False])
def test_an_upload_under_a_temporary_name_is_left_out_with_its_removal(deletes: bool, versioned: bool) -> None:
    """It was renamed, which copies and deletes it, before its message came. Before, each such name had a row."""
    local = pipeline(deletes=deletes, versioned=versioned)
    local.put("in/a.csv.filepart", "1")
    local.delete("in/a.csv.filepart")
    local.put("in/a.csv", "1")
    local.run()
    assert called(local) == ["in/a.csv"]
    assert (local.row("in/a.csv.filepart"), local.dead_letters, local.removed_unprocessed) == (None, [], 0)
    assert local.verdicts == {"ACCEPTED": 1}
    assert local.requests.count("get_item") == 2


@pytest.mark.failure_mode("F759")
@pytest.mark.parametrize("ordering", list(Ordering))
@pytest.mark.parametrize("max_per_call", [1, 3])
def test_what_is_left_out_costs_one_read(ordering: Ordering, max_per_call: int) -> None:
    local = pipeline(ordering=ordering, max_per_call=max_per_call)
    for key in ("_SUCCESS", "in/.a.crc", "in/_temporary/0/b"):
        local.put(key, "1")
    local.run()
    assert local.requests == ["get_item"] * 3
    assert (local.verdicts, local.waiting, local.dead_letters) == ({}, 0, [])


@pytest.mark.failure_mode("F759")
def test_a_key_that_matches_is_not_claimed_together_with_others() -> None:
    local = pipeline(commit_together=True)
    for key in ("a", "_b", "c"):
        local.put(key, "1")
    local.run()
    assert (sorted(called(local)), local.row("_b")) == (["a", "c"], None)


@pytest.mark.failure_mode("F760")
@pytest.mark.parametrize("ordering", list(Ordering))
def test_a_failed_row_goes_on_after_its_key_was_excluded(ordering: Ordering) -> None:
    """It would be stuck: its message would be acknowledged, and no attempt would follow."""
    local = pipeline(exclude=["*.tmp"], ordering=ordering)
    local.put("_a", "1")
    local.next(Fault.KILLED_BEFORE_EFFECT)
    local.run(hours=0.01)
    deploy(local, "_*")
    local.run()
    row = local.row("_a")
    assert row is not None
    assert row.status is Status.PROCESSED


@pytest.mark.failure_mode("F760")
def test_a_rejected_row_can_be_redriven_after_its_key_was_excluded() -> None:
    bad = [True]

    def process(_: Any) -> None:
        if bad[0]:
            raise Unprocessable("bad")

    local = pipeline(process, exclude=["*.tmp"])
    local.put("_a", "1")
    local.run()
    deploy(local, "_*")
    bad[0] = False
    local.redrive()
    local.run()
    row = local.row("_a")
    assert row is not None
    assert row.status is Status.PROCESSED


@pytest.mark.failure_mode("F760")
@pytest.mark.parametrize("deletes", [True, False])
def test_a_processed_key_is_followed_after_it_was_excluded(deletes: bool) -> None:
    """The downstream has its object, so it needs the next version, and the removal."""
    local = pipeline(exclude=["*.tmp"], deletes=deletes)
    local.put("_a", "1")
    local.run()
    deploy(local, "_*")
    local.put("_a", "2")
    local.run()
    local.delete("_a")
    local.run()
    kinds = [change.kind for change in local.calls]
    assert kinds == ["created", "created", *(["removed"] if deletes else [])]
    assert local.row("_a") is not None


@pytest.mark.failure_mode("F760")
def test_the_row_of_a_deleted_version_expires_after_its_key_was_excluded() -> None:
    """The removal has another row than the version."""
    local = pipeline(exclude=["*.tmp"], ordering=EVERY_VERSION)
    local._environment["INTAKE_KEEP_ROWS"] = "true"
    deploy(local, "*.tmp")
    version = local.put("_a", "1")
    local.run()
    deploy(local, "_*")
    local.delete_version("_a", cast("str", version))
    local.run()
    row = local.row("_a", version)
    assert row is not None
    assert row.expires_at is not None


@pytest.mark.failure_mode("F760")
def test_a_removal_is_told_where_the_row_may_have_expired() -> None:
    """Rows of objects expired before `deletes` was set, and the downstream may have the object."""
    local = pipeline(deletes=True)
    local._environment["INTAKE_KEEP_ROWS"] = "false"
    deploy(local, "_*")
    local.put("_a", "1")
    local.delete("_a")
    local.run()
    assert [change.kind for change in local.calls] == ["removed"]


@pytest.mark.failure_mode("F760")
def test_a_removal_does_not_process_the_replaced_file() -> None:
    """The removal may be of a processed file. The file that S3 shows now is left out all the same."""
    local = pipeline(deletes=True)
    local._environment["INTAKE_KEEP_ROWS"] = "false"
    deploy(local, "_*")
    local.put("_a", "1")
    local.delete("_a")
    local.put("_a", "2")
    local.run()
    assert (local.calls, local.row("_a")) == ([], None)


@pytest.mark.failure_mode("F760")
def test_a_redriven_change_without_a_row_is_judged() -> None:
    """The table was restored. Its copy is the last trace of the object."""
    local = pipeline(lambda _: (_ for _ in ()).throw(Unprocessable("bad")), exclude=["*.tmp"])
    local.put("_a", "1")
    local.run()
    deploy(local, "_*")
    for place in list(local._dynamodb.items):
        local._dynamodb.items.pop(place)
    local.redrive()
    local.run()
    assert len(local.dead_letters) == 1


@pytest.mark.failure_mode("F765")
def test_a_request_of_a_person_for_a_key_that_is_left_out_is_acknowledged() -> None:
    local = pipeline()
    local.put("_a", "1")
    local.run()
    local.reprocess("_a")
    local.run()
    assert (called(local), local.row("_a"), local.waiting) == ([], None, 0)


@pytest.mark.failure_mode("F765")
def test_a_request_for_a_key_that_is_left_out_is_not_sent_for_ever() -> None:
    """A person asked for it, and a pattern came before its message."""
    cell = Cell("objects", kit={"exclude": ["*.tmp"]})
    local = cast("LocalPipeline", cell.local)
    local.put("a/_b", "1")
    local.lose()
    cell.reprocess("99", keys=["a/_b"])
    deploy(local, "_*")
    cell.settings = local._settings
    cell.process = cell.start()
    local.run()
    local.clock.advance(DAY)
    found = cell.check_requests()
    assert (found.void, found.resent) == (1, 0)


def audited(world: AuditWorld, *patterns: str) -> None:
    """The pipeline of an audit, as it is deployed with these patterns. Its consumer starts, and its audit looks."""
    world.settings = replace(world.settings, exclude=Exclude(patterns) if patterns else None)
    RowHistoryRecord(world.settings, world.ledger, world.clock).begin()
    record = RowHistoryRecord(world.settings, world.ledger, world.clock)
    world.settings = record.with_former(world.settings, note=True)


@pytest.mark.failure_mode("F759")
@pytest.mark.parametrize("ordering", list(Ordering))
@pytest.mark.parametrize("backfill", [True, False])
def test_an_audit_counts_what_is_left_out_and_sends_nothing(ordering: Ordering, backfill: bool) -> None:
    world = AuditWorld(ordering, deletes=False)
    audited(world, *SPARK)
    for key in ("_SUCCESS", "in/_temporary/0/a", "a.filepart", "a", "_failed"):
        world.s3.put(key)
    world.insert("_failed", world.s3.keys["_failed"][0], Status.FAILED)
    report = world.run(backfill=backfill)
    assert (report.lines[Line.EXCLUDED], sorted(world.sent)) == (3, ["_failed", "a"])
    assert "3 left out by exclude" in report.summary(world.clock())


@pytest.mark.failure_mode("F761")
@pytest.mark.parametrize("left", [("*.tmp",), ()])
def test_a_file_that_was_left_out_is_not_lost_when_its_pattern_goes(left: tuple[str, ...]) -> None:
    """The audit would process each of them, which nobody has asked for."""
    world = AuditWorld()
    audited(world, "_*", *left)
    world.s3.put("_old")
    world.clock.advance(HOUR)
    audited(world, *left)
    world.clock.advance(1000)
    world.s3.put("_new", age=0)
    world.clock.advance(2 * HOUR)
    for _ in range(2):
        report = world.run()
        assert (report.lines[Line.EXCLUDED], sorted(set(world.sent))) == (1, ["_new"])
        audited(world, *left)


@pytest.mark.failure_mode("F761")
def test_a_pattern_that_comes_again_ends_again() -> None:
    first = noted(Exclude(("_*", "*.tmp")), None, 1)
    second = noted(Exclude(("*.tmp",)), first, 2)
    assert with_former(Exclude(("*.tmp",)), second, 9) == Exclude(("*.tmp",), (("_*", 2),))
    third = noted(Exclude(("_*",)), second, 3)
    assert with_former(Exclude(("_*",)), third, 9) == Exclude(("_*",), (("*.tmp", 3),))
    fourth = noted(None, third, 4)
    assert with_former(None, fourth, 9) == Exclude((), (("_*", 4), ("*.tmp", 3)))
    assert noted(None, fourth, 5) == fourth
    # The environment that ended a pattern has not begun: it has not ended before now.
    assert with_former(None, third, 9) == Exclude((), (("_*", 9), ("*.tmp", 3)))
    assert noted(None, None, 1) is None
    assert with_former(None, None, 1) is None


@pytest.mark.failure_mode("F761")
def test_the_audit_notes_the_end_of_a_pattern_and_a_dry_run_does_not() -> None:
    """A consumer without `exclude` begins with its next message only."""
    world = AuditWorld()
    audited(world, "_*")
    place = record_key(world.settings)
    settings = replace(world.settings, exclude=None)
    world.clock.advance(DAY)
    RowHistoryRecord(settings, world.ledger, world.clock).with_former(settings, note=False)
    assert json.loads(world.ledger.read(place)[EXCLUDED]) == {"_*": None}
    RowHistoryRecord(settings, world.ledger, world.clock).with_former(settings, note=True)
    ended = world.clock()
    assert json.loads(world.ledger.read(place)[EXCLUDED]) == {"_*": ended}
    world.clock.advance(DAY)
    RowHistoryRecord(settings, world.ledger, world.clock).begin()
    assert json.loads(world.ledger.read(place)[EXCLUDED]) == {"_*": ended}


@pytest.mark.failure_mode("F762")
def test_wider_patterns_leave_rows_as_they_are() -> None:
    world = AuditWorld(deletes=True)
    audited(world, "*.tmp")
    committed, removed = world.s3.put("_a"), world.s3.put("_b")
    world.commit("_a", committed)
    world.commit("_b", removed)
    del world.s3.keys["_b"]
    overwritten = world.s3.put("_c")
    world.commit("_c", overwritten)
    world.s3.put("_c")
    audited(world, "*.tmp", "_*")
    report = world.run()
    assert (report.lines[Line.AGREES], sorted(world.sent)) == (1, ["_b", "_c"])


@pytest.mark.failure_mode("F763")
def test_a_manifest_that_names_a_part_that_is_left_out_is_refused_at_once() -> None:
    """It would wait for its deadline, and nothing would say why."""
    sets = LocalSets(lambda _: None, manifest="loads/*/manifest.json", exclude=["*.tmp"])
    sets.put("loads/1/a.tmp", "1")
    sets.put("loads/1/manifest.json", '["a.tmp"]')
    sets.run(hours=1)
    row = sets.row("loads/1/manifest.json")
    assert row is not None
    assert row.status is Status.REJECTED
    assert "part 1 is left out by `exclude` of the pipeline, so it is never committed" in (row.reason or "")


@pytest.mark.failure_mode("F763")
def test_a_manifest_may_name_a_part_with_a_row() -> None:
    sets = LocalSets(lambda _: None, manifest="loads/*/manifest.json", exclude=["*.csv"])
    sets.put("loads/1/a.tmp", "1")
    sets.run()
    for one in (sets, sets.parts):
        deploy(cast("LocalPipeline", one), "*.tmp")
    sets.put("loads/1/manifest.json", '["a.tmp"]')
    sets.run()
    assert [[part.key for part in files.parts] for files in sets.calls] == [["loads/1/a.tmp"]]


@pytest.mark.failure_mode("F763")
@pytest.mark.parametrize("form", [{"marker": "loads/*/_SUCCESS"}, {"quiet_folder": "loads/*/"}])
def test_a_set_has_no_part_that_is_left_out_and_its_marker_counts(form: dict[str, Any]) -> None:
    """The patterns of Spark match the marker too."""
    sets = LocalSets(lambda _: None, exclude=[*SPARK, "*.tmp"], **form)
    for key in ("a.csv", "b.tmp", "_SUCCESS"):
        sets.put(f"loads/1/{key}", "1")
    sets.run()
    assert [[part.key for part in files.parts] for files in sets.calls] == [["loads/1/a.csv"]]
    row = sets.parts.row("loads/1/_SUCCESS")
    assert (row is not None) is ("marker" in form)
    assert sets.parts.row("loads/1/b.tmp") is None


@pytest.mark.failure_mode("F762", "F761")
@pytest.mark.parametrize("patterns", [["*.old"], []])
def test_other_patterns_do_not_change_a_finished_set(patterns: list[str]) -> None:
    """A file that has a row stays a part, and one that was left out becomes none."""
    sets = LocalSets(lambda _: None, marker="loads/*/done", exclude=["*.tmp"])
    for key in ("a.csv", "b.old", "c.tmp", "done"):
        sets.put(f"loads/1/{key}", "1")
    sets.run()
    for one in (sets, sets.parts):
        deploy(cast("LocalPipeline", one), *patterns)
    sets.clock.advance(HOUR)
    sets.put("loads/2/x.csv", "1")  # the consumer of the parts begins
    sets.run()
    sets.wake("loads/1/done")
    sets.run()
    assert [[part.key for part in files.parts] for files in sets.calls] == [["loads/1/a.csv", "loads/1/b.old"]]
    row = sets.row("loads/1/done")
    assert row is not None
    assert row.status is Status.PROCESSED


@pytest.mark.failure_mode("F764")
def test_removals_of_versions_would_be_lost() -> None:
    with pytest.raises(ValueError, match="exclude and deletes are set, and a delete marker names no version"):
        pipeline(ordering=EVERY_VERSION, deletes=True)


@pytest.mark.failure_mode("F764")
def test_messages_are_no_files() -> None:
    with pytest.raises(TypeError, match="unexpected option 'exclude'"):
        LocalMessages(lambda _: None, key="order", identity="event", exclude=["_*"])  # type: ignore[call-arg]
    local = LocalMessages(lambda _: None, key="order", identity="event")
    local._environment["INTAKE_EXCLUDE"] = '["_*"]'
    local.send({"order": "1", "event": "1"})
    with pytest.raises(SettingsError, match="messages are no files: omit INTAKE_EXCLUDE"):
        local.run()


@pytest.mark.failure_mode("F759")
def test_the_example_of_the_page_leaves_out_what_spark_and_sftp_write() -> None:
    """Spark writes parts below `_temporary` and renames them, with checksums and `_SUCCESS`. SFTP ends names."""
    page = (Path(__file__).parents[3] / "docs" / "options.md").read_text()
    example = page.partition("## Leave files out\n")[2].partition("```python\n")[2].partition("```")[0]
    patterns = re.findall(r"exclude=(\[.*\])", example)
    local = pipeline(exclude=json.loads(patterns[0]))
    for name in ("part-0", "part-1"):
        local.put(f"out/_temporary/0/task/{name}", "1")
        local.put(f"out/{name}", "1")
        local.put(f"out/.{name}.crc", "1")
        local.delete(f"out/_temporary/0/task/{name}")
    local.put("out/_SUCCESS", "")
    local.put("in/orders.csv.filepart", "1")
    local.put("in/orders.csv", "1")
    local.delete("in/orders.csv.filepart")
    local.run()
    assert sorted(called(local)) == ["in/orders.csv", "out/part-0", "out/part-1"]
    assert not local.dead_letters
