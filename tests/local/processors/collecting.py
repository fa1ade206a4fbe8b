"""Processors of files and of sets that note each call."""

import os
from functools import cache
from typing import Any

import boto3

from intake_ledger import Commit, FileSet, ObjectChange, Rejects

REJECTS = Rejects(max_share=0.9)


def process_part(change: ObjectChange) -> Commit:
    """Note a part. Reject the bad rows of a table."""
    if change.key.startswith("tables/"):
        list(change.csv_rows(columns={"n": int}, on_error=REJECTS))
    _note(change.bucket, change.key, change.version_id or "", [])
    return Commit(change.idempotency_key)


def take_part(change: ObjectChange) -> Commit:
    """Note nothing. The set that has this part is what matters."""
    return Commit(change.idempotency_key)


def process_set(files: FileSet) -> Commit:
    """Note a set, with key, version and content of each part. Reject the bad rows of tables."""
    if files.key.startswith("loads/tables/"):
        for part in files.parts:
            list(part.csv_rows(columns={"n": int}, on_error=REJECTS))
    parts = [[part.key, part.version_id, part.read(100).decode()] for part in files.parts]
    _note(files.bucket, files.key, files.version, parts)
    return Commit(files.idempotency_key)


def _note(bucket: str, key: str, version: str, parts: list[list[Any]]) -> None:
    _table().update_item(
        Key={"place": f"{bucket}/{key}", "id": version},
        UpdateExpression="SET parts = :parts ADD calls :one",
        ExpressionAttributeValues={":parts": parts, ":one": 1},
    )


@cache
def _table() -> Any:
    return boto3.resource("dynamodb").Table(os.environ["EFFECTS_TABLE"])
