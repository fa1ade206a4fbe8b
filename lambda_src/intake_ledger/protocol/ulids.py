"""ULIDs: ids that sort by their time (https://github.com/ulid/spec)."""

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
    """True if the text is a ULID in canonical form, in upper case. Only these sort by their time."""
    return _ULID.fullmatch(text) is not None


def made_at(text: str) -> int:
    """The time in a ULID, in epoch milliseconds."""
    number = 0
    for digit in text:
        number = number << 5 | _DIGITS.index(digit)
    return number >> RANDOM_BITS
