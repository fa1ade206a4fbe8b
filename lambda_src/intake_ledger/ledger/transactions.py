"""Check the processor's DynamoDB writes that are sent in one transaction with the ledger's commit.

DynamoDB refuses some of these transactions with a general message, and some of them only under load. The check names
the element and the problem.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from intake_ledger.protocol import TransactionRefused

MAX_ELEMENTS = 99
"""DynamoDB allows 100 in a transaction; one is the ledger's commit."""
MAX_BYTES = 4 * 1024 * 1024 - 8 * 1024
"""DynamoDB's limit of 4 MB for all items of a transaction, less the ledger's row."""
PASSING = frozenset({"None", "ProvisionedThroughputExceeded", "ThrottlingError", "TransactionConflict"})
"""DynamoDB's codes for a valid element."""
KINDS = ("Put", "Update", "Delete", "ConditionCheck")

Element = Mapping[str, Mapping[str, Any]]
"""An element of TransactWriteItems as boto3's client takes it: `{"Put": {"TableName": ..., "Item": ...}}`."""


def check(transact: Sequence[Element], ledger_table: str) -> None:
    """Refuse elements that cannot be in one transaction with the ledger's commit.

    Raises:
        TransactionRefused: The text has all problems.

    """
    problems = list(_problems(transact, ledger_table))
    if problems:
        raise TransactionRefused("transact: " + "; ".join(problems), passing=False)


def refusal(codes: Sequence[str], transact: Sequence[Element]) -> TransactionRefused:
    """The reason of a cancelled transaction. `codes` are DynamoDB's codes for the ledger's commit and each element."""
    refused = [(number, code) for number, code in enumerate(codes) if code not in PASSING]
    blamed = [
        f"element {number} ({next(iter(transact[number - 1]))}): {code}" if number else f"the ledger's row: {code}"
        for number, code in refused or enumerate(codes)
        if code != "None"
    ]
    return TransactionRefused("the transaction was cancelled, " + ", ".join(blamed), passing=not refused)


def _problems(transact: Sequence[Element], ledger_table: str) -> Iterator[str]:
    if len(transact) > MAX_ELEMENTS:
        yield f"{len(transact)} elements, at most {MAX_ELEMENTS} fit into one transaction with the ledger's commit"
        return
    seen: list[tuple[int, str, Mapping[str, Any]]] = []
    size = 0
    for number, element in enumerate(transact, 1):
        kind, request = _opened(element)
        if kind not in KINDS:
            yield f"element {number} must be a dict with one of {', '.join(KINDS)}"
            continue
        table, item = request.get("TableName"), request.get("Item" if kind == "Put" else "Key")
        if not isinstance(table, str) or not isinstance(item, Mapping):
            yield f"element {number} ({kind}) needs a TableName and {'an Item' if kind == 'Put' else 'a Key'}"
            continue
        table = table.rpartition("/")[2]  # of an ARN
        if table == ledger_table:
            yield f"element {number} ({kind}) is about the ledger's own table, which only the ledger may write"
        twin = next((at for at, its_table, its_item in seen if its_table == table and _same(item, its_item)), None)
        if twin is not None:
            yield f"elements {twin} and {number} are about the same item of {table}: DynamoDB allows one, merge them"
        seen.append((number, table, item))
        size += _bytes(item) + _bytes(request.get("ExpressionAttributeValues", {}))
    if size > MAX_BYTES:
        yield f"about {size:,} bytes, and DynamoDB allows 4 MB in one transaction, with the ledger's row"


def _opened(element: Any) -> tuple[str, Mapping[str, Any]]:
    """The kind and the request of an element. Both are empty if it is not an element."""
    if isinstance(element, Mapping) and len(element) == 1:
        [(kind, request)] = element.items()
        if isinstance(request, Mapping):
            return str(kind), request
    return "", {}


def _same(item: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """True if both may be the same item. A Put does not show which attributes are the key."""
    return item.items() <= other.items() or other.items() <= item.items()


def _bytes(value: Any) -> int:
    """The approximate size as DynamoDB counts it: names and contents."""
    if isinstance(value, Mapping):
        return sum(len(str(name).encode()) + _bytes(content) for name, content in value.items())
    if isinstance(value, (list, tuple, set, frozenset)):
        return sum(1 + _bytes(content) for content in value)
    if isinstance(value, (bytes, bytearray)):
        return len(value)
    return len(str(value).encode())
