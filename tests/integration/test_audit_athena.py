"""The join by Athena: the same findings as with DuckDB, over exactly the files that are complete."""

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

import pytest
import sqlglot
from botocore.exceptions import ClientError
from sqlglot import exp

from intake_ledger.audit.diff import Window
from intake_ledger.audit.join import athena_parts
from intake_ledger.audit.join.athena import CANDIDATES, LINES, Athena, AthenaResult, statements
from intake_ledger.audit.join.athena_parts import MOST_ATTEMPTS, AthenaJoin
from intake_ledger.audit.join.duckdb import Join, Slice, write
from intake_ledger.audit.join.parts import join_parts
from intake_ledger.audit.relations import CANDIDATE, COLUMNS, QUERY, candidate
from intake_ledger.audit.report import Report
from intake_ledger.ledger.dynamodb_table import LedgerTable
from intake_ledger.protocol.change import State, StateKind
from tests.integration import test_audit_join as joined
from tests.integration.fake_athena import DATABASE, WORK_GROUP, FakeAthena
from tests.integration.test_audit_in_parts import PartsWorld, names
from tests.integration.test_audit_join import ODD, is_telling
from tests.unit.audit.invocations import Gate, Gated
from tests.unit.audit.oracle import build, random_world
from tests.unit.audit.scratch import FolderScratch
from tests.unit.audit.test_oracle import WORLDS, found
from tests.unit.support import START, execute_without_partiql

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

RUNNING = {"State": "RUNNING"}


def until_done(join: AthenaJoin) -> dict[str, Any]:
    """Call the join until it is done, as the state machine does. The answer has the number of calls."""
    answer, calls = join.step({"run": "run"}), 1
    while not answer["done"]:
        answer, calls = join.step({"run": "run", "asked": answer["asked"]}), calls + 1
    return answer | {"calls": calls}


def athena(fake: Any) -> Athena:
    return Athena(fake, fake, work_group=WORK_GROUP, database=DATABASE)


def in_folders(gate: Gate | None = None) -> Callable[[Any], dict[str, Any]]:
    """The join of a run whose files are in a folder."""
    fakes: dict[str, FakeAthena] = {}

    def join(scratch: Any) -> dict[str, Any]:
        folder = Path(scratch._scratch.bucket)
        fake = fakes.setdefault(
            str(folder),
            FakeAthena(
                lambda run, relation: (folder / relation / "symlink.txt").read_text(),
                lambda uri: folder / uri.rpartition("/")[2],
            ),
        )
        return until_done(AthenaJoin(athena(Gated(fake, gate) if gate else fake), scratch))

    return join


@pytest.mark.wide
@pytest.mark.failure_mode("F115")
def test_athena_finds_what_the_page_promises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the random worlds of the join by DuckDB."""
    joined.without_others(monkeypatch)
    for seed in range(0, WORLDS, 40):
        world = random_world(Random(seed), START)
        made, alone = (build(world, page_size=1000) for _ in range(2))
        folders = [tmp_path / f"{seed}-{engine}" for engine in ("athena", "duckdb")]
        for folder in folders:
            folder.mkdir()
        with monkeypatch.context() as engine:
            engine.setattr(joined, "join_parts", in_folders())
            report = joined.audit(made, world, folders[0], shards=2)
        other = joined.audit(alone, world, folders[1], shards=2)
        assert found(report) == world.expected(), f"seed {seed}: {world}"
        assert sorted(made.sent) == sorted(alone.sent)
        assert (report.lines, report.candidates, report.complete) == (other.lines, other.candidates, True)


@pytest.mark.failure_mode("F42")
@pytest.mark.parametrize("after", [False, True])
def test_a_join_by_athena_that_is_killed_anywhere_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    """At any of its requests. A statement that was started is not started again."""
    joined.without_others(monkeypatch)
    world = next(world_ for seed in range(1_000) if is_telling(world_ := random_world(Random(seed), START)))
    made = build(world, page_size=10)
    counted = Gate()
    monkeypatch.setattr(joined, "join_parts", in_folders(counted))
    (tmp_path / "counted").mkdir()
    joined.audit(made, world, tmp_path / "counted", 1, gate=counted)
    for kill_at in range(1 + after, counted.number, 15):
        gate, folder, made = Gate(kill_at, after), tmp_path / str(kill_at), build(world, page_size=10)
        folder.mkdir()
        monkeypatch.setattr(joined, "join_parts", in_folders(gate))
        report = joined.audit(made, world, folder, 1, gate=gate)
        assert found(report) == world.expected(), kill_at
        assert report.complete


class AthenaWorld(PartsWorld):
    """A run whose comparison is Athena's."""

    def __init__(self, dynamodb: "DynamoDBClient", folder: Path) -> None:
        super().__init__(dynamodb)
        self._folder = folder
        self.fake = FakeAthena(self._manifest, self._local)

    def _manifest(self, run: str, relation: str) -> str:
        key = f"{run}/{relation}/symlink.txt"
        text: str = self.s3.client.get_object(Bucket=self.files, Key=key)["Body"].read().decode()
        return text

    def _local(self, uri: str) -> Path:
        parts = urlsplit(uri)
        path = self._folder / Path(parts.path).name
        self.s3.client.download_file(parts.netloc, parts.path.removeprefix("/"), str(path))
        return path

    def join(self) -> AthenaJoin:
        return AthenaJoin(athena(self.fake), self.scratch())

    def go_on(self, planned: dict[str, Any]) -> Report:
        self.work("look", until_done(self.join()) | {"run": "run"})
        return self.run("run").finish()

    def listed(self) -> dict[str, Any]:
        """A plan whose parts are read."""
        planned = self.plan()
        self.work("write", planned)
        return planned


@pytest.fixture
def world(dynamodb: "DynamoDBClient", tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AthenaWorld:
    monkeypatch.setattr(LedgerTable, "_execute", execute_without_partiql)
    return AthenaWorld(dynamodb, tmp_path)


@pytest.mark.failure_mode("F60")
def test_keys_of_any_characters_come_through_a_result(world: AthenaWorld) -> None:
    """A result is CSV; line breaks, quotes and commas in a key would cut it."""
    for key in ODD:
        world.put(key)
    report = world.audit()
    assert (report.counts, report.complete) == ({"missing": len(ODD)}, True)
    assert world.sent() == sorted(ODD)


def test_a_result_is_read_as_trino_encodes_it() -> None:
    """It writes a space as a plus sign, where DuckDB writes %20; a field of NULL is empty."""

    class S3:
        def get_object(self, **_: Any) -> dict[str, Any]:
            header = ",".join(f'"{name}"' for name in CANDIDATE)
            return {
                "Body": Lines(
                    [header, '"a+b%2Bc","latest","true","v%23x%0A","object","e","7","9"', '"k","p","false",,,,,']
                )
            }

    result = AthenaResult(cast("Any", S3()), {CANDIDATES: "s3://files/results/1.csv"})
    first, second = map(candidate, result.candidates())
    assert (first.key, first.shown, first.state) == ("a b+c", True, State(StateKind.OBJECT, "x\n", "e", 7, 9))
    assert (second.key, second.shown, second.state.identity) == ("k", False, "absent")


class Lines(list[str]):
    def iter_lines(self, _: int) -> Any:
        return (line.encode() for line in self)


def test_no_function_waits_for_a_query(world: AthenaWorld) -> None:
    """Each call answers at once; the state machine waits in between."""
    world.put("lost")
    world.listed()
    world.fake.states = [RUNNING, {"State": "SUCCEEDED"}, {"State": "QUEUED"}, {"State": "QUEUED"}]
    answer = until_done(world.join())
    assert (answer["calls"], answer["parts"]) == (4, [0])
    assert len(world.fake.executions) == 2


@pytest.mark.failure_mode("F42")
def test_a_repeated_call_starts_no_second_query(world: AthenaWorld) -> None:
    """The answer of the first one was lost. Another run has other tokens."""
    world.put("lost")
    world.listed()
    first = world.join().step({"run": "run"})
    assert world.join().step({"run": "run"}) == first
    assert len(world.fake.executions) == 2
    tokens = {execution["ClientRequestToken"] for execution in world.fake.executions}
    athena(world.fake).start("another", LINES, "SELECT 1", 0)
    assert len(tokens | {world.fake.executions[-1]["ClientRequestToken"]}) == 3


@pytest.mark.failure_mode("F42")
@pytest.mark.parametrize("state", ["FAILED", "CANCELLED"])
def test_a_query_without_a_result_is_named(world: AthenaWorld, state: str) -> None:
    """Nothing is taken for compared. The report says what Athena says."""
    world.processed(*names())
    world.put("lost")
    planned = world.listed()
    world.fake.states = [{"State": state, "StateChangeReason": "Bytes scanned limit was exceeded\n\nSELECT"}]
    report = world.go_on(planned)
    assert (report.complete, report.counts, report.listed) == (False, {}, 0)
    told = f"Athena did not join what was listed: {state}: Bytes scanned limit was exceeded"
    assert report.unfinished == [told]
    assert told in report.summary(world.clock())


def test_a_query_that_athena_calls_retryable_is_started_again(world: AthenaWorld) -> None:
    """A few times, each under its own token."""
    world.put("lost")
    planned = world.listed()
    failed = {"State": "FAILED", "StateChangeReason": "busy", "AthenaError": {"Retryable": True}}
    world.fake.states = [failed, {"State": "SUCCEEDED"}]
    assert world.go_on(planned).counts == {"missing": 1}
    assert len({execution["ClientRequestToken"] for execution in world.fake.executions}) == 4
    world.fake.states = [failed, failed] * MOST_ATTEMPTS
    report = world.go_on(planned)
    assert report.unfinished == ["Athena did not join what was listed: FAILED: busy"]
    assert not world.fake.states


def test_a_throttled_start_is_the_state_machines_to_repeat(world: AthenaWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """It retries the call. The report of a run whose queries never start says why."""
    world.put("lost")
    planned = world.listed()
    throttled = ClientError({"Error": {"Code": "TooManyRequestsException", "Message": "slow"}}, "StartQueryExecution")
    with monkeypatch.context() as busy:
        busy.setattr(FakeAthena, "start_query_execution", lambda *_, **__: (_ for _ in ()).throw(throttled))
        with pytest.raises(ClientError, match="TooManyRequests"):
            world.join().step({"run": "run"})
    (unfinished,) = world.run("run").finish().unfinished
    assert unfinished.startswith("Athena did not join what was listed: An error occurred (TooManyRequestsException)")
    assert world.go_on(planned).counts == {"missing": 1}


@pytest.mark.failure_mode("F42")
def test_a_query_reads_the_files_of_complete_parts_alone(world: AthenaWorld) -> None:
    """Neither slices beyond the end of a repeated part, nor those of a part with a gap."""
    world.s3.page_size = 2
    world.processed(*names(7))
    world.put("in/zzz-lost.csv")
    planned = world.plan()
    world.work("write", planned, left=lambda: lambda: 0)
    world.work("write", planned)
    stale = {
        name for name in world.scratch().etags() if name.endswith(".parquet") and not name.endswith("-00000.parquet")
    }
    report = world.go_on(planned)
    assert (report.complete, report.listed, report.counts) == (True, 8, {"missing": 1})
    assert stale
    assert not {uri for uri in world.fake.read if uri.rpartition("/")[2] in stale}
    world.s3.client.delete_object(Bucket=world.files, Key="run/listed-00001-00000.parquet")
    world.fake.executions.clear()
    world.fake._results.clear()
    report = world.go_on(planned)
    assert (report.complete, len(report.unfinished)) == (False, 1)
    assert report.unfinished[0].startswith("keys")
    assert 0 < report.listed < 8


def test_a_deployment_that_changes_the_engine_leaves_a_run_that_ends(world: AthenaWorld) -> None:
    """The state machine of DuckDB goes on with the parts of the answer, and the run is given back with a reason."""
    world.put("lost")
    world.listed()
    assert world.work("look", world.join().step({"run": "run"})) == 0
    assert "the join failed" in world.run("run").finish().unfinished[0]
    # The other way round, the state machine of Athena asks DuckDB's function whether it is done.
    assert join_parts(world.scratch())["done"]


@pytest.mark.failure_mode("F42")
def test_without_all_rows_nothing_is_asked(world: AthenaWorld) -> None:
    """Most listed objects would seem lost."""
    world.processed(*names())
    planned = world.plan()
    world.work("write", planned, without="held-00001")
    report = world.go_on(planned)
    assert report.unfinished == ["segment 1 of the ledger's rows was not read"]
    assert (report.counts, world.fake.executions) == ({}, [])


@pytest.mark.failure_mode("F42")
def test_a_file_that_is_written_while_athena_reads_it_counts_for_nothing(world: AthenaWorld) -> None:
    """A call that had timed out was still running. Its file may end at another place than the checked file."""
    world.processed(*names())
    world.put("lost")
    world.listed()
    asked = world.join().step({"run": "run"})
    other = {"Bucket": world.files, "Key": "run/held-00001-00000.parquet"}
    world.s3.client.copy_object(Bucket=world.files, Key="run/held-00000-00000.parquet", CopySource=cast("Any", other))
    answer = world.join().step(asked)
    assert (answer["done"], answer["parts"]) == (True, [])
    assert "written again while it read them" in world.run("run").finish().unfinished[0]


def test_an_empty_relation_needs_no_table(world: AthenaWorld) -> None:
    """A report of an empty bucket has no files, and Athena no folder to look into."""
    texts = statements(DATABASE, "run", ["held"], Window(0, 0), deletes=True, all_listed=True)
    tables = {table.sql() for table in sqlglot.parse_one(texts[LINES], dialect="trino").find_all(exp.Table) if table.db}
    assert len(tables) == 1
    world.commit("gone", State(StateKind.OBJECT, "1", "1", 1))
    world.listed()
    plan = world.scratch().get("plan.json")
    world.scratch().put("plan.json", plan | {"shares": []})
    report = world.go_on({"run": "run"})
    assert (report.counts, report.complete) == ({"removed": 1}, True)


class TestFooters:
    def write(self, folder: Path, start: str) -> Path:
        path = folder / "listed-00000-00000.parquet"
        rows = [[f"{n:06d}", "latest", f"v#{n}", "object", f"e{n}", n, n, False] for n in range(20_000)]
        write(path, "listed", rows, lambda: Slice(start, "", len(rows), len(rows), 0, 0, 0))
        return path

    @pytest.mark.parametrize("start", ["", "k" * 30_000])
    def test_the_metadata_is_read_without_the_content(self, tmp_path: Path, start: str) -> None:
        """A place may be longer than the bytes of the first read."""
        source, copies = tmp_path / "source", tmp_path / "copies"
        source.mkdir()
        copies.mkdir()
        path = self.write(source, start)
        read: list[int] = []

        class Counted(FolderScratch):
            def end(self, name: str, length: int, etag: str) -> tuple[bytes, int]:
                read.append(length)
                return super().end(name, length, etag)

        nothing: Any = None
        scratch = Counted(nothing, str(source), "run")
        athena_parts.copy_footers(scratch, scratch.etags().items(), copies)
        assert Join(copies).chain("listed-00000") is None if start else Join(copies).chain("listed-00000")
        assert Join(copies)._slices == Join(source)._slices
        copy = copies / path.name
        assert copy.stat().st_size == path.stat().st_size
        assert copy.stat().st_blocks * 512 < path.stat().st_size / 2 or start
        assert len(read) == (2 if start else 1)

    def test_a_file_that_has_changed_since_it_was_listed_is_not_read(self, world: AthenaWorld) -> None:
        """The call fails, and the state machine repeats it."""
        world.s3.client.put_object(Bucket=world.files, Key="run/a.parquet", Body=b"1" * 100)
        with pytest.raises(ClientError, match="PreconditionFailed"):
            world.scratch().end("a.parquet", 8, '"another"')
        (etag,) = world.scratch().etags().values()
        assert world.scratch().end("a.parquet", 8, etag) == (b"1" * 8, 100)


@pytest.mark.parametrize("name", [LINES, CANDIDATES])
@pytest.mark.parametrize("relations", [["listed", "held"], ["held"]])
def test_what_is_sent_is_trinos_sql(name: str, relations: list[str]) -> None:
    """All of it, with a run's name and a window. Each table is asked for one run. The ledger's rows are on the right of
    the join, which Athena holds in memory.
    """
    window = Window(START, START - 1, baseline=START - 2, removals_since=None)
    text = statements(DATABASE, "it's a run", relations, window, deletes=False, all_listed=True)[name]
    (parsed,) = sqlglot.parse(text, dialect="trino", error_level=sqlglot.ErrorLevel.RAISE)
    assert parsed is not None
    again = sqlglot.parse_one(parsed.sql(dialect="trino", comments=False), dialect="trino")
    assert again.sql(dialect="trino", comments=False) == parsed.sql(dialect="trino", comments=False)
    read = [table for table in parsed.find_all(exp.Table) if table.db]
    assert sorted((table.db, table.name) for table in read) == sorted((DATABASE, table) for table in relations)
    for table in read:
        select = cast("exp.Select", table.parent_select)
        assert [column.name for column in select.expressions] == list(COLUMNS[table.name])
        assert select.args["where"].this.sql(dialect="trino") == "run = 'it''s a run'"
    (audited,) = [expression.this for expression in parsed.find_all(exp.CTE) if expression.alias == "audited"]
    assert audited.args["from_"].this.name == "listed"
    assert [join.this.name for join in audited.args["joins"]] == ["held", "judged"]
    (judged,) = [expression.this for expression in parsed.find_all(exp.CTE) if expression.alias == "judged"]
    given = {column.alias: column.this.sql(dialect="trino") for column in judged.expressions}
    used = {
        column.name for column in sqlglot.parse_one(QUERY.read_text()).find_all(exp.Column) if column.table == "judged"
    }
    assert used <= set(given)
    assert (given["settled_before"], given["deletes"], given["all_listed"]) == (str(START), "FALSE", "TRUE")


def test_the_handler_asks_and_looks(world: AthenaWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """The handler reads the variables that the construct sets."""
    world.put("lost")
    world.listed()
    monkeypatch.setenv("INTAKE_AUDIT_FILES", world.files)
    monkeypatch.setenv("INTAKE_AUDIT_DATABASE", DATABASE)
    monkeypatch.setenv("INTAKE_AUDIT_WORK_GROUP", WORK_GROUP)
    s3 = world.s3.client
    monkeypatch.setattr(
        athena_parts,
        "boto3",
        type("Boto3", (), {"client": staticmethod(lambda name: s3 if name == "s3" else world.fake)}),
    )
    asked = athena_parts.handler({"run": "run"}, None)
    assert not asked["done"]
    monkeypatch.setattr(athena_parts, "Athena", lambda *_, **names: athena(world.fake))
    assert athena_parts.handler(asked, None) == {"run": "run", "parts": [0], "done": True}
