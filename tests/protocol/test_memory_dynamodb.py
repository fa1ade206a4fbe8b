"""The store on which the proof rests, against moto's DynamoDB. The local AWS's is asked the same in tests/local."""

from typing import TYPE_CHECKING, Any, cast

import boto3
import pytest
from botocore.exceptions import ClientError
from hypothesis import given, settings
from moto import mock_aws

from cdk_intake_ledger.testing import MemoryDynamoDB
from intake_ledger_testing.table_expressions import ExpressionError
from tests.protocol.equivalence import TABLE, Step, empty, plans, same_answers
from tests.settings import examples

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mypy_boto3_dynamodb import DynamoDBClient


@pytest.fixture(scope="module")
def moto() -> "Iterator[DynamoDBClient]":
    with mock_aws():
        client = boto3.client("dynamodb", "eu-west-1", aws_access_key_id="test", aws_secret_access_key="test")
        for name in ("table", "other"):
            client.create_table(TableName=name, **TABLE)
        yield client


@settings(max_examples=examples(120), deadline=None)
@given(plan=plans("end with"))
def test_random_requests_are_answered_as_by_moto(moto: "DynamoDBClient", plan: list[Step]) -> None:
    """A proof on this store rests on moto's idea of DynamoDB; moto has none of PartiQL's INSERT with parameters."""
    same_answers(cast("Any", MemoryDynamoDB()), empty(moto), plan)


def test_an_expression_that_it_does_not_know_is_refused() -> None:
    """A new condition in the ledger cannot slip past the store unevaluated."""
    with pytest.raises(ExpressionError):
        MemoryDynamoDB().put_item(
            Item={"pk": {"S": "a"}, "sk": {"S": "b"}},
            ConditionExpression="ends_with(#pk, :a)",
            ExpressionAttributeNames={"#pk": "pk"},
        )


@pytest.mark.failure_mode("F252")
def test_an_update_without_a_change_is_refused_as_by_moto(moto: "DynamoDBClient") -> None:
    """No condition is judged: the request is malformed."""
    refusals = []
    for client in (cast("Any", MemoryDynamoDB()), moto):
        with pytest.raises(ClientError) as refused:
            client.update_item(
                TableName="table",
                Key={"pk": {"S": "a"}, "sk": {"S": "b"}},
                UpdateExpression="",
                ConditionExpression="attribute_exists(#fence)",
                ExpressionAttributeNames={"#fence": "fence"},
            )
        refusals.append(refused.value.response["Error"]["Code"])
    assert refusals == ["ValidationException", "ValidationException"]
