"""The consumer of the messages behind a source, for each kind, runner and host.

It handles the messages of one batch and tells the source which ones it has to deliver again. A message is acknowledged
only when the ledger shows that everything it reports is finished. `handler` is Lambda's entry point.
"""

from intake_ledger.garbage import no_garbage_collection

with no_garbage_collection(freeze=True):
    from intake_ledger.consumer.composition import handler

__all__ = ["handler"]
