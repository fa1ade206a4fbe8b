"""DynamoDB's conditional semantics in memory: the part that the ledger uses, with its own expressions evaluated.

It is held against moto and against a local AWS with the same random requests, so that a proof on this store does not
rest on a wrong idea of DynamoDB. A request that it does not know raises NotImplementedError.
"""

import re
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from functools import cache
from typing import Any, NamedTuple
from zlib import crc32

from botocore.exceptions import ClientError

Item = dict[str, Any]
"""Attributes by name, as DynamoDB types them: `{"S": "text"}`, `{"N": "1"}`, `{"SS": ["text"]}`."""
Key = tuple[str, str]
_Test = Callable[[Mapping[str, Any], Mapping[str, str], Mapping[str, Any]], bool]

_WHERE = r'"\w+" (?:= \?|IS MISSING)'
_PAGE = 1_000
_TOKEN = re.compile(r"\s*(attribute_exists|attribute_not_exists|AND|OR|NOT|<>|<=|>=|=|<|>|\(|\)|,|[#:][A-Za-z_0-9]+)")


class MemoryDynamoDB:
    """One table with the part of boto3's client that `intake_ledger.ledger.dynamodb_table` calls."""

    def __init__(self, items: Mapping[Key, Item] | None = None) -> None:
        """Make a table.

        Args:
            items: by primary key; an empty table when omitted.

        """
        self.items: MutableMapping[Key, Item] = dict(items or {})
        """What is in it, by primary key."""
        self.requests: list[str] = []
        """The operations that were asked for, in order."""
        self.transacted: list[Mapping[str, Any]] = []
        """What was written to other tables together with a row of this one; conditions of theirs are not evaluated."""

    def put_item(self, **request: Any) -> dict[str, Any]:
        """On a condition, always."""
        item = request["Item"]
        self._check("PutItem", request, item)
        self.items[_key(item)] = dict(item)
        return {}

    def update_item(self, **request: Any) -> dict[str, Any]:
        """SET and REMOVE, ADD and DELETE for string sets, on a condition, always."""
        old = self._check("UpdateItem", request, request["Key"])
        new = dict(old if old is not None else request["Key"])
        names, values = request["ExpressionAttributeNames"], request.get("ExpressionAttributeValues", {})
        update = _update(request["UpdateExpression"])
        for name, value in update.assign:
            new[names[name]] = values[value]
        for name in update.remove:
            new.pop(names[name], None)
        for name, value in update.add:
            _store_set(new, names[name], _elements(new.get(names[name])) | _elements(values[value]))
        for name, value in update.delete:
            _store_set(new, names[name], _elements(new.get(names[name])) - _elements(values[value]))
        self.items[_key(request["Key"])] = new
        return {}

    def transact_write_items(self, **request: Any) -> dict[str, Any]:
        """An update of this table with whatever goes along with it: the only transaction that the ledger sends."""
        own, *others = request["TransactItems"]
        self.requests.append("TransactWriteItems")
        try:
            self.update_item(**own["Update"])
        except ClientError as refused:
            answer: Any = refused.response
            item = {"Item": answer["Item"]} if "Item" in answer else {}
            error = _error("TransactionCanceledException", "Transaction cancelled")
            reasons: Any = [{"Code": "ConditionalCheckFailed"} | item, *({"Code": "None"} for _ in others)]
            error.response["CancellationReasons"] = reasons
            raise error from None
        self.transacted.extend(others)
        return {}

    def delete_item(self, **request: Any) -> dict[str, Any]:
        """On a condition, always."""
        self._check("DeleteItem", request, request["Key"])
        self.items.pop(_key(request["Key"]), None)
        return {}

    def batch_execute_statement(self, **request: Any) -> dict[str, Any]:
        """INSERTs and conditional UPDATEs with parameters, the only statements that the ledger sends."""
        self.requests.append("BatchExecuteStatement")
        assert 1 <= len(request["Statements"]) <= 25
        responses: list[dict[str, Any]] = []
        for one in request["Statements"]:
            if one["Statement"].startswith("UPDATE"):
                responses.append(self._update(one))
                continue
            item = inserted(one)
            if _key(item) in self.items:
                responses.append(
                    {"Error": {"Code": "DuplicateItem", "Message": "Duplicate primary key exists in table"}}
                )
            else:
                self.items[_key(item)] = item
                responses.append({})
        return {"Responses": responses}

    def _update(self, statement: Mapping[str, Any]) -> dict[str, Any]:
        assign, remove, where = updated(statement)
        key = where["pk"]["S"], where["sk"]["S"]
        old = self.items.get(key, {})
        held = all(_compare(old.get(name), "=", value) for name, value in where.items())
        if not held or any(name in old for name in missing(statement)):
            return {"Error": {"Code": "ConditionalCheckFailed", "Message": "The conditional request failed"}}
        self.items[key] = {name: value for name, value in (old | assign).items() if name not in remove}
        return {}

    def get_item(self, **request: Any) -> dict[str, Any]:
        """Consistently: the ledger never decides on anything else."""
        assert request["ConsistentRead"], "the ledger never decides on an eventual read"
        self.requests.append("GetItem")
        item = self.items.get(_key(request["Key"]))
        return {} if item is None else {"Item": dict(item)}

    def batch_get_item(self, **request: Any) -> dict[str, Any]:
        """Consistently, up to 100 keys."""
        self.requests.append("BatchGetItem")
        [(table, wanted)] = request["RequestItems"].items()
        assert wanted["ConsistentRead"]
        keys = [_key(key) for key in wanted["Keys"]]
        if len(set(keys)) != len(keys) or not 1 <= len(keys) <= 100:
            raise _error("ValidationException", "Provided list of item keys contains duplicates, or is too long")
        found = [dict(self.items[key]) for key in keys if key in self.items]
        return {"Responses": {table: found}, "UnprocessedKeys": {}}

    def get_paginator(self, operation: str) -> "_Scan":
        """Pages of a scan.

        Args:
            operation: `scan`.

        """
        assert operation == "scan"
        return _Scan(self)

    def _check(self, operation: str, request: dict[str, Any], key: Mapping[str, Any]) -> Item | None:
        self.requests.append(operation)
        old = self.items.get(_key(key))
        if "ConditionExpression" not in request:
            return old
        test = _condition(request["ConditionExpression"])
        if not test(old or {}, request["ExpressionAttributeNames"], request.get("ExpressionAttributeValues", {})):
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
        test = _condition(request["FilterExpression"])
        names, values = request["ExpressionAttributeNames"], request["ExpressionAttributeValues"]
        wanted = [names[one.strip()] for one in request["ProjectionExpression"].split(",")]
        segment, segments = request.get("Segment", 0), request.get("TotalSegments", 1)
        keys = sorted(key for key in self._store.items if crc32(key[0].encode()) % segments == segment)
        # In pages, as DynamoDB does: an audit of a large table never has all of it in memory.
        for start in range(0, max(len(keys), 1), _PAGE):
            items = (self._store.items[key] for key in keys[start : start + _PAGE] if key in self._store.items)
            yield {
                "Items": [
                    {name: item[name] for name in wanted if name in item} for item in items if test(item, names, values)
                ]
            }


def inserted(statement: Mapping[str, Any]) -> Item:
    """The item that an INSERT writes."""
    match = re.fullmatch(r'INSERT INTO "[^"]+" VALUE {(.*)}', statement["Statement"])
    if match is None:
        raise NotImplementedError(statement["Statement"])
    names = [part.removesuffix("': ?").removeprefix("'") for part in match[1].split(", ")]
    return dict(zip(names, statement["Parameters"], strict=True))


def updated(statement: Mapping[str, Any]) -> tuple[Item, list[str], Item]:
    """What an UPDATE sets and removes, and what has to be equal for it."""
    match = re.fullmatch(r'UPDATE "[^"]+" (.*) WHERE (.*)', statement["Statement"])
    parts = re.fullmatch(r'((?:SET "\w+" = \? ?)*)((?:REMOVE "\w+" ?)*)', match[1]) if match else None
    if match is None or parts is None or not re.fullmatch(rf"{_WHERE}( AND {_WHERE})*", match[2]):
        raise NotImplementedError(statement["Statement"])
    sets, removes, asked = (re.findall(r'"(\w+)"(?! IS)', part) for part in (parts[1], parts[2], match[2]))
    values = iter(statement["Parameters"])
    assign = {name: next(values) for name in sets}
    where = {name: next(values) for name in asked}
    if next(values, None) is not None:
        raise NotImplementedError("more parameters than question marks")
    return assign, removes, where


def missing(statement: Mapping[str, Any]) -> list[str]:
    """The attributes that an UPDATE requires to be missing."""
    return re.findall(r'"(\w+)" IS MISSING', statement["Statement"])


def _key(item: Mapping[str, Any]) -> Key:
    return item["pk"]["S"], item["sk"]["S"]


def _error(code: str, message: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": message}}, "Operation")


class _Update(NamedTuple):
    """The clauses of an update expression: placeholders of names, with those of their values."""

    assign: list[tuple[str, str]]
    remove: list[str]
    add: list[tuple[str, str]]
    delete: list[tuple[str, str]]


@cache
def _update(expression: str) -> _Update:
    clauses = "SET", "REMOVE", "ADD", "DELETE"
    match = re.fullmatch(" ?".join(f"(?:{one} (?P<{one}>[^A-Z]*?))?" for one in clauses), expression)
    if match is None or not expression:
        raise NotImplementedError(expression)
    assign, remove, add, delete = ([part.split() for part in (match[one] or "").split(",") if part] for one in clauses)
    return _Update(
        [(name, value) for name, _, value in assign],
        [name for (name,) in remove],
        [(name, value) for name, value in add],
        [(name, value) for name, value in delete],
    )


def _elements(typed: Mapping[str, Any] | None) -> set[str]:
    """The elements of a string set; none where there is no attribute."""
    if typed is None:
        return set()
    if "SS" not in typed:
        raise NotImplementedError(f"a set is added to {typed}, DynamoDB refuses that")
    return set(typed["SS"])


def _store_set(item: Item, name: str, elements: set[str]) -> None:
    """DynamoDB has no empty set: the attribute goes with its last element."""
    if elements:
        item[name] = {"SS": sorted(elements)}
    else:
        item.pop(name, None)


@cache
def _condition(expression: str) -> _Test:
    """Compile a condition expression: OR of ANDs of comparisons, NOT, parentheses and the two existence functions."""
    tokens = _TOKEN.findall(expression)
    if "".join(tokens) != re.sub(r"\s+", "", expression):
        raise NotImplementedError(expression)
    test, rest = _either(tokens)
    if rest:
        raise NotImplementedError(expression)
    return test


def _either(tokens: list[str]) -> tuple[_Test, list[str]]:
    tests, tokens = _chain(tokens, "OR", _both)
    return lambda i, n, v: any(test(i, n, v) for test in tests), tokens


def _both(tokens: list[str]) -> tuple[_Test, list[str]]:
    tests, tokens = _chain(tokens, "AND", _one)
    return lambda i, n, v: all(test(i, n, v) for test in tests), tokens


def _chain(
    tokens: list[str], word: str, part: Callable[[list[str]], tuple[_Test, list[str]]]
) -> tuple[list[_Test], list[str]]:
    test, tokens = part(tokens)
    tests = [test]
    while tokens and tokens[0] == word:
        test, tokens = part(tokens[1:])
        tests.append(test)
    return tests, tokens


def _one(tokens: list[str]) -> tuple[_Test, list[str]]:
    head, *rest = tokens
    if head == "(":
        test, rest = _either(rest)
        return test, rest[1:]
    if head == "NOT":
        negated, rest = _one(rest)
        return lambda i, n, v: not negated(i, n, v), rest
    if head.startswith("attribute_"):
        name, wanted = rest[1], head == "attribute_exists"
        return lambda i, n, _: (n[name] in i) is wanted, rest[3:]
    operator, value = rest[0], rest[1]
    return lambda i, n, v: _compare(i.get(n[head]), operator, v[value]), rest[2:]


def _compare(left: Mapping[str, Any] | None, operator: str, right: Mapping[str, Any]) -> bool:
    """A comparison with an attribute that is missing, or of another type, is false; `<>` is true then."""
    if left is None or left.keys() != right.keys():
        return operator == "<>"
    if "SS" in left:
        return {"=": _elements(left) == _elements(right), "<>": _elements(left) != _elements(right)}[operator]
    [(kind, one)], [other] = left.items(), right.values()
    a, b = (int(one), int(other)) if kind == "N" else (one, other)
    return {"=": a == b, "<>": a != b, "<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b}[operator]
