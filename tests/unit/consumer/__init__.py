"""The consumer over the real ledger: batches, waits, groups, removals and Lambda's environment."""
