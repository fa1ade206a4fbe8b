"""The states that S3 shows, a page at a time, from any place on: memory does not grow with the bucket."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from intake_ledger.audit.shards import Shard
from intake_ledger.protocol import AuditSettings, Ordering, State, StateKind, bare_etag, real_version

if TYPE_CHECKING:
    from datetime import datetime

    from mypy_boto3_s3 import S3Client


@dataclass(frozen=True, slots=True)
class Place:
    """How far a listing has come: everything before it was listed. Empty markers are the beginning of the prefix."""

    prefix: str
    key: str = ""
    version: str = ""


@dataclass(frozen=True, slots=True)
class Page:
    """Some keys with one state each; in EVERY_VERSION, with each of theirs. `after` is None on the last page."""

    states: list[tuple[str, State]]
    after: Place | None


class Listing:
    """One bucket, as far as the pipeline's filters reach."""

    def __init__(self, client: "S3Client", settings: AuditSettings) -> None:
        self._client = client
        self._settings = settings
        self.common: dict[str, Any] = {"Bucket": settings.bucket}
        """What all requests for this bucket have in common."""
        if settings.bucket_owner:
            self.common["ExpectedBucketOwner"] = settings.bucket_owner

    def versioned(self) -> bool:
        """Whether the bucket has versions, or had them once."""
        return self._client.get_bucket_versioning(**self.common).get("Status") is not None

    def pages(self, start: Place) -> Iterator[Page]:
        """The current state of each key with this prefix, or of each version that there is; from `start` on."""
        return self._versions(start) if self.versioned() else self._objects(start)

    def shard(self, shard: Shard, start: Place | None = None) -> Iterator[Page]:
        """The pages of a shard, from `start` on; never beyond its end."""
        for page in self.pages(start or Place(shard.prefix, shard.after)):
            inside = [(key, state) for key, state in page.states if shard.holds(key)]
            beyond = any(shard.until is not None and key > shard.until for key, _ in page.states)
            # At the shard's last key: others of its versions may follow.
            over = page.after is None or (shard.until is not None and page.after.key > shard.until)
            yield Page(inside, None if beyond or over else page.after)
            if beyond or over:
                return

    def prefixes(self) -> list[str]:
        """The prefixes of the filters, without those that another covers."""
        wanted = sorted({one.prefix for one in self._settings.filters} or {""})
        return [one for one in wanted if not any(one != other and one.startswith(other) for other in wanted)]

    def _objects(self, place: Place) -> Iterator[Page]:
        start: dict[str, Any] = {"StartAfter": place.key} if place.key else {}
        for page in self._client.get_paginator("list_objects_v2").paginate(**self.common, Prefix=place.prefix, **start):
            states = [
                (
                    item["Key"],
                    State(StateKind.OBJECT, None, bare_etag(item["ETag"]), item["Size"], _ms(item["LastModified"])),
                )
                for item in page.get("Contents", ())
            ]
            yield Page(states, Place(place.prefix, states[-1][0]) if truncated(page) and states else None)

    def _versions(self, place: Place) -> Iterator[Page]:
        every = self._settings.ordering is Ordering.EVERY_VERSION
        markers = {"KeyMarker": place.key, "VersionIdMarker": place.version}
        start: dict[str, Any] = {name: marker for name, marker in markers.items() if marker}
        for page in self._client.get_paginator("list_object_versions").paginate(
            **self.common, Prefix=place.prefix, **start
        ):
            states = [
                (
                    item["Key"],
                    State(
                        StateKind.OBJECT,
                        real_version(item["VersionId"]),
                        bare_etag(item["ETag"]),
                        item["Size"],
                        _ms(item["LastModified"]),
                    ),
                )
                for item in page.get("Versions", ())
                if every or item["IsLatest"]
            ] + [
                (
                    item["Key"],
                    State(StateKind.MARKER, real_version(item["VersionId"]), created_at=_ms(item["LastModified"])),
                )
                for item in page.get("DeleteMarkers", ())
                if every or item["IsLatest"]
            ]
            after = None
            if truncated(page):
                after = Place(place.prefix, page["NextKeyMarker"], page.get("NextVersionIdMarker", ""))
            yield Page(states, after)


def truncated(page: Mapping[str, Any]) -> bool:
    """Whether others follow a page. Raises RuntimeError for what is none: it must not be taken for the last one."""
    if "IsTruncated" not in page:
        raise RuntimeError(
            "S3 answered a listing with something that is no page of it: look at what is between the function and S3, "
            "such as a proxy or an endpoint"
        )
    return bool(page["IsTruncated"])


def _ms(moment: "datetime") -> int:
    return int(moment.timestamp() * 1000)
