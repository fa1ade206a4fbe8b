"""The lock of a key: the guard of messages, so that the attempts on the messages of one key exclude each other.

Each message has its row. One item per key names the row that holds the key, and the fence under which that row
took it. The lock has no lease: it is held while its holder's row is in work, and for no other reason. An item that is
there is not a lock that is held. Its fence grows with each attempt that takes it, so it orders all attempts on the key.

Timeline of a message (K is the key, L the lock's fence; all writes are conditional):

    a new message       insert its row ─► take K (L) ─► processor ─► commit the row and free K, in one transaction
    K is busy           insert its row ─► K is held ─► read its holder's row: in work ─► release the row ─► BUSY
    any other end       write the outcome: the row is not in work any more, so K is free
    a longer lease      extend the lease of its row ─► mark K, so that a worker that has read the row cannot take it
    no end is written   free K
    a worker that died  the lease of its row ends, so K is free; the next attempt takes both; the commit of L is refused

Work that outlives leases holds its key for as long as its row is in work, also without a lease. Such a row leaves
PROCESSING only when its work has ended, or was never started and cannot be any more. So the lock never asks elsewhere.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from botocore.exceptions import ClientError

from intake_ledger.ledger.conditions import Condition, ConditionFailed
from intake_ledger.ledger.dynamodb_table import AWS_ERRORS, LedgerTable, is_conflict
from intake_ledger.ledger.ledger import Claim
from intake_ledger.protocol.change import StateKind
from intake_ledger.protocol.errors import Fenced
from intake_ledger.protocol.handover import Element
from intake_ledger.protocol.row import Retention, Row, RowKey, Status, to_dynamodb
from intake_ledger.protocol.verdict import Ruling, Verdict

_TRIES = 5
"""A lock is tried again if it was taken or freed between two requests."""
_SHORTEST_WAIT_MS = 1_000
"""The shortest wait for another attempt. Also for transactions on the lock that were under way at each try."""
_OUTLIVING_WAITS_MS = (30_000, 3_600_000)
"""The shortest and the longest wait for work that outlives leases."""
_LATER_FORMAT_MS = 900_000
"""The wait for a row of a later release. Only that release knows whether it is in work."""
_GROWTH = 16
_DAY_SECONDS = 86_400
_FREE = ""
"""The holder of a free lock."""


class KeyLock:
    """Guards claims by the locks of their keys; see `Guard`."""

    just_in_time = True
    _reads_first = False
    """True to read a lock before it is written. A write may make the transaction fail that commits its holder."""

    def __init__(
        self,
        table: LedgerTable,
        pipeline: str,
        retention: Retention,
        *,
        clock: Callable[[], int],
        longest_work_ms: int | None = None,
    ) -> None:
        """Make the guard of one intake.

        Args:
            table: the ledger's table.
            pipeline: the name of the intake.
            retention: the time for which rows stay. Locks stay for longer, so that their fences only grow.
            clock: gives epoch milliseconds.
            longest_work_ms: the limit of work that outlives leases. None: no work does.

        """
        self._table = table
        self._sk = f"{pipeline}@lock"
        self._retention = retention
        self._clock = clock
        self._outlives = longest_work_ms is not None
        self._longest_ms = longest_work_ms or 0

    def take(self, claim: Claim) -> Claim | Ruling:
        """See `Guard`. A lock whose holder is not in work any more is taken from it."""
        fence = claim.row.fence
        free = Condition(
            "(attribute_not_exists(#holder) OR #holder = :free OR #holder = :own_row) AND "
            "(attribute_not_exists(#fence) OR #fence < :fence_now)",
            ("holder", "fence"),
            {":free": _FREE, ":own_row": self._name(claim), ":fence_now": fence},
        )
        item = self._item(claim) if self._reads_first else None
        try:
            for _ in range(_TRIES):
                if item is None and (item := self._refusal(claim, fence, free)) is None:
                    return replace(claim, lock_fence=fence)
                if self._is_holder(item, claim):
                    # An earlier worker of this claim has taken it, or the answer to our own write was lost. The write
                    # tells those that have read it before.
                    if self._takes_again(claim, item):
                        return replace(claim, lock_fence=int(item["fence"]))
                    item = self._item(claim)
                    continue
                if (wait_ms := self._held_ms(claim, item)) is not None:
                    return self._busy(claim, wait_ms, item)
                if self._has_lost_its_row(claim, item):
                    break
                fence = max(int(item.get("fence", 0)) + 1, claim.row.fence)
                free, item = _as_read(item), None
        except ClientError as error:
            if not is_conflict(error):
                raise
        return self._busy(claim, _SHORTEST_WAIT_MS, {})

    def fence_of(self, claim: Claim) -> int:
        """The fence under which the claim's row holds the lock. It orders the work of all messages of the key.

        Raises:
            Fenced: The row does not hold it.

        """
        if claim.lock_fence is not None:
            return claim.lock_fence
        item = self._item(claim)
        if not self._is_holder(item, claim):
            raise Fenced(f"fence {claim.row.fence} of {claim.key.pk} does not hold its key")
        return int(item["fence"])

    def in_turn(self, key: str) -> str | None:  # noqa: ARG002 - messages of one key are in turn anyway
        """See `FencingGuard`."""
        return None

    def fences(self, claim: Claim) -> dict[str, int]:  # noqa: ARG002 - the kind asks for it itself
        """See `FencingGuard`."""
        return {}

    def with_commit(self, claim: Claim) -> Sequence[Element]:
        """See `Guard`. The lock is freed with the commit, if the claim's row still holds it.

        Otherwise the commit would come after the effect of a later message of the key.
        """
        place, held = self._key(claim), self._held(claim)
        return [
            {
                "Update": {
                    "TableName": self._table.name,
                    "Key": {"pk": {"S": place.pk}, "sk": {"S": place.sk}},
                    "UpdateExpression": "SET #holder = :free",
                    "ConditionExpression": held.expression,
                    "ExpressionAttributeNames": {"#holder": "holder", "#holder_fence": "holder_fence"},
                    "ExpressionAttributeValues": to_dynamodb({**held.values, ":free": _FREE}),
                }
            }
        ]

    def still_holds(self, claim: Claim) -> bool:
        """See `Guard`."""
        return self._is_holder(self._item(claim), claim)

    def extended(self, claim: Claim, *, until: int) -> bool:
        """See `Guard`. A worker that has read the row before can then not take the lock, which expires later now.

        The condition fails if another one has taken it already.
        """
        if self._outlives:
            return True
        try:
            marks = {"extended_until": until, "expires_at": self._expires_at(until)}
            self._table.mark(self._key(claim), marks, self._held(claim))
        except ConditionFailed:
            return False
        return True

    def let_go(self, claim: Claim, *, ended: bool) -> None:
        """See `Guard`. A row that shows the end holds no lock. Any other one would hold it until its lease ends.

        If AWS does not answer, the end of the lease frees it.
        """
        if not ended and not self._outlives:
            with suppress(ConditionFailed, *AWS_ERRORS):
                self._table.mark(self._key(claim), {"holder": _FREE}, self._held(claim))

    def _held_ms(self, claim: Claim, item: dict[str, Any]) -> int | None:
        """The time after which a lock that another row holds may be free, in milliseconds. None: it is free.

        Most processors end long before their lease. The wait is the time for which the lock is held already, and at
        most the rest of the lease: a message asks often at first, and seldom while a long processor runs.
        """
        if item.get("holder", _FREE) in (_FREE, self._name(claim)):
            return None
        holder, now = self._table.get(self._row_of(item["holder"], claim)), self._clock()
        if holder is None or not is_holding(holder, item, outlives=self._outlives, now=now):
            return None
        if holder.status is Status.LATER_FORMAT:
            return _LATER_FORMAT_MS
        age_ms = max(now - int(item["held_since"]), 0)
        if self._outlives:
            shortest, longest = _OUTLIVING_WAITS_MS
            return min(max(age_ms // _GROWTH, shortest), longest)
        return min(max(age_ms, _SHORTEST_WAIT_MS), (holder.lease_until or now) - now)

    def _has_lost_its_row(self, claim: Claim, item: dict[str, Any]) -> bool:
        """True if the worker has lost its row before it took the lock. The next attempt on the row has or had both.

        That attempt left a higher fence on the lock. The row is read, because another message of the key, or the
        released row itself, may have left it: clocks differ.
        """
        if int(item.get("fence", 0)) <= claim.row.fence:
            return False
        row = self._table.get(claim.key)
        return row is None or row.fence != claim.row.fence

    def _takes_again(self, claim: Claim, item: dict[str, Any]) -> bool:
        """True if the lock is still as it was read, and expires later now."""
        marks = {"takes": int(item.get("takes", 0)) + 1, "expires_at": self._expires_at(claim.row.lease_until)}
        try:
            self._table.mark(self._key(claim), marks, _as_read(item))
        except ConditionFailed:
            return False
        return True

    def _busy(self, claim: Claim, wait_ms: int, item: Mapping[str, Any]) -> Claim | Ruling:  # noqa: ARG002 - for groups
        """The ruling of a message that waits for its key. Its row says until when. `item` is the lock, or empty."""
        row = Row(Status.PROCESSING, fence=0, lease_until=self._clock() + wait_ms)
        return Ruling(Verdict.BUSY, "another message of the key is processed", row)

    def _refusal(self, claim: Claim, fence: int, condition: Condition) -> dict[str, Any] | None:
        """Take the lock. Returns it if the condition does not hold. None: it is taken."""
        marks = {
            "fence": fence,
            "holder": self._name(claim),
            "holder_fence": claim.row.fence,
            "held_since": self._clock(),
            "expires_at": self._expires_at(claim.row.lease_until),
        }
        try:
            self._table.mark(self._key(claim), marks, condition)
        except ConditionFailed:
            return self._item(claim)
        return None

    def _expires_at(self, lease_until: int | None) -> int:
        """The row of the longest work expires a day after its retention. The lock stays for longer than that."""
        until = max(lease_until or 0, self._clock() + self._longest_ms)
        return (self._retention.expires_at(StateKind.DELETED, until) or 0) + _DAY_SECONDS

    def _is_holder(self, item: dict[str, Any], claim: Claim) -> bool:
        return (item.get("holder"), item.get("holder_fence")) == (self._name(claim), claim.row.fence)

    def _held(self, claim: Claim) -> Condition:
        """The claim's row holds the lock."""
        return Condition(
            "#holder = :own_row AND #holder_fence = :own_fence",
            ("holder", "holder_fence"),
            {":own_row": self._name(claim), ":own_fence": claim.row.fence},
        )

    def _key(self, claim: Claim) -> RowKey:
        """The key of the lock."""
        return RowKey(claim.key.pk, self._sk)

    def _name(self, claim: Claim) -> str:
        """The name of the claim's row as the holder."""
        return claim.key.sk

    def _row_of(self, holder: str, claim: Claim) -> RowKey:
        """The row with this name as the holder of the claim's lock."""
        return RowKey(claim.key.pk, holder)

    def _item(self, claim: Claim) -> dict[str, Any]:
        key = self._key(claim)
        return dict(self._table.get_items([key]).get(key, {}))


def is_holding(row: Row | None, lock: Mapping[str, Any], *, outlives: bool, now: int) -> bool:
    """True if the row that a lock names as its holder holds it.

    Args:
        row: of the holder. None: there is none.
        lock: the item.
        outlives: whether work outlives leases.
        now: epoch milliseconds.

    """
    if row is not None and row.status is Status.LATER_FORMAT:
        return True
    if row is None or row.status is not Status.PROCESSING or row.fence != lock["holder_fence"]:
        return False
    return outlives or row.is_live(now)


def _as_read(item: dict[str, Any]) -> Condition:
    """The lock is as it was read."""
    names, seen = ("fence", "holder", "extended_until", "takes"), {}
    parts = []
    for name in names:
        if name in item:
            seen[f":seen_{name}"] = item[name]
            parts.append(f"#{name} = :seen_{name}")
        else:
            parts.append(f"attribute_not_exists(#{name})")
    return Condition(" AND ".join(parts), names, seen)
