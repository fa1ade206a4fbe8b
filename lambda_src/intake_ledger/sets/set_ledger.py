"""The ledger of sets: an ordinary ledger whose states come from `SetReader`."""

from collections.abc import Callable
from typing import Any

from intake_ledger.aws import Bucket
from intake_ledger.ledger import Ledger, LedgerOptions, LedgerTable
from intake_ledger.sets.reader import SetReader
from intake_ledger.sets.settings import SetSettings


class SetLedger(Ledger):
    """A ledger whose states are those of sets."""

    def __init__(
        self,
        table: LedgerTable,
        bucket: Bucket,
        options: LedgerOptions,
        *,
        settings: SetSettings,
        clock: Callable[[], int],
        **others: Any,
    ) -> None:
        """Take the arguments of `Ledger`, and the settings of the sets."""
        self.reader = SetReader(table, bucket, settings, clock)
        self.rows = table
        super().__init__(table, self.reader, options, clock=clock, **others)


def as_set_ledger(ledger: Ledger) -> SetLedger:
    """The ledger of a consumer of sets.

    Raises:
        TypeError: It is another ledger.

    """
    if not isinstance(ledger, SetLedger):
        raise TypeError("a consumer of sets needs a SetLedger")
    return ledger
