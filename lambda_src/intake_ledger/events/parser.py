"""Messages in, changes out: every shape in which somebody may tell us that an object was created or removed.

Understood are S3 notifications (whose keys are form-encoded), EventBridge's S3 events (whose keys are raw), either
inside an SNS envelope, and the pipeline's own messages. A message is only ever a wake-up call: nothing is decided here.
"""

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote_plus

from intake_ledger.protocol.change import RESTORED, Change, Origin
from intake_ledger.protocol.object_state import State, StateKind, bare_etag, real_version
from intake_ledger.protocol.reasons import ReasonCode
from intake_ledger.protocol.ulid import is_ulid

_MAX_TEXT_BYTES = 3 * 1024
"""A form-encoded key may have three bytes for each of the 1,024 that S3 allows; everything else is shorter."""

_SEQUENCER = re.compile(r"[0-9A-Fa-f]{1,128}")

_MAX_RECORDS = 10_000
"""A message of SQS has 1 MiB, and a record that names an object more than 100 bytes."""
_MAX_NUMBER = 10**18
"""DynamoDB stores 38 digits. A size or a time in milliseconds has far fewer."""

OWN_MESSAGE = "intakeLedger"
"""The only top-level name in the pipeline's own messages."""


_NAMES = {Origin.S3: ("versionId", "eTag"), Origin.EVENTBRIDGE: ("version-id", "etag")}
"""What the two shapes call an object's version and its ETag."""


@dataclass(frozen=True, slots=True)
class Ignored:
    """A message that asks for nothing, such as S3's test event."""

    why: str


@dataclass(frozen=True, slots=True)
class Unparseable:
    """A message, or records of it, that are none of the shapes above."""

    why: str
    """Of the first record."""
    body: str
    """These records as a message body of their own."""
    records: int = 1
    """How many, where the message has records."""
    code: ReasonCode = ReasonCode.UNPARSEABLE_MESSAGE
    """Why the first record cannot be handled."""


Parsed = Change | Ignored | Unparseable


class _MalformedError(Exception):
    """The text says what was expected and what was found."""


def parse_message(body: str, *, rejected_fence: int | None = None) -> list[Parsed]:
    """Everything that one message says. Never raises: what cannot be understood comes back as `UnreadableMessages`.

    `rejected_fence` is the message attribute of that name; a copy from the dead-letter queue carries it.
    """
    try:
        content = _json_object(body)
        if content.get("Type") == "Notification" and isinstance(content.get("Message"), str):
            inner = content["Message"]
            # The text inside the envelope may have characters that SQS does not take.
            parsed = _parse(_json_object(inner), inner if inner.isascii() else body)
        else:
            parsed = _parse(content, body)
    except _MalformedError as problem:
        return [Unparseable(str(problem), body)]
    if rejected_fence is None:
        return parsed
    return [replace(one, rejected_fence=rejected_fence) if isinstance(one, Change) else one for one in parsed]


def _json_object(text: str) -> dict[str, Any]:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise _MalformedError(f"not JSON: {problem}") from None
    if not isinstance(content, dict):
        raise _MalformedError(f"not a JSON object but {type(content).__name__}")
    return content


def _parse(content: dict[str, Any], body: str) -> list[Parsed]:
    if OWN_MESSAGE in content:
        return [_own(content[OWN_MESSAGE], body)]
    if content.get("Event") == "s3:TestEvent":
        return [Ignored("S3's test event")]
    if content.get("source") == "aws.s3":
        return [_eventbridge(content, body)]
    records = content.get("Records")
    if not isinstance(records, list):
        raise _MalformedError("neither an S3 notification nor an EventBridge S3 event: no Records, no source aws.s3")
    if len(records) > _MAX_RECORDS:
        return [Unparseable(f"{len(records)} records: no message of S3 has room for so many", body, len(records))]
    parsed: list[Parsed] = []
    unreadable: list[object] = []
    why, limit = "", _utf8_bytes(body)
    for record in records:
        try:
            one = _s3(record, body)
            # Only now: a body of its own for each record of garbage would take seconds.
            if isinstance(one, Change) and len(records) > 1:
                one = replace(one, body=_body_of([record], body, limit))
            parsed.append(one)
        except _MalformedError as problem:
            why = why or str(problem)
            unreadable.append(record)
    if unreadable:
        # One for all, however many there are: each would be a message in the dead-letter queue.
        part = body if len(unreadable) == len(records) else _body_of(unreadable, body, limit)
        parsed.append(Unparseable(why, part, len(unreadable)))
    return parsed or [Ignored("an S3 notification without records")]


def _body_of(records: Sequence[object], whole: str, limit: int) -> str:
    """These records of a message as a body of their own; the whole message where that would be longer than `limit`."""
    try:
        # In ASCII, since SQS does not take every character.
        part = json.dumps({"Records": records}, separators=(",", ":"))
    except RecursionError:
        return whole
    return part if len(part) <= limit else whole


def _utf8_bytes(text: str) -> int:
    return len(text.encode(errors="replace"))


def together(refused: Sequence[Unparseable], whole: str) -> Unparseable:
    """All records of one message that cannot be handled, as one."""
    if len(refused) == 1:
        return refused[0]
    part = whole
    if all(one.body != whole for one in refused):
        with suppress(RecursionError):
            records = [record for one in refused for record in json.loads(one.body)["Records"]]
            part = _body_of(records, whole, _utf8_bytes(whole))
    return Unparseable(refused[0].why, part, sum(one.records for one in refused), refused[0].code)


def _s3(record: object, body: str) -> Change | Ignored:
    source, name = _get(record, "eventSource", str), _get(record, "eventName", str)
    if source != "aws:s3":
        raise _MalformedError(f"eventSource is {source!r}, expected 'aws:s3'")
    version = _get(record, "eventVersion", str)
    if version.split(".")[0] != "2":
        raise _MalformedError(f"eventVersion is {version!r}, this release understands 2.x")
    # AWS writes `ObjectCreated:Put`; some clients keep the `s3:` of the subscription.
    name = name.removeprefix("s3:")
    return _reported(Origin.S3, name, _get(record, "s3", dict), _get(record, "eventTime", str), body)


def _eventbridge(content: dict[str, Any], body: str) -> Change | Ignored:
    kind, detail = _get(content, "detail-type", str), _get(content, "detail", dict)
    reason = _optional(detail, "reason", str) or ""
    lifecycle = reason == "Lifecycle Expiration"
    if kind == "Object Created":
        what = f"ObjectCreated:{reason}"
    elif kind == "Object Deleted":
        marker = _optional(detail, "deletion-type", str) == "Delete Marker Created"
        what = ("LifecycleExpiration:" if lifecycle else "ObjectRemoved:") + (
            "DeleteMarkerCreated" if marker else "Delete"
        )
    elif kind == "Object Restore Completed":
        what = RESTORED
    else:
        return Ignored(f"{kind} changes no content")
    return _reported(Origin.EVENTBRIDGE, what, detail, _get(content, "time", str), body)


def _reported(origin: Origin, name: str, detail: dict[str, Any], time: str, body: str) -> Change | Ignored:
    """What an event of this name reports; in both shapes the `detail` has a bucket and an object."""
    bucket, item, at = _text(detail, "bucket", "name"), _get(detail, "object", dict), _epoch_ms(time)
    key = _get(item, "key", str)
    if origin is Origin.S3:
        try:
            key = unquote_plus(key, errors="strict")
        except UnicodeDecodeError as problem:
            raise _MalformedError(f"the object's key is not form-encoded UTF-8: {problem}") from None
    key = _valid_key(key)
    version_name, etag_name = _NAMES[origin]
    version_id = real_version(_optional(item, version_name, str))
    etag, size = bare_etag(_optional(item, etag_name, str)), _optional(item, "size", int)
    family, _, deed = name.partition(":")
    state, reported_as_new = None, False
    if family == "ObjectCreated":
        if etag is None and version_id is None:
            raise _MalformedError(f"a creation with neither {version_name} nor {etag_name} cannot be identified")
        state = State(StateKind.OBJECT, version_id, etag, size, at)
        # Where EventBridge names no version, it may be that there are none or that it was not told: S3 has to be asked.
        reported_as_new = version_id is not None or origin is Origin.S3
    elif name == RESTORED:
        # Neither new nor of a known age: the object is readable again, which may be what a rejected row waits for.
        if etag is not None or version_id is not None:
            state = State(StateKind.OBJECT, version_id, etag, size)
    elif family not in ("ObjectRemoved", "LifecycleExpiration"):
        return Ignored(f"{name} changes no content")
    elif deed == "DeleteMarkerCreated":
        state = State(StateKind.MARKER, version_id, None, None, at)
        # A lifecycle event comes without a sequencer and as late as S3 likes.
        reported_as_new = version_id is not None and family == "ObjectRemoved"
    elif version_id is not None:
        state = State(StateKind.DELETED, version_id, None, None, at)
    return Change(
        bucket=bucket,
        key=key,
        origin=origin,
        event_name=name,
        body=body,
        state=state,
        reported_as_new=reported_as_new,
        reports_removal=family != "ObjectCreated",
        sequencer=_sequencer(item.get("sequencer")),
        event_time=at,
    )


def _sequencer(value: object) -> str | None:
    return value if isinstance(value, str) and _SEQUENCER.fullmatch(value) else None


def own_message(
    origin: Origin, bucket: str, key: str, state: State | None = None, *, reprocess_id: str | None = None
) -> str:
    """The body of a message that wakes the consumer for a key, naming the state that the sender saw."""
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
    return json.dumps({OWN_MESSAGE: {name: value for name, value in content.items() if value is not None}})


def _own(content: object, body: str) -> Change:
    kind = _get(content, "kind", str)
    if kind not in (Origin.AUDIT, Origin.REPROCESS, Origin.LATE):
        raise _MalformedError(f"kind of our own message is {kind!r}, expected 'audit', 'reprocess' or 'late'")
    bucket, key, reprocess_id = _get(content, "bucket", str), _valid_key(_get(content, "key", str)), None
    if kind == Origin.REPROCESS:
        reprocess_id = _get(content, "reprocessId", str)
        if not is_ulid(reprocess_id):
            raise _MalformedError(f"reprocessId is {reprocess_id!r}, expected a ULID in upper case")
    named = _optional(content, "state", str)
    if named is None and _optional(content, "versionId", str) is not None:
        raise _MalformedError("our own message has a versionId and no state: say whether it is an object or a marker")
    state = None
    if named is not None:
        if named not in StateKind:
            raise _MalformedError(f"state is {named!r}, expected one of {', '.join(StateKind)}")
        state = State(
            StateKind(named),
            real_version(_optional(content, "versionId", str)),
            bare_etag(_optional(content, "etag", str)),
            _optional(content, "size", int),
            _optional(content, "createdAt", int),
        )
        if state.kind is StateKind.OBJECT and state.version_id is None and state.etag is None:
            raise _MalformedError("an object with neither versionId nor etag cannot be identified")
    return Change(
        bucket,
        key,
        Origin(kind),
        event_name=f"IntakeLedger:{kind.title()}",
        body=body,
        state=state,
        reprocess_id=reprocess_id,
    )


def _get[T](content: object, name: str, expected: type[T]) -> T:
    if not isinstance(content, dict):
        raise _MalformedError(f"expected an object with {name!r}, got {type(content).__name__}")
    value = content.get(name)
    if not isinstance(value, expected) or isinstance(value, bool):
        raise _MalformedError(
            f"{name} is {'missing' if value is None else f'{type(value).__name__}, expected {expected.__name__}'}"
        )
    if isinstance(value, str):
        _storable(name, value)
    if isinstance(value, int) and abs(value) >= _MAX_NUMBER:
        raise _MalformedError(f"{name} has more digits than any number of S3")
    return value


def _storable(name: str, text: str) -> None:
    try:
        length = len(text.encode())
    except UnicodeEncodeError as problem:
        raise _MalformedError(f"{name} is not valid Unicode: {problem.reason}") from None
    if length > _MAX_TEXT_BYTES:
        raise _MalformedError(f"{name} has {length} bytes, S3 never sends more than {_MAX_TEXT_BYTES}")


def _optional[T](content: object, name: str, expected: type[T]) -> T | None:
    return None if isinstance(content, dict) and content.get(name) is None else _get(content, name, expected)


def _valid_key(key: str) -> str:
    """The key, which S3 limits to 1 to 1,024 bytes of UTF-8; anything else was never a key."""
    length = len(key.encode())
    if not 1 <= length <= 1024:
        raise _MalformedError(f"the object's key has {length} bytes, S3 allows 1 to 1,024")
    return key


def _text(content: dict[str, Any], *path: str) -> str:
    for name in path[:-1]:
        content = _get(content, name, dict)
    value = _get(content, path[-1], str)
    if not value:
        raise _MalformedError(f"{'.'.join(path)} is empty")
    return value


def _epoch_ms(time: str) -> int:
    try:
        moment = datetime.fromisoformat(time)
    except ValueError:
        raise _MalformedError(f"time is {time!r}, expected ISO 8601") from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
