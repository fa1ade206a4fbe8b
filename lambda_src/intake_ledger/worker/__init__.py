"""The consumer outside of Lambda: `python -m intake_ledger.worker` polls the queue and handles its messages."""
