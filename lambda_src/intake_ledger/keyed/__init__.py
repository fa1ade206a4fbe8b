"""Claims on messages that have a key and an identity. The claims of one key exclude each other."""

from intake_ledger.keyed.key_lock import HeldByOther, KeyLocks, Lock
from intake_ledger.keyed.keyed_ledger import KeyedClaim, KeyedLedger
from intake_ledger.keyed.names import InvalidName, idempotency_key, name_of

__all__ = [
    "HeldByOther",
    "InvalidName",
    "KeyLocks",
    "KeyedClaim",
    "KeyedLedger",
    "Lock",
    "idempotency_key",
    "name_of",
]
