"""DynamoDB tables in memory for the writes of a processor. Conditions and updates are carried out as by DynamoDB."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from botocore.exceptions import ClientError

from intake_ledger_testing.table_expressions import ExpressionError, Item, holds
from intake_ledger_testing.table_updates import updated
from intake_ledger_testing.table_values import Value, comparable
from intake_ledger_testing.transaction_rules import check_transaction, item_size_problem

KeyType = Literal["S", "N", "B"]
_Identity = tuple[Any, ...]
_OPERATIONS = {"Put": "PutItem", "Update": "UpdateItem", "Delete": "DeleteItem"}


class MemoryTables:
    """Tables with the methods of boto3's client that write and read single items.

    Give it to `LocalPipeline(process, dynamodb=tables)` for `Commit(transact=...)`, and to your own code as its client.
    It has no indexes, queries and scans. For these, use the client of a local DynamoDB.
    """

    def __init__(self, tables: Mapping[str, Mapping[str, KeyType]]) -> None:
        """Make empty tables.

        Args:
            tables: the key attributes of each table with their types, the partition key first, such as
                `{"totals": {"file": "S"}, "orders": {"customer": "S", "number": "N"}}`.

        Raises:
            ValueError: A table has no key, or one of more than two attributes, or of another type.

        """
        for name, key in tables.items():
            if not 1 <= len(key) <= 2 or not set(key.values()) <= {"S", "N", "B"}:
                raise ValueError(
                    f"the table {name} has the key {dict(key)!r}: give one or two attributes with S, N or B, such as "
                    '{"file": "S"}'
                )
        self._keys = {name: dict(key) for name, key in tables.items()}
        self._items: dict[str, dict[_Identity, Item]] = {name: {} for name in tables}

    def items(self, table: str) -> list[Item]:
        """The items of a table in DynamoDB's typed form, in the order of their first write.

        Args:
            table: its name.

        """
        return [dict(item) for item in self._items[table].values()]

    def get_item(self, **request: Any) -> dict[str, Any]:
        """Answer as boto3's client. Each read is consistent, and returns the whole item."""
        element = {"Key": request["Key"], "TableName": request["TableName"]}
        found = self._items[self._table("GetItem", element)].get(self._identity("GetItem", "Key", element))
        return {} if found is None else {"Item": dict(found)}

    def put_item(self, **request: Any) -> dict[str, Any]:
        """Answer as boto3's client, without `ReturnValues`."""
        return self._write("Put", request)

    def update_item(self, **request: Any) -> dict[str, Any]:
        """Answer as boto3's client, without `ReturnValues`."""
        return self._write("Update", request)

    def delete_item(self, **request: Any) -> dict[str, Any]:
        """Answer as boto3's client, without `ReturnValues`."""
        return self._write("Delete", request)

    def transact_write_items(self, **request: Any) -> dict[str, Any]:
        """Answer as boto3's client: all elements are written, or none."""
        elements: Sequence[Mapping[str, Mapping[str, Any]]] = request["TransactItems"]
        check_transaction(elements)
        opened = [(kind, element) for one in elements for kind, element in one.items()]
        places = [self._place("TransactWriteItems", kind, element) for kind, element in opened]
        for number, place in enumerate(places, 1):
            if place in places[: number - 1]:
                text = f"element {number}: Transaction request cannot include multiple operations on one item"
                raise _error("TransactWriteItems", "ValidationException", text)
        results = [self._result(kind, element, place) for (kind, element), place in zip(opened, places, strict=True)]
        reasons = [result if isinstance(result, dict) else {"Code": "None"} for result in results]
        if any(reason["Code"] != "None" for reason in reasons):
            codes = ", ".join(reason["Code"] for reason in reasons)
            text = f"Transaction cancelled, please refer cancellation reasons for specific reasons [{codes}]"
            raise _error("TransactWriteItems", "TransactionCanceledException", text, CancellationReasons=reasons)
        for place, result in zip(places, results, strict=True):
            self._store(place, result)
        return {}

    def _write(self, kind: str, request: Mapping[str, Any]) -> dict[str, Any]:
        operation = _OPERATIONS[kind]
        if request.get("ReturnValues", "NONE") != "NONE":
            raise NotImplementedError("ReturnValues: use the client of a local DynamoDB")
        element = {name: value for name, value in request.items() if name != "ReturnValues"}
        check_transaction([{kind: element}])
        place = self._place(operation, kind, element)
        result = self._result(kind, element, place)
        if isinstance(result, dict):
            text = result["Message"]
            if result["Code"] == "ValidationError":
                raise _error(operation, "ValidationException", text)
            shown = {"Item": result["Item"]} if "Item" in result else {}
            raise _error(operation, "ConditionalCheckFailedException", text, **shown)
        self._store(place, result)
        return {}

    def _result(
        self, kind: str, element: Mapping[str, Any], place: tuple[str, _Identity]
    ) -> "dict[str, Any] | _Write | None":
        """The write of an element, the reason of its refusal, or None for a condition that holds."""
        table, identity = place
        old = self._items[table].get(identity)
        try:
            if not holds(element, old or {}):
                reason = {"Code": "ConditionalCheckFailed", "Message": "The conditional request failed"}
                wanted = element.get("ReturnValuesOnConditionCheckFailure") == "ALL_OLD"
                return reason | ({"Item": dict(old)} if wanted and old is not None else {})
            if kind == "ConditionCheck":
                return None
            if kind == "Delete":
                return _Write(None)
            new = dict(element["Item"]) if kind == "Put" else updated(element, old or element["Key"])
        except ExpressionError as error:
            return {"Code": "ValidationError", "Message": str(error)}
        problem = item_size_problem(new)
        return {"Code": "ValidationError", "Message": problem} if problem else _Write(new)

    def _store(self, place: tuple[str, _Identity], result: "dict[str, Any] | _Write | None") -> None:
        table, identity = place
        if isinstance(result, _Write):
            if result.item is None:
                self._items[table].pop(identity, None)
            else:
                self._items[table][identity] = result.item

    def _place(self, operation: str, kind: str, element: Mapping[str, Any]) -> tuple[str, _Identity]:
        table = self._table(operation, element)
        return table, self._identity(operation, "Item" if kind == "Put" else "Key", element)

    def _table(self, operation: str, element: Mapping[str, Any]) -> str:
        name = str(element["TableName"]).rpartition("/")[2]  # of an ARN
        if name not in self._keys:
            known = ", ".join(self._keys) or "none"
            text = f"Requested resource not found: no table {name}. MemoryTables has: {known}"
            raise _error(operation, "ResourceNotFoundException", text)
        return name

    def _identity(self, operation: str, field: str, element: Mapping[str, Any]) -> _Identity:
        table, given = self._table(operation, element), element[field]
        key = self._keys[table]
        wrong = [name for name, kind in key.items() if given.get(name, {}).keys() != {kind}]
        if wrong or (field == "Key" and len(given) != len(key)):
            schema = ", ".join(f"{name} ({kind})" for name, kind in key.items())
            shown = {name: value for name, value in given.items() if field == "Key" or name in key}
            text = f"The provided key element does not match the schema: {table} has {schema}, and not {shown!r}"
            raise _error(operation, "ValidationException", text)
        return tuple(comparable(given[name]) for name in key)


class _Write:
    """The item that is stored. None: it is deleted."""

    def __init__(self, item: Mapping[str, Value] | None) -> None:
        self.item = None if item is None else dict(item)


def _error(operation: str, code: str, text: str, **more: Any) -> ClientError:
    answer: Any = {"Error": {"Code": code, "Message": text}, **more}
    return ClientError(answer, operation)
