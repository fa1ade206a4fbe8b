"""Call a processor, and give it the content of an object.

Other packages import the names below. `lambda_processor` is imported only for a processor that is another Lambda
function.
"""

from intake_ledger.processor.object_change import (
    BatchProcessor,
    Commit,
    ObjectChange,
    Processor,
    as_commit,
    load_processor,
    make_object_change,
)
from intake_ledger.processor.object_stream import Body, ObjectStream, OpenedObject, checksum_of, open_state

__all__ = [
    "BatchProcessor",
    "Body",
    "Commit",
    "ObjectChange",
    "ObjectStream",
    "OpenedObject",
    "Processor",
    "as_commit",
    "checksum_of",
    "load_processor",
    "make_object_change",
    "open_state",
]
