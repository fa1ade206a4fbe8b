"""Reads the current status of a pipeline in a bounded number of requests at any number of rows.

A part that the caller may not read is shown as denied, and a part that AWS throttled as unknown.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from functools import partial
from itertools import batched
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from intake_ledger.ledger.dynamodb_table import LedgerTable
from intake_ledger.protocol.row import REVIEW_INDEX, RowKey, breaker_key, pause_key, success_key
from intake_ledger_cli.act import recording
from intake_ledger_cli.act.recording import OpenOperation
from intake_ledger_cli.app import now_ms
from intake_ledger_cli.aws import metrics, reading
from intake_ledger_cli.aws.clients import Aws
from intake_ledger_cli.aws.consumer_log import FunctionErrors, read_errors
from intake_ledger_cli.aws.deployed import DeployedPipeline
from intake_ledger_cli.aws.executions import (
    AbortedExecution,
    ExecutionCount,
    count_running,
    executions_of,
    last_aborted,
)
from intake_ledger_cli.aws.metrics import LastHour, Tick, Values
from intake_ledger_cli.aws.reading import AuditState
from intake_ledger_cli.errors import denied_action, is_passing
from intake_ledger_cli.kinds import kind_of
from intake_ledger_cli.pipeline_options import StatusPart
from intake_ledger_cli.pipeline_options.exclusive_by import GROUPS
from intake_ledger_cli.pipeline_options.max_rate import RATE
from intake_ledger_cli.read import counting
from intake_ledger_cli.read.counting import Count, Counts
from intake_ledger_cli.show.json_output import camel_case

if TYPE_CHECKING:
    from mypy_boto3_sqs.literals import QueueAttributeNameType

OPTIONS = (RATE, GROUPS)
"""The parts of options."""
_HOUR_MS = 3_600_000
_WITH_AGES = ("failed", "rejected", "waiting")
_ALARMS_TOGETHER = 100  # CloudWatch's limit of DescribeAlarms
_LATE_MS = 120_000
"""CloudWatch shows a metric up to two minutes later. A failure that is not older than that proves no outage."""
SILENT_MS = 90_000 + _LATE_MS
"""While a message is held back, one is tried at least once in one and a half of the longest pauses."""
_WAITING: "QueueAttributeNameType" = "ApproximateNumberOfMessages"
_HIDDEN: "QueueAttributeNameType" = "ApproximateNumberOfMessagesNotVisible"
_DELAYED: "QueueAttributeNameType" = "ApproximateNumberOfMessagesDelayed"


class BreakerStatus(StrEnum):
    """The circuit breaker, as far as anything shows it."""

    CLOSED = "closed"
    OPEN = "open"
    UNKNOWN = "unknown"
    """It was open, and nothing was tried since."""


@dataclass(frozen=True, slots=True)
class BreakerState:
    """The circuit breaker. Times are in epoch milliseconds. The others are those of the worker that changed it last."""

    status: BreakerStatus
    opened_at: int | None = None
    next_probe_at: int | None = None
    """The time from which a message that was tried before is tried again. New uploads are tried at any time."""
    closed_at: int | None = None
    last_success_at: int | None = None
    last_failure_at: int | None = None
    last_seen_at: int | None = None
    """The time of the last sign of any attempt, or of a message that was held back."""
    reason: str = ""
    reason_code: str = ""


@dataclass(frozen=True, slots=True)
class QueueDepth:
    """The approximate numbers of messages in a queue."""

    waiting: int
    hidden: int
    """Messages in flight: they are processed, or wait for a later attempt."""
    delayed: int
    """Delayed copies of messages that wait. They are not in flight."""
    oldest_seconds: int | None
    """The age of the oldest message. None: CloudWatch has no value, or may not be read."""

    @property
    def messages(self) -> int:
        """All messages of the queue."""
        return self.waiting + self.hidden + self.delayed


@dataclass(frozen=True, slots=True)
class Alarm:
    """An alarm of the pipeline. `state` is CloudWatch's name of the state."""

    name: str
    state: str
    why: str

    def meaning(self, pipeline: str) -> str:
        """Return the problem, without the command and the address that end the description."""
        return self.why.removeprefix(f"{pipeline}: ").partition(" (intake-ledger ")[0] or self.name


@dataclass(frozen=True, slots=True)
class PauseRecord:
    """A pause by `intake-ledger pause`. `at` is in epoch milliseconds."""

    at: int
    by: str
    because: str


@dataclass(frozen=True, slots=True)
class TableSize:
    """Numbers of rows of all pipelines of the table. DynamoDB counts them about every six hours."""

    approximate_rows: int
    approximate_review_rows: int | None


@dataclass(frozen=True, slots=True)
class NotRead:
    """A part that could not be read."""

    action: str = ""
    """The action that the caller may not perform. Empty if it may."""
    why: str = ""
    """Why AWS did not answer: it throttled the request, or failed. Another call may succeed."""

    def as_document(self) -> dict[str, str]:
        return {"denied": self.action} if self.action else {"unknown": self.why}

    def __str__(self) -> str:
        return f"not allowed: {self.action}" if self.action else f"unknown: {self.why}"


@dataclass(frozen=True, slots=True)
class MoveTask:
    """A redrive of SQS's console or API that is running. `operations stop` does not reach its messages."""

    moved: int
    expected: int | None
    """The number of messages to move. None: SQS does not say."""
    started_at: int
    """Epoch milliseconds."""
    destination: str
    """ARN of the queue that gets them. Empty: the queue from which each came."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineStatus:
    """The document of `status`."""

    pipeline: str
    bucket: str
    message_source: str | None
    kind: str
    at: int
    """Epoch milliseconds."""
    consumer: str | NotRead
    """The state of the event source mapping, as Lambda names it."""
    pause: PauseRecord | None
    """Who has paused the consumer. None: no one, or the record may not be read."""
    queue: QueueDepth | NotRead
    dead_letters: QueueDepth | NotRead
    move_task: MoveTask | NotRead | None
    """None if no redrive of SQS is running."""
    failed: Count | NotRead
    rejected: Count | NotRead
    dismissed: Count | NotRead
    removed: Count | NotRead
    rejected_rows: Count | NotRead
    waiting: Count | NotRead
    later_format: Count | NotRead
    """These are of `counting.Counts`."""
    oldest: dict[str, int | None]
    """The time of the oldest failed, rejected and waiting row. Empty if they could not be read."""
    last_hour: LastHour | NotRead
    tick: Tick | NotRead | None
    breaker: BreakerState | NotRead
    table: TableSize | NotRead
    audit: AuditState | NotRead
    function: FunctionErrors | None
    """The lines about failed invocations of the last hour. None if Lambda counted none."""
    executions: ExecutionCount | NotRead | None
    """None if the processor is not a state machine."""
    aborted: list[AbortedExecution] | NotRead | None
    """Executions that were aborted in the last hour. None as above."""
    operations: list[OpenOperation] | NotRead
    """Operations of people of the last 14 days whose requests are not all served."""
    from_stream: bool
    """True if a stream has the messages, and no queue."""
    max_wait_seconds: int | None
    alarms: list[Alarm] | NotRead
    options: Mapping[str, Any]
    """The parts of `OPTIONS`, or why they could not be read. None for an option that the pipeline does not have."""

    def as_document(self) -> dict[str, Any]:
        """The parts of options are beside the others."""
        own = {camel_case(one.name): getattr(self, one.name) for one in fields(self) if one.name != "options"}
        return own | dict(self.options)


def read_status(aws: Aws, deployed: DeployedPipeline) -> PipelineStatus:
    """Read all parts of the status.

    Raises:
        ClientError: AWS returns an error other than a denial.

    """
    name, executions = deployed.name, executions_of(aws, deployed)
    own = {part.name: part.key(name) for part in OPTIONS if part.key is not None}
    keys = [reading.audit_key(deployed), *(key(name) for key in (breaker_key, success_key, pause_key)), *own.values()]
    # The breaker, the last success, the pause, the audit and the items of options in one consistent request.
    items = allowed(lambda: LedgerTable(aws.dynamodb, deployed.table).get_items(keys))
    size = allowed(lambda: _table_size(aws, deployed))
    hour = allowed(lambda: metrics.read_metrics(aws, deployed))
    index_rows = None if isinstance(size, NotRead) else size.approximate_review_rows
    counts = allowed(lambda: counting.count_rows(aws.dynamodb, deployed, index_rows))
    known = {} if isinstance(hour, NotRead) else hour
    ages = {name: values.last for name, values in known.items()}
    counted = None if isinstance(counts, NotRead) else counts
    now = now_ms()  # after these reads, so that nothing of them is in the future
    return PipelineStatus(
        pipeline=name,
        bucket=deployed.bucket,
        message_source=deployed.message_source,
        kind=kind_of(deployed).name.lower(),
        at=now,
        consumer=allowed(lambda: _source(aws, deployed)),
        pause=None if isinstance(items, NotRead) else _pause(items.get(pause_key(name), {})),
        queue=allowed(lambda: _depth(aws, deployed.queue_url, ages.get("queue"))),
        dead_letters=allowed(lambda: _depth(aws, deployed.dead_letter_url, ages.get("dead_letters"))),
        move_task=allowed(lambda: _move_task(aws, deployed.dead_letter_url)),
        **{one.name: _part(counts, attrgetter(one.name)) for one in fields(Counts)},
        oldest={} if counted is None else {one: getattr(counted, one).oldest_at for one in _WITH_AGES},
        last_hour=_part(hour, metrics.last_hour),
        tick=_part(hour, metrics.last_tick),
        breaker=_part(
            items,
            lambda found: judge_breaker(
                found.get(breaker_key(name), {}), found.get(success_key(name), {}), known, counted, now
            ),
        ),
        table=size,
        audit=_part(
            items,
            lambda found: reading.audit_state(aws.dynamodb, deployed, found.get(reading.audit_key(deployed), {}), now),
        ),
        function=read_errors(aws, deployed, now - _HOUR_MS, now) if known and known["Errors"].total else None,
        executions=None if executions is None else allowed(lambda: count_running(executions)),
        aborted=None if executions is None else allowed(lambda: last_aborted(executions, now - _HOUR_MS)),
        operations=allowed(lambda: recording.open_operations(aws, deployed, now)),
        from_stream=deployed.reads_stream,
        max_wait_seconds=deployed.max_wait_seconds,
        alarms=allowed(lambda: _alarms(aws, deployed)),
        options={part.name: _option(part, aws, deployed, now, items if part.name in own else {}) for part in OPTIONS},
    )


def _option(
    part: StatusPart,
    aws: Aws,
    deployed: DeployedPipeline,
    now: int,
    items: Mapping[RowKey, Mapping[str, Any]] | NotRead,
) -> Any:
    def read(found: Mapping[RowKey, Mapping[str, Any]]) -> Any:
        item = {} if part.key is None else found.get(part.key(deployed.name), {})
        return allowed(partial(part.read, aws, deployed, now, item))

    return _part(items, read)


def _part[T, Part](found: T | NotRead, part_of: Callable[[T], Part]) -> Part | NotRead:
    return found if isinstance(found, NotRead) else part_of(found)


def allowed[T](ask: Callable[[], T]) -> T | NotRead:
    """Read a part of a document, or say why it could not be read."""
    try:
        return ask()
    except ClientError as error:
        if (action := denied_action(error)) is not None:
            return NotRead(action)
        if not is_passing(error):
            raise
        return NotRead(
            why=f"{error.operation_name} was answered with {error.response['Error'].get('Code', 'an error')}"
        )


def judge_breaker(
    record: Mapping[str, Any], shared: Mapping[str, Any], metrics: Mapping[str, Values], counts: Counts | None, now: int
) -> BreakerState:
    """Judge the breaker by the last success and the last failure that the ledger or CloudWatch show.

    An environment of the consumer writes the breaker's record when its own breaker changes. After a deployment new
    environments take the work, which had no open breaker and write nothing. So the record alone would stay open.

    Args:
        record: the item of the breaker.
        shared: the item with the last success that environments share.
        metrics: of the last hour. Empty if they may not be read.
        counts: of the rows that need review. None if they may not be read.
        now: epoch milliseconds.

    """
    opened_at = record.get("opened_at")
    last = {name: values.positive_at for name, values in metrics.items()}
    success = _latest(shared.get("last_success_at"), record.get("closed_at"), last.get("Committed"))
    failure = _latest(last.get("Failed"), counts.failed.newest_at if counts else None)
    seen = _latest(success, failure, opened_at, last.get("BreakerOpen"))
    if opened_at is None or (success is not None and success > opened_at and (failure or 0) - success <= _LATE_MS):
        status = BreakerStatus.CLOSED
    elif now - (seen or 0) > SILENT_MS:
        status = BreakerStatus.UNKNOWN
    else:
        status = BreakerStatus.OPEN
    return BreakerState(
        status,
        opened_at,
        record.get("next_probe_at"),
        record.get("closed_at"),
        success,
        _latest(failure, opened_at),
        seen,
        record.get("reason", ""),
        record.get("reason_code", ""),
    )


def _latest(*times: int | None) -> int | None:
    return max((int(one) for one in times if one is not None), default=None)


def _depth(aws: Aws, url: str, oldest_seconds: int | None) -> QueueDepth:
    attributes: Any = aws.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=[_WAITING, _HIDDEN, _DELAYED])[
        "Attributes"
    ]
    delayed = int(attributes.get(_DELAYED, 0))
    return QueueDepth(int(attributes[_WAITING]), int(attributes[_HIDDEN]), delayed, oldest_seconds)


def _move_task(aws: Aws, url: str) -> MoveTask | NotRead | None:
    *_, account, name = url.split("/")
    arn = f"arn:{aws.partition}:sqs:{aws.region}:{account}:{name}"
    try:
        found = aws.sqs.list_message_move_tasks(SourceArn=arn).get("Results", ())
    except ClientError as error:
        if denied_action(error) is not None or is_passing(error):
            raise
        # A queue that is no longer a dead-letter queue has no such redrive.
        return NotRead(why=f"{error.operation_name}: {error.response['Error'].get('Message', '')}")
    running = next((one for one in found if one.get("Status") in ("RUNNING", "CANCELLING")), None)
    if running is None:
        return None
    return MoveTask(
        running.get("ApproximateNumberOfMessagesMoved", 0),
        running.get("ApproximateNumberOfMessagesToMove"),
        running.get("StartedTimestamp", 0),
        running.get("DestinationArn", ""),
    )


def _pause(content: Mapping[str, Any]) -> PauseRecord | None:
    return PauseRecord(content["paused_at"], content["paused_by"], content["because"]) if content else None


def _table_size(aws: Aws, deployed: DeployedPipeline) -> TableSize:
    table = aws.dynamodb.describe_table(TableName=deployed.table)["Table"]
    sizes = {one.get("IndexName"): one.get("ItemCount") for one in table.get("GlobalSecondaryIndexes", ())}
    return TableSize(table.get("ItemCount", 0), sizes.get(REVIEW_INDEX))


def _source(aws: Aws, deployed: DeployedPipeline) -> str:
    mappings = aws.functions.list_event_source_mappings(FunctionName=deployed.consumer_function)["EventSourceMappings"]
    # An intake of a stream has a second mapping, for redriven records.
    return ", ".join(dict.fromkeys(one["State"] for one in mappings)) or "Missing"


def _alarms(aws: Aws, deployed: DeployedPipeline) -> list[Alarm]:
    """Return the stack's alarms on this pipeline's metrics, queues and functions. Those in ALARM come first."""
    own = {deployed.name, deployed.queue_url.rsplit("/", 1)[-1], deployed.dead_letter_url.rsplit("/", 1)[-1]}
    own |= {name for name in (deployed.consumer_function, deployed.audit_function) if name}
    found: list[Alarm] = []
    for names in batched(deployed.alarms, _ALARMS_TOGETHER):
        answer = aws.cloudwatch.describe_alarms(AlarmNames=list(names), MaxRecords=_ALARMS_TOGETHER)
        found += [
            Alarm(one["AlarmName"], one["StateValue"], one.get("AlarmDescription", ""))
            for one in answer["MetricAlarms"]
            if own & _watched(one)
        ]
    return sorted(found, key=lambda one: (one.state != "ALARM", one.state == "OK", one.name))


def _watched(alarm: Mapping[str, Any]) -> set[str]:
    """Return the values of all dimensions. An alarm on a metric expression has its metrics inside."""
    metrics = [alarm, *(one.get("MetricStat", {}).get("Metric", {}) for one in alarm.get("Metrics", ()))]
    return {dimension["Value"] for metric in metrics for dimension in metric.get("Dimensions", ())}
