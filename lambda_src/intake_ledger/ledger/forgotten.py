"""The keys that people have had forgotten. The table has a marker with a hash of each, until no old message can come.

An ordinary message costs no request for this: a message that is handled within a minute after it was sent is not
checked. `intake-ledger forget` writes the marker, and looks at the rows after this minute and the time by which clocks
may differ. By then each claim of an unchecked message is in its row. An older message costs one read a minute in each
execution environment, and a message that was sent before the newest marker costs one more.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from intake_ledger.ledger.dynamodb_table import LedgerTable
from intake_ledger.protocol.row import RowKey, forgotten_key, newest_forgotten_key

FORGOTTEN_AT = "forgotten_at"
"""The attribute of a marker with the time at which its key was forgotten, in epoch milliseconds."""
REMOVED = "removed"
"""The attribute of a marker with the time in `FORGOTTEN_AT` for which the rows were removed."""
UNCHECKED_MS = 60_000
"""The age up to which a message is not checked, and the time for which the newest marker's time is known."""


class Forgotten:
    """The knowledge of the ledger about forgotten keys. This one belongs to a ledger without a command that forgets."""

    def forgotten_at(self, pk: str, sent: int | None) -> int | None:
        """When the key was forgotten, as far as a message has to know it.

        Args:
            pk: the partition key of the key's rows.
            sent: when the message was sent, in epoch milliseconds. None: it is not known.

        Returns:
            Epoch milliseconds. None: it was not, or not since the message was sent.

        """

    def removed_at(self, pk: str, sent: int | None) -> int | None:
        """When the key was forgotten, if its rows were removed, and the message was sent before. None otherwise.

        A worker that writes its claim afterwards finds the marker, and starts nothing. `sent` is as for `forgotten_at`.
        """


@dataclass(slots=True)
class ForgottenKeys(Forgotten):
    """The markers of one pipeline. `clock` gives epoch milliseconds. Errors of DynamoDB are raised."""

    pipeline: str
    table: LedgerTable
    clock: Callable[[], int]
    _newest: int = field(default=0, init=False)
    _read_at: int | None = field(default=None, init=False)

    def forgotten_at(self, pk: str, sent: int | None) -> int | None:
        """See `Forgotten`."""
        now = self.clock()
        if sent is not None and now - sent < UNCHECKED_MS:
            return None
        if self._read_at is None or not 0 <= now - self._read_at < UNCHECKED_MS:
            self._newest = self._time_in(newest_forgotten_key(self.pipeline), now)
            self._read_at = now
        if self._newest <= (sent or 0):
            return None
        return self._time_in(forgotten_key(self.pipeline, pk), now) or None

    def removed_at(self, pk: str, sent: int | None) -> int | None:
        """See `Forgotten`."""
        if sent is None:
            return None
        removed = int(self.table.read(forgotten_key(self.pipeline, pk)).get(REMOVED, 0))
        return removed if sent < removed else None

    def _time_in(self, key: RowKey, now: int) -> int:
        """The time in an item. 0: there is none, or it has expired. DynamoDB deletes such items days later."""
        item = self.table.read(key)
        return int(item[FORGOTTEN_AT]) if int(item.get("expires_at", 0)) * 1000 > now else 0
