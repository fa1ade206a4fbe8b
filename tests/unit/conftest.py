"""A ledger's table of its own for each test that asks for one: in memory, or in moto."""

import os
from collections.abc import Iterator
from itertools import count
from typing import TYPE_CHECKING, cast

import boto3
import pytest
from hypothesis import settings
from moto import mock_aws

from intake_ledger.ledger import LedgerTable
from intake_ledger.protocol import Ordering
from intake_ledger_testing.memory_dynamodb import MemoryDynamoDB
from tests.unit.support import Clock, FakeS3, MakeWorld, Wire, World, create_table

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

_TABLES = count(1)

# An example that takes long says that the machine is busy, not that the code is wrong.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")


@pytest.fixture(scope="module")
def dynamodb() -> Iterator["DynamoDBClient"]:
    """A DynamoDB client that talks to moto; whatever endpoint or profile the machine has set is left out of it."""
    patch = pytest.MonkeyPatch()
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        patch.delenv(name)
    patch.setenv("AWS_ACCESS_KEY_ID", "testing")
    patch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    patch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    with mock_aws():
        yield boto3.client("dynamodb")
    patch.undo()


@pytest.fixture
def make_world(request: pytest.FixtureRequest) -> MakeWorld:
    """A function that makes a pipeline's ledger with an empty table: `make_world(Ordering.LATEST, deletes=False)`.

    The table is in moto if the test uses the fixture `dynamodb`, and otherwise in the store of the test kit. That store
    takes less time than moto. tests/protocol/test_memory_dynamodb.py compares the answers of both.
    """
    moto = request.getfixturevalue("dynamodb") if "dynamodb" in request.fixturenames else None

    def make(
        ordering: Ordering = Ordering.LATEST,
        *,
        deletes: bool = True,
        versioned: bool = True,
        late_after: int = 21_600_000,
    ) -> World:
        name, clock, wire = f"ledger-{next(_TABLES)}", Clock(), Wire(moto or cast("DynamoDBClient", MemoryDynamoDB()))
        if moto is not None:
            create_table(moto, name)
        table = LedgerTable(cast("DynamoDBClient", wire), name)
        return World(clock, FakeS3(clock, versioned=versioned), wire, table, name, ordering, deletes, late_after)

    return make


@pytest.fixture
def world(make_world: MakeWorld) -> World:
    """A pipeline in the default ordering, told of removals, over a versioned bucket."""
    return make_world()
