"""Return messages to the queue in batches of ten, since a batch may hold 10,000 of them."""

from collections.abc import Callable
from threading import Lock

from intake_ledger.aws import Queues
from intake_ledger.events import Message

FULL = 10
"""SQS takes ten messages in one request."""
ANSWER_MS = 1_000
"""Time that is kept for the response to Lambda. Messages that are not returned before come back after the queue's own
visibility timeout."""
LATE_REQUESTS = 2
"""Requests that are sent even in that time. Most batches need one, and another one to delete messages."""


class Returns:
    """The messages of one batch that are to be delivered again later. Several threads may add to it.

    `clock` gives epoch milliseconds, and `time_left_ms` the rest of the function's time. `report` is called with the
    ids of messages that could not be returned.
    """

    def __init__(
        self,
        queues: Queues,
        *,
        clock: Callable[[], int],
        time_left_ms: Callable[[], int],
        report: Callable[[str, Exception], None],
    ) -> None:
        self._queues = queues
        self._clock = clock
        self._time_left_ms = time_left_ms
        self._report = report
        self._lock = Lock()
        self._waiting: list[tuple[Message, float]] = []
        """Messages with the time at which each is delivered again, in epoch milliseconds."""
        self._late_requests = 0

    def in_time(self) -> bool:
        """True if there is time for one more request to SQS."""
        if self._time_left_ms() > ANSWER_MS:
            return True
        self._late_requests += 1
        return self._late_requests <= LATE_REQUESTS

    def add(self, message: Message, seconds: float) -> None:
        """Return the message after this time, with the next nine or at the next `flush`."""
        with self._lock:
            self._waiting.append((message, self._clock() + seconds * 1000))
            # Taken under the same lock. Otherwise an eleventh message of another thread would need another request.
            waiting = self._take() if len(self._waiting) >= FULL else []
        self._send(waiting)

    def flush(self) -> None:
        """Tell SQS about all messages that were added."""
        if not self._waiting:
            return
        with self._lock:
            waiting = self._take()
        self._send(waiting)

    def _take(self) -> list[tuple[Message, float]]:
        waiting, self._waiting = self._waiting, []
        return waiting

    def _send(self, waiting: list[tuple[Message, float]]) -> None:
        if not waiting:
            return
        now = self._clock()
        try:
            self._queues.deliver_later(
                [(message.receipt, max(due - now, 0) / 1000) for message, due in waiting],
                in_time=self.in_time,
            )
        except Exception as error:  # noqa: BLE001 - they come back after the queue's own visibility timeout
            self._report(", ".join(message.id for message, _ in waiting), error)
