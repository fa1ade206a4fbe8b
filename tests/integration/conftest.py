"""Fixtures of the tests that start a database, a browser, threads or a process: those of the unit tests, and DuckDB."""

from collections.abc import Iterator
from itertools import count
from typing import TYPE_CHECKING, Any, Self

import pytest

from tests.browser import Browser, chromium
from tests.unit.conftest import dynamodb, make_world, world

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

__all__ = ["duckdb_instance", "dynamodb", "make_world", "one_duckdb", "world"]
_DATABASES = count(1)


class SharedDuckDB:
    """A connection to an empty database inside the shared DuckDB instance."""

    def __init__(self, instance: "DuckDBPyConnection", name: str) -> None:
        self._name, self._duck = name, instance.cursor()
        self._duck.execute(f"ATTACH ':memory:' AS {name}; USE {name}")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._duck, name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._duck.execute(f"USE memory; DETACH {self._name}")
        self._duck.close()


@pytest.fixture(scope="session")
def duckdb_instance() -> Iterator["DuckDBPyConnection"]:
    # If a module of pytest's plugins held it, DuckDB would complain at the end of the process.
    import duckdb  # noqa: PLC0415

    config: dict[str, Any] = {
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
        "threads": 1,
    }
    with duckdb.connect(config=config) as instance:
        yield instance


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with chromium(tmp_path_factory.mktemp("browser")) as started:
        yield started


@pytest.fixture(autouse=True)
def one_duckdb(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use one DuckDB instance for the audit's tests: to start one takes 25 ms of CPU.

    `test_audit_join.py` also starts DuckDB as a Lambda function does, and chooses by itself.
    """
    if "test_audit_" in request.path.name and request.path.name != "test_audit_join.py":
        instance: DuckDBPyConnection = request.getfixturevalue("duckdb_instance")
        monkeypatch.setattr("duckdb.connect", lambda **_: SharedDuckDB(instance, f"database_{next(_DATABASES)}"))
