"""Parse the messages of a batch into changes. A message is only a reason to look: no decision is made here.

A body is an S3 notification, an EventBridge event of S3, one of both in an SNS envelope, or one of the pipeline's own
messages.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, NamedTuple, cast
from urllib.parse import unquote_plus

from intake_ledger.events.copies import ATTRIBUTE, REDRIVEN, Carried, carried, names_of, trace_of
from intake_ledger.protocol.change import RESTORED, TAGGED, Change, Origin, State, StateKind, real_version
from intake_ledger.protocol.reasons import ReasonCode
from intake_ledger.protocol.row import Row, Status
from intake_ledger.protocol.ulids import is_ulid
from intake_ledger.protocol.utf8_json import json_text

_MAX_TEXT_BYTES = 3 * 1024
"""A form-encoded key may have three bytes for each of the 1,024 that S3 allows. Everything else is shorter."""
_MAX_KEY_BYTES = 1024
_MAX_NUMBER = 10**18
"""DynamoDB stores 38 digits. A size or a time in milliseconds has far fewer."""


class MalformedError(Exception):
    """A message does not have the expected form. The text names the field and the expected form."""


class Field:
    """A field of a JSON object, by its path."""

    def __init__(
        self,
        path: str,
        type_: type = str,
        *,
        required: bool = True,
        convert: Callable[[Any], Any] | None = None,
    ) -> None:
        """Describe a field.

        Args:
            path: the names from the outermost object to the field, with dots in between.
            type_: the type of its value.
            required: whether the field must be there. Otherwise None is read where it is missing.
            convert: checks and converts the text. It is left as it is when omitted.

        """
        self.path = path.split(".")
        self.type = type_
        self.required = required
        self.convert = convert


def read_fields(content: object, fields: Iterable[Field]) -> list[Any]:
    """The values of these fields, in their order.

    Raises:
        MalformedError: A field is missing, has another type, or is too long.

    """
    values: list[Any] = []
    for field in fields:
        name, value = "", content
        for inner in field.path:
            if not isinstance(value, dict):
                raise MalformedError(
                    _problem(name, value, dict)
                    if name
                    else f"expected an object with {inner!r}, got {type(value).__name__}"
                )
            name, value = inner, value.get(inner)
        if value is None and not field.required:
            values.append(None)
            continue
        if not isinstance(value, field.type) or isinstance(value, bool):
            raise MalformedError(_problem(name, value, field.type))
        if isinstance(value, int) and abs(value) >= _MAX_NUMBER:
            raise MalformedError(f"{name} has more digits than any number of S3")
        # ASCII is always valid Unicode, and most texts are short.
        if isinstance(value, str) and not (value.isascii() and len(value) <= _MAX_TEXT_BYTES):
            _check_text(name, value)
        values.append(field.convert(value) if field.convert else value)
    return values


def _problem(name: str, value: object, expected: type) -> str:
    return f"{name} is {'missing' if value is None else f'{type(value).__name__}, expected {expected.__name__}'}"


def _check_text(name: str, text: str) -> None:
    try:
        length = len(text.encode())
    except UnicodeEncodeError as problem:
        raise MalformedError(f"{name} is not valid Unicode: {problem.reason}") from None
    if length > _MAX_TEXT_BYTES:
        raise MalformedError(f"{name} has {length} bytes, S3 never sends more than {_MAX_TEXT_BYTES}")


def object_key(key: str) -> str:
    """The key, if it has 1 to 1,024 bytes of UTF-8, the lengths that S3 allows.

    Raises:
        MalformedError: It has another length.

    """
    length = len(key.encode())
    if not 1 <= length <= _MAX_KEY_BYTES:
        raise MalformedError(f"the object's key has {length} bytes, S3 allows 1 to 1,024")
    return key


def form_encoded_key(text: str) -> str:
    """The key of a record of an S3 notification, in which a space is a plus.

    Raises:
        MalformedError: The text is not form-encoded UTF-8, or S3 does not allow the key.

    """
    try:
        return object_key(unquote_plus(text, errors="strict"))
    except UnicodeDecodeError as problem:
        raise MalformedError(f"the object's key is not form-encoded UTF-8: {problem}") from None


def bucket_name(name: str) -> str:
    """The name of a bucket. Raises MalformedError if it is empty."""
    if not name:
        raise MalformedError("bucket.name is empty")
    return name


def epoch_ms(time: str) -> int:
    """An ISO 8601 time in epoch milliseconds. Without a time zone, it is UTC.

    Raises:
        MalformedError: The text is not such a time.

    """
    try:
        moment = datetime.fromisoformat(time)
    except ValueError:
        raise MalformedError(f"time is {time!r}, expected ISO 8601") from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


OWN_MESSAGE = "intakeLedger"
"""The only top-level name in the pipeline's own messages."""

BODY_UNKNOWN = "body unknown"
"""The kind of our own message that stands for a rejected message whose body its copy does not have."""

_KINDS = (Origin.AUDIT, Origin.REPROCESS, Origin.LATE, Origin.PART, Origin.GROUP, Origin.EXECUTION)
_KIND = (Field("kind"),)
_OBJECT = (
    Field("bucket"),
    Field("key", convert=object_key),
    Field("state", required=False),
    Field("versionId", required=False),
)
_STATE = (
    Field("etag", required=False),
    Field("size", int, required=False),
    Field("createdAt", int, required=False),
)
_REQUEST = (Field("reprocessId"),)
_PARTS = (Field("parts", list, required=False),)
_PART = (Field("part", convert=object_key),)


def own_message(
    origin: Origin,
    bucket: str,
    key: str,
    state: State | None = None,
    *,
    reprocess_id: str | None = None,
    parts: Sequence[str] = (),
) -> str:
    """The body of a message that wakes the consumer for a key.

    Args:
        origin: the sender.
        bucket: the bucket's name.
        key: the object's key.
        state: the state that the sender has seen. The consumer only looks at S3 when omitted.
        reprocess_id: a ULID. The message does not ask for a reprocess when omitted.
        parts: the keys of the parts that wake a set.

    """
    content: dict[str, Any] = {"kind": origin.value, "bucket": bucket, "key": key}
    if state is not None:
        content["state"] = state.kind.value
        content |= {
            "versionId": state.version_id,
            "etag": state.etag,
            "size": state.size,
            "createdAt": state.created_at,
        }
    content["reprocessId"] = reprocess_id
    content["parts"] = list(parts) or None
    return json.dumps({OWN_MESSAGE: {name: value for name, value in content.items() if value is not None}})


def body_unknown(key: str, identity: str) -> str:
    """The body of a copy of a rejected message with a key and an identity, if its body is not known."""
    return json.dumps({OWN_MESSAGE: {"kind": BODY_UNKNOWN, "key": key, "identity": identity}})


def parse_own_message(content: object, body: str) -> Change:
    """Parse one of the pipeline's own messages. `body` becomes the body of the change.

    Raises:
        MalformedError: It has not the form of such a message.

    """
    [kind] = read_fields(content, _KIND)
    if kind not in _KINDS:
        raise MalformedError(f"kind of our own message is {kind!r}, expected one of {', '.join(_KINDS)}")
    bucket, key, named, version_id = read_fields(content, _OBJECT)
    reprocess_id = None
    if kind == Origin.REPROCESS:
        [reprocess_id] = read_fields(content, _REQUEST)
        if not is_ulid(reprocess_id):
            raise MalformedError(f"reprocessId is {reprocess_id!r}, expected a ULID in upper case")
    if named is None and version_id is not None:
        raise MalformedError("our own message has a versionId and no state: say whether it is an object or a marker")
    parts: list[str] = []
    if kind == Origin.PART:
        [listed] = read_fields(content, _PARTS)
        parts = [part for one in listed or () for part in read_fields({"part": one}, _PART)]
    state = None
    if named is not None:
        if named not in StateKind:
            raise MalformedError(f"state is {named!r}, expected one of {', '.join(StateKind)}")
        etag, size, created_at = read_fields(content, _STATE)
        state = State(StateKind(named), version_id, etag, size, created_at)
        if state.kind is StateKind.OBJECT and state.version_id is None and state.etag is None:
            raise MalformedError("an object with neither versionId nor etag cannot be identified")
    return Change(
        bucket,
        key,
        Origin(kind),
        event_name=f"IntakeLedger:{kind.title()}",
        body=body,
        state=state,
        reprocess_id=reprocess_id,
        parts=tuple(parts),
    )


_SEQUENCER = re.compile(r"[0-9A-Fa-f]{1,128}")

_EVENT_ID = re.compile(r"[\w.:/+=-]{1,64}", re.ASCII)
"""A request ID of S3 has 16 characters, and an ID of EventBridge 36."""

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
    answer = cast("Mapping[str, object]", record).get("responseElements")
    request_id = answer.get("x-amz-request-id") if isinstance(answer, Mapping) else None
    return _change(Origin.S3, name.removeprefix("s3:"), read_fields(record, _RECORD_DETAIL), body, request_id)


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
    elif kind == "Object Tags Added":
        name = TAGGED
    elif kind == _API_CALL:
        return _parse_api_call(event, body)
    else:
        return Ignored(f"{kind} changes no content")
    return _change(Origin.EVENTBRIDGE, name, read_fields(event, _EVENT_DETAIL), body, event.get("id"))


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
    "`intake-ledger audit --resend` finds the objects that were not processed"
)
"""The fix of a rule that sends calls instead of events."""


def _change(origin: Origin, name: str, detail: list[Any], body: str, named: object) -> Change | Ignored:
    """The change that an event with this S3 name reports. Both kinds of events have the same fields in `detail`.

    `named` is the ID of the event, or anything else.
    """
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
    elif name == TAGGED and real_version(version_id) is not None:
        origin, state = Origin.TAG, State(StateKind.OBJECT, version_id, etag, size)
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
        reports_removal=family != "ObjectCreated" and origin is not Origin.TAG,
        sequencer=sequencer if isinstance(sequencer, str) and _SEQUENCER.fullmatch(sequencer) else None,
        event_id=named if isinstance(named, str) and _EVENT_ID.fullmatch(named) else None,
        event_time=at,
    )


PATIENCE = 10
"""A message that was received more often than this comes before new ones."""
_MAX_DIGITS = 20
_NUMBERS = (
    ("attributes", "ApproximateReceiveCount"),
    ("attributes", "SentTimestamp"),
    ("messageAttributes", "rejected_fence", "stringValue"),
)
_MAX_RECORDS = 10_000
"""A message of SQS has 1 MiB, and a record that names an object has more than 100 bytes."""


class Unparseable(NamedTuple):
    """A message, or records of it, that cannot be parsed."""

    why: str
    """The problem of the first record."""
    body: str
    """A message body with these records only."""
    records: int = 1
    """The number of records, if the message has records."""
    code: ReasonCode = ReasonCode.UNPARSEABLE_MESSAGE
    """The reason code of the first record."""
    about: Change | None = None
    """The change, if the message can be read and reports nothing else."""


Parsed = Change | Ignored | Unparseable


class Message:
    """A message of SQS, parsed."""

    def __init__(self, record: Mapping[str, Any], parse: "Callable[..., list[Parsed]] | None" = None) -> None:
        """Parse a record of Lambda's event.

        Args:
            record: the record.
            parse: the parser with the arguments of `parse_message`, which is used when omitted.

        """
        self.record = record
        body = record.get("body")
        self.body = body if isinstance(body, str) else json.dumps(body)
        receives, self.queued_at, self.rejected_fence = _numbers(record)
        """`queued_at`: when SQS got this message, in epoch milliseconds. None: the record does not say."""
        past = carried(record, self.queued_at)
        self.carried = past
        """The past of a copy. None for other messages."""
        self.due = past.due if past else 0
        """The time before which a copy is passed on, in epoch milliseconds. 0 for other messages."""
        self.sent_at = past.sent_at if past else self.queued_at
        """When the first message of a chain of copies was sent."""
        self.parsed = (parse or parse_message)(self.body, rejected_fence=self.rejected_fence)
        self.is_plain = not record.get("messageAttributes") and not (
            self.parsed and getattr(self.parsed[0], "reprocess_id", None)
        )
        """True if no operation of a person has sent it, and it is no copy."""
        # Lambda fails the whole batch if the response has an id that it does not know.
        self.id = str(record.get("messageId") or "")
        self.first_id = past.first_id if past else self.id
        """The ID of the first message of a chain of copies."""
        self.delivered = receives or 1
        """The number of times that SQS has delivered this message, with this one."""
        self.receives = self.delivered + (past.receives if past else 0)
        """The number of times that it was delivered to be judged, with this one and those of earlier copies."""
        self.is_named = False
        """True if the row names this message: it comes again."""
        self.waits_for_option = False
        """True if its changes are finished, and it comes again only for an option."""
        self.is_passed_on = False
        """True if it is a copy that is not due. It was not judged."""
        self.in_shard = False
        """True if Lambda read it from a shard. All later records of the shard wait until it is finished."""
        self.last_try_at: int | None = None
        """The time at which its last attempt begins at the latest, in epoch milliseconds. Soon afterwards its source
        deletes the message, and nothing finds it again. None: an audit would find its change."""
        self.deleted_at: int | None = None
        """The time at which its source deletes it, if `last_try_at` is known."""
        self.too_old_at: int | None = None
        """`last_try_at` of the first message of a chain of copies. Errors without another limit end then."""

    @property
    def comes_first(self) -> bool:
        """True if it was received so often that it comes before new messages. It may be good, and never had time."""
        return self.receives > PATIENCE

    @property
    def receipt(self) -> str:
        """The receipt handle of this delivery. Empty if the record has none."""
        return str(self.record.get("receiptHandle") or "")

    @property
    def group(self) -> str:
        """The message group: its order in a FIFO queue, its sender in a fair one. Empty if there is none."""
        attributes = self.record.get("attributes")
        return str(attributes.get("MessageGroupId", "")) if isinstance(attributes, Mapping) else ""

    @property
    def redriven_by(self) -> str | None:
        """The attribute of the operation that has redriven it, unread. None: no command has."""
        return self._attribute(REDRIVEN)

    @property
    def is_letter(self) -> bool:
        """True if it comes from the dead-letter queue, as far as its attributes show."""
        return any(self._attribute(name) is not None for name in ("rejected_fence", "reason_code", REDRIVEN))

    def _attribute(self, name: str) -> str | None:
        """A message attribute that is a text or a number. Senders choose attributes."""
        attributes = self.record.get("messageAttributes")
        found = attributes.get(name) if isinstance(attributes, Mapping) else None
        text = found.get("stringValue") if isinstance(found, Mapping) else None
        return text if isinstance(text, str) else None

    @property
    def names(self) -> tuple[str, ...]:
        """The IDs by which a row may name this message."""
        return (self.id, *(self.carried.names if self.carried else ()))

    @property
    def waiter(self) -> str:
        """The name of this message in a row that waits for it; see `Row.waiter`."""
        return f"{self.id} {self.sent_at or 0}"

    def is_needless(self, row: Row, now: int) -> bool:
        """True if the row waits for another message, which was not sent before this one.

        Messages that were sent later may be all that is left, after a purge or the retention of the other one.
        """
        if row.status is not Status.FAILED or (row.retry_at or 0) <= now or row.waiter_id in (None, *self.names):
            return False
        return 0 < (self.sent_at or 0) <= row.waiter_sent_at

    def copy(self, due: int) -> dict[str, Any]:
        """A copy that waits until `due`, in epoch milliseconds: an entry of SendMessageBatch without its delay."""
        past = self.carried
        receives = past.receives if past and self.is_passed_on else self.receives
        names = names_of(self.id, past.names if past else (), named=self.is_named, delivered=self.delivered)
        text = Carried(self.sent_at or 0, receives, due, self.first_id, names).text
        attributes = {ATTRIBUTE: {"DataType": "String", "StringValue": text}}
        if self.rejected_fence is not None:
            attributes["rejected_fence"] = {"DataType": "Number", "StringValue": str(self.rejected_fence)}
        entry = {
            "MessageBody": self.body,
            "MessageAttributes": attributes,
            "MessageSystemAttributes": trace_of(self.record),
        }
        for name in ("reason_code", REDRIVEN):
            if (given := self._attribute(name)) is not None:
                attributes[name] = {"DataType": "String", "StringValue": given}
        # Queues may share their time fairly among groups.
        return entry | ({"MessageGroupId": self.group} if self.group else {})

    @property
    def keys(self) -> frozenset[str]:
        """Keys of the objects that this message reports."""
        return frozenset(part.key for part in self.parsed if isinstance(part, Change))

    @property
    def only_change(self) -> Change | None:
        """The change, if the message reports nothing else."""
        return self.parsed[0] if len(self.parsed) == 1 and isinstance(self.parsed[0], Change) else None


def read_batch(event: Mapping[str, Any]) -> list[Message]:
    """The messages of Lambda's event, in the order in which they are handled.

    Raises:
        ValueError: The event does not come from SQS. The function was invoked directly.

    """
    records: Any = event.get("Records")
    if not isinstance(records, Sequence) or not all(isinstance(record, Mapping) for record in records):
        raise ValueError("the event has no list of SQS messages: send messages to the pipeline's queue instead")
    messages = [Message(record) for record in records]
    return messages if len(messages) == 1 else in_order(messages)


def in_order(messages: Sequence[Message]) -> list[Message]:
    """Sort the messages of a batch: those that failed before come last, because they may fail slowly again.

    A message that was received more than `PATIENCE` times comes first. It may be good, and never had the time.
    Messages that failed before change places at each delivery. One of them may end the worker each time, and the
    others return with it.
    """
    size = len(messages)

    def place(numbered: tuple[int, Message]) -> tuple[int, int]:
        position, message = numbered
        group = 0 if message.comes_first else 1 if message.receives == 1 else 2
        return group, (position + 1 - message.receives) % size

    return [message for _, message in sorted(enumerate(messages), key=place)]


def _numbers(record: Mapping[str, Any]) -> list[int | None]:
    """The whole numbers at the ends of `_NUMBERS`. None for anything else, because senders choose the attributes."""
    numbers: list[int | None] = []
    for path in _NUMBERS:
        value: Any = record
        for name in path:
            value = value.get(name) if isinstance(value, Mapping) else None
        valid = isinstance(value, str) and len(value) < _MAX_DIGITS and value.isascii() and value.isdecimal()
        numbers.append(int(value) if valid else None)
    return numbers


def parse_message(body: str, *, rejected_fence: int | None = None) -> list[Parsed]:
    """Parse all parts of one message. Never raises: a part that cannot be parsed is returned as `Unparseable`.

    Args:
        body: the body of the SQS message.
        rejected_fence: the message attribute of this name. A copy from the dead-letter queue has it.

    """
    try:
        content = _json_object(body)
        if content.get("Type") == "Notification" and isinstance(content.get("Message"), str):
            inner = content["Message"]
            # The text inside the envelope may have characters that SQS does not take.
            parsed = _parse(_json_object(inner), inner if inner.isascii() else body)
        else:
            parsed = _parse(content, body)
    except MalformedError as problem:
        return [Unparseable(str(problem), body)]
    if rejected_fence is None:
        return parsed
    # The event of a copy is not new.
    return [
        replace(part, rejected_fence=rejected_fence, reported_as_new=False) if isinstance(part, Change) else part
        for part in parsed
    ]


def _json_object(text: str) -> dict[str, Any]:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise MalformedError(f"not JSON: {problem}") from None
    if not isinstance(content, dict):
        raise MalformedError(f"not a JSON object but {type(content).__name__}")
    return content


def _parse(content: dict[str, Any], body: str) -> list[Parsed]:
    if OWN_MESSAGE in content:
        return [parse_own_message(content[OWN_MESSAGE], body)]
    if content.get("Event") == "s3:TestEvent":
        return [Ignored("S3's test event")]
    if content.get("source") == "aws.s3":
        return [parse_event(content, body)]
    if content.get("source") == "aws.states":
        from intake_ledger.events.execution_event import parse_execution_event  # noqa: PLC0415 - few pipelines need it

        return [parse_execution_event(content)]
    records = content.get("Records")
    if not isinstance(records, list):
        raise MalformedError("neither an S3 notification nor an EventBridge S3 event: no Records, no source aws.s3")
    if len(records) > _MAX_RECORDS:
        return [Unparseable(f"{len(records)} records: a message of S3 has no room for this number", body, len(records))]
    return _parse_records(records, body) if records else [Ignored("an S3 notification without records")]


def _parse_records(records: Sequence[object], body: str) -> list[Parsed]:
    parsed: list[Parsed] = []
    unreadable: list[object] = []
    several = len(records) > 1
    why, limit = "", _utf8_bytes(body) if several else 0
    for record in records:
        try:
            part = parse_record(record, body)
            # Only now: a separate body for each unreadable record would take seconds.
            if several and isinstance(part, Change):
                part = replace(part, body=_body_of([record], body, limit))
            parsed.append(part)
        except MalformedError as problem:
            why = why or str(problem)
            unreadable.append(record)
    if unreadable:
        # One part for all of them, since each part would be a message in the dead-letter queue.
        part_body = body if len(unreadable) == len(records) else _body_of(unreadable, body, limit)
        parsed.append(Unparseable(why, part_body, len(unreadable)))
    return parsed


def _body_of(records: Sequence[object], whole: str, limit: int) -> str:
    """A message body with these records only. The whole message, if that body would be longer than `limit`."""
    try:
        # In ASCII, since SQS does not take every character.
        part = json_text({"Records": records})
    except RecursionError:
        return whole
    return part if len(part) <= limit else whole


def _utf8_bytes(text: str) -> int:
    return len(text.encode(errors="replace"))


def merge_unparseable(refused: Sequence[Unparseable], whole: str) -> Unparseable:
    """All records of one message that cannot be handled, as one part."""
    if len(refused) == 1:
        return refused[0]
    part = whole
    if all(each.body != whole for each in refused):
        with suppress(RecursionError):
            records = [record for each in refused for record in json.loads(each.body)["Records"]]
            part = _body_of(records, whole, _utf8_bytes(whole))
    return Unparseable(refused[0].why, part, sum(each.records for each in refused), refused[0].code)
