"""Moves messages from the dead-letter queue back to the queue, with their attributes.

StartMessageMoveTask of SQS cannot filter messages. This module sends each message before it deletes it. If the process
stops in between, two copies remain, and the ledger accepts one of them.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import batched
from typing import TYPE_CHECKING
from urllib.parse import quote

from intake_ledger.protocol.reasons import ReasonCode
from intake_ledger.protocol.row import Ordering, Status
from intake_ledger.requests.redriven import packed
from intake_ledger_cli.act.retrying import update_row, wake_body
from intake_ledger_cli.act.sender import Request, Sender
from intake_ledger_cli.aws import reading
from intake_ledger_cli.aws.dead_letters import DeadLetterMessage, MessageFilter, NotMoved
from intake_ledger_cli.aws.drain import Drain
from intake_ledger_cli.errors import CliError

if TYPE_CHECKING:
    from intake_ledger_cli.aws.clients import Aws
    from intake_ledger_cli.aws.deployed import DeployedPipeline
    from intake_ledger_cli.aws.reading import ObjectRow


@dataclass(slots=True)
class RedriveResult:
    """The dead letters of a `retry`."""

    matched: int = 0
    moved: int = 0
    unmarked: int = 0
    """Messages among them that do not carry the ID of the operation. A stop does not reach them."""
    unmoved: int = 0
    """Messages that match and were not moved, because the call was interrupted. They stay."""
    interrupted: bool = False
    """True if an error, a person or a stop has ended the call."""
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
    aws: "Aws", deployed: "DeployedPipeline", message: DeadLetterMessage
) -> tuple[DeadLetterMessage, "ObjectRow | None"]:
    """The chosen dead letter as the copy of its identity's rejection, so that it opens the row with its content.

    A body may leave no room for the names of the message: they are read from it. What has no row moves as it is.

    Returns:
        The message, and the rejected row if the message has no attribute at all. The row has to be told its digest, so
        that it takes the message for its copy.

    Raises:
        CliError: The row is not rejected.
        ClientError: DynamoDB refuses the request.

    """
    identity = message.identity
    if deployed.work.in_bucket or not identity or len(message.keys) != 1:
        return message, None
    [key] = message.keys
    entries = [one for one in reading.read_rows(aws.dynamodb, deployed, key) if one.row.version_id == identity]
    if not entries:
        return message, None
    [entry] = entries
    if entry.row.status is Status.REJECTED:
        if message.attributes:
            return message.opening(entry.row.rejected_fence or entry.row.fence), None
        return message, entry
    if entry.row.status is Status.PROCESSED:
        raise CliError(
            f"{key}, identity {identity}, was processed meanwhile: send the content of the dead letter with an "
            f"identity of its own, then run intake-ledger dismiss --letter {message.id}"
        )
    if not message.attributes:
        # SQS moved it, and its row waits for it.
        return message, None
    raise CliError(f"{key}, identity {identity}, is not finished: wait, then run the command again")


def dead_letter_of(deployed: "DeployedPipeline", entry: "ObjectRow") -> DeadLetterMessage:
    """The message that the rejection had, as far as the row tells. The ledger accepts one copy of it."""
    from intake_ledger.aws.queues import taken_text  # noqa: PLC0415 - it imports the runtime's clients

    row = entry.row
    given = {
        "reason": row.reason,
        "reason_code": row.reason_code,
        "pipeline": deployed.name,
        "bucket": deployed.bucket,
        "key": quote(entry.key),
        "version_id": row.version_id,
        "attempts": row.attempts,
        "first_claimed_at": row.first_claimed_at,
        "rejected_fence": row.rejected_fence or row.fence,
    }
    attributes = {
        name: {"DataType": "Number" if isinstance(value, int) else "String", "StringValue": taken_text(str(value))}
        for name, value in given.items()
        if value not in (None, "")
    }
    return DeadLetterMessage("", wake_body(deployed, entry), attributes, "", row.updated_at)


def request_of(deployed: "DeployedPipeline", message: DeadLetterMessage, request_id: str) -> Request:
    """The dead letter as a request that carries the ID of its operation. The ID may leave no room for the body, and the
    fence of an opening none for the other attributes.
    """
    marked = packed(request_id, message.attributes)
    fence = {name: value for name, value in message.attributes.items() if name == "rejected_fence"}
    forms = [one for one in (marked, message.attributes, fence) if one is not None]
    entry = message.entry(every_version=deployed.ordering is Ordering.EVERY_VERSION)
    return Request(message.body, entry, forms, message.group)


@dataclass(slots=True)
class Redrive:
    """One pass over the dead-letter queue."""

    aws: "Aws"
    deployed: "DeployedPipeline"
    wanted: MessageFilter
    renew: Callable[[], None]
    """Called before each step. It raises if another one took over."""
    sender: Sender | None = None
    """Sends the matching messages. None: nothing is changed."""
    outcome: RedriveResult = field(init=False)
    """Valid at any time, also after an interruption."""
    _drain: Drain = field(init=False)

    def __post_init__(self) -> None:
        self.outcome, self._drain = RedriveResult(), Drain(self.aws.sqs, self.deployed)

    def run(self) -> RedriveResult:
        """Move the matching messages. Make the others visible again, also after an error.

        Raises:
            CliError: See `Sender.check` and `opened_by`.
            ClientError: AWS refuses a request.

        """
        out = self.outcome
        answer = self.aws.sqs.get_queue_attributes(
            QueueUrl=self.deployed.dead_letter_url, AttributeNames=["ApproximateNumberOfMessagesNotVisible"]
        )
        out.hidden_by_others = int(answer["Attributes"]["ApproximateNumberOfMessagesNotVisible"])
        try:
            for messages in self._drain.receive():
                self.renew()
                self._handle(messages)
        except BaseException:
            out.interrupted = True
            raise
        finally:
            if self.sender is not None:
                out.unmoved = out.matched - out.moved - len(out.failed)
            out.overfull = self._drain.overfull
            self._drain.give_back()
        return out

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
        opened: list[tuple[DeadLetterMessage, ObjectRow | None]] = [(one, None) for one in matching]
        if self.wanted.letter is not None:
            opened = [opened_by(self.aws, self.deployed, one) for one in matching]
        if self.sender is None:
            out.dead_letters += [one.without_body() for one, _ in opened]
            return
        for batch in batched(opened, self.sender.rate.batch_size):
            self._move(self.sender, batch)

    def _move(self, sender: Sender, opened: Sequence[tuple[DeadLetterMessage, "ObjectRow | None"]]) -> None:
        """Send messages, and delete those that were sent. A row with a message is told its digest before, and has its
        former one again if the message was not sent.
        """
        from intake_ledger.aws.queues import body_digest  # noqa: PLC0415 - it imports the runtime's clients

        out, sent = self.outcome, list[DeadLetterMessage]()
        told = [(entry, body_digest(one.body)) for one, entry in opened if entry is not None]
        for entry, digest in told:
            if not update_row(self.aws, self.deployed, entry, bare_copy_digest=digest):
                raise CliError(f"{entry.key} has changed meanwhile: run the command again")
        try:
            answers = sender.send([request_of(self.deployed, one, sender.request_id) for one, _ in opened])
            sent = [one for (one, _), why in zip(opened, answers, strict=True) if why is None]
        finally:
            for entry, digest in [] if sent else told:
                tried = replace(entry, row=replace(entry.row, bare_copy_digest=digest))
                update_row(self.aws, self.deployed, tried, bare_copy_digest=entry.row.bare_copy_digest)
        out.failed += [NotMoved(one.id, one.keys, why) for (one, _), why in zip(opened, answers, strict=True) if why]
        out.unmarked = sender.unmarked
        out.moved += len(sent)
        if sent:
            out.undeleted += self._drain.delete(sent)
