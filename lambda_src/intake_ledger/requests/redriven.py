"""The operation that has redriven a message, in one message attribute.

A copy in the dead-letter queue has nine attributes or ten, and SQS allows ten. So the redrive packs those that only
people read into this one. If the operation is stopped, the copy goes back with them.
"""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from intake_ledger.events.copies import ATTRIBUTE as WAITING
from intake_ledger.events.copies import REDRIVEN
from intake_ledger.protocol.ulids import is_ulid

_READ = ("rejected_fence", WAITING)
"""Attributes that the consumer reads. They stay as they are."""
_MAX_ATTRIBUTES = 10
_MAX_DIGITS = 20


class Redriven(NamedTuple):
    """The operation of a redriven message, and the attributes that are packed with it."""

    request_id: str
    """The ID of the operation, a ULID."""
    attributes: Mapping[str, str | int]
    """Numbers are of SQS's type Number, texts of its type String."""

    @property
    def typed(self) -> dict[str, dict[str, str]]:
        """The packed attributes as SQS types them."""
        kinds = {str: "String", int: "Number"}
        return {
            name: {"DataType": kinds[type(value)], "StringValue": str(value)} for name, value in self.attributes.items()
        }

    @property
    def text(self) -> str:
        """The value of the attribute, in ASCII: SQS refuses characters that a reason may have."""
        return json.dumps([*self], separators=(",", ":"))


def redriven(text: object) -> Redriven | None:
    """Read the attribute. None: it has another form. Senders choose attributes."""
    try:
        request_id, attributes = json.loads(text)  # type: ignore[arg-type]
        names = all(isinstance(name, str) and name for name in attributes)
        values = all(type(value) in (str, int) for value in attributes.values())
    except (TypeError, ValueError, AttributeError, RecursionError):
        return None
    if not isinstance(request_id, str) or not is_ulid(request_id) or not names or not values:
        return None
    return Redriven(request_id, attributes) if len(attributes) < _MAX_ATTRIBUTES else None


def packed(request_id: str, attributes: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, str]] | None:
    """The attributes of a message of the dead-letter queue when an operation redrives it.

    Args:
        request_id: the ID of the operation.
        attributes: those of the message, as SQS types them.

    Returns:
        The attributes as SQS types them. None: an attribute is binary, or has a type of its own. Such a message was
        sent by the team and moved by SQS.

    """
    kept, inner = dict[str, dict[str, str]](), dict[str, str | int]()
    for name, one in attributes.items():
        kind, value = one.get("DataType"), one.get("StringValue")
        if not isinstance(value, str) or name == REDRIVEN:
            return None
        if name in _READ:
            kept[name] = {"DataType": str(kind), "StringValue": value}
        elif kind == "String":
            inner[name] = value
        elif kind == "Number" and value.isascii() and value.isdecimal() and len(value) < _MAX_DIGITS:
            inner[name] = int(value)
        else:
            return None
    return {**kept, REDRIVEN: {"DataType": "String", "StringValue": Redriven(request_id, inner).text}}
