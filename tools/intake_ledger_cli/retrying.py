"""Ends waits: of the circuit breaker, and of objects whose next attempt is not due yet."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import batched, chain
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError
from rich.text import Text

from intake_ledger.events import own_message
from intake_ledger.ledger import condition_failed, send_write
from intake_ledger.protocol import (
    Ordering,
    Origin,
    Row,
    State,
    Status,
    identity_of,
    row_key,
    success_key,
    waiting_partition,
)
from intake_ledger_cli import reading
from intake_ledger_cli.console import DIM, GOOD, WARNING, escape
from intake_ledger_cli.formatting import duration, relative_time
from intake_ledger_cli.reading import ObjectRow
from intake_ledger_cli.sending import OutgoingMessage, send

if TYPE_CHECKING:
    from intake_ledger_cli.aws import Aws
    from intake_ledger_cli.deployed import DeployedPipeline

_BATCH = 10  # SQS's limit
_NO_ROW = (
    "the consumer has never claimed it. Its message returns at the end of its visibility timeout, not sooner: "
    "see inspect for the consumer's errors"
)
_JUST_DUE_MS = 10_000
"""A row that is due for less time gets no message: its own may be on its way, and a second call sends no copies."""


@dataclass(frozen=True, slots=True)
class NotRetried:
    """A key that the command was given, and that needs something else."""

    key: str
    status: str
    """The status of its row, or `no row`."""
    why: str


@dataclass(frozen=True, slots=True)
class InFlight:
    """Messages of the queue that are hidden: an attempt runs, or they return when their visibility timeout ends."""

    number: int
    visibility_seconds: int


@dataclass(slots=True)
class RetryResult:
    """The document of `retry-now`."""

    retried: int = 0
    changed: int = 0
    """Rows that an attempt has changed meanwhile."""
    failed: int = 0
    """Messages that SQS refused. The objects are retried when they are due."""
    not_retried: list[NotRetried] = field(default_factory=list)
    """Of the given keys."""
    in_flight: InFlight | None = None
    """None for a stream, or if the caller may not read the queue."""


def in_flight(aws: "Aws", deployed: "DeployedPipeline") -> InFlight:
    """Read the hidden messages of the queue, and its visibility timeout.

    Raises:
        ClientError: SQS refuses the request.

    """
    answer: Any = aws.sqs.get_queue_attributes(
        QueueUrl=deployed.queue_url, AttributeNames=["ApproximateNumberOfMessagesNotVisible", "VisibilityTimeout"]
    )
    found = answer["Attributes"]
    return InFlight(int(found["ApproximateNumberOfMessagesNotVisible"]), int(found["VisibilityTimeout"]))


def close_breaker(aws: "Aws", deployed: "DeployedPipeline", now: int) -> None:
    """Ask all workers to close their circuit breakers. Each reads this at its next message, within five seconds.

    Raises:
        ClientError: DynamoDB refuses the request.

    """
    aws.dynamodb.update_item(
        TableName=deployed.table,
        Key=_place(success_key(deployed.name).pk, success_key(deployed.name).sk),
        UpdateExpression="SET #asked = :now",
        ExpressionAttributeNames={"#asked": "retry_now_at"},
        ExpressionAttributeValues={":now": {"N": str(now)}},
    )


def waiting_rows(aws: "Aws", deployed: "DeployedPipeline", now: int) -> Iterator[ObjectRow]:
    """Yield all failed rows of readable formats.

    The message of a row that has been due for a while may be hidden for minutes: the breaker holds it back longer, the
    longer an outage lasts. A row that became due a moment ago is left out.
    """
    rows = chain(
        reading.rows_to_review(aws.dynamodb, deployed, Status.FAILED),
        reading.rows_to_review(aws.dynamodb, deployed, names=[waiting_partition(deployed.name)]),
    )
    return (one for one in rows if _may_retry(one.row, now))


def _may_retry(row: Row, now: int) -> bool:
    return row.status is Status.FAILED and not now - _JUST_DUE_MS <= (row.retry_at or 0) <= now


def rows_of_keys(
    aws: "Aws", deployed: "DeployedPipeline", keys: list[str], now: int, result: RetryResult
) -> Iterator[ObjectRow]:
    """Yield the failed rows of these keys, and rows whose lease has ended. Note the other keys in `result`."""
    for key in keys:
        entries = reading.read_rows(aws.dynamodb, deployed, key)
        chosen = [one for one in entries if _may_retry(one.row, now) or _has_lapsed(one.row, now)]
        yield from chosen
        if chosen:
            continue
        result.not_retried += [NotRetried(key, one.row.status.value, _why_not(one.row, now)) for one in entries]
        if not entries:
            result.not_retried.append(NotRetried(key, "no row", _NO_ROW))


def _has_lapsed(row: Row, now: int) -> bool:
    """True if the worker of the row has died. Any message of the object takes over."""
    return row.status is Status.PROCESSING and not row.is_live(now)


def _why_not(row: Row, now: int) -> str:
    if row.status is Status.PROCESSING:
        return f"a worker holds it, {relative_time(row.lease_until or now, now)}: if it is dead, see release"
    if row.status is Status.FAILED:
        return "it became due a moment ago, and its own message may be on its way"
    if row.status is Status.REJECTED:
        return "a rejection is not retried: use redrive or reprocess"
    return "it is committed" if row.status is Status.PROCESSED else "a later release wrote its row"


def retry_rows(
    aws: "Aws", deployed: "DeployedPipeline", rows: Iterator[ObjectRow], now: int, result: RetryResult
) -> None:
    """Make the next attempt of each row due, and send a message for it. The older message finds a duplicate.

    An intake of messages gets none: only the message itself has its content, and its source delivers it again.

    Raises:
        ClientError: AWS refuses a request.

    """
    for batch in batched(rows, _BATCH):
        due = [one for one in batch if _has_lapsed(one.row, now) or _make_due(aws, deployed, one, now)]
        result.changed += len(batch) - len(due)
        if not deployed.work.in_bucket:
            result.retried += len(due)
            continue
        if not due:
            continue
        messages = [OutgoingMessage(_message(deployed, entry)) for entry in due]
        answers = send(aws.sqs, deployed.queue_url, messages)
        result.failed += sum(why is not None for why in answers)
        result.retried += sum(why is None for why in answers)


def retry_lines(done: RetryResult, deployed: "DeployedPipeline") -> Text:
    """The document for people."""
    work = deployed.work
    shown = f"{done.retried:,} {work.noun} are tried {work.retried}, {done.changed:,} had changed meanwhile"
    shown += f", {done.failed:,} messages were refused" if done.failed else ""
    lines = [Text(shown, style=WARNING if done.failed else GOOD)]
    lines += [Text(escape(f"{one.key}: {one.status}: {one.why}"), style=WARNING) for one in done.not_retried]
    if done.in_flight is not None and done.in_flight.number:
        limit = duration(done.in_flight.visibility_seconds * 1000)
        text = f"{done.in_flight.number:,} messages are in flight: those without an attempt return within {limit}"
        lines.append(Text(text, style=DIM))
    return Text("\n").join(lines)


def wake(aws: "Aws", deployed: "DeployedPipeline", entry: ObjectRow) -> str | None:
    """Send a message about the object or set of a row. Returns why SQS refused it."""
    [why] = send(aws.sqs, deployed.queue_url, [OutgoingMessage(_message(deployed, entry))])
    return why


def _make_due(aws: "Aws", deployed: "DeployedPipeline", entry: ObjectRow, now: int) -> bool:
    """Set the time of the next attempt. False: an attempt has changed the row since it was read."""
    row = entry.row
    identity = identity_of(row.kind, row.version_id, row.etag)
    key = row_key(deployed.name, deployed.ordering, deployed.bucket, entry.key, identity)
    names = ("fence", "retry_at", "status")
    request = {
        "TableName": deployed.table,
        "Key": _place(key.pk, key.sk),
        "UpdateExpression": "SET #retry_at = :now",
        "ConditionExpression": "#status = :failed AND #fence = :fence",
        "ExpressionAttributeNames": {f"#{name}": name for name in names},
        "ExpressionAttributeValues": {
            ":now": {"N": str(now)},
            ":failed": {"S": Status.FAILED.value},
            ":fence": {"N": str(row.fence)},
        },
    }
    try:
        send_write(aws.dynamodb.update_item, request)
    except ClientError as error:
        if not condition_failed(error):
            raise
        return False
    return True


def _message(deployed: "DeployedPipeline", entry: ObjectRow) -> str:
    row = entry.row
    state = State(row.kind, row.version_id, row.etag, row.size) if deployed.ordering is Ordering.EVERY_VERSION else None
    return own_message(Origin.AUDIT, deployed.bucket, entry.key, state)


def _place(pk: str, sk: str) -> Any:
    return {"pk": {"S": pk}, "sk": {"S": sk}}
