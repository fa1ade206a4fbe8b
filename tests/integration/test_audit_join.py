"""The audit's one query: it nominates every difference, and counts all else in the lines of the rule itself."""

import hashlib
import io
import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import replace
from itertools import batched, count, islice
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, cast

import duckdb
import pytest
import sqlglot
from botocore.response import StreamingBody

from intake_ledger.audit import in_parts, inventory
from intake_ledger.audit.budget import OwnBudget
from intake_ledger.audit.diff import Finding, Line, Window, judge
from intake_ledger.audit.in_parts import AuditInParts
from intake_ledger.audit.join import duckdb as duckdb_join
from intake_ledger.audit.join.duckdb import Join, Slice, connection, slice_name, write
from intake_ledger.audit.join.parts import join_parts
from intake_ledger.audit.join.sqlite import SqliteJoin
from intake_ledger.audit.relations import COLUMNS, HELD, LISTED, QUERY, Candidate, candidate, held_entry, listed_entry
from intake_ledger.audit.report import Report
from intake_ledger.audit.scratch import Scratch
from intake_ledger.audit.table import AuditTable
from intake_ledger.audit.tools import Judgement, Tools
from intake_ledger.protocol.change import State, StateKind
from intake_ledger.protocol.row import FORMAT, STORED_STATUSES, Ordering, Row, Status
from tests.integration.test_audit_inventory import (
    CSV_SCHEMA,
    ORC_SCHEMA,
    PARQUET_SCHEMA,
    as_csv,
    as_orc,
    as_parquet,
    manifest,
)
from tests.settings import THOROUGH, examples
from tests.unit.audit.invocations import Gate, Gated, Killed
from tests.unit.audit.oracle import OracleWorld, build, random_world
from tests.unit.audit.scratch import FolderScratch
from tests.unit.audit.support import AuditWorld
from tests.unit.audit.test_oracle import WORLDS, found, window
from tests.unit.support import BUCKET, DAY, HOUR, PIPELINE, START

JOINED_WORLDS = WORLDS if WORLDS > 1_000 else examples(90)
KILLED_WORLDS = 10 if WORLDS > 1_000 else 1
OWN_CONNECTIONS = 50
"""Each n-th world opens DuckDB as a Lambda function does. The others share one instance, which saves most of the time.
All of them write and read Parquet files.
"""
FORMS = {"CSV": (CSV_SCHEMA, as_csv), "Parquet": (PARQUET_SCHEMA, as_parquet), "ORC": (ORC_SCHEMA, as_orc)}
REPORT = "inv/2026-11-20T01-00Z/"
ODD = [
    "a b", "c+d", "e%20f", 'g"h', "i'j", "k,l", "m\nn", "ö", "日本", "\U0001f600", "x/y//z", "v#1", "nul\x00",
    "\x01\x1f\x7f", "\\", "\\u0041", "'; DROP TABLE listed; --", "\u2028\ufeff", "NULL", "%_", "k" * 1_000,
]  # fmt: skip

Connect = Callable[[Path], AbstractContextManager[duckdb.DuckDBPyConnection]]


class FreeRuns:
    """No other run exists."""

    def take(self, **_: Any) -> int:
        return 0

    def backfill(self, _: Any) -> tuple[bool, list[str]]:
        return False, []

    def finish(self, *_: Any, **__: Any) -> None: ...


def without_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Store files in a folder, and do not share the budget."""
    monkeypatch.setattr(in_parts, "Scratch", FolderScratch)
    monkeypatch.setattr(in_parts, "SharedBudget", lambda *_: OwnBudget(100_000))


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    without_others(monkeypatch)


@pytest.fixture(scope="module")
def shared_duckdb() -> Iterator[Connect]:
    """Connections to one instance of DuckDB. Each has its own temporary views."""
    database = duckdb.connect(config={"threads": 1})

    @contextmanager
    def connect(_: Path) -> Iterator[duckdb.DuckDBPyConnection]:
        with closing(database.cursor()) as cursor:
            yield cursor

    yield connect
    database.close()


@contextmanager
def environment_of(seed: int, connect: Connect) -> Iterator[Path]:
    """A folder for the files of one world, and its connections to DuckDB."""
    with TemporaryDirectory(prefix="oracle-") as folder, pytest.MonkeyPatch.context() as patch:
        if seed % OWN_CONNECTIONS:
            for module in (duckdb_join, inventory):
                patch.setattr(module, "connection", connect)
        yield Path(folder)


class ReportedS3:
    """The bucket, and the newest report of its inventory in files of ten states."""

    def __init__(self, made: AuditWorld, form: str) -> None:
        entries = [
            (key, state, place == 0)
            for key, states in sorted(made.s3.keys.items())
            for place, state in enumerate(reversed(states))
        ]
        self._bucket = made.s3
        self._objects: dict[str, bytes] = {}
        files, (schema, as_file) = [], FORMS[form]
        for number, states in enumerate(batched(entries, 10)):
            body = as_file(list(states))
            files.append({"key": f"data/{number}", "size": len(body), "MD5checksum": hashlib.md5(body).hexdigest()})
            self._objects[f"data/{number}"] = body
        kind = {"fileFormat": form, "fileSchema": schema}
        told = manifest(sourceBucket=BUCKET, creationTimestamp=str(made.clock()), files=files, **kind)
        content = json.dumps(told).encode()
        self._objects[f"{REPORT}manifest.json"] = content
        self._objects[f"{REPORT}manifest.checksum"] = hashlib.md5(content).hexdigest().encode()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bucket, name)

    def get_object(self, **request: Any) -> dict[str, Any]:
        content = self._objects[request["Key"]]
        return {"Body": StreamingBody(cast("Any", io.BytesIO(content)), len(content))}

    def get_paginator(self, operation: str) -> Any:
        return SimpleNamespace(paginate=lambda **_: iter([{"CommonPrefixes": [{"Prefix": REPORT}]}]))


def audit(
    made: AuditWorld, world: OracleWorld, folder: Path, shards: int, *, gate: Gate | None = None, s3: Any = None
) -> Report:
    """A run through the join, as the state machine has it; each listing page and each batch of rows is a slice.

    An invocation that is killed at `gate` is tried again, in another environment. `s3` has an inventory.
    """
    gate = gate or Gate()
    tools = Tools(
        settings=made.settings,
        s3=cast("Any", Gated(s3 or made.s3, gate)),
        sqs=cast("Any", Gated(made.sqs, gate)),
        dynamodb=cast("Any", Gated(made.store, gate)),
        clock=made.clock,
        judge=lambda *_: Judgement(window(world), resubmit=True, held=""),
        delivery=list,
        scratch=str(folder),
        heads=1,
        sleep=lambda _: None,
    )

    def environment() -> AuditInParts:
        run = AuditInParts(tools, "run")
        run._runs = cast("Any", FreeRuns())
        run._scratch = cast("Any", GatedScratch(run._scratch, gate))
        return run

    def join() -> dict[str, Any]:
        nothing: Any = None
        return join_parts(cast("Any", GatedScratch(FolderScratch(nothing, str(folder), "run"), gate)))

    asked = {"input": {}, "leaseSeconds": 1, "parts": shards, "segments": 1}
    asked |= {"inventory": {"bucket": "reports", "prefix": "inv/"}} if s3 else {}
    planned = tried(lambda: environment().plan(asked))
    for part in planned["parts"]:
        event = {"part": part, "slice": 0, "after": "", "done": False}
        while not event["done"]:
            event = tried(lambda event=event: environment().write(event, lambda: 900_000))  # type: ignore[misc]
    for part in tried(join)["parts"]:
        looked = tried(lambda part=part: environment().look({"part": part}, lambda: 900_000))  # type: ignore[misc]
        assert looked["done"]
    return tried(lambda: environment().finish())


def tried[Answer](step: Callable[[], Answer]) -> Answer:
    """Call a step as the state machine does, which repeats a killed call."""
    try:
        return step()
    except Killed:
        return step()


class GatedScratch:
    """The files of a run; their requests pass through the gate."""

    def __init__(self, scratch: Scratch, gate: Gate) -> None:
        self._scratch, self._gate = scratch, gate
        self.run = scratch.run

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._scratch, name)
        return lambda *arguments: self._gate.call(name, lambda: method(*arguments), {})


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.usefixtures("alone")
def test_a_run_by_an_inventory_finds_what_the_page_promises(shared_duckdb: Connect, form: str) -> None:
    """S3's own list of each world, in one of its formats."""
    for seed in range(list(FORMS).index(form), JOINED_WORLDS, len(FORMS)):
        world = random_world(Random(seed), START)
        made = build(world, page_size=1000)
        with environment_of(seed, shared_duckdb) as folder:
            report = audit(made, world, folder, 1, s3=ReportedS3(made, form))
        expected = world.expected()
        assert found(report) == expected, f"seed {seed}: {world}"
        assert sorted(made.sent) == sorted(key for key, _, _ in expected)
        assert report.complete


@pytest.mark.failure_mode("F42")
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.usefixtures("alone")
def test_a_run_through_the_join_that_is_killed_anywhere_loses_nothing(shared_duckdb: Connect, after: bool) -> None:
    """At each request, before or after S3, DynamoDB or SQS carries it out. The short form kills at each fourth."""
    worlds = (random_world(Random(seed), START) for seed in count())
    for world in islice(filter(is_telling, worlds), KILLED_WORLDS):
        expected, kill_at, killed = world.expected(), 0, True
        while killed:
            kill_at += 1 if THOROUGH or WORLDS > 1_000 else 4
            gate, made = Gate(kill_at, after), build(world, page_size=10)
            with environment_of(kill_at, shared_duckdb) as folder:
                report = audit(made, world, folder, 2, gate=gate)
            killed = gate.number >= kill_at
            assert found(report) == expected, kill_at
            assert report.complete
            # The mark is written after the send, so messages of the killed call may be sent again.
            assert set(made.sent) == {key for key, _, _ in expected}
        assert kill_at > 20


def is_telling(world: OracleWorld) -> bool:
    """Tell whether the world is small and has a finding of each kind."""
    return {finding for _, finding, _ in world.expected()} == {*Finding} and len(world.stories) < 35


@pytest.mark.failure_mode("F115")
@pytest.mark.usefixtures("alone")
def test_a_run_through_the_join_finds_what_the_page_promises(shared_duckdb: Connect) -> None:
    """Exactly these, with a message for each finding, and the same lines as in one function."""
    for seed in range(JOINED_WORLDS):
        world = random_world(Random(seed), START)
        made, alone = (build(world, page_size=Random(seed).choice([3, 1000])) for _ in range(2))
        with environment_of(seed, shared_duckdb) as folder:
            report = audit(made, world, folder, shards=Random(seed).choice([1, 3]))
        expected = world.expected()
        assert found(report) == expected, f"seed {seed}: {world}"
        assert sorted(made.sent) == sorted(key for key, _, _ in expected)
        assert report.candidates >= len(expected)
        assert report.dismissed == report.candidates - len(expected)
        assert report.complete
        assert report.lines == alone.run(window=window(world)).lines, f"seed {seed}: {world}"


def slices(folder: Path, part: str, content: list[list[Any]], *, each: int) -> None:
    """The files of one part."""
    parts = [content[n : n + each] for n in range(0, len(content), each)] or [[]]
    for number, some in enumerate(parts):
        start, after = (f"place '{n}'" if 0 < n < len(parts) else "" for n in (number, number + 1))
        about = Slice(start, after, len(some), len(some), 0, 0, 0)
        write(folder / f"{slice_name(part, number)}.parquet", part.partition("-")[0], some, lambda about=about: about)  # type: ignore[misc]


Joined = Callable[[Path, list[list[Any]], list[list[Any]], Window, bool], tuple[dict[str, int], list[Candidate]]]


def by_duckdb(
    folder: Path, listed: list[list[Any]], held: list[list[Any]], judged: Window, deletes: bool
) -> tuple[dict[str, int], list[Candidate]]:
    """The large form, from the files of parts."""
    slices(folder, "listed-00000", listed, each=250)
    slices(folder, "held-00000", held, each=300)
    parts = ["listed-00000", "held-00000"]
    with Join(folder).audited(parts, judged, deletes=deletes, all_listed=True) as audited:
        return audited.lines(), [candidate(values) for values in audited.candidates()]


def by_sqlite(
    folder: Path, listed: list[list[Any]], held: list[list[Any]], judged: Window, deletes: bool
) -> tuple[dict[str, int], list[Candidate]]:
    """The small form, within one function."""
    join = SqliteJoin(folder / "audit")
    join.add(HELD, held)
    join.add(LISTED, listed)
    lines, candidates = join.run(judged, deletes=deletes), list(join.candidates("run"))
    assert join.count() == len(candidates)
    join.close()
    return lines, candidates


def any_state(random: Random, n: int) -> State:
    times = [None, START, START - HOUR, START - HOUR + 1, START - 5 * DAY, START - 14 * DAY, START - 14 * DAY - 1]
    version = random.choice([None, f"v{n}", "V" * 1_020])
    if random.random() < 0.2:
        return State(StateKind.MARKER, version, created_at=random.choice(times))
    return State(StateKind.OBJECT, version, f"e{n}", random.choice([n, n, 0]), random.choice([*times, START - DAY]))


def any_row(random: Random, state: State, other: State) -> Row:
    status = random.choice([Status.PROCESSED, Status.PROCESSED, *STORED_STATUSES])
    claimed = random.choice([state, state, other])
    return Row(
        status,
        1,
        version_id=claimed.version_id,
        etag=claimed.etag,
        size=claimed.size,
        kind=claimed.kind,
        committed_state=random.choice([claimed.identity, claimed.identity, state.identity, None]),
        late_writes=frozenset(random.choice([[], [], [state.identity], ["v#late", state.identity]])),
        lease_until=random.choice([START - 1, START + HOUR]) if status is Status.PROCESSING else None,
        retry_at=START + HOUR if random.random() < 0.2 else None,
        updated_at=random.choice([START, START - HOUR, START - HOUR + 1, START - DAY]),
        format=FORMAT + (random.random() < 0.1),
    )


@pytest.mark.failure_mode("F115", "F280")
@pytest.mark.parametrize("ordering", list(Ordering))
@pytest.mark.parametrize("undated", [False, True])
@pytest.mark.parametrize("join", [by_duckdb, by_sqlite])
def test_the_query_nominates_every_finding_of_the_rule(
    tmp_path: Path, ordering: Ordering, undated: bool, join: Joined
) -> None:
    """Keys and versions of every kind, rows of every status and of a later format, with every date."""
    random, every = Random(f"{ordering} {undated}"), ordering is Ordering.EVERY_VERSION
    world = AuditWorld(ordering=ordering, deletes=undated)
    judged = Window(START - HOUR, START - 14 * DAY, undated, START - 10 * DAY, START - 13 * DAY)
    shown: dict[tuple[str, str], State] = {}
    stored: dict[tuple[str, str], Row] = {}
    for n in range(600):
        ending = random.choice(["", "", "", "/", "_$folder$"])
        key, state, other = f"{random.choice(ODD)}{n:04d}{ending}", any_state(random, n), any_state(random, n + 1_000)
        place = world.row_key(key, state).sk.removeprefix(f"{PIPELINE}@")
        if random.random() < 0.8:
            shown[key, place] = state
        if random.random() < 0.8:
            row = any_row(random, state, state if every else other)
            # The row as it is read. A later release's row can be neither judged nor replaced.
            stored[key, place] = row if row.format == FORMAT else replace(row, status=Status.LATER_FORMAT)
            world.ledger.insert(world.row_key(key, state), row)
    listed = [listed_entry(key, state, world.settings) for (key, _), state in shown.items()]
    pages = AuditTable(cast("Any", world.store), "table").held(PIPELINE, ordering)
    held = [row for page in pages for row in page.rows]
    assert len(held) == len(stored)
    content = [held_entry(row.row_key.pk.removeprefix(f"{BUCKET}/"), row, world.settings) for row in held]
    lines, candidates = join(tmp_path, listed, content, judged, undated)
    nominated = {(nomination.key, nomination.place): nomination for nomination in candidates}
    assert len(nominated) == len(candidates)
    verdicts = {
        name: judge(
            stored.get(name),
            state,
            judged,
            now=START,
            deletes=undated,
            skipped=world.settings.skips(name[0], state),
        )
        for name, state in shown.items()
    }
    assert Line.DIRECTORY_MARKERS in verdicts.values()
    findings = {name for name, verdict in verdicts.items() if isinstance(verdict, Finding)}
    assert len(findings) > 50
    missed = findings - nominated.keys()
    assert not [(shown[name], stored.get(name)) for name in missed]
    assert all(nominated[name] == Candidate(*name, shown=True, state=shown[name]) for name in findings)
    # Each other state is in the line that the rule names.
    assert Counter(lines) - Counter({"candidate": lines["candidate"]}) == Counter(
        verdict.value for name, verdict in verdicts.items() if name not in nominated
    )
    assert lines["candidate"] == sum(nomination.shown for nomination in candidates)
    gone = {
        name
        for name, row in stored.items()
        if name not in shown
        and (
            # S3 is asked about keys of later rows too: the report counts them.
            not every
            if row.format != FORMAT
            else row.updated_at <= judged.settled_before
            and (row.unfinished if every else not row.has_committed("absent"))
        )
    }
    assert {name for name, nomination in nominated.items() if not nomination.shown} == gone
    if every:
        assert all(
            (nominated[name].state.identity, nominated[name].state.size) == (stored[name].identity, stored[name].size)
            for name in gone
        )


def test_every_version_of_a_key_goes_by_its_own_row(tmp_path: Path) -> None:
    """Two were processed, one was lost: by another's row all would differ."""
    world = AuditWorld(ordering=Ordering.EVERY_VERSION)
    *done, lost = (world.s3.put("a") for _ in range(3))
    for state in done:
        world.commit("a", state)
    slices(tmp_path, "listed-00000", [listed_entry("a", state, world.settings) for state in (*done, lost)], each=2)
    pages = AuditTable(cast("Any", world.store), "table").held(PIPELINE, Ordering.EVERY_VERSION)
    content = [held_entry("a", row, world.settings) for page in pages for row in page.rows]
    slices(tmp_path, "held-00000", content, each=1)
    join = Join(tmp_path)
    with join.audited(["listed-00000", "held-00000"], world.window(), deletes=True, all_listed=True) as audited:
        assert [candidate(values).state for values in audited.candidates()] == [lost]
        assert audited.lines() == {"agrees": 2, "candidate": 1}


def test_without_all_of_the_listing_no_row_is_taken_for_gone(tmp_path: Path) -> None:
    """A shard failed: S3 would be asked about all of its keys."""
    world = AuditWorld()
    world.commit("a", world.s3.put("a"))
    pages = AuditTable(cast("Any", world.store), "table").held(PIPELINE, Ordering.LATEST)
    content = [held_entry("a", row, world.settings) for page in pages for row in page.rows]
    slices(tmp_path, "held-00000", content, each=1)
    join = Join(tmp_path)
    for all_listed, expected in ((True, ["a"]), (False, [])):
        with join.audited(["held-00000"], world.window(), deletes=True, all_listed=all_listed) as audited:
            assert [values[0] for values in audited.candidates()] == expected


@pytest.mark.parametrize("dialect", ["duckdb", "trino"])
def test_the_query_is_in_the_common_part_of_both_dialects(dialect: str) -> None:
    """It means the same to both: neither grammar writes it in another way than the other."""
    (query,) = sqlglot.parse(QUERY.read_text(), dialect=dialect)
    (other,) = sqlglot.parse(QUERY.read_text(), dialect="trino" if dialect == "duckdb" else "duckdb")
    assert query is not None
    assert query == other
    again = sqlglot.parse_one(query.sql(dialect=dialect, comments=False), dialect=dialect)
    assert again.sql(dialect=dialect, comments=False) == query.sql(dialect=dialect, comments=False)
    functions = {type(function).__name__ for function in query.find_all(sqlglot.exp.Func)}
    # `And` and `Or` are functions for sqlglot.
    assert functions <= {"Coalesce", "Case", "If", "And", "Or"}
    named = {table.name for table in query.find_all(sqlglot.exp.Table)}
    assert named == {*COLUMNS, "judged"}
    used = {column.name for column in query.find_all(sqlglot.exp.Column) if column.table in COLUMNS}
    assert used == {name for columns in COLUMNS.values() for name in columns}


def test_the_lines_of_the_query_are_the_reports() -> None:
    """Each line of the query is a line of the report."""
    (query,) = sqlglot.parse(QUERY.read_text(), dialect="trino")
    assert query is not None
    said = {literal.name for literal in query.find_all(sqlglot.exp.Literal) if literal.is_string}
    assert said - {"object"} - set(Line) == {"candidate", "unlisted"}


def test_duckdb_keeps_to_the_functions_memory_and_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It spills to its folder, and loads no extensions."""
    monkeypatch.setenv("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "10240")
    with connection(tmp_path) as duck:
        said = dict(
            duck.execute(
                "SELECT name, value FROM duckdb_settings() WHERE name IN ('memory_limit', 'temp_directory',"
                " 'autoload_known_extensions', 'autoinstall_known_extensions')"
            ).fetchall()
        )
    assert said["memory_limit"] == "5.7 GiB"
    assert said["temp_directory"] == str(tmp_path / "spilled")
    assert {said["autoload_known_extensions"], said["autoinstall_known_extensions"]} == {"false"}
