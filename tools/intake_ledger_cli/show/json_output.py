"""Builds the JSON output of `--json`. Programs read it, so names and units stay the same. Times are in epoch
milliseconds.
"""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from intake_ledger.protocol.row import Row, row_attributes

JsonObject = dict[str, Any]

VERSION = 1
"""The version of the documents. A release that removes a field or changes its meaning raises it."""


def versioned(result: Any) -> JsonObject:
    """Return the document of a result, with the version of its form."""
    return {"formatVersion": VERSION, **document(result)}


def document(value: Any) -> Any:
    """The JSON form of a result: each field of a dataclass, with its name in camel case.

    A row has the names of its attributes in DynamoDB. A class with another form has a method `as_document`.
    """
    if isinstance(value, Row):
        return {name: document(one) for name, one in row_attributes(value).items()}
    if own := getattr(value, "as_document", None):
        return document(own())
    if is_dataclass(value):
        return {camel_case(one.name): document(getattr(value, one.name)) for one in fields(value) if one.init}
    if isinstance(value, Mapping):
        return {name: document(one) for name, one in value.items()}
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    return [document(one) for one in value] if isinstance(value, (list, tuple)) else value


def camel_case(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(one.capitalize() for one in others)
