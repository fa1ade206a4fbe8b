"""Lists the keys and versions of the pipeline's bucket."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from intake_ledger.protocol.change import State, StateKind, bare_etag, real_version
from intake_ledger_cli.aws.deployed import DeployedPipeline

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


@dataclass(frozen=True, slots=True)
class ListedVersion:
    """A version or delete marker in a listing of S3."""

    state: State
    current: bool


def list_key_versions(client: "S3Client", deployed: DeployedPipeline, key: str) -> list[ListedVersion]:
    """List the versions and delete markers of exactly this key, newest first.

    A listing has the same information as a HEAD, and needs no permission to read the object.
    """
    found: list[ListedVersion] = []
    for name, shown in list_versions(client, deployed, key):
        # S3 lists a key before longer keys that begin with it.
        if name != key:
            break
        found.append(shown)
    return found


def list_versions(client: "S3Client", deployed: DeployedPipeline, prefix: str) -> Iterator[tuple[str, ListedVersion]]:
    """List all versions and delete markers under a prefix, ordered by key and then newest first."""
    for page in client.get_paginator("list_object_versions").paginate(**_common(deployed), Prefix=prefix):
        entries = [
            (one["Key"], one["LastModified"], _version(one), one["IsLatest"]) for one in page.get("Versions", ())
        ]
        entries += [
            (one["Key"], one["LastModified"], _marker(one), one["IsLatest"]) for one in page.get("DeleteMarkers", ())
        ]
        # S3 returns versions and delete markers in two lists. Both are sorted by key and age.
        entries.sort(key=lambda one: (one[0].encode(), not one[3], -_ms(one[1])))
        for key, _, state, latest in entries:
            yield key, ListedVersion(state, latest)


def list_keys(client: "S3Client", deployed: DeployedPipeline, prefix: str, *, after: str = "") -> Iterator[str]:
    """List the current keys under a prefix, after the key `after`."""
    return (key for key, _ in list_objects(client, deployed, prefix, after=after))


def list_objects(
    client: "S3Client", deployed: DeployedPipeline, prefix: str, *, after: str = ""
) -> Iterator[tuple[str, State]]:
    """List the current objects under a prefix, after the key `after`. Their states have no version IDs."""
    start: dict[str, Any] = {"StartAfter": after} if after else {}
    for page in client.get_paginator("list_objects_v2").paginate(**_common(deployed), Prefix=prefix, **start):
        for one in page.get("Contents", ()):
            yield one["Key"], State(StateKind.OBJECT, None, bare_etag(one["ETag"]), one["Size"])


def _common(deployed: DeployedPipeline) -> dict[str, Any]:
    owner = {"ExpectedBucketOwner": deployed.bucket_owner} if deployed.bucket_owner else {}
    return {"Bucket": deployed.bucket, **owner}


def _version(one: Any) -> State:
    return State(
        StateKind.OBJECT,
        real_version(one["VersionId"]),
        bare_etag(one["ETag"]),
        one["Size"],
        _ms(one["LastModified"]),
    )


def _marker(one: Any) -> State:
    return State(StateKind.MARKER, real_version(one["VersionId"]), created_at=_ms(one["LastModified"]))


def _ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)
