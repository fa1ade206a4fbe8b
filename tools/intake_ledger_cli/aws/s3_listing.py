"""Lists the keys and versions of the pipeline's bucket."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from intake_ledger.audit.listing import marker_state, object_state, version_state
from intake_ledger.protocol.change import State
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
        entries: list[tuple[Any, State]] = [(one, version_state(one)) for one in page.get("Versions", ())]
        entries += [(one, marker_state(one)) for one in page.get("DeleteMarkers", ())]
        # S3 returns versions and delete markers in two lists. Both are sorted by key and age.
        entries.sort(key=lambda one: (one[0]["Key"].encode(), not one[0]["IsLatest"], -(one[1].created_at or 0)))
        for one, state in entries:
            yield one["Key"], ListedVersion(state, one["IsLatest"])


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
            yield one["Key"], object_state(one)


def _common(deployed: DeployedPipeline) -> dict[str, Any]:
    owner = {"ExpectedBucketOwner": deployed.bucket_owner} if deployed.bucket_owner else {}
    return {"Bucket": deployed.bucket, **owner}
