"""Looks at candidates in S3 and in the ledger, and resubmits those that differ.

The query of a run only nominates. This is the judge: it asks S3 for the key's state, reads the row after that,
consistently, and applies the rule of `intake_ledger.audit.diff`.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import batched
from typing import TYPE_CHECKING, Any

from intake_ledger.audit.budget import Budget
from intake_ledger.audit.diff import Line, Mark, Window, is_marked, judge
from intake_ledger.audit.relations import Candidate
from intake_ledger.audit.report import Report, Stopped
from intake_ledger.aws import Bucket
from intake_ledger.events import own_message
from intake_ledger.ledger import BATCH_STATEMENTS, NO_ROW, Condition, LedgerTable
from intake_ledger.protocol import AuditSettings, Ordering, Origin, Row, RowKey, row_from_attributes

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

STOP_BEFORE_MS = 30_000
"""How long before Lambda's own timeout a run stops, in milliseconds: its report has to be stored."""
BATCH = 25
"""Candidates between two looks at the time that is left."""
BACKFILL_ID = "0" * 25 + "1"
"""The reprocess request of a backfill, so that each object is served once: a ULID of the year 1970, which sorts before
those of people's requests."""
_SEND_BATCH = 10  # SQS's limit of SendMessageBatch
PAUSES = (0.2, 0.8)
"""Seconds before messages that SQS has refused are sent again."""
_MOST_REFUSED = 3
"""Batches in a row of which SQS takes nothing: then the run stops. One message that SQS never takes stops no run."""


class Look:
    """Judges candidates. `budget` bounds its messages; without one it sends none. `heads` is the number of requests to
    S3 at the same time, `clock` gives epoch milliseconds. A `backfill` asks for objects that the ledger has no row of,
    however old they are.
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
        backfill: bool = False,
    ) -> None:
        self._settings = settings
        self._ledger = ledger
        self._bucket = bucket
        self._sqs = sqs
        self._clock = clock
        self._budget = budget
        self._heads = heads
        self._backfill = backfill
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
            row, lines = row_from_attributes(content), report.lines_of(shown=one.shown)
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
                due.append(_Due(one, row, marked=bool(content)))
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

    def _resubmit(self, due: "Sequence[_Due]", budget: Budget, report: Report) -> None:
        allowed, sent = budget.take(len(due)), list[_Due]()
        for one in due[allowed:]:
            report.lines_of(shown=one.candidate.shown)[Line.OVER_BUDGET] += 1
        if allowed < len(due):
            # The rest of a backfill does not wait for the interval.
            report.stopped = Stopped.MORE if self._backfill else Stopped.BUDGET
        for few in batched(due[:allowed], _SEND_BATCH):
            # Where SQS takes nothing, one request for each further batch is enough.
            taken = self._send(few, report, again=report.stopped is not Stopped.REFUSED)
            budget.give_back(len(few) - len(taken))
            self._refused = 0 if taken else self._refused + 1
            if self._refused >= _MOST_REFUSED:
                report.stopped = Stopped.REFUSED
            for number, one in enumerate(few):
                line = Line.RESUBMITTED if number in taken else Line.REFUSED
                report.lines_of(shown=one.candidate.shown)[line] += 1
            sent += [few[number] for number in sorted(taken)]
        report.resubmitted += len(sent)
        # After the send: a mark without a message would hide the key until it lapses.
        for few in batched(sent, BATCH_STATEMENTS):
            self._ledger.mark_many(dict(map(self._mark, few)))

    def _mark(self, one: "_Due") -> tuple[RowKey, tuple[Mapping[str, Any], Condition | None]]:
        """The mark that keeps other runs from resubmitting the same state, and its condition. If the row has changed, a
        worker has it, and no mark is needed.
        """
        now, row = self._clock(), one.row
        marks = {"audit_resubmitted_state": one.candidate.state.identity, "audit_resubmitted_at": now}
        condition: Condition | None = None
        if row is not None:
            values = {":seen_fence": row.fence, ":seen_status": row.status}
            condition = Condition("#fence = :seen_fence AND #status = :seen_status", ("fence", "status"), values)
        else:
            # No commit will ever give this item an expiry if the key stays untouched.
            marks["expires_at"] = now // 1000 + self._settings.retention_seconds
            condition = NO_ROW if one.marked else None
        return one.candidate.row_key(self._settings), (marks, condition)

    def _send(self, few: "Sequence[_Due]", report: Report, *, again: bool) -> set[int]:
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

    def _message(self, due: "_Due") -> str:
        one, settings = due.candidate, self._settings
        # The consumer takes an object that is older than the retention for settled and forgotten, unless a person asks
        # for it. A young one may have an event on its way, and is not to be processed for both. Half of the retention
        # is far from either.
        old = (one.state.created_at or 0) < self._clock() - settings.retention_seconds * 1000 // 2
        if self._backfill and due.row is None and old:
            return own_message(Origin.REPROCESS, settings.bucket, one.key, one.state, reprocess_id=BACKFILL_ID)
        return own_message(Origin.AUDIT, settings.bucket, one.key, one.state)


@dataclass(frozen=True, slots=True)
class _Due:
    """A candidate that differs, with its row. `marked`: there is an item, if only an earlier mark."""

    candidate: Candidate
    row: Row | None
    marked: bool


def _mark(content: Mapping[str, Any]) -> Mark | None:
    return (
        Mark(content["audit_resubmitted_state"], content["audit_resubmitted_at"])
        if "audit_resubmitted_state" in content
        else None
    )
