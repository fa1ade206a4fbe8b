"""A ledger whose claims exclude each other per key: each claim holds the lock of its key.

Timeline of a message (K is the key, L the lock's fence; all writes are conditional):

    a new message       insert its row ─► take the lock of K (L) ─► processor ─► commit the row and free the lock
    K is busy           insert its row ─► the lock is held ─► release the row ─► BUSY
    any other end       write the outcome, if there is one ─► free the lock
    a worker that died  the lease of row and lock ends; the next attempt takes both; the commit of L is refused
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, override

from intake_ledger.keyed.key_lock import HeldByOther, KeyLocks, Lock
from intake_ledger.ledger import AWS_ERRORS, Claim, Ledger, LedgerOptions, LedgerTable, StateReader
from intake_ledger.protocol import (
    Change,
    Element,
    Fenced,
    InvalidTransactionError,
    Reason,
    Row,
    Ruling,
    Status,
    TransactionRefused,
    Verdict,
)

_SHORTEST_WAIT_MS = 1_000


@dataclass(frozen=True, slots=True)
class KeyedClaim(Claim):
    """The right to process one message, while no other message of its key is processed."""

    lock: Lock = field(kw_only=True)


class KeyedLedger(Ledger):
    """Claims messages, and writes the outcome of each claim on the condition that row and lock are still owned.

    A commit frees the lock of its claim. After any other end of an attempt, also an error, the caller has to call
    `free_locks`, or `free` where threads share the ledger.
    """

    def __init__(
        self,
        table: LedgerTable,
        bucket: StateReader,
        options: LedgerOptions,
        *,
        clock: Callable[[], int],
        **others: Any,
    ) -> None:
        """Make the ledger of one intake; see `Ledger`."""
        super().__init__(table, bucket, options, clock=clock, **others)
        self._locks = KeyLocks(table, options.pipeline, options.retention, clock=clock)
        self._held: dict[str, Lock] = {}
        """The locks of this worker, by lease owner."""

    @override
    def claim(self, change: Change, *, lease_ms: int) -> Claim | Ruling:
        answer = super().claim(change, lease_ms=lease_ms)
        if not isinstance(answer, Claim):
            return answer
        try:
            taken = self._locks.take(answer)
        except AWS_ERRORS:
            # The processor has not started, so no attempt is counted.
            with suppress(Fenced, *AWS_ERRORS):
                super().release(answer)
            raise
        if isinstance(taken, HeldByOther):
            with suppress(Fenced):  # another attempt has the row already
                super().release(answer)
            return Ruling(Verdict.BUSY, "another message of the key is processed", self._until_free(taken))
        self._held[taken.owner] = taken
        return KeyedClaim(answer.key, answer.change, answer.state, answer.row, answer.seen, answer.why, lock=taken)

    @override
    def claim_together(self, changes: Sequence[Change], *, lease_ms: int) -> list[Claim | Ruling | None]:
        """Claim each message alone, when its processor can start: a lock that waits would hold up its key."""
        return [None] * len(changes)

    @override
    def commit(
        self,
        claim: Claim,
        commit: str | None = None,
        transact: Sequence[Element] = (),
        *,
        own: Sequence[Element] = (),
        note: Reason | None = None,
    ) -> None:
        """Commit the message and free the lock, in one transaction; see `Ledger.commit`.

        Raises:
            Fenced: Another attempt owns the row or the lock. The effect of a later message of the key may have come
                first.

        """
        lock = _lock_of(claim)
        try:
            super().commit(claim, commit, transact, own=[*own, self._locks.freeing(lock)], note=note)
        except InvalidTransactionError:
            raise  # no attempt can succeed, with or without the lock
        except TransactionRefused as refused:
            if refused.passing or self._locks.is_held(lock):
                raise
            raise Fenced(f"fence {lock.fence} of {lock.key.pk} is no longer current: the lock's lease ended") from None
        else:
            del self._held[lock.owner]

    @override
    def extend(self, claim: Claim, *, lease_ms: int) -> None:
        """Extend the lease of row and lock; see `Ledger.extend`."""
        lock = _lock_of(claim)
        if not self._locks.extend(lock, until=self._clock() + lease_ms):
            raise Fenced(f"fence {lock.fence} of {lock.key.pk} is no longer current: the lock's lease ended")
        # Afterwards, since a row that is extended alone would keep the message from its next attempt.
        super().extend(claim, lease_ms=lease_ms)

    def free_locks(self) -> None:
        """Free all locks that this worker still holds. No processor of it may run."""
        for lock in self._held.values():
            self._locks.free(lock)
        self._held.clear()

    def free(self, claim: Claim) -> None:
        """Free the lock of a claim, if it is still held. The processor of the claim must not run."""
        lock = _lock_of(claim)
        if self._held.pop(lock.owner, None) is not None:
            self._locks.free(lock)

    def _until_free(self, held: HeldByOther) -> Row:
        """A row that says until when the message should wait.

        Most processors end long before their lease. The wait is the time for which the lock is held already, and at
        most the rest of the lease: a message asks often at first, and seldom while a long processor runs.
        """
        now = self._clock()
        wait = min(max(now - held.held_since, _SHORTEST_WAIT_MS), max(held.lease_until - now, 0))
        return Row(Status.PROCESSING, fence=0, lease_until=now + wait)


def _lock_of(claim: Claim) -> Lock:
    assert isinstance(claim, KeyedClaim)
    return claim.lock
