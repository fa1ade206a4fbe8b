"""The argument of a processor of messages."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from intake_ledger.processor import Commit
from intake_ledger.protocol import Change


@dataclass(frozen=True, slots=True)
class MessageChange(Change):
    """A message, in the form in which the ledger takes changes. Its state is the identity."""

    content: Any = field(default=None, compare=False)
    """The decoded message."""
    raw: str = field(default="", compare=False)
    """The message as its sender wrote it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedMessage:
    """One message, claimed for this call of the processor only. No other message of its key is processed meanwhile."""

    key: str
    """The value of the intake's key expression. Messages with one key exclude each other."""
    identity: str
    """The value of the intake's identity expression. Copies of a message have the same."""
    body: Any
    """The message, parsed. For a DynamoDB stream: the record, with plain values in its images."""
    raw: str
    """The message as its sender wrote it. For a DynamoDB stream: the whole record, in DynamoDB's typed JSON."""
    source: str
    """`sqs`, `fifo`, `kinesis`, `dynamodb` or `eventbridge`."""
    sent_at: int | None
    """The time at which the source got the message, in epoch milliseconds. None if the record does not say."""
    attempt: int
    """The number of this attempt on the message, from 1 to the intake's `max_attempts`."""
    fence: int
    """A number that grows with each attempt on this key, whichever message of the key it is about. A downstream write
    that is conditional on it cannot undo the write of a later attempt. More than 32 bits, less than 53."""
    idempotency_key: str
    """The same for each attempt on this message, at any time. Different for any other message."""
    _remaining_seconds: Callable[[], float]

    @property
    def remaining_seconds(self) -> float:
        """Seconds until the processor is interrupted, at least 0.1, so that it may be the timeout of a request."""
        return self._remaining_seconds()


MessageProcessor = Callable[[KeyedMessage], Commit | str | None]
