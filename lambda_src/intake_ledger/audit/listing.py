"""Lists a bucket a page at a time, and divides it into shards. Memory does not grow with the bucket."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from intake_ledger.audit.shards import Sample, Shard, cut
from intake_ledger.protocol.change import State, StateKind, bare_etag, real_version
from intake_ledger.protocol.row import Ordering
from intake_ledger.protocol.settings_audit import AuditSettings

if TYPE_CHECKING:
    from datetime import datetime

    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import DeleteMarkerEntryTypeDef, ObjectTypeDef, ObjectVersionTypeDef

KEYS_OF_A_SAMPLE = 250
"""A quarter of a page of S3, and of its CPU time. It is enough to estimate the density of keys."""


@dataclass(frozen=True, slots=True)
class Place:
    """A place in a listing. Everything before it was listed. With empty markers it is the beginning of the prefix."""

    prefix: str
    key: str = ""
    version: str = ""


@dataclass(frozen=True, slots=True)
class Page:
    """States by their keys: the current ones, or all in EVERY_VERSION. `after` is None on the last page."""

    states: list[tuple[str, State]]
    after: Place | None


class BucketListing:
    """Lists the keys of one bucket that the pipeline's filters may take."""

    def __init__(self, client: "S3Client", settings: AuditSettings) -> None:
        self._client = client
        self._settings = settings
        self._common: dict[str, Any] = {"Bucket": settings.bucket}
        if settings.bucket_owner:
            self._common["ExpectedBucketOwner"] = settings.bucket_owner

    def versioned(self) -> bool:
        """True if the bucket has or had versioning."""
        return self._client.get_bucket_versioning(**self._common).get("Status") is not None

    def pages(self, start: Place) -> Iterator[Page]:
        """The pages of a prefix, from `start` on."""
        return self._versions(start) if self.versioned() else self._objects(start)

    def shards(self, number: int, *, samples: int) -> list[Shard]:
        """Divide the bucket into about `number` shards with at most `samples` requests, or one for each prefix."""
        sample = self._sample_versions if self.versioned() else self._sample_objects
        return cut(self.prefixes(), sample, shards=number, looks=samples)

    def shard(self, shard: Shard, start: Place | None = None) -> Iterator[Page]:
        """The pages of a shard, from `start` to the shard's end."""
        for page in self.pages(start or Place(shard.prefix, shard.after)):
            inside = [(key, state) for key, state in page.states if shard.holds(key)]
            beyond = any(shard.until is not None and key > shard.until for key, _ in page.states)
            # At the shard's last key, other versions of it may follow.
            over = page.after is None or (shard.until is not None and page.after.key > shard.until)
            yield Page(inside, None if beyond or over else page.after)
            if beyond or over:
                return

    def prefixes(self) -> list[str]:
        """The prefixes of the filters, without prefixes that begin with another one."""
        prefixes = sorted({key_filter.prefix for key_filter in self._settings.filters} or {""})
        return [
            prefix for prefix in prefixes if not any(prefix != other and prefix.startswith(other) for other in prefixes)
        ]

    def _sample_objects(self, prefix: str, after: str) -> Sample:
        start: dict[str, Any] = {"StartAfter": after} if after else {}
        page = self._client.list_objects_v2(**self._common, Prefix=prefix, MaxKeys=KEYS_OF_A_SAMPLE, **start)
        return Sample([item["Key"] for item in page.get("Contents", ())], truncated(page))

    def _sample_versions(self, prefix: str, after: str) -> Sample:
        start: dict[str, Any] = {"KeyMarker": after} if after else {}
        page = self._client.list_object_versions(**self._common, Prefix=prefix, MaxKeys=KEYS_OF_A_SAMPLE, **start)
        items = (*page.get("Versions", ()), *page.get("DeleteMarkers", ()))
        return Sample(sorted({item["Key"] for item in items}), truncated(page))

    def _objects(self, place: Place) -> Iterator[Page]:
        start: dict[str, Any] = {"StartAfter": place.key} if place.key else {}
        pages = self._client.get_paginator("list_objects_v2").paginate(**self._common, Prefix=place.prefix, **start)
        for page in pages:
            states = [(item["Key"], object_state(item)) for item in page.get("Contents", ())]
            yield Page(states, Place(place.prefix, states[-1][0]) if truncated(page) and states else None)

    def _versions(self, place: Place) -> Iterator[Page]:
        every = self._settings.ordering is Ordering.EVERY_VERSION
        markers = {"KeyMarker": place.key, "VersionIdMarker": place.version}
        start: dict[str, Any] = {name: marker for name, marker in markers.items() if marker}
        paginator = self._client.get_paginator("list_object_versions")
        for page in paginator.paginate(**self._common, Prefix=place.prefix, **start):
            versions, removals = page.get("Versions", ()), page.get("DeleteMarkers", ())
            states = [(item["Key"], version_state(item)) for item in versions if every or item["IsLatest"]]
            states += [(item["Key"], marker_state(item)) for item in removals if every or item["IsLatest"]]
            after = None
            if truncated(page):
                after = Place(place.prefix, page["NextKeyMarker"], page.get("NextVersionIdMarker", ""))
            yield Page(states, after)


def truncated(page: Mapping[str, Any]) -> bool:
    """True if other pages follow. Raises RuntimeError if the answer is not a page, since it would end the listing."""
    if "IsTruncated" not in page:
        raise RuntimeError(
            "S3 answered a listing with something that is no page of it: look at what is between the function and S3, "
            "such as a proxy or an endpoint"
        )
    return bool(page["IsTruncated"])


def object_state(item: "ObjectTypeDef") -> State:
    """The state of a current object in a listing. It has no version ID."""
    return State(StateKind.OBJECT, None, bare_etag(item["ETag"]), item["Size"], _ms(item["LastModified"]))


def version_state(item: "ObjectVersionTypeDef") -> State:
    """The state of a version in a listing."""
    version, etag = real_version(item["VersionId"]), bare_etag(item["ETag"])
    return State(StateKind.OBJECT, version, etag, item["Size"], _ms(item["LastModified"]))


def marker_state(item: "DeleteMarkerEntryTypeDef") -> State:
    """The state of a delete marker in a listing."""
    return State(StateKind.MARKER, real_version(item["VersionId"]), created_at=_ms(item["LastModified"]))


def _ms(moment: "datetime") -> int:
    return int(moment.timestamp() * 1000)
