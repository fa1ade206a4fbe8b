"""The steps of `retry`: it makes rows due, closes the circuit breaker, and moves messages from the dead-letter queue
back to the queue, with their attributes.

StartMessageMoveTask of SQS cannot filter messages. This module sends each message before it deletes it. If the process
stops in between, two copies remain, and the ledger accepts one of them.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import batched
from typing import Any
from urllib.parse import quote

from intake_ledger.events.parser import own_message
from intake_ledger.ledger.conditions import ConditionFailed, same_claim
from intake_ledger.ledger.dynamodb_table import LedgerTable
from intake_ledger.protocol.change import Origin
from intake_ledger.protocol.reasons import ReasonCode
from intake_ledger.protocol.row import Ordering, Status, review_partition, success_key
from intake_ledger.requests.redriven import packed
from intake_ledger_cli.act.sender import Request, Sender
from intake_ledger_cli.aws import reading
from intake_ledger_cli.aws.clients import Aws
from intake_ledger_cli.aws.dead_letters import DeadLetterMessage, MessageFilter, NotMoved
from intake_ledger_cli.aws.deployed import DeployedPipeline
from intake_ledger_cli.aws.drain import Drain
from intake_ledger_cli.aws.reading import ObjectRow
from intake_ledger_cli.errors import CliError


@dataclass(frozen=True, slots=True)
class InFlight:
    """Messages of the queue that are hidden: an attempt runs, or they return when their visibility timeout ends."""

    number: int
    visibility_seconds: int


@dataclass(slots=True)
class RetryResult:
    """Rows whose next attempt is due now."""

    retried: int = 0
    changed: int = 0
    """Rows that an attempt has changed meanwhile."""
    failed: int = 0
    """Messages that SQS refused. The objects are retried when they are due."""
    in_flight: InFlight | None = None
    """None for a stream, or if the caller may not read the queue."""


def in_flight(aws: Aws, deployed: DeployedPipeline) -> InFlight:
    """Read the hidden messages of the queue, and its visibility timeout."""
    answer: Any = aws.sqs.get_queue_attributes(
        QueueUrl=deployed.queue_url, AttributeNames=["ApproximateNumberOfMessagesNotVisible", "VisibilityTimeout"]
    )
    found = answer["Attributes"]
    return InFlight(int(found["ApproximateNumberOfMessagesNotVisible"]), int(found["VisibilityTimeout"]))


def close_breaker(aws: Aws, deployed: DeployedPipeline, now: int) -> None:
    """Ask all workers to close their circuit breakers. Each reads this at its next message, within five seconds."""
    place = success_key(deployed.name)
    aws.dynamodb.update_item(
        TableName=deployed.table,
        Key={"pk": {"S": place.pk}, "sk": {"S": place.sk}},
        UpdateExpression="SET #asked = :now",
        ExpressionAttributeNames={"#asked": "retry_now_at"},
        ExpressionAttributeValues={":now": {"N": str(now)}},
    )


def retry_rows(rows: Iterable[ObjectRow], now: int, result: RetryResult, sender: Sender) -> None:
    """Make the next attempt of each row due, and send a message for it. The older message finds a duplicate.

    An intake of messages gets none: only the message itself has its content, and its source delivers it again.

    Raises:
        CliError: See `Sender.check`.

    """
    aws, deployed = sender.aws, sender.deployed
    for batch in batched(rows, sender.rate.batch_size):
        sender.check()
        due = [one for one in batch if _is_due(aws, deployed, one, now)]
        result.changed += len(batch) - len(due)
        requests = [Request(wake_body(deployed, entry)) for entry in due if deployed.work.in_bucket]
        failed = sum(why is not None for why in sender.send(requests))
        result.failed += failed
        result.retried += len(due) - failed


def update_row(aws: Aws, deployed: DeployedPipeline, entry: ObjectRow, **changed: Any) -> bool:
    """Change columns of a row. False: an attempt has changed it since it was read."""
    row, table = entry.row, LedgerTable(aws.dynamodb, deployed.table)
    try:
        table.update(deployed.row_key(entry.key, row.identity), row, replace(row, **changed), same_claim(row))
    except ConditionFailed:
        return False
    return True


def await_source(aws: Aws, deployed: DeployedPipeline, entry: ObjectRow) -> None:
    """Let the row of a dismissed message take the same content, when its source sends it again.

    Raises:
        CliError: An attempt has changed the row since it was read.

    """
    partition = review_partition(deployed.name, deployed.row_key(entry.key, entry.row.identity))
    why = "`dismiss` has deleted its dead-letter message: send the message again, with the same content"
    code = ReasonCode.COPY_LOST.value
    if not update_row(aws, deployed, entry, needs_review=partition, reason=why, reason_code=code):
        raise CliError(f"{entry.key} has changed meanwhile: see intake-ledger inspect")


def _is_due(aws: Aws, deployed: DeployedPipeline, entry: ObjectRow, now: int) -> bool:
    """True if any message of the row starts an attempt now: its worker has died, or it waited and its time is set."""
    if entry.row.status is Status.PROCESSING:
        return not entry.row.is_live(now)
    return entry.row.status is Status.FAILED and update_row(aws, deployed, entry, retry_at=now)


def wake_body(deployed: DeployedPipeline, entry: ObjectRow) -> str:
    """The body of a message about the object or set of a row."""
    state = entry.row.state if deployed.ordering is Ordering.EVERY_VERSION else None
    return own_message(Origin.AUDIT, deployed.bucket, entry.key, state)


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
    aws: Aws, deployed: DeployedPipeline, message: DeadLetterMessage
) -> tuple[DeadLetterMessage, ObjectRow | None]:
    """The chosen dead letter as the copy of its identity's rejection, so that it opens the row with its content.

    A body may leave no room for the names of the message: they are read from it. What has no row moves as it is.

    Returns:
        The message, and the rejected row if the message has no attribute at all. The row has to be told its digest, so
        that it takes the message for its copy.

    Raises:
        CliError: The row is not rejected.

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


def dead_letter_of(deployed: DeployedPipeline, entry: ObjectRow) -> DeadLetterMessage:
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


def request_of(
    deployed: DeployedPipeline, message: DeadLetterMessage, request_id: str, *, is_chosen: bool = False
) -> Request:
    """The dead letter as a request that carries the ID of its operation. The ID may leave no room for the body, and the
    fence of an opening none for the other attributes: of a chosen message, the fence alone is enough.
    """
    marked = packed(request_id, message.attributes)
    fence = {name: value for name, value in message.attributes.items() if name == "rejected_fence"}
    forms = [message.attributes] if marked is None else [marked, message.attributes]
    forms += [fence] if is_chosen and fence else []
    entry = message.entry(every_version=deployed.ordering is Ordering.EVERY_VERSION)
    return Request(message.body, entry, forms, message.group)


@dataclass(slots=True)
class Redrive:
    """One pass over the dead-letter queue."""

    sender: Sender
    wanted: MessageFilter
    dry_run: bool = False
    outcome: RedriveResult = field(default_factory=RedriveResult)
    """Valid at any time, also after an interruption."""

    def run(self) -> RedriveResult:
        """Move the matching messages. Make the others visible again, also after an error.

        Raises:
            CliError: See `Sender.check` and `opened_by`.

        """
        out, sender = self.outcome, self.sender
        with Drain(sender.aws.sqs, sender.deployed) as drain:
            out.hidden_by_others = drain.hidden()
            out.interrupted = True
            try:
                for messages in drain.receive():
                    sender.renew()
                    matching = self._matching(messages)
                    if self.dry_run:
                        out.dead_letters += [one.without_body() for one, _ in matching]
                    else:
                        for batch in batched(matching, sender.rate.batch_size):
                            self._move(batch, drain)
                out.interrupted = False
            finally:
                if not self.dry_run:
                    out.unmoved = out.matched - out.moved - len(out.failed)
                out.overfull = drain.overfull
        return out

    def _matching(self, messages: Sequence[DeadLetterMessage]) -> list[tuple[DeadLetterMessage, ObjectRow | None]]:
        """The messages that match, each with the row that has to be told its digest. Counts the others."""
        out, matching = self.outcome, []
        for message in messages:
            if message.pipeline not in ("", self.sender.deployed.name):
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
        if self.wanted.letter is None:
            return [(one, None) for one in matching]
        return [opened_by(self.sender.aws, self.sender.deployed, one) for one in matching]

    def _move(self, opened: Sequence[tuple[DeadLetterMessage, ObjectRow | None]], drain: Drain) -> None:
        """Send messages, and delete those that were sent. A row with a message is told its digest before, and has its
        former one again if the message was not sent.
        """
        from intake_ledger.aws.queues import body_digest  # noqa: PLC0415 - it imports the runtime's clients

        out, sender, sent = self.outcome, self.sender, list[DeadLetterMessage]()
        told = [(entry, body_digest(one.body)) for one, entry in opened if entry is not None]
        for entry, digest in told:
            if not update_row(sender.aws, sender.deployed, entry, bare_copy_digest=digest):
                raise CliError(f"{entry.key} has changed meanwhile: run the command again")
        try:
            chosen = self.wanted.letter is not None
            requests = [request_of(sender.deployed, one, sender.request_id, is_chosen=chosen) for one, _ in opened]
            answers = sender.send(requests)
            sent = [one for (one, _), why in zip(opened, answers, strict=True) if why is None]
        finally:
            for entry, digest in [] if sent else told:
                tried = replace(entry, row=replace(entry.row, bare_copy_digest=digest))
                update_row(sender.aws, sender.deployed, tried, bare_copy_digest=entry.row.bare_copy_digest)
        out.failed += [NotMoved(one.id, one.keys, why) for (one, _), why in zip(opened, answers, strict=True) if why]
        out.unmarked = sender.unmarked
        out.moved += len(sent)
        if sent:
            out.undeleted += drain.delete(sent)
