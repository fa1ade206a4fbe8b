"""The versioned intake ledger's runtime: what a processor imports.

from intake_ledger import Commit, NotYet, ObjectChange, Unprocessable

def process(change: ObjectChange) -> Commit | str | None: ...
"""

from intake_ledger.errors import NotYet, ObjectGone, ObjectReadError, Unprocessable
from intake_ledger.object_stream import ObjectStream
from intake_ledger.processing import Commit, ObjectChange

__all__ = ["Commit", "NotYet", "ObjectChange", "ObjectGone", "ObjectReadError", "ObjectStream", "Unprocessable"]
