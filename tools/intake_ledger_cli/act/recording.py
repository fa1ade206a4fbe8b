"""Tells which recorded requests of a `retry` are outstanding. `sender` records them."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from intake_ledger.ledger.dynamodb_table import BATCH_GET_KEYS, LedgerTable
from intake_ledger.protocol.row import Row
from intake_ledger.protocol.ulids import made_at
from intake_ledger.requests.record import (
    Entry,
    RequestBatch,
    queried_batches,
    rows_of,
)
from intake_ledger.requests.standing import AfterStop, Standing, after_stop, standing_of
from intake_ledger.requests.stop import Stop, read_stops
from intake_ledger_cli.act import operations
from intake_ledger_cli.act.operations import Operation
from intake_ledger_cli.aws.clients import Aws
from intake_ledger_cli.aws.deployed import DeployedPipeline
from intake_ledger_cli.show.formatting import timestamp

LISTED = 10
"""Operations among which `status` looks for open ones."""
MOST_JUDGED = 1_000
"""The largest number of requests of an operation whose rows `operations` reads, 100 in a request. Of more, it shows
what the last look of the audit has left."""


_STOPPED = {
    AfterStop.BEGUN_BEFORE: "begun before",
    AfterStop.BEGUN_AFTER: "begun or tried again after",
    AfterStop.SERVED_LATER: "served by a later request or change",
    AfterStop.WITHDRAWN: "withdrawn",
    AfterStop.OUTSTANDING: "outstanding",
    AfterStop.COPIES_LOST: "copies lost",
}
"""The standings after a stop, for people."""


@dataclass(frozen=True, slots=True)
class Progress:
    """The requests of an operation."""

    outstanding: int
    lost: int
    """Messages whose content is gone."""
    served: int | None
    """Requests that were served, or are void. None: the command still sends, or was killed."""
    is_exact: bool
    """False: there are too many rows to read now, and the audit's last look has left these."""
    stop: Stop | None = None
    """Who has stopped it."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """Of a stopped operation: the number of requests by `AfterStop`."""
    counted_at: int | None = None
    """When they were counted, in epoch milliseconds. None: now."""


@dataclass(frozen=True, slots=True)
class OpenOperation:
    """An operation of a person whose requests are not all served."""

    request_id: str
    what: str
    by: str
    at: int
    """Epoch milliseconds."""
    progress: str
    """The numbers of its requests."""
    stopped: bool


def open_operations(aws: Aws, deployed: DeployedPipeline, now: int) -> list[OpenOperation]:
    """The operations among the last ones that a queue may still hold messages of. Without one, it takes one request."""
    listed = operations.read_operations(aws.dynamodb, deployed, LISTED)
    young = [one for one in listed if one.request_id and one.at > now - operations.LOOKED_MS]
    found = []
    progress = read_progress(aws, deployed, young, most_judged=BATCH_GET_KEYS) if young else {}
    for one in {one.request_id: one for one in reversed(young)}.values():
        so_far = progress.get(one.request_id)
        if one.result and (so_far is None or not so_far.outstanding):
            continue
        text = progress_text(so_far)
        if one.result and so_far is not None and so_far.served is not None and so_far.stop is None:
            text = f"{so_far.served:,} of {one.sent or 0:,} served"
        text += "" if one.result else f"{', ' if text else ''}the command still sends, or was killed"
        stopped = so_far is not None and so_far.stop is not None
        found.append(OpenOperation(one.request_id, one.what, one.by, one.at, text, stopped))
    return found


def read_progress(
    aws: Aws, deployed: DeployedPipeline, listed: Sequence[Operation], *, most_judged: int | None = None
) -> Mapping[str, Progress]:
    """The progress of the listed operations that have recorded requests, by their ID.

    Of an operation with more than `most_judged` requests, `MOST_JUDGED` when omitted, no row is read.
    """
    most = MOST_JUDGED if most_judged is None else most_judged
    sent = Counter[str]()
    for one in listed:
        if one.sent is not None:  # a call may be repeated with the same ID
            sent[one.request_id] += one.sent
    batches = dict[str, list[RequestBatch]]()
    if any(one.request_id for one in listed):
        for batch in queried_batches(aws.dynamodb, deployed.table, deployed.name):
            batches.setdefault(batch.request_id, []).append(batch)
    stops = read_stops(aws.dynamodb, deployed.table, deployed.name) if sent or batches else {}
    found = dict[str, Progress]()
    for request_id in {one.request_id for one in listed} & {*sent, *batches}:
        own, stop = batches.get(request_id, []), stops.get(request_id)
        outstanding, lost = sum(len(one.entries) for one in own), sum(one.lost for one in own)
        is_exact = outstanding <= most
        if stop is None and is_exact:
            now = Counter(standing for batch in own for _, _, standing in standings(aws, deployed, batch))
            lost += now[Standing.LOST]
            outstanding -= now[Standing.SERVED] + now[Standing.VOID] + now[Standing.LOST]
        if stop is None:
            served = max(0, sent[request_id] - outstanding - lost) if request_id in sent else None
            found[request_id] = Progress(outstanding, lost, served, is_exact)
            continue
        is_live = is_exact and outstanding > 0
        live = (how for batch in own for _, _, how in stopped(aws, deployed, batch, stop)) if is_exact else ()
        counts = count_stopped(own, live, sent.get(request_id))
        seen = [one.counted_at for one in own if one.counts and not (is_exact and one.entries)]
        counted_at = None if is_live else max(seen, default=None)
        outstanding, lost = counts[AfterStop.OUTSTANDING], counts[AfterStop.COPIES_LOST]
        found[request_id] = Progress(outstanding, lost, None, is_exact, stop, counts, counted_at)
    return found


def outstanding(aws: Aws, deployed: DeployedPipeline, prefix: str) -> dict[tuple[str, str | None], str]:
    """The recorded requests under a prefix that no attempt has served, and whose message may come.

    Returns:
        The ID of the operation by key and identity. In LATEST the identity is None, since the present state is meant.

    """
    batches = [
        replace(batch, entries=chosen)
        for batch in queried_batches(aws.dynamodb, deployed.table, deployed.name)
        if (chosen := [one for one in batch.entries if one.key.startswith(prefix)])
    ]
    stops = read_stops(aws.dynamodb, deployed.table, deployed.name) if batches else {}
    return {
        (entry.key, entry.state.identity if entry.state else entry.identity): batch.request_id
        for batch in batches
        if batch.request_id not in stops
        for entry, _, standing in standings(aws, deployed, batch)
        if standing in (Standing.OUTSTANDING, Standing.NO_ROW, Standing.IN_WORK)
    }


def stopped(
    aws: Aws, deployed: DeployedPipeline, batch: RequestBatch, stop: Stop
) -> Iterator[tuple[Entry, Row | None, AfterStop]]:
    """Each request of a record of a stopped operation, with its row."""
    for entry, row, standing in standings(aws, deployed, batch):
        yield entry, row, after_stop(row, standing, batch, stop.at)


def count_stopped(batches: Sequence[RequestBatch], live: Iterable[AfterStop], sent: int | None) -> Counter[str]:
    """The number of requests of a stopped operation by `AfterStop`.

    Args:
        batches: its records.
        live: its requests as they stand now. Without them, the last count of the audit is taken.
        sent: the number of its recorded requests. None: it is not known. The audit removes those that it finds served
            from the records, so they are the others.

    """
    counts = Counter[str](live)
    is_live = bool(counts)
    for batch in batches:
        counts[AfterStop.COPIES_LOST] += batch.lost
        if batch.counts and not (is_live and batch.entries):
            counts.update(batch.counts)
        elif not is_live:
            counts[AfterStop.OUTSTANDING] += len(batch.entries)
    counts[AfterStop.BEGUN_BEFORE] += max(0, (sent or 0) - counts.total())
    return counts


def standings(
    aws: Aws, deployed: DeployedPipeline, batch: RequestBatch
) -> Iterator[tuple[Entry, Row | None, Standing]]:
    """The row of each request of a record, and what it shows of the request."""
    rows = rows_of(
        LedgerTable(aws.dynamodb, deployed.table),
        batch.entries,
        lambda one: one.row_key(deployed.name, deployed.ordering, deployed.bucket),
    )
    requested_at, skew_ms = made_at(batch.request_id), deployed.clock_skew_seconds * 1000
    for entry, row in rows:
        yield entry, row, standing_of(row, entry, batch, requested_at=requested_at, skew_ms=skew_ms)


def progress_text(progress: Progress | None) -> str:
    """The progress for people. Empty if the requests are not recorded."""
    if progress is None:
        return ""
    if progress.stop is not None:
        counts, counted_at = progress.counts, progress.counted_at
        text = ", ".join(f"{counts[how]:,} {name}" for how, name in _STOPPED.items() if counts.get(how))
        text = f"stopped at {timestamp(progress.stop.at)}: {text or 'no request was recorded'}"
        if counted_at is None:
            return text
        return f"{text} (last counted at {timestamp(counted_at)}: what a later request took is not known)"
    parts = [f"{progress.served:,} served"] if progress.served is not None else []
    if progress.outstanding:
        parts.append(f"{progress.outstanding:,} outstanding{'' if progress.is_exact else ' at the last audit'}")
    if progress.lost:
        parts.append(f"{progress.lost:,} copies lost")
    return ", ".join(parts)
