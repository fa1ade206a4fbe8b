"""Run the deployed consumer and the deployed audit as functions of the answers of AWS.

All code between two calls to AWS is deterministic. The next call of a worker depends only on its message and on the
answers so far. Therefore each step runs a worker from its start with a recorded history, and stops it at the first
call that the history does not answer. The explorer then chooses the next step and the answer.
"""

import io
import traceback
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, cast

from botocore.exceptions import ClientError

from intake_ledger import Rejects
from intake_ledger.audit.budget import OwnBudget
from intake_ledger.audit.diff import Window
from intake_ledger.audit.look import Look
from intake_ledger.audit.one_function import AuditInOneFunction
from intake_ledger.audit.report import Report
from intake_ledger.aws.bucket import Bucket
from intake_ledger.aws.queues import Queues
from intake_ledger.consumer.batch import ProcessingTime
from intake_ledger.consumer.calls import SharedCalls
from intake_ledger.consumer.services import Services
from intake_ledger.ledger.dynamodb_table import LedgerTable
from intake_ledger.ledger.ledger import Claim, LedgerOptions
from intake_ledger.ledger.row_history import RowHistory, RowHistoryRecord
from intake_ledger.processor.object_change import Commit, ObjectChange
from intake_ledger.protocol.change import Change
from intake_ledger.protocol.commit_tag import CommitTag
from intake_ledger.protocol.errors import NotYet, Unprocessable
from intake_ledger.protocol.reasons import OutcomeKind, Reason
from intake_ledger.protocol.row import Ordering, Row, RowCounts
from intake_ledger.protocol.settings import ConsumerSettings, KeyFilter
from intake_ledger.protocol.settings_audit import AuditSettings
from intake_ledger.protocol.verdict import Policy, Ruling
from intake_ledger.runners.calls import InlineCalls
from intake_ledger_testing import dynamodb_expressions, memory_dynamodb, table_expressions, table_updates, table_values
from intake_ledger_testing.consumers import object_consumer, object_ledger
from tests.protocol.strict_telemetry import StrictTelemetry

BUCKET, KEY, PIPELINE = "bucket", "key", "p"
DAY = 86_400
RETENTION = 10 * DAY
TICK_MS = 12 * DAY * 1000
"""The world's clock moves in steps that let everything expire: a row lives for the retention and a day."""
EPOCH_MS = 1_800_000_000_000
LEASE_MS = 60_000
OUTPUT = "output"
"""The key of the output, if there is one for all versions."""
REJECTS = f"{KEY}.rejects.jsonl"
"""The key of the output with rejected rows, if there is one for all versions."""
TAG = CommitTag("intake", "done")
"""The tag that a version gets after its commit."""
UPLOADED_TAGS = (("team", "sales"),)
"""The tags that each version has from its upload."""
CONTENT = b"content:"
"""In an output, before the state that it was made of."""
_PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR".ljust(33, b"\0")
SEPARATOR = " "
"""Between the elements of a set."""


class Frozen(NamedTuple):
    """An answer of AWS: hashable, since a worker's history is part of the explored state."""

    kind: str
    value: Hashable = None


@dataclass(frozen=True, eq=False)
class Request:
    """A call to AWS, or of the team's processor, that has not been answered yet. Equal to itself only."""

    service: str
    operation: str
    arguments: Mapping[str, Any]


class Finished(NamedTuple):
    """The worker's code has returned."""

    acknowledged: bool


class Raised(NamedTuple):
    """The code under search raised an exception."""

    error: str
    """Its type and its message, on one line."""
    traceback: str


class ProcessorError(RuntimeError):
    """The error of a processor that the search lets fail."""


class Pause(KeyboardInterrupt):
    """Stops a worker where its history ends."""

    def __init__(self, request: Request) -> None:
        super().__init__(request)
        self.request = request


class Message(NamedTuple):
    """A message in the queue."""

    body: str
    label: str
    """Its name in a trace."""
    operation: int = 0
    """The S3 operation that it reports, or 0 for a message of the pipeline."""
    rejected_fence: int | None = None
    reprocess: int = 0
    copies: int = 0
    """The number of copies before it, each of which had no attributes. SQS gives a redriven message another ID."""

    @property
    def id(self) -> str:
        return f"{self.label}.{self.copies}" if self.copies else "m"


class Memory(Enum):
    """The meaning of a row that the ledger does not find."""

    COMPLETE = "it has kept the row of every object from its first day"
    KEPT = "it keeps the rows of objects, and has not always"
    EXPIRING = "rows of objects expire"
    RECORDED = "it keeps the rows of objects, and its record says since when"
    RECORDED_EXPIRING = "rows of objects expire, and its record says so"

    @property
    def keeps_rows(self) -> bool:
        return self not in (Memory.EXPIRING, Memory.RECORDED_EXPIRING)

    @property
    def has_record(self) -> bool:
        return self in (Memory.RECORDED, Memory.RECORDED_EXPIRING)


class Effect(Enum):
    """The kind of effect that the processor has downstream."""

    PLAIN = "a write: the last one wins, also a late worker's"
    FENCED = "an output on S3, which refuses an earlier fence; a removal leaves a tombstone"
    REJECTS = (
        "the rejected rows of a file: the runtime writes them to an output, after the processor and before the commit"
    )
    KEYED = "a request that the downstream drops if it has seen its idempotency key"
    TRANSACT = "items that are written with the ledger's commit"
    SOMETIMES = "either a plain write or items that are written with the commit, in each attempt anew"


class Config(NamedTuple):
    """The pipeline under exploration."""

    every_version: bool = False
    versioned: bool = True
    deletes: bool = True
    memory: Memory = Memory.COMPLETE
    outside: bool = False
    """The pipeline's filters leave the key out."""
    max_attempts: int = 50
    group: bool = False
    """The consumer claims every new message as a group of one."""
    commit_together: bool = False
    """The consumer commits a group together."""
    calls: bool = False
    """The consumer claims each message for a call with others, as if there were any."""
    effect: Effect = Effect.PLAIN
    bad: tuple[str, ...] = ()
    """The states of a file that have a bad row, if the effect is that of rejected rows."""
    bare: bool = False
    """No message leaves room for attributes in its copy."""
    tags: bool = False
    """A committed version gets a tag."""


@dataclass
class Port:
    """Answers from the history, in order; then stops."""

    slot: str
    history: tuple[tuple[int, Frozen], ...]
    tick: int
    position: int = 0
    owners: int = 0

    def call(self, service: str, operation: str, arguments: Mapping[str, Any]) -> Frozen:
        if self.position == len(self.history):
            raise Pause(Request(service, operation, arguments))
        self.tick, answer = self.history[self.position]
        self.position += 1
        if answer.kind == "forbidden":
            raise AssertionError(answer.value)
        return answer

    def now(self) -> int:
        return EPOCH_MS + self.tick * TICK_MS

    def new_owner(self) -> str:
        self.owners += 1
        return f"{self.slot}.{self.owners}"

    @property
    def slow(self) -> bool:
        """Return whether the last answer took so long that the processor would not have its full time."""
        return self.position > 0 and self.history[self.position - 1][1].kind == "slow"


class _DynamoDB:
    def __init__(self, port: Port) -> None:
        self._port = port

    def __getattr__(self, operation: str) -> Any:
        def call(**arguments: Any) -> dict[str, Any]:
            answer = self._port.call("dynamodb", operation, arguments)
            if answer.kind == "refused":
                raise _refusal(operation, {} if answer.value is None else {"Item": thaw(answer.value)})
            if operation == "describe_table":
                return {"Table": {"RestoreSummary": {}} if answer.value is True else {}}
            if operation == "get_item":
                return {} if answer.value is None else {"Item": thaw(answer.value)}
            if operation == "batch_execute_statement":
                # A slow write is a successful write.
                written = (True,) if answer.kind == "slow" else cast("tuple[bool, ...]", answer.value)
                return {"Responses": [{} if one else {"Error": {"Code": "DuplicateItem"}} for one in written]}
            if operation == "batch_get_item":
                [table] = arguments["RequestItems"]
                return {"Responses": {table: [thaw(item) for item in cast("tuple[Any, ...]", answer.value)]}}
            return {}

        return call

    def get_paginator(self, operation: str) -> Any:
        return _Pages(self._port, "dynamodb", operation)


def _refusal(operation: str, item: dict[str, Any]) -> ClientError:
    """A condition that did not hold, with the item that stands there."""
    response: Any = {"Error": {"Code": "ConditionalCheckFailedException"}, **item}
    if operation == "transact_write_items":
        reasons = [{"Code": "ConditionalCheckFailed", **item}, {"Code": "None"}]
        response = {"Error": {"Code": "TransactionCanceledException"}, "CancellationReasons": reasons}
    return ClientError(response, operation)


class _Pages:
    def __init__(self, port: Port, service: str, operation: str) -> None:
        self._call = port.call
        self._service = service
        self._operation = operation

    def paginate(self, **arguments: Any) -> Any:
        answer = self._call(self._service, self._operation, arguments)
        if self._operation == "scan":
            return [{"Items": [thaw(item) for item in cast("tuple[Any, ...]", answer.value)]}]
        return [listing(cast("tuple[tuple[str, int, bool], ...]", answer.value), self._operation)]


class _S3:
    def __init__(self, port: Port, config: Config) -> None:
        self._port = port
        self._config = config

    def get_bucket_versioning(self, **_: Any) -> dict[str, str]:
        return {"Status": "Enabled"} if self._config.versioned else {}

    def get_paginator(self, operation: str) -> _Pages:
        return _Pages(self._port, "s3", operation)

    def get_object(self, **arguments: Any) -> dict[str, Any]:
        if self._port.call("s3", "get_object", arguments).kind == "gone":
            raise ClientError({"Error": {"Code": "NoSuchVersion"}}, "GetObject")
        if self._config.effect is not Effect.REJECTS:
            return {"Body": io.BytesIO(), "ContentLength": 0}
        body = b"number\nx\n" if wanted(arguments) in self._config.bad else b"number\n1\n"
        return {"Body": io.BytesIO(body), "ContentLength": len(body)}

    def get_object_tagging(self, **arguments: Any) -> dict[str, Any]:
        tags = cast("tuple[tuple[str, str], ...]", self._tagging("get_object_tagging", arguments).value)
        return {"TagSet": [{"Key": name, "Value": value} for name, value in tags]}

    def put_object_tagging(self, **arguments: Any) -> dict[str, Any]:
        self._tagging("put_object_tagging", arguments)
        return {}

    def _tagging(self, operation: str, arguments: Mapping[str, Any]) -> Frozen:
        answer = self._port.call("tags", operation, arguments)
        if answer.kind == "ok":
            return answer
        code, status = cast("tuple[str, int]", answer.value)
        raise ClientError(
            {"Error": {"Code": code}, "ResponseMetadata": cast("Any", {"HTTPStatusCode": status})}, operation
        )

    def head_object(self, **arguments: Any) -> dict[str, Any]:
        answer = self._port.call("s3", "head_object", arguments)
        if answer.kind in ("absent", "marker", "is marker"):
            headers = {}
            status = 404
            if answer.kind == "marker":
                headers = {"x-amz-delete-marker": "true", "x-amz-version-id": str(answer.value)}
            elif answer.kind == "is marker":
                status = 405
                headers = {"last-modified": format(moment(cast("int", answer.value)), "%a, %d %b %Y %H:%M:%S GMT")}
            raise ClientError(
                {
                    "Error": {"Code": str(status)},
                    "ResponseMetadata": cast("Any", {"HTTPStatusCode": status, "HTTPHeaders": headers}),
                },
                "HeadObject",
            )
        identity, tick = cast("tuple[str, int]", answer.value)
        version = identity[2:] if identity.startswith("v#") else None
        etag = identity[2:] if version is None else f"etag-{version}"
        return {"VersionId": version, "ETag": f'"{etag}"', "ContentLength": 1, "LastModified": moment(tick)}


class _OutputS3:
    """The bucket of outputs. Only the operations that `intake_ledger.outputs` needs for small objects."""

    def __init__(self, port: Port) -> None:
        self._port = port

    def head_object(self, **arguments: Any) -> dict[str, Any]:
        answer = self._call("head_object", arguments)
        etag, metadata = cast("tuple[str, tuple[tuple[str, str], ...]]", answer.value)
        # All outputs are those of one object, so that the time of a tombstone decides nothing.
        return {"ETag": etag, "Metadata": dict(metadata), "LastModified": moment(0)}

    def put_object(self, **arguments: Any) -> dict[str, Any]:
        return {"ETag": self._call("put_object", arguments).value}

    def delete_object(self, **arguments: Any) -> dict[str, Any]:
        """No output is deleted. A seeded defect does that."""
        self._call("delete_object", arguments)
        return {}

    def _call(self, operation: str, arguments: Mapping[str, Any]) -> Frozen:
        answer = self._port.call("output", operation, arguments)
        if answer.kind == "status":
            status = cast("int", answer.value)
            metadata: Any = {"HTTPStatusCode": status, "HTTPHeaders": {}}
            raise ClientError({"Error": {"Code": str(status)}, "ResponseMetadata": metadata}, operation)
        return answer


class _SQS:
    def __init__(self, port: Port, *, bare: bool = False) -> None:
        self._port = port
        self._bare = bare

    def get_queue_attributes(self, **_: Any) -> dict[str, Any]:
        """Few messages are in flight."""
        return {"Attributes": {"ApproximateNumberOfMessagesNotVisible": "0"}}

    def change_message_visibility_batch(self, **_: Any) -> dict[str, Any]:
        """When a message comes back is the explorer's choice anyway."""
        return {}

    def send_message(self, **arguments: Any) -> None:
        if self._bare and arguments.get("MessageAttributes"):
            raise ClientError({"Error": {"Code": "InvalidParameterValue"}}, "SendMessage")
        if self._port.call("sqs", "send_message", arguments).kind == "refused":
            raise ClientError({"Error": {"Code": "AccessDenied"}}, "SendMessage")

    def send_message_batch(self, **arguments: Any) -> dict[str, Any]:
        self._port.call("sqs", "send_message_batch", arguments)
        return {}


class _Silent(StrictTelemetry):
    def __init__(self) -> None:
        """Say nothing: a run is repeated for every step of the search."""

    def decided(self, change: Change, answer: Claim | Ruling, *, now: int) -> None: ...
    def ended(self, claim: Claim, outcome: OutcomeKind, reason: Reason | None = None, *, duration_ms: int) -> None: ...
    def rejected_rows(self, claim: Claim, counts: RowCounts) -> None: ...
    def late_write(self, claim: Claim) -> None: ...
    def removed_unprocessed(self, change: Change, row: Row | None) -> None: ...
    def exhausted(self, change: Change, row: Row) -> None: ...
    def filtered_out(self, change: Change) -> None: ...

    def log_error(self, text: str, message_id: str, error: Exception) -> None:
        # By name, since a seeded copy has other classes.
        if type(error).__name__ not in ("CopyRefused", "TagRefused"):
            super().log_error(text, message_id, error)


class _Context:
    def __init__(self, port: Port) -> None:
        self._port = port

    def get_remaining_time_in_millis(self) -> int:
        return 0 if self._port.slow else LEASE_MS


def run(
    message: Message, slot: str, config: Config, start: int, history: tuple[Any, ...]
) -> Request | Finished | Raised:
    """Run the consumer on a message with these answers, until the first call without an answer."""
    port = Port(slot, history, start)

    def processor(change: ObjectChange) -> Commit | str:
        told = {"kind": change.kind, "fence": change.fence, "attempt": change.attempt, "version": change.version_id}
        told |= {"etag": change.etag, "idempotency_key": change.idempotency_key}
        outcome = port.call("processor", "process", told).kind
        if config.effect is Effect.FENCED:
            # The outcome is chosen before the effect, so that the search has no step for it.
            _write_output(change, every_version=config.every_version)
        if config.effect is Effect.REJECTS and change.kind == "created":
            assert not [*change.csv_rows(columns={"number": int}, on_error=Rejects(max_share=None))][1:]
        if outcome == "unprocessable":
            raise Unprocessable("unprocessable")
        if outcome == "not yet":
            raise NotYet("missing", retry_in=600)
        if outcome == "fails":
            raise ProcessorError("failed")
        if config.effect is Effect.TRANSACT or outcome == "transact":
            effect = {"pk": {"S": change.idempotency_key}}
            return Commit("done", transact=[{"Put": {"TableName": "effects", "Item": effect}}])
        return "done"

    bucket = Bucket(lambda: cast("Any", _S3(port, config)), BUCKET)
    settings = _consumer_settings(config)
    options = LedgerOptions(
        PIPELINE,
        settings.ordering,
        Policy(
            config.max_attempts,
            RETENTION * 1000,
            config.deletes,
            config.memory.keeps_rows,
            every_version=config.every_version,
            tags=config.tags,
        ),
        6 * 3600 * 1000,
        min_group=1 if config.group else 2,
    )
    table = LedgerTable(cast("Any", _DynamoDB(port)), "table")
    consumer = object_consumer(
        Services(
            settings,
            object_ledger(
                table,
                bucket,
                options,
                clock=port.now,
                new_owner=port.new_owner,
                row_history=_row_history(config, table, port),
            ),
            bucket,
            Queues(lambda: cast("Any", _SQS(port, bare=config.bare)), "queue", "dlq"),
            telemetry=_Silent(),
            clock=port.now,
            jitter=lambda: 0.0,
        ),
        processor,
        runner=InlineCalls(lambda changes: _results(processor, changes)) if config.calls else None,
        output_client=lambda: cast("Any", _OutputS3(port)),
        processing_time=ProcessingTime(0.0) if config.group else None,
    )
    for driver in consumer._drivers:
        if isinstance(driver, SharedCalls):
            driver.least = 1
    record: dict[str, Any] = {"messageId": message.id, "receiptHandle": "r", "body": message.body, "attributes": {}}
    if message.rejected_fence is not None:
        record["messageAttributes"] = {"rejected_fence": {"stringValue": str(message.rejected_fence)}}
    try:
        answer = consumer.handle({"Records": [record]}, _Context(port))
    except Pause as pause:
        return pause.request
    except Exception as error:  # noqa: BLE001
        return _raised(error)
    return Finished(acknowledged=not answer["batchItemFailures"])


def _results(processor: Callable[[ObjectChange], object], changes: Sequence[ObjectChange]) -> dict[str, object]:
    """Each change ends by its own result."""
    results = dict[str, object]()
    for change in changes:
        try:
            results[change.idempotency_key] = processor(change)
        except Exception as error:  # noqa: BLE001 - it is the result
            results[change.idempotency_key] = error
    return results


def wanted(arguments: Mapping[str, Any]) -> str:
    """The identity of the state that a GetObject asks for."""
    version = arguments.get("VersionId")
    return f"v#{version}" if version else f"e#{arguments['IfMatch'].strip('"')}"


def _write_output(change: ObjectChange, *, every_version: bool) -> None:
    """The effect of a processor with an output. The content is a PNG as far as the seal reads it."""
    output = change.output("outputs", f"output {change.version_id}" if every_version else OUTPUT)
    if change.kind == "created":
        state = f"v#{change.version_id}" if change.version_id else f"e#{change.etag}"
        output.put(_PNG + CONTENT + state.encode())
    else:
        output.remove()


def run_audit(config: Config, start: int, history: tuple[Any, ...]) -> Request | Finished | Raised:
    """Run the audit with these answers, until the first call without an answer."""
    port = Port("audit", history, start)
    settings = AuditSettings(**_common(config), settle_seconds=0, look_back_seconds=RETENTION, budget=100)
    s3 = cast("Any", _S3(port, config))
    dynamodb = cast("Any", _DynamoDB(port))
    table = LedgerTable(dynamodb, "table")
    look = Look(
        settings,
        table,
        Bucket(lambda: s3, BUCKET),
        sqs=cast("Any", _SQS(port)),
        clock=port.now,
        budget=OwnBudget(settings.budget),
        heads=1,
    )
    audit = AuditInOneFunction(settings, s3, dynamodb, look, port.now, readers=1)
    try:
        window = _window(_row_history(config, table, port), port.now())
        audit.run(Report("run", port.now()), window, remaining_ms=lambda: 10**9)
    except Pause as pause:
        return pause.request
    except Exception as error:  # noqa: BLE001
        return _raised(error)
    return Finished(acknowledged=True)


def _raised(error: Exception) -> Raised:
    """Return a finding, or raise the error again if the search itself failed.

    The search failed if one of its replacements of AWS raised an error that is neither an error of AWS nor an
    assertion. The assertions judge the code under search.
    """
    for one in _chain(error):
        innermost = Path(traceback.extract_tb(one.__traceback__)[-1].filename)
        if (innermost in _STORE or innermost.parent == _SEARCH) and not isinstance(one, _INTENDED):
            raise error
    told = " ".join(f"{type(error).__name__}: {error}".split())
    return Raised(told, "".join(traceback.format_exception(error)).rstrip())


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield the error and its causes."""
    while error is not None and not isinstance(error, Pause):
        yield error
        error = error.__cause__ or error.__context__


_SEARCH = Path(__file__).parent
_STORE = {
    Path(str(one.__file__))
    for one in (dynamodb_expressions, memory_dynamodb, table_expressions, table_updates, table_values)
}
_INTENDED = (AssertionError, ClientError, ProcessorError, Unprocessable)


@dataclass(frozen=True)
class _Always(RowHistory):
    """Every object that was processed has a row."""

    def all_rows_since(self) -> int:
        return 0

    def is_complete(self) -> bool:
        return True


def _row_history(config: Config, table: LedgerTable, port: Port) -> RowHistory | None:
    """The record itself only where it matters: each worker's request would double every world."""
    if config.memory.has_record:
        return RowHistoryRecord(_consumer_settings(config), table, port.now)
    return _Always() if config.memory is Memory.COMPLETE else None


def _window(row_history: RowHistory | RowHistoryRecord | None, now: int) -> Window:
    """Return the window that the audit's function gives to an audit."""
    since = now - RETENTION * 1000
    if isinstance(row_history, RowHistoryRecord):
        has_all_rows = row_history.look() is not None
    else:
        has_all_rows = row_history is not None
    return Window(settled_before=now, known_since=0 if has_all_rows else since, removals_since=since)


@cache
def _consumer_settings(config: Config) -> ConsumerSettings:
    return ConsumerSettings(
        **_common(config),
        dlq_url="dlq",
        processor="-",
        # In real time: a search on a busy machine must not be interrupted.
        processing_timeout_seconds=30,
        max_attempts=config.max_attempts,
        min_backoff_seconds=0,
        max_backoff_seconds=0,
        max_event_age_seconds=6 * 3600,
        commit_together=config.commit_together,
        max_per_call=2 if config.calls else 1,
        rejects="outputs/" if config.effect is Effect.REJECTS else None,
    )


def _common(config: Config) -> dict[str, Any]:
    return {
        "pipeline": PIPELINE,
        "bucket": BUCKET,
        "bucket_owner": None,
        "table": "table",
        "queue_url": "queue",
        "ordering": Ordering.EVERY_VERSION if config.every_version else Ordering.LATEST,
        "deletes": config.deletes,
        "retention_seconds": RETENTION,
        "clock_skew_seconds": 0,
        "keeps_rows": config.memory.keeps_rows,
        "after_commit": TAG if config.tags else None,
        "filters": (KeyFilter("elsewhere/"),) if config.outside else (),
    }


def moment(tick: int) -> datetime:
    """The world's tick as a time."""
    return datetime.fromtimestamp((EPOCH_MS + tick * TICK_MS) / 1000, UTC)


def listing(shown: tuple[tuple[str, int, bool], ...], operation: str) -> dict[str, Any]:
    """Return the answer of a listing: (identity, tick of creation, whether it is current), markers as `m#<version>`."""
    if operation == "list_objects_v2":
        return {
            "Contents": [
                {"Key": KEY, "ETag": f'"{identity[2:]}"', "Size": 1, "LastModified": moment(tick)}
                for identity, tick, _ in shown
            ],
            "IsTruncated": False,
        }
    page: dict[str, Any] = {"Versions": [], "DeleteMarkers": [], "IsTruncated": False}
    for identity, tick, latest in shown:
        version = identity[2:]
        entry = {"Key": KEY, "VersionId": version, "LastModified": moment(tick), "IsLatest": latest}
        if identity.startswith("m#"):
            page["DeleteMarkers"].append(entry)
        else:
            page["Versions"].append(entry | {"ETag": f'"etag-{version}"', "Size": 1})
    return page


def thaw(frozen: Hashable) -> dict[str, dict[str, Any]]:
    """An item as DynamoDB types it."""
    return {
        name: {kind: value.split(SEPARATOR) if kind == "SS" else value}
        for name, kind, value in cast("tuple[tuple[str, str, str], ...]", frozen)
    }


def freeze(item: Mapping[str, Mapping[str, Any]]) -> tuple[tuple[str, str, str], ...]:
    """An item as part of a state; the elements of a set as one text."""
    return tuple(
        sorted(
            (name, kind, SEPARATOR.join(sorted(value)) if kind == "SS" else value)
            for name, typed in item.items()
            for kind, value in typed.items()
        )
    )
