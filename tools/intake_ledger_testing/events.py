"""Builds the messages that S3, EventBridge and the pipeline send, in the documented formats.

Each function returns the *body* of an SQS message. `sqs_record` and `sqs_event` wrap bodies in the event that Lambda
passes.
"""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from itertools import count
from typing import Any
from urllib.parse import quote_plus

from intake_ledger.events.parser import own_message
from intake_ledger.protocol.change import Origin, State, StateKind

_ACCOUNT, _REGION = "111122223333", "eu-central-1"
_REMOVED = ("ObjectRemoved", "LifecycleExpiration")
_DETAIL_TYPES = {"ObjectRestore": "Object Restore Completed"}
_MESSAGES = count(1)


def s3_notification(
    bucket: str,
    key: str,
    *,
    event: str = "ObjectCreated:Put",
    version_id: str | None = None,
    etag: str | None = None,
    size: int | None = None,
    sequencer: str | None = None,
    time: datetime | None = None,
) -> str:
    """Return an S3 notification of one change.

    Args:
        bucket: its name.
        key: not encoded; it is form-encoded here, as S3 does.
        event: `ObjectCreated:Put` when omitted; `ObjectRemoved:DeleteMarkerCreated`, `ObjectRemoved:Delete`,
            `LifecycleExpiration:Delete` and so on.
        version_id: left out when omitted, as by a bucket without versions.
        etag: without quotes; left out when omitted.
        size: in bytes; left out when omitted.
        sequencer: left out when omitted, as by lifecycle events.
        time: now when omitted.

    """
    fields = {"key": quote_plus(key), "size": size, "eTag": etag, "versionId": version_id, "sequencer": sequencer}
    record = {
        "eventVersion": "2.3" if event.startswith("LifecycleExpiration") else "2.1",
        "eventSource": "aws:s3",
        "awsRegion": _REGION,
        "eventTime": _iso(time, "milliseconds"),
        "eventName": event,
        "userIdentity": {"principalId": "AWS:AROAEXAMPLE"},
        "requestParameters": {"sourceIPAddress": "192.0.2.1"},
        "responseElements": {"x-amz-request-id": "79104EXAMPLEB723", "x-amz-id-2": "IOWQ4fDEXAMPLEQM"},
        "s3": {
            "s3SchemaVersion": "1.0",
            "configurationId": "intake",
            "bucket": {"name": bucket, "ownerIdentity": {"principalId": "A3I5X"}, "arn": f"arn:aws:s3:::{bucket}"},
            "object": _known(fields),
        },
    }
    return json.dumps({"Records": [record]})


def s3_test_event(bucket: str) -> str:
    """Return the test event that S3 sends once when notifications are configured.

    Args:
        bucket: its name.

    """
    fields = {"Service": "Amazon S3", "Event": "s3:TestEvent", "Time": _iso(None, "milliseconds"), "Bucket": bucket}
    return json.dumps(fields | {"RequestId": "5582815E1AEA5ADF", "HostId": "8cLeGAmw098X5cv4Zkwcmo8vvZa3eH3eKxsPzbB9"})


def cloudtrail_event(bucket: str, call: str, parameters: Mapping[str, str] | None = None, *, error: str = "") -> str:
    """Return the event of EventBridge that CloudTrail sends for a call of S3's API.

    Args:
        bucket: its name.
        call: such as `PutObject`.
        parameters: of the request, without the bucket; none when omitted.
        error: the code with which S3 refused the call; none when omitted.

    """
    detail: dict[str, object] = {
        "eventVersion": "1.09",
        "eventSource": "s3.amazonaws.com",
        "eventName": call,
        "requestParameters": {"bucketName": bucket, **(parameters or {})},
    }
    if error:
        detail["errorCode"] = error
    kind, time = "AWS API Call via CloudTrail", "2026-11-18T11:06:40Z"
    return json.dumps({"version": "0", "source": "aws.s3", "detail-type": kind, "time": time, "detail": detail})


def eventbridge_event(
    bucket: str,
    key: str,
    *,
    event: str = "ObjectCreated:PutObject",
    version_id: str | None = None,
    etag: str | None = None,
    size: int | None = None,
    sequencer: str | None = None,
    time: datetime | None = None,
) -> str:
    """Return an S3 event of EventBridge. Its key is not encoded, and its time has a precision of seconds.

    Args:
        bucket: its name.
        key: as it is.
        event: `ObjectCreated:PutObject` when omitted; `ObjectCreated:<reason>`, `ObjectRemoved:Delete`,
            `ObjectRemoved:DeleteMarkerCreated`, or one of `LifecycleExpiration:` with the same two.
        version_id: left out when omitted, as by a bucket without versions.
        etag: without quotes; left out when omitted.
        size: in bytes; left out when omitted.
        sequencer: left out when omitted, as by lifecycle events.
        time: now when omitted.

    """
    family, _, what = event.partition(":")
    removed = family in _REMOVED
    reason = "Lifecycle Expiration" if family == "LifecycleExpiration" else "DeleteObject" if removed else what
    fields = {"key": key, "size": size, "etag": etag, "version-id": version_id, "sequencer": sequencer}
    detail = {
        "version": "0",
        "bucket": {"name": bucket},
        "object": _known(fields),
        "request-id": "N4N7GDK58NMKJ12R",
        "requester": _ACCOUNT,
        "reason": reason,
    }
    if removed:
        marker = what == "DeleteMarkerCreated"
        detail["deletion-type"] = "Delete Marker Created" if marker else "Permanently Deleted"
    content = {
        "version": "0",
        "id": "17793124-05d4-b198-2fde-7ededc63b103",
        "detail-type": "Object Deleted" if removed else _DETAIL_TYPES.get(family, "Object Created"),
        "source": "aws.s3",
        "account": _ACCOUNT,
        "time": _iso(time, "seconds"),
        "region": _REGION,
        "resources": [f"arn:aws:s3:::{bucket}"],
        "detail": detail,
    }
    return json.dumps(content)


def audit_message(
    bucket: str,
    key: str,
    *,
    version_id: str | None = None,
    etag: str | None = None,
    size: int | None = None,
    time: datetime | None = None,
) -> str:
    """Return the message with which the audit resubmits a key. Without version ID and ETag, the object is removed.

    Args:
        bucket: its name.
        key: as it is.
        version_id: of the version that the audit listed; none when omitted.
        etag: without quotes; none when omitted.
        size: in bytes; unknown when omitted.
        time: of the upload; unknown when omitted.

    """
    state = State(StateKind.OBJECT, version_id, etag, size, None if time is None else int(time.timestamp() * 1000))
    return own_message(Origin.AUDIT, bucket, key, state if version_id or etag else State(StateKind.ABSENT))


def reprocess_message(bucket: str, key: str, *, reprocess_id: str, version_id: str | None = None) -> str:
    """Return a request to process a key again.

    Args:
        bucket: its name.
        key: as it is.
        reprocess_id: a ULID, or another text that sorts after the IDs of earlier requests. Each ID runs once.
        version_id: required in `EVERY_VERSION`; in `LATEST` the current version when omitted.

    """
    state = State(StateKind.OBJECT, version_id) if version_id else None
    return own_message(Origin.REPROCESS, bucket, key, state, reprocess_id=reprocess_id)


def sqs_record(
    body: str,
    *,
    message_id: str | None = None,
    receives: int = 1,
    attributes: Mapping[str, str | int] | None = None,
    sent_at: int | None = None,
) -> dict[str, Any]:
    """Return an SQS message in the form that Lambda passes.

    Args:
        body: of the message.
        message_id: a new unique ID when omitted.
        receives: the number of receives including this one; 1 when omitted.
        attributes: message attributes; none when omitted. With those of a dead-letter message, the message is a
            redrive.
        sent_at: when it was sent, in epoch milliseconds; left out when omitted.

    """
    sent = {} if sent_at is None else {"SentTimestamp": str(sent_at)}
    name = message_id or f"message-{next(_MESSAGES)}"
    return {
        "messageId": name,
        "receiptHandle": name,
        "body": body,
        "attributes": {"ApproximateReceiveCount": str(receives), **sent},
        "messageAttributes": {
            key: {"stringValue": str(value), "dataType": "Number" if isinstance(value, int) else "String"}
            for key, value in (attributes or {}).items()
        },
        "eventSource": "aws:sqs",
        "eventSourceARN": f"arn:aws:sqs:{_REGION}:{_ACCOUNT}:intake",
        "awsRegion": _REGION,
    }


def sqs_event(*messages: str | Mapping[str, Any]) -> dict[str, Any]:
    """Return a batch of SQS messages in the form that Lambda passes.

    Args:
        messages: bodies, or records made by `sqs_record`.

    """
    return {"Records": [sqs_record(one) if isinstance(one, str) else dict(one) for one in messages]}


def _known(fields: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in fields.items() if value is not None}


def _iso(time: datetime | None, precision: str) -> str:
    return (time or datetime.now(UTC)).astimezone(UTC).isoformat(timespec=precision).replace("+00:00", "Z")
