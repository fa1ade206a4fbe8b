"""Return messages that wait: by their visibility timeout, or as delayed copies.

SQS delivers no more messages of a queue when about 120,000 are in flight. A message with a visibility timeout is in
flight, and a delayed message is not. So a message waits as a copy of itself while many are in flight. It also copies
itself before SQS would delete it, or move it because of its receives. All other waits use the visibility timeout, which
costs less.

Rules (see docs/protocol.md, "Waiting"):

1. The outcome is written, the copy is sent, the message is acknowledged. If SQS does not take the copy, the message
   returns by its visibility timeout.
2. Copies are sent last in a batch, because another message may end the worker.
3. A message copies itself at its first delivery, or if the row names it now, or at the end of its life. Otherwise it
   returns by its visibility timeout. So workers that die after a copy do not multiply messages.
4. A copy has the past of its chain: the first sending, the receives, and the names of the message in its row.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from threading import Lock

from intake_ledger.aws.queues import Queues
from intake_ledger.consumer.host import IN_LAMBDA
from intake_ledger.events.parser import Message
from intake_ledger.protocol.settings import ConsumerSettings

FULL = 10
"""SQS takes ten messages in one request."""
ANSWER_MS = 1_000
"""Time that is kept for the response to Lambda. Messages that are not returned before come back after the queue's own
visibility timeout."""
LATE_REQUESTS = 2
"""Requests that are sent even in that time. Most batches need one, and another one to delete messages."""
MAX_DELAY_SECONDS = 900
"""The longest delay of SQS."""
CROWDED_SHARE = 0.5
"""The share of the queue's limit of messages in flight above which waits are copies."""
LOOK_MS, LOOK_SHARE = 60_000, 1 / 6_000
"""The number of messages in flight is read again after this time, or after this share of the limit in messages: 20 with
the limit of SQS. A thousand environments then add a sixth of the limit between two reads."""
LIFE_SHARE = 0.75
"""The share of the queue's maxReceiveCount after which a message copies itself."""


def renews(message: Message, settings: ConsumerSettings) -> bool:
    """True if a copy of the message could take its place. FIFO queues and shards keep their order."""
    return bool(message.sent_at) and not message.in_shard and not settings.is_fifo


class Crowd:
    """Tells whether waits should be copies, because many messages of the queue are in flight.

    One object is for an execution environment. Threads may share it.
    """

    def __init__(
        self, read: Callable[[], int], *, limit: int, clock: Callable[[], int], report: Callable[[str, Exception], None]
    ) -> None:
        """Make it.

        Args:
            read: reads the number of messages in flight.
            limit: the queue's limit of them.
            clock: gives epoch milliseconds.
            report: is called with an empty text and the error of a read that failed.

        """
        self._read = read
        self._limit = limit
        self._look_after = max(1, int(limit * LOOK_SHARE))
        self._clock = clock
        self._report = report
        self._lock = Lock()
        self._looked_at: int | None = None
        self._asked = 0
        self._crowded = False

    def is_crowded(self) -> bool:
        """True if a message that waits should be a copy. A read that fails changes nothing."""
        with self._lock:
            now = self._clock()
            self._asked += 1
            if self._looked_at is not None and now - self._looked_at < LOOK_MS and self._asked < self._look_after:
                return self._crowded
            self._looked_at, self._asked = now, 0
            try:
                self._crowded = self._read() > self._limit * CROWDED_SHARE
            except Exception as error:  # noqa: BLE001 - waits by visibility are always right
                self._report("", error)
            return self._crowded


class Returns:
    """The messages of one batch that are to be delivered again later. Several threads may add to it."""

    def __init__(
        self,
        queues: Queues,
        *,
        clock: Callable[[], int],
        time_left_ms: Callable[[], int],
        report: Callable[[str, Exception], None],
        returning: Callable[[Sequence[str]], AbstractContextManager[None]] = IN_LAMBDA.returning,
        settings: ConsumerSettings,
        crowd: Crowd,
        jitter: Callable[[], float],
    ) -> None:
        """Make the returns of a batch.

        Args:
            queues: sends the requests.
            clock: gives epoch milliseconds.
            time_left_ms: gives the rest of the function's time.
            report: is called with the ids of messages that could not be returned or copied.
            returning: as in `Host`.
            settings: the limits of the queue.
            crowd: tells when messages that wait should be copies.
            jitter: gives a random number from 0 to 1.

        """
        self._queues = queues
        self._clock = clock
        self._time_left_ms = time_left_ms
        self._returning = returning
        self._report = report
        self._settings = settings
        self._crowd = crowd
        self._jitter = jitter
        self._lock = Lock()
        self._may_copy = True
        """False after the copies of the batch were sent."""
        self.waiting: list[tuple[Message, float]] = []
        """Messages with the time at which each is delivered again, in epoch milliseconds."""
        self.copies: dict[Message, int] = {}
        """Messages that wait as copies, and when each is due."""
        self._late_requests = 0

    def take_request(self) -> bool:
        """True if there is time for one more request to SQS. Counts the requests that are sent late."""
        if self._time_left_ms() > ANSWER_MS:
            return True
        self._late_requests += 1
        return self._late_requests <= LATE_REQUESTS

    def add(self, message: Message, seconds: float) -> None:
        """Return the message after this time: with the next nine, at the next `flush`, or as a copy."""
        due = self._clock() + seconds * 1000
        if self._may_copy and renews(message, self._settings) and self._copies_itself(message, seconds):
            with self._lock:
                self.copies[message] = math.ceil(due)
            return
        with self._lock:
            self.copies.pop(message, None)
            self.waiting.append((message, due))
            # Taken under the same lock. Otherwise an eleventh message of another thread would need another request.
            waiting = self._take() if len(self.waiting) >= FULL else []
        if waiting:
            self._send(waiting)

    def _copies_itself(self, message: Message, seconds: float) -> bool:
        if self._nears_its_end(message, seconds):
            return True
        long = seconds >= self._settings.least_copy_seconds
        once = message.delivered == 1 or message.is_named
        return long and once and self._crowd.is_crowded()

    def _nears_its_end(self, message: Message, seconds: float) -> bool:
        """True if SQS may delete the message before the delivery after the next one, or move it because of receives."""
        if message.delivered >= self._settings.max_receives * LIFE_SHARE:
            return True
        end = (message.queued_at or 0) + self._settings.max_hold_seconds * 1000
        return self._clock() + seconds * 1000 >= end

    def flush(self) -> None:
        """Send the visibility timeouts of all messages that were added."""
        with self._lock:
            waiting = self._take()
        self._send(waiting)

    def send_copies(self) -> tuple[list[Message], list[tuple[Message, float]]]:
        """Send the copies, last in a batch. From here on each message that is added returns by its visibility.

        Returns:
            The messages whose copies SQS has taken. Then the others, and the seconds that each has to wait.

        """
        copies, self.copies, self._may_copy = [*self.copies.items()], {}, False
        now = self._clock()
        entries = [message.copy(due) | {"DelaySeconds": self._delay(message, due - now)} for message, due in copies]
        taken, refusal = self._queues.send_copies(entries, in_time=self.take_request)
        refused = [(message, max(due - now, 0) / 1000) for n, (message, due) in enumerate(copies) if n not in taken]
        if refusal is not None:
            self._report(ids_of(message for message, _ in refused), refusal)
        return [message for n, (message, _) in enumerate(copies) if n in taken], refused

    def _delay(self, message: Message, milliseconds: float) -> int:
        """Seconds of delay. Long waits that begin together are spread over the half of a hop."""
        seconds = math.ceil(max(milliseconds, 0) / 1000)
        if seconds <= MAX_DELAY_SECONDS or message.is_passed_on:
            return min(seconds, MAX_DELAY_SECONDS)
        return math.ceil(MAX_DELAY_SECONDS * (1 - self._jitter() / 2))

    def _take(self) -> list[tuple[Message, float]]:
        waiting, self.waiting = self.waiting, []
        return waiting

    def _send(self, waiting: list[tuple[Message, float]]) -> None:
        if not waiting:
            return
        now = self._clock()
        try:
            with self._returning([message.receipt for message, _ in waiting]):
                self._queues.deliver_later(
                    [(message.receipt, max(due - now, 0) / 1000) for message, due in waiting],
                    in_time=self.take_request,
                )
        except Exception as error:  # noqa: BLE001 - they come back after the queue's own visibility timeout
            self._report(ids_of(message for message, _ in waiting), error)


def ids_of(messages: Iterable[Message]) -> str:
    """The ids of the messages, for one line of the log."""
    return ", ".join(message.id for message in messages)
