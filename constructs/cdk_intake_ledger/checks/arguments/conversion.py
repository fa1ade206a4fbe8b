"""Values that stand for another: a `timedelta` for a `Duration`, a name for the member of an enum."""

from datetime import timedelta
from enum import Enum
from typing import Any

from aws_cdk import Duration

from cdk_intake_ledger.checks.arguments.annotations import alternatives


def convert(value: object, annotation: Any) -> object:
    """The value as the annotation wants it, or the same value.

    Args:
        value: an argument.
        annotation: its annotation.

    """
    for kind in alternatives(annotation):
        if kind is Duration and isinstance(value, timedelta):
            milliseconds = value // timedelta(milliseconds=1)
            if milliseconds < 0:
                return value
            return Duration.millis(milliseconds) if milliseconds % 1000 else Duration.seconds(milliseconds // 1000)
        if _is_enum(kind) and type(value) is str and value.upper() in kind.__members__:
            return kind[value.upper()]
    return value


def _is_enum(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Enum)
