"""Convert attributes to DynamoDB's typed form and back. The ledger stores text, whole numbers and sets of texts."""

from collections.abc import Mapping
from typing import Any


def to_dynamodb[Name](attributes: Mapping[Name, Any]) -> dict[Name, Any]:
    """The attributes in DynamoDB's typed form."""
    return {
        name: {"SS": sorted(value)}
        if isinstance(value, frozenset)
        else {"N": str(value)}
        if isinstance(value, int)
        else {"S": str(value)}
        for name, value in attributes.items()
    }


def from_dynamodb(item: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes of an item as text, whole numbers and sets of texts.

    Attributes of other types stay in DynamoDB's typed form, because a later release may have stored them.
    """
    return {name: _value(typed) for name, typed in item.items()}


def _value(typed: Mapping[str, Any]) -> Any:
    if "S" in typed:
        return typed["S"]
    # int() also takes spaces and underscores, and fails for a number such as 1E+3.
    if "N" in typed and typed["N"].removeprefix("-").isdecimal():
        return int(typed["N"])
    if "SS" in typed:
        return frozenset(typed["SS"])
    return typed
