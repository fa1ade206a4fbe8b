"""Units of the numbers of a plan, and their texts.

A number is NaN if CDK will know it only at deployment (a token), or if it was not given.
"""

import math

UNKNOWN = math.nan
"""A number that is a token, or that was not given."""
UNCONVERTED = float("nan")
"""The number of a token in another unit than seconds, which the CDK cannot convert. It is found by its identity."""
NOT_GIVEN = float("nan")
"""A number that was not given, of an option that may be no token. It is found by its identity."""

MINUTE, HOUR, DAY = 60, 3_600, 86_400


def span(seconds: float) -> str:
    """Write a time in its largest whole unit: `90 minutes`."""
    for unit, size in (("day", DAY), ("hour", HOUR), ("minute", MINUTE)):
        if seconds and seconds % size == 0:
            return _counted(seconds / size, unit)
    return _counted(seconds, "second")


def number_text(number: float) -> str:
    """Write a number with separators: `10,000`."""
    return f"{number:,.10g}"


def _counted(number: float, unit: str) -> str:
    return f"{number_text(number)} {unit}{'' if number == 1 else 's'}"
