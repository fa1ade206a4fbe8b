"""A typical hand-written S3 -> SQS -> Lambda loader. It is right if each event comes once, in order.

It is written with care: one transaction for each file, exactly the version of the event, all rows of the file replaced
as by the pipeline's processor, removals handled. But it believes the events.
"""

from __future__ import annotations

import csv
import io
import json
import os
from typing import Any
from urllib.parse import unquote_plus

import boto3
import psycopg

s3 = boto3.client("s3")

COPY = "COPY orders (source_key, source_version, customer, order_number, cents) FROM STDIN"


def handler(event: dict[str, Any], _context: object) -> None:
    """Handle a batch of messages. An exception returns all of them to the queue."""
    for message in event["Records"]:
        for record in json.loads(message["body"]).get("Records", []):
            handle(record)


def handle(record: dict[str, Any]) -> None:
    """Apply one event to the database."""
    key, version = unquote_plus(record["s3"]["object"]["key"]), record["s3"]["object"]["versionId"]
    with connect() as connection, connection.cursor() as cursor:
        # In the transaction of the insert: a copy of the event replaces the rows by the same.
        cursor.execute("DELETE FROM orders WHERE source_key = %s", (key,))
        if record["eventName"].startswith("ObjectRemoved"):
            return
        body = s3.get_object(Bucket=record["s3"]["bucket"]["name"], Key=key, VersionId=version)["Body"].read()
        with cursor.copy(COPY) as copy:
            for row in csv.DictReader(io.StringIO(body.decode())):
                copy.write_row((key, version, row["customer"], int(row["order"]), int(row["cents"])))


def connect() -> psycopg.Connection[Any]:
    """Connect to the database of the environment variable `ORDERS`."""
    return psycopg.connect(os.environ["ORDERS"])
