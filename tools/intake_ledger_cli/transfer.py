"""Moves the messages of a former pipeline's queue to its successor's queue.

Each message is sent before it is deleted. If the process stops in between, two copies remain, and the ledger accepts
one of them.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import batched
from typing import TYPE_CHECKING, Any

from intake_ledger.requests import packed
from intake_ledger_cli.dead_letters import DeadLetterMessage, NotMoved
from intake_ledger_cli.drain import Drain
from intake_ledger_cli.rate_limit import RateLimit
from intake_ledger_cli.renaming import Renaming, rename_attributes
from intake_ledger_cli.sending import OutgoingMessage, send

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient


@dataclass(slots=True)
class TransferResult:
    """Counted messages of a queue."""

    moved: int = 0
    hidden: int = 0
    """Messages that were hidden at the start: a worker has them, they wait for a later attempt, or another command
    holds them.
    """
    of_others: Counter[str] = field(default_factory=Counter)
    """Messages of other pipelines, by pipeline. They stay."""
    of_other_buckets: Counter[str] = field(default_factory=Counter)
    """Messages about other buckets, by bucket. The successor does not accept them, so they stay."""
    undeleted: int = 0
    """Messages that were moved but not deleted. The ledger ignores the second copy."""
    overfull: bool = False
    """True if SQS refuses more messages in flight, so that the remaining messages were not received."""
    failed: list[NotMoved] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        """True if another call has nothing to move."""
        return not (self.hidden or self.overfull or self.failed)


class Transfer:
    """The transfer of one queue."""

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
        """Valid at any time, also after an interruption."""

    def run(self) -> TransferResult:
        """Move the messages that the successor accepts. Make the others visible again, also after an error.

        Raises:
            ClientError: SQS refuses a request.

        """
        answer = self._client.get_queue_attributes(
            QueueUrl=self._source, AttributeNames=["ApproximateNumberOfMessagesNotVisible"]
        )
        self.outcome.hidden = int(answer["Attributes"]["ApproximateNumberOfMessagesNotVisible"])
        try:
            for messages in self._drain.receive():
                movable = [one for one in messages if self._is_movable(one)]
                if self._dry_run:
                    self.outcome.moved += len(movable)
                    continue
                for batch in batched(movable, self._rate.batch_size):
                    self._rate.wait_for(len(batch))
                    self._move(batch)
        finally:
            self.outcome.overfull = self._drain.overfull
            self._drain.give_back()
        return self.outcome

    def _is_movable(self, message: DeadLetterMessage) -> bool:
        if self._source == self._target and message.pipeline != self._renaming.former:
            return False  # the message is already in the right queue
        if message.pipeline not in ("", self._renaming.former, self._renaming.name):
            self.outcome.of_others[message.pipeline] += 1
            return False
        buckets = message.buckets
        if buckets and self._renaming.bucket not in buckets:
            self.outcome.of_other_buckets.update(buckets)
            return False
        return True

    def _attributes(self, message: DeadLetterMessage) -> dict[str, Any]:
        """The attributes with the new name. A redriven message keeps the ID by which its operation is stopped."""
        renamed = rename_attributes(message.attributes, self._renaming.former, self._renaming.name)
        return (packed(message.redriven_by, renamed) if message.redriven_by else None) or renamed

    def _move(self, messages: Sequence[DeadLetterMessage]) -> None:
        copies = [OutgoingMessage(one.body, self._attributes(one)) for one in messages]
        answers = send(self._client, self._target, copies)
        sent = [message for message, why in zip(messages, answers, strict=True) if why is None]
        self.outcome.failed += [
            NotMoved(one.id, one.keys, why) for one, why in zip(messages, answers, strict=True) if why is not None
        ]
        if sent:
            self.outcome.moved += len(sent)
            self.outcome.undeleted += self._drain.delete(sent)
