"""The PostgreSQL server of tests and examples: it needs no privileges, and nothing of it remains."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import psycopg
import pytest
from examples import postgres as module
from examples.postgres import Postgres, postgres

ROOT = Path(__file__).resolve().parents[2]


def test_each_database_is_empty_and_its_transactions_are_real(postgres: Postgres) -> None:
    first, second = postgres.new_database(), postgres.new_database()
    with psycopg.connect(first) as connection:
        connection.execute("CREATE TABLE kept (n int)")
    with psycopg.connect(first) as connection:
        connection.execute("INSERT INTO kept VALUES (1)")
        connection.rollback()
        assert connection.execute("SELECT count(*) FROM kept").fetchone() == (0,)
    with psycopg.connect(second) as connection:
        assert connection.execute("SELECT to_regclass('kept')").fetchone() == (None,)


def test_the_server_runs_without_privileges_and_without_a_port(postgres: Postgres) -> None:
    assert (postgres.directory / "data").stat().st_uid != 0
    with psycopg.connect(postgres.dsn()) as connection:
        assert connection.execute("SHOW listen_addresses").fetchone() == ("",)


def test_nothing_remains_after_a_failure() -> None:
    with pytest.raises(ZeroDivisionError), postgres() as server:
        raise ZeroDivisionError
    assert not server.directory.exists()
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(server.dsn())


def test_nothing_remains_after_its_starter_was_killed() -> None:
    code = """
import sys
import time
from examples.postgres import postgres
with postgres() as server:
    print(server.directory, flush=True)
    sys.stdin.read()
"""
    starter = subprocess.Popen(
        (sys.executable, "-c", code), cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert starter.stdout is not None
    directory = Path(starter.stdout.readline().strip())
    assert (directory / "data").is_dir()
    starter.send_signal(signal.SIGKILL)
    starter.communicate()
    end = time.monotonic() + 30
    while directory.exists():
        assert time.monotonic() < end, f"{directory} remains: {list(directory.iterdir())}"
        time.sleep(0.02)


def test_a_server_that_cannot_start_shows_its_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_OPTIONS", ("max_connections=none",))
    with pytest.raises(RuntimeError, match="max_connections"), postgres():
        pass
