"""The audit: what S3 holds against what the ledger has committed, and a wake-up message for every key that differs."""
