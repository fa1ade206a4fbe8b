"""A typical hand-written consumer of the same events. It keeps the same two indexes, and believes what an event says.

It is written with care: it reads exactly the version that the event names, each write can be repeated, and a permanent
deletion removes a text only if it is the text of that version.
"""

from __future__ import annotations

import hashlib
import json
import os
from typing import Any

import boto3
import psycopg
from botocore.exceptions import ClientError
from doomed import die_once  # type: ignore[import-not-found] # a module of the function's folder

s3: Any = boto3.client("s3")


def handler(event: dict[str, Any], _context: object) -> None:
    for message in event["Records"]:
        body = json.loads(message["body"])
        detail = body["detail"]
        item = detail["object"]
        key, version = item["key"], item.get("version-id", "")
        with psycopg.connect(os.environ["DATABASE"]) as connection:
            if body["detail-type"] == "Object Created":
                created(connection, detail["bucket"]["name"], key, version)
            elif detail["deletion-type"] == "Delete Marker Created":
                connection.execute("DELETE FROM documents WHERE key = %s", (key,))
            else:
                connection.execute("DELETE FROM archive WHERE key = %s AND version_id = %s", (key, version))
                connection.execute("DELETE FROM documents WHERE key = %s AND version_id = %s", (key, version))
        die_once("handwritten", key)


def created(connection: psycopg.Connection[Any], bucket: str, key: str, version: str) -> None:
    """Read the version that the event names, and write both indexes."""
    which = {"VersionId": version} if version else {}
    try:
        answer = s3.get_object(Bucket=bucket, Key=key, **which)
    except ClientError as error:
        if error.response["Error"]["Code"] in ("NoSuchKey", "NoSuchVersion"):
            return  # deleted since: another event reports that
        raise
    content, version = answer["Body"].read(), answer["VersionId"]
    connection.execute(
        "INSERT INTO archive (key, version_id, sha256) VALUES (%s, %s, %s)"
        " ON CONFLICT (key, version_id) DO UPDATE SET sha256 = excluded.sha256",
        (key, version, hashlib.sha256(content).hexdigest()),
    )
    connection.execute(
        "INSERT INTO documents (key, version_id, body) VALUES (%s, %s, %s)"
        " ON CONFLICT (key) DO UPDATE SET version_id = excluded.version_id, body = excluded.body",
        (key, version, content.decode()),
    )
