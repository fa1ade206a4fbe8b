"""Moves the messages of a former pipeline's queue to its successor's queue.

Each message is sent before it is deleted: a death in between leaves two copies, never none, and the ledger lets one of
them through.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import batched
from typing import TYPE_CHECKING

from intake_ledger_cli.dead_letters import DeadLetterMessage
from intake_ledger_cli.drain import Drain
from intake_ledger_cli.rate_limit import RateLimit
from intake_ledger_cli.renaming import Renaming, rename_attributes
from intake_ledger_cli.sending import OutgoingMessage, send

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient


@dataclass(slots=True)
class TransferResult:
    """Counted messages."""

    moved: int = 0
    hidden: int = 0
    """Hidden when this began: a worker has them, they wait for a later attempt, or another command looks at them."""
    of_others: Counter[str] = field(default_factory=Counter)
    """By the name of the pipeline that set them aside; they stay."""
    of_other_buckets: Counter[str] = field(default_factory=Counter)
    """By bucket: the successor takes nothing from there, so they stay."""
    undeleted: int = 0
    """They were moved, but their copies could not be deleted: moved again, they change nothing."""
    overfull: bool = False
    """SQS hides no more messages at once: the rest was not looked at."""
    failed: list[tuple[DeadLetterMessage, str]] = field(default_factory=list)
    """They could not be sent, and why; they stay."""

    @property
    def complete(self) -> bool:
        """True if another call has nothing to move."""
        return not (self.hidden or self.overfull or self.failed)


class Transfer:
    """One queue in one call of the command."""

    def __init__(
        self,
        client: "SQSClient",
        source: str,
        target: str,
        renaming: Renaming,
        *,
        rate: RateLimit,
        dry_run: bool,
    ) -> None:
        self._client = client
        self._source = source
        self._target = target
        self._renaming = renaming
        self._rate = rate
        self._dry_run = dry_run
        self._drain = Drain(client, source)
        self.outcome = TransferResult()
        """True at any time, when the run was interrupted too."""

    def run(self) -> TransferResult:
        """Move the messages that the successor can take. Show the others again, also after an error.

        Raises:
            ClientError: SQS refuses.

        """
        told = self._client.get_queue_attributes(
            QueueUrl=self._source, AttributeNames=["ApproximateNumberOfMessagesNotVisible"]
        )
        self.outcome.hidden = int(told["Attributes"]["ApproximateNumberOfMessagesNotVisible"])
        try:
            for messages in self._drain.receive():
                movable = [one for one in messages if self._is_movable(one)]
                if self._dry_run:
                    self.outcome.moved += len(movable)
                    continue
                for few in batched(movable, self._rate.batch_size):
                    self._rate.wait_for(len(few))
                    self._move(few)
        finally:
            self.outcome.overfull = self._drain.overfull
            self._drain.give_back()
        return self.outcome

    def _is_movable(self, message: DeadLetterMessage) -> bool:
        if self._source == self._target and message.pipeline != self._renaming.former:
            return False  # where it belongs already
        if message.pipeline not in ("", self._renaming.former, self._renaming.name):
            self.outcome.of_others[message.pipeline] += 1
            return False
        buckets = message.buckets
        if buckets and self._renaming.bucket not in buckets:
            self.outcome.of_other_buckets.update(buckets)
            return False
        return True

    def _move(self, messages: Sequence[DeadLetterMessage]) -> None:
        former, name = self._renaming.former, self._renaming.name
        copies = [OutgoingMessage(one.body, rename_attributes(one.attributes, former, name)) for one in messages]
        answers = send(self._client, self._target, copies)
        sent = [message for message, why in zip(messages, answers, strict=True) if why is None]
        self.outcome.failed += [(one, why) for one, why in zip(messages, answers, strict=True) if why is not None]
        if sent:
            self.outcome.moved += len(sent)
            self.outcome.undeleted += self._drain.delete(sent)
