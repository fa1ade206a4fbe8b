"""Two processors: one of invoices that are uploaded, one of what became of them."""

import os
from functools import cache
from typing import Any

import boto3

from intake_ledger import KeyedMessage, ObjectChange, Unprocessable


def check(change: ObjectChange) -> str:
    """Accept an invoice that has an amount."""
    text = change.open().read().decode()
    if "amount" not in text:
        raise Unprocessable("no amount in it")
    return f"{len(text)} characters"


def note(message: KeyedMessage) -> None:
    """Note the newest outcome of an invoice. The fence orders the events of a key, which may arrive in any order."""
    outcome = message.body["detail"]
    table = _table()
    try:
        table.put_item(
            Item={
                "invoice": outcome["key"],
                "outcome": message.body["detail-type"],
                "why": outcome.get("reason", outcome.get("commitId", "")),
                "fence": int(outcome["fence"]),
            },
            ConditionExpression="attribute_not_exists(fence) OR fence <= :fence",
            ExpressionAttributeValues={":fence": int(outcome["fence"])},
        )
    except table.meta.client.exceptions.ConditionalCheckFailedException:
        return  # a newer outcome is noted


@cache
def _table() -> Any:
    return boto3.resource("dynamodb").Table(os.environ["NOTES_TABLE"])
