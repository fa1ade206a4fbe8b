"""Find sets of files whose wake was lost, and wake them again.

The consumer of the parts sends each wake before it acknowledges a part. A wake can only be lost afterwards: with its
queue, or with a function that was disabled for longer than the queue keeps a message.
"""

import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from intake_ledger.aws.clients import ledger_client
from intake_ledger.aws.invocation_context import InvocationContext
from intake_ledger.consumer.services import Services
from intake_ledger.events.parser import own_message
from intake_ledger.kinds.sets import Sets
from intake_ledger.ledger.dynamodb_table import LedgerTable
from intake_ledger.observability.audit_powertools import claim_ages, publish_ages, publish_report, requests_checked
from intake_ledger.observability.short_report import short_report
from intake_ledger.protocol.change import Origin, State
from intake_ledger.protocol.row import Ordering, Row, RowKey, Status, row_key
from intake_ledger.protocol.ulids import RANDOM_BITS, ulid
from intake_ledger.requests.check import RequestCheck
from intake_ledger.set_members.forms import FormKind
from intake_ledger.sets.reader import SetReader
from intake_ledger.sets.settings import SetSettings
from intake_ledger.sets.waiting import OLDEST_WAITING_SET, WaitingSets

MINUTE, DAY = 60_000, 86_400_000
SETTLE_MS = 60 * MINUTE
"""A younger change may still have its message on the way."""
LOOK_BACK_MS = 28 * DAY
"""The greatest age of a manifest, of a marker, or of the newest object of a folder. A queue keeps a message for 14 days
at most. A set whose message has expired without an end is then found for another 14 days."""
MOST_OBJECTS = 1_000_000
"""The largest number of objects that one run lists, 1,000 in a request. The next run goes on."""
RESERVE_SECONDS = 5.0


@dataclass(slots=True)
class SetFindings:
    """The result of an audit of sets."""

    run_id: str
    started_at: int = 0
    """Epoch milliseconds."""
    dry_run: bool = False
    checked: int = 0
    woken: list[str] = field(default_factory=list)
    """The keys of the sets that had no row for their state, or a row that nothing continued. A dry run only names
    them.
    """
    complete: bool = True
    """True if this run listed the whole bucket and checked each set. Otherwise the next run goes on where it ended."""
    oldest_waiting_ms: int | None = None
    """The age of the set that has waited the longest, in milliseconds. None: no set waits."""
    oldest_claim_at: int | None = None
    """The time of the oldest claim among the PROCESSING rows, in epoch milliseconds."""

    def as_json(self) -> dict[str, Any]:
        """The result for the log, for the caller and for the table."""
        number = len(self.woken)
        end = "found by a dry run" if self.dry_run else "woken again"
        summary = f"{number:,} of {self.checked:,} sets that nothing continued were {end}"
        report = short_report(
            self.run_id,
            started_at=self.started_at,
            checked=self.checked,
            findings={"lost": self.woken},
            summary=summary if number else f"{self.checked:,} sets agree with the ledger",
            complete=self.complete,
            sent=0 if self.dry_run else number,
            dry_run=self.dry_run,
        )
        return report | {"oldestWaitingMs": self.oldest_waiting_ms}

    def counts(self) -> dict[str, int]:
        """The metrics. A dry run counts nothing, because it changes nothing."""
        number = len(self.woken)
        return {} if self.dry_run else {"AuditRuns": 1, "AuditFindings": number, "AuditResubmitted": number}


class SetAudit:
    """Compares the sets of a bucket with their rows."""

    def __init__(
        self, settings: SetSettings, services: Services, waiting: WaitingSets, *, reader: SetReader, rows: LedgerTable
    ) -> None:
        """Make an audit.

        Args:
            settings: those of the sets.
            services: the consumer's.
            waiting: the waiting rows.
            reader: reads the states of sets.
            rows: the table of the rows.

        """
        self._settings = settings
        self._form = settings.form
        self._reader = reader
        self._rows = rows
        self._bucket = services.bucket
        self._queues = services.queues
        self._clock = services.clock
        self._waiting = waiting
        # An older set may have lost its row.
        self._look_back_ms = min(LOOK_BACK_MS, settings.consumer.retention_seconds * 1000)

    def run(
        self,
        remaining_seconds: Callable[[], float],
        *,
        dry_run: bool = False,
        publish: Callable[[Mapping[str, int]], object] = lambda _: None,
    ) -> SetFindings:
        """Check the sets, and wake those that nothing continues.

        Args:
            remaining_seconds: until the function's timeout.
            dry_run: true: send no message, and begin at the first key.
            publish: writes metrics in milliseconds. It is called before the listing.

        """
        now = self._clock()
        found = SetFindings(ulid(now, secrets.randbits(RANDOM_BITS)), now, dry_run, complete=False)
        # First, and for all sets: the listing may end early, and has no sets beyond the look-back.
        since = self._waiting.oldest_since(self._settings.consumer.pipeline)
        if since is not None:
            found.oldest_waiting_ms = max(0, now - since)
            if not dry_run:
                publish({OLDEST_WAITING_SET: found.oldest_waiting_ms})
        place = RowKey(f"{self._settings.consumer.pipeline}#sets", "audit")
        start = "" if dry_run else str(self._rows.read(place).get("after", ""))
        after: str = start
        for key, before in self._sets(start, remaining_seconds):
            if key is None or remaining_seconds() < RESERVE_SECONDS:
                after = before
                break
            found.checked += 1
            if self._is_lost(key, found):
                if not dry_run:
                    self._queues.wake(own_message(Origin.PART, self._bucket.name, key), found.run_id)
                found.woken.append(key)
        else:
            after, found.complete = "", start == ""
        if not dry_run and after != start:
            self._rows.write(place, {"after": after})
        return found

    def _sets(self, start: str, remaining_seconds: Callable[[], float]) -> Iterator[tuple[str | None, str]]:
        """The keys of sets within the look-back, each with the last object before it, in the order of the keys.

        The key is None at the end of the time, or of the objects that a run may list.
        """
        seen, last, set_key, newest, before = 0, start, None, 0, start
        for page in self._bucket.pages(self._form.pattern.partition("*")[0], start):
            for name, at, _ in page:
                key = self._form.set_of(name)
                if key != name and self._form.kind is not FormKind.QUIET:
                    key = None
                if key != set_key:
                    if set_key is not None and self._clock() - newest <= self._look_back_ms:
                        yield set_key, before
                    set_key, newest, before = key, 0, last
                newest, last = max(newest, at), name
            seen += len(page)
            if remaining_seconds() < RESERVE_SECONDS or seen >= MOST_OBJECTS:
                # Otherwise a folder with more objects than a run may list would stop each run.
                yield None, last if set_key is None or before == start else before
                return
        if set_key is not None and self._clock() - newest <= self._look_back_ms:
            yield set_key, before

    def _is_lost(self, key: str, found: SetFindings) -> bool:
        """True if no message continues the present state of the set."""
        place = row_key(self._settings.consumer.pipeline, Ordering.LATEST, self._bucket.name, key, None)
        row = self._rows.get(place)
        if row is not None and row.status is Status.PROCESSING:
            found.oldest_claim_at = min(found.oldest_claim_at or row.updated_at, row.updated_at)
        state = self._reader.look(key, row)
        now = self._clock()
        if state.removed or now - (state.created_at or 0) < SETTLE_MS:
            return False
        return not _continues(row, state, now)


def _continues(row: Row | None, state: State, now: int) -> bool:
    """True if the row is finished with this state, or if a message will come back to it."""
    if row is None:
        return False
    if row.status is Status.LATER_FORMAT or row.is_live(now):
        return True
    if row.identity != state.identity:
        return False
    if row.status in (Status.PROCESSED, Status.REJECTED):
        return True
    return now - max(row.retry_at or 0, row.updated_at) < SETTLE_MS


def audit_sets(kind: Sets, services: Services, context: InvocationContext, *, dry_run: bool) -> dict[str, Any]:
    """Audit the sets of this kind, and write the report. Returns it."""
    consumer, client = services.settings, ledger_client()
    audit = SetAudit(
        kind.settings,
        services,
        WaitingSets(client, consumer.table),
        reader=kind.reader,
        rows=LedgerTable(client, consumer.table),
    )

    def remaining_seconds() -> float:
        return context.get_remaining_time_in_millis() / 1000

    if not dry_run:
        check = RequestCheck(
            client,
            services.queues,
            consumer,
            clock=services.clock,
            look=lambda key, _, row: kind.reader.look(key, row),
        )
        due = check.due(services.clock() - SETTLE_MS)
        requests_checked(check.run(due, has_time=lambda: remaining_seconds() > RESERVE_SECONDS))
    found = audit.run(remaining_seconds, dry_run=dry_run, publish=publish_ages)
    report = found.as_json()
    ages = {} if dry_run else claim_ages(found.oldest_claim_at, found.started_at)
    publish_report(client, consumer, report, counts=found.counts(), ages=ages)
    return report
