"""What the ledger has committed, read once before the listing: the rows of the keys that agree need not be asked for.

What differs is read again, consistently, before it is judged. So a row that has moved on since is no harm, nor is one
that the eventual read has missed: somebody is at it.
"""

from intake_ledger.audit.shown import Shown
from intake_ledger.rows import RowKey

MOST_ROWS = 10_000_000
"""With so many rows, one state of 15,000 that was lost would be taken for committed in a run, if its key has a row, and
one of 200 million if it has none. With more rows each is asked for."""


class Known:
    """The ledger's rows, and the states that they have committed, in two filters of fixed size."""

    def __init__(
        self,
        salt: bytes,
        after: RowKey | None = None,
        *,
        count: int = 0,
        complete: bool = False,
    ) -> None:
        """Begin with nothing, or go on `after` a row."""
        self.rows = Shown(salt)
        self.settled = Shown(salt)
        self.count = count
        self.after = after
        """The last row that was read; None at the beginning."""
        self.complete = complete
        """Whether all rows were read."""

    @property
    def salt(self) -> bytes:
        """The filters' own."""
        return self.rows.salt

    def add(self, key: RowKey, committed: str | None) -> None:
        """Add a row with the identity of the state that it has committed; None if it is not settled."""
        self.count += 1
        self.rows.add(key)
        if committed is not None:
            self.settled.add(key, committed)

    def has(self, key: RowKey) -> bool:
        """Whether there is a row. A row that was there all the time is never denied."""
        return self.rows.has(key)

    def agrees(self, key: RowKey, identity: str) -> bool:
        """Whether a row that there is has committed this state."""
        return self.count <= MOST_ROWS and self.settled.has(key, identity)
