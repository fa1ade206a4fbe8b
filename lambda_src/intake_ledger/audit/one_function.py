"""The audit in one function, for buckets of some million objects. It reads all, joins it, and looks at candidates.

A run is one invocation. It has no state to hand on: a run that dies begins again at the next tick, and the marks keep
it from sending a message twice. For larger buckets `in_parts` does the same with many functions.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from itertools import batched
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from intake_ledger.audit.diff import Window
from intake_ledger.audit.key_samples import Looks
from intake_ledger.audit.listing import Listing
from intake_ledger.audit.look import BATCH, STOP_BEFORE_MS, Look
from intake_ledger.audit.relations import HELD, LISTED, Entries, held, listed
from intake_ledger.audit.report import Pass, Report, Stopped
from intake_ledger.audit.shards import Shard, cut
from intake_ledger.audit.side_by_side import side_by_side
from intake_ledger.audit.sqlite_join import SqliteJoin
from intake_ledger.protocol import AuditSettings

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_s3 import S3Client

SEGMENTS = 4
LOOKS = 40
"""Requests for finding as many shards in a large bucket. A small one takes one."""


class AuditInOneFunction:
    """Reads the bucket and the ledger, and compares. `readers` is the number of listings and scans at the same time,
    `clock` gives epoch milliseconds.
    """

    def __init__(
        self,
        settings: AuditSettings,
        s3: "S3Client",
        dynamodb: "DynamoDBClient",
        look: Look,
        clock: Callable[[], int],
        *,
        readers: int,
    ) -> None:
        self._settings = settings
        self._s3 = s3
        self._dynamodb = dynamodb
        self._listing = Listing(s3, settings)
        self._look = look
        self._clock = clock
        self._readers = readers

    def run(self, report: Report, window: Window, *, remaining_ms: Callable[[], int]) -> None:
        """Compare all, and fill the report. It ends `STOP_BEFORE_MS` before the invocation's time is over."""
        with TemporaryDirectory(prefix="audit-") as folder, closing(SqliteJoin(Path(folder))) as join:
            began_at, read, outside = self._clock(), 0, 0
            for relation, page in side_by_side(self._sources(), workers=self._readers):
                if remaining_ms() < STOP_BEFORE_MS:
                    report.stopped = Stopped.READING
                    return
                join.add(relation, page.entries)
                report.later_format += page.later_format
                if relation == LISTED:
                    read, outside = read + page.read, outside + page.read - len(page.entries)
            report.passes = [Pass(began_at, self._clock(), read)]
            joined = join.run(window, deletes=self._settings.deletes)
            for few in batched(join.candidates(report.run_id), BATCH):
                if remaining_ms() < STOP_BEFORE_MS:
                    report.stopped = Stopped.TIME
                if report.stopped:
                    break
                self._look.at(few, window, report)
            report.add_joined(joined, outside=outside, candidates=join.count())
            report.complete = report.stopped is None

    def _sources(self) -> Sequence[Iterator[tuple[str, Entries]]]:
        """What there is to read: the segments of the table, and the shards of the bucket."""
        scans = min(self._readers, SEGMENTS)
        segments = [held(self._dynamodb, self._settings, (number, scans)) for number in range(scans)]
        lists = [listed(self._listing.shard(shard), self._settings) for shard in self._shards()]
        return [_named(HELD, pages) for pages in segments] + [_named(LISTED, pages) for pages in lists]

    def _shards(self) -> Sequence[Shard]:
        if self._readers == 1:
            return [Shard(prefix) for prefix in self._listing.prefixes()]
        looks = Looks(self._s3, self._listing.common, versioned=self._listing.versioned())
        return cut(self._listing.prefixes(), looks, shards=self._readers, looks=LOOKS)


def _named(relation: str, pages: Iterator[Entries]) -> Iterator[tuple[str, Entries]]:
    return ((relation, page) for page in pages)
