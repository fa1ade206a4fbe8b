"""The items that say in which manifests an object is listed, and batches that DynamoDB carries out in part."""

from typing import Any, cast

import pytest
from botocore.exceptions import ClientError

from cdk_intake_ledger.testing import MemoryDynamoDB
from intake_ledger.ledger.dynamodb_table import LedgerTable
from intake_ledger.protocol.row import RowKey
from intake_ledger.set_members.membership import Membership

pytestmark = pytest.mark.quiet_tables
PARTS = [f"part-{number}" for number in range(60)]


def membership(dynamodb: MemoryDynamoDB) -> Membership:
    return Membership(cast("Any", dynamodb), "ledger", "bucket")


@pytest.mark.failure_mode("F287")
@pytest.mark.parametrize("partial", [0, 1, 3, 7])
def test_items_that_dynamodb_did_not_take_are_sent_again(partial: int) -> None:
    dynamodb = MemoryDynamoDB()
    dynamodb.partial_batches = partial
    membership(dynamodb).register("sets", "m.json", "v1", PARTS)
    found = {part: list(membership(dynamodb).sets_of("sets", part)) for part in PARTS}
    assert found == {part: ["m.json"] for part in PARTS}


@pytest.mark.failure_mode("F287")
def test_a_manifest_is_recorded_only_when_all_its_items_are_there() -> None:
    """The next look writes them again."""
    dynamodb = MemoryDynamoDB()
    dynamodb.partial_batches = 1_000
    with pytest.raises(ClientError, match="did not carry out"):
        membership(dynamodb).register("sets", "m.json", "v1", PARTS)
    dynamodb.partial_batches = 0
    membership(dynamodb).register("sets", "m.json", "v1", PARTS)
    assert [part for part in PARTS if not list(membership(dynamodb).sets_of("sets", part))] == []


@pytest.mark.failure_mode("F287")
@pytest.mark.parametrize("partial", [0, 1, 3])
def test_items_that_dynamodb_did_not_read_are_read_again(partial: int) -> None:
    dynamodb = MemoryDynamoDB()
    keys = [RowKey(f"bucket/{part}", "row") for part in PARTS]
    for key in keys:
        dynamodb.put_item(Item={"pk": {"S": key.pk}, "sk": {"S": key.sk}})
    dynamodb.partial_batches = partial
    assert set(LedgerTable(cast("Any", dynamodb), "ledger").get_items(keys)) == set(keys)
    assert dynamodb.requests.count("BatchGetItem") == partial + 1
