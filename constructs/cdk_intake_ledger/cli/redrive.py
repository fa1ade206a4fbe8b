"""Moves messages from the dead-letter queue back to the queue, with all that was known of them.

SQS's own StartMessageMoveTask cannot choose. Here each message is sent before it is deleted: a death in between leaves
two copies, never none, and the ledger lets one of them through. What does not fit the filter stays hidden until the
end: given back earlier, it would be received again and again.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from itertools import batched
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from cdk_intake_ledger.cli.letters import Letter, Wanted, letter_of
from cdk_intake_ledger.cli.pace import MOST_TOGETHER, Rate
from cdk_intake_ledger.cli.sending import Outgoing, send

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

    from cdk_intake_ledger.cli.deployed import Deployed

HIDDEN_SECONDS = 900
"""How long a message stays hidden when this process dies before it gives it back. One that comes back earlier than the
end is hidden again."""
WAIT_SECONDS = 1  # a long poll asks all of SQS's servers: an empty answer means an empty queue


@dataclass(slots=True)
class Redriven:
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
    failed: list[tuple[Letter, str]] = field(default_factory=list)
    """They could not be sent, and why; they stay where they are."""
    letters: list[Letter] = field(default_factory=list)
    """Those that matched, in a dry run."""


class Redrive:
    """One call of the command."""

    def __init__(
        self,
        client: "SQSClient",
        deployed: "Deployed",
        wanted: Wanted,
        *,
        rate: Rate,
        limit: int | None,
        dry_run: bool,
        former_names: Collection[str] = (),
    ) -> None:
        """Prepare it. `former_names` are pipelines whose messages are this one's now, which was renamed since."""
        self._client = client
        self._queue_url = deployed.queue_url
        self._dead_letter_url = deployed.dead_letter_url
        self._ours = {"", deployed.name, *former_names}
        self._wanted = wanted
        self._rate = rate
        self._limit = limit
        self._dry_run = dry_run
        self._kept: dict[str, str] = {}
        self._moved: set[int] = set()
        self.outcome = Redriven()
        """True at any time, when the run was interrupted too."""

    def run(self) -> Redriven:
        """Move what is meant, and give back the rest, also when something goes wrong.

        Raises:
            ClientError: SQS refuses.

        """
        begun_at = self._begin()
        try:
            for letters in self._receive():
                self._handle(letters, begun_at)
                if self._limit is not None and self.outcome.matched >= self._limit:
                    break
        finally:
            self._give_back(list(self._kept.values()))
        return self.outcome

    def _begin(self) -> int:
        """The second in which this begins by SQS's clock, in epoch milliseconds: this machine's may be another."""
        answer = self._client.get_queue_attributes(
            QueueUrl=self._dead_letter_url, AttributeNames=["ApproximateNumberOfMessagesNotVisible"]
        )
        self.outcome.hidden_by_others = int(answer["Attributes"]["ApproximateNumberOfMessagesNotVisible"])
        return int(parsedate_to_datetime(answer["ResponseMetadata"]["HTTPHeaders"]["date"]).timestamp() * 1000)

    def _receive(self) -> Iterator[list[Letter]]:
        """Until there are no more, those that were not seen yet."""
        while True:
            try:
                answer = self._client.receive_message(
                    QueueUrl=self._dead_letter_url,
                    MaxNumberOfMessages=MOST_TOGETHER,
                    MessageAttributeNames=["All"],
                    AttributeNames=["SentTimestamp"],
                    VisibilityTimeout=HIDDEN_SECONDS,
                    WaitTimeSeconds=WAIT_SECONDS,
                )
            except ClientError as error:
                if not error.response["Error"].get("Code", "").endswith("OverLimit"):
                    raise
                self.outcome.overfull = True
                return
            letters = [letter_of(message) for message in answer.get("Messages", ())]
            if not letters:
                return
            fresh = [letter for letter in letters if letter.id not in self._kept]
            self._kept |= {letter.id: letter.receipt_handle for letter in letters}
            yield fresh

    def _handle(self, letters: Sequence[Letter], begun_at: int) -> None:
        out, meant = self.outcome, []
        for letter in letters:
            if letter.pipeline not in self._ours:
                out.of_others[letter.pipeline] += 1
            elif self._is_back(letter, begun_at):
                out.arrived_meanwhile += 1
            elif not self._wanted.fits(letter) or (self._limit is not None and out.matched >= self._limit):
                out.left += 1
            else:
                out.matched += 1
                out.reasons[letter.reason] += 1
                meant.append(letter)
        if self._dry_run:
            out.letters += meant
            return
        for few in batched(meant, self._rate.together):
            self._rate.take(len(few))
            self._move(few)

    def _is_back(self, letter: Letter, begun_at: int) -> bool:
        """Whether it came after the beginning: most likely it was moved a moment ago and has failed again."""
        if letter.sent_at < begun_at:
            return False
        # The beginning is known to the second only: what was there before then is told from what is back by its body.
        return letter.sent_at > begun_at + 999 or hash(letter.body) in self._moved

    def _move(self, letters: Sequence[Letter]) -> None:
        answers = send(self._client, self._queue_url, [Outgoing(one.body, one.attributes) for one in letters])
        sent = []
        for letter, why in zip(letters, answers, strict=True):
            if why is None:
                sent.append(letter)
            else:
                self.outcome.failed.append((letter, why))
        if not sent:
            return
        self.outcome.moved += len(sent)
        self._moved.update(hash(one.body) for one in sent)
        entries: Any = [{"Id": str(place), "ReceiptHandle": one.receipt_handle} for place, one in enumerate(sent)]
        answer = self._client.delete_message_batch(QueueUrl=self._dead_letter_url, Entries=entries)
        self.outcome.undeleted += len(answer.get("Failed", ()))
        for one in answer.get("Successful", ()):
            del self._kept[sent[int(one["Id"])].id]

    def _give_back(self, receipt_handles: Sequence[str]) -> None:
        for few in batched(receipt_handles, MOST_TOGETHER):
            entries: Any = [
                {"Id": str(place), "ReceiptHandle": handle, "VisibilityTimeout": 0} for place, handle in enumerate(few)
            ]
            self._client.change_message_visibility_batch(QueueUrl=self._dead_letter_url, Entries=entries)
