"""The versioned intake ledger's runtime: what a processor imports.

from intake_ledger import Commit, NotYet, ObjectChange, Unprocessable

def process(change: ObjectChange) -> Commit | str | None: ...
"""

from typing import TYPE_CHECKING, Any

from intake_ledger.processor.object_change import Commit, ObjectChange
from intake_ledger.processor.object_stream import ObjectStream
from intake_ledger.protocol.errors import (
    InvalidEffectError,
    InvalidOutputError,
    NotYet,
    ObjectGone,
    ObjectReadError,
    OutputConflict,
    OutputError,
    Overtaken,
    SchemaDrift,
    TooManyRejects,
    Unprocessable,
)

if TYPE_CHECKING:
    from intake_ledger.messages.keyed_message import KeyedMessage
    from intake_ledger.outputs.output import Output
    from intake_ledger.processor.file_set import FileSet, SetFile
    from intake_ledger.processor.rejects import Rejects
else:

    def __getattr__(name: str) -> Any:
        """Import these at their first use. Most processors need them for annotations only, or not at all."""
        if name == "Output":
            from intake_ledger.outputs.output import Output  # noqa: PLC0415

            return Output
        if name == "KeyedMessage":
            from intake_ledger.messages.keyed_message import KeyedMessage  # noqa: PLC0415

            return KeyedMessage
        if name in ("FileSet", "SetFile"):
            from intake_ledger.processor import file_set  # noqa: PLC0415

            return getattr(file_set, name)
        if name == "Rejects":
            from intake_ledger.processor.rejects import Rejects  # noqa: PLC0415

            return Rejects
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "Commit",
    "FileSet",
    "InvalidEffectError",
    "InvalidOutputError",
    "KeyedMessage",
    "NotYet",
    "ObjectChange",
    "ObjectGone",
    "ObjectReadError",
    "ObjectStream",
    "Output",
    "OutputConflict",
    "OutputError",
    "Overtaken",
    "Rejects",
    "SchemaDrift",
    "SetFile",
    "TooManyRejects",
    "Unprocessable",
]
