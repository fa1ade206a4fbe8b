"""What a part of a run goes through in place of the whole bucket: a shard of its keys, or a file of its inventory."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from intake_ledger.audit.inventory import File, Inventory, Manifest
from intake_ledger.audit.listing import Listing, Page, Place, truncated
from intake_ledger.audit.shards import Sample, Shard

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

KEYS_OF_A_LOOK = 250
"""A quarter of what S3 would send, and of the CPU time: enough to tell how dense keys are."""


class ShardListing:
    """The listing of one shard."""

    def __init__(self, listing: Listing, shard: Shard) -> None:
        self._listing = listing
        self._shard = shard

    def pages(self, start: Place | None = None) -> Iterator[Page]:
        """As the listing's own, from `start` on, or from the shard's beginning; never beyond its end."""
        shard = self._shard
        for page in self._listing.pages(start or Place(shard.prefix, shard.after)):
            inside = [(key, state) for key, state in page.states if shard.holds(key)]
            beyond = any(shard.until is not None and key > shard.until for key, _ in page.states)
            after = page.after
            # At the shard's last key: others of its versions may follow.
            if beyond or (after is not None and (after.prefix, after.key) > (shard.prefix, shard.until or after.key)):
                after = None
            yield Page(inside, after)
            if after is None:
                return


class FileListing:
    """One data file of an inventory report, which is copied into `folder` to be read."""

    def __init__(self, inventory: Inventory, manifest: Manifest, file: File, folder: Path, *, every: bool) -> None:
        self._inventory = inventory
        self._manifest = manifest
        self._file = file
        self._folder = folder
        self._every = every

    def pages(self, start: Place | None = None) -> Iterator[Page]:
        """The file's states, from `start` on, or from its beginning."""
        return self._inventory.pages(self._manifest, self._file, every=self._every, start=start, folder=self._folder)


class Looks:
    """The looks at a bucket by which it is cut into shards: short pages of keys."""

    def __init__(self, client: "S3Client", common: dict[str, Any], *, versioned: bool) -> None:
        """Look at the bucket that `common`, what all requests have in common, names."""
        self._client = client
        self._common = common
        self._versioned = versioned

    def __call__(self, prefix: str, after: str) -> Sample:
        """The page of keys with this prefix that comes after a place."""
        common = self._common | {"Prefix": prefix, "MaxKeys": KEYS_OF_A_LOOK}
        if self._versioned:
            start: dict[str, Any] = {"KeyMarker": after} if after else {}
            versions = self._client.list_object_versions(**common, **start)
            keys = {one["Key"] for name in ("Versions", "DeleteMarkers") for one in _entries(versions, name)}
            return Sample(sorted(keys), truncated(versions))
        start = {"StartAfter": after} if after else {}
        objects = self._client.list_objects_v2(**common, **start)
        return Sample([one["Key"] for one in objects.get("Contents", ())], truncated(objects))


def _entries(page: Any, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = page.get(name, [])
    return found
