"""Judges candidates, and resubmits those that differ.

The query of a run only nominates candidates. `Look` asks S3 for the key's state, then reads the row consistently, and
applies the rule of `intake_ledger.audit.diff`.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import KW_ONLY, dataclass, field, replace
from itertools import batched
from typing import TYPE_CHECKING, Any

from intake_ledger.audit.budget import Budget
from intake_ledger.audit.diff import Line, Mark, Window, is_marked, judge, judge_tags
from intake_ledger.audit.relations import Candidate
from intake_ledger.audit.report import Report, Stopped
from intake_ledger.aws.bucket import Bucket
from intake_ledger.events.parser import own_message
from intake_ledger.ledger.conditions import NO_ROW, Condition, same_claim
from intake_ledger.ledger.dynamodb_table import BATCH_STATEMENTS, LedgerTable
from intake_ledger.protocol.change import Origin
from intake_ledger.protocol.row import Ordering, Row, RowKey, row_from_attributes
from intake_ledger.protocol.settings_audit import AuditSettings

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

    from intake_ledger.audit.executing import IsExecuting

STOP_BEFORE_MS = 30_000
"""Milliseconds between the end of a run's work and Lambda's timeout. They are for its report."""
BATCH = 25
"""Candidates between two checks of the remaining time."""
BACKFILL_ID = "0" * 25 + "1"
"""The reprocess request of a backfill, so that each object is processed once. It is a ULID of 1970, which sorts before
all requests of people."""
_SEND_BATCH = 10  # SQS's limit of SendMessageBatch
PAUSES = (0.2, 0.8)
"""Seconds before messages that SQS has refused are sent again."""
_MOST_REFUSED = 3
"""The run stops after this many batches in a row of which SQS took nothing. A single message does not stop it."""


@dataclass(slots=True)
class Look:
    """Judges candidates and sends their messages.

    Without a `budget` it sends nothing. `heads` is the number of parallel requests to S3. `clock` gives epoch
    milliseconds. A `backfill` requests objects of any age that have no row.
    """

    settings: AuditSettings
    ledger: LedgerTable
    bucket: Bucket
    _: KW_ONLY
    sqs: "SQSClient"
    clock: Callable[[], int]
    budget: Budget | None
    heads: int
    backfill: bool = False
    is_executing: "IsExecuting | None" = None
    """Asks whether an execution of a state machine processes a row. None: no state machine is the processor."""
    _refused_batches: int = field(default=0, init=False)

    def at(self, candidates: Sequence[Candidate], window: Window, report: Report) -> None:
        """Judge at most `BATCH` candidates, and count each in its line.

        `report.stopped` is set if the budget is used up, or if SQS takes no messages.
        """
        current = self._current(candidates)
        # After the request to S3: a row that was read before may be older than the state.
        items = self.ledger.get_items(list(dict.fromkeys(candidate.row_key(self.settings) for candidate in current)))
        due = []
        for candidate in current:
            item = items.get(candidate.row_key(self.settings), {})
            row, lines = row_from_attributes(item), report.lines_of(shown=candidate.shown)
            verdict = judge_tags(row, window) if self.settings.after_commit else None
            verdict = verdict or judge(
                row,
                candidate.state,
                window,
                now=self.clock(),
                deletes=self.settings.deletes,
                skipped=self.settings.skips(candidate.key, candidate.state),
            )
            if isinstance(verdict, Line):
                lines[verdict] += 1
                continue
            if row is not None and self._runs(candidate, row):
                lines[Line.LEASED] += 1
                continue
            report.found(candidate.key, verdict, candidate.state)
            if is_marked(_mark(item), candidate.state, window):
                lines[Line.MARKED] += 1
            elif self.budget is None:
                lines[Line.DRY_RUN if report.dry_run else Line.HELD_BACK] += 1
            else:
                due.append(_Due(candidate, row, marked=bool(item)))
        if due and self.budget is not None:
            self._resubmit(due, self.budget, report)

    def _runs(self, candidate: Candidate, row: Row) -> bool:
        """True if an execution processes the row. Its lease may have ended, and its end still wakes the consumer."""
        return (
            self.is_executing is not None
            and row.unfinished
            and self.is_executing(candidate.row_key(self.settings), row)
        )

    def _current(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        if self.settings.ordering is Ordering.EVERY_VERSION:
            # A version does not change. The consumer finds out if it is gone.
            return list(candidates)
        if self.heads == 1:
            return [self._ask(candidate) for candidate in candidates]
        with ThreadPoolExecutor(self.heads) as pool:
            return list(pool.map(self._ask, candidates))

    def _ask(self, candidate: Candidate) -> Candidate:
        """The candidate with the state that S3 shows now."""
        state = self.bucket.look(candidate.key)
        # A HEAD does not return the date of a delete marker.
        unchanged = candidate.shown and state.identity == candidate.state.identity
        return candidate if unchanged else replace(candidate, state=state)

    def _resubmit(self, due: "Sequence[_Due]", budget: Budget, report: Report) -> None:
        allowed, sent = budget.take(len(due)), list[_Due]()
        for late in due[allowed:]:
            report.lines_of(shown=late.candidate.shown)[Line.OVER_BUDGET] += 1
        if allowed < len(due):
            # The next run of a backfill does not wait for the interval.
            report.stopped = Stopped.MORE if self.backfill else Stopped.BUDGET
        for batch in batched(due[:allowed], _SEND_BATCH):
            # While SQS takes nothing, each further batch is sent once only.
            taken = self._send(batch, report, again=report.stopped is not Stopped.REFUSED)
            budget.give_back(len(batch) - len(taken))
            self._refused_batches = 0 if taken else self._refused_batches + 1
            if self._refused_batches >= _MOST_REFUSED:
                report.stopped = Stopped.REFUSED
            for number, message in enumerate(batch):
                line = Line.RESUBMITTED if number in taken else Line.REFUSED
                report.lines_of(shown=message.candidate.shown)[line] += 1
            sent += [batch[number] for number in sorted(taken)]
        report.resubmitted += len(sent)
        # After the send: a mark without a message would hide the key until the mark lapses.
        for batch in batched(sent, BATCH_STATEMENTS):
            self.ledger.mark_many(dict(map(self._mark, batch)))

    def _mark(self, due: "_Due") -> tuple[RowKey, tuple[Mapping[str, Any], Condition | None]]:
        """The mark that keeps other runs from resubmitting the state, and its condition.

        If the row has changed, a worker has it, and no mark is needed.
        """
        now, row = self.clock(), due.row
        marks = {"audit_resubmitted_state": due.candidate.state.identity, "audit_resubmitted_at": now}
        condition: Condition | None = None
        if row is not None:
            condition = same_claim(row)
        else:
            # If the key is never claimed, no commit sets an expiry.
            marks["expires_at"] = now // 1000 + self.settings.retention_seconds
            condition = NO_ROW if due.marked else None
        return due.candidate.row_key(self.settings), (marks, condition)

    def _send(self, batch: "Sequence[_Due]", report: Report, *, again: bool) -> set[int]:
        """Send a message for each, with retries if `again`. Returns the numbers of the messages that SQS took."""
        left = set(range(len(batch)))
        for pause in (*(PAUSES if again else ()), None):
            # The group of a run: fair queues serve fresh events before a long recovery.
            entries: Any = [
                {"Id": str(number), "MessageBody": self._message(batch[number]), "MessageGroupId": report.run_id}
                for number in sorted(left)
            ]
            failed = self.sqs.send_message_batch(QueueUrl=self.settings.queue_url, Entries=entries).get("Failed", ())
            left = {int(failure["Id"]) for failure in failed}
            if not left:
                break
            if pause is None:
                report.refused(", ".join(filter(None, (failed[0].get("Code"), failed[0].get("Message")))))
            else:
                time.sleep(pause)
        return set(range(len(batch))) - left

    def _message(self, due: "_Due") -> str:
        key, state, settings = due.candidate.key, due.candidate.state, self.settings
        # An object that is older than the retention counts as settled, unless a request names it. A young object's
        # event may still be in transit, and a request would process it twice. Half of the retention is far from both.
        old = (state.created_at or 0) < self.clock() - settings.retention_seconds * 1000 // 2
        if self.backfill and due.row is None and old:
            return own_message(Origin.REPROCESS, settings.bucket, key, state, reprocess_id=BACKFILL_ID)
        return own_message(Origin.AUDIT, settings.bucket, key, state)


@dataclass(frozen=True, slots=True)
class _Due:
    """A candidate that differs, with its row. `marked` is true if there is an item, at least with an earlier mark."""

    candidate: Candidate
    row: Row | None
    marked: bool


def _mark(item: Mapping[str, Any]) -> Mark | None:
    if "audit_resubmitted_state" not in item:
        return None
    return Mark(item["audit_resubmitted_state"], item["audit_resubmitted_at"])
