"""The consumer of the messages behind a source, for each kind, runner and host.

It handles the messages of one batch and tells the source which ones it has to deliver again. A message is acknowledged
only when the ledger shows that everything it reports is finished. `handler` is Lambda's entry point.
"""

from intake_ledger.garbage import no_garbage_collection

with no_garbage_collection(freeze=True):
    from intake_ledger.consumer.batch import ProcessingTime
    from intake_ledger.consumer.composition import handler, make_parts, make_runner
    from intake_ledger.consumer.consumer import Consumer
    from intake_ledger.consumer.deadline import Overrun
    from intake_ledger.consumer.services import Services

__all__ = [
    "Consumer",
    "Overrun",
    "ProcessingTime",
    "Services",
    "handler",
    "make_parts",
    "make_runner",
]
