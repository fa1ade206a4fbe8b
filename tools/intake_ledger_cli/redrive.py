"""Moves messages from the dead-letter queue back to the queue, with their attributes.

StartMessageMoveTask of SQS cannot filter messages. This module sends each message before it deletes it. If the process
stops in between, two copies remain, and the ledger accepts one of them.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from itertools import batched
from typing import TYPE_CHECKING

from intake_ledger.protocol import Ordering, ReasonCode
from intake_ledger.requests import packed
from intake_ledger_cli.dead_letters import DeadLetterMessage, MessageFilter, NotMoved
from intake_ledger_cli.drain import Drain
from intake_ledger_cli.rate_limit import RateLimit
from intake_ledger_cli.recording import RequestRecorder
from intake_ledger_cli.sending import OutgoingMessage, send

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

    from intake_ledger_cli.deployed import DeployedPipeline


RECORDED = 100
"""Requests of one record. A record is written again with each ten messages."""


@dataclass(slots=True)
class RedriveResult:
    """The document of `redrive`."""

    dry_run: bool = False
    matched: int = 0
    moved: int = 0
    unmarked: int = 0
    """Messages among them that do not carry the ID of the operation. A stop does not reach them."""
    unmoved: int = 0
    """Messages that match and were not moved, because the call was interrupted. They stay."""
    interrupted: bool = False
    """True if an error, a person or a stop has ended the call."""
    recorded: int = 0
    """Messages among them that are recorded until an attempt begins. The others name no rejection."""
    left: int = 0
    """Messages that do not match the filter, or that exceed the limit. They stay."""
    of_others: Counter[str] = field(default_factory=Counter)
    """Messages of other pipelines, by pipeline. They stay."""
    removed: int = 0
    """Messages whose object was removed before it was processed. They cannot run, and stay."""
    arrived_meanwhile: int = 0
    """Messages that were sent after the start. They stay. Most likely they failed again, and would be moved in an
    endless loop.
    """
    hidden_by_others: int = 0
    """Messages that were hidden at the start: another redrive is running, or was killed in the last 15 minutes."""
    undeleted: int = 0
    """Messages that were moved but not deleted. The ledger ignores the second copy."""
    overfull: bool = False
    """True if SQS refuses more messages in flight, so that the remaining messages were not received."""
    reasons: Counter[str] = field(default_factory=Counter)
    """The reasons of the matching messages."""
    failed: list[NotMoved] = field(default_factory=list)
    dead_letters: list[DeadLetterMessage] = field(default_factory=list)
    """The matching messages of a dry run."""


class Redrive:
    """One run of the command. `renew` is called before each step, and raises an error if another redrive took over."""

    def __init__(
        self,
        client: "SQSClient",
        deployed: "DeployedPipeline",
        wanted: MessageFilter,
        *,
        rate: RateLimit,
        limit: int | None,
        dry_run: bool,
        renew: Callable[[], None] = lambda: None,
        recorder: RequestRecorder | None = None,
        request_id: str = "",
    ) -> None:
        self._request_id = request_id
        self._client = client
        self._queue_url = deployed.queue_url
        self._dead_letter_url = deployed.dead_letter_url
        self._ours = ("", deployed.name)
        self._wanted = wanted
        self._rate = rate
        self._limit = limit
        self._dry_run = dry_run
        self._renew = renew
        self._recorder = recorder
        self._every_version = deployed.ordering is Ordering.EVERY_VERSION
        self._drain = Drain(client, deployed.dead_letter_url)
        self._moved: set[int] = set()
        self.outcome = RedriveResult(dry_run)
        """Valid at any time, also after an interruption."""

    def run(self) -> RedriveResult:
        """Move the matching messages. Make the others visible again, also after an error.

        Raises:
            ClientError: SQS refuses a request.

        """
        begun_at = self._begin()
        try:
            for messages in self._drain.receive():
                self._renew()
                self._handle(messages, begun_at)
                if self._limit is not None and self.outcome.matched >= self._limit:
                    break
        except BaseException:
            self.outcome.interrupted = True
            raise
        finally:
            if not self._dry_run:
                self.outcome.unmoved = self.outcome.matched - self.outcome.moved - len(self.outcome.failed)
            self.outcome.overfull = self._drain.overfull
            self._drain.give_back()
        return self.outcome

    def _begin(self) -> int:
        """Return the current second of SQS's clock in epoch milliseconds, because this machine's clock may differ."""
        answer = self._client.get_queue_attributes(
            QueueUrl=self._dead_letter_url, AttributeNames=["ApproximateNumberOfMessagesNotVisible"]
        )
        self.outcome.hidden_by_others = int(answer["Attributes"]["ApproximateNumberOfMessagesNotVisible"])
        return int(parsedate_to_datetime(answer["ResponseMetadata"]["HTTPHeaders"]["date"]).timestamp() * 1000)

    def _handle(self, messages: Sequence[DeadLetterMessage], begun_at: int) -> None:
        out, matching = self.outcome, []
        for message in messages:
            if message.pipeline not in self._ours:
                out.of_others[message.pipeline] += 1
            elif message.reason_code == ReasonCode.REMOVED_UNPROCESSED and not self._wanted.selects:
                # The consumer has sent the copy back.
                out.removed += 1
            elif self._is_back(message, begun_at):
                out.arrived_meanwhile += 1
            elif not self._wanted.matches(message) or (self._limit is not None and out.matched >= self._limit):
                out.left += 1
            else:
                out.matched += 1
                out.reasons[message.reason] += 1
                matching.append(message)
        if self._dry_run:
            out.dead_letters += matching
            return
        for batch in batched(matching, self._rate.batch_size):
            self._rate.wait_for(len(batch))
            self._renew()
            self._move(batch)

    def _is_back(self, message: DeadLetterMessage, begun_at: int) -> bool:
        """True if the message was sent after the start. Most likely it was moved, and failed again."""
        if message.sent_at < begun_at:
            return False
        # The start is only known to the second. A message of that second is new if its body was moved before.
        return message.sent_at > begun_at + 999 or hash(message.body) in self._moved

    def _move(self, messages: Sequence[DeadLetterMessage]) -> None:
        entries = {one.id: one.entry(every_version=self._every_version) for one in messages}
        unsent = {id_: entry for id_, entry in entries.items() if entry is not None}
        if self._recorder is not None:
            self._recorder.add([*unsent.values()])
        try:
            sent = self._send(messages)
            recorded = [one for one in sent if unsent.pop(one.id, None) is not None]
            self.outcome.recorded += len(recorded)
        finally:
            if self._recorder is not None:
                self._recorder.drop([*unsent.values()])
        if not sent:
            return
        self.outcome.moved += len(sent)
        self._moved.update(hash(one.body) for one in sent)
        self.outcome.undeleted += self._drain.delete(sent)

    def _send(self, messages: Sequence[DeadLetterMessage]) -> list[DeadLetterMessage]:
        """Send the messages to the queue. Returns those that were sent."""
        marked = [packed(self._request_id, one.attributes) if self._request_id else None for one in messages]
        answers = send(
            self._client,
            self._queue_url,
            [
                OutgoingMessage(one.body, one.attributes if mark is None else mark, one.group)
                for one, mark in zip(messages, marked, strict=True)
            ],
        )
        # The ID may leave no room for the body.
        for place, (one, mark) in enumerate(zip(messages, marked, strict=True)):
            if answers[place] is not None and mark is not None:
                [answers[place]] = send(
                    self._client, self._queue_url, [OutgoingMessage(one.body, one.attributes, one.group)]
                )
                marked[place] = None
        if self._request_id:
            self.outcome.unmarked += sum(
                why is None and mark is None for why, mark in zip(answers, marked, strict=True)
            )
        sent = []
        for message, why in zip(messages, answers, strict=True):
            if why is None:
                sent.append(message)
            else:
                self.outcome.failed.append(NotMoved(message.id, message.keys, why))
        return sent
