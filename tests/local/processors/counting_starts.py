"""A processor that writes when it was started, and by which attempt."""

import os
import time

import boto3

from intake_ledger import ObjectChange

dynamodb = boto3.client("dynamodb")


def process(change: ObjectChange) -> None:
    at, table = time.time_ns() // 1_000_000, os.environ["EFFECTS_TABLE"]
    item = {"place": change.key, "id": f"{at}-{change.fence}", "attempt": str(change.attempt)}
    dynamodb.put_item(TableName=table, Item={name: {"S": text} for name, text in item.items()})
