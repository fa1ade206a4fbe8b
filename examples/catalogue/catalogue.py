"""A catalogue of service models: one row per file, always that of the file's current version.

The whole of what a team writes. It knows nothing of duplicates, of messages that arrive late or twice, of workers that
die: it brings about one state of one object, and is called as often as that is needed.
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
    """Keep the row of one file as S3 shows the file now."""
    name = catalogue_name(change.key)
    if change.kind == "removed":
        catalogue().delete_item(Key={"service": name})
        return Commit(f"{name} removed")
    with change.open() as stream:  # exactly the version that was claimed, whatever was uploaded since
        facts = describe(change.key, stream.read())
    identity = {"version_id": change.version_id or "", "etag": change.etag or ""}
    catalogue().put_item(Item={"service": name, **identity, **facts})
    return Commit(f"{name} {facts['api_version'] or facts['bytes']}")


def catalogue_name(key: str) -> str:
    """`models/ec2/service-2.json.gz` is the row `ec2`; any other file's row is called by its path."""
    return key.removeprefix("models/").removesuffix("/service-2.json.gz")


def describe(key: str, body: bytes) -> dict[str, Any]:
    """What the catalogue says of a file: of a service model its API version and how many operations it has.

    :raises Unprocessable: when the file is not what its name says (no retry would help).
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
    """A service model's metadata and operations; nothing of any other document, which is catalogued by size alone."""
    parts = document if isinstance(document, dict) else {}
    metadata, operations = parts.get("metadata"), parts.get("operations")
    if isinstance(metadata, dict) and isinstance(operations, dict):
        return metadata, operations
    return {}, None


@functools.cache
def catalogue() -> Table:
    """The team's own table, opened when it is first needed."""
    return boto3.resource("dynamodb").Table(os.environ["CATALOGUE_TABLE"])
