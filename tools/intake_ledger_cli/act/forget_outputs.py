"""Removes the tombstones of a forgotten key's outputs, when they are no longer needed.

A tombstone keeps a late worker from writing the output again. No lease is as long as a day.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from intake_ledger.outputs.conditional_put import REMOVED, Present, source_of
from intake_ledger.protocol.row import Ordering, rejects_place
from intake_ledger_cli.errors import CliError, UsageError
from intake_ledger_cli.show.formatting import relative_time

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

    from intake_ledger_cli.aws.deployed import DeployedPipeline

GUARDS_MS = 86_400_000
"""The age from which a tombstone guards nothing. The lifecycle rule of `grant_output` deletes it then, too."""


@dataclass(frozen=True, slots=True)
class Tombstone:
    """The tombstone of one output."""

    bucket: str
    key: str
    etag: str


def rejects_uris(deployed: "DeployedPipeline", key: str, versions: Sequence[str]) -> list[str]:
    """The URIs of the outputs with rejected rows of a key. `versions` are as in `find_tombstones`."""
    if deployed.rejects is None:
        return []
    names = versions if deployed.ordering is Ordering.EVERY_VERSION else (None,)
    return ["s3://" + "/".join(rejects_place(deployed.rejects, key, name)) for name in names]


def find_tombstones(
    client: "S3Client", outputs: Sequence[str], key: str, versions: Sequence[str], now: int
) -> list[Tombstone]:
    """The tombstones at these places. A place without an object has none.

    Args:
        client: of S3.
        outputs: `s3://` URIs of outputs.
        key: the forgotten key.
        versions: the identities of its versions, with EVERY_VERSION.
        now: epoch milliseconds.

    Raises:
        UsageError: A text is no URI of an object.
        CliError: The output exists, belongs to another key, or its tombstone is younger than a day.

    """
    sources = {source_of(key, version) for version in (None, *versions)}
    found = []
    for uri in outputs:
        bucket, _, name = uri.removeprefix("s3://").partition("/")
        if not uri.startswith("s3://") or not name:
            raise UsageError(f"--output {uri} names no object: use s3://bucket/key")
        if (head := _head(client, bucket, name)) is None:
            continue
        present = Present.of(head)
        if present.source not in sources:
            raise CliError(f"{uri} is no output of this key: its metadata name another one, or none")
        if present.removed_by is None:
            raise CliError(f"{uri} still has its content: remove it with `change.output`, or delete all versions of it")
        if now < (end := present.removed_by + GUARDS_MS):
            raise CliError(
                f"the tombstone {uri} guards against a late worker until {relative_time(end, now)}: run the command "
                "again then"
            )
        found.append(Tombstone(bucket, name, str(present.etag)))
    return found


def remove_tombstone(client: "S3Client", tombstone: Tombstone) -> None:
    """Delete all versions of the output, unless it was written since.

    Raises:
        CliError: It was written since.
        ClientError: S3 refuses.

    """
    head = _head(client, tombstone.bucket, tombstone.key)
    if head is None or head["ETag"] != tombstone.etag or REMOVED not in head["Metadata"]:
        raise CliError(f"s3://{tombstone.bucket}/{tombstone.key} has changed meanwhile: run the command again")
    place: Any = {"Bucket": tombstone.bucket, "Key": tombstone.key}
    for version in list(_versions(client, tombstone)):
        if version == "null":
            client.delete_object(**place, IfMatch=tombstone.etag)
        client.delete_object(**place, VersionId=version)


def _versions(client: "S3Client", tombstone: Tombstone) -> Iterator[str]:
    pages = client.get_paginator("list_object_versions").paginate(Bucket=tombstone.bucket, Prefix=tombstone.key)
    for page in pages:
        for one in (*page.get("Versions", ()), *page.get("DeleteMarkers", ())):
            if one["Key"] == tombstone.key:
                yield one["VersionId"]


def _head(client: "S3Client", bucket: str, key: str) -> Any:
    """The answer to HeadObject. None: it does not exist."""
    try:
        return client.head_object(Bucket=bucket, Key=key)
    except ClientError as error:
        if error.response["ResponseMetadata"]["HTTPStatusCode"] == 404:
            return None
        raise
