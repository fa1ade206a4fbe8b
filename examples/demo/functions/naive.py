"""A typical hand-written S3 -> SQS -> Lambda consumer that keeps the same catalogue.

It is written with care: it decodes the key, reads the current object and does not trust the message, ignores objects
that do not exist, handles removals, and lets SQS retry failures, with a dead-letter queue. The lines with `notebook`
belong to the demo.
"""

from __future__ import annotations

import json
import os
from typing import Any
from urllib.parse import unquote_plus

import boto3
from examples.catalogue.processor.catalogue import catalogue_name, describe
from examples.demo.functions import notebook

s3 = boto3.client("s3")
table = boto3.resource("dynamodb").Table(os.environ["CATALOGUE_TABLE"])


def handler(event: dict[str, Any], _context: object) -> None:
    for message in event["Records"]:
        for record in json.loads(message["body"]).get("Records", []):
            follow(record, "naive")


def follow(record: dict[str, Any], side: str) -> None:
    bucket = record["s3"]["bucket"]["name"]
    key = unquote_plus(record["s3"]["object"]["key"])
    notebook.die_once(side, key)
    if record["eventName"].startswith("ObjectRemoved"):
        with notebook.effect(side, key, "removed") as entry:
            table.delete_item(Key={"service": catalogue_name(key)})
            entry["version"] = record["s3"]["object"].get("versionId", "")
    else:
        with notebook.effect(side, key, "created") as entry:
            try:
                found = s3.get_object(Bucket=bucket, Key=key)
            except s3.exceptions.NoSuchKey:
                return  # deleted since: another message reports that
            facts = describe(key, found["Body"].read())
            identity = {"version_id": found["VersionId"], "etag": found["ETag"].strip('"')}
            table.put_item(Item={"service": catalogue_name(key), **identity, **facts})
            entry["version"] = found["VersionId"]
