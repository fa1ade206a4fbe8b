"""Requests that objects are processed again. A request has one ID, a ULID, and the ledger accepts an ID once per
object. Those for all objects under a prefix, or of some commits, are sent in a stream, and can be resumed.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import batched, islice

from intake_ledger.events.parser import own_message
from intake_ledger.ledger.dynamodb_table import LedgerTable
from intake_ledger.protocol.change import Origin
from intake_ledger.protocol.row import RowKey, to_dynamodb
from intake_ledger.protocol.ulids import is_ulid, made_at
from intake_ledger.requests.record import BATCH_ENTRIES, Entry
from intake_ledger_cli.act import operations
from intake_ledger_cli.act.selection import NotRequested, ReprocessResult, Selection, Target
from intake_ledger_cli.act.sender import Request, Sender
from intake_ledger_cli.aws.deployed import DeployedPipeline
from intake_ledger_cli.errors import CliError, unless_denied
from intake_ledger_cli.show.console import console, many

MOST_FAILED = 1_000
"""The number of failed messages after which the call sends no further record."""
COUNTED = 10_000
"""The largest number of objects that are counted before the question."""
_STORED = ("prefix", "since", "before", "processor_version")
"""The options of a call that can be resumed."""
_KEPT_SECONDS = 14 * 86_400
"""The time for which a position can be resumed."""


def check_id(request_id: str, deployed: DeployedPipeline, now: int) -> None:
    """Refuse an ID that the consumer would refuse. `now` is in epoch milliseconds.

    Raises:
        CliError: The ID is not a canonical ULID, or its time is in the future.

    """
    if not is_ulid(request_id):
        raise CliError(
            f"--id {request_id} is not a ULID in upper case: use the ID that the command printed, or omit --id"
        )
    ahead_seconds = (made_at(request_id) - now) // 1000
    if ahead_seconds > deployed.clock_skew_seconds:
        raise CliError(
            f"--id {request_id} is {ahead_seconds} s in the future, and the ledger would ignore later requests: use "
            "the ID that the command printed, or omit --id"
        )


def send_requests(
    sender: Sender, targets: Iterable[Target], result: ReprocessResult, store: Callable[[], None] = lambda: None
) -> None:
    """Send a recorded message for each target. It holds one record at a time.

    `store` is called between two records.

    Raises:
        CliError: See `Sender.check`.

    """
    for group in batched(targets, BATCH_ENTRIES):
        if result.sent:
            store()
        if len(result.failed) >= MOST_FAILED:
            return
        _send_group(sender, group, result)


def _send_group(sender: Sender, group: Sequence[Target], result: ReprocessResult) -> None:
    def answered(place: int, why: str | None) -> None:
        if why is None:
            result.sent += 1
        else:
            result.failed.append(NotRequested(group[place].key, why))
        if not result.failed:
            # A resumed call begins with the first message that failed.
            result.position = group[place].position

    bucket, id_ = sender.deployed.bucket, sender.request_id
    bodies = [own_message(Origin.REPROCESS, bucket, one.key, one.state, reprocess_id=id_) for one in group]
    entries = [Entry(one.key, state=one.state) for one in group]
    sender.send([*map(Request, bodies, entries)], answered)


@dataclass(slots=True)
class AgainCall:
    """One call of `retry --again` with a selection."""

    sender: Sender
    selection: Selection
    dry_run: bool
    result: ReprocessResult = field(default_factory=ReprocessResult)
    begun: bool = False
    """False before the person has agreed."""
    _stores: bool = True
    _stored: bool = False

    def resume(self) -> None:
        """Take the selection and the position of an interrupted call.

        Raises:
            CliError: No call with this ID has stored a position.

        """
        found = self._table.read(self._place)
        if not found:
            given = f"--resume {self.sender.request_id}"
            raise CliError(f"{given} has no stored position: it is done, never sent a message, or is too old")
        self.selection, self.result.position = Selection(**json.loads(found["selection"])), found["position"]
        self._stored = True

    def run(self, because: str, *, yes: bool) -> None:
        """Count the objects, or ask and send. The position is stored on the way, and deleted when all are sent.

        Raises:
            UsageError: The selection is not for this kind.

        """
        sender, result = self.sender, self.result
        aws, deployed, noun = sender.aws, sender.deployed, sender.deployed.work.noun
        before, after = made_at(sender.request_id), result.position
        sender.check()
        targets = self.selection.targets(aws, deployed, result, before=before, after=after)
        if self.dry_run:
            result.sent = sum(1 for _ in targets)
            self.begun = True
            return
        number = f"the {noun}"
        if operations.may_ask(yes=yes):
            counted = self.selection.targets(aws, deployed, ReprocessResult(), before=before, after=after)
            found = sum(1 for _ in islice(counted, COUNTED + 1))
            number = f"more than {COUNTED:,} {noun}" if found > COUNTED else many(found, noun)
        what = f"retry --again {self.selection}"
        does = f"{deployed.name} will process {number} of `{what}` again."

        def numbers() -> str:
            return f"{many(result.sent, 'requests')} sent, {len(result.failed):,} failed"

        with sender.acting(what, numbers, does=does, yes=yes, because=because):
            self.begun = True
            complete = False
            try:
                with console(stderr=True).status("sending requests"):
                    send_requests(sender, targets, result, self._store)
                complete = not result.failed
            finally:
                self._end(complete=complete)

    @property
    def _table(self) -> LedgerTable:
        return LedgerTable(self.sender.aws.dynamodb, self.sender.deployed.table)

    @property
    def _place(self) -> RowKey:
        return RowKey(self.sender.deployed.operations_partition, f"reprocess#{self.sender.request_id}")

    def _end(self, *, complete: bool) -> None:
        if complete:
            if self._stored:
                aws, table, place = self.sender.aws, self.sender.deployed.table, to_dynamodb(asdict(self._place))
                self._change(lambda: aws.dynamodb.delete_item(TableName=table, Key=place))
        elif self.result.position:
            self._store()
            if self._stores:
                again = f"intake-ledger retry --again --resume {self.sender.request_id}"
                console(stderr=True).print(f"to continue, run: {again}")

    def _store(self) -> None:
        content = {
            "selection": json.dumps({name: getattr(self.selection, name) for name in _STORED}),
            "position": self.result.position,
            "expires_at": made_at(self.sender.request_id) // 1000 + _KEPT_SECONDS,
        }
        self._stored = True
        self._change(lambda: self._table.write(self._place, content))

    def _change(self, change: Callable[[], object]) -> None:
        """Change the stored position. Without permission the call goes on, and cannot be resumed."""

        def denied(action: str) -> None:
            self._stores = False
            console(stderr=True).print(f"this call cannot be resumed: {action} is not allowed")

        if self._stores:
            with unless_denied(denied):
                change()
