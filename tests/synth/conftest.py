"""One synthesis of the whole matrix for all tests of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from aws_cdk import App, Stack

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
