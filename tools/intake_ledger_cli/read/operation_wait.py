"""Waits until the requests of a `retry` have ended: by the ID of the operation, with its records."""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from intake_ledger.ledger.dynamodb_table import LedgerTable
from intake_ledger.protocol.row import Row, Status
from intake_ledger.requests.record import Entry, RequestBatch, queried_batches
from intake_ledger.requests.standing import Standing
from intake_ledger.requests.stop import Stop, read_stop
from intake_ledger_cli.act import operations, recording
from intake_ledger_cli.app import now_ms
from intake_ledger_cli.aws.clients import Aws
from intake_ledger_cli.aws.deployed import DeployedPipeline
from intake_ledger_cli.errors import CliError
from intake_ledger_cli.read.waiting import COMMITTED, MISSING, REJECTED, Repeated, Unfinished

LOOK_SECONDS = 15
STOPPED, LOST = "stopped", "lost"
"""More outcomes of a wait: a person has withdrawn a request, or its copy is lost."""


@dataclass(slots=True)
class OperationWaitResult:
    """The document of `wait --id`. Times are in epoch milliseconds."""

    pipeline: str
    operation: str
    at: int
    until: int | None
    outcome: str = MISSING
    """`committed`, `rejected`, `stopped`, `lost`, or `missing` at the time limit."""
    committed: int = 0
    """Requests whose attempt was committed."""
    void: int = 0
    """Requests that need no attempt: the object was replaced, processed or removed since, or dismissed."""
    served_before: int = 0
    """Requests that an audit had found ended before the first look. Their keys are not known any more."""
    withdrawn: int = 0
    """Requests of a stopped operation that no attempt has begun."""
    copies_lost: int = 0
    rejected: list[Unfinished] = field(default_factory=list)
    missing: list[Unfinished] = field(default_factory=list)
    error: str = ""
    """Why the last look failed, or what is not known. Empty if all is known."""


@dataclass(slots=True)
class OperationWait(Repeated[OperationWaitResult]):
    """A wait for the requests of an operation."""

    aws: Aws
    deployed: DeployedPipeline
    request_id: str
    until: int | None
    clock: Callable[[], int]
    _open: dict[tuple[str, Entry], RequestBatch] = field(default_factory=dict)
    """The requests that have not ended, by the name of their record. The audit removes ended ones from the records."""
    _ended: dict[tuple[str, Entry], Standing] = field(default_factory=dict)

    def nothing_known(self) -> OperationWaitResult:
        """See `Repeated`."""
        return OperationWaitResult(self.deployed.name, self.request_id, self.clock(), self.until)

    def look(self) -> OperationWaitResult:
        """Read the records of the operation and the rows of its requests once."""
        found, is_running, sent = self.nothing_known(), *self._sent()
        stop = read_stop(LedgerTable(self.aws.dynamodb, self.deployed.table), self.deployed.name, self.request_id)
        batches = {
            one.number: one
            for one in queried_batches(self.aws.dynamodb, self.deployed.table, self.deployed.name)
            if one.request_id == self.request_id
        }
        recorded = {(number, entry) for number, batch in batches.items() for entry in batch.entries}
        self._open |= {place: batches[place[0]] for place in recorded if place not in self._ended}
        for number in {place[0] for place in self._open}:
            entries = {place[1]: place in recorded for place in self._open if place[0] == number}
            batch = replace(self._open[number, next(iter(entries))], entries=[*entries])
            for entry, row, standing in recording.standings(self.aws, self.deployed, batch):
                self._judge(found, number, entry, row, standing, is_recorded=entries[entry])
        ends = Counter(self._ended.values())
        lost = sum(one.lost for one in batches.values())
        found.committed, found.void = ends[Standing.SERVED], ends[Standing.VOID]
        found.copies_lost = max(lost, ends[Standing.LOST])
        found.served_before = max(0, sent - len(self._ended) - len(self._open) - max(0, lost - ends[Standing.LOST]))
        self._conclude(found, stop, is_running=is_running)
        return found

    def _sent(self) -> tuple[bool, int]:
        """Whether the command may still send, and the number of requests that it has recorded."""
        listed = operations.read_operations(self.aws.dynamodb, self.deployed, operations.SEARCHED)
        own = [one for one in listed if one.request_id == self.request_id]
        if not own:
            raise CliError(
                f"--id {self.request_id} is none of the last {operations.SEARCHED} operations: see `intake-ledger "
                "operations`"
            )
        if any(one.result and one.sent is None for one in own):
            raise CliError(f"the requests of --id {self.request_id} are not recorded: use --prefix")
        return any(not one.result for one in own), sum(one.sent or 0 for one in own)

    def _judge(
        self,
        found: OperationWaitResult,
        number: str,
        entry: Entry,
        row: Row | None,
        standing: Standing,
        *,
        is_recorded: bool,
    ) -> None:
        if standing in (Standing.OUTSTANDING, Standing.NO_ROW) and not is_recorded:
            standing = Standing.VOID  # the audit asked S3
        elif standing is Standing.SERVED and row is not None and row.dismissed:
            standing = Standing.VOID
        is_served = standing is Standing.SERVED and row is not None
        if row is not None and is_served and row.status is Status.REJECTED:
            found.rejected.append(_unfinished(entry, row, ""))
        elif standing in (Standing.VOID, Standing.LOST) or (is_served and row is not None and not row.unfinished):
            self._ended[number, entry] = standing
            del self._open[number, entry]
        elif standing in (Standing.OUTSTANDING, Standing.NO_ROW):
            found.withdrawn += 1  # if it was stopped
            found.missing.append(_unfinished(entry, row, "no attempt has begun for the request"))
        else:
            found.missing.append(_unfinished(entry, row, "it is in work"))

    def _conclude(self, found: OperationWaitResult, stop: Stop | None, *, is_running: bool) -> None:
        if stop is None:
            found.withdrawn = 0
        in_work = len(found.missing) - found.withdrawn
        if found.rejected:
            found.outcome = REJECTED
        elif is_running and stop is None:
            found.error = "the command still sends, or was killed"
        elif found.copies_lost:
            found.outcome = LOST
        elif not in_work:
            found.outcome = STOPPED if found.withdrawn else COMMITTED


def follow(aws: Aws, deployed: DeployedPipeline, request_id: str) -> OperationWaitResult:
    """Wait until the requests of an operation have ended.

    Raises:
        CliError: They are not recorded.

    """
    return OperationWait(aws, deployed, request_id, None, now_ms).run(time.sleep, LOOK_SECONDS)


def _unfinished(entry: Entry, row: Row | None, why: str) -> Unfinished:
    if row is None:
        return Unfinished(entry.key, "no row", why)
    return Unfinished(entry.key, row.status.value, row.reason or why, row.version_id, row.reason_code)
