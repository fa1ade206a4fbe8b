"""ULIDs: names that sort by when they were made (https://github.com/ulid/spec)."""

import re

_DIGITS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"  # Crockford's base 32: no I, L, O, U
_LENGTH = 26
RANDOM_BITS = 80
_ULID = re.compile(f"[0-7][{_DIGITS}]{{{_LENGTH - 1}}}")


def ulid(milliseconds: int, random: int) -> str:
    """The ULID of a time (epoch milliseconds) and `RANDOM_BITS` random bits."""
    number = milliseconds << RANDOM_BITS | random
    return "".join(_DIGITS[number >> 5 * place & 31] for place in reversed(range(_LENGTH)))


def is_ulid(text: str) -> bool:
    """Whether the text is one, written as `ulid` does."""
    return _ULID.fullmatch(text) is not None
