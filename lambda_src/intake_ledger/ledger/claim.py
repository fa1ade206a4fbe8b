"""A claim, and the settings on which claims depend."""

from dataclasses import dataclass
from typing import ClassVar, Self

from intake_ledger.protocol import Change, Ordering, Policy, Retention, Row, RowKey, State, Verdict


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to process one state of one object."""

    key: RowKey
    change: Change
    state: State
    row: Row
    """The row that this claim wrote."""
    seen: Row | None
    """The row that was judged before. None: there was none."""
    why: str = ""
    """The reason of the verdict ACCEPTED, for logs."""
    lock_fence: int | None = None
    """The fence of the key's lock, which orders all attempts on the key. None: this attempt has not taken a lock."""

    verdict: ClassVar = Verdict.ACCEPTED

    @classmethod
    def of_row(cls, key: RowKey, change: Change, row: Row, seen: Row | None = None, why: str = "") -> Self:
        """The claim that wrote this row, on the state that the row names."""
        return cls(key, change, State(row.kind, row.version_id, row.etag, row.size), row, seen, why)


@dataclass(frozen=True, slots=True)
class LedgerOptions:
    """The settings of one pipeline's ledger."""

    pipeline: str
    ordering: Ordering
    policy: Policy
    max_event_age_ms: int
    """The row of an older event may have expired, so such an event is not taken for new."""
    min_group: int = 2
    """The smallest number of claims or commits that are written together."""
    processor_version: str | None = None
    """The version of the processor's code, which each commit records. None: it is not known."""

    @property
    def retention(self) -> Retention:
        return Retention(self.policy.retention_ms // 1000, self.policy.keeps_rows)
