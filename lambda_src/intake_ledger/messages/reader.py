"""Read the records of Lambda's event: the key and the identity of each message, and the message itself.

A record of a stream becomes a message whose body is the record in an envelope. A copy in the dead-letter queue has that
body. It can be sent to the intake's queue, and is then read like the record itself.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from hashlib import sha256
from typing import Any

from intake_ledger.events.parser import BODY_UNKNOWN, OWN_MESSAGE, MalformedError, Message, Parsed, Unparseable
from intake_ledger.keyed.names import InvalidName, name_of
from intake_ledger.messages.keyed_message import MessageChange
from intake_ledger.messages.settings import MessageSettings, MessageSourceType, compiled
from intake_ledger.messages.stream_values import dynamodb_record, kinesis_data
from intake_ledger.protocol.change import Change, Origin, State, StateKind
from intake_ledger.protocol.settings import LAST_TRY_SHARE, last_try_seconds
from intake_ledger.protocol.utf8_json import json_text

RECORD = "record"
"""The kind of our own message that has a record of a stream."""
POINTER = "record too long"
"""The kind of our own message that says where a record of a stream is that the dead-letter queue did not take."""
_SOURCES = {"aws:kinesis": MessageSourceType.KINESIS, "aws:dynamodb": MessageSourceType.DYNAMODB}


class MessageReader:
    """Reads the records of one intake."""

    def __init__(self, settings: MessageSettings) -> None:
        self._source, self._is_stream = settings.source, settings.source.is_stream
        self._unwrap_sns = settings.unwrap_sns
        self._bucket = settings.consumer.bucket
        self._last_try_ms = round(last_try_seconds(settings.consumer.max_hold_seconds) * 1000)
        self._kept_ms = round(self._last_try_ms / LAST_TRY_SHARE)
        self._key, self._identity = compiled(settings.key), compiled(settings.identity)
        self._fingerprint = compiled(settings.fingerprint) if settings.fingerprint else None
        self._letter_ms = settings.letter_seconds * 1000
        # Digests of two expressions, and of the whole message, differ without another content.
        self._digest_of = f"{_digest(settings.fingerprint)[:7]}." if settings.fingerprint else ""

    def from_stream(self, record: Mapping[str, Any]) -> Message:
        """A record of a stream, as a message. Its id is the sequence number."""
        details = record.get("kinesis") or record.get("dynamodb") or {}
        body = json_text({OWN_MESSAGE: {"kind": RECORD, "record": record}})
        number = details.get("sequenceNumber") or details.get("SequenceNumber")
        seconds = details.get("approximateArrivalTimestamp") or details.get("ApproximateCreationDateTime")
        sent = {"SentTimestamp": str(round(seconds * 1000))} if isinstance(seconds, int | float) else {}
        message = self.from_queue({"messageId": number, "body": body, "attributes": sent})
        message.in_shard = True
        return message

    def names_in(self, body: str) -> tuple[str, str] | None:
        """The key and the identity in a body. None: it has none."""
        [part] = self._parse(body, rejected_fence=None)
        if not isinstance(part, Change) or part.state is None or part.state.version_id is None:
            return None
        return part.key, part.state.version_id

    def from_queue(self, record: Mapping[str, Any]) -> Message:
        """A message of SQS."""
        message = Message(record, partial(self._parse))
        if message.queued_at is not None:
            message.last_try_at = message.queued_at + self._last_try_ms
            message.deleted_at = message.queued_at + self._kept_ms
            message.too_old_at = (message.sent_at or message.queued_at) + self._last_try_ms
        message.parsed = [
            replace(part, event_time=message.sent_at) if isinstance(part, Change) else part for part in message.parsed
        ]
        return message

    def _parse(self, body: str, *, rejected_fence: int | None) -> list[Parsed]:
        try:
            content, raw = self._decoded(body)
            key, identity = _name("key", self._key, content), _name("identity", self._identity, content)
            compared = raw if self._fingerprint is None else self._compared(content)
            digest = (self._digest_of + _digest(compared))[:32]
        except MalformedError as problem:
            return [Unparseable(str(problem), body)]
        change = MessageChange(
            self._bucket,
            key,
            Origin.S3,
            event_name=f"IntakeLedger:Message:{self._source}",
            body=body,
            state=State(StateKind.OBJECT, version_id=identity, etag=digest),
            # A copy of the dead-letter queue has a row.
            reported_as_new=rejected_fence is None,
            rejected_fence=rejected_fence,
            must_equal=self._fingerprint is not None,
            letter_ms=self._letter_ms,
            content=content,
            raw=raw,
        )
        return [change]

    def _compared(self, content: Any) -> str:
        """The fingerprint that copies of the message have in common."""
        value = _value("fingerprint", self._fingerprint, content)
        if value is None or (isinstance(value, list | dict) and all(one is None for one in _elements(value))):
            # It would be the same for all messages, and compare nothing.
            raise MalformedError("the fingerprint is missing or null")
        try:
            return json.dumps(value, sort_keys=True, separators=(",", ":"), default=_plain)
        except RecursionError:
            raise MalformedError("the fingerprint is too deep") from None

    @staticmethod
    def _unwrapped(content: Any, body: str) -> tuple[Any, str]:
        """The message in a notification of SNS. Any other message stays as it is."""
        inner = content.get("Message") if isinstance(content, Mapping) else None
        if not isinstance(inner, str) or content.get("Type") != "Notification":
            return content, body
        return _json(inner), inner

    def _decoded(self, body: str) -> tuple[Any, str]:
        """The decoded message and its text."""
        content = _json(body)
        own = content.get(OWN_MESSAGE) if isinstance(content, Mapping) else None
        if isinstance(own, Mapping) and own.get("kind") == BODY_UNKNOWN:
            raise MalformedError(
                f"the body of message {own.get('identity')} of key {own.get('key')} is not known: send it again from "
                "its producer"
            )
        if not self._is_stream:
            return self._unwrapped(content, body) if self._unwrap_sns else (content, body)
        if isinstance(own, Mapping) and own.get("kind") == POINTER:
            raise MalformedError(
                "the dead-letter queue did not take this record: it was too long. Read it from "
                f"{own.get('stream')}, shard {own.get('shard')}, sequence number {own.get('sequence_number')}, "
                "and put it again with another identity"
            )
        record = own.get("record") if isinstance(own, Mapping) and own.get("kind") == RECORD else None
        if not isinstance(record, Mapping) or _SOURCES.get(str(record.get("eventSource"))) is not self._source:
            raise MalformedError(f"not a record of {self._source} in the envelope of the dead-letter queue's copies")
        if self._source is MessageSourceType.KINESIS:
            data = kinesis_data(record)
            return _json(data), data
        return dynamodb_record(record), json.dumps(record)


def is_stream_record(record: Mapping[str, Any]) -> bool:
    """True if Lambda read the record from a stream, and not from a queue."""
    return record.get("eventSource") in _SOURCES


def pointer_of(body: str) -> str | None:
    """A short message that says where the record in this body is. None: the body has no record of a stream."""
    try:
        record = json.loads(body)[OWN_MESSAGE]["record"]
        stream = str(record["eventSourceARN"])
        details = record.get("kinesis") or record["dynamodb"]
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    shard, separator, _ = str(record.get("eventID", "")).rpartition(":")
    pointer = {
        "kind": POINTER,
        "stream": stream,
        "shard": shard if separator else "unknown",
        "sequence_number": details.get("sequenceNumber") or details.get("SequenceNumber"),
    }
    return json.dumps({OWN_MESSAGE: pointer}, separators=(",", ":"))


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise MalformedError(f"not JSON: {type(problem).__name__}") from None


def _digest(text: str) -> str:
    return sha256(text.encode(errors="surrogatepass")).hexdigest()


def _plain(value: object) -> object:
    """A value that JSON does not have. The order of a set differs between processes."""
    return sorted(value) if isinstance(value, set) else str(value)


def _elements(value: list[Any] | dict[str, Any]) -> Iterable[Any]:
    return value if isinstance(value, list) else value.values()


def _value(what: str, expression: Any, content: Any) -> Any:
    try:
        return expression.search(content)
    except Exception as problem:  # noqa: BLE001 - the functions of JMESPath raise errors of several types
        # Their texts quote the message.
        raise MalformedError(f"the {what} cannot be evaluated: {type(problem).__name__}") from None


def _name(what: str, expression: Any, content: Any) -> str:
    """The value of an expression, as a name of the message."""
    try:
        return name_of(what, _value(what, expression, content))
    except InvalidName as problem:
        raise MalformedError(str(problem)) from None
