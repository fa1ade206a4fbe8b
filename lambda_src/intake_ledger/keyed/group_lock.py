"""The lock of a group of keys: the guard of a pipeline with `exclusive_by`.

It is the lock of a key, with one item per group, whose holder may be the row of any key of the group. A key that has to
wait for its group waits as after a `NotYet`: its row shows that, the wait counts no attempt, and it ends at `max_wait`.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from intake_ledger.keyed.key_lock import KeyLock
from intake_ledger.ledger import Claim, LedgerTable
from intake_ledger.protocol import ConsumerSettings, Element, GroupHeld, Retention, RowKey, Ruling, group_key


class GroupLock(KeyLock):
    """Guards claims by the locks of their groups; see `Guard`. A claim without a group needs none."""

    def __init__(
        self,
        table: LedgerTable,
        pipeline: str,
        retention: Retention,
        group_of: Callable[[str], str | None],
        *,
        clock: Callable[[], int],
        longest_work_ms: int | None = None,
    ) -> None:
        """Make the guard of one pipeline.

        Args:
            table: the ledger's table.
            pipeline: the name of the pipeline.
            retention: as for `KeyLock`.
            group_of: gives the group of a key. None: it has none.
            clock: gives epoch milliseconds.
            longest_work_ms: as for `KeyLock`.

        """
        super().__init__(table, pipeline, retention, clock=clock, longest_work_ms=longest_work_ms)
        self._pipeline = pipeline
        self._group_of = group_of

    def take(self, claim: Claim) -> Claim | Ruling:
        """See `Guard`. A claim whose group is held says so, and keeps its row until its attempt has ended."""
        return claim if self._group(claim) is None else super().take(claim)

    def with_commit(self, claim: Claim) -> Sequence[Element]:
        """See `Guard`."""
        return () if self._group(claim) is None else super().with_commit(claim)

    def still_holds(self, claim: Claim) -> bool:
        """See `Guard`."""
        return self._group(claim) is None or super().still_holds(claim)

    def extended(self, claim: Claim, *, until: int) -> bool:
        """See `Guard`."""
        return self._group(claim) is None or super().extended(claim, until=until)

    def let_go(self, claim: Claim, *, ended: bool) -> None:
        """See `Guard`."""
        if self._group(claim) is not None:
            super().let_go(claim, ended=ended)

    def group_fence(self, claim: Claim) -> int | None:
        """See `GroupGuard`."""
        return None if self._group(claim) is None else self.fence_of(claim)

    def _busy(self, claim: Claim, wait_ms: int) -> Claim:
        why = f"another key of the group {self._group(claim)} is in work"
        return replace(claim, held=GroupHeld(why, retry_in=max(wait_ms / 1000, 1)))

    def _group(self, claim: Claim) -> str | None:
        return self._group_of(claim.change.key)

    def _key(self, claim: Claim) -> RowKey:
        return group_key(self._pipeline, self._group(claim) or "")

    def _name(self, claim: Claim) -> str:
        return holder_name(claim.key)

    def _row_of(self, holder: str, claim: Claim) -> RowKey:  # noqa: ARG002 - the name says everything
        return holder_row(holder)


def group_locks(
    settings: ConsumerSettings,
    table: LedgerTable,
    retention: Retention,
    *,
    clock: Callable[[], int],
    longest_work_ms: int | None,
    is_control: Callable[[str], bool] | None = None,
) -> Sequence[GroupLock]:
    """The guards of a pipeline: the lock of the groups that `exclusive_by` names, or none.

    Args:
        settings: of the pipeline.
        table: as for `GroupLock`.
        retention: as for `KeyLock`.
        clock: gives epoch milliseconds.
        longest_work_ms: as for `KeyLock`.
        is_control: tells keys without work, which need no lock. All keys have work when omitted.

    """
    if (pattern := settings.exclusive_by) is None:
        return ()

    def group_of(key: str) -> str | None:
        return None if is_control is not None and is_control(key) else pattern.group_of(key)

    return (GroupLock(table, settings.pipeline, retention, group_of, clock=clock, longest_work_ms=longest_work_ms),)


def holder_name(key: RowKey) -> str:
    """The row in one text. A sort key of objects and sets has no line break."""
    return f"{key.sk}\n{key.pk}"


def holder_row(name: str) -> RowKey:
    """The row with this name."""
    sk, _, pk = name.partition("\n")
    return RowKey(pk, sk)
