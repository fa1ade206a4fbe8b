"""The store on which the proof rests, against dynalite: a DynamoDB that shares no code with moto and MiniStack.

dynalite does not know PartiQL, transactions and the row of a refused write, so refusals are compared without the row.
"""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import boto3
import pytest
from hypothesis import given, settings

from cdk_intake_ledger.testing import LocalAws, MemoryDynamoDB
from intake_ledger.ledger.dynamodb_table import LedgerTable
from intake_ledger_testing import local_server
from tests.protocol.equivalence import KEYS, TABLE, Step, answer, empty, plans

PROGRAM = Path(__file__).parents[2] / "build" / "dynalite" / "node_modules" / "dynalite" / "cli.js"


@pytest.fixture(scope="module")
def dynalite() -> Iterator[Any]:
    assert PROGRAM.exists(), "no dynalite: run `make truth`"
    port = local_server.free_port()
    command = ["node", str(PROGRAM), "--host", "127.0.0.1", "--port", str(port), "--createTableMs", "0"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    session: Any = boto3.Session("test", "test", region_name="eu-west-1")
    client = session.client("dynamodb", endpoint_url=url)
    waiter = LocalAws()  # for its loop; it is never started
    try:
        waiter.wait_until(lambda: _made(client), "dynalite has a table", timeout=60)
        yield client
    finally:
        process.terminate()
        process.wait(10)


def _made(client: Any) -> bool:
    try:
        if "table" not in client.list_tables()["TableNames"]:
            client.create_table(TableName="table", **TABLE)
        return bool(client.describe_table(TableName="table")["Table"]["TableStatus"] == "ACTIVE")
    except Exception:  # noqa: BLE001 - it has not started yet
        return False


@settings(max_examples=120, deadline=None)
@given(plan=plans())
def test_random_requests_are_answered_as_by_dynalite(dynalite: Any, plan: list[Step]) -> None:
    ours, theirs = cast("Any", MemoryDynamoDB()), empty(dynalite)
    for step in plan:
        assert without_row(answer(ours, step)) == without_row(answer(theirs, step)), step
    assert LedgerTable(ours, "table").get_items(KEYS) == LedgerTable(theirs, "table").get_items(KEYS)


def without_row(given: object) -> object:
    """The answer, without the row of a refused write."""
    return given[0] if isinstance(given, tuple) else given
