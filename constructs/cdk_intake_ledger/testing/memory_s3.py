"""One S3 bucket in memory: the part of boto3's client that the runtime calls, and what a test does to a bucket."""

import hashlib
import io
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any

from botocore.exceptions import ClientError
from botocore.response import StreamingBody


@dataclass(frozen=True, slots=True)
class Version:
    """One version of a key, or a delete marker."""

    version_id: str | None
    """None in a bucket without versions."""
    content: bytes | None
    """None of a delete marker."""
    modified: datetime

    @property
    def etag(self) -> str | None:
        """Without quotes; a delete marker has none."""
        return None if self.content is None else hashlib.md5(self.content, usedforsecurity=False).hexdigest()


class MemoryS3:
    """A bucket with versions, or without. `clock` gives epoch milliseconds."""

    def __init__(self, *, clock: Callable[[], int], versioned: bool = True) -> None:
        self._clock = clock
        self._versioned = versioned
        self._keys: dict[str, list[Version]] = {}
        self._made = 0

    def current(self, key: str) -> Version | None:
        """What S3 shows for the key: a version, a delete marker, or nothing."""
        versions = self._keys.get(key)
        return versions[-1] if versions else None

    def put(self, key: str, content: bytes) -> Version:
        """Upload."""
        return self._add(key, content)

    def delete(self, key: str) -> Version | None:
        """Delete without naming a version: the delete marker that this leaves, where there are versions."""
        if self._versioned:
            return self._add(key, None)
        self._keys.pop(key, None)
        return None

    def delete_version(self, key: str, version_id: str) -> None:
        """Delete one version, or one marker, for good."""
        self._keys[key] = [one for one in self._keys.get(key, []) if one.version_id != version_id]

    def head_object(self, **request: Any) -> dict[str, Any]:
        """As boto3's client."""
        found = self._find("HeadObject", request)
        return {
            "ETag": f'"{found.etag}"',
            "ContentLength": len(found.content or b""),
            "LastModified": found.modified,
            **({"VersionId": found.version_id} if found.version_id else {}),
        }

    def get_object(self, **request: Any) -> dict[str, Any]:
        """As boto3's client: the body is botocore's own stream, which iterates by blocks and cannot seek."""
        found = self._find("GetObject", request)
        content = found.content or b""
        return {"Body": StreamingBody(io.BytesIO(content), len(content))}

    def _add(self, key: str, content: bytes | None) -> Version:
        self._made += 1
        # S3 shows whole seconds.
        modified = datetime.fromtimestamp(self._clock() // 1000, UTC)
        version = Version(f"version-{self._made}" if self._versioned else None, content, modified)
        self._keys[key] = [*self._keys.get(key, []), version] if self._versioned else [version]
        return version

    def _find(self, operation: str, request: dict[str, Any]) -> Version:
        versions, wanted = self._keys.get(request["Key"], []), request.get("VersionId")
        found = [one for one in versions if wanted in (None, one.version_id)]
        if not found:
            raise _error(operation, 404, "NoSuchVersion" if wanted else "NoSuchKey")
        version = found[-1]
        if version.content is None:
            headers = {"x-amz-delete-marker": "true", "last-modified": format_datetime(version.modified, usegmt=True)}
            headers |= {"x-amz-version-id": version.version_id} if version.version_id else {}
            raise _error(operation, 405 if wanted else 404, "MethodNotAllowed" if wanted else "NoSuchKey", headers)
        if request.get("IfMatch") not in (None, f'"{version.etag}"'):
            raise _error(operation, 412, "PreconditionFailed")
        return version


def _error(operation: str, status: int, code: str, headers: dict[str, str] | None = None) -> ClientError:
    # HEAD has no body to name a code in.
    shown = str(status) if operation == "HeadObject" else code
    metadata: Any = {"HTTPStatusCode": status, "HTTPHeaders": headers or {}}
    return ClientError({"Error": {"Code": shown, "Message": code}, "ResponseMetadata": metadata}, operation)
