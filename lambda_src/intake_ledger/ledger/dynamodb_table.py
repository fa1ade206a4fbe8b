"""The ledger's DynamoDB table: its requests and their conditions, nothing else."""

import random
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

from botocore.exceptions import ClientError, ParamValidationError

from intake_ledger.ledger.transactions import Element, check, refusal
from intake_ledger.protocol import row as rows
from intake_ledger.protocol.errors import TransactionRefused
from intake_ledger.protocol.row import Row, RowKey, Status

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

BATCH_STATEMENTS = 25  # DynamoDB's limit of BatchExecuteStatement
BATCH_GET_KEYS = 100  # DynamoDB's limit of BatchGetItem
CONFLICT_WAITS = (0.05, 0.1, 0.2, 0.4)
"""Seconds before a transaction is tried again that met another one: SDKs do not, and the work is done already."""
_RANDOM = random.SystemRandom()
_NEVER = frozenset({"AccessDeniedException", "ResourceNotFoundException", "ValidationException"})
"""DynamoDB has carried out nothing, and will not."""
_THROTTLED = frozenset({"ProvisionedThroughputExceededException", "RequestLimitExceeded", "ThrottlingException"})
"""DynamoDB had no capacity for the request. If an earlier repetition was carried out, the fence shows it."""


class ConditionFailed(Exception):  # noqa: N818 - an answer, not an error
    """The condition did not hold; `row` is what stands there instead, None for no row."""

    def __init__(self, row: Row | None) -> None:
        super().__init__("the row is not the one that was judged")
        self.row = row


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition expression with its values; names are written `#name` and stand for themselves."""

    expression: str
    names: tuple[str, ...]
    values: Mapping[str, Any]


NO_ROW = Condition("attribute_not_exists(#status) AND attribute_not_exists(#format)", ("status", "format"), {})
"""Nobody has claimed this yet. An audit's mark has neither and is no row. Rows of every later format have a format."""


SETTLED = Condition("#status = :processed", ("status",), {":processed": Status.PROCESSED})
"""Nobody works on the row."""
NO_ITEM = Condition("attribute_not_exists(#pk)", ("pk",), {})


def row_unchanged(row: Row, now: int) -> Condition:
    """The row is the one that was judged, and nobody holds it: the comparison of every swap."""
    return Condition(
        "#fence = :seen_fence AND #status = :seen_status"
        " AND (attribute_not_exists(#lease_until) OR #lease_until <= :now)",
        ("fence", "status", "lease_until"),
        {":seen_fence": row.fence, ":seen_status": row.status, ":now": now},
    )


def lease_owned(row: Row) -> Condition:
    """The claim is still this attempt's: the fence that every outcome has to pass."""
    return Condition(
        "#fence = :own_fence AND #lease_owner = :own_owner AND #status = :processing",
        ("fence", "lease_owner", "status"),
        {":own_fence": row.fence, ":own_owner": row.lease_owner, ":processing": Status.PROCESSING},
    )


def not_overwritten(row: Row) -> Condition:
    """The claim is still this attempt's, and no other state was written late: the condition of a commit."""
    owned = lease_owned(row)
    return Condition(
        f"{owned.expression} AND (attribute_not_exists(#late_writes) OR #late_writes = :only_own)",
        (*owned.names, "late_writes"),
        {**owned.values, ":only_own": frozenset({row.identity})},
    )


def no_late_writes(row: Row) -> Condition:
    """The claim is still this attempt's, and nothing was written late."""
    owned = lease_owned(row)
    return Condition(
        f"{owned.expression} AND attribute_not_exists(#late_writes)", (*owned.names, "late_writes"), owned.values
    )


def overtaken(row: Row) -> Condition:
    """A later claim has replaced this one, and its result is not safe from this claim's late write.

    A transaction's writes cannot be repeated, and the same state's write does no harm. A row of a later format is left
    alone.
    """
    return Condition(
        "#format = :this_format AND attribute_exists(#status) AND #fence > :own_fence AND NOT (#status = :processed"
        " AND (attribute_exists(#transactional) OR #committed_state = :own_state))",
        ("format", "status", "fence", "transactional", "committed_state"),
        {
            ":this_format": rows.FORMAT,
            ":own_fence": row.fence,
            ":processed": Status.PROCESSED,
            ":own_state": row.identity,
        },
    )


class LedgerTable:
    """Typed access to the rows. Raises botocore's ClientError for everything but a refused condition."""

    def __init__(self, client: "DynamoDBClient", name: str) -> None:
        self._client = client
        self._name = name

    @property
    def name(self) -> str:
        """The table's name."""
        return self._name

    def insert(self, key: RowKey, row: Row) -> None:
        """Write a row where there is none.

        Raises:
            ConditionFailed: There is one.

        """
        _conditionally(self._client.put_item, self._arguments(NO_ROW, {}, Item=_item(key, row)))

    def insert_many(self, rows_by_key: Mapping[RowKey, Row]) -> set[RowKey]:
        """Write at most 25 rows where there is nothing, in one request; the keys that were written come back.

        The others are taken, by a row or by an audit's mark alone, or their statement failed.
        """
        keys = list(rows_by_key)
        statements: Any = []
        for key, row in rows_by_key.items():
            item = _item(key, row)
            statements.append(
                {"Statement": _insert_statement(self._name, tuple(item)), "Parameters": list(item.values())}
            )
        return self._execute(keys, statements)

    def commit_many(self, updates: Mapping[RowKey, tuple[Row, Row]]) -> set[RowKey]:
        """`update` from the first row to the second for at most 25 claims that are still held, in one request; the keys
        that were written come back. None may have late writes.

        The others have been taken, or their statement failed: a single `update` tells which.
        """
        statements: Any = []
        for key, (before, after) in updates.items():
            # A commit leaves sets alone, which PartiQL changes in another way.
            changed, gone = _difference(before, after)
            held = no_late_writes(before)
            said, asked = _partiql(held)
            values = [*changed.values(), key.pk, key.sk, *asked]
            statements.append(
                {
                    "Statement": _update_statement(self._name, tuple(changed), tuple(gone), said),
                    "Parameters": [_typed(value) for value in values],
                }
            )
        return self._execute(list(updates), statements)

    def _execute(self, keys: Sequence[RowKey], statements: Any) -> set[RowKey]:
        answer = self._client.batch_execute_statement(Statements=statements)
        return {key for key, response in zip(keys, answer["Responses"], strict=True) if "Error" not in response}

    def update(self, key: RowKey, before: Row, after: Row, condition: Condition) -> None:
        """Write what differs between the two rows; attributes that this release does not know stay.

        Raises:
            ConditionFailed: The condition does not hold.

        """
        _conditionally(self._client.update_item, self._update(key, before, after, condition))

    def update_with(
        self, key: RowKey, before: Row, after: Row, condition: Condition, others: Sequence[Element], *, token: str
    ) -> None:
        """`update` together with writes to other tables, in one transaction: all of it or nothing. Under the same
        `token` it happens once, however often it is sent. Late writes are removed, also those that came meanwhile: the
        transaction is carried out after them.

        Raises:
            ConditionFailed: The condition does not hold.
            TransactionRefused: Something else is in the way.

        """
        check(others, self._name)
        elements: Any = [{"Update": self._update(key, before, after, condition, clear=("late_writes",))}, *others]
        for wait in (*CONFLICT_WAITS, None):
            try:
                self._client.transact_write_items(TransactItems=elements, ClientRequestToken=token)
            except (ClientError, ParamValidationError) as error:
                refused = _cancelled(error, others)
                if wait is None or not (isinstance(refused, TransactionRefused) and refused.passing):
                    raise refused from error
                time.sleep(wait * (0.5 + _RANDOM.random()))
            else:
                return

    def _update(
        self, key: RowKey, before: Row, after: Row, condition: Condition, clear: Sequence[str] = ()
    ) -> dict[str, Any]:
        """The arguments of an update that writes what differs, and removes the attributes `clear` in any case."""
        changed, gone = _difference(before, after)
        gone = [*gone, *clear]
        added, removed = ({} if clear else one for one in _set_differences(before, after))
        clauses = [
            _set(changed) if changed else "",
            "REMOVE " + ", ".join(f"#{name}" for name in gone) if gone else "",
            _of_sets("ADD", added),
            _of_sets("DELETE", removed),
        ]
        values = {f":{name}": value for name, value in changed.items()}
        values |= {
            f":{clause}_{name}": value
            for clause, some in (("add", added), ("delete", removed))
            for name, value in some.items()
        }
        return self._arguments(
            condition,
            values,
            (*changed, *gone, *added, *removed),
            Key=_key(key),
            UpdateExpression=" ".join(one for one in clauses if one),
        )

    def delete(self, key: RowKey, condition: Condition) -> None:
        """Remove the row.

        Raises:
            ConditionFailed: The condition does not hold.

        """
        _conditionally(self._client.delete_item, self._arguments(condition, {}, Key=_key(key)))

    def get(self, key: RowKey) -> Row | None:
        """The row as it is now, read consistently."""
        answer = self._client.get_item(TableName=self._name, Key=_key(key), ConsistentRead=True)
        return rows.from_attributes(plain(answer.get("Item", {})))

    def last_success(self, key: RowKey) -> int | None:
        """The time that `tell_success` has last written; None when it never was."""
        answer = self._client.get_item(TableName=self._name, Key=_key(key), ConsistentRead=True)
        found: int | None = plain(answer.get("Item", {})).get("last_success_at")
        return found

    def tell_success(self, key: RowKey, at: int) -> None:
        """Write the time of a success, in epoch milliseconds."""
        item: Any = {**_key(key), "last_success_at": _typed(at)}
        self._client.put_item(TableName=self._name, Item=item)

    def get_items(self, keys: Sequence[RowKey]) -> dict[RowKey, dict[str, Any]]:
        """Those of at most 100 items that exist, read consistently; an audit's mark is an item too."""
        request: Any = {self._name: {"Keys": [_key(key) for key in keys], "ConsistentRead": True}}
        found: dict[RowKey, dict[str, Any]] = {}
        while request:
            answer = self._client.batch_get_item(RequestItems=request)
            for item in answer["Responses"].get(self._name, ()):
                content = plain(item)
                found[RowKey(content["pk"], content["sk"])] = content
            request = answer.get("UnprocessedKeys")
        return found

    def report_late_write(self, key: RowKey, row: Row) -> None:
        """Record that a worker, whose claim wrote this row, may have written its state downstream after its successor.
        Such a row has to be processed again, so it does not expire.

        Raises:
            ConditionFailed: Nothing has to be repaired.

        """
        late = {"late_writes": frozenset({row.identity})}
        arguments = self._arguments(
            overtaken(row),
            {":add_late_writes": late["late_writes"]},
            ("late_writes", "expires_at"),
            Key=_key(key),
            UpdateExpression=f"REMOVE #expires_at {_of_sets('ADD', late)}",
        )
        _conditionally(self._client.update_item, arguments)

    def put_new(self, key: RowKey, content: Mapping[str, Any]) -> dict[str, Any]:
        """Write an item that is not a row where there is none. Whichever item then stands there is returned."""
        item = {**_key(key), **{name: _typed(value) for name, value in content.items()}}
        try:
            self._client.put_item(**self._arguments(NO_ITEM, {}, Item=item))
        except ClientError as error:
            if not condition_failed(error):
                raise
            return plain(cast("dict[str, Any]", error.response).get("Item", {}))
        return dict(content)

    def mark(self, key: RowKey, marks: Mapping[str, Any], condition: Condition) -> None:
        """Set attributes that are not part of a row's protocol state.

        Raises:
            ConditionFailed: The condition does not hold.

        """
        arguments = self._arguments(
            condition,
            {f":{name}": value for name, value in marks.items()},
            tuple(marks),
            Key=_key(key),
            UpdateExpression=_set(marks),
        )
        _conditionally(self._client.update_item, arguments)

    def mark_many(self, marks: Mapping[RowKey, tuple[Mapping[str, Any], Condition | None]]) -> None:
        """Set attributes that are not part of a row's protocol state, for at most 25 keys, in one request.

        Each is set where its condition holds; without a condition, where there is nothing at all. The others are left
        as they are.
        """
        statements: Any = []
        for key, (values, condition) in marks.items():
            if condition is None:
                item = {**_key(key), **{name: _typed(value) for name, value in values.items()}}
                statement, parameters = _insert_statement(self._name, tuple(item)), list(item.values())
            else:
                said, asked = _partiql(condition)
                statement = _update_statement(self._name, tuple(values), (), said)
                parameters = [_typed(value) for value in (*values.values(), key.pk, key.sk, *asked)]
            statements.append({"Statement": statement, "Parameters": parameters})
        self._execute(list(marks), statements)

    def _arguments(
        self, condition: Condition, values: Mapping[str, Any], names: Iterable[str] = (), **arguments: Any
    ) -> dict[str, Any]:
        """Those of a conditional write."""
        placeholders = {f"#{name}": name for name in (*condition.names, *names)}
        typed = {name: _typed(value) for name, value in (*condition.values.items(), *values.items())}
        if typed:
            arguments["ExpressionAttributeValues"] = typed
        return arguments | {
            "TableName": self._name,
            "ConditionExpression": condition.expression,
            "ExpressionAttributeNames": placeholders,
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }


def _difference(before: Row, after: Row) -> tuple[dict[str, Any], list[str]]:
    """The attributes to set, and those to remove, but for sets."""
    old, new = rows.attributes(before), rows.attributes(after)
    return {
        name: value for name, value in new.items() if old.get(name) != value and not isinstance(value, frozenset)
    }, [name for name, value in old.items() if name not in new and not isinstance(value, frozenset)]


def _set_differences(before: Row, after: Row) -> tuple[dict[str, frozenset[str]], dict[str, frozenset[str]]]:
    """What to add to each set, and what to remove: elements that came meanwhile are kept."""
    old, new = before.late_writes, after.late_writes
    return {"late_writes": new - old} if new - old else {}, {"late_writes": old - new} if old - new else {}


def _partiql(condition: Condition) -> tuple[str, list[Any]]:
    """The condition as PartiQL says it, and the values for its question marks, in their order."""
    said, names = _condition_text(condition.expression)
    return said, [condition.values[name] for name in names]


# Statements differ only by what they name, and few combinations of names occur: each text is put together once.
@lru_cache
def _condition_text(expression: str) -> tuple[str, list[str]]:
    """The expression in PartiQL, and the names of the values for its question marks."""
    said = re.sub(r"attribute_not_exists\(#(\w+)\)", r'"\1" IS MISSING', expression)
    return re.sub(r":\w+", "?", re.sub(r"#(\w+)", r'"\1"', said)), re.findall(r":\w+", expression)


@lru_cache
def _insert_statement(table: str, names: tuple[str, ...]) -> str:
    listed = ", ".join(f"'{name}': ?" for name in names)
    return f'INSERT INTO "{table}" VALUE {{{listed}}}'


@lru_cache
def _update_statement(table: str, changed: tuple[str, ...], gone: tuple[str, ...], condition: str) -> str:
    clauses = [*(f'SET "{name}" = ?' for name in changed), *(f'REMOVE "{name}"' for name in gone)]
    return f'UPDATE "{table}" {" ".join(clauses)} WHERE "pk" = ? AND "sk" = ? AND {condition}'


def condition_failed(error: ClientError) -> bool:
    """Whether nothing is wrong with a write but that its own condition does not hold."""
    return error.response["Error"]["Code"] == "ConditionalCheckFailedException"


def _conditionally(request: Any, arguments: Mapping[str, Any]) -> None:
    try:
        request(**arguments)
    except ClientError as error:
        if not condition_failed(error):
            raise
        raise ConditionFailed(_found(cast("dict[str, Any]", error.response))) from None


def _cancelled(error: ClientError | ParamValidationError, others: Sequence[Element]) -> Exception:
    """What a transaction's error means; the error itself where nobody can tell whether it was carried out."""
    if isinstance(error, ParamValidationError):
        return TransactionRefused("transact is not in DynamoDB's typed form", passing=False, detail=str(error))
    code, message = error.response["Error"]["Code"], error.response["Error"].get("Message", "")
    if code in _NEVER or code in _THROTTLED:
        why = f"DynamoDB refused the transaction: {code}"
        return TransactionRefused(why, passing=code in _THROTTLED, detail=message)
    if code != "TransactionCanceledException":
        return error
    own, *theirs = cast("dict[str, Any]", error.response)["CancellationReasons"]
    if own["Code"] == "ConditionalCheckFailed":
        return ConditionFailed(_found(own))
    return refusal([own["Code"], *(one["Code"] for one in theirs)], others)


def _found(answer: Mapping[str, Any]) -> Row | None:
    """The row that refused a write."""
    return rows.from_attributes(plain(answer.get("Item", {})))


def _key(key: RowKey) -> dict[str, Any]:
    return {"pk": {"S": key.pk}, "sk": {"S": key.sk}}


def _item(key: RowKey, row: Row) -> dict[str, Any]:
    """The row as DynamoDB types it."""
    return {**_key(key), **{name: _typed(value) for name, value in rows.attributes(row).items()}}


def _set(names: Iterable[str]) -> str:
    """An update's clause that sets these attributes, each to the value of its own name."""
    return "SET " + ", ".join(f"#{name} = :{name}" for name in names)


def _of_sets(clause: str, elements: Mapping[str, frozenset[str]]) -> str:
    """An update's clause that adds elements to sets or deletes some of theirs."""
    changes = ", ".join(f"#{name} :{clause.lower()}_{name}" for name in elements)
    return f"{clause} {changes}" if changes else ""


def _typed(value: Any) -> Any:
    if isinstance(value, frozenset):
        return {"SS": sorted(value)}
    return {"N": str(value)} if isinstance(value, int) else {"S": str(value)}


def plain(item: Mapping[str, Any]) -> dict[str, Any]:
    """DynamoDB's typed attributes as text, whole numbers and sets of texts, which is all that the ledger stores.
    Others stay typed: a later release may have stored them.
    """
    return {name: _plain(typed) for name, typed in item.items()}


def _plain(typed: Mapping[str, Any]) -> Any:
    if "S" in typed:
        return typed["S"]
    # int() itself would take spaces and underscores, and fails for a number like 1E+3.
    if "N" in typed and typed["N"].removeprefix("-").isdecimal():
        return int(typed["N"])
    if "SS" in typed:
        return frozenset(typed["SS"])
    return typed
