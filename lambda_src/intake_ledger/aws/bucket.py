"""Requests to S3: the present state of a key, and the content of exactly one version."""

from datetime import datetime
from email.utils import parsedate_to_datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from botocore.exceptions import BotoCoreError, ClientError

from intake_ledger.processor.object_stream import ObjectStream, open_state
from intake_ledger.protocol.change import ABSENT, Change, State, StateKind, real_version
from intake_ledger.protocol.errors import ObjectGone, ObjectReadError
from intake_ledger.protocol.row import Row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import HeadObjectOutputTypeDef

    from intake_ledger.protocol.commit_tag import CommitTag

_OWN_READ = "while the consumer opened the object"
"""A note on errors of this read. The same error of another request is the processor's."""
_NULL_VERSION = "null"
"""S3's id of the version, or of the delete marker, that a bucket without versions has."""
_PASSING = frozenset({"RequestTimeout", "SlowDown", "Throttling", "TooManyRequests", "RequestTimeTooSkewed"})
"""S3's client errors that may pass."""
_GONE_STATUS = frozenset({404, 405})
_REFUSED_STATUS = frozenset({400, 403})
"""S3's refusals of a HEAD: a policy denies it, or the object is encrypted with a customer-provided key."""


class ListedObject(NamedTuple):
    """A current object in a listing."""

    key: str
    modified_at: int
    """Its Last-Modified, in epoch milliseconds."""
    size: int


class Bucket:
    """One bucket. The client is made when it is first needed, because most invocations of a consumer do not need it."""

    def __init__(self, make_client: "Callable[[], S3Client]", name: str, owner: str | None = None) -> None:
        self._make_client = make_client
        self.name = name
        self._common: dict[str, Any] = {"Bucket": name} | ({"ExpectedBucketOwner": owner} if owner else {})

    @cached_property
    def _client(self) -> "S3Client":
        return self._make_client()

    def look_for(self, change: Change, _row: Row | None) -> State:
        """The present state of the change's key. For objects, it does not depend on the row."""
        return self.look(change.key)

    def look(self, key: str) -> State:
        """The present state of the key. S3 is strongly consistent. Raises ClientError if S3 does not answer.

        The `created_at` of a delete marker may be unknown; see `created_at`.
        """
        try:
            head = self._client.head_object(**self._common, Key=key)
        except ClientError as error:
            if _status(error) in _REFUSED_STATUS:
                # S3 will refuse the GET too. An attempt needs a state, so that it can fail with that reason.
                return self._listed(key)
            if _status(error) != 404:
                raise
            headers = _headers(error)
            if headers.get("x-amz-delete-marker") == "true":
                return State(StateKind.MARKER, headers.get("x-amz-version-id"))
            return ABSENT
        return State(
            StateKind.OBJECT,
            head.get("VersionId"),
            head["ETag"],
            head["ContentLength"],
            _ms(head["LastModified"]),
        )

    def _listed(self, key: str) -> State:
        """The present state of the key from the listing, which needs no permission for the object.

        The listing starts with the newest version of the first key that has this prefix. Without
        s3:ListBucketVersions this raises ClientError: a refusal is never taken for an absent object.
        """
        answer = self._client.list_object_versions(**self._common, Prefix=key, MaxKeys=1)
        for version in answer.get("Versions", ()):
            if version["Key"] == key:
                modified = _ms(version["LastModified"])
                return State(StateKind.OBJECT, version["VersionId"], version["ETag"], version["Size"], modified)
        for marker in answer.get("DeleteMarkers", ()):
            if marker["Key"] == key:
                return State(StateKind.MARKER, marker["VersionId"], created_at=_ms(marker["LastModified"]))
        return ABSENT

    def pages(self, prefix: str, after: str = "") -> "Iterator[list[ListedObject]]":
        """The pages of a listing of current objects.

        Args:
            prefix: of the keys.
            after: the listing begins behind this key.

        """
        request: dict[str, Any] = {**self._common, "Prefix": prefix} | ({"StartAfter": after} if after else {})
        while True:
            answer = self._client.list_objects_v2(**request)
            yield [
                ListedObject(one["Key"], _ms(one["LastModified"]), one["Size"]) for one in answer.get("Contents", ())
            ]
            if not answer.get("IsTruncated"):
                return
            request["ContinuationToken"] = answer["NextContinuationToken"]

    def created_at(self, key: str, marker: State) -> int | None:
        """The creation time of the delete marker, in epoch milliseconds. None: S3 does not return it.

        Raises:
            ObjectGone: The marker no longer exists.

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

    def look_at(self, key: str, requested: State | None) -> State:
        """The state that a person requests to process, or `ABSENT`. Without a request, the present state of the key.

        Raises ClientError if S3 does not answer.
        """
        if requested is None or requested.version_id is None:
            shown = self.look(key)
            return shown if requested is None or shown.identity == requested.identity else ABSENT
        return ABSENT if self.shows_removal(key, State(StateKind.DELETED, requested.version_id)) else requested

    def shows_removal(self, key: str, removal: State) -> bool:
        """True if the removal is a fact in S3: the version is a delete marker, or it was permanently deleted.

        Raises ClientError if S3 does not answer.
        """
        try:
            self._client.head_object(**self._common, Key=key, VersionId=removal.version_id or _NULL_VERSION)
        except ClientError as error:
            status = _status(error)
            if status in _REFUSED_STATUS:
                kind = self._kind_of_version(key, removal.version_id)
            elif status in _GONE_STATUS:
                kind = StateKind.MARKER if _is_marker(error) else StateKind.DELETED
            else:
                raise
            return kind is removal.kind
        return False

    def _kind_of_version(self, key: str, version_id: str | None) -> StateKind:
        """The kind of a version from the listing, which needs no permission for the object."""
        for page in self._client.get_paginator("list_object_versions").paginate(**self._common, Prefix=key):
            for kind, name in ((StateKind.OBJECT, "Versions"), (StateKind.MARKER, "DeleteMarkers")):
                listed: Any = page.get(name, ())
                for entry in listed:
                    if entry["Key"] == key and real_version(entry["VersionId"]) == version_id:
                        return kind
            if page.get("NextKeyMarker", key) != key:
                break
        return StateKind.DELETED

    def tags(self, key: str, version_id: str) -> dict[str, str]:
        """The tags of a version.

        Raises:
            ObjectGone: The version no longer exists.
            ClientError: S3 refuses for any other reason, or does not answer. Also BotoCoreError.

        """
        try:
            answer = self._client.get_object_tagging(**self._common, Key=key, VersionId=version_id)
        except ClientError as error:
            if not _said_gone(error):
                raise
            raise ObjectGone(f"{key}: S3 no longer holds {version_id}") from error
        return {one["Key"]: one["Value"] for one in answer["TagSet"]}

    def head(self, key: str, version_id: str) -> "HeadObjectOutputTypeDef | None":
        """Ask S3 about a version and its checksum. None: S3 refuses the version, and will refuse its content.

        Raises:
            ObjectGone: The version no longer exists.
            ClientError: S3 does not answer. Also BotoCoreError.

        """
        try:
            return self._client.head_object(**self._common, Key=key, VersionId=version_id, ChecksumMode="ENABLED")
        except ClientError as error:
            if _status(error) in _REFUSED_STATUS:
                return None
            if not _said_gone(error):
                raise
            raise ObjectGone(f"{key}: S3 no longer holds {version_id}") from error

    def tag(self, key: str, version_id: str, tag: "CommitTag") -> None:
        """Add a tag to a version. A version that no longer exists needs none.

        S3 replaces all tags of a version at once. So a tag that another client sets between the two requests is lost.

        Raises:
            TagsFull: the version has as many tags as S3 takes.
            ClientError: S3 refuses for any other reason.

        """
        place: dict[str, Any] = {**self._common, "Key": key, "VersionId": version_id}
        try:
            if (wanted := tag.set_among(self.tags(key, version_id))) is not None:
                tags: Any = [{"Key": name, "Value": value} for name, value in wanted.items()]
                self._client.put_object_tagging(**place, Tagging={"TagSet": tags})
        except ObjectGone:
            return
        except ClientError as error:
            if not _said_gone(error):
                raise

    def open(self, key: str, state: State) -> ObjectStream:
        """A stream of exactly this version; see `open_state`."""
        try:
            return open_state(self._client, self._common, key, state)
        except (BotoCoreError, ClientError) as error:
            error.add_note(_OWN_READ)
            raise


def _said_gone(error: ClientError) -> bool:
    """True if the version no longer exists, or is a delete marker."""
    return _status(error) in _GONE_STATUS and error.response["Error"].get("Code") != "NoSuchBucket"


def is_own_read(error: BaseException) -> bool:
    """True if the consumer's own read of an object failed. A processor's own GetObject may be its downstream."""
    return isinstance(error, ObjectReadError) or _OWN_READ in getattr(error, "__notes__", ())


def s3_refusal(error: BaseException) -> str | None:
    """S3's code, if it refuses the read and will refuse it again: an archived object, a key that may not be used."""
    if not isinstance(error, ClientError):
        return None
    # The processor may have made the error itself.
    response = getattr(error, "response", {})
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    code = response.get("Error", {}).get("Code", "unknown")
    return code if 400 <= status < 500 and code not in _PASSING else None


def _status(error: ClientError) -> int:
    return int(error.response["ResponseMetadata"]["HTTPStatusCode"])


def _is_marker(error: ClientError) -> bool:
    """True if a version that cannot be read is a delete marker. S3 answers 405, with its Last-Modified."""
    return _status(error) == 405 or _headers(error).get("x-amz-delete-marker") == "true"


def _headers(error: ClientError) -> dict[str, str]:
    return error.response["ResponseMetadata"].get("HTTPHeaders", {})


def _ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)
