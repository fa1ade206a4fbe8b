"""Public names that are imported at their first use.

The import of `aws_cdk` starts a Node.js process and takes seconds. A test of a processor does not need it, but imports
`cdk_intake_ledger.testing`, and with it the package above.
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazily(package: str, names: Mapping[str, str]) -> Callable[[str], Any]:
    """A module's `__getattr__` (PEP 562), from a table of names and their modules."""

    def get(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(names[name]), name)

    return get
