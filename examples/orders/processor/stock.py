"""Books each order from the stock of its article."""

import os
from functools import cache
from typing import Any

import boto3

from intake_ledger import Commit, KeyedMessage, Unprocessable


def process(message: KeyedMessage) -> Commit:
    """Book an order: the stock changes in the transaction of the ledger's commit.

    The key is the article. No other order of it is processed meanwhile, so the number that was read stays true.
    """
    pieces = int(message.body["detail"]["pieces"])
    table, article = os.environ["STOCK_TABLE"], {"article": {"S": message.key}}
    item = _client().get_item(TableName=table, Key=article, ConsistentRead=True).get("Item")
    stock = int(item["pieces"]["N"]) if item else 0
    if pieces > stock:
        raise Unprocessable(f"{pieces} of {message.key} ordered, {stock} in stock")
    booking = {
        "TableName": table,
        "Key": article,
        "UpdateExpression": "SET pieces = pieces - :pieces",
        "ExpressionAttributeValues": {":pieces": {"N": str(pieces)}},
    }
    return Commit(message.identity, transact=[{"Update": booking}])


@cache
def _client() -> Any:
    return boto3.client("dynamodb")
