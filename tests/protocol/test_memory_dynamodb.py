"""The store on which the proof rests, against moto's DynamoDB. The local AWS's is asked the same in tests/local."""

from typing import TYPE_CHECKING, Any, cast

import boto3
import pytest
from hypothesis import given, settings
from moto import mock_aws

from cdk_intake_ledger.testing.memory_dynamodb import MemoryDynamoDB
from intake_ledger.table import LedgerTable
from tests.protocol.equivalence import KEYS, TABLE, Step, answer, steps

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mypy_boto3_dynamodb import DynamoDBClient


@pytest.fixture(scope="module")
def moto() -> "Iterator[DynamoDBClient]":
    with mock_aws():
        client = boto3.client("dynamodb", "eu-west-1", aws_access_key_id="test", aws_secret_access_key="test")
        client.create_table(TableName="table", **TABLE)
        yield client


@settings(max_examples=120, deadline=None)
@given(plan=steps)
def test_random_requests_are_answered_as_by_moto(moto: "DynamoDBClient", plan: list[Step]) -> None:
    """Every answer, every refusal with its old row, and what stands in the table afterwards are the same."""
    for key in KEYS:
        moto.delete_item(TableName="table", Key={"pk": {"S": key.pk}, "sk": {"S": key.sk}})
    theirs, ours = LedgerTable(moto, "table"), LedgerTable(cast("Any", MemoryDynamoDB()), "table")
    for step in plan:
        assert answer(ours, step) == answer(theirs, step), step
    assert ours.get_items(KEYS) == theirs.get_items(KEYS)


def test_an_expression_that_it_does_not_know_is_refused() -> None:
    """A new condition in the ledger cannot slip past the store unevaluated."""
    with pytest.raises(NotImplementedError):
        MemoryDynamoDB().put_item(
            Item={"pk": {"S": "a"}, "sk": {"S": "b"}},
            ConditionExpression="begins_with(#pk, :a)",
            ExpressionAttributeNames={"#pk": "pk"},
        )
