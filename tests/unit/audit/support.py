"""Shared by the audit's tests: a bucket that is listed in pages, a queue, and the audit around a ledger in memory."""

import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

from botocore.exceptions import ClientError

from cdk_intake_ledger.testing import MemoryDynamoDB
from intake_ledger.audit.budget import OwnBudget
from intake_ledger.audit.diff import Window
from intake_ledger.audit.look import Look
from intake_ledger.audit.one_function import AuditInOneFunction
from intake_ledger.audit.report import Report
from intake_ledger.aws.bucket import Bucket
from intake_ledger.ledger.dynamodb_table import LedgerTable
from intake_ledger.protocol.change import ABSENT, State, StateKind, identity_of
from intake_ledger.protocol.commit_tag import CommitTag
from intake_ledger.protocol.row import Ordering, Row, RowKey, Status, row_key
from intake_ledger.protocol.settings import KeyFilter
from intake_ledger.protocol.settings_audit import AuditSettings
from intake_ledger_testing.memory_s3 import MemoryS3
from intake_ledger_testing.memory_sqs import MemorySQS
from tests.unit.support import BUCKET, DAY, HOUR, PIPELINE, Clock

if TYPE_CHECKING:
    from intake_ledger.audit.executing import IsExecuting

QUEUE_URL = "https://sqs/queue"
OLD = 2 * HOUR
"""The age of a state unless a test sets it. It is older than the settle time."""


@dataclass(slots=True)
class PagedS3:
    """One bucket whose keys have the given states, oldest first, listed in pages of `page_size` entries."""

    clock: Clock
    versioned: bool = True
    page_size: int = 1000
    keys: dict[str, list[State]] = field(default_factory=dict)
    heads: list[str] = field(default_factory=list)
    listed: list[dict[str, Any]] = field(default_factory=list)
    """The requests for pages, as their start was named."""
    meanwhile: Callable[[], object] = lambda: None
    """Called between the scan of the ledger and the listing."""

    def put(self, key: str, *, age: int = OLD, version: str | None = None, size: int = 1) -> State:
        name = version or f"{key}-{len(self.keys.get(key, ()))}"
        state = State(StateKind.OBJECT, name if self.versioned else None, name, size, self.clock() - age)
        self.keys[key] = [*self.keys.get(key, []), state] if self.versioned else [state]
        return state

    def mark(self, key: str, *, age: int = OLD) -> State:
        state = State(StateKind.MARKER, f"{key}-m{len(self.keys.get(key, ()))}", created_at=self.clock() - age)
        self.keys[key] = [*self.keys.get(key, []), state]
        return state

    def get_bucket_versioning(self, **_: Any) -> dict[str, str]:
        self.meanwhile()
        return {"Status": "Enabled"} if self.versioned else {}

    def head_object(self, **arguments: Any) -> dict[str, Any]:
        self.heads.append(arguments["Key"])
        state = (self.keys.get(arguments["Key"]) or [ABSENT])[-1]
        if state.removed:
            headers = {"x-amz-delete-marker": "true", "x-amz-version-id": state.version_id or ""}
            answer = {"HTTPStatusCode": 404, "HTTPHeaders": headers if state.kind is StateKind.MARKER else {}}
            raise ClientError({"Error": {"Code": "404"}, "ResponseMetadata": cast("Any", answer)}, "HeadObject")
        return {
            "VersionId": state.version_id,
            "ETag": f'"{state.etag}"',
            "ContentLength": state.size,
            "LastModified": moment(state.created_at),
        }

    def get_paginator(self, operation: str) -> "_Paginator":
        return _Paginator(self, operation)

    def list_object_versions(self, **request: Any) -> dict[str, Any]:
        return next(self.get_paginator("list_object_versions").paginate(**request))

    def list_objects_v2(self, **request: Any) -> dict[str, Any]:
        return next(self.get_paginator("list_objects_v2").paginate(**request))


@dataclass(slots=True)
class _Paginator:
    s3: PagedS3
    operation: str

    def paginate(self, **request: Any) -> Iterator[dict[str, Any]]:
        versions = self.operation == "list_object_versions"
        assert versions == self.s3.versioned, "an unversioned bucket is listed by its objects"
        self.s3.listed.append(request)
        entries = [
            (key, state, place == 0)
            for key in sorted(self.s3.keys)
            if key.startswith(request["Prefix"])
            for place, state in enumerate(reversed(self.s3.keys[key]))
        ]
        start = 0
        # Without a version, a key marker is after all versions of its key.
        after = request.get("StartAfter") or (request.get("KeyMarker") if "VersionIdMarker" not in request else None)
        if after is not None:
            start = next((n for n, entry in enumerate(entries) if entry[0] > after), len(entries))
        elif "KeyMarker" in request:
            marker = request["KeyMarker"], request["VersionIdMarker"]
            start = next(n + 1 for n, (key, state, _) in enumerate(entries) if (key, state.version_id) == marker)
        for first in range(start, max(len(entries), start + 1), self.s3.page_size):
            shown = entries[first : first + self.s3.page_size]
            page: dict[str, Any] = {"IsTruncated": first + self.s3.page_size < len(entries)}
            if page["IsTruncated"] and versions:
                page |= {"NextKeyMarker": shown[-1][0], "NextVersionIdMarker": shown[-1][1].version_id}
            for key, state, latest in shown:
                entry = {
                    "Key": key,
                    "ETag": f'"{state.etag}"',
                    "Size": state.size,
                    "LastModified": moment(state.created_at),
                }
                if versions:
                    entry |= {"VersionId": state.version_id, "IsLatest": latest}
                name = "Contents" if not versions else "Versions" if not state.removed else "DeleteMarkers"
                page.setdefault(name, []).append(entry)
            yield page


class MemoryFiles:
    """S3 for the files of an audit in parts, and for inventories. It takes the parameters that boto3's client takes.

    `test_the_handlers_take_the_steps_and_tell_of_the_run` sends the same requests to moto. It takes fifty times longer.
    """

    def __init__(self) -> None:
        self._buckets: defaultdict[str, MemoryS3] = defaultdict(lambda: MemoryS3(clock=lambda: 0, versioned=False))

    def put_object(self, *, Bucket: str, Key: str, Body: bytes) -> None:  # noqa: N803 - as boto3 has it
        self._buckets[Bucket].put(Key, bytes(Body))

    def get_object(self, *, Bucket: str, **request: Any) -> dict[str, Any]:  # noqa: N803 - as boto3 has it
        return self._buckets[Bucket].get_object(**request)

    def delete_object(self, *, Bucket: str, Key: str) -> None:  # noqa: N803 - as boto3 has it
        self._buckets[Bucket].delete(Key)

    def copy_object(self, *, Bucket: str, Key: str, CopySource: dict[str, str]) -> None:  # noqa: N803 - as boto3 has it
        self._buckets[Bucket].put(Key, self._content(CopySource["Bucket"], CopySource["Key"]))

    def upload_file(self, filename: str, bucket: str, key: str) -> None:
        self._buckets[bucket].put(key, Path(filename).read_bytes())

    def download_file(self, bucket: str, key: str, filename: str) -> None:
        Path(filename).write_bytes(self._content(bucket, key))

    def get_paginator(self, operation: str) -> Self:
        assert operation == "list_objects_v2"
        return self

    def paginate(self, *, Bucket: str, Prefix: str, Delimiter: str = "") -> Iterator[dict[str, Any]]:  # noqa: N803 - as boto3 has it
        keys = self._buckets[Bucket].keys
        names = sorted(key for key in keys if key.startswith(Prefix))
        if Delimiter:
            rest = (name.removeprefix(Prefix) for name in names)
            folders = sorted({Prefix + part.partition(Delimiter)[0] + Delimiter for part in rest if Delimiter in part})
            yield {"CommonPrefixes": [{"Prefix": folder} for folder in folders]}
            return
        yield {"Contents": [{"Key": name, "ETag": f'"{keys[name][-1].etag}"'} for name in names]}

    def _content(self, bucket: str, key: str) -> bytes:
        content: bytes = self.get_object(Bucket=bucket, Key=key)["Body"].read()
        return content


class FakeSQS(MemorySQS):
    """The queue to which an audit sends its messages."""

    def __init__(self, queue_url: str = QUEUE_URL) -> None:
        super().__init__(clock=lambda: 0, visibility_seconds=30, queue_url=queue_url)

    @property
    def bodies(self) -> list[dict[str, Any]]:
        """The library's content of each message, in order."""
        return [json.loads(one.body)["intakeLedger"] for one in self.messages]


@dataclass
class AuditWorld:
    """One pipeline's bucket, ledger and queue."""

    ordering: Ordering = Ordering.LATEST
    versioned: bool = True
    deletes: bool = True
    budget: int = 1_000
    filters: tuple[KeyFilter, ...] = ()
    page_size: int = 1000
    settled_ms: int = HOUR
    known_ms: int = 14 * DAY
    is_executing: "IsExecuting | None" = None
    after_commit: CommitTag | None = None

    def __post_init__(self) -> None:
        self.clock = Clock()
        self.s3 = PagedS3(self.clock, self.versioned, self.page_size)
        self.store = MemoryDynamoDB()
        self.sqs = FakeSQS()
        self.ledger = LedgerTable(cast("Any", self.store), "table")
        self.settings = AuditSettings(
            pipeline=PIPELINE,
            bucket=BUCKET,
            bucket_owner=None,
            table="table",
            queue_url=QUEUE_URL,
            ordering=self.ordering,
            deletes=self.deletes,
            retention_seconds=35 * DAY // 1000,
            clock_skew_seconds=120,
            settle_seconds=self.settled_ms // 1000,
            look_back_seconds=self.known_ms // 1000,
            budget=self.budget,
            filters=self.filters,
            after_commit=self.after_commit,
        )

    def row_key(self, key: str, state: State | None = None) -> RowKey:
        return row_key(PIPELINE, self.ordering, BUCKET, key, state.identity if state else None)

    def commit(self, key: str, state: State, *, age: int = OLD) -> None:
        """A row that says that this state was processed."""
        committed = identity_of(state.kind, state.version_id, state.etag)
        self.insert(key, state, Status.PROCESSED, committed_state=committed, age=age)

    def insert(self, key: str, state: State, status: Status, *, age: int = OLD, **more: Any) -> None:
        row = Row(
            status,
            7,
            version_id=state.version_id,
            etag=state.etag,
            kind=state.kind,
            size=state.size,
            updated_at=self.clock() - age,
            **more,
        )
        self.ledger.insert(self.row_key(key, state), row)

    def window(self) -> Window:
        return Window(self.clock() - self.settled_ms, self.clock() - self.known_ms)

    def run(
        self,
        *,
        resubmit: bool = True,
        dry_run: bool = False,
        remaining_ms: Callable[[], int] = lambda: 900_000,
        window: Window | None = None,
        readers: int = 1,
        backfill: bool = False,
    ) -> Report:
        s3, report = cast("Any", self.s3), Report(str(self.clock()), self.clock(), dry_run=dry_run)
        look = Look(
            self.settings,
            self.ledger,
            Bucket(lambda: s3, BUCKET),
            sqs=cast("Any", self.sqs),
            clock=self.clock,
            budget=OwnBudget(self.settings.budget) if resubmit and not dry_run else None,
            heads=1,
            backfill=backfill,
            is_executing=self.is_executing,
        )
        audit = AuditInOneFunction(self.settings, s3, cast("Any", self.store), look, self.clock, readers=readers)
        chosen = window or self.window()
        if backfill:
            chosen = replace(chosen, known_since=0, removals_since=self.clock() - self.known_ms)
        audit.run(report, chosen, remaining_ms=remaining_ms)
        return report

    @property
    def sent(self) -> list[str]:
        """The keys that were resubmitted. Each run begins at another one."""
        return sorted(body["key"] for body in self.sqs.bodies)


def moment(milliseconds: int | None) -> datetime:
    return datetime.fromtimestamp((milliseconds or 0) / 1000, UTC)
