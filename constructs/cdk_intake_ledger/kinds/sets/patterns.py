"""Patterns of keys: `*` stands for any characters but a slash, and `**` for any characters."""

import re
from functools import cache

from cdk_intake_ledger.delivery.key_filters import KeyPattern

ANYTHING = "**"


def can_match_both(one: str, other: str) -> bool:
    """Tell if there is a key that both patterns match."""
    left, right = _tokens(one), _tokens(other)

    @cache
    def meet(i: int, j: int) -> bool:
        if i == len(left) and j == len(right):
            return True
        a = left[i] if i < len(left) else None
        b = right[j] if j < len(right) else None
        if a in ("*", "**"):
            # The asterisk ends here, or takes one more character that the other pattern has.
            return meet(i + 1, j) or (b is not None and _takes(a, b) and meet(i, j + 1))
        if b in ("*", "**"):
            return meet(i, j + 1) or (a is not None and _takes(b, a) and meet(i + 1, j))
        return a is not None and a == b and meet(i + 1, j + 1)

    return meet(0, 0)


def can_pass(pattern: str, key_filter: KeyPattern) -> bool:
    """Tell if a key of the pattern may pass the filter. Tokens may pass."""
    if not key_filter.is_known:
        return True
    # Prefix and suffix may overlap in a key, so each is compared alone.
    return can_match_both(pattern, key_filter.prefix + ANYTHING) and can_match_both(
        pattern, ANYTHING + key_filter.suffix
    )


def _takes(asterisk: str, text: str) -> bool:
    """True if the asterisk may take this text of the other pattern. Another asterisk can stand for nothing."""
    return asterisk == "**" or text != "/"


def _tokens(pattern: str) -> list[str]:
    return re.findall(r"\*\*|.", pattern, re.DOTALL)
