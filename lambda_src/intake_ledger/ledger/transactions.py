"""Tell malformed writes from writes that may succeed later, by DynamoDB's refusal of their transaction."""

from collections.abc import Mapping, Sequence
from typing import Any

from intake_ledger.protocol.errors import InvalidTransactionError, TransactionRefused
from intake_ledger.protocol.handover import Element

PASSING = frozenset({"None", "ProvisionedThroughputExceeded", "ThrottlingError", "TransactionConflict"})
"""DynamoDB's codes for a valid element."""
_MALFORMED = (
    "Item size has exceeded",
    "One or more parameter values were invalid",
    "Supplied AttributeValue",
    "The parameter cannot be converted to a numeric value",
    "The provided key element does not match the schema",
)
"""The beginnings of DynamoDB's messages about an element that no content of the table makes valid. Others, such as an
operand of another type, depend on the present item."""


def refusal(reasons: Sequence[Mapping[str, Any]], transact: Sequence[Element]) -> TransactionRefused:
    """The reason of a cancelled transaction.

    Args:
        reasons: DynamoDB's reasons for the ledger's commit and for each element, with `Code` and perhaps `Message`.
        transact: the elements.

    """
    refused = [(number, reason) for number, reason in enumerate(reasons) if reason["Code"] not in PASSING]
    blamed = [
        f"element {number} ({next(iter(transact[number - 1]))}): {reason['Code']}"
        if number
        else f"the ledger's row: {reason['Code']}"
        for number, reason in refused or enumerate(reasons)
        if reason["Code"] != "None"
    ]
    why = "the transaction was cancelled, " + ", ".join(blamed)
    if any(_is_malformed(reason) for number, reason in refused if number):
        return InvalidTransactionError(why, detail="; ".join(str(reason.get("Message", "")) for _, reason in refused))
    return TransactionRefused(why, passing=not refused)


def _is_malformed(reason: Mapping[str, Any]) -> bool:
    return reason["Code"] == "ValidationError" and str(reason.get("Message") or "").startswith(_MALFORMED)
