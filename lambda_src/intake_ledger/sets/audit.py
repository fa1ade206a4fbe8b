"""Find sets of files whose wake was lost, and wake them again.

The consumer of the parts sends each wake before it acknowledges a part. A wake can only be lost afterwards: with its
queue, or with a function that was disabled for longer than the queue keeps a message.
"""

import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from intake_ledger.consumer import Services
from intake_ledger.events import own_message
from intake_ledger.observability.short_report import short_report
from intake_ledger.protocol import RANDOM_BITS, Ordering, Origin, Row, State, Status, row_key, ulid
from intake_ledger.set_members import FormKind
from intake_ledger.sets.set_ledger import as_set_ledger
from intake_ledger.sets.settings import SetSettings
from intake_ledger.sets.waiting import OLDEST_WAITING_SET, WaitingSets

MINUTE, DAY = 60_000, 86_400_000
SETTLE_MS = 60 * MINUTE
"""A younger change may still have its message on the way."""
LOOK_BACK_MS = 14 * DAY
"""The greatest age of a manifest, of a marker, or of the newest object of a folder."""
MOST_OBJECTS = 1_000_000
"""The largest number of objects that an audit lists, 1,000 in a request."""
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
    """False if the time ended before each set was checked. The newest sets come first."""
    oldest_waiting_ms: int | None = None
    """The age of the set that has waited the longest, in milliseconds. None: no set waits."""

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

    def ages(self) -> dict[str, int]:
        """The metrics in milliseconds. A metric without a value costs nothing."""
        return {} if self.dry_run or self.oldest_waiting_ms is None else {OLDEST_WAITING_SET: self.oldest_waiting_ms}


class SetAudit:
    """Compares the sets of a bucket with their rows."""

    def __init__(self, settings: SetSettings, services: Services, waiting: WaitingSets) -> None:
        """Make an audit.

        Args:
            settings: those of the sets.
            services: the consumer's, with a `SetLedger`.
            waiting: the waiting rows.

        Raises:
            TypeError: The ledger is not one of sets.

        """
        self._settings = settings
        self._form = settings.form
        self._ledger = as_set_ledger(services.ledger)
        self._bucket = services.bucket
        self._queues = services.queues
        self._clock = services.clock
        self._waiting = waiting

    def run(self, remaining_seconds: Callable[[], float], *, dry_run: bool = False) -> SetFindings:
        """Check the sets, and wake those that nothing continues.

        Args:
            remaining_seconds: until the function's timeout.
            dry_run: true: send no message.

        """
        now = self._clock()
        found = SetFindings(ulid(now, secrets.randbits(RANDOM_BITS)), now, dry_run)
        # First, and for all sets: the listing may end early, and has no sets beyond the look-back.
        since = self._waiting.oldest_since(self._settings.consumer.pipeline)
        found.oldest_waiting_ms = None if since is None else max(0, now - since)
        for key in self._keys():
            if remaining_seconds() < RESERVE_SECONDS:
                found.complete = False
                break
            found.checked += 1
            if self._is_lost(key):
                if not dry_run:
                    self._queues.wake(own_message(Origin.PART, self._bucket.name, key))
                found.woken.append(key)
        return found

    def _keys(self) -> Iterator[str]:
        """The keys of sets within the look-back, the newest first."""
        prefix = self._form.pattern.partition("*")[0]
        newest: dict[str, int] = {}
        for name, at in self._bucket.objects(prefix, most=MOST_OBJECTS):
            key = self._form.set_of(name)
            if key is not None and (self._form.kind is FormKind.QUIET or key == name):
                newest[key] = max(newest.get(key, 0), at)
        now = self._clock()
        for key, at in sorted(newest.items(), key=lambda item: -item[1]):
            if now - at <= LOOK_BACK_MS:
                yield key

    def _is_lost(self, key: str) -> bool:
        """True if no message continues the present state of the set."""
        place = row_key(self._settings.consumer.pipeline, Ordering.LATEST, self._bucket.name, key, None)
        row = self._ledger.rows.get(place)
        state = self._ledger.reader.look(key, row)
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
