"""An in-memory S3 bucket: the methods of boto3's client that the runtime calls, and changes for tests."""

import hashlib
import io
import zlib
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any, cast

from botocore.exceptions import ClientError
from botocore.response import StreamingBody

_PAGE = 1_000
_MOST_TAGS = 10


@dataclass(frozen=True, slots=True)
class Version:
    """A version or delete marker of a key."""

    version_id: str | None
    """None if the bucket keeps no versions."""
    content: bytes | None
    """None for a delete marker."""
    modified: datetime
    metadata: Mapping[str, str] = field(default_factory=dict)
    """User metadata, with names in lower case."""
    checksum: Mapping[str, str] = field(default_factory=dict)
    """The checksum of the upload, as a HEAD shows it: see `sha256_of`."""

    @property
    def etag(self) -> str | None:
        """The ETag without quotes. A delete marker has none."""
        return None if self.content is None else hashlib.md5(self.content, usedforsecurity=False).hexdigest()


class MemoryS3:
    """A bucket with or without versioning. `clock` returns epoch milliseconds."""

    def __init__(self, *, clock: Callable[[], int], versioned: bool = True) -> None:
        self._clock = clock
        self._versioned = versioned
        self.keys: dict[str, list[Version]] = {}
        """All versions of each key, oldest first."""
        self._made = 0
        self.tags: dict[tuple[str, str | None], dict[str, str]] = {}
        """The tags of versions, by key and version."""
        self.on_tags: Callable[[str, Version], None] = lambda _, __: None
        """Is called after a request that sets the tags of a version."""
        self.archived: set[str] = set()
        """Keys of archived objects, which S3 lists and does not return."""
        self._last: _Connection | None = None

    def current(self, key: str) -> Version | None:
        """Return the current version or delete marker, or None."""
        versions = self.keys.get(key)
        return versions[-1] if versions else None

    def put(
        self,
        key: str,
        content: bytes,
        metadata: Mapping[str, str] | None = None,
        checksum: Mapping[str, str] | None = None,
    ) -> Version:
        """Upload an object."""
        return self._add(key, content, metadata, checksum)

    def copy(self, key: str) -> Version:
        """Copy an object onto itself, with metadata, checksum and tags."""
        old = self._find("CopyObject", {"Key": key})
        new = self._add(key, old.content, old.metadata, old.checksum)
        self.tags[key, new.version_id] = dict(self.tags.get((key, old.version_id), {}))
        return new

    def delete(self, key: str) -> Version | None:
        """Delete without a version ID. Return the delete marker if the bucket has versioning."""
        if self._versioned:
            return self._add(key, None)
        self.keys.pop(key, None)
        return None

    def delete_version(self, key: str, version_id: str | None) -> None:
        """Permanently delete a version or delete marker. None is the object of a bucket without versioning."""
        self.keys[key] = [one for one in self.keys.get(key, []) if one.version_id != version_id]

    def head_object(self, **request: Any) -> dict[str, Any]:
        """Answer as boto3's client."""
        found = self._find("HeadObject", request)
        return {
            "ETag": f'"{found.etag}"',
            "ContentLength": len(found.content or b""),
            "LastModified": found.modified,
            "Metadata": dict(found.metadata),
            **({"VersionId": found.version_id} if found.version_id else {}),
            **(found.checksum if request.get("ChecksumMode") == "ENABLED" else {}),
        }

    def get_object(self, **request: Any) -> dict[str, Any]:
        """Answer as boto3's client. `ChecksumMode` adds the CRC32 that boto3 uploads with.

        A `Range` names the last bytes, as `bytes=-100`.
        """
        found = self._find("GetObject", request)
        content = found.content or b""
        if request["Key"] in self.archived:
            raise s3_error("GetObject", 403, "InvalidObjectState")
        shown: dict[str, Any] = {"Metadata": dict(found.metadata)}
        if "Range" in request:
            size = len(content)
            first = max(size - int(request["Range"].removeprefix("bytes=-")), 0)
            content, shown["ContentRange"] = content[first:], f"bytes {first}-{size - 1}/{size}"
        self._last = _Connection(content)
        answer = {"Body": StreamingBody(cast("Any", self._last), len(content)), "ContentLength": len(content)} | shown
        if request.get("ChecksumMode") == "ENABLED":
            checksum = zlib.crc32(content).to_bytes(4, "big")
            answer |= {"ChecksumCRC32": b64encode(checksum).decode(), "ChecksumType": "FULL_OBJECT"}
        return answer

    def get_object_tagging(self, **request: Any) -> dict[str, Any]:
        """Answer as boto3's client."""
        found = self._find("GetObjectTagging", request)
        tags = self.tags.get((request["Key"], found.version_id), {})
        return {"TagSet": [{"Key": key, "Value": value} for key, value in tags.items()]}

    def put_object_tagging(self, **request: Any) -> dict[str, Any]:
        """Answer as boto3's client. All tags of the version are replaced."""
        found = self._find("PutObjectTagging", request)
        tags = {one["Key"]: one["Value"] for one in request["Tagging"]["TagSet"]}
        if len(tags) > _MOST_TAGS:
            raise s3_error("PutObjectTagging", 400, "BadRequest")
        self.tags[request["Key"], found.version_id] = tags
        self.on_tags(request["Key"], found)
        return {}

    def list_objects_v2(self, **request: Any) -> dict[str, Any]:
        """Answer as boto3's client, with pages of `MaxKeys` objects."""
        after = request.get("ContinuationToken", request.get("StartAfter", ""))
        most = request.get("MaxKeys", 1_000)
        found = [
            {
                "Key": key,
                "LastModified": versions[-1].modified,
                "ETag": f'"{versions[-1].etag}"',
                "Size": len(versions[-1].content),
            }
            for key, versions in sorted(self.keys.items(), key=lambda one: one[0].encode())
            if key.startswith(request["Prefix"]) and versions and versions[-1].content is not None
        ]
        rest = [one for one in found if str(one["Key"]).encode() > after.encode()]
        answer: dict[str, Any] = {"Contents": rest[:most], "IsTruncated": len(rest) > most}
        return answer | ({"NextContinuationToken": rest[most - 1]["Key"]} if len(rest) > most else {})

    def get_bucket_versioning(self, **_: Any) -> dict[str, str]:
        """Answer as boto3's client."""
        return {"Status": "Enabled"} if self._versioned else {}

    def list_object_versions(self, **request: Any) -> dict[str, Any]:
        """Answer as boto3's client, with all versions of at most 1,000 keys on a page, or with `MaxKeys` versions."""
        after = request.get("KeyMarker", "").encode()
        keys = sorted(key for key in self.keys if key.startswith(request["Prefix"]) and key.encode() > after)
        entries: list[tuple[str, dict[str, Any]]] = []
        for key in keys[:_PAGE]:
            for one in reversed(self.keys[key]):
                shown = {"Key": key, "VersionId": one.version_id or "null", "LastModified": one.modified}
                shown |= {"IsLatest": one is self.keys[key][-1]}
                if one.content is None:
                    entries.append(("DeleteMarkers", shown))
                else:
                    entries.append(("Versions", shown | {"ETag": f'"{one.etag}"', "Size": len(one.content)}))
        most = request.get("MaxKeys", len(entries))
        more = {"NextKeyMarker": keys[_PAGE - 1]} if len(keys) > _PAGE else {}
        lists = {name: [one for of, one in entries[:most] if of == name] for name in ("Versions", "DeleteMarkers")}
        return {**lists, "IsTruncated": bool(more) or len(entries) > most, **more}

    def get_paginator(self, operation: str) -> "_Pages":
        """Return a paginator of `list_objects_v2` or `list_object_versions`."""
        return _Pages(getattr(self, operation))

    def cut(self) -> None:
        """Close the connection of the last `get_object` in the middle of the object."""
        if self._last is not None:
            self._last.cut()

    def _add(
        self,
        key: str,
        content: bytes | None,
        metadata: Mapping[str, str] | None = None,
        checksum: Mapping[str, str] | None = None,
    ) -> Version:
        self._made += 1
        # S3 returns whole seconds.
        modified = datetime.fromtimestamp(self._clock() // 1000, UTC)
        name = f"version-{self._made}" if self._versioned else None
        version = Version(name, content, modified, metadata or {}, checksum or {})
        self.keys[key] = [*self.keys.get(key, []), version] if self._versioned else [version]
        return version

    def _find(self, operation: str, request: dict[str, Any]) -> Version:
        versions, wanted = self.keys.get(request["Key"], []), request.get("VersionId")
        found = [one for one in versions if wanted in (None, one.version_id or "null")]
        if not found:
            raise s3_error(operation, 404, "NoSuchVersion" if wanted else "NoSuchKey")
        version = found[-1]
        if version.content is None:
            headers = {"x-amz-delete-marker": "true", "last-modified": format_datetime(version.modified, usegmt=True)}
            headers |= {"x-amz-version-id": version.version_id} if version.version_id else {}
            raise s3_error(operation, 405 if wanted else 404, "MethodNotAllowed" if wanted else "NoSuchKey", headers)
        if request.get("IfMatch") not in (None, f'"{version.etag}"'):
            raise s3_error(operation, 412, "PreconditionFailed")
        return version


@dataclass(frozen=True, slots=True)
class _Pages:
    """A paginator of boto3's client."""

    request: Callable[..., dict[str, Any]]

    def paginate(self, **arguments: Any) -> Iterator[dict[str, Any]]:
        answer = self.request(**arguments)
        yield answer
        while answer["IsTruncated"]:
            places = {"NextContinuationToken": "ContinuationToken", "NextKeyMarker": "KeyMarker"}
            answer = self.request(**arguments | {name: answer[key] for key, name in places.items() if key in answer})
            yield answer


class _Connection(io.RawIOBase):
    """The connection that returns an object. It cannot seek. A cut looks like an end of file, as with urllib3 1.26."""

    def __init__(self, content: bytes) -> None:
        self._content = io.BytesIO(content)
        self._ends = len(content)

    def cut(self) -> None:
        self._ends = self._ends // 2

    def readable(self) -> bool:
        return True

    def read(self, size: int | None = -1, /) -> bytes | None:
        return super().read(-1 if size is None else size)  # None reads everything, as with urllib3

    def readinto(self, buffer: Any, /) -> int:
        data = self._content.read(min(len(buffer), max(self._ends - self._content.tell(), 0)))
        buffer[: len(data)] = data
        return len(data)


def sha256_of(content: bytes) -> dict[str, str]:
    """The checksum of an upload in one part with `ChecksumAlgorithm="SHA256"`."""
    return {"ChecksumSHA256": b64encode(hashlib.sha256(content).digest()).decode(), "ChecksumType": "FULL_OBJECT"}


def s3_error(
    operation: str, status: int, code: str, headers: dict[str, str] | None = None, *, text: str = ""
) -> ClientError:
    """An error as boto3's client raises it. Its message is the code when `text` is omitted."""
    # HEAD has no body to name a code in.
    shown = str(status) if operation == "HeadObject" else code
    metadata: Any = {"HTTPStatusCode": status, "HTTPHeaders": headers or {}}
    return ClientError({"Error": {"Code": shown, "Message": text or code}, "ResponseMetadata": metadata}, operation)
