"""One synthesis of the whole matrix for all tests of it, and one file of the runtime's layer for all apps."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import pytest
from aws_cdk import App, Stack, Stage

from cdk_intake_ledger.functions import layer
from tests.synth.build import new_app
from tests.synth.matrix import CONTEXT, ROWS


@dataclass(frozen=True)
class Matrix:
    """The rows of `tests.synth.matrix`, synthesised."""

    app: App
    stacks: Mapping[str, Stack]
    """The pipeline's stack of each row."""
    directory: Path
    """The cloud assembly."""


@pytest.fixture(scope="session")
def matrix(tmp_path_factory: pytest.TempPathFactory) -> Matrix:
    directory = tmp_path_factory.mktemp("matrix")
    app = new_app(context=CONTEXT, outdir=str(directory))
    stacks = {row.__name__: row(app) for row in ROWS}
    app.synth()
    return Matrix(app, stacks, directory)


@pytest.fixture(scope="session", autouse=True)
def linked_layer() -> Iterator[None]:
    """Link the layer into each of hundreds of cloud assemblies: it has 3 MB."""
    stage = layer._staged
    files: dict[str, Path] = {}

    def staged(stack: Stack, content: bytes, digest: str) -> str:
        if digest not in files or not files[digest].exists():
            files[digest] = Path(stage(stack, content, digest))
        home = Stage.of(stack)
        assert home is not None
        path = Path(home.asset_outdir, files[digest].name)
        if not path.exists():
            path.hardlink_to(files[digest])
        return str(path)

    with mock.patch.object(layer, "_staged", staged):
        yield
