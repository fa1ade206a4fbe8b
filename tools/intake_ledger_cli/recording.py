"""Records the requests of a reprocess or a redrive before their messages are sent, and tells which are outstanding.

The audit sends again what no row shows; see `intake_ledger.requests`.
"""

import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from intake_ledger.ledger import LedgerTable, send_write
from intake_ledger.protocol import Row, made_at, to_dynamodb
from intake_ledger.requests import (
    BATCH_BYTES,
    Command,
    Entry,
    RequestBatch,
    Standing,
    Stop,
    batch_item,
    batch_key,
    entries_size,
    queried_batches,
    read_stops,
    rows_of,
    standing_of,
)
from intake_ledger_cli.app import now_ms
from intake_ledger_cli.console import console
from intake_ledger_cli.errors import denied_action
from intake_ledger_cli.formatting import timestamp

if TYPE_CHECKING:
    from intake_ledger_cli.aws import Aws
    from intake_ledger_cli.deployed import DeployedPipeline
    from intake_ledger_cli.operations import Operation

MOST_JUDGED = 1_000
"""The largest number of requests whose rows `operations` reads, 100 in a request. Of more, it shows what the last look
of the audit has left."""


class RequestRecorder:
    """The records of one operation."""

    def __init__(
        self, aws: "Aws", deployed: "DeployedPipeline", request_id: str, command: Command, *, most: int
    ) -> None:
        """Make it. `most` is the largest number of requests in a record."""
        self._aws = aws
        self._deployed = deployed
        self._request_id = request_id
        self._command = command
        self._most = most
        self._batch: RequestBatch | None = None
        self._size = 0
        self._recent: list[RequestBatch] = []
        """The records of the last call of `add`."""
        self.denied = False
        """True if the caller may not write records. Then the audit sends nothing again."""

    def add(self, entries: Sequence[Entry]) -> None:
        """Record requests, before their messages are sent.

        Raises:
            ClientError: DynamoDB refuses the request, for another reason than a missing permission.

        """
        self._recent = []
        self._add(entries)

    def _add(self, entries: Sequence[Entry]) -> None:
        if not entries or self.denied:
            return
        size = sum(map(entries_size, entries))
        if size > BATCH_BYTES and len(entries) > 1:
            half = len(entries) // 2
            self._add(entries[:half])
            self._add(entries[half:])
            return
        batch = self._batch
        if batch is None or len(batch.entries) + len(entries) > self._most or self._size + size > BATCH_BYTES:
            # A random name: a call may be repeated with the same ID.
            batch = RequestBatch(self._request_id, secrets.token_hex(8), self._command, 0)
            self._batch, self._size = batch, 0
        self._recent.append(batch)
        batch.entries += entries
        self._size += size
        self._write(batch)

    def drop(self, entries: Sequence[Entry]) -> None:
        """Take requests out of the record of the last call of `add`: their messages were not sent.

        Raises:
            ClientError: DynamoDB refuses the request.

        """
        if self.denied:
            return
        dropped = set(entries)
        for batch in self._recent:
            if any(one in dropped for one in batch.entries):
                batch.entries = [one for one in batch.entries if one not in dropped]
                self._write(batch)

    def _write(self, batch: RequestBatch) -> None:
        batch.sent_at = now_ms()
        key = batch_key(self._deployed.name, batch)
        item = {"pk": key.pk, "sk": key.sk} | batch_item(batch, made_at=made_at(batch.request_id))
        try:
            send_write(self._aws.dynamodb.put_item, {"TableName": self._deployed.table, "Item": to_dynamodb(item)})
        except ClientError as error:
            if (action := denied_action(error)) is None:
                raise
            self.denied = True
            console(stderr=True).print(
                f"the requests are not recorded, so no audit repeats them: {action} is not allowed"
            )


@dataclass(frozen=True, slots=True)
class Progress:
    """The requests of an operation."""

    outstanding: int
    lost: int
    """Messages whose content is gone."""
    is_exact: bool
    """False: there are too many rows to read now, and the audit's last look has left these."""
    stop: Stop | None = None
    """Who has stopped it. Then the records are gone, and only the stop itself has numbers."""


def read_progress(aws: "Aws", deployed: "DeployedPipeline", listed: Sequence["Operation"]) -> Mapping[str, Progress]:
    """The progress of the listed operations that have recorded requests, by their ID.

    Raises:
        ClientError: DynamoDB refuses a request.

    """
    wanted = {one.request_id for one in listed if one.sent is not None}
    if not wanted:
        return {}
    batches = [one for one in queried_batches(aws.dynamodb, deployed.table, deployed.name) if one.request_id in wanted]
    number = sum(len(one.entries) for one in batches)
    if number <= MOST_JUDGED:
        for batch in batches:
            _judge(aws, deployed, batch)
    stops = read_stops(aws.dynamodb, deployed.table, deployed.name)
    found, is_exact = dict[str, Progress](), number <= MOST_JUDGED
    for request_id in wanted:
        own = [one for one in batches if one.request_id == request_id]
        found[request_id] = Progress(
            sum(len(one.entries) for one in own), sum(one.lost for one in own), is_exact, stops.get(request_id)
        )
    return found


def standings(
    aws: "Aws", deployed: "DeployedPipeline", batch: RequestBatch
) -> Iterator[tuple[Entry, Row | None, Standing]]:
    """The row of each request of a record, and what it shows of the request.

    Raises:
        ClientError: DynamoDB refuses a request.

    """
    rows = rows_of(
        LedgerTable(aws.dynamodb, deployed.table),
        batch.entries,
        lambda one: one.row_key(deployed.name, deployed.ordering, deployed.bucket),
    )
    requested_at, skew_ms = made_at(batch.request_id), deployed.clock_skew_seconds * 1000
    for entry, row in rows:
        yield entry, row, standing_of(row, entry, batch, requested_at=requested_at, skew_ms=skew_ms)


def progress_text(operation: "Operation", progress: Progress | None) -> str:
    """The progress for people. Empty if the requests are not recorded."""
    if progress is None:
        return ""
    if progress.stop is not None:
        return f"stopped at {timestamp(progress.stop.at)}"
    served = (operation.sent or 0) - progress.outstanding - progress.lost
    parts = [f"{served:,} served"]
    if progress.outstanding:
        parts.append(f"{progress.outstanding:,} outstanding{'' if progress.is_exact else ' at the last audit'}")
    if progress.lost:
        parts.append(f"{progress.lost:,} copies lost")
    return ", ".join(parts)


def _judge(aws: "Aws", deployed: "DeployedPipeline", batch: RequestBatch) -> None:
    """Leave out of a record what its rows show as served."""
    left = list[Entry]()
    for entry, _, standing in standings(aws, deployed, batch):
        if standing is Standing.LOST:
            batch.lost += 1
        elif standing not in (Standing.SERVED, Standing.VOID):
            left.append(entry)
    batch.entries = left
