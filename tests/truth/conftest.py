"""One LocalStack, and one synthesis of the matrix, for all tests of a session."""

import json
from collections.abc import Iterator

import pytest

from tests.synth.conftest import Matrix, matrix
from tests.truth import servers
from tests.truth.policies import Template
from tests.truth.recording import deployed

__all__ = ["matrix"]
_PIPELINE = "Delivery.template.json"
"""A CDK pipeline of the tests. The stacks that it deploys have their own templates."""


@pytest.fixture(scope="session")
def localstack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[servers.Server]:
    with servers.localstack(tmp_path_factory.mktemp("localstack")) as server:
        yield server


@pytest.fixture(scope="session")
def templates(matrix: Matrix) -> list[Template]:
    """The templates of the matrix and of the deployed tests."""
    paths = [path for path in sorted(matrix.directory.rglob("*.template.json")) if path.name != _PIPELINE]
    synthesised = [Template(path.name.partition(".")[0], json.loads(path.read_text())) for path in paths]
    return [*synthesised, *(Template(one.name, one.template) for one in deployed())]
