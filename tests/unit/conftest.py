"""Fixtures of the unit tests: a new ledger's table for each test, and parts that are slow to create once for all."""

import os
from collections.abc import Iterator
from functools import cache
from itertools import count
from typing import TYPE_CHECKING, Any, cast

import boto3
import botocore.session
import moto.core.responses
import moto.core.serialize
import pytest
from botocore.config import Config
from hypothesis import settings
from moto import mock_aws
from moto.core.responses import ActionResult
from moto.core.utils import method_names_from_class
from moto.sqs.responses import SQSResponse

from cdk_intake_ledger.testing import MemoryDynamoDB
from intake_ledger.ledger.dynamodb_table import LedgerTable
from intake_ledger.protocol.row import Ordering
from intake_ledger_suite import MARKERS
from tests.settings import examples
from tests.unit.support import Clock, FakeS3, MakeWorld, Wire, World, create_table

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

_TABLES = count(1)


def pytest_configure(config: pytest.Config) -> None:
    """Register the marks of the suite, whose checks are tested here."""
    for line in MARKERS:
        config.addinivalue_line("markers", line)


# An example may take long on a busy machine. That does not mean that the code is wrong.
settings.register_profile("patient", deadline=None, max_examples=examples(100))
settings.load_profile("patient")


@cache
def shared_session() -> boto3.Session:
    """Return the boto3 session of all tests with moto: a session reads each service's model only once."""
    session = botocore.session.get_session()
    # Without a value, botocore builds it twice for each request.
    session.set_default_client_config(Config(user_agent="unit tests"))
    return boto3.session.Session(botocore_session=session)


def session_for(**options: Any) -> boto3.Session:
    """Return the shared session, or a new one for a region or a profile."""
    return boto3.session.Session(**options) if any(options.values()) else shared_session()


_any_value = moto.core.serialize.ResponseSerializer.get_value


def _value(self: Any, value: Any, key: str, shape: Any) -> Any:
    """Read a member of DynamoDB's answer, which is a dictionary. Moto would try each member under four names."""
    if isinstance(value, dict) and self.operation_model.service_model.service_name == "dynamodb":
        return value.get(key)
    return _any_value(self, value, key, shape)


@pytest.fixture(scope="module")
def dynamodb() -> Iterator["DynamoDBClient"]:
    """A DynamoDB client for moto. The machine's AWS settings have no effect on it."""
    patch = pytest.MonkeyPatch()
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        patch.delenv(name)
    patch.setenv("AWS_ACCESS_KEY_ID", "testing")
    patch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    patch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    with mock_aws():
        patch.setattr(boto3, "DEFAULT_SESSION", shared_session())
        patch.setattr(boto3, "Session", session_for)
        # Moto inspects all members of a class in each request.
        patch.setattr(moto.core.responses, "method_names_from_class", cache(method_names_from_class))
        patch.setattr(moto.core.serialize.ResponseSerializer, "get_value", _value)
        # Moto does not know this operation. No redrive of SQS is running.
        patch.setattr(SQSResponse, "list_message_move_tasks", lambda _: ActionResult({"Results": []}), raising=False)
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
