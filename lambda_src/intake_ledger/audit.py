"""The scheduled Lambda function that finds what S3 never told anyone about.

It compares what S3 holds with what the ledger has committed and sends a wake-up message for every key that differs; the
consumer then decides as always. So a finding that is out of date does no harm.
"""

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import batched
from typing import TYPE_CHECKING, Any, Protocol

import boto3
from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import MetricUnit
from botocore.config import Config

from intake_ledger import rows
from intake_ledger.audit_diff import Finding, Mark, Window, find, is_marked
from intake_ledger.bucket import Bucket
from intake_ledger.changes import Origin, own_message
from intake_ledger.rows import Ordering, Row, RowKey
from intake_ledger.settings import AuditSettings, audit_settings
from intake_ledger.states import State, StateKind, bare_etag, real_version
from intake_ledger.table import BATCH_GET_KEYS, NO_ROW, Condition, LedgerTable, Refused

if TYPE_CHECKING:
    from datetime import datetime

    from mypy_boto3_s3 import S3Client
    from mypy_boto3_sqs import SQSClient

STOP_BEFORE_MS = 20_000
"""How long before Lambda's own timeout a run stops by itself, in milliseconds."""
_REPORTED_FINDINGS = 100
_SEND_BATCH = 10  # SQS's limit of SendMessageBatch


class LambdaContext(Protocol):
    """The part of Lambda's context that is used."""

    def get_remaining_time_in_millis(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Seen:
    """One state of one key, as S3 shows it, and where the ledger keeps it."""

    key: str
    state: State
    row_key: RowKey


@dataclass(slots=True)
class Report:
    """What a run found. `complete` is false when time or the budget ran out: the next run goes on."""

    dry_run: bool
    listed: int = 0
    checked: int = 0
    resubmitted: int = 0
    complete: bool = True
    counts: Counter[str] = field(default_factory=Counter)
    findings: list[dict[str, str]] = field(default_factory=list)

    def as_json(self, run_id: str) -> dict[str, Any]:
        """The report as the function returns it. At most 100 findings are named; `counts` has them all."""
        return {
            "runId": run_id,
            "dryRun": self.dry_run,
            "listed": self.listed,
            "checked": self.checked,
            "counts": {finding.value: self.counts[finding.value] for finding in Finding},
            "resubmitted": self.resubmitted,
            "complete": self.complete,
            "findings": self.findings,
        }


class Listing:
    """The states that S3 shows, a page at a time: memory does not grow with the bucket."""

    def __init__(self, client: "S3Client", settings: AuditSettings) -> None:
        self._client = client
        self._settings = settings
        self._common: dict[str, Any] = {"Bucket": settings.bucket}
        if settings.bucket_owner:
            self._common["ExpectedBucketOwner"] = settings.bucket_owner

    def pages(self) -> Iterator[list[tuple[str, State]]]:
        """The current state of each key; in EVERY_VERSION, each version that there is."""
        versioned = self._client.get_bucket_versioning(**self._common).get("Status") is not None
        for prefix in self._prefixes():
            yield from self._versions(prefix) if versioned else self._objects(prefix)

    def _prefixes(self) -> list[str]:
        """The prefixes of the filters, without those that another covers."""
        wanted = sorted({one.prefix for one in self._settings.filters} or {""})
        return [one for one in wanted if not any(one != other and one.startswith(other) for other in wanted)]

    def _objects(self, prefix: str) -> Iterator[list[tuple[str, State]]]:
        for page in self._client.get_paginator("list_objects_v2").paginate(**self._common, Prefix=prefix):
            yield [
                (
                    item["Key"],
                    State(StateKind.OBJECT, None, bare_etag(item["ETag"]), item["Size"], _ms(item["LastModified"])),
                )
                for item in page.get("Contents", ())
            ]

    def _versions(self, prefix: str) -> Iterator[list[tuple[str, State]]]:
        every = self._settings.ordering is Ordering.EVERY_VERSION
        for page in self._client.get_paginator("list_object_versions").paginate(**self._common, Prefix=prefix):
            yield [
                (
                    item["Key"],
                    State(
                        StateKind.OBJECT,
                        real_version(item["VersionId"]),
                        bare_etag(item["ETag"]),
                        item["Size"],
                        _ms(item["LastModified"]),
                    ),
                )
                for item in page.get("Versions", ())
                if every or item["IsLatest"]
            ] + [
                (
                    item["Key"],
                    State(StateKind.MARKER, real_version(item["VersionId"]), created_at=_ms(item["LastModified"])),
                )
                for item in page.get("DeleteMarkers", ())
                if every or item["IsLatest"]
            ]


class Audit:
    """One run over the whole bucket. `clock` gives epoch milliseconds."""

    def __init__(
        self,
        settings: AuditSettings,
        table: LedgerTable,
        listing: Listing,
        bucket: Bucket,
        sqs: "SQSClient",
        *,
        clock: Callable[[], int],
    ) -> None:
        self._settings = settings
        self._table = table
        self._listing = listing
        self._bucket = bucket
        self._sqs = sqs
        self._clock = clock

    def run(self, *, dry_run: bool, remaining_ms: Callable[[], int]) -> Report:
        """Compare, and resubmit what differs, until done or until time or the budget runs out."""
        now, report = self._clock(), Report(dry_run)
        window = Window(now - self._settings.settle_seconds * 1000, now - self._settings.look_back_seconds * 1000)
        for page in self._pages(report):
            if remaining_ms() < STOP_BEFORE_MS or report.resubmitted >= self._settings.budget:
                report.complete = False
                break
            for few in batched(page, BATCH_GET_KEYS):
                self._compare(few, window, report)
        return report

    def _pages(self, report: Report) -> Iterator[list[Seen]]:
        for page in self._listing.pages():
            report.listed += len(page)
            yield [self._seen(key, state) for key, state in page if self._settings.wants(key)]
        if self._settings.ordering is Ordering.LATEST:
            yield from self._absent()

    def _absent(self) -> Iterator[list[Seen]]:
        """The keys that the ledger holds for present and that no listing shows any more."""
        any_key = rows.row_key(self._settings.pipeline, self._settings.ordering, self._settings.bucket, "", None)
        for page in self._table.scan(any_key.sk):
            gone = []
            for row_key, content in page:
                row, key = rows.from_attributes(content), row_key.pk.removeprefix(any_key.pk)
                if row is None or row.has_committed("absent") or not row_key.pk.startswith(any_key.pk):
                    continue
                state = self._bucket.look(key)
                if state.kind is StateKind.ABSENT:
                    gone.append(self._seen(key, state))
            yield gone

    def _seen(self, key: str, state: State) -> Seen:
        settings = self._settings
        row_key = rows.row_key(settings.pipeline, settings.ordering, settings.bucket, key, state.identity)
        return Seen(key, state, row_key)

    def _compare(self, few: Sequence[Seen], window: Window, report: Report) -> None:
        # The key of a listing may come twice when it is overwritten meanwhile; DynamoDB refuses a key twice.
        found = self._table.get_items(list({one.row_key: None for one in few}))
        due = []
        for one in few:
            content = found.get(one.row_key, {})
            row = rows.from_attributes(content)
            report.checked += 1
            finding = find(row, one.state, window, now=self._clock(), deletes=self._settings.deletes)
            if finding is None:
                continue
            report.counts[finding] += 1
            if len(report.findings) < _REPORTED_FINDINGS:
                report.findings.append({"key": one.key, "why": finding, "state": one.state.identity})
            if not is_marked(_mark(content), one.state, window):
                due.append((one, row))
        if not report.dry_run:
            left = self._settings.budget - report.resubmitted
            marked = [one for one, row in due[:left] if self._mark(one, row)]
            self._send(marked)
            report.resubmitted += len(marked)

    def _mark(self, one: Seen, row: Row | None) -> bool:
        """Keep another run from resubmitting the same; written before the send, so that a death in between is mended by
        the mark's lapse. False: the row has changed, so somebody is at it.
        """
        now = self._clock()
        marks = {"audit_mark": one.state.identity, "audit_marked_at": now}
        if row is None:
            # No commit will ever give this item an expiry if the key stays untouched.
            marks["expires_at"] = now // 1000 + self._settings.retention_seconds
            condition = NO_ROW
        else:
            values = {":seen_fence": row.fence, ":seen_status": row.status}
            condition = Condition("#fence = :seen_fence AND #status = :seen_status", ("fence", "status"), values)
        try:
            self._table.mark(one.row_key, marks, condition)
        except Refused:
            return False
        return True

    def _send(self, marked: Sequence[Seen]) -> None:
        for few in batched(marked, _SEND_BATCH):
            entries: Any = [
                {"Id": str(n), "MessageBody": own_message(Origin.AUDIT, self._settings.bucket, one.key, one.state)}
                for n, one in enumerate(few)
            ]
            answer = self._sqs.send_message_batch(QueueUrl=self._settings.queue_url, Entries=entries)
            if answer.get("Failed"):
                # The marks of these lapse, and a later run sends them.
                raise RuntimeError(f"SQS took only a part of a batch: {answer['Failed'][0].get('Message')}")


def _mark(content: Mapping[str, Any]) -> Mark | None:
    return Mark(content["audit_mark"], content["audit_marked_at"]) if "audit_mark" in content else None


def _ms(moment: "datetime") -> int:
    return int(moment.timestamp() * 1000)


def handler(event: Mapping[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Lambda's entry point. `{"dryRun": true}` only looks."""
    settings = audit_settings(os.environ)
    logger, metrics = Logger(), Metrics()
    config = Config(retries={"mode": "standard", "total_max_attempts": 6})
    s3 = boto3.client("s3", config=config)
    audit = Audit(
        settings,
        LedgerTable(boto3.client("dynamodb", config=config), settings.table),
        Listing(s3, settings),
        Bucket(lambda: s3, settings.bucket, settings.bucket_owner),
        boto3.client("sqs", config=config),
        clock=lambda: time.time_ns() // 1_000_000,
    )
    run_id = f"{time.time_ns() // 1_000_000}"
    report = audit.run(dry_run=bool(event.get("dryRun")), remaining_ms=context.get_remaining_time_in_millis)
    content = report.as_json(run_id)
    logger.info("audited", extra={name: value for name, value in content.items() if name != "findings"})
    for finding in report.findings:
        logger.warning("finding", extra={"run_id": run_id, **finding})
    for name, value in (
        ("AuditRuns", 1),
        ("AuditedKeys", report.checked),
        ("AuditFindings", report.counts.total()),
        ("AuditResubmitted", report.resubmitted),
    ):
        metrics.add_metric(name, unit=MetricUnit.Count, value=value)
    metrics.flush_metrics()
    return content
