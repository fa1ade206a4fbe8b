"""Moves messages from the dead-letter queue back to the queue, with all that was known of them.

SQS's own StartMessageMoveTask cannot choose. Here each message is sent before it is deleted: a death in between leaves
two copies, never none, and the ledger lets one of them through.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from itertools import batched
from typing import TYPE_CHECKING

from intake_ledger_cli.dead_letters import DeadLetterMessage, MessageFilter
from intake_ledger_cli.drain import Drain
from intake_ledger_cli.rate_limit import RateLimit
from intake_ledger_cli.sending import OutgoingMessage, send

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

    from intake_ledger_cli.deployed import DeployedPipeline


@dataclass(slots=True)
class RedriveResult:
    """What became of the messages."""

    matched: int = 0
    moved: int = 0
    left: int = 0
    """They do not fit the filter, or are beyond the limit."""
    of_others: Counter[str] = field(default_factory=Counter)
    """By the name of the pipeline that set them aside; they stay where they are."""
    arrived_meanwhile: int = 0
    """They were sent after the beginning: failed again, most likely, and would go round for ever."""
    hidden_by_others: int = 0
    """Somebody else was looking at them at the beginning, or a redrive died within the last minutes."""
    undeleted: int = 0
    """They were moved, but their copies could not be deleted: moved again, they change nothing."""
    overfull: bool = False
    """SQS hides no more messages at once: the rest was not looked at."""
    reasons: Counter[str] = field(default_factory=Counter)
    """Of those that matched."""
    failed: list[tuple[DeadLetterMessage, str]] = field(default_factory=list)
    """They could not be sent, and why; they stay where they are."""
    matched_messages: list[DeadLetterMessage] = field(default_factory=list)
    """Those that matched, in a dry run."""


class Redrive:
    """One call of the command."""

    def __init__(
        self,
        client: "SQSClient",
        deployed: "DeployedPipeline",
        wanted: MessageFilter,
        *,
        rate: RateLimit,
        limit: int | None,
        dry_run: bool,
    ) -> None:
        self._client = client
        self._queue_url = deployed.queue_url
        self._dead_letter_url = deployed.dead_letter_url
        self._ours = ("", deployed.name)
        self._wanted = wanted
        self._rate = rate
        self._limit = limit
        self._dry_run = dry_run
        self._drain = Drain(client, deployed.dead_letter_url)
        self._moved: set[int] = set()
        self.outcome = RedriveResult()
        """True at any time, when the run was interrupted too."""

    def run(self) -> RedriveResult:
        """Move what is meant, and give back the rest, also when something goes wrong.

        Raises:
            ClientError: SQS refuses.

        """
        begun_at = self._begin()
        try:
            for messages in self._drain.receive():
                self._handle(messages, begun_at)
                if self._limit is not None and self.outcome.matched >= self._limit:
                    break
        finally:
            self.outcome.overfull = self._drain.overfull
            self._drain.give_back()
        return self.outcome

    def _begin(self) -> int:
        """The second in which this begins by SQS's clock, in epoch milliseconds: this machine's may be another."""
        answer = self._client.get_queue_attributes(
            QueueUrl=self._dead_letter_url, AttributeNames=["ApproximateNumberOfMessagesNotVisible"]
        )
        self.outcome.hidden_by_others = int(answer["Attributes"]["ApproximateNumberOfMessagesNotVisible"])
        return int(parsedate_to_datetime(answer["ResponseMetadata"]["HTTPHeaders"]["date"]).timestamp() * 1000)

    def _handle(self, messages: Sequence[DeadLetterMessage], begun_at: int) -> None:
        out, meant = self.outcome, []
        for message in messages:
            if message.pipeline not in self._ours:
                out.of_others[message.pipeline] += 1
            elif self._is_back(message, begun_at):
                out.arrived_meanwhile += 1
            elif not self._wanted.matches(message) or (self._limit is not None and out.matched >= self._limit):
                out.left += 1
            else:
                out.matched += 1
                out.reasons[message.reason] += 1
                meant.append(message)
        if self._dry_run:
            out.matched_messages += meant
            return
        for few in batched(meant, self._rate.batch_size):
            self._rate.wait_for(len(few))
            self._move(few)

    def _is_back(self, message: DeadLetterMessage, begun_at: int) -> bool:
        """Whether it came after the beginning: most likely it was moved a moment ago and has failed again."""
        if message.sent_at < begun_at:
            return False
        # The beginning is known to the second only: what was there before then is told from what is back by its body.
        return message.sent_at > begun_at + 999 or hash(message.body) in self._moved

    def _move(self, messages: Sequence[DeadLetterMessage]) -> None:
        answers = send(self._client, self._queue_url, [OutgoingMessage(one.body, one.attributes) for one in messages])
        sent = []
        for message, why in zip(messages, answers, strict=True):
            if why is None:
                sent.append(message)
            else:
                self.outcome.failed.append((message, why))
        if not sent:
            return
        self.outcome.moved += len(sent)
        self._moved.update(hash(one.body) for one in sent)
        self.outcome.undeleted += self._drain.delete(sent)
