"""The wheel, built once."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from cdk_intake_ledger.functions import layer as layers
from cdk_intake_ledger.functions.layer import archive

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built without a network, by the backend that is installed here."""
    out = tmp_path_factory.mktemp("dist")
    done = subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(ROOT)],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = out.glob("*.whl")
    return built


@pytest.fixture(scope="session", autouse=True)
def no_built_layer() -> Iterator[None]:
    """These tests also run with an installed wheel. They look at the layer that a checkout assembles."""
    archive.cache_clear()
    with mock.patch.object(layers, "BUILT", Path("a checkout has none")):
        yield
    archive.cache_clear()
