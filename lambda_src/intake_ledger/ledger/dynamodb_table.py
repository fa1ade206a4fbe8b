"""The requests to the ledger's DynamoDB table. Each write of a row has its condition.

SDKs do not repeat some requests: batches that were carried out in part, and writes that met a transaction on their
item. They are sent again here. DynamoDB has carried out nothing of what is sent again, so each such request may be
repeated. The waits grow and are random. Their number is limited: a request that goes on to be refused ends in an error
after a few seconds.
"""

import math
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from botocore.exceptions import BotoCoreError, ClientError, ParamValidationError

from intake_ledger.ledger.conditions import (
    NO_ITEM,
    NO_ROW,
    Condition,
    ConditionFailed,
    insert_statement,
    late_write_may_harm,
    no_late_writes,
    update_statement,
)
from intake_ledger.ledger.transactions import refusal
from intake_ledger.protocol.errors import InvalidTransactionError, TransactionRefused
from intake_ledger.protocol.handover import Element
from intake_ledger.protocol.row import (
    Row,
    RowKey,
    from_dynamodb,
    row_attributes,
    row_difference,
    row_from_attributes,
    to_dynamodb,
)

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

AWS_ERRORS = (BotoCoreError, ClientError)
"""AWS has refused a request, or did not answer."""
BATCH_STATEMENTS = 25  # DynamoDB's limit of BatchExecuteStatement
BATCH_GET_KEYS = 100  # DynamoDB's limit of BatchGetItem
_UNMET = frozenset({"ConditionalCheckFailed", "DuplicateItem"})
"""The condition of a statement does not hold."""
_REFUSED = frozenset({"AccessDeniedException", "ResourceNotFoundException"})
"""DynamoDB has written nothing. A permission or a table is missing, which people may add."""
_MALFORMED = frozenset({"SerializationException", "ValidationException"})
"""DynamoDB has written nothing, and will not write this request at any time."""
_UNSENDABLE = (ParamValidationError, RecursionError)
"""boto3 raises these before it sends a request."""
_THROTTLED = frozenset({"ProvisionedThroughputExceededException", "RequestLimitExceeded", "ThrottlingException"})
"""DynamoDB had no capacity for the request. If it carried out an earlier copy of it, the fence shows that."""
BATCH_WAITS = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
"""Seconds before the rest of a batch is sent again. They begin again when DynamoDB has carried out a part of the rest:
an answer of 16 MB leaves out the other items of a batch without any throttling."""
CONFLICT_WAITS = (0.05, 0.1, 0.2, 0.4)
"""Seconds before a write or a transaction that met another transaction is sent again. Transactions end soon."""
_RANDOM = random.SystemRandom()
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


class LedgerTable:
    """Reads and writes rows. Raises botocore's ClientError for all errors except a condition that does not hold."""

    def __init__(self, client: "DynamoDBClient", name: str) -> None:
        self._client = client
        self.name = name

    def insert(self, key: RowKey, row: Row) -> None:
        """Write a row where there is none.

        Raises:
            ConditionFailed: There is a row.

        """
        item = to_dynamodb({"pk": key.pk, "sk": key.sk, **row_attributes(row)})
        _write(self._client.put_item, self._arguments(NO_ROW, {}, Item=item))

    def insert_many(self, rows: Mapping[RowKey, Row]) -> set[RowKey]:
        """Write at most 25 rows in one request, each where there is no item.

        Returns:
            The keys that were written. The others have a row or an audit's mark, or their statement failed.

        """
        statements = [
            insert_statement(self.name, to_dynamodb({"pk": key.pk, "sk": key.sk, **row_attributes(row)}))
            for key, row in rows.items()
        ]
        return {key for key, code in self._execute(rows, statements).items() if code is None}

    def commit_many(self, updates: Mapping[RowKey, tuple[Row, Row]]) -> set[RowKey]:
        """`update` from the first row to the second for at most 25 owned claims, in one request. None has late writes.

        Returns:
            The keys that were written. Use `update` for each other one: it tells whether another attempt has the row.

        """
        statements = []
        for key, (before, after) in updates.items():
            # PartiQL changes sets in another way. A commit does not change them.
            changed, removed = row_difference(before, after)
            statements.append(update_statement(self.name, key, changed, removed, no_late_writes(before)))
        return {key for key, code in self._execute(updates, statements).items() if code is None}

    def _execute(
        self, keys: Iterable[RowKey], statements: Any, waits: Sequence[float] = CONFLICT_WAITS
    ) -> dict[RowKey, str | None]:
        """DynamoDB's code for the statement of each key. None: it is carried out."""
        return dict(zip(keys, execute_batch(self._client, statements, waits), strict=True))

    def update(self, key: RowKey, before: Row, after: Row, condition: Condition) -> None:
        """Write the difference between the two rows. Attributes that this release does not know stay.

        Raises:
            ConditionFailed: The condition does not hold.

        """
        _write(self._client.update_item, self._update(key, before, after, condition))

    def update_with(
        self,
        key: RowKey,
        before: Row,
        after: Row,
        condition: Condition,
        others: Sequence[Element],
        *,
        token: str,
        clear_late_writes: bool,
    ) -> None:
        """`update` and other writes in one transaction. With the same `token` it is carried out once.

        With `clear_late_writes`, it also removes late writes, even those of other workers: DynamoDB carries out the
        transaction after them.

        Raises:
            ConditionFailed: The condition does not hold.
            TransactionRefused: DynamoDB refused one of the other writes, and wrote nothing.
            InvalidTransactionError: As before, and it would refuse it at any time.

        """
        update = self._update(key, before, after, condition, clear_late_writes=clear_late_writes)
        elements: Any = [{"Update": update}, *others]
        for wait in (*CONFLICT_WAITS, None):
            try:
                self._client.transact_write_items(TransactItems=elements, ClientRequestToken=token)
            except (ClientError, *_UNSENDABLE) as error:
                refused = _cancelled(error, others)
                if wait is None or not (isinstance(refused, TransactionRefused) and refused.passing):
                    raise refused from error
                pause(wait)
            else:
                return

    def _update(
        self, key: RowKey, before: Row, after: Row, condition: Condition, *, clear_late_writes: bool = False
    ) -> dict[str, Any]:
        """The arguments of an update that writes the difference between the two rows.

        Elements that other workers have added to `late_writes` meanwhile stay, unless `clear_late_writes` is true.
        """
        changed, removed = row_difference(before, after)
        added, deleted = after.late_writes - before.late_writes, before.late_writes - after.late_writes
        if clear_late_writes:
            removed, added, deleted = [*removed, "late_writes"], frozenset(), frozenset()
        values = {f":{name}": value for name, value in changed.items()}
        clauses = ["SET " + ", ".join(f"#{name} = :{name}" for name in changed)] if changed else []
        if removed:
            clauses.append("REMOVE " + ", ".join(f"#{name}" for name in removed))
        if added:
            clauses.append("ADD #late_writes :added")
            values[":added"] = added
        if deleted:
            clauses.append("DELETE #late_writes :deleted")
            values[":deleted"] = deleted
        names = (*changed, *removed, *(("late_writes",) if added or deleted else ()))
        return self._arguments(condition, values, names, Key=_key(key), UpdateExpression=" ".join(clauses))

    def delete(self, key: RowKey, condition: Condition) -> None:
        """Remove the row.

        Raises:
            ConditionFailed: The condition does not hold.

        """
        _write(self._client.delete_item, self._arguments(condition, {}, Key=_key(key)))

    def get(self, key: RowKey) -> Row | None:
        """Read the row consistently."""
        return row_from_attributes(self.read(key))

    def read(self, key: RowKey) -> dict[str, Any]:
        """The attributes of an item, read consistently. Empty if there is none."""
        answer = self._client.get_item(TableName=self.name, Key=_key(key), ConsistentRead=True)
        return from_dynamodb(answer.get("Item", {}))

    def restored_to(self) -> float | None:
        """The time of the backup from which the table was restored, in epoch milliseconds. None: it was not.

        Infinite: it is not known.
        """
        table: Mapping[str, Any] = self._client.describe_table(TableName=self.name)["Table"]
        if "RestoreSummary" not in table:
            return None
        at = table["RestoreSummary"].get("RestoreDateTime")
        return math.inf if at is None else at.timestamp() * 1000

    def first(self, pk: str, beginning: str) -> tuple[RowKey, dict[str, Any]] | None:
        """The first item of a partition whose sort key begins so, read consistently. None: there is none."""
        answer = self._client.query(
            TableName=self.name,
            KeyConditionExpression="pk = :pk AND begins_with(sk, :prefix)",
            ExpressionAttributeValues={":pk": {"S": pk}, ":prefix": {"S": beginning}},
            ConsistentRead=True,
            Limit=1,
        )
        for item in map(from_dynamodb, answer["Items"]):
            return RowKey(item["pk"], item["sk"]), item
        return None

    def write(self, key: RowKey, content: Mapping[str, Any]) -> None:
        """Write an item that is not a row, in place of any item with this key."""
        item: Any = to_dynamodb({"pk": key.pk, "sk": key.sk, **content})
        send_write(self._client.put_item, {"TableName": self.name, "Item": item})

    def get_items(self, keys: Sequence[RowKey]) -> dict[RowKey, dict[str, Any]]:
        """Read at most 100 items consistently. Items that do not exist are left out; an audit's mark is an item too."""
        items = map(from_dynamodb, read_batch(self._client, self.name, [_key(key) for key in keys]))
        return {RowKey(item["pk"], item["sk"]): item for item in items}

    def report_late_write(self, key: RowKey, row: Row) -> None:
        """Record that the worker whose claim wrote `row` may have written downstream after its successor.

        The state of such a row is processed again, so the row does not expire.

        Raises:
            ConditionFailed: There is nothing to repair.

        """
        arguments = self._arguments(
            late_write_may_harm(row),
            {":added": frozenset({row.identity})},
            ("late_writes", "expires_at"),
            Key=_key(key),
            UpdateExpression="REMOVE #expires_at ADD #late_writes :added",
        )
        _write(self._client.update_item, arguments)

    def put_new(self, key: RowKey, content: Mapping[str, Any]) -> dict[str, Any]:
        """Write an item that is not a row, if there is none. Returns the attributes of the item that is there then."""
        item = to_dynamodb({"pk": key.pk, "sk": key.sk, **content})
        try:
            send_write(self._client.put_item, self._arguments(NO_ITEM, {}, Item=item))
        except ClientError as error:
            if not condition_failed(error):
                raise
            return from_dynamodb(cast("dict[str, Any]", error.response).get("Item", {}))
        return dict(content)

    def move(
        self, key: RowKey, name: str, *, by: int | None, to: int, marks: Mapping[str, int], condition: Condition
    ) -> tuple[bool, dict[str, Any]]:
        """Let a number of an item that is not a row grow, in one write.

        Args:
            key: of the item.
            name: of the number.
            by: is added to it. None: it becomes `to`.
            to: the number that it becomes without `by`.
            marks: attributes to set in the same write.
            condition: refuses the write.

        Returns:
            Whether it was written, and the attributes of the item: after the write, or that refused it.

        """
        values = {f":new_{one}": value for one, value in marks.items()}
        values |= {":to": to} if by is None else {":by": by}
        update = "SET " + ", ".join(f"#{one} = :new_{one}" for one in marks)
        update += f", #{name} = :to" if by is None else f" ADD #{name} :by"
        arguments = self._arguments(condition, values, (*marks, name), Key=_key(key), UpdateExpression=update)
        try:
            answer = send_write(self._client.update_item, arguments | {"ReturnValues": "ALL_NEW"})
        except ClientError as error:
            if not condition_failed(error):
                raise
            return False, from_dynamodb(cast("dict[str, Any]", error.response).get("Item", {}))
        return True, from_dynamodb(answer["Attributes"])

    def mark(self, key: RowKey, marks: Mapping[str, Any], condition: Condition) -> None:
        """Set attributes that are not part of a row's protocol state.

        Raises:
            ConditionFailed: The condition does not hold.

        """
        arguments = self._arguments(
            condition,
            {f":{name}": value for name, value in marks.items()},
            marks,
            Key=_key(key),
            UpdateExpression="SET " + ", ".join(f"#{name} = :{name}" for name in marks),
        )
        _write(self._client.update_item, arguments)

    def mark_many(self, marks: Mapping[RowKey, tuple[Mapping[str, Any], Condition | None]]) -> None:
        """Set attributes that are not part of a row's protocol state, for at most 25 keys, in one request.

        A mark is written where its condition holds. Without a condition, it is written where there is no item. The
        other items stay as they are.

        Raises:
            ClientError: DynamoDB refuses a mark for another reason than its condition.

        """
        statements = [
            insert_statement(self.name, to_dynamodb({"pk": key.pk, "sk": key.sk, **values}))
            if condition is None
            else update_statement(self.name, key, values, (), condition)
            for key, (values, condition) in marks.items()
        ]
        for key, code in self._execute(marks, statements, BATCH_WAITS).items():
            if code is not None and code not in _UNMET:
                error: Any = {"Error": {"Code": code, "Message": f"DynamoDB did not write the mark of {key.pk}"}}
                raise ClientError(error, "BatchExecuteStatement")

    def _arguments(
        self, condition: Condition, values: Mapping[str, Any], names: Iterable[str] = (), **arguments: Any
    ) -> dict[str, Any]:
        """The arguments of a conditional write, with these values and attribute names in its update expression."""
        if condition.values or values:
            arguments["ExpressionAttributeValues"] = to_dynamodb({**condition.values, **values})
        return arguments | {
            "TableName": self.name,
            "ConditionExpression": condition.expression,
            "ExpressionAttributeNames": {f"#{name}": name for name in (*condition.names, *names)},
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }


def condition_failed(error: ClientError) -> bool:
    """True if the write was correct and only its condition does not hold."""
    return error.response["Error"]["Code"] == "ConditionalCheckFailedException"


def _write(operation: Callable[..., Any], arguments: Mapping[str, Any]) -> None:
    """Send a conditional write. Raises ConditionFailed with the present row if the condition does not hold."""
    try:
        send_write(operation, arguments)
    except ClientError as error:
        if not condition_failed(error):
            raise
        raise ConditionFailed(_present_row(cast("dict[str, Any]", error.response))) from None


def _cancelled(error: Exception, others: Sequence[Element]) -> Exception:
    """The meaning of a transaction's error. The error itself, if the transaction may have been carried out."""
    if not isinstance(error, ClientError):
        return InvalidTransactionError("transact is not in DynamoDB's typed form", detail=str(error))
    code, message = error.response["Error"]["Code"], error.response["Error"].get("Message", "")
    why = f"DynamoDB refused the transaction: {code}"
    if code in _MALFORMED:
        return InvalidTransactionError(why, detail=message)
    if code in _REFUSED or code in _THROTTLED:
        return TransactionRefused(why, passing=code in _THROTTLED, detail=message)
    if code != "TransactionCanceledException":
        return error
    own, *theirs = cast("dict[str, Any]", error.response)["CancellationReasons"]
    if own["Code"] == "ConditionalCheckFailed":
        return ConditionFailed(_present_row(own))
    return refusal([own, *theirs], others)


def _present_row(answer: Mapping[str, Any]) -> Row | None:
    """The row that did not fulfil a condition."""
    return row_from_attributes(from_dynamodb(answer.get("Item", {})))


def _key(key: RowKey) -> dict[str, Any]:
    return {"pk": {"S": key.pk}, "sk": {"S": key.sk}}


def pause(seconds: float) -> None:
    """Wait for about this time, so that workers that were refused together do not return together."""
    time.sleep(seconds * (0.5 + _RANDOM.random()))


def is_throttled(error: ClientError) -> bool:
    """True if DynamoDB had no capacity for the request."""
    return error.response["Error"]["Code"] in _THROTTLED


def is_conflict(error: ClientError) -> bool:
    """True if a transaction on the item was under way. DynamoDB has written nothing."""
    return error.response["Error"]["Code"] == "TransactionConflictException"


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
            raise ClientError({"Error": {"Code": "ProvisionedThroughputExceededException", "Message": text}}, operation)
        pause(wait)
        left = rest
