"""Send requests to DynamoDB again that SDKs do not repeat: batches that were carried out in part, and writes that met a
transaction on their item.

DynamoDB has carried out nothing of what is sent again, so each request here may be repeated. The waits grow and are
random. Their number is limited: a request that goes on to be refused ends in an error after a few seconds.
"""

import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

BATCH_WAITS = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
"""Seconds before the rest of a batch is sent again. They begin again when DynamoDB has carried out a part of the rest:
an answer of 16 MB leaves out the other items of a batch without any throttling."""
CONFLICT_WAITS = (0.05, 0.1, 0.2, 0.4)
"""Seconds before a write or a transaction that met another transaction is sent again. Transactions end soon."""
_RANDOM = random.SystemRandom()
_CONFLICT = "TransactionConflictException"
_THROTTLED = "ProvisionedThroughputExceededException"
_PASSING_STATEMENTS = frozenset(
    {
        "InternalServerError",
        "ProvisionedThroughputExceeded",
        "RequestLimitExceeded",
        "ThrottlingError",
        "TransactionConflict",
    }
)
"""DynamoDB's codes for a statement of a batch that may succeed when it is sent again. DynamoDB may have carried out a
statement with an internal error. The condition of each statement shows that."""


def pause(seconds: float) -> None:
    """Wait for about this time, so that workers that were refused together do not return together."""
    time.sleep(seconds * (0.5 + _RANDOM.random()))


def is_conflict(error: ClientError) -> bool:
    """True if a transaction on the item was under way. DynamoDB has written nothing."""
    return error.response["Error"]["Code"] == _CONFLICT


def send_write(operation: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
    """Send a PutItem, UpdateItem or DeleteItem request. Send it again while a transaction on the item is under way.

    Args:
        operation: the method of the client.
        arguments: its arguments.

    Returns:
        DynamoDB's answer.

    Raises:
        ClientError: DynamoDB refuses the request, or goes on to see a conflict (`is_conflict`).

    """
    for wait in CONFLICT_WAITS:
        try:
            return operation(**arguments)
        except ClientError as error:
            if not is_conflict(error):
                raise
        pause(wait)
    return operation(**arguments)


def read_batch(client: "DynamoDBClient", table: str, keys: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Read at most 100 items consistently with BatchGetItem.

    Args:
        client: of DynamoDB.
        table: its name.
        keys: in DynamoDB's typed form.

    Returns:
        The items that exist, in the same form and in any order.

    Raises:
        ClientError: DynamoDB refuses the request, or goes on to leave keys out.

    """
    items: list[dict[str, Any]] = []

    def read(left: Sequence[Any]) -> Sequence[Any]:
        request: Any = {table: {"Keys": left, "ConsistentRead": True}}
        answer: Any = client.batch_get_item(RequestItems=request)
        items.extend(answer["Responses"].get(table, ()))
        rest: Sequence[Any] = (answer.get("UnprocessedKeys") or {}).get(table, {}).get("Keys", ())
        return rest

    _until_done("BatchGetItem", read, keys)
    return items


def write_batch(client: "DynamoDBClient", table: str, items: Iterable[Mapping[str, Any]]) -> None:
    """Write at most 25 items without conditions with BatchWriteItem.

    Args:
        client: of DynamoDB.
        table: its name.
        items: in DynamoDB's typed form, with different keys.

    Raises:
        ClientError: DynamoDB refuses the request, or goes on to leave items out.

    """

    def write(left: Sequence[Any]) -> Sequence[Any]:
        answer: Any = client.batch_write_item(RequestItems={table: left})
        rest: Sequence[Any] = (answer.get("UnprocessedItems") or {}).get(table, ())
        return rest

    _until_done("BatchWriteItem", write, [{"PutRequest": {"Item": item}} for item in items])


def execute_batch(
    client: "DynamoDBClient", statements: Sequence[Any], waits: Sequence[float] = CONFLICT_WAITS
) -> list[str | None]:
    """Execute at most 25 conditional statements of PartiQL.

    Args:
        client: of DynamoDB.
        statements: each with its parameters.
        waits: seconds before statements are sent again; those of a single write when omitted. They are for callers that
            send each of the others alone, which SDKs repeat.

    Returns:
        DynamoDB's code for each statement, in their order. None: it is carried out.

    Raises:
        ClientError: DynamoDB refuses the whole request.

    """
    codes: list[str | None] = [None] * len(statements)
    left = list(range(len(statements)))
    for wait in (*waits, None):
        answer = client.batch_execute_statement(Statements=[statements[number] for number in left])
        for number, response in zip(left, answer["Responses"], strict=True):
            codes[number] = response["Error"]["Code"] if "Error" in response else None
        left = [number for number in left if codes[number] in _PASSING_STATEMENTS]
        if not left or wait is None:
            break
        pause(wait)
    return codes


def _until_done(operation: str, send: Callable[[Sequence[Any]], Sequence[Any]], entries: Sequence[Any]) -> None:
    """Send the entries of a batch until none is left. `send` returns those that DynamoDB did not carry out."""
    left, waits = entries, iter(BATCH_WAITS)
    while rest := send(left):
        if len(rest) < len(left):
            waits = iter(BATCH_WAITS)
        if (wait := next(waits, None)) is None:
            text = (
                f"DynamoDB did not carry out {len(rest)} of {len(entries)} entries in {len(BATCH_WAITS) + 1} tries: it "
                "throttles the table or one of its partitions. Look at the table's metrics ReadThrottleEvents and "
                "WriteThrottleEvents"
            )
            raise ClientError({"Error": {"Code": _THROTTLED, "Message": text}}, operation)
        pause(wait)
        left = rest
