"""Claim changes, and write the outcomes of claims: commit, failure, wait, rejection or release."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import batched

from intake_ledger.ledger.claim import Claim, LedgerOptions
from intake_ledger.ledger.claim_writer import MAX_JUDGEMENTS, ClaimWriter, StateReader, change_key
from intake_ledger.ledger.completeness import Completeness, Incomplete
from intake_ledger.ledger.conditions import ConditionFailed, lease_owned, no_late_writes, not_overwritten, row_unchanged
from intake_ledger.ledger.dynamodb_table import AWS_ERRORS, BATCH_STATEMENTS, LedgerTable
from intake_ledger.protocol import (
    Change,
    Copied,
    Element,
    Fenced,
    Ordering,
    Overwritten,
    Reason,
    Row,
    RowKey,
    Ruling,
    Status,
    breaker_key,
    check_transact,
    removed_partition,
    review_partition,
    row_changes,
    success_key,
    waiting_partition,
)


class Ledger:
    """Claims changes, and writes the outcome of each claim on the condition that the claim is still owned.

    Every method raises botocore's ClientError or BotoCoreError if AWS does not answer. Do not acknowledge a message
    then. A method that ends a claim raises Fenced if the attempt no longer owns the claim. The next attempt decides
    then.
    """

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
        """Make the ledger of one pipeline.

        Args:
            table: the table of the rows.
            bucket: reads the present states of objects.
            options: the settings of the pipeline.
            clock: gives epoch milliseconds.
            new_owner: gives a text that no other attempt has.
            completeness: knows whether an object without a row was never processed. That is unknown when omitted.

        """
        self._claims = ClaimWriter(
            table, bucket, options, clock=clock, new_owner=new_owner, completeness=completeness or Incomplete()
        )
        self._table = table
        self._options = options
        self._retention = options.retention
        self._committed = partial(
            row_changes.committed, retention=self._retention, processor_version=options.processor_version
        )
        self._clock = clock

    def claim(self, change: Change, *, lease_ms: int) -> Claim | Ruling:
        """Judge one change. Its verdict is ACCEPTED if the answer is a claim.

        A claim excludes all other attempts for `lease_ms` milliseconds.
        """
        return self._claims.claim(change, lease_ms=lease_ms)

    def claim_together(self, changes: Sequence[Change], *, lease_ms: int) -> list[Claim | Ruling | None]:
        """Judge the changes that report new keys, in few requests, since boto's cost is per request.

        Returns:
            A claim or a ruling for each change. None: claim it alone. It needs a look at S3, has the key of an earlier
            change, is the only new one, or AWS did not answer for it.

        Raises:
            ClientError: AWS answered for no change. Also BotoCoreError.

        """
        return self._claims.claim_together(changes, lease_ms=lease_ms)

    def commit(
        self,
        claim: Claim,
        commit: str | None = None,
        transact: Sequence[Element] = (),
        *,
        own: Sequence[Element] = (),
        note: Reason | None = None,
    ) -> None:
        """Make the claimed state the committed one.

        Args:
            claim: the claim whose processor has finished.
            commit: the downstream's name for the effect. None is stored when omitted.
            transact: writes to other tables. They and the commit are carried out together or not at all.
            own: writes of this library to the ledger's table, which belong to the same transaction.
            note: says which information about the effect the row does not keep. The row shows it.

        Raises:
            InvalidTransactionError: `transact` is malformed. Nothing was written, and no attempt can succeed.
            Fenced: This attempt no longer owns the claim. The next attempt decides.
            Overwritten: It does, but another state was written late. Fail the claim, so that it is processed again.
            TransactionRefused: DynamoDB refused `transact`. Nothing was written.

        """
        check_transact(transact, self._table.name, own=len(own))
        after = self._committed(claim.row, commit, now=self._clock(), transactional=bool(transact), note=note)
        try:
            if others := [*transact, *own]:
                token, owned = str(claim.row.lease_owner), lease_owned(claim.row)
                self._table.update_with(claim.key, claim.row, after, owned, others, token=token)
            else:
                self._table.update(claim.key, claim.row, after, not_overwritten(claim.row, claim.state.identity))
        except ConditionFailed as refused:
            if refused.row is not None and self._is_own_commit(refused.row, after):
                return  # our own commit, repeated by the SDK after its answer was lost
            if _shows(refused.row, claim.row):
                raise Overwritten("an overtaken worker may have written another state after this effect") from None
            raise _fenced(claim) from None

    def commit_together(self, commits: Sequence[tuple[Claim, str | None]]) -> list[Claim]:
        """`commit` claims on different keys in few requests.

        Returns:
            The claims to commit alone. That shows the reason: another attempt has the row, an answer was lost, or AWS
            refused the request.

        """
        now, left = self._clock(), list[Claim]()
        for group in batched(commits, BATCH_STATEMENTS):
            updates = {claim.key: (claim.row, self._committed(claim.row, commit, now=now)) for claim, commit in group}
            written: set[RowKey] = set()
            if len(group) >= self._options.min_group:
                with suppress(*AWS_ERRORS):
                    written = self._table.commit_many(updates)
            left += [claim for claim, _ in group if claim.key not in written]
        return left

    def report_late_write(self, claim: Claim) -> bool:
        """Record that the processor of an overtaken claim may have written downstream after its successor.

        False: there is nothing to repair. In EVERY_VERSION a row has one state only, and a second write does no harm.
        """
        if self._options.ordering is Ordering.EVERY_VERSION:
            return False
        try:
            self._table.report_late_write(claim.key, claim.row)
        except ConditionFailed:
            return False
        return True

    def abandon(self, claim: Claim, reason: Reason, *, begun: bool) -> None:
        """Settle the row without a commit: the claimed version no longer exists, and no other state matters.

        Args:
            claim: the claim on the version.
            reason: stays if the version has no earlier one.
            begun: whether the processor had started. If not, the attempt is not counted.

        """
        partition = removed_partition(self._options.pipeline)
        after = row_changes.abandoned(
            claim.row,
            reason,
            seen=claim.row if begun else claim.seen,
            now=self._clock(),
            retention=self._retention,
            partition=partition,
        )
        self._end(claim, after)

    def fail(
        self,
        claim: Claim,
        reason: Reason,
        *,
        retry_at: int | None = None,
        counted: bool = True,
        s3_error: str | None = None,
    ) -> None:
        """Record a failure that is retried.

        Args:
            claim: the claim whose attempt failed.
            reason: the cause.
            retry_at: the time before which no message may retry, in epoch milliseconds. At once when omitted.
            counted: whether the failure counts as an attempt.
            s3_error: S3's code, if S3 refused the read of the object.

        """
        now, review = self._clock(), review_partition(self._options.pipeline, claim.key)
        row = claim.row if counted else replace(claim.row, attempts=claim.row.attempts - 1)
        after = row_changes.failed(row, reason, review_partition=review, now=now, retry_at=retry_at, s3_error=s3_error)
        self._end(claim, after)

    def postpone(self, claim: Claim, reason: Reason, *, until: int) -> None:
        """Keep a claim whose work could not be started, with the reason. Its lease ends at `until`, in epoch ms."""
        self._end(claim, row_changes.postponed(claim.row, reason, lease_until=until))

    def wait(self, claim: Claim, reason: Reason, *, retry_at: int) -> None:
        """Record that the processor waits for a missing thing. It is retried at `retry_at`, in epoch milliseconds."""
        partition = waiting_partition(self._options.pipeline)
        after = row_changes.waiting(claim.row, reason, partition=partition, now=self._clock(), retry_at=retry_at)
        self._end(claim, after)

    def reject(
        self, claim: Claim, reason: Reason, *, s3_error: str | None = None, copied: Copied | None = None
    ) -> None:
        """Record a failure that is not retried. Send the copy to the dead-letter queue *before*, with its fence.

        Args:
            claim: the claim whose attempt failed.
            reason: the cause.
            s3_error: S3's code, if S3 refused the read of the object.
            copied: the result of sending the copy. If the queue has not taken it, the row waits for that. None: no copy
                is sent.

        """
        review = review_partition(self._options.pipeline, claim.key)
        after = row_changes.rejected(claim.row, reason, review_partition=review, now=self._clock(), s3_error=s3_error)
        self._end(claim, row_changes.after_copy(after, copied) if copied else after)

    def reopen(self, change: Change) -> bool:
        """Let a rejected change be claimed again. Its row becomes FAILED, and its attempts are counted again.

        False: the row is not REJECTED, or another attempt has it. Nothing was changed.
        """
        key = change_key(self._options, change)
        row = self._table.get(key)
        for _ in range(MAX_JUDGEMENTS):
            if row is None or row.status is not Status.REJECTED:
                break
            now, review = self._clock(), review_partition(self._options.pipeline, key)
            after = row_changes.reopened(row, review_partition=review, now=now)
            try:
                self._table.update(key, row, after, row_unchanged(row, now))
            except ConditionFailed as refused:
                row = refused.row
            else:
                return True
        return False

    def exhausted_row(self, change: Change, seen: Row) -> Row:
        """The row that `exhaust` writes after the verdict EXHAUSTED. The dead-letter queue's copy quotes it."""
        review = review_partition(self._options.pipeline, change_key(self._options, change))
        return row_changes.exhausted(seen, review_partition=review, now=self._clock())

    def exhaust(self, change: Change, seen: Row, after: Row) -> bool:
        """Reject a row whose attempts all ended without an outcome. Send the copy to the dead-letter queue *before*.

        False: another attempt has taken the row meanwhile. Judge the change again.
        """
        try:
            self._table.update(change_key(self._options, change), seen, after, row_unchanged(seen, self._clock()))
        except ConditionFailed:
            return False
        return True

    def release(self, claim: Claim) -> None:
        """Give back a claim whose processor was not started, as if it had never been made."""
        if claim.seen is not None:
            self._put_back(claim, row_changes.released(claim.row, claim.seen))
            return
        try:
            self._table.delete(claim.key, lease_owned(claim.row))
        except ConditionFailed as refused:
            if refused.row is not None:
                raise _fenced(claim) from None

    def extend(self, claim: Claim, *, lease_ms: int) -> None:
        """Extend the lease of a claim to `lease_ms` milliseconds from now on.

        A lease that has ended is extended too, unless another attempt has the row.

        Raises:
            Fenced: As for `commit`. Also if the claim has ended.

        """
        self._end(claim, row_changes.extended(claim.row, lease_until=self._clock() + lease_ms))

    def last_success(self) -> tuple[int | None, int | None]:
        """The last success of any execution environment, and the last request of a person to close the circuit breaker.

        Times are in epoch milliseconds. None: there was none.
        """
        found = self._table.read(success_key(self._options.pipeline))
        return found.get("last_success_at"), found.get("retry_now_at")

    def tell_success(self, at: int) -> None:
        """Tell the other execution environments that a processor has succeeded, at this time in epoch milliseconds."""
        self._table.write(success_key(self._options.pipeline), {"last_success_at": at})

    def tell_breaker(self, content: Mapping[str, int | str]) -> None:
        """Record the state of a circuit breaker, for people. No decision reads it."""
        self._table.write(breaker_key(self._options.pipeline), content)

    def _is_own_commit(self, row: Row, written: Row) -> bool:
        """True if the row shows the commit that this attempt has written. A later attempt may have claimed it since."""
        return row.committed_fence == written.committed_fence

    def _put_back(self, claim: Claim, after: Row) -> None:
        if after.expires_at is not None:
            # A late write that came meanwhile has to be repaired before the row may expire.
            with suppress(ConditionFailed):
                self._table.update(claim.key, claim.row, after, no_late_writes(claim.row))
                return
            after = replace(after, expires_at=None)
        self._end(claim, after)

    def _end(self, claim: Claim, after: Row) -> None:
        try:
            self._table.update(claim.key, claim.row, after, lease_owned(claim.row))
        except ConditionFailed as refused:
            if _shows(refused.row, after):
                return  # our own write, repeated by the SDK
            raise _fenced(claim) from None


def _shows(row: Row | None, written: Row) -> bool:
    """True if the row shows this attempt's own write."""
    return row is not None and _mark(row) == _mark(written)


def _mark(row: Row) -> tuple[object, ...]:
    # Two messages may record the end of one execution. Only the time tells the write of one from that of the other.
    return row.fence, row.status, row.lease_owner, row.updated_at


def _fenced(claim: Claim) -> Fenced:
    return Fenced(f"fence {claim.row.fence} of {claim.key.pk} is no longer current: the lease has ended")
