"""The columns of the comparison: consumers that get the same uploads and the same faults."""

from __future__ import annotations

from enum import StrEnum


class Column(StrEnum):
    """A consumer. The value is also the name of its entry point."""

    USUAL = "usual"
    FLAG = "flag"
    INDEX = "index"
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
            Column.FLAG: "sequencer and flag",
            Column.INDEX: "index with a lock",
            Column.PLAIN: "ledger, plain put_object",
            Column.FENCED: "ledger, fenced output",
        }[self]

    @property
    def by_hand(self) -> bool:
        """Tell if it has no ledger: S3, SQS and Lambda are connected by hand."""
        return self in BY_HAND


LOCKS = (Column.FLAG, Column.INDEX)
"""Published locks. A lock that a dead worker holds is never free again."""
BY_HAND = (Column.USUAL, *LOCKS)
LEDGERS = (Column.PLAIN, Column.FENCED)


def chosen(*, locks: bool, ledger: bool = True) -> tuple[Column, ...]:
    """Return the columns of a run, with or without the published locks and the pipelines with a ledger."""
    return tuple(column for column in Column if (locks or column not in LOCKS) and (ledger or column not in LEDGERS))
