"""The lease of a claim: its length, and when it ends. Row, DynamoDB condition and synthesis use this rule.

A worker may work on its claim until its invocation ends. The lease is longer than that by the difference that the
clocks of two workers may have. Therefore no other worker claims the row while the first one still runs.
"""

LEASE_ENDED = "(attribute_not_exists(#lease_until) OR #lease_until <= :now)"
"""The DynamoDB condition for `not lease_is_live(lease_until, now)`."""


def lease_length[Number: (int, float)](time_left: Number, clock_skew: Number) -> Number:
    """The time for which a claim excludes others. All three times have the same unit.

    Args:
        time_left: the rest of the worker's invocation. At most, this is the timeout of its function.
        clock_skew: the largest difference between the clocks of two workers.

    """
    return time_left + clock_skew


def lease_is_live(lease_until: int | None, now: int) -> bool:
    """True while the lease excludes other workers. Both times are epoch milliseconds."""
    return lease_until is not None and lease_until > now
