"""An intake of messages around a processor in one process, with its own time and without AWS.

    def test_each_order_is_booked_once():
        intake = LocalMessages(stock.process, key="article", identity="order_id")
        intake.send({"article": "a", "order_id": 1, "pieces": 3})
        intake.duplicate()
        intake.next(Fault.KILLED_AFTER_EFFECT)
        intake.run()
        assert booked == {"a": 3}

The source is an SQS standard queue. Everything else is as in `LocalPipeline`.
"""

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, override

from intake_ledger.keyed import KeyLock
from intake_ledger.kinds import Kind
from intake_ledger.kinds.messages import Messages
from intake_ledger.messages import KeyedMessage, MessageSettings, MessageSourceType
from intake_ledger.processor import Commit
from intake_ledger.protocol import Ordering, Reasons, Row, row_key
from intake_ledger_testing.local_runtime import LocalRuntime, options_of
from intake_ledger_testing.local_settings import PIPELINE, check_processor, local_settings

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

    from intake_ledger_testing.memory_tables import MemoryTables

_SOURCE = f"messages:{PIPELINE}"
"""The name of the messages' source in the ledger, as the construct makes it."""


class LocalMessages(LocalRuntime):
    """An intake of messages for tests. `send` sends a message, and `run` delivers the messages."""

    def __init__(
        self,
        processor: Callable[[KeyedMessage], Commit | str | None],
        *,
        key: str,
        identity: str,
        max_attempts: int = 12,
        processing_timeout: int = 60,
        reasons: Reasons = Reasons.TYPES,
        max_wait: int = 3 * 86_400,
        dynamodb: "MemoryTables | DynamoDBClient | None" = None,
        raise_errors: bool = False,
    ) -> None:
        """Create an intake with an empty queue.

        Args:
            processor: your function.
            key: as the construct's, a JMESPath expression.
            identity: as the construct's, a JMESPath expression.
            max_attempts: as in `RetryOptions`; 12 when omitted.
            processing_timeout: as in `LocalPipeline`; 60 when omitted.
            reasons: as the construct's; exception types and positions when omitted.
            max_wait: as in `RetryOptions`, in seconds of the time in the test; three days when omitted.
            dynamodb: as in `LocalPipeline`; a transaction with a condition is refused when omitted.
            raise_errors: as in `LocalPipeline`; False when omitted.

        Raises:
            TypeError: The processor is not a function with one argument.

        """
        check_processor(processor, "LocalMessages")
        settings = local_settings(
            Ordering.EVERY_VERSION,
            reasons,
            max_attempts=max_attempts,
            processing_timeout=processing_timeout,
            max_wait=max_wait,
            bucket=_SOURCE,
        )
        super().__init__(processor, settings, dynamodb=dynamodb, raise_errors=raise_errors)
        self._messages = MessageSettings(settings, MessageSourceType.SQS, key, identity)
        self.calls: list[KeyedMessage] = []
        """The message of each call of the processor."""

    @override
    def send(self, body: Mapping[str, Any] | str) -> None:
        """Send a message to the queue.

        Args:
            body: the content, which becomes JSON, or a text as it is.

        """
        super().send(body if isinstance(body, str) else json.dumps(body))
        self._now += 1_000

    def lose(self) -> None:
        """Lose all waiting messages. Nothing finds them: their sender has to send them again."""
        self._sqs.messages.clear()

    def row(self, key: object, identity: object) -> Row | None:
        """Return the ledger's row (`status`, `attempts`, `reason`, `commit` and so on), or None.

        Args:
            key: of the message.
            identity: of the message.

        """
        return self._table.get(row_key(PIPELINE, Ordering.EVERY_VERSION, _SOURCE, str(key), f"v#{identity}"))

    @override
    def _make_kind(self) -> Kind:
        lock = KeyLock(self._table, PIPELINE, options_of(self._settings).retention, clock=self._clock)
        return Messages(self._messages, lock)
