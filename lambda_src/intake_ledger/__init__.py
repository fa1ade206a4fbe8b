"""The versioned intake ledger's runtime: what a processor imports.

from intake_ledger import Commit, NotYet, ObjectChange, Unprocessable

def process(change: ObjectChange) -> Commit | str | None: ...
"""

from intake_ledger.processor import Commit, ObjectChange, ObjectStream
from intake_ledger.protocol import NotYet, ObjectGone, ObjectReadError, Unprocessable

__all__ = ["Commit", "NotYet", "ObjectChange", "ObjectGone", "ObjectReadError", "ObjectStream", "Unprocessable"]
