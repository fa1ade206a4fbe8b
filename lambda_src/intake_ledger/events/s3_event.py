"""Parse the events of S3: records of S3 notifications (form-encoded keys), and EventBridge events (raw keys)."""

import re
from typing import Any, NamedTuple

from intake_ledger.events.fields import (
    Field,
    MalformedError,
    bucket_name,
    epoch_ms,
    form_encoded_key,
    object_key,
    read_fields,
)
from intake_ledger.protocol import RESTORED, Change, Origin, State, StateKind, real_version

_SEQUENCER = re.compile(r"[0-9A-Fa-f]{1,128}")

_RECORD = (Field("eventSource"), Field("eventName"), Field("eventVersion"))
_RECORD_DETAIL = (
    Field("eventTime", convert=epoch_ms),
    Field("s3.bucket.name", convert=bucket_name),
    Field("s3.object", dict),
    Field("s3.object.key", convert=form_encoded_key),
    Field("s3.object.versionId", required=False),
    Field("s3.object.eTag", required=False),
    Field("s3.object.size", int, required=False),
)
_EVENT = (Field("detail-type"), Field("detail", dict), Field("detail.reason", required=False))
_DELETION = (Field("detail.deletion-type", required=False),)
_EVENT_DETAIL = (
    Field("time", convert=epoch_ms),
    Field("detail.bucket.name", convert=bucket_name),
    Field("detail.object", dict),
    Field("detail.object.key", convert=object_key),
    Field("detail.object.version-id", required=False),
    Field("detail.object.etag", required=False),
    Field("detail.object.size", int, required=False),
)
_API_CALL = "AWS API Call via CloudTrail"
_WRITES = frozenset(
    {
        "PutObject",
        "PostObject",
        "CopyObject",
        "CompleteMultipartUpload",
        "RenameObject",
        "DeleteObject",
        "DeleteObjects",
    }
)
"""Calls after which S3 shows another state of a key."""
_CALL = (Field("detail.eventName"), Field("detail.errorCode", required=False))
_CALL_DETAIL = (
    Field("time", convert=epoch_ms),
    Field("detail.requestParameters.bucketName", convert=bucket_name),
    Field("detail.requestParameters.key", convert=object_key),
)


class Ignored(NamedTuple):
    """A message without work, such as S3's test event."""

    why: str


def parse_record(record: object, body: str) -> Change | Ignored:
    """Parse a record of an S3 notification. `body` becomes the body of the change.

    Raises:
        MalformedError: It has not the form of such a record.

    """
    source, name, version = read_fields(record, _RECORD)
    if source != "aws:s3":
        raise MalformedError(f"eventSource is {source!r}, expected 'aws:s3'")
    if version.split(".")[0] != "2":
        raise MalformedError(f"eventVersion is {version!r}, this release understands 2.x")
    # AWS writes `ObjectCreated:Put`. Some clients keep the `s3:` of the subscription.
    return _change(Origin.S3, name.removeprefix("s3:"), read_fields(record, _RECORD_DETAIL), body)


def parse_event(event: dict[str, Any], body: str) -> Change | Ignored:
    """Parse an EventBridge event of S3. `body` becomes the body of the change.

    Raises:
        MalformedError: It has not the form of such an event.

    """
    kind, _, reason = read_fields(event, _EVENT)
    if kind == "Object Created":
        name = f"ObjectCreated:{reason or ''}"
    elif kind == "Object Deleted":
        [deletion] = read_fields(event, _DELETION)
        family = "LifecycleExpiration" if reason == "Lifecycle Expiration" else "ObjectRemoved"
        name = f"{family}:{'DeleteMarkerCreated' if deletion == 'Delete Marker Created' else 'Delete'}"
    elif kind == "Object Restore Completed":
        name = RESTORED
    elif kind == _API_CALL:
        return _parse_api_call(event, body)
    else:
        return Ignored(f"{kind} changes no content")
    return _change(Origin.EVENTBRIDGE, name, read_fields(event, _EVENT_DETAIL), body)


def _parse_api_call(event: dict[str, Any], body: str) -> Change | Ignored:
    """Parse the event of a call that CloudTrail has recorded. A call that writes an object must not pass as no work."""
    name, error = read_fields(event, _CALL)
    if name not in _WRITES:
        return Ignored(f"the call {name} changes no content")
    if error is not None:
        return Ignored(f"the call {name} failed with {error}")
    if name == "DeleteObjects":
        raise MalformedError(f"the call {name} names no keys. {WAY_OUT}")
    at, bucket, key = read_fields(event, _CALL_DETAIL)
    return Change(bucket, key, Origin.CLOUDTRAIL, name, body, event_time=at)


WAY_OUT = (
    "CloudTrail reports calls of S3's API, and the pipeline needs the events of S3: turn on EventBridge for the bucket "
    "and let the rule match the detail types Object Created and Object Deleted, but not AWS API Call via CloudTrail. "
    "`intake-ledger audit` finds the objects that were not processed"
)
"""The fix of a rule that sends calls instead of events."""


def _change(origin: Origin, name: str, detail: list[Any], body: str) -> Change | Ignored:
    """The change that an event with this S3 name reports. Both kinds of events have the same fields in `detail`."""
    at, bucket, item, key, version_id, etag, size = detail
    family, _, deed = name.partition(":")
    state, reported_as_new = None, False
    if family == "ObjectCreated":
        state = State(StateKind.OBJECT, version_id, etag, size, at)
        if state.version_id is None and state.etag is None:
            raise MalformedError("a creation with neither a version id nor an ETag cannot be identified")
        # An EventBridge event without a version id does not show whether the bucket has versions. S3 has to be asked.
        reported_as_new = state.version_id is not None or origin is Origin.S3
    elif name == RESTORED:
        # Not new, and of unknown age. The object can be read again, and a rejected row may wait for that.
        restored = State(StateKind.OBJECT, version_id, etag, size)
        state = restored if restored.version_id or restored.etag else None
    elif family not in ("ObjectRemoved", "LifecycleExpiration"):
        return Ignored(f"{name} changes no content")
    elif deed == "DeleteMarkerCreated":
        state = State(StateKind.MARKER, version_id, None, None, at)
        # A lifecycle event has no sequencer and may be very late.
        reported_as_new = state.version_id is not None and family == "ObjectRemoved"
    elif real_version(version_id) is not None:
        state = State(StateKind.DELETED, version_id, None, None, at)
    sequencer = item.get("sequencer")
    return Change(
        bucket=bucket,
        key=key,
        origin=origin,
        event_name=name,
        body=body,
        state=state,
        reported_as_new=reported_as_new,
        reports_removal=family != "ObjectCreated",
        sequencer=sequencer if isinstance(sequencer, str) and _SEQUENCER.fullmatch(sequencer) else None,
        event_time=at,
    )
