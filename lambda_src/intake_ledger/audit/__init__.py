"""The audit: compares the bucket with the ledger, and sends a message for each key that differs."""
