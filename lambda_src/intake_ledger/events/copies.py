"""The past of a message in its delayed copy.

A message that waits by its visibility timeout is in flight, and SQS delivers nothing more when too many are. Therefore
it may send a copy of itself with a delay instead, and is acknowledged then. See `consumer.returns`.
"""

import json
import secrets
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

ATTRIBUTE = "intake_wait"
"""The message attribute of a copy."""
REDRIVEN = "intake_request"
"""The message attribute of a redriven message; see `requests.redriven`."""
MAX_AHEAD_MS = 12 * 3_600_000
"""A copy waits at most for as long as a message can be invisible."""
_LATE_MS = 60_000
"""The clocks of a worker and of SQS may differ by this."""
_MAX_NAMES = 3
"""A message whose attempt was recorded begins a new list. Without that, it copies itself once in days."""


class Carried(NamedTuple):
    """The past of a copy. Times are epoch milliseconds."""

    sent_at: int
    """When its first message was sent."""
    receives: int
    """The number of deliveries of the messages before it. A message that was passed on does not count."""
    due: int
    """The time before which it is passed on."""
    first_id: str
    """The ID of its first message."""
    names: tuple[str, ...]
    """The IDs by which a row may name the message that this copy continues."""

    @property
    def text(self) -> str:
        return json.dumps([*self], separators=(",", ":"))


def carried(record: Mapping[str, Any], sent_at: int | None) -> Carried | None:
    """The past of the copy in this record. None: the message is the first one.

    Senders choose attributes. A copy that was sent after its time was moved by a person or by SQS, and is new.

    Args:
        record: a record of Lambda's event.
        sent_at: when SQS got the message.

    """
    try:
        sent, receives, due, first_id, names = json.loads(record["messageAttributes"][ATTRIBUTE]["stringValue"])
        found = Carried(sent, receives, due, first_id, tuple(names))
        numbers = all(type(number) is int for number in (sent, receives, due))
        texts = all(isinstance(text, str) for text in (first_id, *found.names))
    except (TypeError, KeyError, ValueError, RecursionError):
        return None
    if sent_at is None or not numbers or not texts or receives < 1 or len(found.names) > _MAX_NAMES:
        return None
    timely = 0 < sent <= sent_at + _LATE_MS and sent_at - _LATE_MS <= due <= sent_at + MAX_AHEAD_MS + _LATE_MS
    return found if timely else None


def names_of(own: str, former: Sequence[str], *, named: bool, delivered: int) -> tuple[str, ...]:
    """The IDs that a copy carries.

    Args:
        own: the ID of the message.
        former: the IDs that it carries itself.
        named: True if the row names this message now.
        delivered: the number of its deliveries. An earlier one may have written its ID into the row.

    """
    if named:
        return (own,)
    return (own, *former)[:_MAX_NAMES] if delivered > 1 else tuple(former)


def trace_of(record: Mapping[str, Any]) -> dict[str, Any]:
    """The trace of the message, as a system attribute of its copy.

    Lambda counts the passes of a trace through its function, and stops a loop after 16 of them. The hops of a wait are
    no loop. A loop of the team keeps its count.
    """
    attributes = record.get("attributes")
    header = attributes.get("AWSTraceHeader") if isinstance(attributes, Mapping) else None
    fresh = f"Root=1-{int(time.time()):08x}-{secrets.token_hex(12)}"
    return {"AWSTraceHeader": {"DataType": "String", "StringValue": str(header or fresh)}}
