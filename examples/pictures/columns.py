"""The columns of the comparison: three consumers that get the same uploads and the same faults."""

from __future__ import annotations

from enum import StrEnum


class Column(StrEnum):
    """A consumer. The value is also the name of its entry point."""

    USUAL = "usual"
    PLAIN = "plain"
    FENCED = "fenced"

    @property
    def construct(self) -> str:
        """The beginning of its construct IDs and of its outputs."""
        return self.value.capitalize()

    @property
    def label(self) -> str:
        """The text on the montage and in the terminal."""
        return {
            Column.USUAL: "usual consumer",
            Column.PLAIN: "ledger, plain put_object",
            Column.FENCED: "ledger, fenced output",
        }[self]
