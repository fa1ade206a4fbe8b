"""Compares the deployed path from the bucket to the ledger with its settings. The audit calls it at each tick."""
