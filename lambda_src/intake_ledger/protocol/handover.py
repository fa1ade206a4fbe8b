"""Check the effect and the result that a processor or a block of `once` hands over, before anything is written.

All kinds of work use these checks. Two rules hold:

- **The effect** (`transact`, outputs, the return value). A malformed one can never succeed: `InvalidEffectError`. The
  first attempt is rejected with the reason, and nothing retries it by itself.
- **Information** about the effect (`result`, the wait of `NotYet`). It never undoes an effect. The work is committed
  without it, and the row says so.

The checks are pure, and raise no other error for any value.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from intake_ledger.protocol.errors import MAX_RETRY_IN, InvalidEffectError, InvalidTransactionError, NotYet

MAX_ELEMENTS = 100
"""DynamoDB's limit of a transaction."""
KINDS = ("Put", "Update", "Delete", "ConditionCheck")
LEAST_REMAINING_SECONDS = 0.1
"""The least `remaining_seconds`. Code gives it to clients as a timeout, and they raise ValueError for zero and less."""
MAX_RESULT_BYTES = 16 * 1024
"""The longest result that a row keeps. Each write of the row costs one write unit for each KB of it (DynamoDB developer
guide, "Read and write capacity"), and so does each refused claim of a duplicate."""
MAX_BYTES = 4 * 1024 * 1024 - 8 * 1024 - MAX_RESULT_BYTES
"""DynamoDB's limit of 4 MB for all items of a transaction, less the ledger's row with the longest result."""
_NOT_TEXT = (str, bytes, bytearray, memoryview, range)
"""Sequences that hold no elements."""
_SHOWN_DIGITS = 40
_MAX_DIGITS, _LEAST_EXPONENT, _GREATEST_EXPONENT = 38, -130, 125
_BLOB = (bytes, bytearray, str)
_LIST = (list, tuple)
_TYPES: Mapping[object, type | tuple[type, ...]] = {
    "S": str,
    "N": str,
    "B": _BLOB,
    "SS": _LIST,
    "NS": _LIST,
    "BS": _LIST,
    "M": Mapping,
    "L": _LIST,
    "NULL": bool,
    "BOOL": bool,
}
"""DynamoDB's types, with the Python types that boto3's client takes for them."""

Element = Mapping[str, Mapping[str, Any]]
"""An element of TransactWriteItems as boto3's client takes it: `{"Put": {"TableName": ..., "Item": ...}}`."""


def is_sequence(transact: object) -> bool:
    """True if `transact` may be a list of elements. A text is a sequence of characters, and no list."""
    return isinstance(transact, Sequence) and not isinstance(transact, _NOT_TEXT)


def check_transact(transact: object, ledger_table: str, *, own: int = 0) -> None:
    """Refuse elements that cannot be in one transaction with the ledger's commit.

    DynamoDB refuses some of these transactions with a general message, and some of them only under load. The text names
    the element and the problem.

    Args:
        transact: the code's writes.
        ledger_table: the name of the ledger's table.
        own: the number of the library's other elements in the transaction.

    Raises:
        InvalidTransactionError: The text has all problems.

    """
    try:
        problems = list(_problems(transact, ledger_table, MAX_ELEMENTS - 1 - own))
    except Exception as error:  # an object that cannot be read, or that contains itself
        raise InvalidTransactionError(
            f"transact cannot be read: {type(error).__name__}", detail=_text(error)
        ) from error
    if problems:
        # The names and values of attributes may be content.
        detail = "; ".join(one for _, details in problems for one in details)
        raise InvalidTransactionError("transact: " + "; ".join(why for why, _ in problems), detail=detail)


def value_problems(value: object) -> Iterator[str]:
    """The problems of an attribute's value that boto3 or DynamoDB would refuse for any content of the table."""
    if not isinstance(value, Mapping):
        yield f"is {shown(value)}, and not in DynamoDB's typed form"
        return
    if len(value) != 1:
        yield f"has {len(value)} types ({', '.join(map(str, value))}), and a value has one"
        return
    [(kind, content)] = value.items()
    if kind == "B" and hasattr(content, "read"):
        return
    if kind not in _TYPES or not isinstance(content, _TYPES[kind]):
        yield f"has the type {kind} with {shown(content)}"
    elif kind == "N":
        yield from _number_problems([str(content)])
    elif kind in ("SS", "NS", "BS"):
        yield from _set_problems(str(kind), cast("Sequence[Any]", content))
    elif kind in ("L", "M"):
        inner: Any = content
        for one in inner.values() if kind == "M" else inner:
            yield from value_problems(one)


def kept_result(result: object) -> tuple[str | None, str | None]:
    """The result that a row keeps, and the problem if it is not kept.

    A result is kept whole or not at all: a copy of the message could not tell a part from the whole.
    """
    if result is None:
        return None, None
    without = "the effect is committed without its result"
    if not isinstance(result, str):
        return None, f"the result is {shown(result)}, expected a text or None: {without}"
    # DynamoDB takes valid Unicode only.
    kept = str.encode(result, "utf-8", "replace")
    if len(kept) > MAX_RESULT_BYTES:
        much = f"the result has {len(kept):,} bytes, and a row keeps {MAX_RESULT_BYTES:,}"
        return None, f"{much}: {without}. Write it to S3 under a key with the fence, and return that key"
    return kept.decode(), None


def invalid_effect_of(error: BaseException) -> InvalidEffectError | None:
    """The malformed effect that ended the code, also inside a group of errors, such as that of `asyncio.TaskGroup`."""
    if isinstance(error, BaseExceptionGroup):
        found = (invalid_effect_of(part) for part in error.exceptions)
        return next((one for one in found if one is not None), None)
    return error if isinstance(error, InvalidEffectError) else None


def wait_seconds(missing: NotYet) -> float | None:
    """The wait of a `NotYet`. None if it has no wait, or a wait that is out of its range.

    A subclass may set any value.
    """
    wanted: object = missing.retry_in
    if isinstance(wanted, int | float) and not isinstance(wanted, bool) and 1 <= wanted <= MAX_RETRY_IN:
        return wanted
    return None


def remaining_seconds(limit: float, spent_ms: int) -> float:
    """The rest of a processor's time. An attempt that was overtaken has a little time left, never none."""
    return max(limit - spent_ms / 1000, LEAST_REMAINING_SECONDS)


def shown(value: object) -> str:
    """Describe a value for a reason: a number itself, and of any other value the type, because it may quote content."""
    name = type(value).__name__
    if not isinstance(value, int | float):
        return name
    number = _text(value)
    return f"{number} ({name})" if 0 < len(number) <= _SHOWN_DIGITS else name


def _text(value: object) -> str:
    """The value as text. Empty if it has none: Python writes no number of more than 4,300 digits."""
    try:
        return str(value)
    except Exception:  # noqa: BLE001 - the class may be the processor's
        return ""


def _set_problems(kind: str, content: Sequence[Any]) -> Iterator[str]:
    if not all(isinstance(one, _TYPES[kind[0]]) for one in content):
        yield f"has the type {kind} with another type in it"
        return
    if not content:
        yield "is an empty set"
    texts = {one.encode() if isinstance(one, str) else bytes(one) for one in content}
    if len(texts) < len(content):
        yield "has a value twice in its set"
    yield from _number_problems(content if kind == "NS" else ())


def _number_problems(texts: Sequence[str]) -> Iterator[str]:
    from decimal import Decimal, InvalidOperation  # noqa: PLC0415 - most processors return no writes

    for text in texts:
        try:
            number = Decimal(text)
        except InvalidOperation:
            number = Decimal("NaN")
        if not number.is_finite():
            yield f"is {text!r}, and not a number"
        elif len("".join(map(str, number.as_tuple().digits)).strip("0")) > _MAX_DIGITS:
            yield f"has more than {_MAX_DIGITS} digits"
        elif number and not _LEAST_EXPONENT <= number.adjusted() <= _GREATEST_EXPONENT:
            yield "is too large or too small for a number"


def _problems(transact: object, ledger_table: str, most: int) -> Iterator[tuple[str, Sequence[str]]]:
    """Each problem, and its details, which may quote content."""
    if not isinstance(transact, Sequence) or not is_sequence(transact):
        yield f"it is {shown(transact)}, expected a list or tuple of elements", ()
        return
    if len(transact) > most:
        yield f"{len(transact)} elements, at most {most} fit into one transaction with the ledger's commit", ()
        return
    seen: list[tuple[int, str, Mapping[str, Any]]] = []
    size = 0
    for number, element in enumerate(transact, 1):
        kind, request = _opened(element)
        if kind not in KINDS:
            yield f"element {number} must be a dict with one of {', '.join(KINDS)}", ()
            continue
        table, item = request.get("TableName"), request.get("Item" if kind == "Put" else "Key")
        if not isinstance(table, str) or not isinstance(item, Mapping):
            yield f"element {number} ({kind}) needs a TableName and {'an Item' if kind == 'Put' else 'a Key'}", ()
            continue
        table = table.rpartition("/")[2]  # of an ARN
        if table == ledger_table:
            yield f"element {number} ({kind}) is about the ledger's own table, which only the ledger may write", ()
        twin = next((at for at, its_table, its_item in seen if its_table == table and _same(item, its_item)), None)
        if twin is not None:
            yield (
                f"elements {twin} and {number} are about the same item of {table}: DynamoDB allows one, merge them",
                (),
            )
        seen.append((number, table, item))
        problem, details = _content_problem(item, request)
        if problem:
            yield f"element {number} ({kind}) {problem}", details
        else:
            size += _size(item) + _size(request.get("ExpressionAttributeValues", {}))
    if size > MAX_BYTES:
        yield f"about {size:,} bytes, and DynamoDB allows 4 MB in one transaction, with the ledger's row", ()


def _content_problem(item: Mapping[str, Any], request: Mapping[str, Any]) -> tuple[str, Sequence[str]]:
    """The problem of the texts and values of an element, and its details. Empty if there is none."""
    try:
        _size(request)
    except UnicodeEncodeError:
        return "has a text that is not valid Unicode", ()
    values = request.get("ExpressionAttributeValues", {})
    named = [*item.items(), *(values.items() if isinstance(values, Mapping) else ())]
    details = [f"{name} {problem}" for name, value in named for problem in value_problems(value)]
    return "has an attribute that is not in DynamoDB's typed form" if details else "", details


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


def _size(value: Any) -> int:
    """The approximate size as DynamoDB counts it: names and contents. Raises UnicodeEncodeError for invalid Unicode."""
    if isinstance(value, Mapping):
        return sum(len(str(name).encode()) + _size(content) for name, content in value.items())
    if isinstance(value, (list, tuple, set, frozenset)):
        return sum(1 + _size(content) for content in value)
    if isinstance(value, (bytes, bytearray)):
        return len(value)
    return len(str(value).encode())
