"""Decode the records of streams: the data of Kinesis, and the typed values of DynamoDB."""

import base64
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from intake_ledger.events.parser import MalformedError

_IMAGES = ("Keys", "NewImage", "OldImage")
_LARGEST_WHOLE = 2**53
"""Languages whose numbers are doubles round larger ones: RFC 8259, section 6."""


def kinesis_data(record: Mapping[str, Any]) -> str:
    """The data of a record of Kinesis, as text.

    Raises:
        MalformedError: The record has no data, or the data is not UTF-8.

    """
    try:
        return base64.b64decode(record["kinesis"]["data"], validate=True).decode()
    except (KeyError, TypeError, ValueError) as problem:
        raise MalformedError(f"the record of Kinesis has no UTF-8 text: {type(problem).__name__}") from None


def dynamodb_record(record: Mapping[str, Any]) -> dict[str, Any]:
    """A record of a DynamoDB stream with plain values in its keys and images.

    Raises:
        MalformedError: It is not such a record.

    """
    change = record.get("dynamodb")
    if not isinstance(change, Mapping):
        raise MalformedError("the record has no change of DynamoDB")
    try:
        images = {
            name: {key: plain(value) for key, value in change[name].items()} for name in _IMAGES if name in change
        }
    except (AttributeError, ArithmeticError, TypeError, ValueError) as problem:
        raise MalformedError(f"the record's images are not DynamoDB's JSON: {type(problem).__name__}") from None
    # All other fields too: `userIdentity` tells a removal by TTL from one by a writer.
    return {**record, "dynamodb": {**change, **images}}


def plain(typed: Mapping[str, Any]) -> Any:
    """A typed value of DynamoDB as a value of Python. Whole numbers are `int`, other numbers `Decimal`.

    Raises:
        ValueError: The value has no type of DynamoDB. Also ArithmeticError and TypeError.

    """
    [(kind, value)] = typed.items()
    if kind not in _DECODERS:
        raise ValueError(f"{kind!r} is no type of DynamoDB")
    return _DECODERS[kind](value)


def as_json(value: Any) -> Any:  # noqa: PLR0911 - one return per type
    """A plain value in JSON's types: a set is a sorted list, bytes are Base64, and a number no double has is a text."""
    match value:
        case Mapping():
            return {name: as_json(inner) for name, inner in value.items()}
        case list():
            return [as_json(inner) for inner in value]
        case set():
            return [as_json(inner) for inner in sorted(value)]
        case bytes():
            return base64.b64encode(value).decode()
        case Decimal():
            return float(value) if Decimal(repr(float(value))) == value else str(value)
        case int() if abs(value) > _LARGEST_WHOLE:
            return str(value)
    return value


def _number(text: str) -> int | Decimal:
    number = Decimal(text)
    return int(number) if number == number.to_integral_value() else number


def _unchanged(value: Any) -> Any:
    return value


_DECODERS: dict[str, Callable[[Any], Any]] = {
    "S": _unchanged,
    "BOOL": _unchanged,
    "N": _number,
    "NULL": lambda _: None,
    "B": base64.b64decode,
    "M": lambda value: {name: plain(inner) for name, inner in value.items()},
    "L": lambda value: [plain(inner) for inner in value],
    "SS": set,
    "NS": lambda value: {_number(inner) for inner in value},
    "BS": lambda value: {base64.b64decode(inner) for inner in value},
}
"""By DynamoDB's names of types."""
