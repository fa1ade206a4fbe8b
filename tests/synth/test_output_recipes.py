"""The recipes for PostgreSQL, HTTP and Iceberg, with real downstreams: a server, a server, and a table on the disk."""

import logging
import random
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from examples.postgres import Postgres
from pyiceberg.catalog.sql import SqlCatalog

from cdk_intake_ledger.testing import Fault, LocalPipeline
from tests.known import known
from tests.settings import examples
from tests.synth.test_recipes import recipe


def faulty_run(process: Callable[..., Any], *faults: Fault) -> LocalPipeline:
    """Upload an object, with duplicates of its event and these faults."""
    pipeline = LocalPipeline(process, deletes=True)
    pipeline.put("a.csv", "10\n20\n")
    pipeline.duplicate()
    pipeline.next(*faults)
    pipeline.run()
    assert len(pipeline.calls) == len(faults) + 1
    return pipeline


@pytest.mark.failure_mode("F72")
@pytest.mark.parametrize("fault", [Fault.KILLED_AFTER_EFFECT, Fault.TIMED_OUT, Fault.OVERTAKEN])
def test_rows_in_postgresql(postgres: Postgres, fault: Fault) -> None:
    names: dict[str, Any] = {"DSN": postgres.new_database()}
    exec(recipe("Rows in PostgreSQL"), names)
    names["create_tables"](names["DSN"])
    pipeline = faulty_run(names["lines_in_postgresql"], fault)
    asked = "SELECT number, line FROM lines ORDER BY number"
    with psycopg.connect(names["DSN"], autocommit=True) as connection:
        assert connection.execute(asked).fetchall() == [(1, "10"), (2, "20")]
        pipeline.delete("a.csv")
        pipeline.run()
        assert connection.execute(asked).fetchall() == []
        assert connection.execute("SELECT removed FROM intake_objects").fetchall() == [(True,)]


@dataclass
class Service:
    """A server that honours `Idempotency-Key`, and counts its effects."""

    honours: bool = True
    forgets: bool = False
    """It has forgotten each key when the next request comes."""
    redirect: int | None = None
    """The status of the first answer, which names another place and has no effect."""
    answer: bytes = b"receipt"
    sends: int | None = None
    """The bytes of the first answer before the connection ends. None: all. 0: not even its status."""
    effects: list[bytes] = field(default_factory=list)
    requests: int = 0
    url: str = ""
    _known: set[str] = field(default_factory=set)

    def receive(self, key: str, body: bytes) -> None:
        self.requests += 1
        if self.honours and key in self._known:
            return
        self.effects.append(body)
        self._known = set() if self.forgets else {*self._known, key}


@pytest.fixture
def service() -> Iterator[Service]:
    service = Service()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if service.redirect is not None:
                self.send_response(service.redirect)
                self.send_header("Location", "/moved")
                service.redirect, service.requests = None, service.requests + 1
                self.end_headers()
                return
            service.receive(self.headers["Idempotency-Key"], body)
            sends, service.sends = service.sends, None
            if sends == 0:
                return
            self.send_response(200)
            self.send_header("Content-Length", str(len(service.answer)))
            self.end_headers()
            self.wfile.write(service.answer[:sends])

        def do_GET(self) -> None:
            """Show the place of a redirect, which takes nothing."""
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"hello")

        def log_message(self, *_: Any) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        service.url = f"http://127.0.0.1:{server.server_port}/"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield service
        server.shutdown()
        thread.join()


def send(service: Service, *faults: Fault) -> None:
    names: dict[str, Any] = {"URL": service.url}
    exec(recipe("A service over HTTP"), names)
    pipeline = faulty_run(names["sent_over_http"], *faults)
    assert service.requests == len(faults) + 1
    row = known(pipeline.row("a.csv"))
    assert row.commit_id == "receipt"


@pytest.mark.parametrize("fault", [Fault.KILLED_AFTER_EFFECT, Fault.TIMED_OUT, Fault.OVERTAKEN])
def test_a_service_that_honours_keys_has_one_effect(service: Service, fault: Fault) -> None:
    send(service, fault, Fault.KILLED_AFTER_EFFECT)
    assert service.effects == [b"10\n20\n"]


def committed(service: Service) -> str | None:
    """The commit of an upload that no fault of the pipeline disturbs. The service got the content once."""
    names: dict[str, Any] = {"URL": service.url}
    exec(recipe("A service over HTTP"), names)
    pipeline = LocalPipeline(names["sent_over_http"])
    pipeline.put("a.csv", "10\n20\n")
    pipeline.run()
    assert service.effects == [b"10\n20\n"]
    row = known(pipeline.row("a.csv"))
    return row.commit_id


@pytest.mark.failure_mode("F664")
@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_a_redirect_is_no_effect(service: Service, code: int) -> None:
    """urllib would follow some of them with a GET without the content, and see a success."""
    service.redirect = code
    assert committed(service) == "receipt"
    assert service.requests == 2


@pytest.mark.failure_mode("F664")
def test_no_answer_fails_after_the_effect(service: Service) -> None:
    """The 100 bytes of it that the recipe keeps may end inside a character."""
    service.answer = b"-" + "ä".encode() * 100
    assert committed(service) == f"-{'ä' * 49}\ufffd"
    assert service.requests == 1


@pytest.mark.failure_mode("F664")
@pytest.mark.parametrize(("sends", "requests"), [(0, 2), (3, 1)])
def test_an_answer_that_is_cut_repeats_no_effect(service: Service, sends: int, requests: int) -> None:
    service.sends = sends
    committed(service)
    assert service.requests == requests


def test_a_service_that_ignores_keys_has_the_effect_twice(service: Service) -> None:
    service.honours = False
    send(service, Fault.KILLED_AFTER_EFFECT)
    assert len(service.effects) == 2


def test_a_service_that_forgets_keys_has_the_effect_twice(service: Service) -> None:
    service.forgets = True
    send(service, Fault.KILLED_AFTER_EFFECT)
    assert len(service.effects) == 2


@dataclass(frozen=True)
class Lines:
    """An Iceberg table, and the processor of the recipe."""

    names: dict[str, Any]
    connect: Callable[[], SqlCatalog]

    def write(self, fence: int, *lines: str, catalog: Any = None, defect: tuple[str, str] = ("", "")) -> str:
        """Write as one attempt, with its own connection. `defect` replaces a part of the recipe."""
        names = self.names | {"catalog": catalog or self.connect()}
        code = recipe("Rows in Iceberg")
        assert defect[0] in code
        exec(code.replace(*defect), names)
        change = SimpleNamespace(
            key="a.csv", fence=fence, kind="created" if lines else "removed", lines=lambda: iter(lines)
        )
        try:
            names["lines_in_iceberg"](change)
        except RuntimeError:
            return "overtaken"
        return "written"

    def rows(self) -> list[tuple[int, str | None]]:
        found = self.connect().load_table("intake.lines").scan().to_arrow().to_pylist()
        return [(row["fence"], row["line"]) for row in found if row["file"] == "a.csv"]


@pytest.fixture
def lines(tmp_path: Path) -> Iterator[Lines]:
    catalogs: list[SqlCatalog] = []

    def connect() -> SqlCatalog:
        uri, warehouse = f"sqlite:///{tmp_path}/catalog.db", f"file://{tmp_path}/warehouse"
        catalogs.append(SqlCatalog("local", uri=uri, warehouse=warehouse))
        return catalogs[-1]

    names: dict[str, Any] = {"catalog": connect()}
    exec(recipe("Rows in Iceberg"), names)
    names["catalog"].create_namespace("intake")
    names["catalog"].create_table("intake.lines", schema=names["SCHEMA"])
    # Each refused commit is a warning in the log.
    logging.getLogger("pyiceberg").setLevel(logging.ERROR)
    yield Lines(names, connect)
    for catalog in catalogs:
        catalog.engine.dispose()


no_rows_yet = pytest.mark.filterwarnings("ignore:Delete operation did not match any records")


@no_rows_yet
@pytest.mark.failure_mode("F72")
def test_rows_in_iceberg_are_those_of_the_current_state(lines: Lines) -> None:
    pipeline = faulty_run(lines.names["lines_in_iceberg"], Fault.KILLED_AFTER_EFFECT)
    assert [line for _, line in lines.rows()] == ["10", "20"]
    pipeline.delete("a.csv")
    pipeline.run()
    [(fence, line)] = lines.rows()
    assert line is None
    assert lines.write(fence - 1, "late") == "overtaken"
    assert lines.write(fence + 1, "new") == "written"
    assert lines.rows() == [(fence + 1, "new")]


@no_rows_yet
def test_concurrent_writers_of_iceberg_end_with_the_highest_fence(lines: Lines) -> None:
    dice = random.Random(16)
    for first in range(1, examples(16) * 10, 10):
        fences = dice.sample(range(first, first + 9), 3)
        removed = dice.choice([None, max(fences), min(fences)])
        threads = [
            threading.Thread(target=lines.write, args=(fence, *(() if fence == removed else (f"of {fence}",) * 2)))
            for fence in fences
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        highest = max(fences)
        assert lines.rows() == ([(highest, None)] if highest == removed else [(highest, f"of {highest}")] * 2)


class Overtaking:
    """A catalog whose first table is read before another attempt writes, and committed afterwards."""

    def __init__(self, lines: Lines) -> None:
        self._lines = lines
        self._pending = True

    def load_table(self, name: str) -> Any:
        table = self._lines.connect().load_table(name)
        if self._pending:
            self._pending = False
            assert self._lines.write(5, "new") == "written"
        return table


@no_rows_yet
@pytest.mark.parametrize("before", [(), ("old",)])
def test_iceberg_refuses_a_commit_after_a_write_since_the_scan(lines: Lines, before: tuple[str, ...]) -> None:
    if before:
        lines.write(1, *before)
    assert lines.write(4, "late", catalog=Overtaking(lines)) == "overtaken"
    assert lines.rows() == [(5, "new")]


@no_rows_yet
def test_an_append_to_iceberg_does_not_check_for_conflicts(lines: Lines) -> None:
    append = ("overwrite(content, overwrite_filter=its_rows)", "append(content)")
    assert lines.write(4, "late", catalog=Overtaking(lines), defect=append) == "written"
    assert sorted(lines.rows()) == [(4, "late"), (5, "new")]


@no_rows_yet
def test_iceberg_needs_the_isolation_level_serializable(lines: Lines) -> None:
    with lines.connect().load_table("intake.lines").transaction() as transaction:
        transaction.set_properties({"write.update.isolation-level": "snapshot"})
    assert lines.write(4, "late", catalog=Overtaking(lines)) == "written"


@no_rows_yet
def test_iceberg_without_the_fence_keeps_the_rows_of_a_late_worker(lines: Lines) -> None:
    lines.write(5, "new")
    assert lines.write(4, "late") == "overtaken"
    assert lines.write(4, "late", defect=("> change.fence", "> 10 ** 18")) == "written"
    assert lines.rows() == [(4, "late")]
