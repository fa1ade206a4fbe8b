"""The usual consumer: S3 -> SQS -> Lambda by hand. It believes the events.

It is written with care: it decodes the key, reads the current picture, ignores pictures that do not exist, handles
removals, and lets SQS retry failures.
"""

from __future__ import annotations

import json
import os
from io import BytesIO
from typing import Any
from urllib.parse import unquote_plus

import boto3
from PIL import Image

OUTPUT_BUCKET = os.environ["OUTPUT_BUCKET"]

s3 = boto3.client("s3")


def handler(event: dict[str, Any], _context: object) -> None:
    for message in event["Records"]:
        for record in json.loads(message["body"]).get("Records", []):
            follow(record)


def follow(record: dict[str, Any]) -> None:
    """Write or remove the copy of the picture that an event is about."""
    bucket, key = record["s3"]["bucket"]["name"], unquote_plus(record["s3"]["object"]["key"])
    output_key = "grey/" + key
    if record["eventName"].startswith("ObjectRemoved"):
        s3.delete_object(Bucket=OUTPUT_BUCKET, Key=output_key)
        return
    try:
        found = s3.get_object(Bucket=bucket, Key=key)
    except s3.exceptions.NoSuchKey:
        return  # deleted since: another message reports that
    copy = greyscale(found["Body"].read())
    s3.put_object(Bucket=OUTPUT_BUCKET, Key=output_key, Body=copy, ContentType="image/png")


def greyscale(content: bytes) -> bytes:
    output = BytesIO()
    Image.open(BytesIO(content)).convert("L").save(output, "PNG")
    return output.getvalue()
