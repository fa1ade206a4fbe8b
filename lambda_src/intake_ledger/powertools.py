"""Powertools' logger and metrics, imported without what they do not need.

They take one decorator from `typing_extensions`, a large module that each cold start would compile, since the layer has
sources alone: a fourteenth of it. Python has had that decorator itself since 3.13.
"""

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any

_LARGE = "typing_extensions"


@contextmanager
def _standing_in() -> Iterator[None]:
    """Has a module with the decorator alone in the large one's place, for a while."""
    if _LARGE in sys.modules or not hasattr(warnings, "deprecated"):
        yield
        return

    def whole(name: str) -> Any:
        if name.startswith("__"):  # what Python itself asks of every module
            raise AttributeError(name)
        # A Powertools that takes more of it gets all of it.
        sys.modules.pop(_LARGE, None)
        return getattr(import_module(_LARGE), name)

    stand_in: Any = ModuleType(_LARGE)
    stand_in.deprecated = warnings.deprecated
    stand_in.__getattr__ = whole
    sys.modules[_LARGE] = stand_in
    try:
        yield
    finally:
        if sys.modules.get(_LARGE) is stand_in:
            del sys.modules[_LARGE]


with _standing_in():
    from aws_lambda_powertools import Logger, Metrics
    from aws_lambda_powertools.logging.formatter import RESERVED_LOG_ATTRS, LambdaPowertoolsFormatter
    from aws_lambda_powertools.metrics import MetricUnit

__all__ = ["RESERVED_LOG_ATTRS", "LambdaPowertoolsFormatter", "Logger", "MetricUnit", "Metrics"]
