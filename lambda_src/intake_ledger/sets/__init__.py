"""Sets of files: a ledger whose states are not objects but the manifests of sets with the versions of their parts.

A message only wakes a set. `SetReader` decides what its state is, from S3 and from the rows of the parts. Claims,
attempts, waits, commits and reviews are those of objects. `handler` is Lambda's entry point.
"""

from intake_ledger.sets.composition import handler, set_consumer
from intake_ledger.sets.reader import Contents, Listing, SetReader
from intake_ledger.sets.set_ledger import SetLedger
from intake_ledger.sets.settings import SetSettings, set_settings

__all__ = ["Contents", "Listing", "SetLedger", "SetReader", "SetSettings", "handler", "set_consumer", "set_settings"]
