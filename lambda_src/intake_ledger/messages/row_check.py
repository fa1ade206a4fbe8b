"""Find rows of messages that nothing continues any more.

A message stays in its source until its row is settled. It may be lost nevertheless: a queue is purged, or a record
expires while the function is stopped. Then its row stays PROCESSING or FAILED, and no message comes to change it.
"""

import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from intake_ledger.aws.clients import ledger_client
from intake_ledger.aws.invocation_context import InvocationContext
from intake_ledger.aws.queues import Queues
from intake_ledger.delivery_check.sources import SourceCheck
from intake_ledger.observability.audit_powertools import (
    PowertoolsAuditTelemetry,
    claim_ages,
    publish_report,
    requests_checked,
)
from intake_ledger.observability.short_report import short_report
from intake_ledger.protocol.change import ABSENT
from intake_ledger.protocol.row import RowKey, Status, from_dynamodb
from intake_ledger.protocol.settings import HOLD_SHARE, ConsumerSettings
from intake_ledger.protocol.ulids import RANDOM_BITS, ulid
from intake_ledger.requests.check import RequestCheck, RequestFindings

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

HOUR = 3_600_000
STUCK_MS = 6 * HOUR
"""A row is stuck if its lease ended, or its next attempt was due, this long ago."""
SENT_MS = 120_000
"""The numbers of a queue are right a minute after the last message was sent, says SQS's API reference."""
TICK_MS = 900_000
"""The time between two ticks of the schedule."""
RESERVE_SECONDS = 10.0
_NAMED = 1_000
"""The largest number of stuck rows that are named. All are counted."""
_ATTRIBUTES = ("pk", "sk", "status", "lease_until", "retry_at", "updated_at")


@dataclass(slots=True)
class RowFindings:
    """The result of a check."""

    run_id: str
    started_at: int
    """Epoch milliseconds."""
    unfinished: int = 0
    """Rows that are PROCESSING or FAILED."""
    stuck: int = 0
    keys: list[str] = field(default_factory=list)
    """The keys of the first stuck rows."""
    oldest_claim_at: int | None = None
    """The time of the oldest claim among the PROCESSING rows, in epoch milliseconds."""
    after: RowKey | None = None
    """The place in the table where the next check continues. None: this one has reached the end."""

    def as_json(self) -> dict[str, Any]:
        """The result for the log, for the caller and for the table."""
        hours = STUCK_MS // HOUR
        stuck = f"{self.stuck:,} of {self.unfinished:,} unfinished messages were not continued for {hours} hours"
        report = short_report(
            self.run_id,
            started_at=self.started_at,
            checked=self.unfinished,
            findings={"stuck": self.keys},
            summary=stuck if self.stuck else f"each of {self.unfinished:,} unfinished messages is continued",
            complete=self.after is None,
            sent=0,
        )
        return report | {"counts": {"stuck": self.stuck}}

    def counts(self) -> dict[str, int]:
        """The metrics of a check. A dry run has none."""
        return {"AuditRuns": 1, "AuditFindings": self.stuck}


class RowCheck:
    """Scans the rows of one intake."""

    def __init__(
        self, client: "DynamoDBClient", *, table: str, pipeline: str, bucket: str, clock: Callable[[], int]
    ) -> None:
        """Make a check.

        Args:
            client: the client.
            table: the ledger's table.
            pipeline: the name of the intake.
            bucket: the name of the messages' source in the ledger.
            clock: gives epoch milliseconds.

        """
        self._client = client
        self._table = table
        self._pipeline = pipeline
        self._bucket = bucket
        self._clock = clock
        self._place: Any = {"pk": {"S": bucket}, "sk": {"S": f"{pipeline}@check"}}

    def run(self, remaining_seconds: Callable[[], float], *, dry_run: bool = False) -> RowFindings:
        """Scan the table from the place where the last check has ended.

        Args:
            remaining_seconds: until the function's timeout.
            dry_run: true: begin at the start, and keep no place.

        Raises:
            ClientError: DynamoDB refuses a request. Also BotoCoreError.

        """
        now = self._clock()
        found = RowFindings(ulid(now, secrets.randbits(RANDOM_BITS)), now)
        found.after = None if dry_run else self._last_place()
        while True:
            found.after = self._page(found, found.after, now)
            if found.after is None or remaining_seconds() < RESERVE_SECONDS:
                break
        if not dry_run:
            self._keep_place(found.after)
        return found

    def _page(self, found: RowFindings, after: RowKey | None, now: int) -> RowKey | None:
        """Count the rows of one page. Returns the place of the next one."""
        begin: Any = {} if after is None else {"ExclusiveStartKey": {"pk": {"S": after.pk}, "sk": {"S": after.sk}}}
        page = self._client.scan(
            TableName=self._table,
            FilterExpression="#sk >= :least AND #sk < :most AND #status IN (:processing, :failed)",
            ProjectionExpression=", ".join(f"#{name}" for name in _ATTRIBUTES),
            ExpressionAttributeNames={f"#{name}": name for name in _ATTRIBUTES},
            ExpressionAttributeValues={
                ":least": {"S": f"{self._pipeline}@"},
                ":most": {"S": f"{self._pipeline}A"},  # `A` follows `@`
                ":processing": {"S": Status.PROCESSING.value},
                ":failed": {"S": Status.FAILED.value},
            },
            **begin,
        )
        own = f"{self._bucket}/"
        for item in map(from_dynamodb, page["Items"]):
            if not item["pk"].startswith(own):
                continue
            found.unfinished += 1
            if item["status"] == Status.PROCESSING:
                claimed_at = item.get("updated_at", now)
                found.oldest_claim_at = min(found.oldest_claim_at or claimed_at, claimed_at)
            until = max(item.get(name, 0) for name in ("lease_until", "retry_at", "updated_at"))
            if until + STUCK_MS <= now:
                found.stuck += 1
                if len(found.keys) < _NAMED:
                    found.keys.append(item["pk"].removeprefix(own))
        last: Any = page.get("LastEvaluatedKey")
        return RowKey(last["pk"]["S"], last["sk"]["S"]) if last else None

    def _last_place(self) -> RowKey | None:
        item = self._client.get_item(TableName=self._table, Key=self._place, ConsistentRead=True).get("Item", {})
        place = json.loads(item["after"]["S"]) if "after" in item else None
        return RowKey(*place) if place else None

    def _keep_place(self, after: RowKey | None) -> None:
        if after is None:
            self._client.delete_item(TableName=self._table, Key=self._place)
            return
        content: Any = {**self._place, "after": {"S": json.dumps([after.pk, after.sk])}}
        self._client.put_item(TableName=self._table, Item=content)


def check_requests(
    client: "DynamoDBClient", settings: ConsumerSettings, queues: Queues, *, now: int, has_time: Callable[[], bool]
) -> RequestFindings:
    """Look at the redriven messages that no attempt has begun. Rows whose message is gone say so.

    Args:
        client: the client.
        settings: those of the intake.
        queues: its queues.
        now: epoch milliseconds.
        has_time: true while the function has time.

    Raises:
        ClientError: AWS refuses a request. Also BotoCoreError.

    """
    seen: list[bool] = []
    kept_ms = settings.max_hold_seconds / HOLD_SHARE * 1000

    def is_lost(sent_at: int) -> bool:
        if now - sent_at > kept_ms:
            return True
        seen[:] = seen or [queues.is_empty()]
        return seen[0]

    check = RequestCheck(client, queues, settings, clock=lambda: now, look=lambda *_: ABSENT, is_lost=is_lost)
    return check.run(check.due(now - SENT_MS), has_time=has_time)


def is_due(client: "DynamoDBClient", settings: ConsumerSettings, *, every_seconds: int, now: int) -> bool:
    """True if the last check of the rows began so long ago, or at a tick that was a little later."""
    key: Any = {"pk": {"S": settings.bucket}, "sk": {"S": f"{settings.pipeline}@audit"}}
    item = from_dynamodb(client.get_item(TableName=settings.table, Key=key).get("Item", {}))
    last = json.loads(item["last_report"])["startedAt"] if "last_report" in item else 0
    return bool(last + every_seconds * 1000 - TICK_MS // 2 <= now)


def tick(
    settings: ConsumerSettings,
    queues: Queues,
    clock: Callable[[], int],
    context: InvocationContext,
    *,
    sources: SourceCheck,
    event: Mapping[str, Any],
) -> dict[str, Any]:
    """Check the delivery, and the rows if that is due. Without `everySeconds` it is. Returns the report."""
    looked, is_dry_run = sources.look(), event.get("dryRun") is True
    PowertoolsAuditTelemetry().delivery_checked(looked.problems, looked.unknown, count=not is_dry_run)
    problems = [*looked.problems, *looked.unknown]
    every_seconds = event.get("everySeconds")
    if every_seconds is not None and not is_due(ledger_client(), settings, every_seconds=every_seconds, now=clock()):
        return {"skipped": "the rows were checked before", "delivery": problems}
    return check_rows(settings, queues, clock, context, dry_run=is_dry_run, delivery=problems)


def check_rows(
    settings: ConsumerSettings,
    queues: Queues,
    clock: Callable[[], int],
    context: InvocationContext,
    *,
    dry_run: bool,
    delivery: Sequence[str] = (),
) -> dict[str, Any]:
    """Check the rows of the intake with these settings, and write the report. Returns it."""
    client = ledger_client()
    check = RowCheck(
        client,
        table=settings.table,
        pipeline=settings.pipeline,
        bucket=settings.bucket,
        clock=clock,
    )

    def remaining_seconds() -> float:
        return context.get_remaining_time_in_millis() / 1000

    if not dry_run:
        # Before the scan, which may take all of the time.
        requests_checked(
            check_requests(
                client, settings, queues, now=clock(), has_time=lambda: remaining_seconds() > RESERVE_SECONDS
            )
        )
    found = check.run(remaining_seconds, dry_run=dry_run)
    report = found.as_json() | {"dryRun": dry_run, "delivery": [*delivery]}
    counts, ages = ({}, {}) if dry_run else (found.counts(), claim_ages(found.oldest_claim_at, found.started_at))
    publish_report(client, settings, report, counts=counts, ages=ages)
    return report
