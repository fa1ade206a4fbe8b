"""In-memory S3 buckets for outputs: the methods of boto3's client that write outputs, with S3's conditions."""

import hashlib
import io
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from intake_ledger_testing.memory_s3 import s3_error
from intake_ledger_testing.s3_limits import check_key, stored_metadata


@dataclass(frozen=True, slots=True)
class StoredOutput:
    """An object in an output bucket."""

    content: bytes
    etag: str
    """With quotes."""
    metadata: dict[str, str] = field(default_factory=dict)
    content_type: str = "binary/octet-stream"
    tagging: str = ""
    """In the form of a request, for example `name=value`."""
    written_at: int = 0
    """In milliseconds."""

    @property
    def removed(self) -> bool:
        """True for a tombstone."""
        return "intake-removed" in self.metadata


@dataclass(slots=True)
class _Upload:
    name: tuple[str, str]
    request: dict[str, Any]
    parts: dict[int, bytes] = field(default_factory=dict)
    overwritten: bool = False
    """True if the object was written or deleted since the upload was created."""


class MemoryOutputs:
    """Buckets without versions. Each bucket exists, and S3's refusals of conditional writes are the same."""

    def __init__(self, clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000) -> None:
        """Make buckets without objects.

        Args:
            clock: the present time in milliseconds; the system's clock when omitted.

        """
        self.clock = clock
        """The present time in milliseconds."""
        self.objects: dict[tuple[str, str], StoredOutput] = {}
        """The objects by bucket and key."""
        self.uploads: dict[str, _Upload] = {}
        """The multipart uploads that were neither completed nor aborted, by ID."""
        self.requests: list[str] = []
        """The name of each operation that was requested."""
        self.conflicts = 0
        """The number of next conditional writes that get S3's answer 409, as if another one were under way."""
        self._uploads_made = 0

    def read(self, bucket: str, key: str) -> bytes | None:
        """Return the content of an object. None: there is none, or a tombstone."""
        found = self.objects.get((bucket, key))
        return None if found is None or found.removed else found.content

    def head_object(self, **request: Any) -> dict[str, Any]:
        """Answer as boto3's client."""
        found = self._find("HeadObject", request)
        return {
            "ETag": found.etag,
            "ContentLength": len(found.content),
            "ContentType": found.content_type,
            "LastModified": datetime.fromtimestamp(found.written_at // 1000, UTC),
            "Metadata": dict(found.metadata),
        }

    def get_object(self, **request: Any) -> dict[str, Any]:
        """Answer as boto3's client."""
        found = self._find("GetObject", request)
        return {"ETag": found.etag, "Metadata": dict(found.metadata), "Body": io.BytesIO(found.content)}

    def delete_object(self, **request: Any) -> dict[str, Any]:
        """Answer as boto3's client, without a condition."""
        self.requests.append("DeleteObject")
        name = request["Bucket"], request["Key"]
        if self.objects.pop(name, None) is not None:
            self._overwrite(name)
        return {}

    def put_object(self, **request: Any) -> dict[str, Any]:
        """Answer as boto3's client. `Body` is bytes."""
        self.requests.append("PutObject")
        _check_limits("PutObject", request)
        self._check("PutObject", request)
        content: bytes = request["Body"]
        etag = f'"{hashlib.md5(content, usedforsecurity=False).hexdigest()}"'
        return self._store(request, content, etag)

    def create_multipart_upload(self, **request: Any) -> dict[str, Any]:
        """Answer as boto3's client."""
        self.requests.append("CreateMultipartUpload")
        _check_limits("CreateMultipartUpload", request)
        self._uploads_made += 1
        upload_id = f"upload-{self._uploads_made}"
        self.uploads[upload_id] = _Upload((request["Bucket"], request["Key"]), request)
        return {"UploadId": upload_id}

    def upload_part(self, **request: Any) -> dict[str, Any]:
        """Answer as boto3's client."""
        upload = self._upload("UploadPart", request)
        upload.parts[request["PartNumber"]] = request["Body"]
        return {"ETag": _part_etag(request["Body"])}

    def complete_multipart_upload(self, **request: Any) -> dict[str, Any]:
        """Answer as boto3's client. A condition that does not hold leaves the upload as it is.

        With a condition, S3 answers 409 if the object was written or deleted since the upload was created.
        """
        upload = self._upload("CompleteMultipartUpload", request)
        self._check("CompleteMultipartUpload", request)
        if upload.overwritten and not {"IfMatch", "IfNoneMatch"}.isdisjoint(request):
            raise s3_error("CompleteMultipartUpload", 409, "ConditionalRequestConflict")
        parts = [upload.parts[part["PartNumber"]] for part in request["MultipartUpload"]["Parts"]]
        digests = b"".join(hashlib.md5(part, usedforsecurity=False).digest() for part in parts)
        etag = f'"{hashlib.md5(digests, usedforsecurity=False).hexdigest()}-{len(parts)}"'
        del self.uploads[request["UploadId"]]
        return self._store(upload.request, b"".join(parts), etag)

    def abort_multipart_upload(self, **request: Any) -> dict[str, Any]:
        """Answer as boto3's client."""
        self._upload("AbortMultipartUpload", request)
        del self.uploads[request["UploadId"]]
        return {}

    def _find(self, operation: str, request: dict[str, Any]) -> StoredOutput:
        self.requests.append(operation)
        found = self.objects.get((request["Bucket"], request["Key"]))
        if found is None:
            raise s3_error(operation, 404, "NoSuchKey")
        return found

    def _check(self, operation: str, request: dict[str, Any]) -> None:
        """Raise S3's refusal if the condition of the request does not hold."""
        if_match, if_none_match = request.get("IfMatch"), request.get("IfNoneMatch")
        if if_match is None and if_none_match is None:
            return
        if self.conflicts:
            self.conflicts -= 1
            raise s3_error(operation, 409, "ConditionalRequestConflict")
        found = self.objects.get((request["Bucket"], request["Key"]))
        if if_match is not None and found is None:
            raise s3_error(operation, 404, "NoSuchKey")
        if found is not None and (if_none_match == "*" or if_match != found.etag):
            raise s3_error(operation, 412, "PreconditionFailed")

    def _store(self, request: dict[str, Any], content: bytes, etag: str) -> dict[str, Any]:
        name = request["Bucket"], request["Key"]
        self._overwrite(name)
        self.objects[name] = StoredOutput(
            content,
            etag,
            stored_metadata("PutObject", request.get("Metadata", {})),
            request.get("ContentType", "binary/octet-stream"),
            request.get("Tagging", ""),
            self.clock(),
        )
        return {"ETag": etag}

    def _overwrite(self, name: tuple[str, str]) -> None:
        for upload in self.uploads.values():
            upload.overwritten |= upload.name == name

    def _upload(self, operation: str, request: dict[str, Any]) -> _Upload:
        self.requests.append(operation)
        upload = self.uploads.get(request["UploadId"])
        if upload is None or upload.name != (request["Bucket"], request["Key"]):
            raise s3_error(operation, 404, "NoSuchUpload")
        return upload


def _check_limits(operation: str, request: dict[str, Any]) -> None:
    check_key(operation, request["Key"])
    stored_metadata(operation, request.get("Metadata", {}))


def _part_etag(content: bytes) -> str:
    return f'"{hashlib.md5(content, usedforsecurity=False).hexdigest()}"'
