"""A pipeline around a processor in one process, with its own time and without AWS.

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

The consumer, the ledger and the reader of S3 are the code that runs in Lambda. DynamoDB, S3 and SQS are in memory, and
waiting takes no real time.
"""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, override

from intake_ledger.processor import ObjectChange, Processor
from intake_ledger.protocol import ConsumerSettings, Ordering, Reasons, Row, row_key
from intake_ledger_testing import events
from intake_ledger_testing.faults import Fault
from intake_ledger_testing.local_runtime import LocalRuntime
from intake_ledger_testing.memory_sqs import DEAD_LETTER_URL, QUEUE_URL, DeadLetter

BUCKET, PIPELINE, TABLE = "local-bucket", "local", "ledger"
START = datetime(2026, 1, 1, tzinfo=UTC)
"""The start of each pipeline's time."""
_CLOCK_SKEW_SECONDS, _RETENTION_SECONDS, _LATE_AFTER_SECONDS = 120, 35 * 86_400, 6 * 3_600
_MIN_BACKOFF_SECONDS, _MAX_BACKOFF_SECONDS = 15, 1_800
_DUPLICATE_RATE = 0.25


class LocalPipeline(LocalRuntime):
    """A pipeline for tests. Each change of its bucket sends a message, and `run` delivers the messages."""

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
        """Create a pipeline with an empty bucket.

        Args:
            processor: your function.
            ordering: as the construct's; `LATEST` when omitted.
            deletes: as the construct's; the processor is not called for removals when omitted.
            versioned: True if the bucket keeps versions; True when omitted.
            max_attempts: as in `RetryOptions`; 12 when omitted.
            processing_timeout: in real seconds; 60 when omitted. A processor that hangs is interrupted then.
            commit_together: as the construct's; each change is committed alone when omitted. There is no
                `concurrency`, because threads would make runs differ.
            reasons: as the construct's; exception types and positions when omitted.
            max_wait: as in `RetryOptions`, in seconds of the pipeline's time; three days when omitted.

        """
        settings = ConsumerSettings(
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
        super().__init__(processor, settings, now=int(START.timestamp()) * 1000, versioned=versioned)
        self._requests = 0
        self.calls: list[ObjectChange] = []
        """The change of each call of the processor."""
        self.verdicts: Counter[str] = Counter()
        """The ledger's verdicts: `ACCEPTED`, `DUPLICATE`, `STALE`, `BUSY` and so on."""
        self.outcomes: Counter[str] = Counter()
        """The outcomes of accepted claims: `Committed`, `Failed`, `Rejected`, `Fenced`, `VersionGone`, `Waiting`."""
        self.late_writes = 0
        """The number of overtaken workers that reported a possible write after their successor's."""

    def put(self, key: str, content: bytes | str) -> str | None:
        """Upload an object, and return its version ID if the bucket keeps versions.

        Args:
            key: of the object.
            content: a text becomes UTF-8.

        """
        version = self._s3.put(key, content.encode() if isinstance(content, str) else content)
        self._notify(key, "ObjectCreated:Put", version.version_id, version)
        return version.version_id

    def delete(self, key: str) -> str | None:
        """Delete an object without a version ID, and return the delete marker's ID if the bucket keeps versions.

        Args:
            key: of the object, which need not exist.

        """
        marker = self._s3.delete(key)
        if marker is None:
            self._notify(key, "ObjectRemoved:Delete", None)
            return None
        self._notify(key, "ObjectRemoved:DeleteMarkerCreated", marker.version_id)
        return marker.version_id

    def delete_version(self, key: str, version_id: str) -> None:
        """Permanently delete one version or one delete marker.

        Args:
            key: of the object.
            version_id: as `put` or `delete` returned it.

        """
        self._s3.delete_version(key, version_id)
        self._notify(key, "ObjectRemoved:Delete", version_id)

    def archive(self, key: str) -> None:
        """Archive an object, as a lifecycle rule does: S3 lists it, and refuses to return its content.

        Args:
            key: of the object.

        """
        self._s3.archived.add(key)

    def restore(self, key: str) -> None:
        """Restore an archived object, for which S3 sends an event.

        Args:
            key: of the object.

        """
        self._s3.archived.discard(key)
        shown = self._s3.current(key)
        self._notify(key, "ObjectRestore:Completed", shown.version_id if shown else None, shown)

    @override
    def send(self, body: str) -> None:
        """Send a message to the queue.

        Args:
            body: a body of `intake_ledger_testing.events`, or any other text.

        """
        super().send(body)

    def duplicate(self) -> None:
        """Send each waiting message a second time."""
        for one in list(self._sqs.messages):
            self._sqs.send(one.body, one.attributes)

    def reverse(self) -> None:
        """Reverse the order of the waiting messages."""
        self._sqs.messages.reverse()

    def lose(self) -> None:
        """Lose all waiting messages. `audit` finds their keys."""
        self._sqs.messages.clear()

    def audit(self, key: str) -> None:
        """Send the message with which the audit resubmits a key.

        Args:
            key: whose events were lost, or any other.

        """
        shown = self._s3.current(key)
        if shown is None or shown.etag is None:
            self.send(events.audit_message(BUCKET, key))
        else:
            self.send(events.audit_message(BUCKET, key, version_id=shown.version_id, etag=shown.etag))

    def reprocess(self, key: str, version_id: str | None = None) -> None:
        """Send a request to process a key again.

        Args:
            key: of the object.
            version_id: the version to process, in `EVERY_VERSION`; the current version when omitted.

        """
        self._requests += 1
        name = f"{self._requests:026d}"
        self.send(events.reprocess_message(BUCKET, key, reprocess_id=name, version_id=version_id))

    def redrive(self) -> None:
        """Move all messages of the dead-letter queue back to the queue."""
        for one in self._sqs.dead_letters:
            self._sqs.send(one.body, one.attributes)
        self._sqs.dead_letters.clear()

    def next(self, *faults: Fault | None) -> None:
        """Inject faults into the next calls of the processor. Later calls have no fault.

        While a worker is overtaken, the calls of the other workers take the next faults.

        Args:
            faults: a fault for each call, or None for a call without a fault.

        """
        self._faults.extend(faults)

    def run(self, *, seed: int | None = None) -> None:
        """Deliver messages until the queue is empty.

        Args:
            seed: with a seed, messages come in random order, a quarter of them a second time later, and a quarter of
                the calls has a random `Fault`. The same seed repeats the same run. When omitted, messages come once,
                in the order of the queue.

        """
        self._random = None if seed is None else random.Random(seed)  # noqa: S311 - it has to be repeatable
        if self._random is not None:
            for one in self._random.sample(self._sqs.messages, round(len(self._sqs.messages) * _DUPLICATE_RATE)):
                self._sqs.send(one.body, one.attributes)
        self._deliver_all()
        self._random = None

    def row(self, key: str, version_id: str | None = None) -> Row | None:
        """Return the ledger's row (`status`, `attempts`, `reason`, `commit` and so on), or None.

        Args:
            key: of the object.
            version_id: of the row in `EVERY_VERSION`; the current version when omitted.

        """
        shown = self._s3.current(key)
        etag = shown.etag if shown else None
        found = version_id or (shown.version_id if shown else None)
        identity = f"v#{found}" if found else f"e#{etag}" if etag else "absent"
        return self._table.get(row_key(PIPELINE, self._settings.ordering, BUCKET, key, identity))

    def output(self, bucket: str, key: str) -> bytes | None:
        """Return the content that `change.output(bucket, key)` has written. None: nothing, or it was removed.

        PNG, JPEG and gzip contain the fence, as they do on S3.

        Args:
            bucket: of the output. Each bucket exists.
            key: of the output.

        """
        return self._outputs.read(bucket, key)

    @property
    def dead_letters(self) -> Sequence[DeadLetter]:
        """The messages of the dead-letter queue."""
        return self._sqs.dead_letters

    @property
    def transacted(self) -> Sequence[Mapping[str, Any]]:
        """The elements that `Commit(transact=...)` has written, in order, each once.

        An element that AWS would refuse for any content of the tables is refused. Conditions are not evaluated, because
        there are no tables.
        """
        return self._dynamodb.transacted

    @property
    def now(self) -> int:
        """The pipeline's time in epoch milliseconds. It starts on 2026-01-01, and advances while messages wait."""
        return self._now

    @property
    def waiting(self) -> int:
        """The number of messages in the queue."""
        return len(self._sqs.messages)
