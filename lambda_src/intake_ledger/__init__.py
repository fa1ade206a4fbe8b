"""The versioned intake ledger's runtime: what a processor imports.

from intake_ledger import Commit, ObjectChange, Unprocessable

def process(change: ObjectChange) -> Commit | str | None: ...
"""

from intake_ledger.errors import ObjectGone, Unprocessable
from intake_ledger.processing import Commit, ObjectChange

__all__ = ["Commit", "ObjectChange", "ObjectGone", "Unprocessable"]
