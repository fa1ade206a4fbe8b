"""The smallest processor, for each kind of work."""

from typing import Any


def process(work: Any) -> str:
    return str(work.key)
