"""Reads ORC files with pyorc, since DuckDB does not. The audit's layer has pyorc where S3 Inventory is read."""

from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any


def entries(path: Path, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The rows of a file in its order, with these columns. Timestamps are epoch milliseconds.

    Raises:
        ValueError: The file lacks one of the columns.

    """
    # Only the audit by an inventory has the layer with it.
    pyorc: Any = import_module("pyorc")
    kinds = (pyorc.TypeKind.TIMESTAMP, pyorc.TypeKind.TIMESTAMP_INSTANT)
    with path.open("rb") as file:
        yield from pyorc.Reader(
            file,
            column_names=columns,
            struct_repr=pyorc.StructRepr.DICT,
            converters=dict.fromkeys(kinds, _Milliseconds),
        )


class _Milliseconds:
    """Converts timestamps, in a fraction of the time that pyorc takes for dates."""

    @staticmethod
    def from_orc(seconds: int, nanoseconds: int, _timezone: object) -> int:
        return seconds * 1_000 + nanoseconds // 1_000_000

    @staticmethod
    def to_orc(*_: object) -> None:
        """Writes no files: pyorc asks for the method all the same."""
        raise NotImplementedError
