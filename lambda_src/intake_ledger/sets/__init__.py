"""Sets of files: their form, the reader of their states, and their audit. `intake_ledger.kinds.sets` is their kind."""

from intake_ledger.sets.reader import Contents, Listing, SetReader
from intake_ledger.sets.settings import SetSettings, set_settings

__all__ = ["Contents", "Listing", "SetReader", "SetSettings", "set_settings"]
