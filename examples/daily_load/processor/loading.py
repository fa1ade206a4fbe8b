"""Check each file when it arrives, and load all files of a manifest at once."""

import os
from functools import cache
from typing import Any

import boto3

from intake_ledger import Commit, FileSet, ObjectChange

COLUMNS = {"order": str, "amount": int}


def check(change: ObjectChange) -> None:
    """Reject a file without the columns, or with another amount. The load then waits for a corrected file."""
    for _ in change.csv_rows(columns=COLUMNS):
        pass


def load(files: FileSet) -> Commit:
    """Write the totals of all files as one item. The condition refuses a worker that is late."""
    rows = [row for part in files.parts for row in part.csv_rows(columns=COLUMNS)]
    _loads().update_item(
        Key={"load": files.key},
        UpdateExpression="SET fence = :fence, orders = :orders, amount = :amount, files = :files",
        ConditionExpression="attribute_not_exists(fence) OR fence <= :fence",
        ExpressionAttributeValues={
            ":fence": files.fence,
            ":orders": len(rows),
            ":amount": sum(row["amount"] for row in rows),
            ":files": {part.key: part.version_id for part in files.parts},
        },
    )
    return Commit(files.idempotency_key)


@cache
def _loads() -> Any:
    return boto3.resource("dynamodb").Table(os.environ["LOADS_TABLE"])
