"""An in-memory DynamoDB table with the operations and expressions that the ledger uses.

Tests compare its answers with those of moto and of a local AWS for the same random requests. A request that it does not
support raises NotImplementedError or ExpressionError.
"""

import random
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from typing import Any, NoReturn
from zlib import crc32

from botocore.exceptions import ClientError

from intake_ledger_testing.dynamodb_expressions import Item, inserted_item, parse_update_statement, required_missing
from intake_ledger_testing.table_expressions import compare, holds
from intake_ledger_testing.table_updates import updated

Key = tuple[str, str]

_PAGE = 1_000
_BUSY_SHARE = 0.1
_MOST_IN_A_ROW = 2


class MemoryDynamoDB:
    """A table with the methods of boto3's client that `intake_ledger.ledger.dynamodb_table` calls."""

    busy: random.Random | None = None
    """Makes the table a busy one. A tenth of the requests gets the answers of a table that throttles and has
    transactions under way, but at most two requests in a row: a batch is carried out in part, and a single write meets
    a transaction. Set it on the class in a fixture, with a seed, or on one table. None: it takes each request."""

    restored = False
    """True if the table was restored from a backup."""

    def __init__(self, items: Mapping[Key, Item] | None = None) -> None:
        """Make a table.

        Args:
            items: by primary key; an empty table when omitted.

        """
        self.items: MutableMapping[Key, Item] = dict(items or {})
        """The items by primary key."""
        self.requests: list[str] = []
        """The requested operations, in order."""
        self.transacted: list[Mapping[str, Any]] = []
        """Elements of transactions for other tables, in order. Their conditions are not evaluated."""
        self.partial_batches = 0
        """The number of next batches of which DynamoDB carries out a half only, as if it throttled the rest. Of a batch
        with one entry, it carries out nothing."""
        self.conflicts = 0
        """The number of next single writes that meet a transaction on their item, and are refused."""
        self._refused_in_a_row = 0
        self._in_transaction = False

    def put_item(self, **request: Any) -> dict[str, Any]:
        """Write an item."""
        item = request["Item"]
        self._check("PutItem", request, item)
        self.items[_key(item)] = dict(item)
        return {}

    def update_item(self, **request: Any) -> dict[str, Any]:
        """Update an item."""
        if not request["UpdateExpression"]:
            self.refuse("Invalid UpdateExpression: The expression can not be empty;")
        old = self._check("UpdateItem", request, request["Key"])
        new = updated(request, old if old is not None else request["Key"])
        self.items[_key(request["Key"])] = new
        return {"Attributes": dict(new)} if request.get("ReturnValues") == "ALL_NEW" else {}

    def refuse(self, problem: str) -> NoReturn:
        """Refuse a request that can never be carried out, as DynamoDB does. The ledger must send none.

        Args:
            problem: the message of the error.

        Raises:
            ClientError: Always, with the code ValidationException.

        """
        raise _error("ValidationException", problem)

    def transact_write_items(self, **request: Any) -> dict[str, Any]:
        """Write a transaction whose first element updates this table. The ledger sends no other transactions."""
        elements = request["TransactItems"]
        if any(not one["Update"]["UpdateExpression"] for one in elements if "Update" in one):
            self.refuse("Invalid UpdateExpression: The expression can not be empty;")
        table = elements[0]["Update"]["TableName"]
        own = [one for one in elements if "Update" in one and one["Update"]["TableName"] == table]
        self.requests.append("TransactWriteItems")
        self._in_transaction = True
        try:
            reasons = [self._reason(one["Update"]) if one in own else {"Code": "None"} for one in elements]
            if any(reason["Code"] != "None" for reason in reasons):
                error: Any = _error("TransactionCanceledException", "Transaction cancelled")
                error.response["CancellationReasons"] = reasons
                raise error
            self.write_others([one for one in elements if one not in own])
            for one in own:
                self.update_item(**one["Update"])
        finally:
            self._in_transaction = False
        self.transacted.extend(one for one in elements if one not in own)
        return {}

    def write_others(self, elements: Sequence[Mapping[str, Any]]) -> None:
        """Write the elements of a transaction for other tables, when the conditions of this table hold.

        If it raises, the transaction writes nothing. Without an override, nothing is written.

        Args:
            elements: in the order of the transaction.

        """

    def _reason(self, update: dict[str, Any]) -> dict[str, Any]:
        """The answer of a transaction about an element: whether its condition holds."""
        try:
            self._check("UpdateItem", update, update["Key"])
        except ClientError as refused:
            answer: Any = refused.response
            return {"Code": "ConditionalCheckFailed"} | ({"Item": answer["Item"]} if "Item" in answer else {})
        return {"Code": "None"}

    def delete_item(self, **request: Any) -> dict[str, Any]:
        """Delete an item."""
        self._check("DeleteItem", request, request["Key"])
        self.items.pop(_key(request["Key"]), None)
        return {}

    def batch_execute_statement(self, **request: Any) -> dict[str, Any]:
        """Execute INSERT and conditional UPDATE statements with parameters. The ledger sends no other statements."""
        self.requests.append("BatchExecuteStatement")
        assert 1 <= len(request["Statements"]) <= 25
        responses: list[dict[str, Any]] = []
        taken = self._taken(request["Statements"])
        for number, one in enumerate(request["Statements"]):
            if number >= len(taken):
                responses.append({"Error": {"Code": "ThrottlingError", "Message": "Throughput exceeds the limit"}})
                continue
            if one["Statement"].startswith("UPDATE"):
                responses.append(self._update(one))
                continue
            item = inserted_item(one)
            if _key(item) in self.items:
                responses.append(
                    {"Error": {"Code": "DuplicateItem", "Message": "Duplicate primary key exists in table"}}
                )
            else:
                self.items[_key(item)] = item
                responses.append({})
        return {"Responses": responses}

    def _update(self, statement: Mapping[str, Any]) -> dict[str, Any]:
        assign, remove, where = parse_update_statement(statement)
        if not (assign or remove):
            self.refuse("Statement wasn't well formed, can't be processed: an update without a change")
        key = where["pk"]["S"], where["sk"]["S"]
        old = self.items.get(key, {})
        held = all(compare(old.get(name), "=", value) for name, value in where.items())
        if not held or any(name in old for name in required_missing(statement)):
            return {"Error": {"Code": "ConditionalCheckFailed", "Message": "The conditional request failed"}}
        self.items[key] = {name: value for name, value in (old | assign).items() if name not in remove}
        return {}

    def get_item(self, **request: Any) -> dict[str, Any]:
        """Read an item. The request must be consistent, as all reads of the ledger are."""
        assert request["ConsistentRead"], "the ledger never decides on an eventual read"
        self.requests.append("GetItem")
        item = self.items.get(_key(request["Key"]))
        return {} if item is None else {"Item": dict(item)}

    def describe_table(self, **_: Any) -> dict[str, Any]:
        """Describe the table. It was not restored from a backup, unless `restored` is true."""
        self.requests.append("DescribeTable")
        return {"Table": {"RestoreSummary": {}} if self.restored else {}}

    def batch_get_item(self, **request: Any) -> dict[str, Any]:
        """Read up to 100 items with consistent reads."""
        self.requests.append("BatchGetItem")
        [(table, wanted)] = request["RequestItems"].items()
        assert wanted["ConsistentRead"]
        keys = [_key(key) for key in wanted["Keys"]]
        if len(set(keys)) != len(keys) or not 1 <= len(keys) <= 100:
            self.refuse("Provided list of item keys contains duplicates, or is too long")
        taken = self._taken(keys)
        found = [dict(self.items[key]) for key in taken if key in self.items]
        left = wanted["Keys"][len(taken) :]
        return {"Responses": {table: found}, "UnprocessedKeys": {table: {**wanted, "Keys": left}} if left else {}}

    def batch_write_item(self, **request: Any) -> dict[str, Any]:
        """Write up to 25 items without conditions."""
        self.requests.append("BatchWriteItem")
        [(table, writes)] = request["RequestItems"].items()
        items = [write["PutRequest"]["Item"] for write in writes]
        if len({_key(item) for item in items}) != len(items) or not 1 <= len(items) <= 25:
            self.refuse("Provided list of item keys contains duplicates, or is too long")
        taken = self._taken(items)
        self.items.update({_key(item): dict(item) for item in taken})
        left = writes[len(taken) :]
        return {"UnprocessedItems": {table: left} if left else {}}

    def _taken[T](self, wanted: Sequence[T]) -> Sequence[T]:
        """The part of a batch that is carried out."""
        if self.partial_batches:
            self.partial_batches -= 1
        elif not self._is_busy():
            return wanted
        return wanted[: len(wanted) // 2]

    def _is_busy(self) -> bool:
        """True if this request gets the answer of a busy table."""
        refused = self._refused_in_a_row < _MOST_IN_A_ROW and self.busy is not None and self.busy.random() < _BUSY_SHARE
        self._refused_in_a_row = self._refused_in_a_row + 1 if refused else 0
        return refused

    def query(self, **request: Any) -> dict[str, Any]:
        """Read the items with a partition key and a prefix of the sort key, or those of a partition of the index."""
        if "IndexName" in request:
            return self._query_index(request)
        assert request["ConsistentRead"], "the ledger never decides on an eventual read"
        assert request["KeyConditionExpression"] == "pk = :pk AND begins_with(sk, :prefix)"
        self.requests.append("Query")
        values = request["ExpressionAttributeValues"]
        pk, prefix = values[":pk"]["S"], values[":prefix"]["S"]
        found = [key for key in sorted(self.items) if key[0] == pk and key[1].startswith(prefix)]
        return {"Items": [dict(self.items[key]) for key in found[: request.get("Limit")]]}

    def _query_index(self, request: dict[str, Any]) -> dict[str, Any]:
        assert request["IndexName"] == "needs_review"
        assert request["KeyConditionExpression"] == "#needs_review = :partition"
        self.requests.append("Query")
        partition = request["ExpressionAttributeValues"][":partition"]
        found = [item for item in self.items.values() if item.get("needs_review") == partition]
        return {"Items": [dict(item) for item in sorted(found, key=lambda item: int(item["updated_at"]["N"]))]}

    def scan(self, **request: Any) -> dict[str, Any]:
        """Read all items that fit the filter, as one page."""
        return {"Items": [item for page in _Scan(self).paginate(**request) for item in page["Items"]]}

    def get_paginator(self, operation: str) -> "_Scan":
        """Return a paginator of `scan`.

        Args:
            operation: `scan`.

        """
        assert operation == "scan"
        return _Scan(self)

    def _check(self, operation: str, request: dict[str, Any], key: Mapping[str, Any]) -> Item | None:
        self.requests.append(operation)
        old = self.items.get(_key(key))
        # The ledger's transactions write rows and locks only. Each of them has a fence.
        has_fence = not self._in_transaction and "fence" in (old or key)
        if has_fence and (self.conflicts or self._is_busy()):
            self.conflicts = max(self.conflicts - 1, 0)
            raise _error("TransactionConflictException", "Transaction is ongoing for the item")
        if not holds(request, old or {}):
            error = _error("ConditionalCheckFailedException", "The conditional request failed")
            if old is not None and request.get("ReturnValuesOnConditionCheckFailure") == "ALL_OLD":
                error.response["Item"] = dict(old)  # type: ignore[typeddict-unknown-key]
            raise error
        return old


class _Scan:
    def __init__(self, store: MemoryDynamoDB) -> None:
        self._store = store

    def paginate(self, **request: Any) -> Iterator[dict[str, Any]]:
        self._store.requests.append("Scan")
        condition = request | {"ConditionExpression": request["FilterExpression"]}
        names = request["ExpressionAttributeNames"]
        wanted = [names[one.strip()] for one in request["ProjectionExpression"].split(",")]
        segment, segments = request.get("Segment", 0), request.get("TotalSegments", 1)
        keys = sorted(key for key in self._store.items if crc32(key[0].encode()) % segments == segment)
        # DynamoDB also returns pages, so that an audit of a large table never holds all items in memory.
        for start in range(0, max(len(keys), 1), _PAGE):
            items = (self._store.items[key] for key in keys[start : start + _PAGE] if key in self._store.items)
            yield {
                "Items": [
                    {name: item[name] for name in wanted if name in item} for item in items if holds(condition, item)
                ]
            }


def _key(item: Mapping[str, Any]) -> Key:
    return item["pk"]["S"], item["sk"]["S"]


def _error(code: str, message: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": message}}, "Operation")
