"""Call a processor, and give it the content of an object.

Other packages import the names below. `lambda_processor` is imported only for a processor that is another Lambda
function.
"""

from intake_ledger.processor.checksums import checksum_of
from intake_ledger.processor.object_change import (
    Commit,
    ObjectChange,
    Processor,
    as_commit,
    load_processor,
    make_object_change,
)
from intake_ledger.processor.object_stream import Body, ObjectStream, download_to_file

__all__ = [
    "Body",
    "Commit",
    "ObjectChange",
    "ObjectStream",
    "Processor",
    "as_commit",
    "checksum_of",
    "download_to_file",
    "load_processor",
    "make_object_change",
]
