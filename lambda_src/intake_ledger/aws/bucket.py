"""What the runtime asks of S3: which state a key is in, and the bytes of exactly one version."""

from datetime import datetime
from email.utils import parsedate_to_datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from intake_ledger.processor import ObjectStream, checksum_of
from intake_ledger.protocol import ABSENT, ObjectGone, ObjectReadError, State, StateKind, bare_etag, real_version

if TYPE_CHECKING:
    from collections.abc import Callable

    from mypy_boto3_s3 import S3Client

_NULL_VERSION = "null"
"""S3's id of the version, or of the delete marker, that a bucket without versions has."""
_GONE_STATUS = frozenset({404, 405})
_REFUSED_STATUS = frozenset({400, 403})
"""Of a HEAD, which has no body to say more: an object under a customer's own key, or one that a policy withholds."""
_GONE = frozenset({"404", "405", "412", "NoSuchKey", "NoSuchVersion", "MethodNotAllowed", "PreconditionFailed"})


class Bucket:
    """One bucket. The client is made when it is first needed: most invocations of a consumer never look."""

    def __init__(self, make_client: "Callable[[], S3Client]", name: str, owner: str | None = None) -> None:
        self._make_client = make_client
        self.name = name
        self._common: dict[str, Any] = {"Bucket": name} | ({"ExpectedBucketOwner": owner} if owner else {})

    @cached_property
    def _client(self) -> "S3Client":
        return self._make_client()

    def look(self, key: str) -> State:
        """The state that S3 shows for the key now; S3 is strongly consistent. Raises ClientError when S3 cannot say.

        A delete marker's `created_at` may be unknown here; see `created_at`.
        """
        try:
            head = self._client.head_object(**self._common, Key=key)
        except ClientError as error:
            if _status(error) in _REFUSED_STATUS:
                # Its GET will be refused too, but only an attempt that has a state can fail, and end with that reason.
                return self._listed(key)
            if _status(error) != 404:
                raise
            headers = _headers(error)
            if headers.get("x-amz-delete-marker") == "true":
                return State(StateKind.MARKER, real_version(headers.get("x-amz-version-id")))
            return ABSENT
        return State(
            StateKind.OBJECT,
            real_version(head.get("VersionId")),
            bare_etag(head["ETag"]),
            head["ContentLength"],
            _ms(head["LastModified"]),
        )

    def _listed(self, key: str) -> State:
        """The same by the listing, which starts with the newest version of the first key that begins like this one.

        It needs no permission for the object. Without s3:ListBucketVersions it raises ClientError, too: a refusal is
        never taken for an absence.
        """
        answer = self._client.list_object_versions(**self._common, Prefix=key, MaxKeys=1)
        for one in answer.get("Versions", ()):
            if one["Key"] == key:
                version_id, etag = real_version(one["VersionId"]), bare_etag(one["ETag"])
                return State(StateKind.OBJECT, version_id, etag, one["Size"], _ms(one["LastModified"]))
        for marker in answer.get("DeleteMarkers", ()):
            if marker["Key"] == key:
                version_id = real_version(marker["VersionId"])
                return State(StateKind.MARKER, version_id, created_at=_ms(marker["LastModified"]))
        return ABSENT

    def created_at(self, key: str, marker: State) -> int | None:
        """When the delete marker was made, in epoch milliseconds; None where S3 does not say.

        Raises:
            ObjectGone: The marker is not there any more.

        """
        try:
            self._client.head_object(**self._common, Key=key, VersionId=marker.version_id or _NULL_VERSION)
        except ClientError as error:
            if _status(error) not in _GONE_STATUS:
                raise
            if not _is_marker(error):
                raise ObjectGone(f"{key}: S3 no longer holds {marker.identity}") from error
            modified = _headers(error).get("last-modified")
            return _ms(parsedate_to_datetime(modified)) if modified else None
        return None

    def shows_removal(self, key: str, removal: State) -> bool:
        """Whether S3 shows a version as the delete marker that it is said to be, or as deleted for good.

        Raises ClientError when S3 cannot say.
        """
        try:
            self._client.head_object(**self._common, Key=key, VersionId=removal.version_id or _NULL_VERSION)
        except ClientError as error:
            status = _status(error)
            if status in _REFUSED_STATUS:
                found = self._kind_of_version(key, removal.version_id)
            elif status in _GONE_STATUS:
                found = StateKind.MARKER if _is_marker(error) else StateKind.DELETED
            else:
                raise
            return found is removal.kind
        return False

    def _kind_of_version(self, key: str, version_id: str | None) -> StateKind:
        """The same by the listing, which needs no permission for the object."""
        for page in self._client.get_paginator("list_object_versions").paginate(**self._common, Prefix=key):
            for kind, name in ((StateKind.OBJECT, "Versions"), (StateKind.MARKER, "DeleteMarkers")):
                listed: Any = page.get(name, ())
                for one in listed:
                    if one["Key"] == key and real_version(one["VersionId"]) == version_id:
                        return kind
            if page.get("NextKeyMarker", key) != key:
                break
        return StateKind.DELETED

    def open(self, key: str, state: State) -> ObjectStream:
        """A stream of exactly this version; without versions, of exactly these bytes (by ETag).

        `ChecksumMode` makes S3 return the object's checksum. For objects under a KMS key that needs kms:Decrypt, which
        reading them needs too.

        Raises:
            ObjectGone: The version is not there any more.
            ObjectReadError: S3's answer has no length.
            ValueError: The state is a removal.
            ClientError: S3 refuses for any other reason.

        """
        if state.removed:
            raise ValueError(f"{key} was removed, there is nothing to open: look at the change's kind first")
        which: dict[str, Any] = {"VersionId": state.version_id} if state.version_id else {"IfMatch": f'"{state.etag}"'}
        try:
            answer = self._client.get_object(**self._common, Key=key, **which, ChecksumMode="ENABLED")
        except ClientError as error:
            if error.response["Error"]["Code"] in _GONE:
                raise ObjectGone(f"{key}: S3 no longer holds {state.identity}") from error
            raise
        length = answer.get("ContentLength")
        if length is None:
            answer["Body"].close()
            raise ObjectReadError(f"{key}: S3's answer has no Content-Length, so that its end could not be told")
        return ObjectStream(answer["Body"], length, checksum_of(answer))


def _status(error: ClientError) -> int:
    return int(error.response["ResponseMetadata"]["HTTPStatusCode"])


def _is_marker(error: ClientError) -> bool:
    """Whether a version that cannot be read is a delete marker: S3 answers 405, with its Last-Modified."""
    return _status(error) == 405 or _headers(error).get("x-amz-delete-marker") == "true"


def _headers(error: ClientError) -> dict[str, str]:
    return error.response["ResponseMetadata"].get("HTTPHeaders", {})


def _ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)
