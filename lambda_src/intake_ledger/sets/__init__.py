"""Sets of files: their form, the reader of their states, and their audit. `intake_ledger.kinds.sets` is their kind."""
