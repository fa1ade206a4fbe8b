"""The helper for SQL outputs, on a real PostgreSQL and on SQLite: late workers are refused, and nothing else is."""

import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from typing import Any, NoReturn

import psycopg
import pytest
from examples.postgres import Postgres

from cdk_intake_ledger.testing import Fault, LocalPipeline
from intake_ledger import FileSet, ObjectChange, Output, Overtaken, Rejects
from intake_ledger.outputs import sql
from intake_ledger.processor.object_stream import ObjectStream
from intake_ledger.protocol.row import Ordering

Connect = Callable[[], Any]


def _no_content() -> ObjectStream:
    raise AssertionError


def _no_output(bucket: str, key: str) -> Output:
    raise AssertionError((bucket, key))


def _no_rejects(rejects: Rejects) -> NoReturn:
    raise AssertionError(rejects)


CHANGE = ObjectChange(
    bucket="uploads", key="a.csv", kind="created", version_id="v1", etag="e1", size=1, event_name="ObjectCreated:Put",
    event_time=None, attempt=1, fence=1_700_000_000_005, fenced_version=None, idempotency_key="k1",
    _remaining_seconds=lambda: 1.0, _open=_no_content, _download=_no_content, _output=_no_output,
    _begin_rejects=_no_rejects,
)  # fmt: skip
LATER = replace(CHANGE, fence=CHANGE.fence + 1, idempotency_key="k2", version_id="v2")


@pytest.fixture
def database(postgres: Postgres) -> str:
    dsn = postgres.new_database()
    with psycopg.connect(dsn) as connection:
        connection.execute(sql.schema())
    return dsn


@pytest.fixture(params=["psycopg", "sqlite3"])
def connect(request: pytest.FixtureRequest, tmp_path: Any) -> Connect:
    if request.param == "psycopg":
        dsn = request.getfixturevalue("database")
        return lambda: psycopg.connect(dsn)
    with closing(sqlite3.connect(tmp_path / "db")) as connection:
        connection.execute(sql.schema())
    return lambda: closing(sqlite3.connect(tmp_path / "db"))


FILES = FileSet(
    bucket="uploads", key="loads/7/manifest.json", version="complete-1", manifest=None, parts=(), attempt=1,
    fence=1_700_000_000_005, idempotency_key="k1", _remaining_seconds=lambda: 1.0, _output=_no_output,
)  # fmt: skip


def lock(connect: Connect, change: ObjectChange | FileSet, **options: Any) -> None:
    with connect() as connection:
        sql.lock_object(connection.cursor(), change, **options)
        connection.commit()


def rows(connect: Connect, columns: str, table: str = sql.TABLE) -> list[Any]:
    with connect() as connection:
        cursor = connection.cursor()
        cursor.execute(f"SELECT {columns} FROM {table} ORDER BY 1, 2")
        return list(cursor.fetchall())


def test_a_late_worker_is_refused_and_the_same_attempt_may_repeat(connect: Connect) -> None:
    lock(connect, CHANGE)
    lock(connect, CHANGE)
    lock(connect, LATER)
    with pytest.raises(Overtaken):
        lock(connect, CHANGE)
    assert rows(connect, "key, fence, idempotency_key, version_id, version, pipeline") == [
        ("a.csv", LATER.fence, "k2", "v2", "", "")
    ]


@pytest.mark.failure_mode("F273")
def test_a_late_worker_on_a_set_of_files_is_refused(connect: Connect) -> None:
    lock(connect, FILES)
    later = replace(FILES, fence=FILES.fence + 1, version="complete-2", idempotency_key="k2")
    lock(connect, later)
    with pytest.raises(Overtaken):
        lock(connect, FILES)
    assert rows(connect, "key, fence, idempotency_key, version_id, version, pipeline, removed") == [
        (FILES.key, later.fence, "k2", "complete-2", "", "", False)
    ]


def test_a_removal_keeps_the_row_with_its_fence(connect: Connect) -> None:
    lock(connect, CHANGE)
    lock(connect, replace(LATER, kind="removed", version_id=None))
    assert [tuple(map(bool, row)) for row in rows(connect, "removed, fence")] == [(True, True)]
    with pytest.raises(Overtaken):
        lock(connect, CHANGE)


def test_with_every_version_each_version_has_its_row(connect: Connect) -> None:
    lock(connect, replace(LATER, fenced_version="v2"))
    lock(connect, replace(CHANGE, fenced_version="v1"))
    lock(connect, replace(LATER, fenced_version="v1", kind="deleted"))
    with pytest.raises(Overtaken):
        lock(connect, replace(CHANGE, fenced_version="v1"))
    assert [(version, fence) for version, fence in rows(connect, "version, fence")] == [
        ("v1", LATER.fence),
        ("v2", LATER.fence),
    ]


def test_two_pipelines_and_two_objects_do_not_affect_each_other(connect: Connect) -> None:
    lock(connect, LATER)
    lock(connect, CHANGE, pipeline="other")
    lock(connect, replace(CHANGE, key="b.csv"))
    lock(connect, replace(CHANGE, bucket="other"))
    assert len(rows(connect, "key, bucket")) == 4


def test_a_table_may_have_any_name(connect: Connect) -> None:
    name = '50% of "objects"; :fence ?'
    with connect() as connection:
        connection.cursor().execute(sql.schema(name))
        connection.commit()
    lock(connect, LATER, table=name)
    with pytest.raises(Overtaken):
        lock(connect, CHANGE, table=name)


def test_a_table_may_be_in_a_schema(database: str) -> None:
    with psycopg.connect(database) as connection:
        connection.execute("CREATE SCHEMA intake")
        connection.execute(sql.schema("intake.objects"))
        sql.lock_object(connection.cursor(), CHANGE, table="intake.objects")
        assert connection.execute("SELECT count(*) FROM intake.objects").fetchone() == (1,)


@pytest.mark.parametrize("table", ["", ".", "a.", "a\0b"])
def test_an_impossible_table_name_is_refused(table: str) -> None:
    with pytest.raises(ValueError, match="expected a name"):
        sql.schema(table)


def test_autocommit_is_refused_since_the_lock_ends_at_once(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        with pytest.raises(RuntimeError, match="autocommit"):
            sql.lock_object(connection.cursor(), CHANGE)
        with connection.transaction():
            sql.lock_object(connection.cursor(), CHANGE)
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as memory:
        memory.execute(sql.schema())
        with pytest.raises(RuntimeError, match="autocommit"):
            sql.lock_object(memory.cursor(), CHANGE)


def test_pipeline_mode_refuses_a_late_worker_too(database: str) -> None:
    with psycopg.connect(database) as connection:
        sql.lock_object(connection.cursor(), LATER)
    with (
        pytest.raises(Overtaken),
        psycopg.connect(database) as connection,
        connection.pipeline(),
        connection.cursor() as cursor,
    ):
        sql.lock_object(cursor, CHANGE)


class Recorder:
    """A cursor of a driver with another paramstyle, or of a wrapper."""

    def __init__(self, answers: list[Any]) -> None:
        self.answers, self.executed = answers, list[tuple[str, Any]]()

    def execute(self, operation: str, parameters: Any = ()) -> None:
        self.executed.append((operation, parameters))

    def fetchall(self) -> list[Any]:
        return self.answers


@pytest.mark.parametrize(
    ("style", "values"),
    [
        ("format", "VALUES (%s, %s, %s, %s, %s, %s, %s, %s, "),
        ("pyformat", "VALUES (%s, %s, %s, %s, %s, %s, %s, %s, "),
        ("qmark", "VALUES (?, ?, ?, ?, ?, ?, ?, ?, "),
        ("numeric", "VALUES (:1, :2, :3, :4, :5, :6, :7, :8, "),
        ("named", "VALUES (:pipeline, :bucket, :key, :version, :fence, :idempotency_key, :version_id, :removed, "),
    ],
)
def test_each_paramstyle_has_its_placeholders(style: str, values: str) -> None:
    cursor = Recorder([(1,)])
    sql.lock_object(cursor, CHANGE, paramstyle=style)
    [(statement, parameters)] = cursor.executed
    assert values in statement
    assert (parameters["fence"] if style == "named" else parameters[4]) == CHANGE.fence


def test_an_unknown_paramstyle_is_an_error_that_says_what_to_do() -> None:
    with pytest.raises(TypeError, match="pass lock_object"):
        sql.lock_object(Recorder([]), CHANGE)
    with pytest.raises(ValueError, match="expected format"):
        sql.lock_object(Recorder([]), CHANGE, paramstyle="dollar")


def test_a_wrapped_cursor_has_the_paramstyle_of_its_driver(database: str) -> None:
    class Traced:
        def __init__(self, cursor: psycopg.Cursor[Any]) -> None:
            self._wrapped = cursor

        @property  # type: ignore[misc]
        def __class__(self) -> type:
            return type(self._wrapped)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._wrapped, name)

    with psycopg.connect(database) as connection:
        traced: Any = Traced(connection.cursor())
        sql.lock_object(traced, CHANGE)


@pytest.fixture
def second(database: str) -> Callable[[ObjectChange, psycopg.IsolationLevel], list[str]]:
    """Lock for LATER in one transaction, let a second worker wait for it, commit, and return what the second did."""

    def run(change: ObjectChange, level: psycopg.IsolationLevel) -> list[str]:
        outcome: list[str] = []
        with psycopg.connect(database) as connection:
            connection.execute("CREATE TABLE IF NOT EXISTS lines (key text, fence bigint)")
        with psycopg.connect(database) as first, psycopg.connect(database) as waiting:
            waiting.isolation_level = level
            sql.lock_object(first.cursor(), LATER)
            first.execute("INSERT INTO lines VALUES ('a.csv', %s)", (LATER.fence,))

            def work() -> None:
                try:
                    sql.lock_object(waiting.cursor(), change)
                    waiting.execute("DELETE FROM lines WHERE key = 'a.csv'")
                    waiting.execute("INSERT INTO lines VALUES ('a.csv', %s)", (change.fence,))
                    waiting.commit()
                    outcome.append("committed")
                except (Overtaken, psycopg.errors.SerializationFailure) as error:
                    outcome.append(type(error).__name__)

            thread = threading.Thread(target=work)
            thread.start()
            _until_waiting(database, waiting.info.backend_pid)
            assert outcome == []
            first.commit()
            thread.join()
            waiting.rollback()
        with psycopg.connect(database) as connection:
            return [*outcome, *(str(fence) for (fence,) in connection.execute("SELECT fence FROM lines"))]

    return run


def _until_waiting(database: str, pid: int) -> None:
    asked = "SELECT wait_event_type = 'Lock', pg_sleep(0.01) FROM pg_stat_activity WHERE pid = %s"
    with psycopg.connect(database, autocommit=True) as observer:
        while (observer.execute(asked, (pid,)).fetchone() or [None])[0] is not True:
            pass


@pytest.mark.parametrize("level", psycopg.IsolationLevel)
def test_the_second_worker_waits_and_is_refused_or_goes_on_as_its_fence_says(
    second: Callable[[ObjectChange, psycopg.IsolationLevel], list[str]], level: psycopg.IsolationLevel
) -> None:
    late, newest = CHANGE, replace(LATER, fence=LATER.fence + 1)
    if level <= psycopg.IsolationLevel.READ_COMMITTED:
        assert second(late, level) == ["Overtaken", str(LATER.fence)]
        assert second(newest, level) == ["committed", str(newest.fence)]
    else:  # an ordinary failure, which the pipeline repeats
        assert second(late, level) == ["SerializationFailure", str(LATER.fence)]
        assert second(newest, level) == ["SerializationFailure", *[str(LATER.fence)] * 2]


@pytest.mark.parametrize("ordering", ["LATEST", "EVERY_VERSION"])
def test_a_pipeline_with_faults_and_a_late_worker_leaves_the_newest_rows(database: str, ordering: str) -> None:
    with psycopg.connect(database) as connection:
        connection.execute("CREATE TABLE lines (key text, version text, line text)")

    def process(change: ObjectChange) -> None:
        with psycopg.connect(database) as connection, connection.cursor() as cursor:
            sql.lock_object(cursor, change)
            version = change.fenced_version or ""
            cursor.execute("DELETE FROM lines WHERE key = %s AND version = %s", (change.key, version))
            if change.kind == "created":
                cursor.executemany(
                    "INSERT INTO lines VALUES (%s, %s, %s)", [(change.key, version, line) for line in change.lines()]
                )

    pipeline = LocalPipeline(process, ordering=Ordering(ordering), deletes=True)
    first = pipeline.put("a.csv", "1\n2\n")
    pipeline.put("b.csv", "1\n")
    pipeline.next(Fault.OVERTAKEN, Fault.KILLED_AFTER_EFFECT)
    pipeline.run()
    latest = pipeline.put("a.csv", "3\n")
    pipeline.delete("b.csv")
    pipeline.duplicate()
    pipeline.reverse()
    pipeline.next(Fault.OVERTAKEN, Fault.TIMED_OUT)
    pipeline.run()
    with psycopg.connect(database) as connection:
        found = connection.execute("SELECT key, version, line FROM lines ORDER BY line, key").fetchall()
    if ordering == "LATEST":
        assert found == [("a.csv", "", "3")]
    else:
        assert [(key, line) for key, _, line in found] == [
            ("a.csv", "1"),
            ("b.csv", "1"),
            ("a.csv", "2"),
            ("a.csv", "3"),
        ]
        assert {version for key, version, _ in found if key == "a.csv"} == {first, latest}
