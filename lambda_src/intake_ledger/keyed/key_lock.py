"""The lock of a key: one item of the ledger's table, held by at most one attempt at a time.

Each message has a row of its own. The lock makes the attempts on the messages of one key exclude each other. It is held
if its lease has not ended, and for no other reason: an item that is there is not a lock that is held. Its fence grows
with each attempt that takes it, so it orders all attempts on the key.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from botocore.exceptions import ClientError

from intake_ledger.ledger import AWS_ERRORS, Claim, Condition, ConditionFailed, LedgerTable, is_conflict
from intake_ledger.protocol import LEASE_ENDED, Element, Retention, RowKey, StateKind, lease_is_live, to_dynamodb

_FREE = 0
"""The end of the lease of a lock that is free."""
_TRIES = 5
"""A lock is tried again if its fence was not below the wanted one, or if it was freed between two requests."""
_CONFLICT_MS = 1_000
"""Transactions on the lock were under way at each try. They end soon."""


@dataclass(frozen=True, slots=True)
class Lock:
    """The lock of a key, held by one attempt."""

    key: RowKey
    fence: int
    """Grows with each attempt that takes the lock."""
    owner: str
    """The lease owner of the attempt's claim."""


@dataclass(frozen=True, slots=True)
class HeldByOther:
    """The answer if another attempt holds the lock."""

    lease_until: int
    """The end of its lease, in epoch milliseconds."""
    held_since: int
    """The time at which it took the lock, in epoch milliseconds."""


class KeyLocks:
    """Takes and frees the locks of one intake."""

    def __init__(self, table: LedgerTable, pipeline: str, retention: Retention, *, clock: Callable[[], int]) -> None:
        """Make the locks.

        Args:
            table: the ledger's table.
            pipeline: the name of the intake.
            retention: the time for which rows stay. Locks stay for longer, so that their fences only grow.
            clock: gives epoch milliseconds.

        """
        self._table = table
        self._sk = f"{pipeline}@lock"
        self._retention = retention
        self._clock = clock

    def take(self, claim: Claim) -> Lock | HeldByOther:
        """Take the lock of the claim's key, for as long as the claim's lease lasts.

        Raises:
            ClientError: DynamoDB did not answer. Also BotoCoreError.

        """
        row, key = claim.row, RowKey(claim.key.pk, self._sk)
        owner, fence, until = str(row.lease_owner), row.fence, row.lease_until or 0
        for _ in range(_TRIES):
            try:
                self._write(key, owner, fence, until)
            except ConditionFailed:
                item = self._table.get_items([key]).get(key, {})
            except ClientError as error:
                if not is_conflict(error):
                    raise
                return HeldByOther(self._clock() + _CONFLICT_MS, self._clock())
            else:
                return Lock(key, fence, owner)
            if lease_is_live(item.get("lease_until"), self._clock()):
                if item["lease_owner"] == owner:
                    # The answer to the first write was lost. The SDK repeated it, and the lock was ours already.
                    return Lock(key, item["fence"], owner)
                return HeldByOther(item["lease_until"], item["held_since"])
            fence = max(fence, item.get("fence", 0) + 1)
        return HeldByOther(self._clock() + _CONFLICT_MS, self._clock())

    def _write(self, key: RowKey, owner: str, fence: int, until: int) -> None:
        now = self._clock()
        free = Condition(
            f"{LEASE_ENDED} AND (attribute_not_exists(#fence) OR #fence < :new_fence)",
            ("lease_until", "fence"),
            {":now": now, ":new_fence": fence},
        )
        # The row of the longest lease expires a day after its retention. The lock stays for longer than that.
        expires_at = (self._retention.expires_at(StateKind.DELETED, until) or 0) + _DAY_SECONDS
        marks = {"fence": fence, "lease_owner": owner, "lease_until": until, "held_since": now}
        self._table.mark(key, marks | {"expires_at": expires_at}, free)

    def free(self, lock: Lock) -> None:
        """Free the lock, if the attempt still holds it. If AWS does not answer, its lease ends it."""
        with suppress(ConditionFailed, *AWS_ERRORS):
            self._table.mark(lock.key, {"lease_until": _FREE}, _held(lock))

    def extend(self, lock: Lock, *, until: int) -> bool:
        """Extend the lease of the lock to this time, in epoch milliseconds. False: another attempt has taken it."""
        try:
            self._table.mark(lock.key, {"lease_until": until}, _held(lock))
        except ConditionFailed:
            return False
        return True

    def is_held(self, lock: Lock) -> bool:
        """True if no later attempt has taken the lock, and it was not freed."""
        item = self._table.get_items([lock.key]).get(lock.key, {})
        return bool((item.get("fence"), item.get("lease_owner")) == (lock.fence, lock.owner) and item["lease_until"])

    def freeing(self, lock: Lock) -> Element:
        """The write that frees the lock, as an element of the transaction of a commit.

        It is carried out only if no later attempt has taken the lock. Otherwise the commit would come after the effect
        of a later message of the key.
        """
        condition = _held(lock)
        names = dict.fromkeys((*condition.names, "lease_until"))
        return {
            "Update": {
                "TableName": self._table.name,
                "Key": to_dynamodb({"pk": lock.key.pk, "sk": lock.key.sk}),
                "UpdateExpression": "SET #lease_until = :free",
                "ConditionExpression": condition.expression,
                "ExpressionAttributeNames": {f"#{name}": name for name in names},
                "ExpressionAttributeValues": to_dynamodb({**condition.values, ":free": _FREE}),
            }
        }


_DAY_SECONDS = 86_400


def _held(lock: Lock) -> Condition:
    """No later attempt has taken the lock."""
    return Condition(
        "#fence = :own_fence AND #lease_owner = :own_owner",
        ("fence", "lease_owner"),
        {":own_fence": lock.fence, ":own_owner": lock.owner},
    )
