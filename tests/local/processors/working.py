"""A processor that works for a moment, counts its runs, and returns its effect for the ledger's transaction."""

import os
import time

import boto3

from intake_ledger import Commit, ObjectChange

dynamodb = boto3.client("dynamodb")
TABLE = os.environ["EFFECTS_TABLE"]


def process(change: ObjectChange) -> Commit:
    change.read(1_000)
    key = {"place": {"S": change.key}, "id": {"S": change.version_id or ""}}
    one = {":one": {"N": "1"}}
    # Two requests, since the local AWS carries out one clause of an update expression only.
    worker = {":worker": {"N": str(os.getpid())}}
    dynamodb.update_item(
        TableName=TABLE, Key=key, UpdateExpression="SET worker = :worker", ExpressionAttributeValues=worker
    )
    dynamodb.update_item(TableName=TABLE, Key=key, UpdateExpression="ADD runs :one", ExpressionAttributeValues=one)
    # The work, in which a worker may be killed. Slow work takes longer than a lease without a heartbeat.
    time.sleep(9 if change.key.startswith("slow") else 0.03)
    effect = {"TableName": TABLE, "Key": key, "UpdateExpression": "ADD effects :one", "ExpressionAttributeValues": one}
    return Commit(transact=[{"Update": effect}])
