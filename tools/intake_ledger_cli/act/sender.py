"""Sends the messages of an operation: at its rate, recorded before they are sent, and until a person stops it.

The audit sends a recorded request again that no row shows; see `intake_ledger.requests`.
"""

import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import batched
from typing import Any, NamedTuple

from intake_ledger.events.copies import REDRIVEN
from intake_ledger.ledger.dynamodb_table import LedgerTable
from intake_ledger.protocol.ulids import made_at
from intake_ledger.requests.record import (
    BATCH_BYTES,
    BATCH_ENTRIES,
    Command,
    Entry,
    RequestBatch,
    batch_item,
    batch_key,
    entries_size,
)
from intake_ledger.requests.stop import read_stop
from intake_ledger_cli.act import operations
from intake_ledger_cli.act.operations import Sent
from intake_ledger_cli.app import now_ms
from intake_ledger_cli.aws.clients import Aws
from intake_ledger_cli.aws.deployed import DeployedPipeline
from intake_ledger_cli.aws.sending import MAX_BATCH_SIZE, OutgoingMessage, send
from intake_ledger_cli.errors import CliError, unless_denied
from intake_ledger_cli.show.console import console
from intake_ledger_cli.show.formatting import timestamp

TRIES = 3
"""The number of sends before a message is reported as refused. SQS may refuse single messages of a batch."""
RECORDED = {Command.REDRIVE: 100, Command.REPROCESS: BATCH_ENTRIES}
"""The largest number of requests in a record. That of a redrive is written again with each ten messages."""
LOOK_SECONDS = 5.0
"""The time between two looks for a stop."""


@dataclass(slots=True)
class RateLimit:
    """A rate limit. `clock` returns monotonic seconds. Without `per_second` there is no limit."""

    per_second: float | None
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], object] = time.sleep
    _free_at: float = 0.0

    @property
    def batch_size(self) -> int:
        """The number of messages to send together. Low rates send small batches, so that they do not come in bursts."""
        return MAX_BATCH_SIZE if self.per_second is None else max(1, min(MAX_BATCH_SIZE, int(self.per_second)))

    def wait_for(self, messages: int) -> None:
        """Wait until this number of messages may be sent."""
        if self.per_second is None:
            return
        if (early := self._free_at - self.clock()) > 0:
            self.sleep(early)
        self._free_at = max(self._free_at, self.clock()) + messages / self.per_second


class Request(NamedTuple):
    """A message to send."""

    body: str
    entry: Entry | None = None
    """Its record. None: no row shows its end, or its row continues it without a message."""
    attributes: Sequence[Mapping[str, Mapping[str, Any]]] = ({},)
    """Its message attributes. If SQS refuses it, it is sent with the next ones, which need less room."""
    group: str = ""
    """The message group, for a FIFO queue."""


@dataclass(slots=True)
class Sender:
    """The messages of one operation."""

    aws: Aws
    deployed: DeployedPipeline
    request_id: str
    rate: RateLimit
    renew: Callable[[], None] = lambda: None
    """Called before each batch. It raises if another person's operation has taken over."""
    recorded: int = 0
    """Recorded requests whose message was sent."""
    unmarked: int = 0
    """Redriven messages that were sent without the ID of the operation. A stop does not reach them."""
    denied: bool = False
    """True if the caller may not write records. Then the audit sends nothing again."""
    _batch: RequestBatch | None = None
    _size: int = 0
    _looked_at: float | None = None

    @contextmanager
    def acting(self, what: str, numbers: Callable[[], str], **asked: Any) -> Iterator[None]:
        """`operations.acting` with the ID, and with the numbers until now. `asked` are its other arguments."""
        what = f"{what} --id {self.request_id}"
        with operations.acting(self.aws, self.deployed, what, request_id=self.request_id, **asked) as act:
            act.numbers, act.sent = numbers, lambda: Sent(None if self.denied else self.recorded, self.unmarked)
            yield

    def check(self) -> None:
        """Look for a stop, at most every few seconds. Without permission to read, only consumers see it.

        Raises:
            CliError: A person has stopped the operation, or another one has taken over.

        """
        self.renew()
        now, found = time.monotonic(), None
        if self._looked_at is not None and now - self._looked_at < LOOK_SECONDS:
            return
        self._looked_at = now
        with unless_denied():
            found = read_stop(LedgerTable(self.aws.dynamodb, self.deployed.table), self.deployed.name, self.request_id)
        if found is not None:
            raise CliError(
                f"{self.request_id} was stopped by {found.by} at {timestamp(found.at)}, because {found.because}. Its "
                "messages are withdrawn. Begin a new operation, without --id and --resume"
            )

    def send(
        self, requests: Sequence[Request], answered: Callable[[int, str | None], None] = lambda _, __: None
    ) -> list[str | None]:
        """Record requests, and send their messages. Those that are not sent leave the record again.

        Args:
            requests: of one command.
            answered: called with the place of each request and its answer, after each batch.

        Returns:
            For each request why SQS has refused its message. None: it was sent.

        Raises:
            CliError: See `check`.
            ClientError: AWS refuses a request for another reason than a single message.

        """
        entries = [one.entry for one in requests if one.entry is not None]
        command = Command.REPROCESS if entries and entries[0].fence is None else Command.REDRIVE
        size = sum(map(entries_size, entries))
        if len(entries) > 1 and (len(entries) > RECORDED[command] or size > BATCH_BYTES):
            # The audit may send recorded requests, if this process dies or waits for long.
            half = len(requests) // 2
            first = self.send(requests[:half], answered)
            return first + self.send(requests[half:], lambda place, why: answered(half + place, why))
        answers, unsent = list[str | None](), entries
        record = self._record_for(command, len(entries), size)
        try:
            if record is not None:
                record.entries += entries
                self._write(record)
            for batch in batched(requests, self.rate.batch_size):
                self.rate.wait_for(len(batch))
                self.check()
                refusals = self._send(batch)
                for one, why in zip(batch, refusals, strict=True):
                    if why is None and one.entry is not None:
                        unsent.remove(one.entry)
                        self.recorded += 1
                    answered(len(answers), why)
                    answers.append(why)
        finally:
            # After a failure or an interruption. The audit must not send them.
            if record is not None and unsent and not self.denied:
                record.entries = [*(Counter(record.entries) - Counter(unsent)).elements()]
                self._write(record)
        return answers

    def _send(self, batch: Sequence[Request]) -> list[str | None]:
        answers: list[str | None] = [""] * len(batch)
        for number in range(TRIES):
            left = {place: one for place, one in enumerate(batch) if answers[place] is not None}
            if not left:
                break
            chosen = [one.attributes[min(number, len(one.attributes) - 1)] for one in left.values()]
            messages = [
                OutgoingMessage(one.body, attributes, one.group, self.request_id)
                for one, attributes in zip(left.values(), chosen, strict=True)
            ]
            for place, attributes, why in zip(
                left, chosen, send(self.aws.sqs, self.deployed.queue_url, messages), strict=True
            ):
                answers[place] = why
                self.unmarked += why is None and any(batch[place].attributes) and REDRIVEN not in attributes
        return answers

    def _record_for(self, command: Command, number: int, size: int) -> RequestBatch | None:
        """The record for requests with this size: the last one, if it has room. None: they are not recorded."""
        if not number or self.denied:
            return None
        batch = self._batch
        if (
            batch is None
            or batch.command is not command
            or len(batch.entries) + number > RECORDED[command]
            or self._size + size > BATCH_BYTES
        ):
            # A random name: a call may be repeated with the same ID.
            batch = RequestBatch(self.request_id, secrets.token_hex(8), command, 0)
            self._batch, self._size = batch, 0
        self._size += size
        return batch

    def _write(self, batch: RequestBatch) -> None:
        def deny(action: str) -> None:
            self.denied = True
            told = "the requests are not recorded, so no audit repeats them"
            console(stderr=True).print(f"{told}: {action} is not allowed")

        batch.sent_at = now_ms()
        table = LedgerTable(self.aws.dynamodb, self.deployed.table)
        with unless_denied(deny):
            table.write(batch_key(self.deployed.name, batch), batch_item(batch, made_at=made_at(batch.request_id)))
