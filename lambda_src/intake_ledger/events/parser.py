"""Parse the messages of a batch into changes. A message is only a reason to look: no decision is made here.

A body is an S3 notification, an EventBridge event of S3, one of both in an SNS envelope, or one of the pipeline's own
messages.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

from intake_ledger.events.fields import MalformedError
from intake_ledger.events.own_messages import OWN_MESSAGE, parse_own_message
from intake_ledger.events.s3_event import Ignored, parse_event, parse_record
from intake_ledger.protocol import Change, ReasonCode

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
        receives, self.sent_at, rejected_fence = _numbers(record)
        """`sent_at`: when SQS got the message, in epoch milliseconds. None: the record does not say."""
        self.parsed = (parse or parse_message)(self.body, rejected_fence=rejected_fence)
        # Lambda fails the whole batch if the response has an id that it does not know.
        self.id = str(record.get("messageId") or "")
        self.receives = receives or 1
        """The number of times that SQS has delivered the message, with this one."""
        self.in_shard = False
        """True if Lambda read it from a shard. All later records of the shard wait until it is finished."""
        self.last_try_at: int | None = None
        """The time at which its last attempt begins at the latest, in epoch milliseconds. Soon afterwards its source
        deletes the message, and nothing finds it again. None: an audit would find its change."""

    @property
    def receipt(self) -> str:
        """The receipt handle of this delivery. Empty if the record has none."""
        return str(self.record.get("receiptHandle") or "")

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
    return in_order([Message(record) for record in records])


def in_order(messages: Sequence[Message]) -> list[Message]:
    """Sort the messages of a batch: those that failed before come last, because they may fail slowly again.

    A message that was received more than `PATIENCE` times comes first. It may be a good one that never had the time.
    Messages that failed before change places at each delivery. One of them may end the worker each time, and the
    others return with it.
    """
    size = len(messages)

    def place(numbered: tuple[int, Message]) -> tuple[int, int]:
        position, message = numbered
        group = 0 if message.receives > PATIENCE else 1 if message.receives == 1 else 2
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
        return [_parse_execution(content)]
    records = content.get("Records")
    if not isinstance(records, list):
        raise MalformedError("neither an S3 notification nor an EventBridge S3 event: no Records, no source aws.s3")
    if len(records) > _MAX_RECORDS:
        return [Unparseable(f"{len(records)} records: a message of S3 has no room for this number", body, len(records))]
    return _parse_records(records, body) if records else [Ignored("an S3 notification without records")]


def _parse_execution(content: dict[str, Any]) -> Parsed:
    from intake_ledger.events.execution_event import parse_execution_event  # noqa: PLC0415 - few pipelines need it

    return parse_execution_event(content)


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
        part = json.dumps({"Records": records}, separators=(",", ":"))
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
