# ruff: noqa: INP001 - it is an asset
"""The processors of the stack of checks. The body of an object is an order in JSON, and so is a message."""

import json
import os
import signal
from functools import cache
from typing import Any

import boto3

from intake_ledger import Commit, KeyedMessage, NotYet, ObjectChange, Unprocessable


def process(change: ObjectChange) -> Commit:
    """Follow the order in an object, and count the effect of its version.

    Orders: `kill` ends the first worker. `hops` and `seconds` wait that often and that long. `reject` rejects until
    the item `open` is in the table of effects. `loop` uploads that many more objects, one after the other.
    """
    place, version = f"{change.bucket}/{change.key}", change.version_id or "-"
    order = json.loads(change.open().read()) if change.kind == "created" else {}
    if order.get("kill") and change.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if order.get("hops") and count(place, f"{version}#calls") <= order["hops"]:
        raise NotYet("another hop", retry_in=order["seconds"])
    if order.get("reject") and not _is_open(place):
        raise Unprocessable("the order is to reject it")
    if order.get("loop"):
        _go_round(change, order["loop"])
    if "PLAIN" in os.environ:
        count(place, version)
        return Commit(change.idempotency_key)
    return _effect(change.idempotency_key, place, version)


def process_message(message: KeyedMessage) -> Commit:
    """Count the effect of a message."""
    return _effect(message.idempotency_key, f"messages/{message.key}", message.identity)


def _go_round(change: ObjectChange, left: int) -> None:
    key = f"{change.key.rpartition('/')[0]}/{left}"
    boto3.client("s3").put_object(Bucket=change.bucket, Key=key, Body=json.dumps({"loop": left - 1}))


def _effect(identity: str, place: str, id_: str) -> Commit:
    """Count the effect in one transaction with the commit. Otherwise an attempt that times out could count it twice."""
    return Commit(identity, transact=[{"Update": _update(place, id_)}])


def _update(place: str, id_: str) -> dict[str, Any]:
    return {
        "TableName": os.environ["EFFECTS_TABLE"],
        "Key": {"place": {"S": place}, "id": {"S": id_}},
        "UpdateExpression": "ADD calls :one",
        "ExpressionAttributeValues": {":one": {"N": "1"}},
    }


def count(place: str, id_: str) -> int:
    """Count a call, and return the number of calls."""
    answer = _dynamodb().update_item(**_update(place, id_), ReturnValues="UPDATED_NEW")
    return int(answer["Attributes"]["calls"]["N"])


def _is_open(place: str) -> bool:
    key = {"place": {"S": place}, "id": {"S": "open"}}
    return "Item" in _dynamodb().get_item(TableName=os.environ["EFFECTS_TABLE"], Key=key, ConsistentRead=True)


@cache
def _dynamodb() -> Any:
    return boto3.client("dynamodb")
