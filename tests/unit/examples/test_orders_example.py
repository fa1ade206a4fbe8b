"""The example of orders: its judge, and the consumer that is written by hand."""

import importlib
import json
from types import ModuleType
from typing import Any
from uuid import uuid4

import boto3
import pytest
from examples.orders.run import NO_REASON, Outcome, expected

REASON = "1000 of bolts ordered, 100 in stock"
RIGHT = expected()


@pytest.mark.parametrize(
    ("stock", "reasons", "right"),
    [
        (RIGHT, [REASON], True),
        (RIGHT | {"bolts": RIGHT["bolts"] - 1}, [REASON], False),
        ({"bolts": RIGHT["bolts"]}, [REASON], False),
        (RIGHT, [], False),
        (RIGHT, [NO_REASON], False),
        (RIGHT, [REASON, NO_REASON], False),
    ],
)
def test_each_order_is_booked_once_and_the_rejected_one_has_its_reason(
    stock: dict[str, int], reasons: list[str], *, right: bool
) -> None:
    assert Outcome(stock, RIGHT, reasons, booked=24, copies=24).right is right


@pytest.fixture
def stock(dynamodb: object, monkeypatch: pytest.MonkeyPatch) -> Any:
    table = boto3.resource("dynamodb", region_name="eu-central-1").create_table(
        TableName=f"stock-{uuid4()}",
        BillingMode="PAY_PER_REQUEST",
        KeySchema=[{"AttributeName": "article", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "article", "AttributeType": "S"}],
    )
    table.put_item(Item={"article": "nuts", "pieces": 10})
    monkeypatch.setenv("STOCK_TABLE", table.name)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    return table


@pytest.fixture
def by_hand(stock: Any, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = importlib.import_module("examples.orders.functions.by_hand")
    monkeypatch.setattr(module, "table", stock)
    return module


def test_the_hand_written_consumer_is_right_about_each_order_once_and_books_a_copy_again(
    stock: Any, by_hand: ModuleType
) -> None:
    def send(pieces: int) -> int:
        by_hand.handler({"Records": [{"body": json.dumps({"detail": {"article": "nuts", "pieces": pieces}})}]}, None)
        return int(stock.get_item(Key={"article": "nuts"})["Item"]["pieces"])

    assert send(3) == 7
    assert send(3) == 4
    with pytest.raises(stock.meta.client.exceptions.ConditionalCheckFailedException):
        send(5)
    assert int(stock.get_item(Key={"article": "nuts"})["Item"]["pieces"]) == 4
