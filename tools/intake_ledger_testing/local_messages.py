"""An intake of keyed messages around a processor in one process, with its own time and without AWS.

def test_each_order_is_booked_once():
    intake = LocalMessages(stock.process, key="article", identity="event_id")
    intake.send({"article": "a", "event_id": 1, "pieces": 2})
    intake.send({"article": "a", "event_id": 1, "pieces": 2})
    intake.next(Fault.KILLED_AFTER_EFFECT)
    intake.run()
    assert booked == {"a": 2}
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Unpack, override

from intake_ledger.aws.queues import body_digest
from intake_ledger.ledger.conditions import row_unchanged
from intake_ledger.messages.reader import MessageReader
from intake_ledger.messages.row_check import RowCheck
from intake_ledger.messages.settings import MessageSettings, MessageSourceType, message_settings
from intake_ledger.protocol.row import Ordering, Row, RowKey, Status, row_key
from intake_ledger.protocol.settings import (
    LAST_TRY_SHARE,
    ConsumerSettings,
    environment_of,
    last_try_seconds,
    setting_from,
)
from intake_ledger_testing.local_options import LocalCallOptions, check_names, variables_of
from intake_ledger_testing.local_runtime import LocalRuntime
from intake_ledger_testing.local_worker import LocalWorker
from intake_ledger_testing.memory_shard import MemoryShard
from intake_ledger_testing.memory_sqs import DeadLetter

INTAKE, SOURCE_NAME = "local", "messages:local"


class LocalMessages(LocalRuntime):
    """An intake for tests. `send` sends a message to its source, and `run` delivers the messages."""

    def __init__(
        self,
        processor: Callable[[Any], Any],
        *,
        key: str,
        identity: str,
        fingerprint: str = "",
        source: str = "sqs",
        **options: Unpack[LocalCallOptions],
    ) -> None:
        """Create an intake without messages.

        Args:
            processor: your function.
            key: the JMESPath expression of the key, as the construct's.
            identity: the JMESPath expression of the identity, as the construct's.
            fingerprint: the JMESPath expression of the content that copies have in common; copies may differ when
                omitted.
            source: `sqs`, `fifo` or `kinesis`; `sqs` when omitted, as for EventBridge.
            options: those of `LocalCallOptions`.

        Raises:
            TypeError: The processor is not a function with one argument, or there is no such option.
            ValueError: The source is another one, or has no such cell of runner and host: docs/kinds.md has the reason.
                Or the function would refuse an option.

        """
        check_names("LocalMessages", LocalCallOptions, options)
        self._source = MessageSourceType(source)
        if self._source not in (MessageSourceType.SQS, MessageSourceType.FIFO, MessageSourceType.KINESIS):
            raise ValueError(f"source is {source}: use sqs, fifo or kinesis")
        for name, expression in (("key", key), ("identity", identity)):
            if not expression:
                raise ValueError(f"{name} is empty: pass a JMESPath expression")
        environment = variables_of(
            options,
            suffix=".fifo" if self._source is MessageSourceType.FIFO else "",
            ordering=Ordering.EVERY_VERSION,
            pipeline=INTAKE,
            bucket=SOURCE_NAME,
        ) | environment_of(MessageSettings, source=source, key=key, identity=identity, fingerprint=fingerprint or None)
        kept = last_try_seconds(setting_from(ConsumerSettings, "max_hold_seconds", environment)) / LAST_TRY_SHARE
        super().__init__(processor, options, environment, retention_seconds=kept)
        self._shard = MemoryShard(clock=self.clock, retention_seconds=kept)
        self.calls: list[Any] = []
        """The message of each call of the processor, or its list. With `LocalRunner.FUNCTION`, its request."""

    @override
    def send(self, body: Mapping[str, Any] | str, *, group: str = "") -> None:
        """Send a message to the source.

        Args:
            body: the content, which becomes JSON, or a text as it is.
            group: the message group of a FIFO queue, or the partition key of a stream; one for all when omitted.

        """
        text = body if isinstance(body, str) else json.dumps(body)
        if self._source.is_stream:
            self._shard.send(text, group)
        else:
            self._sqs.send(text, group=group)
        self.clock.now += 1_000

    @override
    def lose(self) -> None:
        """Lose all waiting messages. Nothing finds them: their sender has to send them again."""
        super().lose()
        self._shard.records.clear()

    def open(self, letter: DeadLetter) -> None:
        """Move one message of the dead-letter queue back, as `intake-ledger retry --letter` does.

        It opens the rejected message of its identity with its content.

        Args:
            letter: one of `dead_letters`.

        Raises:
            ValueError: The letter is not in the queue, or its identity is not rejected.

        """
        named = MessageReader(message_settings(self._environment)).names_in(letter.body)
        row = self.row(*named) if named is not None else None
        if named is None or row is None or row.status is not Status.REJECTED or letter not in self._sqs.dead_letters:
            name = letter.key or (named[0] if named else "its body")
            raise ValueError(f"{name} is not rejected with this dead letter: use one of `dead_letters`")
        self._sqs.dead_letters.remove(letter)
        if letter.attributes:
            attributes = {**letter.attributes, "rejected_fence": row.rejected_fence or row.fence}
            self._sqs.send(letter.body, attributes, group=letter.group)
            return
        expecting = replace(row, bare_copy_digest=body_digest(letter.body))
        self._table.update(self._row_key(*named), row, expecting, row_unchanged(row, self.clock.now))
        self._sqs.send(letter.body, group=letter.group)

    def check_rows(self) -> list[str]:
        """Run the check of rows. Returns the keys of the rows that nothing continues."""
        table, pipeline = self._settings.table, self._settings.pipeline
        store: Any = self._dynamodb
        check = RowCheck(store, table=table, pipeline=pipeline, bucket=SOURCE_NAME, clock=self.clock)
        return check.run(lambda: 600.0).keys

    def row(self, key: object, identity: object) -> Row | None:
        """Return the ledger's row of a message (`status`, `attempts`, `reason`, `commit_id` and so on), or None.

        Args:
            key: of the message.
            identity: of the message.

        """
        return self._table.get(self._row_key(key, identity))

    def _row_key(self, key: object, identity: object) -> RowKey:
        return row_key(self._settings.pipeline, Ordering.EVERY_VERSION, SOURCE_NAME, str(key), f"v#{identity}")

    @property
    @override
    def waiting(self) -> int:
        """The number of messages that are not finished."""
        return super().waiting + len(self._shard.records)

    @property
    @override
    def expired(self) -> int:
        """The number of messages that their source deleted before they were finished."""
        return super().expired + len(self._shard.expired)

    @override
    def _ended(self, body: str) -> None:
        """No rule of EventBridge sends the ends of executions to an intake. Its messages ask."""

    @override
    def _next_at(self) -> int | None:
        times = [at for at in (super()._next_at(), self._shard.next_at()) if at is not None]
        return min(times, default=None)

    @override
    def _turn(self, worker: LocalWorker) -> int:
        if (handled := super()._turn(worker)) or not (records := self._shard.receive(self._batch_size)):
            return handled
        try:
            self._shard.passed(records, self._handled(worker, records))
        except BaseException:
            self._shard.passed(records, None)
            raise
        return len(records)
