"""The ledger of a pipeline whose changes are processed by executions of a state machine."""

from collections.abc import Callable
from dataclasses import replace

from intake_ledger.ledger.claim import Claim, LedgerOptions
from intake_ledger.ledger.claim_writer import StateReader, change_key
from intake_ledger.ledger.completeness import Completeness
from intake_ledger.ledger.conditions import ConditionFailed, row_unchanged
from intake_ledger.ledger.dynamodb_table import LedgerTable
from intake_ledger.ledger.ledger import Ledger
from intake_ledger.protocol import Change, Fenced, Row, RowKey, Ruling, row_changes


class ExecutionLedger(Ledger):
    """A ledger whose claims are not taken over when their lease ends, because their executions may run."""

    def __init__(
        self,
        table: LedgerTable,
        bucket: StateReader,
        options: LedgerOptions,
        *,
        clock: Callable[[], int],
        new_owner: Callable[[], str],
        completeness: Completeness | None = None,
    ) -> None:
        """Take the arguments of `Ledger`."""
        options = replace(options, policy=replace(options.policy, executions=True))
        super().__init__(table, bucket, options, clock=clock, new_owner=new_owner, completeness=completeness)
        self._new_owner = new_owner

    def claim_ended(self, change: Change, *, lease_ms: int, ended: int) -> Claim | Ruling:
        """`claim`, when the execution of the fence `ended` has ended. Its failed row may be claimed then."""
        return self._claims.claim_ended(change, lease_ms=lease_ms, ended=ended)

    def _is_own_commit(self, row: Row, written: Row) -> bool:
        """As in `Ledger`. Another message may have committed the same execution, at another time."""
        return (row.committed_fence, row.updated_at) == (written.committed_fence, written.updated_at)

    def key_of(self, change: Change) -> RowKey:
        """The key of the change's row."""
        return change_key(self._options, change)

    def take_over(self, claim: Claim, *, lease_ms: int) -> Claim:
        """Take over a claim under its fence, to start its execution again.

        The worker that made the claim can then neither release nor end it. Raises Fenced as `extend`.
        """
        until = self._clock() + lease_ms
        after = row_changes.extended(claim.row, lease_until=until, owner=self._new_owner())
        self._end(claim, after)
        return replace(claim, row=after)

    def resume(self, claim: Claim, *, lease_ms: int) -> None:
        """Take over the failed row of an execution that runs again, under its fence.

        Raises:
            Fenced: The row has changed since it was read.

        """
        now = self._clock()
        after = row_changes.resumed(claim.row, owner=self._new_owner(), now=now, lease_until=now + lease_ms)
        try:
            self._table.update(claim.key, claim.row, after, row_unchanged(claim.row, now))
        except ConditionFailed:
            raise Fenced(f"the failed row of {claim.key.pk} has changed") from None
