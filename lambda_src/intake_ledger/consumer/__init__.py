"""The Lambda function behind the queue.

It handles the messages of one SQS batch and tells Lambda which ones SQS has to deliver again. A message is acknowledged
only when the ledger shows that everything it reports is finished. `handler` is Lambda's entry point.
"""

from intake_ledger.garbage import no_garbage_collection

with no_garbage_collection(freeze=True):
    from intake_ledger.consumer.batch import ProcessingTime
    from intake_ledger.consumer.composition import handler, make_processor, make_services, make_sets
    from intake_ledger.consumer.consumer import Consumer
    from intake_ledger.consumer.deadline import Overrun
    from intake_ledger.consumer.object_call import ClaimOutputs, ProcessorCall, Progress
    from intake_ledger.consumer.services import Services

__all__ = [
    "ClaimOutputs",
    "Consumer",
    "Overrun",
    "ProcessingTime",
    "ProcessorCall",
    "Progress",
    "Services",
    "handler",
    "make_processor",
    "make_services",
    "make_sets",
]
