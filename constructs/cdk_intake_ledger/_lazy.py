"""Public names that are looked up when they are first used.

Importing `aws_cdk` starts a Node.js process and takes seconds. Whoever only tests a processor should not have to wait
for it, and `cdk_intake_ledger.testing` cannot be imported without the package above it.
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazily(package: str, names: Mapping[str, str]) -> Callable[[str], Any]:
    """A module's `__getattr__` (PEP 562) that takes each of these names from the module that is named beside it."""

    def get(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(names[name]), name)

    return get
