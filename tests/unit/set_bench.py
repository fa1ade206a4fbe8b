"""A pipeline of parts and a pipeline of sets, with S3, SQS and DynamoDB in memory and the real consumers."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from cdk_intake_ledger.testing import DeadLetter, LambdaContext, MemoryDynamoDB
from intake_ledger import Commit, FileSet, ObjectChange
from intake_ledger.aws import Bucket, Queues
from intake_ledger.consumer import Consumer, Services
from intake_ledger.ledger import Ledger, LedgerOptions, LedgerTable
from intake_ledger.protocol import ConsumerSettings, KeyFilter, Ordering, Policy, Row, RowKey, row_key
from intake_ledger.set_members import FormSettings, Membership, SetTarget, Wakes
from intake_ledger.sets import SetSettings
from tests.inside.kit import (
    DEAD_LETTER_URL,
    QUEUE_URL,
    MemoryS3,
    MemorySQS,
    OutcomeCounter,
    object_consumer,
    object_ledger,
    s3_notification,
)
from tests.inside.objects import Inline
from tests.inside.sets import SetAudit, SetFindings, Sets, SetWakes, WaitingSets
from tests.unit.support import BUCKET, DAY, HOUR, RETENTION, START

if TYPE_CHECKING:
    from intake_ledger.observability import Telemetry

PARTS, SETS = "parts", "sets"
SET_QUEUE_URL = "memory://sets"
FUNCTION_SECONDS = 130
VISIBILITY_SECONDS = 280
MAX_WAIT = 72 * 3600
WARM = False
"""Whether benches keep their consumers over all invocations."""


def settings_of(pipeline: str, filters: Sequence[KeyFilter] = ()) -> ConsumerSettings:
    """The settings of either pipeline."""
    return ConsumerSettings(
        pipeline=pipeline,
        bucket=BUCKET,
        bucket_owner=None,
        table="ledger",
        queue_url=QUEUE_URL,
        ordering=Ordering.LATEST,
        deletes=False,
        retention_seconds=RETENTION // 1000,
        clock_skew_seconds=120,
        filters=tuple(filters),
        keeps_rows=True,
        dlq_url=DEAD_LETTER_URL,
        processor="",
        processing_timeout_seconds=60,
        max_attempts=4,
        min_backoff_seconds=15,
        max_backoff_seconds=900,
        max_event_age_seconds=21_600,
        max_wait_seconds=MAX_WAIT,
        # As `set_settings` does.
        directory_markers=pipeline == SETS,
    )


class Killed(KeyboardInterrupt):
    """The worker's process has ended. No code of the worker can catch it."""


@dataclass(frozen=True)
class Run:
    """One call of the set's processor."""

    key: str
    version: str
    manifest: str | None
    parts: tuple[tuple[str, str | None], ...]
    """Key and version of each part."""
    at: int


@dataclass
class Pipeline:
    """One of the two pipelines."""

    queue: MemorySQS
    verdicts: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    late_writes: int = 0
    removed_unprocessed: int = 0


class SetBench:
    """Objects are put with `put`, and `run` delivers all messages until there are none."""

    def __init__(
        self,
        form: FormSettings,
        *,
        filters: Sequence[KeyFilter] = (),
        versioned: bool = True,
        process: Callable[[FileSet], Commit | str | None] = lambda _: None,
        process_part: Callable[[ObjectChange], None] = lambda _: None,
        max_wait: int = MAX_WAIT,
        warm: bool | None = None,
    ) -> None:
        """Make both pipelines.

        With `warm`, each pipeline keeps one consumer over all invocations, as a warm function does. Otherwise each
        invocation has a new one. `WARM` when omitted.
        """
        self.now = START
        self.form = form
        self.s3 = MemoryS3(clock=self.clock, versioned=versioned)
        self.dynamodb = MemoryDynamoDB()
        self.table = LedgerTable(cast("Any", self.dynamodb), "ledger")
        self.parts = Pipeline(MemorySQS(clock=self.clock, visibility_seconds=VISIBILITY_SECONDS))
        self.sets = Pipeline(MemorySQS(clock=self.clock, visibility_seconds=VISIBILITY_SECONDS))
        self.settings = SetSettings(replace(settings_of(SETS), max_wait_seconds=max_wait), form, PARTS, tuple(filters))
        self.part_settings = settings_of(PARTS, filters)
        self.process = process
        self.process_part = process_part
        self.runs: list[Run] = []
        self.part_calls: list[str] = []
        self.wakes: list[str] = []
        self.before_wake: list[Callable[[], object]] = []
        """Hooks that run once each before a wake is sent. They may raise."""
        self._owners = 0
        if WARM if warm is None else warm:
            self.set_consumer = cache(self.set_consumer)  # type: ignore[method-assign]
            self.part_consumer = cache(self.part_consumer)  # type: ignore[method-assign]

    def clock(self) -> int:
        return self.now

    @property
    def dead_letters(self) -> list[DeadLetter]:
        return self.sets.queue.dead_letters

    def put(self, key: str, content: bytes | str = "content") -> str | None:
        """Upload an object, and return its version."""
        version = self.s3.put(key, content.encode() if isinstance(content, str) else content)
        self._notify(key, "ObjectCreated:Put", version.version_id, version.etag)
        return version.version_id

    def notify_current(self, key: str) -> None:
        """Send the event of the current version of a key."""
        version = self.s3.current(key)
        assert version is not None
        self._notify(key, "ObjectCreated:Put", version.version_id, version.etag)

    def delete(self, key: str) -> None:
        """Delete an object without naming its version."""
        marker = self.s3.delete(key)
        event = "ObjectRemoved:DeleteMarkerCreated" if marker else "ObjectRemoved:Delete"
        self._notify(key, event, marker.version_id if marker else None, None)

    def put_replica(self, key: str, content: bytes | str = "content", *, days: int = 30) -> str | None:
        """Upload an object whose Last-Modified is some days old, as replication does."""
        version = self.s3.put(key, content.encode() if isinstance(content, str) else content)
        replica = replace(version, modified=version.modified - timedelta(days=days))
        self.s3.keys[key] = [replica if one is version else one for one in self.s3.keys[key]]
        self._notify(key, "ObjectCreated:Put", version.version_id, version.etag)
        return version.version_id

    def expire(self, key: str) -> None:
        """Delete an object as a lifecycle rule does."""
        marker = self.s3.delete(key)
        event = "LifecycleExpiration:DeleteMarkerCreated" if marker else "LifecycleExpiration:Delete"
        self._notify(key, event, marker.version_id if marker else None, None)

    def delete_version(self, key: str, version_id: str | None) -> None:
        """Delete a version for good."""
        self.s3.delete_version(key, version_id)
        self._notify(key, "ObjectRemoved:Delete", version_id, None)

    def run_parts(self) -> None:
        """Deliver all messages of the parts' pipeline."""
        self._deliver([(self.parts, self._invoke_parts)], until=None)

    def run(self, hours: float | None = None) -> None:
        """Deliver all messages, or those that become visible within some hours."""
        pipelines = [(self.parts, self._invoke_parts), (self.sets, self._invoke_sets)]
        self._deliver(pipelines, until=None if hours is None else self.now + int(hours * HOUR))

    def row(self, key: str, pipeline: str = SETS) -> Row | None:
        return self.table.get(self.row_key(key, pipeline))

    def known(self, key: str, pipeline: str = SETS) -> Row:
        row = self.row(key, pipeline)
        assert row is not None
        return row

    def row_key(self, key: str, pipeline: str = SETS) -> RowKey:
        return row_key(pipeline, Ordering.LATEST, BUCKET, key, None)

    def committed(self, key: str) -> str:
        """The version of the part that is committed."""
        return str(self.known(key, PARTS).committed_state).removeprefix("v#")

    def bucket(self) -> Bucket:
        return Bucket(lambda: cast("Any", self.s3), BUCKET)

    def audit(
        self,
        remaining_seconds: float | Callable[[], float] = 60,
        *,
        dry_run: bool = False,
        publish: Callable[[Mapping[str, int]], object] = lambda _: None,
    ) -> SetFindings:
        """Run the audit of sets."""
        waiting = WaitingSets(cast("Any", self.dynamodb), "ledger")
        kind, left = self.kind(), remaining_seconds
        audit = SetAudit(self.settings, self.set_services(kind), waiting, reader=kind.reader, rows=self.table)
        return audit.run(left if callable(left) else lambda: left, dry_run=dry_run, publish=publish)

    def lose_wakes(self) -> None:
        """Empty the queue of the sets."""
        self.sets.queue = MemorySQS(clock=self.clock, visibility_seconds=VISIBILITY_SECONDS)

    def set_consumer(self) -> Consumer:
        kind = self.kind()
        return Consumer(self.set_services(kind), kind, Inline(self._process))

    def kind(self) -> Sets:
        """The kind of a new worker."""
        return Sets(self.settings, self.table, self.bucket(), self.membership(), self.clock)

    def set_services(self, kind: Sets) -> Services:
        consumer = self.settings.consumer
        options = _options(consumer)
        ledger = Ledger(self.table, kind.look, options, clock=self.clock, new_owner=self._new_owner)
        return self._services(consumer, ledger, kind.bucket, self.sets)

    def part_consumer(self) -> Consumer:
        bucket, settings = self.bucket(), self.part_settings
        ledger = object_ledger(self.table, bucket, _options(settings), clock=self.clock, new_owner=self._new_owner)
        services = self._services(settings, ledger, bucket, self.parts)
        wakes = Wakes(
            [SetTarget(SETS, SET_QUEUE_URL, self.form)], self.membership(), bucket=BUCKET, send=self._send_wake
        )
        return object_consumer(
            services, self._process_part, sets=SetWakes(settings, services.telemetry, wakes, clock=self.clock)
        )

    def membership(self) -> Membership:
        return Membership(cast("Any", self.dynamodb), "ledger", BUCKET)

    def _services(self, settings: ConsumerSettings, ledger: Ledger, bucket: Bucket, pipeline: Pipeline) -> Services:
        telemetry: Telemetry = OutcomeCounter(pipeline)
        queues = Queues(lambda: cast("Any", pipeline.queue), QUEUE_URL, DEAD_LETTER_URL)
        return Services(settings, ledger, bucket, queues, telemetry, clock=self.clock, jitter=lambda: 0.5)

    def _deliver(
        self, pipelines: Sequence[tuple[Pipeline, Callable[[list[dict[str, Any]]], None]]], until: int | None
    ) -> None:
        while times := [at for pipeline, _ in pipelines if (at := pipeline.queue.next_visible_at()) is not None]:
            if until is not None and min(times) > until:
                self.now = until
                return
            self.now = max(self.now, min(times))
            for pipeline, invoke in pipelines:
                if batch := pipeline.queue.receive(10, lambda visible: visible):
                    invoke(batch)
            self.now += 1_000
            assert self.now < START + 100 * DAY, "the messages never end"

    def _invoke_parts(self, batch: list[dict[str, Any]]) -> None:
        self._invoke(self.part_consumer(), self.parts, batch)

    def _invoke_sets(self, batch: list[dict[str, Any]]) -> None:
        self._invoke(self.set_consumer(), self.sets, batch)

    def _invoke(self, consumer: Consumer, pipeline: Pipeline, batch: list[dict[str, Any]]) -> None:
        context = LambdaContext(FUNCTION_SECONDS, clock=lambda: self.now / 1000)
        try:
            answer = consumer.handle({"Records": batch}, context)
        except Killed:
            return
        failed = {one["itemIdentifier"] for one in answer["batchItemFailures"]}
        pipeline.queue.delete(one["messageId"] for one in batch if one["messageId"] not in failed)

    def _process(self, files: FileSet) -> Commit | str | None:
        self.runs.append(
            Run(
                files.key,
                files.version,
                files.manifest.version_id if files.manifest else None,
                tuple((part.key, part.version_id or part.etag) for part in files.parts),
                self.now,
            )
        )
        return self.process(files)

    def _process_part(self, change: ObjectChange) -> None:
        self.part_calls.append(change.key)
        self.process_part(change)

    def _send_wake(self, url: str, body: str) -> None:
        assert url == SET_QUEUE_URL
        if self.before_wake:
            self.before_wake.pop(0)()
        self.wakes.append(body)
        self.sets.queue.send(body)

    def _notify(self, key: str, event: str, version_id: str | None, etag: str | None) -> None:
        self.now += 1_000
        time = datetime.fromtimestamp(self.now / 1000, UTC)
        self.parts.queue.send(
            s3_notification(
                BUCKET, key, event=event, version_id=version_id, etag=etag, size=1, sequencer="00", time=time
            )
        )

    def _new_owner(self) -> str:
        self._owners += 1
        return f"worker-{self._owners}"


def _options(settings: ConsumerSettings) -> LedgerOptions:
    policy = Policy.of(settings)
    return LedgerOptions(settings.pipeline, settings.ordering, policy, settings.max_event_age_seconds * 1000)
