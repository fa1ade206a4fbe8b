"""Read typed fields of parsed JSON, and describe their errors."""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote_plus

_MAX_TEXT_BYTES = 3 * 1024
"""A form-encoded key may have three bytes for each of the 1,024 that S3 allows. Everything else is shorter."""
_MAX_KEY_BYTES = 1024
_MAX_NUMBER = 10**18
"""DynamoDB stores 38 digits. A size or a time in milliseconds has far fewer."""


class MalformedError(Exception):
    """A message does not have the expected form. The text names the field and the expected form."""


class Field:
    """A field of a JSON object, by its path."""

    def __init__(
        self,
        path: str,
        type_: type = str,
        *,
        required: bool = True,
        convert: Callable[[Any], Any] | None = None,
    ) -> None:
        """Describe a field.

        Args:
            path: the names from the outermost object to the field, with dots in between.
            type_: the type of its value.
            required: whether the field must be there. Otherwise None is read where it is missing.
            convert: checks and converts the text. It is left as it is when omitted.

        """
        self.path = path.split(".")
        self.type = type_
        self.required = required
        self.convert = convert


def read_fields(content: object, fields: Iterable[Field]) -> list[Any]:
    """The values of these fields, in their order.

    Raises:
        MalformedError: A field is missing, has another type, or is too long.

    """
    values: list[Any] = []
    for field in fields:
        name, value = "", content
        for inner in field.path:
            if not isinstance(value, dict):
                raise MalformedError(
                    _problem(name, value, dict)
                    if name
                    else f"expected an object with {inner!r}, got {type(value).__name__}"
                )
            name, value = inner, value.get(inner)
        if value is None and not field.required:
            values.append(None)
            continue
        if not isinstance(value, field.type) or isinstance(value, bool):
            raise MalformedError(_problem(name, value, field.type))
        if isinstance(value, int) and abs(value) >= _MAX_NUMBER:
            raise MalformedError(f"{name} has more digits than any number of S3")
        # ASCII is always valid Unicode, and most texts are short.
        if isinstance(value, str) and not (value.isascii() and len(value) <= _MAX_TEXT_BYTES):
            _check_text(name, value)
        values.append(field.convert(value) if field.convert else value)
    return values


def _problem(name: str, value: object, expected: type) -> str:
    return f"{name} is {'missing' if value is None else f'{type(value).__name__}, expected {expected.__name__}'}"


def _check_text(name: str, text: str) -> None:
    try:
        length = len(text.encode())
    except UnicodeEncodeError as problem:
        raise MalformedError(f"{name} is not valid Unicode: {problem.reason}") from None
    if length > _MAX_TEXT_BYTES:
        raise MalformedError(f"{name} has {length} bytes, S3 never sends more than {_MAX_TEXT_BYTES}")


def object_key(key: str) -> str:
    """The key, if it has 1 to 1,024 bytes of UTF-8, the lengths that S3 allows.

    Raises:
        MalformedError: It has another length.

    """
    length = len(key.encode())
    if not 1 <= length <= _MAX_KEY_BYTES:
        raise MalformedError(f"the object's key has {length} bytes, S3 allows 1 to 1,024")
    return key


def form_encoded_key(text: str) -> str:
    """The key of a record of an S3 notification, in which a space is a plus.

    Raises:
        MalformedError: The text is not form-encoded UTF-8, or S3 does not allow the key.

    """
    try:
        return object_key(unquote_plus(text, errors="strict"))
    except UnicodeDecodeError as problem:
        raise MalformedError(f"the object's key is not form-encoded UTF-8: {problem}") from None


def bucket_name(name: str) -> str:
    """The name of a bucket. Raises MalformedError if it is empty."""
    if not name:
        raise MalformedError("bucket.name is empty")
    return name


def epoch_ms(time: str) -> int:
    """An ISO 8601 time in epoch milliseconds. Without a time zone, it is UTC.

    Raises:
        MalformedError: The text is not such a time.

    """
    try:
        moment = datetime.fromisoformat(time)
    except ValueError:
        raise MalformedError(f"time is {time!r}, expected ISO 8601") from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
