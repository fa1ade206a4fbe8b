"""The messages of one invocation, the decision about each, and the messages that return to the queue."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from threading import Event, Lock
from typing import TYPE_CHECKING, NamedTuple

from intake_ledger.aws import InvocationContext, Queues
from intake_ledger.consumer.host import IN_LAMBDA
from intake_ledger.consumer.services import Services
from intake_ledger.events import Message
from intake_ledger.kinds import ReceivedMessages
from intake_ledger.ledger import Claim
from intake_ledger.processor import Commit

if TYPE_CHECKING:
    from intake_ledger.protocol import Ruling


RESERVE_SECONDS = 3.0
"""Time for a claim, a commit and the answer to Lambda, in addition to the processor's own time."""
CLAIMED_RESERVE_SECONDS = RESERVE_SECONDS / 2
"""The part of it that is left after the claim."""
FULL = 10
"""SQS takes ten messages in one request."""
ANSWER_MS = 1_000
"""Time that is kept for the response to Lambda. Messages that are not returned before come back after the queue's own
visibility timeout."""
LATE_REQUESTS = 2
"""Requests that are sent even in that time. Most batches need one, and another one to delete messages."""
_WEIGHT = 0.2
"""The weight of the newest record in the moving average."""
_CAUTION = 2
"""A record may take this multiple of the average before another record's claim has to be released."""


class ProcessingTime:
    """A moving average of the processor's time in this execution environment, in milliseconds.

    Threads may share it. A record that the average loses between two threads does no harm. Without an average nothing
    is claimed ahead, because a claim that is released costs two writes.
    """

    def __init__(self, average_ms: float | None = None) -> None:
        self._average_ms = average_ms

    def add(self, milliseconds: float) -> None:
        """Add the time of one record."""
        if self._average_ms is None:
            self._average_ms = milliseconds
        else:
            self._average_ms += _WEIGHT * (milliseconds - self._average_ms)

    def fits(self, window_ms: float) -> int:
        """The number of records that can surely be started within this time."""
        if self._average_ms is None:
            return 0
        return max(int(window_ms / (_CAUTION * self._average_ms + 1)), 0)


@dataclass(slots=True, eq=False)
class Returns:
    """The messages of one batch that are to be delivered again later. Several threads may add to it.

    `clock` gives epoch milliseconds, and `time_left_ms` the rest of the function's time. `report` is called with the
    ids of messages that could not be returned.
    """

    queues: Queues
    _: KW_ONLY
    clock: Callable[[], int]
    time_left_ms: Callable[[], int]
    report: Callable[[str, Exception], None]
    returning: Callable[[Sequence[str]], AbstractContextManager[None]] = IN_LAMBDA.returning
    _lock: Lock = field(default_factory=Lock, init=False)
    _waiting: list[tuple[Message, float]] = field(default_factory=list, init=False)
    """Messages with the time at which each is delivered again, in epoch milliseconds."""
    _late_requests: int = field(default=0, init=False)

    def take_request(self) -> bool:
        """True if there is time for one more request to SQS. Counts the requests that are sent late."""
        if self.time_left_ms() > ANSWER_MS:
            return True
        self._late_requests += 1
        return self._late_requests <= LATE_REQUESTS

    def add(self, message: Message, seconds: float) -> None:
        """Return the message after this time, with the next nine or at the next `flush`."""
        with self._lock:
            self._waiting.append((message, self.clock() + seconds * 1000))
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
        now = self.clock()
        try:
            with self.returning([message.receipt for message, _ in waiting]):
                self.queues.deliver_later(
                    [(message.receipt, max(due - now, 0) / 1000) for message, due in waiting],
                    in_time=self.take_request,
                )
        except Exception as error:  # noqa: BLE001 - they come back after the queue's own visibility timeout
            self.report(ids_of(message for message, _ in waiting), error)


class HeldCommit(NamedTuple):
    """The commit of a message's only change. The processor has finished, and the row does not show it yet."""

    message: Message
    claim: Claim
    commit: Commit
    since: int
    """When the processor finished, in epoch milliseconds."""
    duration_ms: int


class Batch:
    """The messages of one invocation, in the order in which they are handled."""

    def __init__(self, received: ReceivedMessages, context: InvocationContext, services: Services) -> None:
        self.messages = received.messages
        self.order = received.order
        self._host = services.host
        self.time_left_ms = context.get_remaining_time_in_millis
        self.returns = Returns(
            services.queues,
            clock=services.clock,
            time_left_ms=self.time_left_ms,
            returning=services.host.returning,
            report=partial(services.telemetry.log_error, "messages could not be returned"),
        )
        self.answers: dict[Message, Claim | Ruling] = {}
        """The answers to messages that were claimed together. Not by id, because a batch may hold one message twice."""
        self.retry_after: dict[Message, float | None] = {}
        """Seconds until each handled message is delivered again. None: acknowledge it, once its commit is written."""
        self.held: list[HeldCommit] = []
        self.stopping = Event()
        """Set while no other processor may start."""
        self._settings = services.settings

    def is_claimed(self, message: Message) -> bool:
        """True if the message was claimed together with others."""
        return isinstance(self.answers.get(message), Claim)

    def may_hold_commit(self, message: Message) -> bool:
        """True if the commit of this message may be written later, together with others. Threads write theirs alone."""
        return self._settings.commit_together and self._settings.threads == 1 and self.is_claimed(message)

    def finish(self, message: Message, retry_after: float | None) -> None:
        """Acknowledge the message, or return it to the queue for these seconds."""
        if retry_after is not None:
            self.order.returned(message, retry_after, self)
        self.retry_after[message] = retry_after

    def response(self) -> dict[str, list[dict[str, str]]]:
        """The answer to the event source."""
        return self.order.response(self)

    @property
    def lease_ms(self) -> int:
        """The length of a lease."""
        return self._host.lease_ms(self.time_left_ms(), self._settings.clock_skew_seconds * 1000)

    def spare_ms(self, reserve_seconds: float) -> float:
        """Milliseconds that are left if one more processor takes all of its time. Negative: none may start."""
        if self.stopping.is_set():
            return -1
        return self.time_left_ms() - (self._settings.processing_timeout_seconds + reserve_seconds) * 1000


def ids_of(messages: Iterable[Message]) -> str:
    """The ids of the messages, for one line of the log."""
    return ", ".join(message.id for message in messages)


Response = dict[str, list[dict[str, str]]]


class AnyOrder:
    """Each message returns alone; see `Order`."""

    def wait_behind(self, message: "Message") -> float | None:  # noqa: ARG002 - see `Order`
        return None

    def returned(self, message: "Message", seconds: float, batch: "Batch") -> None:
        batch.returns.add(message, seconds)

    def response(self, batch: "Batch") -> Response:
        """Name each message that must not be deleted once."""
        return response_of(dict.fromkeys(one.id for one in batch.messages if batch.retry_after[one] is not None))


def response_of(identifiers: "dict[str, None] | list[str]") -> Response:
    """Lambda's answer that returns these messages."""
    return {"batchItemFailures": [{"itemIdentifier": identifier} for identifier in identifiers]}


ANY_ORDER = AnyOrder()
