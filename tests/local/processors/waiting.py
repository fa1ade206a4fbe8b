"""A processor whose files wait until a gate is open. The others take effect at once."""

import os

import boto3

from intake_ledger import Commit, NotYet, ObjectChange

dynamodb = boto3.client("dynamodb")
TABLE = os.environ["EFFECTS_TABLE"]


def process(change: ObjectChange) -> Commit:
    if change.key.startswith("waits/") and "Item" not in dynamodb.get_item(TableName=TABLE, Key=_key("gate", "")):
        raise NotYet("the gate is closed", retry_in=int(os.environ["RETRY_SECONDS"]))
    effect = {
        "TableName": TABLE,
        "Key": _key(change.key, change.version_id or ""),
        "UpdateExpression": "ADD effects :one",
        "ExpressionAttributeValues": {":one": {"N": "1"}},
    }
    return Commit(transact=[{"Update": effect}])


def _key(place: str, id: str) -> dict[str, dict[str, str]]:
    return {"place": {"S": place}, "id": {"S": id or "none"}}
