"""The messages of one invocation, the decision about each, and the messages that return to the queue."""

from collections.abc import Callable
from functools import partial
from threading import Event
from typing import TYPE_CHECKING, NamedTuple, Protocol

from intake_ledger.aws.invocation_context import InvocationContext
from intake_ledger.consumer.returns import Crowd, Returns
from intake_ledger.consumer.services import Services
from intake_ledger.events.parser import Message
from intake_ledger.kinds import ReceivedMessages
from intake_ledger.ledger.ledger import Claim
from intake_ledger.processor.object_change import Commit

if TYPE_CHECKING:
    from intake_ledger.protocol.verdict import Ruling


RESERVE_SECONDS = 3.0
"""Time for a claim, a commit and the answer to Lambda, in addition to the processor's own time."""
CLAIMED_RESERVE_SECONDS = RESERVE_SECONDS / 2
"""The part of it that is left after the claim."""
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


class HeldCommit(NamedTuple):
    """The commit of a message's only change. The processor has finished, and the row does not show it yet."""

    message: Message
    claim: Claim
    commit: Commit
    since: int
    """When the processor finished, in epoch milliseconds."""
    duration_ms: int


class Ahead(NamedTuple):
    """The answer to a message that was claimed before its turn."""

    answer: "Claim | Ruling | None" = None
    """The answer to its only change, which was claimed with others. None: it is claimed in its turn."""
    hold: Callable[[HeldCommit], None] | None = None
    """Takes the commit, which is written with others. None: the attempt writes it."""


NOT_AHEAD = Ahead()


class Batch:
    """The messages of one invocation, in the order in which they are handled."""

    def __init__(
        self,
        received: ReceivedMessages,
        context: InvocationContext,
        services: Services,
        crowd: Crowd,
        without_copy: Callable[[Message, float], float | None],
    ) -> None:
        """Make the batch. `without_copy` decides about a message whose copy SQS has not taken; see `finish`."""
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
            settings=services.settings,
            crowd=crowd,
            jitter=services.jitter,
        )
        self.ahead: dict[Message, Ahead] = {}
        """Messages that were claimed together. Not by id, because a batch may hold one message twice."""
        self.retry_after: dict[Message, float | None] = {}
        """Seconds until each handled message is delivered again. None: acknowledge it, once its commit is written."""
        self.held: list[HeldCommit] = []
        self.stopping = Event()
        """Set while no other processor may start."""
        self.stopped: dict[str, bool] = {}
        """True for operations that a person has stopped. Each batch reads it once, so that a running one ends."""
        self._without_copy = without_copy
        self._settings = services.settings
        self._clock = services.clock
        self._telemetry = services.telemetry

    def finish(self, message: Message, retry_after: float | None) -> None:
        """Acknowledge the message, or return it to the queue for these seconds."""
        if retry_after is not None:
            self.order.returned(message, retry_after, self)
        self.retry_after[message] = retry_after

    def wait_in_copies(self) -> None:
        """Send the copies of messages that wait. A message whose copy SQS has taken is acknowledged."""
        taken, refused = self.returns.send_copies()
        if taken:
            now = self._clock()
            self._telemetry.waits_as_copy(max(now - (message.sent_at or now) for message in taken))
        for message in taken:
            self.retry_after[message] = None
        for message, seconds in refused:
            self.finish(message, self._without_copy(message, seconds))
        self.returns.flush()

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


class Driver(Protocol):
    """Claims messages of a batch ahead, or handles them. The last driver of a batch finishes each message."""

    def run(self, batch: Batch) -> None:
        """Do its part of the batch."""
