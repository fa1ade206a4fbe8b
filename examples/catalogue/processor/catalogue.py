"""A catalogue of service models: one row per file, for the file's current version.

This is all the code of a processor. It does not handle duplicates, late messages or workers that die. It writes the row
for one state of one object, and the consumer calls it as often as necessary.
"""

from __future__ import annotations

import functools
import gzip
import json
import os
import zlib
from typing import TYPE_CHECKING, Any

import boto3

from intake_ledger import Commit, ObjectChange, Unprocessable

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.service_resource import Table


def process(change: ObjectChange) -> Commit:
    """Write or remove the row for one state of a file."""
    name = catalogue_name(change.key)
    if change.kind == "removed":
        catalogue().delete_item(Key={"service": name})
        return Commit(f"{name} removed")
    with change.open() as stream:  # exactly the claimed version, even if a newer one was uploaded
        facts = describe(change.key, stream.read())
    identity = {"version_id": change.version_id or "", "etag": change.etag or ""}
    catalogue().put_item(Item={"service": name, **identity, **facts})
    return Commit(f"{name} {facts['api_version'] or facts['bytes']}")


def catalogue_name(key: str) -> str:
    """Name the row of a file: `ec2` for `models/ec2/service-2.json.gz`, and the path for any other file."""
    return key.removeprefix("models/").removesuffix("/service-2.json.gz")


def describe(key: str, body: bytes) -> dict[str, Any]:
    """Return the facts about a file: for a service model its API version and number of operations.

    :raises Unprocessable: if the content does not match the file's name, since a retry would not help.
    """
    try:
        content = gzip.decompress(body) if key.endswith(".gz") else body
        document = json.loads(content) if key.endswith((".json", ".json.gz")) else None
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise Unprocessable(f"not what its name says: {error}") from error
    metadata, operations = model_parts(document)
    return {
        "api_version": metadata.get("apiVersion"),
        "operations": None if operations is None else len(operations),
        "lines": content.count(b"\n"),
        "bytes": len(body),
    }


def model_parts(document: Any) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Return a service model's metadata and operations. Other documents have neither: the row has their size only."""
    parts = document if isinstance(document, dict) else {}
    metadata, operations = parts.get("metadata"), parts.get("operations")
    if isinstance(metadata, dict) and isinstance(operations, dict):
        return metadata, operations
    return {}, None


@functools.cache
def catalogue() -> Table:
    """The catalogue's table, opened at the first use."""
    return boto3.resource("dynamodb").Table(os.environ["CATALOGUE_TABLE"])
