"""Ends waits: of the circuit breaker, and of objects whose next attempt is not due yet."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import batched, chain
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from intake_ledger.events import own_message
from intake_ledger.ledger import condition_failed, send_write
from intake_ledger.protocol import Ordering, Origin, State, Status, identity_of, row_key, success_key, waiting_partition
from intake_ledger_cli import reading
from intake_ledger_cli.reading import ObjectRow
from intake_ledger_cli.sending import OutgoingMessage, send

if TYPE_CHECKING:
    from intake_ledger_cli.aws import Aws
    from intake_ledger_cli.deployed import DeployedPipeline

_BATCH = 10  # SQS's limit
_JUST_DUE_MS = 10_000
"""A row that is due for less time gets no message: its own may be on its way, and a second call sends no copies."""


@dataclass(slots=True)
class RetryResult:
    """The result of `retry-now`."""

    retried: int = 0
    changed: int = 0
    """Rows that an attempt has changed meanwhile."""
    failed: int = 0
    """Messages that SQS refused. The objects are retried when they are due."""


def noun_of(deployed: "DeployedPipeline") -> str:
    """The noun for the rows of a pipeline."""
    if deployed.message_source is not None:
        return "messages"
    return "objects" if deployed.set_variables is None else "sets"


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


def waiting_rows(aws: "Aws", deployed: "DeployedPipeline", keys: list[str], now: int) -> Iterator[ObjectRow]:
    """Yield failed rows of readable formats: of these keys, or all without keys.

    The message of a row that has been due for a while may be hidden for minutes: the breaker holds it back longer, the
    longer an outage lasts. A row that became due a moment ago is left out.
    """
    if keys:
        rows = chain.from_iterable(reading.read_rows(aws.dynamodb, deployed, key) for key in keys)
    else:
        rows = chain(
            reading.rows_to_review(aws.dynamodb, deployed, Status.FAILED),
            reading.rows_to_review(aws.dynamodb, deployed, names=[waiting_partition(deployed.name)]),
        )
    return (
        one
        for one in rows
        if one.row.status is Status.FAILED and not now - _JUST_DUE_MS <= (one.row.retry_at or 0) <= now
    )


def retry_rows(aws: "Aws", deployed: "DeployedPipeline", rows: Iterator[ObjectRow], now: int) -> RetryResult:
    """Make the next attempt of each row due, and send a message for it. The older message finds a duplicate.

    An intake of messages gets none: only the message itself has its content, and its source delivers it again.

    Raises:
        ClientError: AWS refuses a request.

    """
    result = RetryResult()
    for batch in batched(rows, _BATCH):
        due = [entry for entry in batch if _make_due(aws, deployed, entry, now)]
        result.changed += len(batch) - len(due)
        if deployed.message_source is not None:
            result.retried += len(due)
            continue
        if not due:
            continue
        messages = [OutgoingMessage(_message(deployed, entry)) for entry in due]
        answers = send(aws.sqs, deployed.queue_url, messages)
        result.failed += sum(why is not None for why in answers)
        result.retried += sum(why is None for why in answers)
    return result


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
