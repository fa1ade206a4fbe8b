"""A message in the dead-letter queue, and whether it is one that is meant. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from intake_ledger.events.parser import parse_message
from intake_ledger.protocol.change import Change
from intake_ledger.protocol.reasons import ReasonCode, matches_reason

NO_REASON = "given up by SQS: received too often"
"""What the consumer sets aside has its reason with it."""


@dataclass(frozen=True, slots=True)
class DeadLetterMessage:
    """One message of the dead-letter queue."""

    id: str
    body: str
    attributes: Mapping[str, Mapping[str, Any]]
    """Message attributes, as SQS types them."""
    receipt_handle: str
    sent_at: int
    """Epoch milliseconds; what SQS itself moved here keeps the time of its first sending."""

    @property
    def reason(self) -> str:
        """Why it is here."""
        return self._text("reason") or NO_REASON

    @property
    def reason_code(self) -> str:
        """The code of the reason. Empty if an earlier release wrote the message."""
        if code := self._text("reason_code"):
            return code
        return "" if self._text("reason") else ReasonCode.MAX_RECEIVES

    @property
    def pipeline(self) -> str:
        """Whose consumer set it aside; empty where SQS did."""
        return self._text("pipeline")

    @property
    def attempts(self) -> str:
        """How often it was tried; empty where nobody said so."""
        return self._text("attempts")

    @property
    def keys(self) -> tuple[str, ...]:
        """The objects that it is about; none where it cannot be understood."""
        if key := self._text("key"):
            return (unquote(key),)
        return tuple(one.key for one in parse_message(self.body) if isinstance(one, Change))

    @property
    def buckets(self) -> frozenset[str]:
        """The buckets of these objects; none where it cannot be understood."""
        return frozenset(one.bucket for one in parse_message(self.body) if isinstance(one, Change))

    def _text(self, name: str) -> str:
        return str(self.attributes.get(name, {}).get("StringValue", ""))


def from_sqs(message: Mapping[str, Any]) -> DeadLetterMessage:
    """The message as SQS hands it out."""
    return DeadLetterMessage(
        message["MessageId"],
        message["Body"],
        message.get("MessageAttributes", {}),
        message["ReceiptHandle"],
        int(message["Attributes"]["SentTimestamp"]),
    )


@dataclass(frozen=True, slots=True)
class MessageFilter:
    """Which messages are meant; all of them when nothing is said."""

    key: str | None = None
    """The object's key; one that ends with `*` is a beginning."""
    reason: str | None = None
    """A reason code, or a part of the reason's text in any case."""

    def matches(self, message: DeadLetterMessage) -> bool:
        if self.reason is not None and not matches_reason(self.reason, message.reason_code, message.reason):
            return False
        return self.key is None or any(self._is(key) for key in message.keys)

    def _is(self, key: str) -> bool:
        wanted = self.key or ""
        return key == wanted or (wanted.endswith("*") and key.startswith(wanted[:-1]))
