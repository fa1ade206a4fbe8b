"""Handle the records of one batch: SQS standard or FIFO, Kinesis, or a DynamoDB stream."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from intake_ledger.aws import LambdaContext
from intake_ledger.consumer.attempt import Attempts
from intake_ledger.consumer.batch import RESERVE_SECONDS, Batch, ProcessingTime
from intake_ledger.consumer.circuit_breaker import CircuitBreaker
from intake_ledger.consumer.deadline import deadline
from intake_ledger.consumer.downstream import Downstream
from intake_ledger.consumer.failures import Failures
from intake_ledger.consumer.message_handler import MessageHandler
from intake_ledger.consumer.services import Services
from intake_ledger.events import Message, in_order
from intake_ledger.messages.keyed_message import MessageProcessor
from intake_ledger.messages.message_call import MessageCall
from intake_ledger.messages.reader import MessageReader, is_stream_record
from intake_ledger.messages.settings import MessageSettings, MessageSource

if TYPE_CHECKING:
    from intake_ledger.keyed import KeyedLedger
    from intake_ledger.messages.queues import MessageQueues

MAX_PAUSE_SECONDS = 5.0
"""The longest wait before a batch of a stream is returned. Lambda retries it at once, and each retry is a request."""

Response = dict[str, list[dict[str, str]]]


class MessageConsumer:
    """Handles batches of one intake, one message after the other."""

    def __init__(
        self,
        settings: MessageSettings,
        services: Services,
        processor: MessageProcessor,
        *,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        """Make the consumer.

        Args:
            settings: of the intake.
            services: their ledger is a `KeyedLedger` and their queues are `MessageQueues`.
            processor: the processor.
            sleep: waits for these seconds.

        """
        consumer = services.settings
        breaker = CircuitBreaker(
            consumer.min_backoff_seconds * 1000, consumer.max_backoff_seconds * 1000, services.jitter
        )
        failures, downstream = Failures(services, breaker), Downstream(services, breaker)
        attempts = Attempts(
            services,
            MessageCall(settings.source, processor),
            failures,
            downstream,
            guard=lambda _, limit: deadline(limit),
            processing_time=ProcessingTime(),
        )
        self._services = services
        self._ledger = cast("KeyedLedger", services.ledger)
        self._queues = cast("MessageQueues", services.queues)
        self._fifo = settings.source is MessageSource.FIFO
        self._reader = MessageReader(settings)
        self._handler = MessageHandler(services, attempts, failures, downstream)
        self._sleep = sleep

    def handle(self, event: Mapping[str, Any], context: LambdaContext) -> Response:
        """Process one batch. The response names the messages that Lambda must deliver again.

        Raises:
            ValueError: The event has no records. The function was invoked directly.

        """
        records = event.get("Records")
        if not isinstance(records, Sequence) or not all(isinstance(record, Mapping) for record in records):
            raise ValueError("the event has no records: send messages to the intake's source instead")
        stream = bool(records) and is_stream_record(records[0])
        response = self._stream(records, context) if stream else self._queue(records, context)
        self._services.telemetry.flush()
        return response

    def _queue(self, records: Sequence[Mapping[str, Any]], context: LambdaContext) -> Response:
        messages = [self._reader.from_queue(record) for record in records]
        if not self._fifo:
            messages = in_order(messages)
        batch = Batch(messages, context, self._services)
        returned: dict[str, float] = {}
        """Seconds until the first message of each group is delivered again that was not finished."""
        for message in messages:
            group = _group(message) if self._fifo else ""
            retry_after = returned[group] if group in returned else self._handle(message, batch, group)
            if self._fifo and retry_after is not None:
                # The later messages of the group come after this one.
                returned[group] = retry_after
            batch.finish(message, retry_after)
        batch.returns.flush()
        return batch.response()

    def _stream(self, records: Sequence[Mapping[str, Any]], context: LambdaContext) -> Response:
        """Process a batch of a shard. Lambda delivers all records again from the lowest failed one on."""
        batch = Batch([self._reader.from_stream(record) for record in records], context, self._services)
        lowest, pause, blocked = None, 0.0, set[str]()
        for message in batch.messages:
            # A key whose earlier record failed must not go on. The other keys may.
            retry_after = 0.0 if message.keys & blocked else self._handle(message, batch)
            if retry_after is None:
                continue
            blocked |= message.keys
            if lowest is None:
                lowest, pause = message.id, retry_after
        if lowest is None:
            return {"batchItemFailures": []}
        self._wait(pause, batch)
        return {"batchItemFailures": [{"itemIdentifier": lowest}]}

    def _handle(self, message: Message, batch: Batch, group: str = "") -> float | None:
        """Handle one message. Returns the seconds until it is delivered again, or None if it is finished."""
        self._queues.group_id = group
        try:
            return self._handler.handle(message, batch)
        finally:
            # The attempt is over, however it ended. Its lock must not wait for the end of its lease.
            self._ledger.free_locks()

    def _wait(self, seconds: float, batch: Batch) -> None:
        """Wait until the lowest failed record may be tried again, but not for long."""
        left = batch.time_left_ms() / 1000 - RESERVE_SECONDS
        if (pause := min(seconds, MAX_PAUSE_SECONDS, left)) > 0:
            self._sleep(pause)


def _group(message: Message) -> str:
    return str(message.record.get("attributes", {}).get("MessageGroupId", ""))
