"""A typical hand-written consumer of the same orders: EventBridge to SQS to Lambda. It books each message.

It is written with care: one conditional write, so that workers at the same time lose no booking and the stock does not
fall below zero. But it believes that each order comes once.
"""

import json
import os
from typing import Any

import boto3

table = boto3.resource("dynamodb").Table(os.environ["STOCK_TABLE"])


def handler(event: dict[str, Any], _context: object) -> None:
    for message in event["Records"]:
        book(json.loads(message["body"])["detail"])


def book(order: dict[str, Any]) -> None:
    """Take the pieces of an order from the stock of its article."""
    table.update_item(
        Key={"article": order["article"]},
        UpdateExpression="SET pieces = pieces - :pieces ADD bookings :one",
        ConditionExpression="pieces >= :pieces",
        ExpressionAttributeValues={":pieces": order["pieces"], ":one": 1},
    )
