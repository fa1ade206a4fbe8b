"""Waits until everything under a prefix is committed. Schedulers read the exit code.

Each look lists the prefix and reads the rows of the states that were not committed before. So the number of requests
grows with the keys under the prefix, and never with the table.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import batched
from typing import Protocol

from botocore.exceptions import BotoCoreError, ClientError

from intake_ledger.ledger.dynamodb_table import BATCH_GET_KEYS, LedgerTable
from intake_ledger.ledger.row_history import record_key, with_former
from intake_ledger.protocol.change import Skipped, State
from intake_ledger.protocol.row import Ordering, Row, Status, row_from_attributes
from intake_ledger_cli.act import recording
from intake_ledger_cli.act.selection import sets_under
from intake_ledger_cli.aws import s3_listing
from intake_ledger_cli.aws.clients import Aws
from intake_ledger_cli.aws.deployed import DeployedPipeline
from intake_ledger_cli.errors import UsageError, is_passing
from intake_ledger_cli.read import sets
from intake_ledger_cli.show.formatting import agreement, epoch_ms, parse_age

COMMITTED, REJECTED, MISSING = "committed", "rejected", "missing"
"""The outcomes of a wait."""
_TIME_OF_DAY = re.compile(r"(\d{1,2}):(\d{2})")


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A state under the prefix that is not committed."""

    key: str
    status: str
    """The status of its row, or `no row`."""
    why: str
    version_id: str | None = None
    reason_code: str | None = None


@dataclass(slots=True, kw_only=True)
class WaitResult:
    """The document of `wait`. Times are in epoch milliseconds."""

    pipeline: str
    bucket: str
    prefix: str
    outcome: str = MISSING
    """`committed`, `rejected`, or `missing` at the time limit."""
    at: int
    until: int | None
    committed: int = 0
    """Keys whose states under the prefix are all committed."""
    expected: int | None
    marker: str | None
    marker_found: bool = False
    rejected: list[Unfinished] = field(default_factory=list)
    missing: list[Unfinished] = field(default_factory=list)
    error: str = ""
    """Why the last look failed. Empty if it did not."""


class Result(Protocol):
    """The result of a look."""

    outcome: str
    """`missing` while the wait goes on."""
    error: str


class Repeated[Found: Result](ABC):
    """A look that is repeated."""

    until: int | None
    """The time limit in epoch milliseconds."""
    clock: Callable[[], int]

    @abstractmethod
    def nothing_known(self) -> Found:
        """The result before a look."""

    @abstractmethod
    def look(self) -> Found:
        """Look once."""

    def run(self, sleep: Callable[[float], None], interval: float) -> Found:
        """Look until the wait has an outcome.

        Throttling, and errors of AWS that pass, are no outcome: the next look repeats the requests.

        Raises:
            CliError: There is nothing to wait for.
            ClientError: AWS refuses a request for another reason.

        """
        while True:
            try:
                found = self.look()
            except (BotoCoreError, ClientError) as error:
                if not is_passing(error):
                    raise
                found = self.nothing_known()
                found.error = str(error)
            left = None if self.until is None else (self.until - self.clock()) / 1000
            if found.outcome != MISSING or (left is not None and left <= 0):
                return found
            sleep(interval if left is None else min(interval, left))


@dataclass(slots=True)
class Wait(Repeated[WaitResult]):
    """A wait for the keys under a prefix."""

    aws: Aws
    deployed: DeployedPipeline
    prefix: str
    expected: int | None
    marker: str | None
    until: int | None
    clock: Callable[[], int]
    _done: set[tuple[str, str]] = field(default_factory=set)
    """The states that were seen committed, by key and identity."""
    _judging: DeployedPipeline | None = None
    """The pipeline with its former patterns, as the first look read them."""

    def nothing_known(self) -> WaitResult:
        """See `Repeated`."""
        return WaitResult(
            pipeline=self.deployed.name,
            bucket=self.deployed.bucket,
            prefix=self.prefix,
            at=self.clock(),
            until=self.until,
            expected=self.expected,
            marker=self.marker,
        )

    def look(self) -> WaitResult:
        """Compare the states under the prefix with their rows once."""
        found, keys = self.nothing_known(), set[str]()
        asked = recording.outstanding(self.aws, self.deployed, self.prefix)
        states = self._sets() if self.deployed.has_sets else self._objects()
        for key, state, row in states:
            mark = key, state.identity
            if request_id := asked.get((key, state.identity), asked.get((key, None))):
                self._done.discard(mark)
                keys.add(key)
                why = f"its request {request_id} is not served"
                found.missing.append(replace(self._unfinished(key, state, row), why=why, reason_code=None))
                continue
            if row is not None and row.has_committed(state.identity):
                self._done.add(mark)
            is_rejected = row is not None and row.status is Status.REJECTED and row.identity == state.identity
            if row is not None and is_rejected and row.dismissed:
                continue  # a person has decided that it is not needed
            if not state.removed:
                keys.add(key)
            if mark not in self._done:
                (found.rejected if is_rejected else found.missing).append(self._unfinished(key, state, row))
        # The marker is looked for last: a client writes it after the other keys.
        found.marker_found = self._marker_found(keys)
        found.committed = len(keys - {one.key for one in (*found.rejected, *found.missing)})
        is_complete = keys and not found.missing and (self.marker is None or found.marker_found)
        if found.rejected:
            found.outcome = REJECTED
        elif is_complete and found.committed >= (self.expected or 0):
            found.outcome = COMMITTED
        return found

    def _marker_found(self, keys: set[str]) -> bool:
        if self.marker is None or self.marker in keys:
            return self.marker is not None
        versions = s3_listing.list_key_versions(self.aws.s3, self.deployed, self.marker)
        return any(one.current and not one.state.removed for one in versions)

    def _sets(self) -> Iterator[tuple[str, State, Row | None]]:
        for target in sets_under(self.aws.s3, self.deployed, self.prefix):
            row, contents = sets.read_set(self.aws, self.deployed, target.key)
            yield target.key, contents.state, row

    def _objects(self) -> Iterator[tuple[str, State, Row | None]]:
        """Yield each state that the pipeline processes, with its row if it was not seen committed before."""
        table = LedgerTable(self.aws.dynamodb, self.deployed.table)
        if self._judging is None:
            self._judging = with_former(self.deployed, table.read(record_key(self.deployed)), self.clock())
        for group in batched(self._processed(self._judging), BATCH_GET_KEYS):
            unknown = [
                self.deployed.row_key(key, state.identity)
                for key, state, _ in group
                if (key, state.identity) not in self._done
            ]
            items = table.get_items(unknown) if unknown else {}
            for key, state, skipped in group:
                row = row_from_attributes(items.get(self.deployed.row_key(key, state.identity), {}))
                if row is not None or not skipped or (key, state.identity) in self._done:
                    yield key, state, row

    def _processed(self, deployed: DeployedPipeline) -> Iterator[tuple[str, State, Skipped | None]]:
        """The states under the prefix that the pipeline processes: of each key the current one, or each version.

        Those that `exclude` leaves out are among them, since they may have rows.
        """
        for key, version in s3_listing.list_versions(self.aws.s3, deployed, self.prefix):
            state = version.state
            is_judged = version.current or deployed.ordering is Ordering.EVERY_VERSION
            if not is_judged or (state.removed and not deployed.deletes):
                continue
            skipped = deployed.skips(key, state)
            if deployed.wants(key) and skipped is not Skipped.DIRECTORY_MARKERS and not deployed.is_control(key):
                yield key, state, skipped

    def _unfinished(self, key: str, state: State, row: Row | None) -> Unfinished:
        _, why = agreement(row, state, self.deployed, self.clock(), None)
        if row is None:
            return Unfinished(key, "no row", why, state.version_id)
        return Unfinished(key, row.status.value, row.reason or why, state.version_id, row.reason_code)


def parse_until(text: str, now: int) -> int:
    """Parse a time limit: a time of day in UTC such as `06:00`, which is the next one, a time, or an age such as `90m`.

    Returns:
        Epoch milliseconds.

    Raises:
        UsageError: It is none of them, or it has passed.

    """
    begun = datetime.fromtimestamp(now / 1000, UTC)
    if (match := _TIME_OF_DAY.fullmatch(text)) and int(match[1]) < 24 and int(match[2]) < 60:
        moment = begun.replace(hour=int(match[1]), minute=int(match[2]), second=0, microsecond=0)
        return epoch_ms(moment if moment > begun else moment + timedelta(days=1))
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return now + parse_age("--until", text)
    until = epoch_ms(moment if moment.tzinfo else moment.replace(tzinfo=UTC))
    if until <= now:
        raise UsageError(f"--until {text} has passed: use a later time, or a time of day such as 06:00")
    return until
