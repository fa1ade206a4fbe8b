"""The audit in one function, for buckets of some million objects: reads everything, joins it, looks at candidates.

A run is one invocation without stored progress. A run that dies begins again at the next tick, and the marks keep it
from sending a message twice. For larger buckets `in_parts` does the same with many functions.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import KW_ONLY, dataclass
from itertools import batched, chain, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from intake_ledger.audit.diff import Window
from intake_ledger.audit.join.sqlite import SqliteJoin
from intake_ledger.audit.listing import BucketListing
from intake_ledger.audit.look import BATCH, STOP_BEFORE_MS, Look
from intake_ledger.audit.relations import HELD, LISTED, Entries, held, listed
from intake_ledger.audit.report import Pass, Report, Stopped
from intake_ledger.audit.shards import Shard
from intake_ledger.protocol.settings_audit import AuditSettings

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_s3 import S3Client

SEGMENTS = 4
SAMPLES = 40
"""Requests that divide a large bucket into shards. A small bucket takes one."""


@dataclass(frozen=True, slots=True)
class AuditInOneFunction:
    """Compares the bucket with the ledger.

    `readers` is the number of parallel listings and scans. `clock` gives epoch milliseconds.
    """

    settings: AuditSettings
    s3: "S3Client"
    dynamodb: "DynamoDBClient"
    look: Look
    clock: Callable[[], int]
    _: KW_ONLY
    readers: int

    def run(self, report: Report, window: Window, *, remaining_ms: Callable[[], int]) -> None:
        """Compare everything, and fill the report. Stop `STOP_BEFORE_MS` before the end of the invocation's time."""
        with TemporaryDirectory(prefix="audit-") as folder, closing(SqliteJoin(Path(folder, "audit"))) as join:
            began_at, read, outside = self.clock(), 0, 0
            for relation, page in side_by_side(self._sources(), workers=self.readers):
                if remaining_ms() < STOP_BEFORE_MS:
                    report.stopped = Stopped.READING
                    return
                join.add(relation, page.entries)
                report.later_format += page.later_format
                report.rows.add(page.rows)
                if relation == LISTED:
                    read, outside = read + page.read, outside + page.read - len(page.entries)
            report.passes = [Pass(began_at, self.clock(), read)]
            joined = join.run(window, deletes=self.settings.deletes)
            for batch in batched(join.candidates(report.run_id), BATCH):
                if remaining_ms() < STOP_BEFORE_MS:
                    report.stopped = Stopped.TIME
                if report.stopped:
                    break
                self.look.at(batch, window, report)
            report.add_joined(joined, outside=outside, candidates=join.count())
            report.complete = report.stopped is None

    def _sources(self) -> Sequence[Iterator[tuple[str, Entries]]]:
        """The segments of the table and the shards of the bucket, each with its relation."""
        scans = min(self.readers, SEGMENTS)
        now = self.clock()
        segments = [held(self.dynamodb, self.settings, (number, scans), now=now) for number in range(scans)]
        listing = BucketListing(self.s3, self.settings)
        lists = [listed(listing.shard(shard), self.settings) for shard in self._shards(listing)]
        return [_named(HELD, pages) for pages in segments] + [_named(LISTED, pages) for pages in lists]

    def _shards(self, listing: BucketListing) -> Sequence[Shard]:
        if self.readers == 1:
            return [Shard(prefix) for prefix in listing.prefixes()]
        return listing.shards(self.readers, samples=SAMPLES)


def _named(relation: str, pages: Iterator[Entries]) -> Iterator[tuple[str, Entries]]:
    return ((relation, page) for page in pages)


def side_by_side[Item](sources: Sequence[Iterator[Item]], *, workers: int) -> Iterator[Item]:
    """Yield the items of all sources, each in its order. At most `workers` threads read one item ahead."""
    if workers == 1:
        yield from chain.from_iterable(sources)
        return
    with ThreadPoolExecutor(workers) as pool:
        waiting: dict[Future[list[Item]], Iterator[Item]] = {pool.submit(_next, source): source for source in sources}
        try:
            while waiting:
                for done in wait(waiting, return_when=FIRST_COMPLETED).done:
                    source, items = waiting.pop(done), done.result()
                    if items:
                        waiting[pool.submit(_next, source)] = source
                    yield from items
        finally:
            pool.shutdown(cancel_futures=True)


def _next[Item](source: Iterator[Item]) -> list[Item]:
    """A list of the next item, or an empty list at the end."""
    return list(islice(source, 1))
