"""Ends waits: of the circuit breaker, and of objects whose next attempt is not due yet."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import batched
from typing import Any

from intake_ledger.events.parser import own_message
from intake_ledger.ledger.conditions import ConditionFailed, same_claim
from intake_ledger.ledger.dynamodb_table import LedgerTable
from intake_ledger.protocol.change import Origin
from intake_ledger.protocol.reasons import ReasonCode
from intake_ledger.protocol.row import Ordering, Row, Status, review_partition, success_key
from intake_ledger_cli.act.sender import Request, Sender
from intake_ledger_cli.aws.clients import Aws
from intake_ledger_cli.aws.deployed import DeployedPipeline
from intake_ledger_cli.aws.reading import ObjectRow
from intake_ledger_cli.aws.sending import OutgoingMessage, send
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
        due = [one for one in batch if _has_lapsed(one.row, now) or _make_due(aws, deployed, one, now)]
        result.changed += len(batch) - len(due)
        requests = [Request(wake_body(deployed, entry)) for entry in due if deployed.work.in_bucket]
        failed = sum(why is not None for why in sender.send(requests))
        result.failed += failed
        result.retried += len(due) - failed


def wake(aws: Aws, deployed: DeployedPipeline, entry: ObjectRow) -> str | None:
    """Send a message about the object or set of a row. Returns why SQS refused it."""
    [why] = send(aws.sqs, deployed.queue_url, [OutgoingMessage(wake_body(deployed, entry))])
    return why


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


def _has_lapsed(row: Row, now: int) -> bool:
    """True if the worker of the row has died. Any message of the object takes over."""
    return row.status is Status.PROCESSING and not row.is_live(now)


def _make_due(aws: Aws, deployed: DeployedPipeline, entry: ObjectRow, now: int) -> bool:
    """Set the time of the next attempt. False: an attempt has changed the row, or it does not wait."""
    return entry.row.status is Status.FAILED and update_row(aws, deployed, entry, retry_at=now)


def wake_body(deployed: DeployedPipeline, entry: ObjectRow) -> str:
    """The body of a message about the object or set of a row."""
    state = entry.row.state if deployed.ordering is Ordering.EVERY_VERSION else None
    return own_message(Origin.AUDIT, deployed.bucket, entry.key, state)
