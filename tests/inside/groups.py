"""Parts of the consumer of a pipeline with groups."""

from intake_ledger.keyed import GroupLock, holder_hash, holder_name, holder_row

__all__ = ["GroupLock", "holder_hash", "holder_name", "holder_row"]
