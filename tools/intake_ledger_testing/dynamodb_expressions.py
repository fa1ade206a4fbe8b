"""Parses and evaluates the expressions and PartiQL statements that the ledger sends to DynamoDB."""

import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple

Item = dict[str, Any]
"""Attributes by name, in DynamoDB's JSON: `{"S": "text"}`, `{"N": "1"}`, `{"SS": ["text"]}`."""
Condition = Callable[[Mapping[str, Any], Mapping[str, str], Mapping[str, Any]], bool]
"""A test of an item, given the names and the values of its placeholders."""

_WHERE = r'"\w+" (?:= \?|IS MISSING)'
_TOKEN = re.compile(
    r"\s*(attribute_exists|attribute_not_exists|AND|OR|NOT|IN\b|<>|<=|>=|=|<|>|\(|\)|,|[#:][A-Za-z_0-9]+)"
)


def inserted_item(statement: Mapping[str, Any]) -> Item:
    """Return the item that an INSERT statement writes."""
    match = re.fullmatch(r'INSERT INTO "[^"]+" VALUE {(.*)}', statement["Statement"])
    if match is None:
        raise NotImplementedError(statement["Statement"])
    names = [part.removesuffix("': ?").removeprefix("'") for part in match[1].split(", ")]
    return dict(zip(names, statement["Parameters"], strict=True))


def parse_update_statement(statement: Mapping[str, Any]) -> tuple[Item, list[str], Item]:
    """Return the set, removed and compared attributes of an UPDATE statement."""
    match = re.fullmatch(r'UPDATE "[^"]+" (.*) WHERE (.*)', statement["Statement"])
    parts = re.fullmatch(r'((?:SET "\w+" = \? ?)*)((?:REMOVE "\w+" ?)*)', match[1]) if match else None
    if match is None or parts is None or not re.fullmatch(rf"{_WHERE}( AND {_WHERE})*", match[2]):
        raise NotImplementedError(statement["Statement"])
    sets, removes, compared = (re.findall(r'"(\w+)"(?! IS)', part) for part in (parts[1], parts[2], match[2]))
    values = iter(statement["Parameters"])
    assign = {name: next(values) for name in sets}
    where = {name: next(values) for name in compared}
    if next(values, None) is not None:
        raise NotImplementedError("more parameters than question marks")
    return assign, removes, where


def required_missing(statement: Mapping[str, Any]) -> list[str]:
    """Return the attributes that the condition of an UPDATE statement requires to be missing."""
    return re.findall(r'"(\w+)" IS MISSING', statement["Statement"])


class Update(NamedTuple):
    """The clauses of an update expression, with the placeholders of names and values."""

    assign: list[tuple[str, str]]
    remove: list[str]
    add: list[tuple[str, str]]
    delete: list[tuple[str, str]]


@cache
def parse_update(expression: str) -> Update:
    """Parse an update expression."""
    clauses = "SET", "REMOVE", "ADD", "DELETE"
    match = re.fullmatch(" ?".join(f"(?:{one} (?P<{one}>[^A-Z]*?))?" for one in clauses), expression)
    if match is None or not expression:
        raise NotImplementedError(expression)
    assign, remove, add, delete = ([part.split() for part in (match[one] or "").split(",") if part] for one in clauses)
    return Update(
        [(name, value) for name, _, value in assign],
        [name for (name,) in remove],
        [(name, value) for name, value in add],
        [(name, value) for name, value in delete],
    )


def set_elements(typed: Mapping[str, Any] | None) -> set[str]:
    """Return the elements of a string set. A missing attribute has none."""
    if typed is None:
        return set()
    if "SS" not in typed:
        raise NotImplementedError(f"a set is added to {typed}, DynamoDB refuses that")
    return set(typed["SS"])


def store_set(item: Item, name: str, elements: set[str]) -> None:
    """Store a string set, or remove the attribute if the set is empty: DynamoDB has no empty sets."""
    if elements:
        item[name] = {"SS": sorted(elements)}
    else:
        item.pop(name, None)


@cache
def parse_condition(expression: str) -> Condition:
    """Compile a condition expression: comparisons, IN, NOT, AND, OR, parentheses and the two existence functions."""
    tokens = _TOKEN.findall(expression)
    if "".join(tokens) != re.sub(r"\s+", "", expression):
        raise NotImplementedError(expression)
    test, rest = _parse_or(tokens)
    if rest:
        raise NotImplementedError(expression)
    return test


def _parse_or(tokens: list[str]) -> tuple[Condition, list[str]]:
    tests, tokens = _chain(tokens, "OR", _parse_and)
    return lambda i, n, v: any(test(i, n, v) for test in tests), tokens


def _parse_and(tokens: list[str]) -> tuple[Condition, list[str]]:
    tests, tokens = _chain(tokens, "AND", _parse_term)
    return lambda i, n, v: all(test(i, n, v) for test in tests), tokens


def _chain(
    tokens: list[str], word: str, part: Callable[[list[str]], tuple[Condition, list[str]]]
) -> tuple[list[Condition], list[str]]:
    test, tokens = part(tokens)
    tests = [test]
    while tokens and tokens[0] == word:
        test, tokens = part(tokens[1:])
        tests.append(test)
    return tests, tokens


def _parse_term(tokens: list[str]) -> tuple[Condition, list[str]]:
    head, *rest = tokens
    if head == "(":
        test, rest = _parse_or(rest)
        return test, rest[1:]
    if head == "NOT":
        negated, rest = _parse_term(rest)
        return lambda i, n, v: not negated(i, n, v), rest
    if head.startswith("attribute_"):
        name, wanted = rest[1], head == "attribute_exists"
        return lambda i, n, _: (n[name] in i) is wanted, rest[3:]
    if rest[0] == "IN":
        end = rest.index(")")
        values = [one for one in rest[2:end] if one != ","]
        return lambda i, n, v: any(compare(i.get(n[head]), "=", v[one]) for one in values), rest[end + 1 :]
    operator, value = rest[0], rest[1]
    return lambda i, n, v: compare(i.get(n[head]), operator, v[value]), rest[2:]


def compare(left: Mapping[str, Any] | None, operator: str, right: Mapping[str, Any]) -> bool:
    """Compare an attribute with a value. If it is missing or has another type, only `<>` is true."""
    if left is None or left.keys() != right.keys():
        return operator == "<>"
    if "SS" in left:
        same = set_elements(left) == set_elements(right)
        return {"=": same, "<>": not same}[operator]
    [(kind, one)], [other] = left.items(), right.values()
    a, b = (int(one), int(other)) if kind == "N" else (one, other)
    return {"=": a == b, "<>": a != b, "<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b}[operator]
