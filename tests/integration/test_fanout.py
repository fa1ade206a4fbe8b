"""Tests the judge, the script and the texts of the fan-out example without AWS."""

from collections import Counter
from dataclasses import asdict, fields, replace
from pathlib import Path

import psycopg
import pytest
from examples.fanout import material, script
from examples.fanout.functions import archive, search
from examples.fanout.judge import Document, Errors, Indexes, compare, kept_indexes
from examples.fanout.script import Fate
from examples.harness.objects import Action
from examples.postgres import Postgres

from cdk_intake_ledger.testing import Fault, LocalPipeline
from intake_ledger import Commit, ObjectChange
from intake_ledger.outputs.sql import schema
from intake_ledger.protocol.row import Ordering

SCHEMA = Path(__file__).resolve().parents[2] / "examples" / "fanout" / "schema.sql"
DEMANDED = Indexes(
    archive={("a", "1"): "hash-1", ("a", "2"): "hash-2", ("b", "3"): "hash-3"},
    documents={"a": Document("2", "two"), "b": Document("3", "three")},
    found={"two": frozenset({"a"}), "four": frozenset()},
)


@pytest.fixture
def database(postgres: Postgres, monkeypatch: pytest.MonkeyPatch) -> str:
    """A database with the tables of the example, which the processors use."""
    created = postgres.new_database()
    with psycopg.connect(created) as connection:
        connection.execute(SCHEMA.read_bytes())
        connection.execute(schema())
    monkeypatch.setenv("DATABASE", created)
    return created


def errors(kept: Indexes) -> dict[str, int]:
    """The kinds of errors that the judge finds."""
    return {kind: count for kind, count in asdict(compare(DEMANDED, kept)).items() if count}


def test_indexes_as_s3_demands_them_have_no_error() -> None:
    assert errors(DEMANDED) == {}


def test_each_kind_of_error_is_counted_as_such() -> None:
    archive, documents, found = DEMANDED.archive, DEMANDED.documents, DEMANDED.found
    wrong = {
        "archive_missing": replace(DEMANDED, archive={("a", "2"): "hash-2", ("b", "3"): "hash-3"}),
        "archive_wrong": replace(DEMANDED, archive=archive | {("a", "1"): "hash-2"}),
        "archive_surplus": replace(DEMANDED, archive=archive | {("a", "0"): "hash-0"}),
        "search_missing": replace(DEMANDED, documents={"a": Document("2", "two")}),
        "search_stale": replace(DEMANDED, documents=documents | {"a": Document("1", "one")}),
        "search_surplus": replace(DEMANDED, documents=documents | {"c": Document("4", "four")}),
        "answers_wrong": replace(DEMANDED, found=found | {"two": frozenset({"b"})}),
    }
    assert set(wrong) == {field.name for field in fields(Errors)}
    counts = {kind: errors(kept) for kind, kept in wrong.items()}
    assert counts == {kind: {kind: 2 if kind == "answers_wrong" else 1} for kind in wrong}


def test_a_right_version_with_another_text_is_stale() -> None:
    assert errors(replace(DEMANDED, documents=DEMANDED.documents | {"a": Document("2", "one")})) == {"search_stale": 1}


def test_the_indexes_of_a_side_are_read_from_its_database(database: str) -> None:
    """A deleted version has a row with a mark. It does not count as an entry."""
    with psycopg.connect(database) as connection:
        connection.execute("INSERT INTO archive VALUES ('a', '1', NULL, true), ('a', '2', 'hash-2', false)")
        connection.execute("INSERT INTO documents VALUES ('a', '2', 'Some words, draftnumber2.')")
    kept = kept_indexes(database, ("draftnumber2", "some", "draftnumber1"))
    assert kept == Indexes(
        {("a", "2"): "hash-2"},
        {"a": Document("2", "Some words, draftnumber2.")},
        {"draftnumber2": frozenset({"a"}), "some": frozenset({"a"}), "draftnumber1": frozenset()},
    )


def test_a_late_worker_does_not_bring_an_older_text_back(database: str) -> None:
    """It read the older version, and was paused until its successor had committed the newer one."""

    def process(change: ObjectChange) -> Commit | None:
        if change.key == "uploads a newer version":
            pipeline.put("a", "new")
            return None
        return search.process(change)

    pipeline = LocalPipeline(process)
    pipeline.put("a", "old")
    pipeline.put("uploads a newer version", "")
    pipeline.next(Fault.OVERTAKEN_AND_KILLED)
    pipeline.run()
    assert len([change for change in pipeline.calls if change.key == "a"]) > 1
    assert {key: document.body for key, document in kept_indexes(database, ()).documents.items()} == {"a": "new"}


def test_a_late_worker_does_not_bring_a_deleted_version_back(database: str) -> None:
    """It had read the version, and was paused until the deletion was committed."""

    def process(change: ObjectChange) -> Commit | None:
        if change.key == "deletes the version":
            assert version is not None
            pipeline.delete_version("a", version)
            return None
        return archive.process(change)

    pipeline = LocalPipeline(process, ordering=Ordering.EVERY_VERSION, deletes=True)
    version = pipeline.put("a", "text")
    pipeline.put("deletes the version", "")
    pipeline.next(Fault.OVERTAKEN_AND_KILLED)
    pipeline.run()
    assert {change.kind for change in pipeline.calls if change.key == "a"} == {"created", "deleted"}
    assert kept_indexes(database, ()).archive == {}


@pytest.mark.parametrize("seed", range(5))
def test_both_processors_are_right_under_random_faults(database: str, seed: int) -> None:
    archiving = LocalPipeline(archive.process, ordering=Ordering.EVERY_VERSION, deletes=True)
    searching = LocalPipeline(search.process, deletes=True)
    for pipeline in (archiving, searching):
        for number in range(1, 4):
            for key in ("kept", "rolled back", "deleted"):
                version = pipeline.put(key, f"text {number} of {key}")
                if (key, number) == ("rolled back", 3):
                    assert version is not None
                    pipeline.delete_version(key, version)
        pipeline.delete("deleted")
        pipeline.duplicate()
        pipeline.run(seed=seed)
    kept = kept_indexes(database, ())
    assert {key: document.body for key, document in kept.documents.items()} == {
        "kept": "text 3 of kept",
        "rolled back": "text 2 of rolled back",
    }
    counts = Counter(key for key, _ in kept.archive)
    assert counts == {"kept": 3, "rolled back": 2, "deleted": 3}


@pytest.mark.parametrize("short", [True, False])
def test_every_story_is_told_in_both_forms(short: bool) -> None:
    keys = material.names(short=short)
    written = script.write(keys, seed=1, kills=not short)
    told = {operation.story for operation in written.stages[0]}
    assert told == {story.name for story in script.STORIES if not (short and story.kills)}
    assert sorted(operation.key for operation in written.stages[0]) == sorted(keys)
    assert len(written.kill_keys) == (0 if short else 1)


def test_no_event_of_a_permanent_deletion_is_lost() -> None:
    """No listing shows the deletion of an older version, so that no audit can find it."""
    steps = [step for story in script.STORIES for step in (story.first, *story.then)]
    assert not any(
        fate is Fate.LOST for action, fate in steps if action in (Action.TRIM, Action.ROLL_BACK, Action.UNDELETE)
    )
