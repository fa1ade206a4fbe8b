"""The requests of a rate against moto's DynamoDB: the store in memory answers them in the same way."""

from random import Random
from typing import TYPE_CHECKING, cast

import pytest

from cdk_intake_ledger.testing import MemoryDynamoDB
from intake_ledger.ledger.dynamodb_table import LedgerTable
from intake_ledger.ledger.starts import Starts
from intake_ledger.protocol.rate import Rate
from tests.unit.support import START, create_table

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


@pytest.mark.failure_mode("F413")
def test_moto_gives_the_same_starts_and_places(dynamodb: "DynamoDBClient") -> None:
    """Two workers for each table, one of them with a clock that is ahead."""
    create_table(dynamodb, "starts")
    random, now = Random(1), START
    workers = [
        [
            Starts(LedgerTable(client, "starts"), "Orders", Rate(2, burst=3), clock=clock, jitter=lambda: 0.5)
            for clock in (lambda: now, lambda: now + 300)
        ]
        for client in (dynamodb, cast("DynamoDBClient", MemoryDynamoDB()))
    ]
    answers = []
    for _ in range(60):
        number, in_line = random.randrange(2), random.random() < 0.5
        real, memory = (pair[number].take(in_line=in_line) for pair in workers)
        assert real == memory
        answers.append(real)
        now += random.choice((0, 100, 900))
    assert answers.count(None) > 10
    assert answers.count(None) < 60
