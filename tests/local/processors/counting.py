"""A processor that counts how often it was called about each version."""

import os

import boto3

from intake_ledger import Commit, ObjectChange

table = boto3.resource("dynamodb").Table(os.environ["CALLS_TABLE"])


def process(change: ObjectChange) -> Commit:
    table.update_item(
        Key={"version": change.version_id},
        UpdateExpression="ADD calls :one",
        ExpressionAttributeValues={":one": 1},
    )
    return Commit(change.idempotency_key)
