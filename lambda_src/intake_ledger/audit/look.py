"""Looks at candidates in S3 and in the ledger, and resubmits those that differ.

The query of a run only nominates. This is the judge: it asks S3 for the key's state, reads the row after that,
consistently, and applies the rule of `intake_ledger.audit.diff`.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from itertools import batched
from typing import TYPE_CHECKING, Any

from intake_ledger import rows
from intake_ledger.audit.budget import Budget
from intake_ledger.audit.diff import Line, Mark, Window, is_marked, judge
from intake_ledger.audit.relations import Candidate
from intake_ledger.audit.report import Report, Stopped
from intake_ledger.bucket import Bucket
from intake_ledger.changes import Origin, own_message
from intake_ledger.rows import Ordering, Row
from intake_ledger.settings import AuditSettings
from intake_ledger.table import NO_ROW, Condition, ConditionFailed, LedgerTable

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

STOP_BEFORE_MS = 30_000
"""How long before Lambda's own timeout a run stops, in milliseconds: its report has to be stored."""
BATCH = 25
"""Candidates between two looks at the time that is left."""
_SEND_BATCH = 10  # SQS's limit of SendMessageBatch
PAUSES = (0.2, 0.8)
"""Seconds before messages that SQS has refused are sent again."""
_MOST_REFUSED = 3
"""Batches in a row of which SQS takes nothing: then the run stops. One message that SQS never takes stops no run."""


class Look:
    """Judges candidates. `budget` bounds its messages; without one it sends none. `heads` is the number of requests to
    S3 at the same time, `clock` gives epoch milliseconds.
    """

    def __init__(
        self,
        settings: AuditSettings,
        ledger: LedgerTable,
        bucket: Bucket,
        *,
        sqs: "SQSClient",
        clock: Callable[[], int],
        budget: Budget | None,
        heads: int,
    ) -> None:
        self._settings = settings
        self._ledger = ledger
        self._bucket = bucket
        self._sqs = sqs
        self._clock = clock
        self._budget = budget
        self._heads = heads
        self._refused = 0

    def at(self, candidates: Sequence[Candidate], window: Window, report: Report) -> None:
        """Judge some candidates, `BATCH` at most, and count each in its line.

        Afterwards `report.stopped` says whether to stop: the budget is used up, or SQS takes no messages.
        """
        seen = self._as_they_are(candidates)
        # After S3 was asked: a row that is read before may be older than the state.
        found = self._ledger.get_items(list({one.row_key(self._settings): None for one in seen}))
        due = []
        for one in seen:
            content = found.get(one.row_key(self._settings), {})
            row, lines = rows.from_attributes(content), report.lines_of(shown=one.shown)
            verdict = judge(row, one.state, window, now=self._clock(), deletes=self._settings.deletes)
            if isinstance(verdict, Line):
                lines[verdict] += 1
                continue
            report.found(one.key, verdict, one.state)
            if is_marked(_mark(content), one.state, window):
                lines[Line.MARKED] += 1
            elif self._budget is None:
                lines[Line.DRY_RUN if report.dry_run else Line.HELD_BACK] += 1
            else:
                due.append((one, row))
        if due and self._budget is not None:
            self._resubmit(due, self._budget, report)

    def _as_they_are(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        if self._heads == 1:
            return [self._as_it_is(one) for one in candidates]
        with ThreadPoolExecutor(self._heads) as pool:
            return list(pool.map(self._as_it_is, candidates))

    def _as_it_is(self, one: Candidate) -> Candidate:
        """The candidate with the state that S3 shows now. A version is what it was: the consumer finds out if it is
        gone.
        """
        if self._settings.ordering is Ordering.EVERY_VERSION:
            return one
        now = self._bucket.look(one.key)
        # A HEAD does not give the date of a delete marker.
        return one if one.shown and now.identity == one.state.identity else replace(one, state=now)

    def _resubmit(self, due: Sequence[tuple[Candidate, Row | None]], budget: Budget, report: Report) -> None:
        allowed = budget.take(len(due))
        for one, _ in due[allowed:]:
            report.lines_of(shown=one.shown)[Line.OVER_BUDGET] += 1
        if allowed < len(due):
            report.stopped = Stopped.BUDGET
        for few in batched(due[:allowed], _SEND_BATCH):
            # Where SQS takes nothing, one request for each further batch is enough.
            taken = self._send([one for one, _ in few], report, again=report.stopped is not Stopped.REFUSED)
            budget.give_back(len(few) - len(taken))
            self._refused = 0 if taken else self._refused + 1
            if self._refused >= _MOST_REFUSED:
                report.stopped = Stopped.REFUSED
            for number, (one, row) in enumerate(few):
                report.lines_of(shown=one.shown)[Line.RESUBMITTED if number in taken else Line.REFUSED] += 1
                # After the send: a mark without a message would hide the key until it lapses.
                if number in taken:
                    report.resubmitted += 1
                    self._mark(one, row)

    def _mark(self, one: Candidate, row: Row | None) -> None:
        """Keep other runs from resubmitting the same state. If the row has changed, a worker has it, and no mark is
        needed.
        """
        now = self._clock()
        marks = {"audit_resubmitted_state": one.state.identity, "audit_resubmitted_at": now}
        if row is None:
            # No commit will ever give this item an expiry if the key stays untouched.
            marks["expires_at"] = now // 1000 + self._settings.retention_seconds
            condition = NO_ROW
        else:
            values = {":seen_fence": row.fence, ":seen_status": row.status}
            condition = Condition("#fence = :seen_fence AND #status = :seen_status", ("fence", "status"), values)
        with suppress(ConditionFailed):
            self._ledger.mark(one.row_key(self._settings), marks, condition)

    def _send(self, few: Sequence[Candidate], report: Report, *, again: bool) -> set[int]:
        """Send a message for each, and those that SQS refuses a few times more. Returns the numbers of those sent."""
        left = set(range(len(few)))
        for pause in (*(PAUSES if again else ()), None):
            entries: Any = [{"Id": str(number), "MessageBody": self._message(few[number])} for number in sorted(left)]
            failed = self._sqs.send_message_batch(QueueUrl=self._settings.queue_url, Entries=entries).get("Failed", ())
            left = {int(one["Id"]) for one in failed}
            if not left:
                break
            if pause is None:
                report.refused(", ".join(filter(None, (failed[0].get("Code"), failed[0].get("Message")))))
            else:
                time.sleep(pause)
        return set(range(len(few))) - left

    def _message(self, one: Candidate) -> str:
        return own_message(Origin.AUDIT, self._settings.bucket, one.key, one.state)


def _mark(content: Mapping[str, Any]) -> Mark | None:
    return (
        Mark(content["audit_resubmitted_state"], content["audit_resubmitted_at"])
        if "audit_resubmitted_state" in content
        else None
    )
