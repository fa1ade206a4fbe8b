"""Counts the rows of a scan by status, and its claims. `status` reads these numbers."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from intake_ledger.protocol.row import Settlement, Status


@dataclass(slots=True)
class RowNumbers:
    """Numbers of rows. The rows change while a run reads them."""

    by_status: Counter[str] = field(default_factory=Counter)
    lapsed: int = 0
    """PROCESSING rows whose lease has ended: the worker died, and no other one has taken over yet."""
    removed_unprocessed: int = 0
    """Rows of objects that were removed before they were processed."""
    oldest_claim_at: int | None = None
    """The time of the oldest claim among the PROCESSING rows, in epoch milliseconds."""

    def count(
        self, status: str, *, claimed_at: int, lease_until: int | None, now: int, settled_as: str | None = None
    ) -> None:
        """Count a row. Times are in epoch milliseconds."""
        self.by_status[status] += 1
        self.removed_unprocessed += settled_as == Settlement.REMOVED_UNPROCESSED
        if status == Status.PROCESSING:
            self.lapsed += lease_until is not None and lease_until <= now
            self.oldest_claim_at = min(self.oldest_claim_at or claimed_at, claimed_at)

    def add(self, other: Self) -> None:
        """Add the numbers of other rows."""
        self.by_status += other.by_status
        self.lapsed += other.lapsed
        self.removed_unprocessed += other.removed_unprocessed
        times = [at for at in (self.oldest_claim_at, other.oldest_claim_at) if at is not None]
        self.oldest_claim_at = min(times, default=None)

    def as_json(self) -> dict[str, Any]:
        """The numbers as files and reports have them."""
        return {
            "byStatus": dict(self.by_status),
            "lapsed": self.lapsed,
            "removedUnprocessed": self.removed_unprocessed,
            "oldestClaimAt": self.oldest_claim_at,
        }


def row_numbers(content: Mapping[str, Any]) -> RowNumbers:
    """The numbers from the result of `as_json`."""
    by_status, removed = Counter(content["byStatus"]), content.get("removedUnprocessed", 0)
    return RowNumbers(by_status, content["lapsed"], removed, content["oldestClaimAt"])


def total(numbers: Iterable[RowNumbers]) -> RowNumbers:
    """The sum of numbers."""
    found = RowNumbers()
    for number in numbers:
        found.add(number)
    return found
