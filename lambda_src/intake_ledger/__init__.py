"""The versioned intake ledger's runtime: what a processor imports.

from intake_ledger import Commit, NotYet, ObjectChange, Unprocessable

def process(change: ObjectChange) -> Commit | str | None: ...
"""

from typing import TYPE_CHECKING, Any

from intake_ledger.processor import Commit, ObjectChange, ObjectStream
from intake_ledger.protocol import (
    NotYet,
    ObjectGone,
    ObjectReadError,
    OutputConflict,
    OutputError,
    Overtaken,
    Unprocessable,
)

if TYPE_CHECKING:
    from intake_ledger.outputs import Output
else:

    def __getattr__(name: str) -> Any:
        """Import `Output` at its first use. Most processors need it for annotations only, or not at all."""
        if name != "Output":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from intake_ledger.outputs import Output  # noqa: PLC0415

        return Output


__all__ = [
    "Commit",
    "NotYet",
    "ObjectChange",
    "ObjectGone",
    "ObjectReadError",
    "ObjectStream",
    "Output",
    "OutputConflict",
    "OutputError",
    "Overtaken",
    "Unprocessable",
]
