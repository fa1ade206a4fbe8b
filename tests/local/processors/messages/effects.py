"""A processor of messages that notes its effects, and fails or rejects when told to."""

import functools
import os
from typing import Any

import boto3

from intake_ledger import Commit, KeyedMessage, Unprocessable


def process(message: KeyedMessage) -> Commit:
    order = _order(message)
    if order["do"] == "fail once" and message.attempt == 1:
        raise RuntimeError("the shop is closed")
    if order["do"] == "reject" and not _is_open(message.source):
        raise Unprocessable(f"no amount in {message.key}")
    entry = {
        "place": f"{message.source}/{message.key}",
        # Each call has its own entry, so that a second effect would be seen.
        "id": f"{message.identity}/{message.attempt}/{message.fence}",
        "identity": message.identity,
        "attempt": message.attempt,
        "fence": message.fence,
    }
    _table().put_item(Item=entry)
    return Commit(message.idempotency_key)


def _order(message: KeyedMessage) -> Any:
    if message.source == "dynamodb":
        return message.body["dynamodb"]["NewImage"]
    return message.body["detail"] if message.source == "eventbridge" else message.body


def _is_open(source: str) -> bool:
    """The operator has repaired the cause."""
    return "Item" in _table().get_item(Key={"place": f"open/{source}", "id": "-"}, ConsistentRead=True)


@functools.cache
def _table() -> Any:
    return boto3.resource("dynamodb").Table(os.environ["EFFECTS_TABLE"])
