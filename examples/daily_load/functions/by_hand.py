"""A typical hand-written loader of the same days: S3 to SQS to Lambda.

It is written with care: each event looks at all files of its day, so their order does not matter, and copies of an
event load the same totals again. But it believes that an event comes for each file.
"""

import csv
import json
import os
from typing import Any
from urllib.parse import unquote_plus

import boto3

s3 = boto3.client("s3")
loads = boto3.resource("dynamodb").Table(os.environ["LOADS_TABLE"])
COLUMNS = {"order", "amount"}


def handler(event: dict[str, Any], _context: object) -> None:
    for message in event["Records"]:
        for record in json.loads(message["body"]).get("Records", []):
            folder, _, _ = unquote_plus(record["s3"]["object"]["key"]).rpartition("/")
            load(record["s3"]["bucket"]["name"], f"{folder}/manifest.json")


def load(bucket: str, manifest: str) -> None:
    """Write the totals of a day when its manifest and all files of it are there."""
    folder, _, _ = manifest.rpartition("/")
    names = read(bucket, manifest)
    texts = [read(bucket, f"{folder}/{name}") for name in json.loads(names)] if names else []
    if not names or None in texts:
        return
    rows = [row for text in texts if text for row in csv.DictReader(text.splitlines())]
    if not all(row.keys() >= COLUMNS for row in rows):
        raise ValueError(f"a file of {manifest} has other columns than {', '.join(sorted(COLUMNS))}")
    item: dict[str, Any] = {"load": manifest, "orders": len(rows), "amount": sum(int(row["amount"]) for row in rows)}
    loads.put_item(Item=item)


def read(bucket: str, key: str) -> str | None:
    """Return the object's text, or None if it is not there yet."""
    try:
        return str(s3.get_object(Bucket=bucket, Key=key)["Body"].read().decode())
    except s3.exceptions.NoSuchKey:
        return None
