"""The argument of a processor of messages."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from intake_ledger.processor.object_change import Commit
from intake_ledger.protocol.change import Change


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

    @classmethod
    def of_execution(
        cls, event: Mapping[str, Any], *, remaining_seconds: Callable[[], float] | None = None
    ) -> "KeyedMessage":
        """The message that an execution works for, made of its input; see `ObjectChange.of_execution`.

        The input has neither the sender's text nor the time: `raw` is `body` as JSON, and `sent_at` is None.

        Args:
            event: the event of the durable function, or the input of the state machine.
            remaining_seconds: gives the property of this name. It raises RuntimeError when omitted.

        Raises:
            ValueError: The event is not the input of an execution for a message.

        """
        from intake_ledger.processor.execution import check_input, fence_of, no_time  # noqa: PLC0415 - no consumer needs it

        check_input(event, "message")
        return cls(
            key=event["key"],
            identity=event["identity"],
            body=event["body"],
            raw=json.dumps(event["body"]),
            source=event["source"],
            sent_at=None,
            attempt=event["attempt"],
            fence=fence_of(event),
            idempotency_key=event["idempotencyKey"],
            _remaining_seconds=remaining_seconds or no_time,
        )

    @property
    def remaining_seconds(self) -> float:
        """Seconds until the processor is interrupted, at least 0.1, so that it may be the timeout of a request."""
        return self._remaining_seconds()


MessageProcessor = Callable[[KeyedMessage], Commit | str | None]
