"""Names of messages: the key, the identity, and the idempotency key that both give."""

import hashlib

MAX_BYTES = 1024
"""Of a key and of an identity. A partition key of DynamoDB takes 2,048."""
_NULL = "null"
"""The ledger takes this version for none, as S3 does."""


class InvalidName(ValueError):  # noqa: N818 - named as the other errors
    """A value cannot be a key or an identity. The text does not quote it."""


def name_of(what: str, value: object) -> str:
    """The value as a key or an identity.

    Args:
        what: `key` or `identity`, for the error.
        value: a text, or a whole number.

    Raises:
        InvalidName: It is neither, or its length is not 1 to 1,024 bytes.

    """
    if isinstance(value, bool) or not isinstance(value, str | int):
        kind = "missing or null" if value is None else f"{type(value).__name__}, expected a text or a whole number"
        raise InvalidName(f"the {what} is {kind}")
    name = str(value)
    if name == _NULL and what == "identity":
        raise InvalidName("the identity is the text 'null'")
    try:
        length = len(name.encode())
    except UnicodeEncodeError:
        raise InvalidName(f"the {what} is not valid Unicode") from None
    if not 1 <= length <= MAX_BYTES:
        raise InvalidName(f"the {what} has {length} bytes, expected 1 to {MAX_BYTES:,}")
    return name


def idempotency_key(source: str, key: str, identity: str, content: str | None = None) -> str:
    """The idempotency key of a message.

    Args:
        source: the name before the key in the row's partition key.
        key: of the message.
        identity: of the message.
        content: see `Row.key_content`.

    """
    # The lengths separate the parts, because a key may have any character.
    parts = (source, key, identity, *([] if content is None else [content]))
    text = "".join(f"{len(part)}:{part}" for part in parts)
    return hashlib.sha256(text.encode()).hexdigest()[:32]
