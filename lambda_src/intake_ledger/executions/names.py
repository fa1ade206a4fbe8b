"""The name of a claim's execution: a function of the row, so that a repeated start is the same."""

import hashlib
import re

from intake_ledger.protocol import RowKey

_NAME = re.compile(r"[0-9a-f]{40}-\d{1,39}")
"""Step Functions takes 80 characters. The local AWS takes any name, so names are checked here."""


def execution_name(key: RowKey, fence: int) -> str:
    """The name of the only execution of this fence.

    Raises:
        ValueError: The fence is not a positive number.

    """
    name = f"{hashlib.sha256(f'{key.pk}\n{key.sk}'.encode()).hexdigest()[:40]}-{fence}"
    if not _NAME.fullmatch(name):
        raise ValueError(f"{fence} is not the fence of an execution")
    return name
