"""A whole pipeline around a processor, in one process and in its own time, without AWS.

    def test_every_invoice_counts_once():
        pipeline = LocalPipeline(invoices.process)
        pipeline.put("a.csv", "10 EUR")
        pipeline.put("a.csv", "20 EUR")
        pipeline.put("poison.csv", "what?")
        pipeline.duplicate()
        pipeline.reverse()
        pipeline.next(Fault.KILLED_AFTER_EFFECT, Fault.TIMED_OUT, Fault.OVERTAKEN)
        pipeline.run()
        assert saved == {"a.csv": 20}
        assert [one.reason for one in pipeline.dead_letters] == ["no invoice in it"]

The consumer, the ledger and the reading of S3 are the ones that run in Lambda; DynamoDB, S3 and SQS are in memory, and
waits take no time.
"""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, cast, override

from botocore.exceptions import ClientError

from intake_ledger.aws import Bucket, NotDone, Queues
from intake_ledger.consumer import Consumer, Overrun, ProcessingTime, Services
from intake_ledger.ledger import Answer, Claim, CompletenessRecord, Ledger, LedgerOptions, LedgerTable
from intake_ledger.observability import OutcomeKind, Telemetry
from intake_ledger.processor.object_change import Commit, ObjectChange, Processor
from intake_ledger.protocol import Change, ConsumerSettings, Fenced, Ordering, Policy, Reason, Reasons, Row, row_key
from intake_ledger_testing import events
from intake_ledger_testing.context import LambdaContext
from intake_ledger_testing.memory_dynamodb import MemoryDynamoDB
from intake_ledger_testing.memory_s3 import MemoryS3, Version
from intake_ledger_testing.memory_sqs import DEAD_LETTER_URL, QUEUE_URL, DeadLetter, MemorySQS, Message
from intake_ledger_testing.transaction_rules import check_transaction

BUCKET, PIPELINE, TABLE = "local-bucket", "local", "ledger"
START = datetime(2026, 1, 1, tzinfo=UTC)
"""Where the time of every pipeline begins."""
BATCH_SIZE = 10
_CLOCK_SKEW_SECONDS, _RETENTION_SECONDS, _LATE_AFTER_SECONDS = 120, 35 * 86_400, 6 * 3_600
_MIN_BACKOFF_SECONDS, _MAX_BACKOFF_SECONDS = 15, 1_800
_RETURN_MARGIN_SECONDS = 30
_DUPLICATED = _ENDS_BADLY = 0.25


class Fault(StrEnum):
    """How a call of the processor can end badly through no fault of its own."""

    KILLED_BEFORE_EFFECT = "the worker dies before the processor has done anything"
    KILLED_AFTER_EFFECT = "the worker dies when the processor has done its work, and nobody learns of it"
    TIMED_OUT = "the processor is interrupted when it has done its work: its time was over"
    CONNECTION_CUT = "the connection to S3 ends in the middle of the object that the processor reads"
    OVERTAKEN = (
        "the worker stands still until others have done all work; then its effect lands, and its commit is refused"
    )
    OVERTAKEN_AND_KILLED = "the same, but the worker dies after its late effect: nothing repairs it. Never at random"


_STANDSTILLS = frozenset({Fault.OVERTAKEN, Fault.OVERTAKEN_AND_KILLED})
_MOST_STANDSTILLS = 10
"""Workers that stand still at the same time: each waits for those after it. Further ones wait for their turn."""


class LocalPipeline:
    """A pipeline that lives in a test. What happens to its bucket queues what S3 would send; `run` delivers it."""

    def __init__(
        self,
        processor: Processor,
        *,
        ordering: Ordering = Ordering.LATEST,
        deletes: bool = False,
        versioned: bool = True,
        max_attempts: int = 12,
        processing_timeout: int = 60,
        commit_together: bool = False,
        reasons: Reasons = Reasons.TYPES,
        max_wait: int = 3 * 86_400,
    ) -> None:
        """Make a pipeline with an empty bucket.

        Args:
            processor: the team's function.
            ordering: as the construct's; `LATEST` when omitted.
            deletes: as the construct's; the processor is not called for removals when omitted.
            versioned: whether the bucket keeps versions; it does when omitted.
            max_attempts: as in `RetryOptions`; 12 when omitted.
            processing_timeout: in real seconds, a minute when omitted: a processor that hangs is interrupted then.
            commit_together: as the construct's; each change is committed alone when omitted. There is no
                `concurrency`: threads would make each run another one.
            reasons: as the construct's; exception types and positions when omitted.
            max_wait: as in `RetryOptions`, in seconds of the pipeline's own time; three days when omitted.

        """
        self._processor = processor
        self._now = int(START.timestamp()) * 1000
        self._settings = ConsumerSettings(
            pipeline=PIPELINE,
            bucket=BUCKET,
            bucket_owner=None,
            table=TABLE,
            queue_url=QUEUE_URL,
            ordering=ordering,
            deletes=deletes,
            retention_seconds=_RETENTION_SECONDS,
            clock_skew_seconds=_CLOCK_SKEW_SECONDS,
            dlq_url=DEAD_LETTER_URL,
            processor="",
            processing_timeout_seconds=processing_timeout,
            max_attempts=max_attempts,
            min_backoff_seconds=_MIN_BACKOFF_SECONDS,
            max_backoff_seconds=_MAX_BACKOFF_SECONDS,
            max_event_age_seconds=_LATE_AFTER_SECONDS,
            commit_together=commit_together,
            reasons=reasons,
            max_wait_seconds=max_wait,
            # As the construct does.
            keeps_rows=deletes,
        )
        self._function_seconds = min(2 * processing_timeout + 10, 900)
        self._visibility_seconds = self._function_seconds + _CLOCK_SKEW_SECONDS + _RETURN_MARGIN_SECONDS
        self._s3 = MemoryS3(clock=self._clock, versioned=versioned)
        self._sqs = MemorySQS(clock=self._clock, visibility_seconds=self._visibility_seconds)
        self._dynamodb: MemoryDynamoDB = _DynamoDB()
        self._table = LedgerTable(cast("Any", self._dynamodb), TABLE)
        # Workers of one environment, after its start.
        self._completeness = CompletenessRecord(self._settings, self._table, self._clock)
        self._batch_size = BATCH_SIZE
        self._pace: ProcessingTime | None = None
        self._faults: list[Fault | None] = []
        self._standing_still = 0
        self._random: random.Random | None = None
        self._events = self._owners = self._requests = 0
        self.calls: list[ObjectChange] = []
        """Every change that the processor was called for."""
        self.verdicts: Counter[str] = Counter()
        """What the ledger answered, by verdict: `ACCEPTED`, `DUPLICATE`, `STALE`, `BUSY` and so on."""
        self.outcomes: Counter[str] = Counter()
        """How accepted claims ended: `Committed`, `Failed`, `Rejected`, `Fenced`, `VersionGone`,
        `Waiting`."""

        self.late_writes = 0
        """How often a worker that was overtaken reported that it may have written after its successor."""

    # What happens to the bucket.

    def put(self, key: str, content: bytes | str) -> str | None:
        """Upload; the version's id, if the bucket keeps versions.

        Args:
            key: of the object.
            content: a text becomes UTF-8.

        """
        version = self._s3.put(key, content.encode() if isinstance(content, str) else content)
        self._notify(key, "ObjectCreated:Put", version.version_id, version)
        return version.version_id

    def delete(self, key: str) -> str | None:
        """Delete without naming a version; the delete marker's id, if the bucket keeps versions.

        Args:
            key: of the object; one that is not there may be deleted too.

        """
        marker = self._s3.delete(key)
        if marker is None:
            self._notify(key, "ObjectRemoved:Delete", None)
            return None
        self._notify(key, "ObjectRemoved:DeleteMarkerCreated", marker.version_id)
        return marker.version_id

    def delete_version(self, key: str, version_id: str) -> None:
        """Delete one version for good, or take a delete marker away.

        Args:
            key: of the object.
            version_id: as `put` or `delete` returned it.

        """
        self._s3.delete_version(key, version_id)
        self._notify(key, "ObjectRemoved:Delete", version_id)

    def archive(self, key: str) -> None:
        """A lifecycle rule moves the object to an archive: S3 shows it, and refuses to hand it out.

        Args:
            key: of the object.

        """
        self._s3.archived.add(key)

    def restore(self, key: str) -> None:
        """An archived object is restored, and S3 notifies that.

        Args:
            key: of the object.

        """
        self._s3.archived.discard(key)
        shown = self._s3.current(key)
        self._notify(key, "ObjectRestore:Completed", shown.version_id if shown else None, shown)

    # What happens to the messages.

    def send(self, body: str) -> None:
        """Put any message into the queue.

        Args:
            body: `intake_ledger_testing.events` builds them, and garbage is welcome.

        """
        self._sqs.send(body)

    def duplicate(self) -> None:
        """S3 sends everything that is waiting a second time."""
        for one in list(self._sqs.messages):
            self._sqs.send(one.body, one.attributes)

    def reverse(self) -> None:
        """What was sent last is delivered first."""
        self._sqs.messages.reverse()

    def lose(self) -> None:
        """Nothing that is waiting is ever delivered; `audit` is what finds out."""
        self._sqs.messages.clear()

    def audit(self, key: str) -> None:
        """The audit takes a key for lost and sends its wake-up.

        Args:
            key: one whose events were lost, or any other.

        """
        shown = self._s3.current(key)
        if shown is None or shown.etag is None:
            self.send(events.audit_message(BUCKET, key))
        else:
            self.send(events.audit_message(BUCKET, key, version_id=shown.version_id, etag=shown.etag))

    def reprocess(self, key: str, version_id: str | None = None) -> None:
        """A person asks for a key to be processed again.

        Args:
            key: of the object.
            version_id: which version, in `EVERY_VERSION`; what is current when omitted.

        """
        self._requests += 1
        name = f"{self._requests:026d}"
        self.send(events.reprocess_message(BUCKET, key, reprocess_id=name, version_id=version_id))

    def redrive(self) -> None:
        """A person moves everything in the dead-letter queue back."""
        for one in self._sqs.dead_letters:
            self._sqs.send(one.body, one.attributes)
        self._sqs.dead_letters.clear()

    def next(self, *faults: Fault | None) -> None:
        """Say how the next calls of the processor end; those after them end as they end.

        While a worker is overtaken, the calls of the others take the next faults.

        Args:
            faults: one for each call; None for one that ends as it ends.

        """
        self._faults.extend(faults)

    def run(self, *, seed: int | None = None) -> None:
        """Deliver until nothing is left, however often a message has to come back.

        Args:
            seed: messages come in random order, one in four a second time later, and one call of the processor in
                four ends in a random `Fault`. The same seed does the same again. When omitted, messages come in the
                order of the queue, once.

        """
        self._random = None if seed is None else random.Random(seed)  # noqa: S311 - it has to be repeatable
        if self._random is not None:
            for one in self._random.sample(self._sqs.messages, round(len(self._sqs.messages) * _DUPLICATED)):
                self._sqs.send(one.body, one.attributes)
        self._deliver_all()
        self._random = None

    # What came of it.

    def row(self, key: str, version_id: str | None = None) -> Row | None:
        """The ledger's row: `status`, `attempts`, `reason`, `commit` and so on; None when there is none.

        Args:
            key: of the object.
            version_id: in `EVERY_VERSION`, which has a row for each; that of the current one when omitted.

        """
        shown = self._s3.current(key)
        etag = shown.etag if shown else None
        found = version_id or (shown.version_id if shown else None)
        identity = f"v#{found}" if found else f"e#{etag}" if etag else "absent"
        return self._table.get(row_key(PIPELINE, self._settings.ordering, BUCKET, key, identity))

    @property
    def dead_letters(self) -> Sequence[DeadLetter]:
        """The dead-letter queue."""
        return self._sqs.dead_letters

    @property
    def transacted(self) -> Sequence[Mapping[str, Any]]:
        """Elements that `Commit(transact=...)` has written, in order, each once. Those that AWS would refuse for any
        content of the tables are refused here too. There are no tables, and conditions are not evaluated.
        """
        return self._dynamodb.transacted

    @property
    def now(self) -> int:
        """The pipeline's own time, in epoch milliseconds. It begins on 2026-01-01 and passes while messages wait."""
        return self._now

    @property
    def waiting(self) -> int:
        """The number of messages in the queue."""
        return len(self._sqs.messages)

    # How it goes.

    def _clock(self) -> int:
        return self._now

    def _notify(self, key: str, event: str, version_id: str | None, version: Version | None = None) -> None:
        self._events += 1
        self.send(
            events.s3_notification(
                BUCKET,
                key,
                event=event,
                version_id=version_id,
                etag=version.etag if version else None,
                size=len(version.content or b"") if version else None,
                sequencer=f"{self._events:016X}",
                time=datetime.fromtimestamp(self._now / 1000, UTC),
            )
        )
        self._now += 1_000

    def _deliver_all(self) -> None:
        while (visible_at := self._sqs.next_visible_at()) is not None:
            self._now = max(self._now, visible_at)
            if batch := self._sqs.receive(self._batch_size, self._order):
                self._invoke(batch)
            self._now += 1_000

    def _order(self, visible: Sequence[Message]) -> Sequence[Message]:
        return visible if self._random is None else self._random.sample(visible, len(visible))

    def _invoke(self, batch: list[dict[str, Any]]) -> None:
        """One worker, and what Lambda does with its answer."""
        bucket = Bucket(lambda: cast("Any", self._s3), BUCKET)
        settings = self._settings
        policy = Policy(settings.max_attempts, settings.retention_seconds * 1000, settings.deletes, settings.keeps_rows)
        # Each worker is a new one, and has yet to find its pace; only what is claimed in groups is committed together.
        pace = self._pace or (ProcessingTime(0.0) if settings.commit_together else None)
        options = LedgerOptions(PIPELINE, settings.ordering, policy, settings.max_event_age_seconds * 1000)
        consumer = Consumer(
            Services(
                settings,
                Ledger(
                    self._table,
                    bucket,
                    options,
                    clock=self._clock,
                    new_owner=self._new_owner,
                    completeness=self._completeness,
                ),
                bucket,
                Queues(lambda: cast("Any", self._sqs), QUEUE_URL, DEAD_LETTER_URL),
                telemetry=_Record(self),
                clock=self._clock,
                jitter=lambda: 0.5,
            ),
            self._call,
            processing_time=pace,
        )
        context = LambdaContext(self._function_seconds, clock=lambda: self._now / 1000)
        try:
            answer = consumer.handle({"Records": batch}, context)
        except _Killed:
            return
        failed = {one["itemIdentifier"] for one in answer["batchItemFailures"]}
        self._sqs.delete(one["messageId"] for one in batch if one["messageId"] not in failed)

    def _call(self, change: ObjectChange) -> Commit | str | None:
        fault = self._fault()
        if fault is Fault.KILLED_BEFORE_EFFECT:
            raise _Killed
        if fault in _STANDSTILLS:
            self._stand_still()
        if fault is Fault.CONNECTION_CUT and change.kind == "created":
            self._s3.cut()
        self.calls.append(change)
        returned = self._processor(change)
        if fault in (Fault.KILLED_AFTER_EFFECT, Fault.OVERTAKEN_AND_KILLED):
            raise _Killed
        if fault is Fault.TIMED_OUT:
            raise Overrun
        return returned

    def _fault(self) -> Fault | None:
        if self._faults and not (self._faults[0] in _STANDSTILLS and self._standing_still == _MOST_STANDSTILLS):
            return self._faults.pop(0)
        if self._random is not None and self._random.random() < _ENDS_BADLY:
            return self._random.choice([one for one in Fault if one is not Fault.OVERTAKEN_AND_KILLED])
        return None

    def _stand_still(self) -> None:
        """Until the message is visible again, and other workers have done everything. Theirs are the next faults."""
        seed, self._random = self._random, None
        self._standing_still += 1
        self._now += self._visibility_seconds * 1000
        self._deliver_all()
        self._standing_still -= 1
        self._random = seed

    def _new_owner(self) -> str:
        self._owners += 1
        return f"worker-{self._owners}"


class _DynamoDB(MemoryDynamoDB):
    """Refuses the processor's writes where AWS would, so that a test that passes here also holds on AWS."""

    @override
    def transact_write_items(self, **request: Any) -> dict[str, Any]:
        _, *others = request["TransactItems"]
        check_transaction(others)
        return super().transact_write_items(**request)


class _Killed(KeyboardInterrupt):
    """The worker's process is gone: nothing in it can catch this."""


class _Record(Telemetry):
    """Counts in place of logging. Trouble that only a mistake can cause is not swallowed."""

    def __init__(self, pipeline: LocalPipeline) -> None:
        self._pipeline = pipeline

    @override
    def decided(self, change: Change, answer: Answer, *, now: int) -> None:
        self._pipeline.verdicts[answer.verdict.value] += 1

    @override
    def ended(self, claim: Claim, outcome: OutcomeKind, reason: Reason | None = None, *, duration_ms: int) -> None:
        self._pipeline.outcomes[outcome.value] += 1

    @override
    def late_write(self, claim: Claim) -> None:
        self._pipeline.late_writes += 1

    @override
    def waited_too_long(self) -> None: ...

    @override
    def exhausted(self, change: Change, row: Row) -> None:
        self._pipeline.outcomes[OutcomeKind.REJECTED.value] += 1

    @override
    def unparseable(self, reason: Reason, message_id: str) -> None: ...

    @override
    def filtered_out(self, change: Change) -> None: ...

    @override
    def ignored(self, why: str) -> None: ...

    @override
    def log_error(self, text: str, message_id: str, error: Exception) -> None:
        # A worker that was overtaken may neither release its claim nor hide its message.
        if not isinstance(error, Fenced | ClientError | NotDone):
            raise error

    @override
    def downstream_out(self, reason: Reason | None, *, pause_ms: int) -> None: ...

    @override
    def downstream_back(self) -> None: ...

    @override
    def held_back(self) -> None: ...

    @override
    def process_ends(self, keys: Sequence[str]) -> None: ...

    @override
    def flush(self) -> None: ...
