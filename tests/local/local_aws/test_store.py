"""The store in memory, on which the proof of the protocol rests, against the local AWS's DynamoDB."""

from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import given, settings

from cdk_intake_ledger.testing import LocalAws, MemoryDynamoDB
from tests.protocol.equivalence import TABLE, Step, empty, plans, same_answers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mypy_boto3_dynamodb import DynamoDBClient


@pytest.fixture(scope="module")
def dynamodb(aws: LocalAws) -> "Iterator[DynamoDBClient]":
    client = aws.client("dynamodb")
    client.create_table(TableName="table", **TABLE)
    yield client
    client.delete_table(TableName="table")


@settings(max_examples=40, deadline=None)
@given(plan=plans("insert many", "commit many", "mark many"))
def test_random_requests_are_answered_as_by_the_local_aws(dynamodb: "DynamoDBClient", plan: list[Step]) -> None:
    """Groups included: their INSERTs are refused by rows and by an audit's mark alone."""
    same_answers(cast("Any", MemoryDynamoDB()), empty(dynamodb), plan)
