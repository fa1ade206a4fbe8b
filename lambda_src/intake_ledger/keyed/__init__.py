"""Keys and identities of messages, and the locks of keys and groups."""

from intake_ledger.keyed.group_lock import GroupLock, group_locks, holder_hash, holder_name, holder_row
from intake_ledger.keyed.key_lock import KeyLock, is_holding
from intake_ledger.keyed.names import InvalidName, idempotency_key, name_of

__all__ = [
    "GroupLock",
    "InvalidName",
    "KeyLock",
    "group_locks",
    "holder_hash",
    "holder_name",
    "holder_row",
    "idempotency_key",
    "is_holding",
    "name_of",
]
