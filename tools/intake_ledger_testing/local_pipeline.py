"""A pipeline around a processor in one process, with its own time and without AWS.

    def test_every_invoice_counts_once():
        pipeline = LocalPipeline(invoices.process)
        pipeline.put("a.csv", "10 EUR")
        pipeline.put("a.csv", "20 EUR")
        pipeline.duplicate()
        pipeline.next(Fault.KILLED_AFTER_EFFECT, Fault.TIMED_OUT, Fault.OVERTAKEN)
        pipeline.run()
        assert saved == {"a.csv": 20}

The consumer, the ledger and the reader of S3 are the code that runs in Lambda. DynamoDB, S3 and SQS are in memory, and
waiting takes no real time.
"""

from collections.abc import Mapping
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any, Unpack, cast

from intake_ledger.audit.budget import OwnBudget
from intake_ledger.audit.diff import Window
from intake_ledger.audit.look import Look
from intake_ledger.audit.one_function import AuditInOneFunction
from intake_ledger.audit.report import Report
from intake_ledger.aws.bucket import Bucket
from intake_ledger.ledger.row_history import RowHistoryRecord
from intake_ledger.processor.object_change import BatchProcessor, ObjectChange, Processor
from intake_ledger.protocol.row import Ordering, Row, row_key
from intake_ledger.protocol.settings import Settings
from intake_ledger.protocol.settings_audit import AuditSettings
from intake_ledger_testing import events
from intake_ledger_testing.local_options import LocalPipelineOptions, check_names, variables_of
from intake_ledger_testing.local_runtime import LocalRuntime
from intake_ledger_testing.local_settings import BUCKET, PIPELINE
from intake_ledger_testing.memory_s3 import MemoryS3, Version, sha256_of
from intake_ledger_testing.s3_limits import check_key, stored_metadata

_HOUR_MS, _LOOK_BACK_MS, _BUDGET = 3_600_000, 14 * 86_400_000, 1_000


class LocalPipeline(LocalRuntime):
    """A pipeline for tests. Each change of its bucket sends a message, and `run` delivers the messages."""

    def __init__(self, processor: Processor | BatchProcessor, **options: Unpack[LocalPipelineOptions]) -> None:
        """Create a pipeline with an empty bucket.

        Args:
            processor: your function.
            options: those of `LocalPipelineOptions`.

        Raises:
            TypeError: The processor is not a function with one argument, or there is no such option.
            ValueError: The construct or the function would refuse an option. The text has its value.

        """
        check_names("LocalPipeline", LocalPipelineOptions, options)
        super().__init__(processor, options, variables_of(options))
        if options.get("ready_when") is not None:
            self._s3.on_tags = self._tagged
        self._asked = 0
        self._events = 0
        self.calls: list[ObjectChange] = []
        """The change of each call of the processor, or its list. With `LocalRunner.FUNCTION`, its request."""

    def put(
        self, key: str, content: bytes | str, *, metadata: Mapping[str, str] | None = None, sha256: bool = False
    ) -> str | None:
        """Upload an object, and return its version ID if the bucket keeps versions.

        Args:
            key: of the object.
            content: a text becomes UTF-8.
            metadata: user metadata, which `s3` returns with names in lower case; none when omitted.
            sha256: whether it is uploaded with `ChecksumAlgorithm="SHA256"`; not when omitted.

        Raises:
            ClientError: The key has more than 1,024 bytes, or the metadata more than 2 KB.
            ParamValidationError: boto3 would not send the key or the metadata.

        """
        check_key("PutObject", key)
        stored = stored_metadata("PutObject", metadata or {})
        data = content.encode() if isinstance(content, str) else content
        version = self._s3.put(key, data, stored, sha256_of(data) if sha256 else None)
        self._notify(key, "ObjectCreated:Put", version.version_id, version)
        return version.version_id

    def copy(self, key: str) -> str | None:
        """Copy an object onto itself, as a change of its encryption or class does. Returns the new version's ID.

        S3 copies metadata, checksum and tags.

        Args:
            key: of the object, which exists.

        """
        version = self._s3.copy(key)
        self._notify(key, "ObjectCreated:Copy", version.version_id, version)
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

    def audit(self, key: str) -> None:
        """Send the message with which the audit resubmits a key.

        Args:
            key: whose events were lost, or any other.

        """
        shown = self._s3.current(key)
        if shown is None or shown.etag is None:
            self.send(events.audit_message(BUCKET, key))
        else:
            size = len(shown.content or b"")
            self.send(events.audit_message(BUCKET, key, version_id=shown.version_id, etag=shown.etag, size=size))

    def run_audit(self) -> list[str]:
        """Run the audit. Returns the keys of its findings, for which it sends messages."""
        settings, now = self._settings, self.now
        history = RowHistoryRecord(settings, self._table, self.clock)
        shared: Any = {one.name: getattr(settings, one.name) for one in fields(Settings)}
        audit = AuditSettings(
            **shared, settle_seconds=_HOUR_MS // 1000, look_back_seconds=_LOOK_BACK_MS // 1000, budget=_BUDGET
        )
        audit = history.with_former(audit, note=True)
        s3, store, sqs = (cast("Any", one) for one in (self._s3, self._dynamodb, self._sqs))
        bucket, report = Bucket(lambda: s3, settings.bucket), Report(str(now), now)
        look = Look(audit, self._table, bucket, sqs=sqs, clock=self.clock, budget=OwnBudget(_BUDGET), heads=1)
        looks_back, all_rows_since = now - _LOOK_BACK_MS, history.look()
        known_since = looks_back if all_rows_since is None else min(looks_back, all_rows_since)
        window = Window(now - _HOUR_MS, known_since, removals_since=looks_back)
        AuditInOneFunction(audit, s3, store, look, self.clock, readers=1).run(
            report, window, remaining_ms=lambda: 600_000
        )
        return [str(one["key"]) for one in report.findings]

    def reprocess(self, key: str, version_id: str | None = None) -> None:
        """Send a request to process a key again.

        Args:
            key: of the object.
            version_id: the version to process, in `EVERY_VERSION`; the current version when omitted.

        """
        self._asked += 1
        name = f"{self._asked:026d}"
        self.send(events.reprocess_message(BUCKET, key, reprocess_id=name, version_id=version_id))

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

    def put_tag(self, key: str, name: str, value: str, version_id: str | None = None) -> None:
        """Set a tag of a version, as a scanner does. With `ready_when`, S3 sends an event.

        Args:
            key: of the object.
            name: the key of the tag. Other tags stay.
            value: of the tag.
            version_id: as `put` returned it; the current version when omitted.

        Raises:
            ClientError: There is no such version, or it has ten tags.

        """
        tags = self.tags(key, version_id) | {name: value}
        place = {"Key": key} | ({"VersionId": version_id} if version_id else {})
        self._s3.put_object_tagging(**place, Tagging={"TagSet": [{"Key": one, "Value": tags[one]} for one in tags]})

    def tags(self, key: str, version_id: str | None = None) -> dict[str, str]:
        """Return the tags of a version.

        Args:
            key: of the object.
            version_id: as `put` returned it; the current version when omitted.

        """
        found = version_id or getattr(self._s3.current(key), "version_id", None)
        return dict(self._s3.tags.get((key, found), {}))

    def output(self, bucket: str, key: str) -> bytes | None:
        """Return the content that `change.output(bucket, key)` has written. None: nothing, or it was removed.

        PNG, JPEG and gzip contain the fence, as they do on S3.

        Args:
            bucket: of the output. Each bucket exists.
            key: of the output.

        """
        return self._outputs.read(bucket, key)

    def rejected_rows(self, key: str, version_id: str | None = None) -> list[dict[str, Any]]:
        """Return the rows that `on_error` has rejected, with `line`, `column`, `reason` and the others of `Rejects`.

        Args:
            key: of the object.
            version_id: of the object in `EVERY_VERSION`; the current version when omitted.

        """
        found = version_id or getattr(self._s3.current(key), "version_id", None)
        each = self._settings.ordering is Ordering.EVERY_VERSION
        return self._read_rejects(key, f"v#{found}" if each else None)

    @property
    def s3(self) -> MemoryS3:
        """A client of the bucket for your own code: `head_object`, `get_object` and `list_objects_v2`."""
        return self._s3

    def _tagged(self, key: str, version: Version) -> None:
        self._notify(key, "ObjectTagging:Put", version.version_id)

    def _notify(self, key: str, event: str, version_id: str | None, version: Version | None = None) -> None:
        """Send the event of a change. Each event is a second later than the one before."""
        self._events += 1
        self.send(
            events.s3_notification(
                self._settings.bucket,
                key,
                event=event,
                version_id=version_id,
                etag=version.etag if version else None,
                size=len(version.content or b"") if version else None,
                sequencer=f"{self._events:016X}",
                time=datetime.fromtimestamp(self.now / 1000, UTC),
            )
        )
        self.clock.now += 1_000
