"""The consumer outside of Lambda: `python -m intake_ledger.worker` polls the queue and handles its messages."""

from intake_ledger.worker.worker import Worker, make_worker

__all__ = ["Worker", "make_worker"]
