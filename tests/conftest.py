"""Shared by all folders: the synthesis with the oldest CDK, which starts before the first test, and PostgreSQL."""

import gc
import os
import random
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cdk_intake_ledger.testing import MemoryDynamoDB
from intake_ledger.ledger import dynamodb_table

if TYPE_CHECKING:
    from examples.postgres import Postgres

ROOT = Path(__file__).parents[1]
_WIDENING = {"THOROUGH", "examples"}
"""Names of tests.settings in a module whose tests take more examples with THOROUGH=1."""
LOWEST = ROOT / "build" / "lowest" / "bin" / "python"


@dataclass(frozen=True)
class Lowest:
    """The templates of the matrix, synthesised with the oldest supported versions."""

    process: subprocess.Popen[bytes]
    directory: Path
    said: Path

    def templates(self) -> Path:
        """Wait for the synthesis and return the folder of its templates."""
        assert self.process.wait() == 0, self.said.read_text()
        return self.directory


@pytest.fixture(scope="session", autouse=True)
def lowest(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lowest | None]:
    """Synthesise in parallel with the other tests: to import the oldest CDK takes many seconds."""
    # The fixture of tests/synth/test_compatibility.py. `make test` leaves its tests to `make thorough`.
    wanted = any("pairs" in getattr(item, "fixturenames", ()) for item in request.session.items)
    if not wanted or not LOWEST.exists():
        yield None
        return
    folder = tmp_path_factory.mktemp("lowest")
    directory, said = folder / "cdk.out", folder / "said"
    roots = os.pathsep.join(str(ROOT / name) for name in ("constructs", "lambda_src", "tools", "."))
    # Let Python store its bytecode. Without it each import of that CDK takes half a minute.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with said.open("w") as log:
        process = subprocess.Popen(
            [LOWEST, "-m", "tests.synth.lowest", directory],
            env=environment | {"PYTHONPATH": roots},
            cwd=ROOT,
            stdout=log,
            stderr=log,
        )
    yield Lowest(process, directory, said)
    process.kill()
    process.wait()


@pytest.fixture(scope="session")
def postgres() -> "Iterator[Postgres]":
    """A PostgreSQL server for all tests. Each test makes a database in it."""
    # Most folders need no driver.
    from examples.postgres import postgres as run_postgres  # noqa: PLC0415

    with run_postgres() as server:
        yield server


@pytest.fixture(autouse=True)
def busy_tables(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each table in memory throttle and have transactions under way, at random. The waits take no time.

    Tables are quiet in a test that reads their `requests`, or that has the marker `quiet_tables`.
    """
    monkeypatch.setattr(dynamodb_table, "pause", lambda _: None)
    if "requests" not in request.function.__code__.co_names and not request.node.get_closest_marker("quiet_tables"):
        monkeypatch.setattr(MemoryDynamoDB, "busy", random.Random(request.node.nodeid))


def pytest_collection_finish() -> None:
    """Exclude modules and collected tests from garbage collection, which takes up to a tenth of the time with them."""
    gc.collect()
    gc.freeze()


def pytest_itemcollected(item: pytest.Item) -> None:
    """Let `-k f20` choose the tests that hold line F20 of tests/failure-modes.md. Mark tests that THOROUGH=1 widens."""
    module = vars(getattr(item, "module", None) or object)
    if getattr(getattr(item, "obj", None), "is_hypothesis_test", False) or not _WIDENING.isdisjoint(module):
        item.add_marker("wide")
    for marker in item.iter_markers("failure_mode"):
        item.extra_keyword_matches.update(marker.args)
