"""Messages with a key and an identity. The truth is the message itself. The messages of a key exclude each other."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self, cast

from intake_ledger.consumer.batch import ANY_ORDER, RESERVE_SECONDS, Batch, Response, response_of
from intake_ledger.events.parser import Message, in_order
from intake_ledger.keyed.key_lock import KeyLock
from intake_ledger.keyed.names import idempotency_key
from intake_ledger.kinds import FORMAT, ReceivedMessages
from intake_ledger.ledger.ledger import Claim, FencingGuard
from intake_ledger.messages.keyed_message import KeyedMessage, MessageChange
from intake_ledger.messages.reader import MessageReader, is_stream_record, pointer_of
from intake_ledger.messages.settings import MessageSettings, MessageSourceType
from intake_ledger.messages.stream_values import as_json
from intake_ledger.protocol.change import Change, State
from intake_ledger.protocol.errors import LibraryError, ObjectGone, Unprocessable
from intake_ledger.protocol.row import Row

MAX_PAUSE_SECONDS = 5.0
"""The longest wait before a batch of a stream is returned. Lambda retries it at once, and each retry is a request."""


class Messages:
    """The kind of a message intake; see `Kind`."""

    def __init__(
        self,
        settings: MessageSettings,
        lock: KeyLock,
        *,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        """Make the kind of an intake. `lock` lets the messages of a key exclude each other."""
        self.guards: Sequence[FencingGuard] = (lock,)
        self._fence_of = lock.fence_of
        self._source = settings.source
        self._reader = MessageReader(settings)
        self._sleep = sleep

    def read(self, event: Mapping[str, Any]) -> ReceivedMessages:
        """See `Kind`. Records of a queue or of one shard."""
        records = event.get("Records")
        if not isinstance(records, Sequence) or not all(isinstance(record, Mapping) for record in records):
            raise ValueError("the event has no records: send messages to the intake's source instead")
        if records and is_stream_record(records[0]):
            return ReceivedMessages([self._reader.from_stream(record) for record in records], InShard(self._sleep))
        messages = [self._reader.from_queue(record) for record in records]
        if self._source is MessageSourceType.FIFO:
            return ReceivedMessages(messages, InGroups())
        return ReceivedMessages(messages if len(messages) == 1 else in_order(messages), ANY_ORDER)

    def look(self, change: Change, row: Row | None) -> State | None:  # noqa: ARG002 - a message does not change
        """See `Kind`."""
        return change.state

    def work(self, claim: Claim) -> "MessageWork":
        """See `Kind`."""
        return MessageWork(claim, self._source, self._fence_of)

    def shortened(self, body: str) -> str | None:
        """See `Kind`. A record of a stream that is too long stays in its stream. The copy says where."""
        return pointer_of(body)

    def before_acknowledging(self, batch: Batch) -> None:
        """See `Kind`."""


class MessageWork:
    """A message; see `Work`."""

    def __init__(self, claim: Claim, source: MessageSourceType, fence_of: Callable[[Claim], int]) -> None:
        self._claim = claim
        self._fence_of = fence_of
        self._source = source

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None: ...

    def ready(self, remaining_seconds: Callable[[], float], *, together: bool = False) -> KeyedMessage:  # noqa: ARG002 - nothing is opened
        """See `Work`."""
        claim, change = self._claim, cast("MessageChange", self._claim.change)
        identity = str(claim.state.version_id)
        return KeyedMessage(
            key=change.key,
            identity=identity,
            body=change.content,
            raw=change.raw,
            source=self._source.value,
            sent_at=change.event_time,
            attempt=claim.row.attempts,
            fence=self._fence_of(claim),
            idempotency_key=idempotency_key(change.bucket, change.key, identity, claim.row.key_content),
            _remaining_seconds=remaining_seconds,
        )

    def request(self, *, repeated: bool = False) -> dict[str, Any]:  # noqa: ARG002 - the lock and the message say everything
        """See `Work`. The fence is that of the lock.

        Raises:
            Unprocessable: The message has a number that JSON cannot write, such as 1e999. AWS would refuse each request
                with it, and a start that is refused is never given up.

        """
        given = self.ready(lambda: 0.0)
        body = as_json(given.body)
        try:
            json.dumps(body, allow_nan=False)
        except ValueError:
            raise Unprocessable("the message has a number that is infinite or NaN, which JSON cannot write") from None
        return {
            "format": FORMAT,
            "key": given.key,
            "identity": given.identity,
            "versionId": given.identity,
            "body": body,
            "source": given.source,
            "attempt": given.attempt,
            "fence": given.fence,
            "idempotencyKey": given.idempotency_key,
        }

    def returned(self) -> None:
        """See `Work`."""

    def gone(self, error: ObjectGone) -> Exception:  # noqa: ARG002 - see `Work`
        """See `Work`. Of an object, the error would settle the row without a commit."""
        return LibraryError("the processor raised ObjectGone, which is about objects of S3 only")


class InGroups:
    """The messages of a FIFO queue. If one returns, all later messages of its group return with it; see `Order`."""

    def __init__(self) -> None:
        self._returned: dict[str, float] = {}

    def wait_behind(self, message: Message) -> float | None:
        return self._returned.get(message.group)

    def returned(self, message: Message, seconds: float, batch: Batch) -> None:
        self._returned[message.group] = seconds
        ANY_ORDER.returned(message, seconds, batch)

    def response(self, batch: Batch) -> Response:
        return ANY_ORDER.response(batch)


class InShard:
    """The records of a shard. The source delivers all of them again from the lowest failed one on; see `Order`."""

    def __init__(self, sleep: Callable[[float], object]) -> None:
        self._sleep = sleep
        self._blocked = set[str]()
        self._lowest: tuple[str, float] | None = None

    def wait_behind(self, message: Message) -> float | None:
        """A key whose earlier record failed must not go on. The other keys may."""
        return 0.0 if message.keys & self._blocked else None

    def returned(self, message: Message, seconds: float, batch: Batch) -> None:  # noqa: ARG002 - it stays in its shard
        self._blocked |= message.keys
        self._lowest = self._lowest or (message.id, seconds)

    def response(self, batch: Batch) -> Response:
        """Wait until the lowest failed record may be tried again, but not for long."""
        if self._lowest is None:
            return response_of([])
        lowest, seconds = self._lowest
        left = batch.time_left_ms() / 1000 - RESERVE_SECONDS
        if (pause := min(seconds, MAX_PAUSE_SECONDS, left)) > 0:
            self._sleep(pause)
        return response_of([lowest])
