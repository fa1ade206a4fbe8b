"""Moves messages from the dead-letter queue back to the queue, with their attributes.

StartMessageMoveTask of SQS cannot filter messages. This module sends each message before it deletes it. If the process
stops in between, two copies remain, and the ledger accepts one of them.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from itertools import batched
from typing import TYPE_CHECKING

from intake_ledger.protocol.reasons import ReasonCode
from intake_ledger.protocol.row import Ordering, Status
from intake_ledger.requests.redriven import packed
from intake_ledger_cli.act import retrying
from intake_ledger_cli.act.rate_limit import RateLimit
from intake_ledger_cli.act.recording import RequestRecorder
from intake_ledger_cli.aws import reading
from intake_ledger_cli.aws.dead_letters import DeadLetterMessage, MessageFilter, NotMoved
from intake_ledger_cli.aws.drain import Drain
from intake_ledger_cli.aws.sending import OutgoingMessage, send
from intake_ledger_cli.errors import CliError

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

    from intake_ledger_cli.aws.clients import Aws
    from intake_ledger_cli.aws.deployed import DeployedPipeline


RECORDED = 100
"""Requests of one record. A record is written again with each ten messages."""


@dataclass(slots=True)
class RedriveResult:
    """The dead letters of a `retry`."""

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
    """Messages that do not match the filter. They stay."""
    of_others: Counter[str] = field(default_factory=Counter)
    """Messages of other pipelines, by pipeline. They stay."""
    removed: int = 0
    """Messages whose object was removed before it was processed. They cannot run, and stay."""
    closed: list[DeadLetterMessage] = field(default_factory=list)
    """Messages with other content than a rejected one of their identity. They stay: a person has to choose one by its
    ID.
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


def opened_by(
    aws: "Aws", deployed: "DeployedPipeline", message: DeadLetterMessage, *, dry_run: bool = False
) -> DeadLetterMessage:
    """The chosen dead letter as the copy of its identity's rejection, so that it opens the row with its content.

    A body may leave no room for the names of the message: they are read from it. If it has no attribute at all, the
    row is told its digest, and takes it for its copy. What has no row moves as it is.

    Raises:
        CliError: The row is not rejected.
        ClientError: DynamoDB refuses the request.

    """
    identity = message.identity
    if deployed.work.in_bucket or not identity or len(message.keys) != 1:
        return message
    [key] = message.keys
    entries = [one for one in reading.read_rows(aws.dynamodb, deployed, key) if one.row.version_id == identity]
    if not entries:
        return message
    [entry] = entries
    if entry.row.status is Status.REJECTED:
        if message.attributes:
            return message.opening(entry.row.rejected_fence or entry.row.fence)
        if not dry_run:
            from intake_ledger.aws.queues import body_digest  # noqa: PLC0415 - it imports the runtime's clients

            retrying.expect_copy(aws, deployed, entry, body_digest(message.body))
        return message
    if entry.row.status is Status.PROCESSED:
        raise CliError(
            f"{key}, identity {identity}, was processed meanwhile: send the content of the dead letter with an "
            f"identity of its own, then run intake-ledger dismiss --letter {message.id}"
        )
    if not message.attributes:
        # SQS moved it, and its row waits for it.
        return message
    raise CliError(f"{key}, identity {identity}, is not finished: wait, then run the command again")


@dataclass(slots=True)
class Redrive:
    """One pass over the dead-letter queue. `renew` is called before each step, and raises if another one took over."""

    client: "SQSClient"
    deployed: "DeployedPipeline"
    wanted: MessageFilter
    _: KW_ONLY
    rate: RateLimit
    dry_run: bool
    renew: Callable[[], None] = lambda: None
    recorder: RequestRecorder | None = None
    request_id: str = ""
    opening: Callable[[DeadLetterMessage], DeadLetterMessage] = lambda message: message
    outcome: RedriveResult = field(init=False)
    """Valid at any time, also after an interruption."""
    _drain: Drain = field(init=False)

    def __post_init__(self) -> None:
        self.outcome, self._drain = RedriveResult(self.dry_run), Drain(self.client, self.deployed)

    def run(self) -> RedriveResult:
        """Move the matching messages. Make the others visible again, also after an error.

        Raises:
            ClientError: SQS refuses a request.

        """
        self._begin()
        try:
            for messages in self._drain.receive():
                self.renew()
                self._handle(messages)
        except BaseException:
            self.outcome.interrupted = True
            raise
        finally:
            if not self.dry_run:
                self.outcome.unmoved = self.outcome.matched - self.outcome.moved - len(self.outcome.failed)
            self.outcome.overfull = self._drain.overfull
            self._drain.give_back()
        return self.outcome

    def _begin(self) -> None:
        answer = self.client.get_queue_attributes(
            QueueUrl=self.deployed.dead_letter_url, AttributeNames=["ApproximateNumberOfMessagesNotVisible"]
        )
        self.outcome.hidden_by_others = int(answer["Attributes"]["ApproximateNumberOfMessagesNotVisible"])

    def _handle(self, messages: Sequence[DeadLetterMessage]) -> None:
        out, matching = self.outcome, []
        for message in messages:
            if message.pipeline not in ("", self.deployed.name):
                out.of_others[message.pipeline] += 1
            elif message.reason_code == ReasonCode.REMOVED_UNPROCESSED and not self.wanted.selects:
                # The consumer has sent the copy back.
                out.removed += 1
            elif not self.wanted.matches(message):
                out.left += 1
            elif message.reason_code == ReasonCode.IDENTITY_REJECTED and self.wanted.letter is None:
                out.closed.append(message)
            else:
                out.matched += 1
                out.reasons[message.reason] += 1
                matching.append(message)
        matching = [self.opening(one) for one in matching]
        if self.dry_run:
            out.dead_letters += [one.without_body() for one in matching]
            return
        for batch in batched(matching, self.rate.batch_size):
            self.rate.wait_for(len(batch))
            self.renew()
            self._move(batch)

    def _move(self, messages: Sequence[DeadLetterMessage]) -> None:
        every_version = self.deployed.ordering is Ordering.EVERY_VERSION
        entries = {one.id: one.entry(every_version=every_version) for one in messages}
        unsent = {id_: entry for id_, entry in entries.items() if entry is not None}
        if self.recorder is not None:
            self.recorder.add([*unsent.values()])
        try:
            sent = self._send(messages)
            recorded = [one for one in sent if unsent.pop(one.id, None) is not None]
            self.outcome.recorded += len(recorded)
        finally:
            if self.recorder is not None:
                self.recorder.drop([*unsent.values()])
        if not sent:
            return
        self.outcome.moved += len(sent)
        self.outcome.undeleted += self._drain.delete(sent)

    def _send(self, messages: Sequence[DeadLetterMessage]) -> list[DeadLetterMessage]:
        """Send the messages to the queue. Returns those that were sent."""
        marked = [packed(self.request_id, one.attributes) if self.request_id else None for one in messages]
        answers = send(
            self.client,
            self.deployed.queue_url,
            [
                OutgoingMessage(one.body, one.attributes if mark is None else mark, one.group, self.request_id)
                for one, mark in zip(messages, marked, strict=True)
            ],
        )
        # The ID may leave no room for the body, and the fence of an opening none for the other attributes.
        for place, (one, mark) in enumerate(zip(messages, marked, strict=True)):
            fence = {name: value for name, value in one.attributes.items() if name == "rejected_fence"}
            fewer = [one.attributes] if mark is not None else []
            fewer += [fence] if fence and self.wanted.letter is not None else []
            for attributes in fewer:
                if answers[place] is not None:
                    plain = OutgoingMessage(one.body, attributes, one.group, self.request_id)
                    [answers[place]] = send(self.client, self.deployed.queue_url, [plain])
                    marked[place] = None
        if self.request_id:
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
