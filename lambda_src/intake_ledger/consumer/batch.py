"""The messages of one invocation, and the decision about each."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from threading import Event

from intake_ledger.aws import LambdaContext
from intake_ledger.consumer.returns import Returns
from intake_ledger.consumer.services import Services
from intake_ledger.events import Message
from intake_ledger.ledger import Claim
from intake_ledger.processor import Commit
from intake_ledger.protocol import Ruling, lease_length

RESERVE_SECONDS = 3.0
"""Time for a claim, a commit and the answer to Lambda, in addition to the processor's own time."""


@dataclass(frozen=True, slots=True)
class HeldCommit:
    """The commit of a message's only change. The processor has finished, and the row does not show it yet."""

    message: Message
    claim: Claim
    commit: Commit
    since: int
    """When the processor finished, in epoch milliseconds."""
    duration_ms: int


class Batch:
    """The messages of one invocation, in the order in which they are handled."""

    def __init__(self, messages: Sequence[Message], context: LambdaContext, services: Services) -> None:
        self.messages = messages
        self.time_left_ms = context.get_remaining_time_in_millis
        self.returns = Returns(
            services.queues,
            clock=services.clock,
            time_left_ms=self.time_left_ms,
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
        return self._settings.commit_together and self._settings.concurrency == 1 and self.is_claimed(message)

    def finish(self, message: Message, retry_after: float | None) -> None:
        """Acknowledge the message, or return it to the queue for these seconds."""
        if retry_after is not None:
            self.returns.add(message, retry_after)
        self.retry_after[message] = retry_after

    def response(self) -> dict[str, list[dict[str, str]]]:
        """The answer to Lambda. It names each message that must not be deleted once."""
        failures = dict.fromkeys(message.id for message in self.messages if self.retry_after[message] is not None)
        return {"batchItemFailures": [{"itemIdentifier": identifier} for identifier in failures]}

    @property
    def lease_ms(self) -> int:
        """The length of a lease: the rest of the invocation, and the difference that two clocks may have."""
        return lease_length(self.time_left_ms(), self._settings.clock_skew_seconds * 1000)

    def has_time(self, reserve_seconds: float) -> bool:
        """True if a processor may start now and have its whole time."""
        return not self.stopping.is_set() and self.spare_ms(reserve_seconds) >= 0

    def spare_ms(self, reserve_seconds: float) -> float:
        """Milliseconds that are left if one more processor takes all of its time."""
        return self.time_left_ms() - (self._settings.processing_timeout_seconds + reserve_seconds) * 1000
