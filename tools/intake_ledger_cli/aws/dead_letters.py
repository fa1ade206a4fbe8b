"""Dead-letter messages and a filter for them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import unquote

from intake_ledger.events.copies import REDRIVEN
from intake_ledger.events.parser import parse_message
from intake_ledger.protocol.change import Change, StateKind, identity_of
from intake_ledger.protocol.reasons import ReasonCode, matches_reason
from intake_ledger.requests.record import Entry
from intake_ledger.requests.redriven import redriven

NO_REASON = "given up by SQS: received too often"
"""The reason of a message without attributes, which SQS itself moved. Few bodies leave no room for attributes."""
NO_ROOM = "the body leaves no room for the reason: the row has it"


@dataclass(frozen=True, slots=True)
class DeadLetterMessage:
    """A message of the dead-letter queue."""

    id: str
    body: str
    attributes: Mapping[str, Mapping[str, Any]]
    """Message attributes, as SQS types them."""
    receipt_handle: str
    sent_at: int
    """The time of the first send in epoch milliseconds. SQS keeps it when it moves a message itself."""
    group: str = ""
    """The message group of a FIFO queue."""
    redriven_by: str | None = None
    """The ID of the operation that has redriven it. `attributes` has what that operation packed."""
    named: tuple[str, str] | None = None
    """The key and the identity in the body of a message. None: it has none, or the attributes have both."""

    def without_body(self) -> "DeadLetterMessage":
        """The message with all that tells its keys. Bodies of many messages would fill the memory."""
        return replace(self, body="") if self._text("key") else self

    def as_document(self) -> dict[str, Any]:
        """Without its body."""
        return {"id": self.id, "keys": self.keys, "reason": self.reason, "reasonCode": self.reason_code or None}

    @property
    def reason(self) -> str:
        """The reason of the rejection."""
        return self._text("reason") or (NO_ROOM if self.rejected_fence else NO_REASON)

    @property
    def reason_code(self) -> str:
        """The code of the reason. Without one and without a fence, SQS moved the message itself."""
        return self._text("reason_code") or ("" if self.rejected_fence else ReasonCode.MAX_RECEIVES)

    @property
    def pipeline(self) -> str:
        """The pipeline whose consumer rejected the message, or an empty text if SQS moved it."""
        return self._text("pipeline")

    @property
    def rejected_fence(self) -> str:
        """The fence of the rejection, or an empty text if SQS moved the message."""
        return self._text("rejected_fence")

    @property
    def identity(self) -> str:
        """The version of its object, or the identity of its message. An empty text if it is unknown."""
        return self._text("version_id") or (self.named[1] if self.named else "")

    def opening(self, fence: int) -> "DeadLetterMessage":
        """The message as the copy of the rejection with this fence."""
        return replace(
            self, attributes={**self.attributes, "rejected_fence": {"DataType": "Number", "StringValue": str(fence)}}
        )

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of its objects, or none if it cannot be parsed."""
        if key := self._text("key"):
            return (unquote(key),)
        if self.named:
            return (self.named[0],)
        return tuple(one.key for one in parse_message(self.body) if isinstance(one, Change))

    def entry(self, *, every_version: bool) -> Entry | None:
        """The message as a request of a person. None: it names no rejection of a single key, so no row shows its end.

        Args:
            every_version: true if each state has a row.

        """
        if not self.rejected_fence.isdecimal() or len(self.keys) != 1:
            return None
        [key], identity = self.keys, None
        if every_version:
            changes = [one for one in parse_message(self.body) if isinstance(one, Change) and one.key == key]
            identity = next((one.identity for one in changes if one.identity), None)
            identity = identity or identity_of(StateKind.OBJECT, self.identity or None, None)
        return Entry(key, identity, fence=int(self.rejected_fence))

    def _text(self, name: str) -> str:
        return str(self.attributes.get(name, {}).get("StringValue", ""))


@dataclass(frozen=True, slots=True)
class NotMoved:
    """A message that could not be sent. It stays."""

    id: str
    keys: tuple[str, ...]
    why: str


def from_sqs(
    message: Mapping[str, Any], names_in: Callable[[str], tuple[str, str] | None] = lambda _: None
) -> DeadLetterMessage:
    """Convert a message as ReceiveMessage returns it. `names_in` reads key and identity from a body."""
    attributes, operation = message.get("MessageAttributes", {}), None
    # SQS may have moved a message that was redriven before.
    if REDRIVEN in attributes and (back := redriven(attributes[REDRIVEN].get("StringValue"))) is not None:
        attributes = {name: value for name, value in attributes.items() if name != REDRIVEN} | back.typed
        operation = back.request_id
    return DeadLetterMessage(
        message["MessageId"],
        message["Body"],
        attributes,
        message["ReceiptHandle"],
        int(message["Attributes"]["SentTimestamp"]),
        message["Attributes"].get("MessageGroupId", ""),
        operation,
        None if {"key", "version_id"} <= attributes.keys() else names_in(message["Body"]),
    )


@dataclass(frozen=True, slots=True)
class MessageFilter:
    """A filter for dead-letter messages. Without conditions it matches all messages."""

    prefix: str | None = None
    """The beginning of the object's key."""
    reason: str | None = None
    """A reason code, or a part of the reason's text in any case."""
    letter: str | None = None
    """The ID of one message."""
    keys: frozenset[str] | None = None
    """Several keys."""
    ids: frozenset[str] | None = None
    """The IDs of messages."""

    @property
    def selects(self) -> bool:
        """True if a person has chosen messages by key, reason or ID."""
        one_of = self.reason, self.letter, self.keys, self.ids
        return bool(self.prefix) or any(one is not None for one in one_of)

    def matches(self, message: DeadLetterMessage) -> bool:
        if self.letter is not None and message.id != self.letter:
            return False
        if self.reason is not None and not matches_reason(self.reason, message.reason_code, message.reason):
            return False
        if self.ids is not None and message.id not in self.ids:
            return False
        if self.keys is not None and self.keys.isdisjoint(message.keys):
            return False
        return not self.prefix or any(key.startswith(self.prefix) for key in message.keys)
