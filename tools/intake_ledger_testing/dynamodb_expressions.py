"""Parses the PartiQL statements that the ledger sends to DynamoDB."""

import re
from collections.abc import Mapping
from typing import Any

Item = dict[str, Any]
"""Attributes by name, in DynamoDB's JSON: `{"S": "text"}`, `{"N": "1"}`, `{"SS": ["text"]}`."""

_WHERE = r'"\w+" (?:= \?|IS MISSING)'


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
