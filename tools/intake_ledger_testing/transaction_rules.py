"""Refuses transactions that boto3 or DynamoDB would refuse for any content of the tables.

boto3's parameter validation runs first. The rules of DynamoDB for values, keys and expressions follow. `memory_tables`
knows the keys of the tables, and evaluates conditions.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

import botocore.session
from botocore.exceptions import ClientError
from botocore.validate import validate_parameters

from intake_ledger.protocol.handover import Element, value_problems

_MAX_ITEM_BYTES = 400 * 1024
_PLACEHOLDER = re.compile(r"[#:][A-Za-z0-9_]+")
_NAME = re.compile(r"(?<![#:A-Za-z0-9_])[A-Za-z][A-Za-z0-9_]*")
_CLAUSE = re.compile(r"(?<![#:.\w])(SET|REMOVE|ADD|DELETE)\b", re.IGNORECASE)
_WORDS = frozenset(
    {"SET", "REMOVE", "ADD", "DELETE", "AND", "OR", "NOT", "BETWEEN", "IN"}
    | {"ATTRIBUTE_EXISTS", "ATTRIBUTE_NOT_EXISTS", "ATTRIBUTE_TYPE", "BEGINS_WITH", "CONTAINS", "SIZE"}
    | {"IF_NOT_EXISTS", "LIST_APPEND"}
)
"""Keywords and functions of expressions."""


def check_transaction(elements: Sequence[Element]) -> None:
    """Refuse elements that no table would accept.

    Args:
        elements: in the form of `Commit(transact=...)`.

    Raises:
        ParamValidationError: boto3 would not send it.
        ClientError: DynamoDB would answer with a ValidationException.

    """
    validate_parameters({"TransactItems": list(elements)}, _input_shape())
    problems = [
        f"element {number} ({kind}): {problem}"
        for number, element in enumerate(elements, 1)
        for kind, request in element.items()
        for problem in _problems(kind, request)
    ]
    if problems:
        error: Any = {"Error": {"Code": "ValidationException", "Message": "; ".join(problems)}}
        raise ClientError(error, "TransactWriteItems")


def item_size_problem(item: Mapping[str, Any]) -> str:
    """The problem of an item that is too large for DynamoDB, or ''."""
    size = _size({"M": item})
    return (
        "" if size <= _MAX_ITEM_BYTES else f"the item has about {size:,} bytes, and DynamoDB allows {_MAX_ITEM_BYTES:,}"
    )


@cache
def _input_shape() -> Any:
    service = botocore.session.get_session().get_service_model("dynamodb")
    return service.operation_model("TransactWriteItems").input_shape


@cache
def _reserved() -> frozenset[str]:
    return frozenset(files(__package__).joinpath("reserved_words.txt").read_text().split())


def _problems(kind: str, request: Mapping[str, Any]) -> Iterator[str]:
    item, key = request.get("Item", {}), request.get("Key", {})
    values = request.get("ExpressionAttributeValues", {})
    wrong = [f"{name} {one}" for name, value in {**item, **key, **values}.items() for one in value_problems(value)]
    yield from wrong
    for name, value in key.items():
        if not value.keys() & {"S", "N", "B"}:
            yield f"the key {name} has the type {', '.join(value)}, and a key is a string, a number or binary"
        elif value.get("S") == "" or value.get("B") == b"":
            yield f"the key {name} is empty"
    if kind != "Put" and not 1 <= len(key) <= 2:
        yield f"its Key has {len(key)} attributes, and a table's key has one or two"
    if not wrong and (problem := item_size_problem(item)):
        yield problem
    yield from expression_problems(request, key)


def expression_problems(request: Mapping[str, Any], key: Mapping[str, Any]) -> Iterator[str]:
    """The problems of a request's expressions, and of the placeholders in them.

    Args:
        request: of any operation with expressions.
        key: the key that an update must not change.

    """
    expressions = {name: text for name, text in request.items() if name.endswith("Expression")}
    names, values = request.get("ExpressionAttributeNames", {}), request.get("ExpressionAttributeValues", {})
    for where, text in expressions.items():
        if not text.strip():
            yield f"its {where} is empty"
        for word in dict.fromkeys(_NAME.findall(text)):
            if word.upper() in _reserved() and word.upper() not in _WORDS:
                yield f"its {where} has the reserved word {word}: write #{word}, with an ExpressionAttributeNames"
    used = {one for text in expressions.values() for one in _PLACEHOLDER.findall(text)}
    for one in sorted(used - names.keys() - values.keys()):
        yield f"{one} is used and not defined"
    for one in sorted((names.keys() | values.keys()) - used):
        yield f"{one} is defined and not used"
    if "UpdateExpression" in expressions:
        yield from _of_update(expressions["UpdateExpression"], names, key)


def _of_update(text: str, names: Mapping[str, str], key: Mapping[str, Any]) -> Iterator[str]:
    start, *rest = _CLAUSE.split(text)
    clauses = [word.upper() for word in rest[::2]]
    if start.strip() or not clauses:
        yield "its UpdateExpression begins with none of SET, REMOVE, ADD, DELETE"
    for word in sorted({word for word in clauses if clauses.count(word) > 1}):
        yield f"its UpdateExpression has {word} twice"
    changed: set[str | None] = set()
    for part in ",".join(rest[1::2]).split(","):
        path = re.match(r"\s*(#?[A-Za-z0-9_]+)\s*(?=[=:\s]|$)", part)
        name = path and names.get(path[1], path[1])
        if name in key:
            yield f"its UpdateExpression changes {name}, a part of the key"
        if name and name in changed:
            yield f"its UpdateExpression changes {name} twice"
        changed.add(name)


def _size(value: Mapping[str, Any]) -> int:
    """Count names and values, about as DynamoDB does."""
    [(kind, content)] = value.items()
    if kind == "M":
        return sum(len(name.encode()) + _size(one) + 1 for name, one in content.items()) + 3
    if kind == "L":
        return sum(_size(one) + 1 for one in content) + 3
    if kind in ("SS", "NS", "BS"):
        return sum(_size({kind[0]: one}) for one in content)
    if kind == "N":
        return len(content) // 2 + 1
    if isinstance(content, str):
        return len(content.encode())
    return len(content) if isinstance(content, bytes | bytearray) else 1
