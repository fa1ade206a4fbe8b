"""One pass of the audit: what S3 holds against what the ledger has committed, and a message for every key that differs.

First the ledger's rows are read, then the bucket is listed. Where the listing shows what no row has committed, the row
is read again, consistently, and judged; at last S3 is asked about the rows that the listing has not shown.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import batched
from typing import TYPE_CHECKING, Any, Protocol

from intake_ledger import rows
from intake_ledger.audit.diff import Finding, Line, Mark, Window, is_marked, judge, too_early
from intake_ledger.audit.listing import Page, Place
from intake_ledger.audit.progress import Progress
from intake_ledger.audit.report import Stopped
from intake_ledger.audit.table import AuditTable, Held
from intake_ledger.bucket import Bucket
from intake_ledger.changes import Origin, own_message
from intake_ledger.rows import Ordering, Row, RowKey
from intake_ledger.settings import AuditSettings
from intake_ledger.states import State
from intake_ledger.table import BATCH_GET_KEYS, NO_ROW, Condition, ConditionFailed, LedgerTable

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

STOP_BEFORE_MS = 30_000
"""How long before Lambda's own timeout a run stops by itself, in milliseconds: what it knows has to be stored."""
_SEND_BATCH = 10  # SQS's limit of SendMessageBatch
PAUSES = (0.2, 0.8)
"""Seconds before messages that SQS has refused are sent again."""
MOST_REFUSALS = 4
"""How many invocations stop at a page of which SQS refuses messages. The next one goes on without these."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One state of one key, as S3 shows it, and where the ledger keeps it."""

    key: str
    state: State
    row_key: RowKey


class Source(Protocol):
    """What shows the states of the bucket, or of a part of it."""

    def pages(self, start: Place | None = None) -> Iterator[Page]:
        """The states from `start` on, or from the beginning; at least one page, and the last one says so."""


class _Stop(Exception):  # noqa: N818 - not an error: the run goes on another time
    def __init__(self, why: Stopped) -> None:
        super().__init__(why)
        self.why = why


class Audit:
    """Compares and resubmits. `clock` gives epoch milliseconds; `listed_long_ago` says that S3 has to be asked before a
    difference from the listing counts.
    """

    def __init__(
        self,
        settings: AuditSettings,
        ledger: LedgerTable,
        table: AuditTable,
        listing: Source,
        bucket: Bucket,
        *,
        sqs: "SQSClient",
        clock: Callable[[], int],
        listed_long_ago: bool = False,
    ) -> None:
        self._settings = settings
        self._ledger = ledger
        self._table = table
        self._listing = listing
        self._bucket = bucket
        self._sqs = sqs
        self._clock = clock
        self._listed_long_ago = listed_long_ago

    def run(
        self,
        progress: Progress,
        window: Window,
        *,
        resubmit: bool,
        remaining_ms: Callable[[], int],
        saved: Callable[[], None] = lambda: None,
    ) -> None:
        """Go on with the run until it is complete, or until time or the budget runs out.

        `saved` is called whenever everything up to `progress` is done. What was done beyond it is done again after a
        death. The marks keep all but the last messages from being sent twice.
        """
        work = _Work(progress, window, resubmit, remaining_ms, self._own_budget(progress))
        try:
            if not progress.known.complete:
                self._read(work, saved)
            if not progress.listed:
                self._list(work, saved)
            if not progress.complete:
                self._scan(work, saved)
        except _Stop as stop:
            progress.report.stopped = stop.why
            return
        progress.report.complete = True

    def look(
        self,
        few: Sequence[Seen],
        progress: Progress,
        lines: Counter[Line],
        window: Window,
        *,
        resubmit: bool,
        remaining_ms: Callable[[], int],
        allow: Callable[[int], int],
    ) -> Stopped | None:
        """Judge some candidates and count them in `lines`; None if the run may go on. `allow` says how many of so many
        messages may be sent.
        """
        try:
            self._compare(few, _Work(progress, window, resubmit, remaining_ms, allow), lines)
        except _Stop as stop:
            return stop.why
        progress.refused = 0
        return None

    def _own_budget(self, progress: Progress) -> Callable[[int], int]:
        # A run goes on after a deployment that has lowered it, too.
        return lambda wanted: max(min(wanted, self._settings.budget - progress.report.resubmitted), 0)

    def _read(self, work: "_Work", saved: Callable[[], None]) -> None:
        known, settings = work.progress.known, self._settings
        for page in self._table.held(settings.pipeline, settings.ordering, known.after):
            work.go_on()
            for row in page.rows:
                known.add(row.row_key, row.committed)
            work.progress.report.later_format += page.later_format
            known.after = page.after
            known.complete = page.after is None
            saved()

    def _list(self, work: "_Work", saved: Callable[[], None]) -> None:
        progress, report = work.progress, work.progress.report
        report.begin_pass(self._clock())
        for page in self._listing.pages(progress.listing):
            work.go_on()
            lines = Counter[Line]()
            try:
                self._go_through(page, work, lines)
            finally:
                # Of a page at which the run stops, the states that were judged.
                report.add_listed(lines, self._clock())
            progress.listing = page.after
            progress.listed = page.after is None
            progress.refused = 0
            saved()

    def _go_through(self, page: Page, work: "_Work", lines: Counter[Line]) -> None:
        """Judge a page of the listing, and count each state in its line."""
        progress = work.progress
        wanted = [self._seen(key, state) for key, state in page.states if self._settings.wants(key)]
        lines[Line.FILTERS] = len(page.states) - len(wanted)
        open_ = []
        for one in wanted:
            has_row = progress.known.has(one.row_key)
            if has_row:
                # Nobody asks about the others, and the filter is for the rows that there are.
                progress.shown.add(one.row_key)
            line = self._line_without_row(one, work, has_row=has_row)
            if line is None:
                open_.append(one)
            elif line is not Line.AGREES:
                lines[line] += 1
        # Nearly all of them agree: they are counted by the page.
        lines[Line.AGREES] = len(page.states) - len(open_) - lines.total()
        for few in batched(open_, BATCH_GET_KEYS):
            self._compare(few, work, lines)

    def _scan(self, work: "_Work", saved: Callable[[], None]) -> None:
        """The rows that no listing has shown: in LATEST, keys that are gone; in EVERY_VERSION, versions that are gone
        before their row was settled.
        """
        progress, settings = work.progress, self._settings
        for page in self._table.held(settings.pipeline, settings.ordering, progress.scanned):
            work.go_on()
            unshown = [one for one in page.rows if one.may_be_gone and self._unshown(one.row_key, progress)]
            for few in batched(unshown, BATCH_GET_KEYS):
                gone = [self._gone(row, work) for row in few]
                self._compare(gone, work, progress.report.unlisted)
            progress.scanned = page.after
            progress.complete = page.after is None
            progress.refused = 0
            saved()

    def _unshown(self, row_key: RowKey, progress: Progress) -> bool:
        name, _, key = row_key.pk.partition("/")
        ours = name == self._settings.bucket and self._settings.wants(key)
        # A row that was not there when the rows were read belongs to what happens now; nobody has kept its key.
        return ours and not progress.shown.has(row_key) and progress.known.has(row_key)

    def _gone(self, row: Held, work: "_Work") -> Seen:
        """What became of a row that no listing shows. A version's row says which one it was; for a key, S3 is asked."""
        work.go_on()
        key = row.row_key.pk.partition("/")[2]
        return Seen(key, self._bucket.look(key) if row.state is None else row.state, row.row_key)

    def _line_without_row(self, one: Seen, work: "_Work", *, has_row: bool) -> Line | None:
        """The line that counts this state, as far as can be told without its row. None: the row decides."""
        known, window = work.progress.known, work.window
        if not has_row:
            verdict = self._judge(None, one.state, work)
            return verdict if isinstance(verdict, Line) else None
        if known.agrees(one.row_key, one.state.identity):
            return Line.AGREES
        return Line.SETTLING if too_early(one.state, window) else None

    def _seen(self, key: str, state: State) -> Seen:
        settings = self._settings
        row_key = rows.row_key(settings.pipeline, settings.ordering, settings.bucket, key, state.identity)
        return Seen(key, state, row_key)

    def _compare(self, few: Sequence[Seen], work: "_Work", lines: Counter[Line]) -> None:
        work.go_on()
        report = work.progress.report
        # The key of a listing may come twice when it is overwritten meanwhile; DynamoDB refuses a key twice.
        found = self._ledger.get_items(list({one.row_key: None for one in few}))
        due = []
        for one in few:
            content = found.get(one.row_key, {})
            row = rows.from_attributes(content)
            verdict = self._judge(row, one.state, work)
            if isinstance(verdict, Finding) and self._listed_long_ago:
                one = self._look_again(one)  # noqa: PLW2901 - it is this one, as it is now
                verdict = self._judge(row, one.state, work)
            if isinstance(verdict, Line):
                lines[verdict] += 1
                continue
            report.found(one.key, verdict, one.state)
            if is_marked(_mark(content), one.state, work.window):
                lines[Line.MARKED] += 1
            elif not work.resubmit:
                lines[Line.DRY_RUN if report.dry_run else Line.HELD_BACK] += 1
            else:
                due.append((one, row))
        if due:
            self._resubmit(due, work, lines)

    def _resubmit(self, due: Sequence[tuple[Seen, Row | None]], work: "_Work", lines: Counter[Line]) -> None:
        progress = work.progress
        allowed = work.allow(len(due))
        refused = 0
        for few in batched(due[:allowed], _SEND_BATCH):
            taken, why = self._send([one for one, _ in few], again=progress.refused < MOST_REFUSALS)
            progress.report.resubmitted += len(taken)
            lines[Line.RESUBMITTED] += len(taken)
            lines[Line.REFUSED] += len(few) - len(taken)
            refused += len(few) - len(taken)
            if why:
                progress.report.refused(why)
            # After the send: a mark without a message would hide the key until it lapses.
            for number in taken:
                self._mark(*few[number])
        lines[Line.OVER_BUDGET] += len(due) - allowed
        if refused and progress.refused < MOST_REFUSALS:
            progress.refused += 1
            raise _Stop(Stopped.REFUSED)
        if len(due) > allowed:
            raise _Stop(Stopped.BUDGET)

    def _judge(self, row: Row | None, state: State, work: "_Work") -> Finding | Line:
        return judge(row, state, work.window, now=self._clock(), deletes=self._settings.deletes)

    def _look_again(self, one: Seen) -> Seen:
        """What S3 shows now for a key; a version is what it was, and the consumer finds out if it is gone."""
        if self._settings.ordering is Ordering.EVERY_VERSION:
            return one
        now = self._bucket.look(one.key)
        # A HEAD does not give the date of a delete marker.
        return one if now.identity == one.state.identity else replace(one, state=now)

    def _mark(self, one: Seen, row: Row | None) -> None:
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
            self._ledger.mark(one.row_key, marks, condition)

    def _send(self, few: Sequence[Seen], *, again: bool) -> tuple[list[int], str]:
        """Send a message for each. Returns the numbers of those that SQS took, and its reason if it refused others.

        `again` sends messages that were refused a few times more.
        """
        left, why = list(range(len(few))), ""
        for pause in (*(PAUSES if again else ()), None):
            entries: Any = [{"Id": str(number), "MessageBody": self._message(few[number])} for number in left]
            failed = self._sqs.send_message_batch(QueueUrl=self._settings.queue_url, Entries=entries).get("Failed", ())
            left = sorted(int(one["Id"]) for one in failed)
            if not left:
                return list(range(len(few))), ""
            why = ", ".join(filter(None, (failed[0].get("Code"), failed[0].get("Message"))))
            if pause is not None:
                time.sleep(pause)
        return [number for number in range(len(few)) if number not in left], why

    def _message(self, one: Seen) -> str:
        return own_message(Origin.AUDIT, self._settings.bucket, one.key, one.state)


@dataclass(frozen=True, slots=True)
class _Work:
    """One invocation's share of a run."""

    progress: Progress
    window: Window
    resubmit: bool
    remaining_ms: Callable[[], int]
    allow: Callable[[int], int]

    def go_on(self) -> None:
        if self.remaining_ms() < STOP_BEFORE_MS:
            raise _Stop(Stopped.TIME)


def _mark(content: Mapping[str, Any]) -> Mark | None:
    return (
        Mark(content["audit_resubmitted_state"], content["audit_resubmitted_at"])
        if "audit_resubmitted_state" in content
        else None
    )
