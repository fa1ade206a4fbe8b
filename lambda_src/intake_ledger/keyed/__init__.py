"""Keys and identities of messages, and the lock of a key."""

from intake_ledger.keyed.key_lock import KeyLock
from intake_ledger.keyed.names import InvalidName, idempotency_key, name_of

__all__ = ["InvalidName", "KeyLock", "idempotency_key", "name_of"]
