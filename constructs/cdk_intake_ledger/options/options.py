"""Groups of options of a pipeline."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_logs as logs
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sns as sns
from constructs import Construct

from cdk_intake_ledger.checks.arguments.checking import check_arguments
from cdk_intake_ledger.checks.registry import Problem
from cdk_intake_ledger.checks.rules.audit_rules import BACKFILL_RATE_NEEDS_BACKFILL, RESUBMIT_RATE_NEEDS_PARTS
from cdk_intake_ledger.checks.rules.max_rate import StartRate
from cdk_intake_ledger.options.audit_scale import AuditScale
from cdk_intake_ledger.options.exclusive_by import KeyGroups
from intake_ledger.protocol.row import Ordering
from intake_ledger.protocol.settings import Reasons
from intake_ledger.protocol.settings_audit import Delivery

__all__ = [
    "AlarmAction",
    "AuditOptions",
    "ConcurrencyOptions",
    "Delivery",
    "Existing",
    "MonitoringOptions",
    "NetworkOptions",
    "Ordering",
    "Reasons",
    "RetryOptions",
]


@check_arguments
@dataclass(frozen=True, kw_only=True)
class ConcurrencyOptions(StartRate, KeyGroups):
    """Batches of messages, and how many of them are processed at the same time."""

    batch_size: int = 10
    """The maximum number of messages in one invocation of the consumer, 1 to 10,000; 10 when omitted. More than 10
    need a `max_batching_window`."""

    max_batching_window: Duration | None = None
    """The time for which Lambda collects messages for a batch, up to 5 minutes; it does not wait when omitted."""

    max_concurrency: int | None = None
    """The maximum number of concurrent invocations of the consumer, 2 to 1,000 (the range of an SQS event source); only
    the account's quota limits them when omitted."""

    reserved_concurrency: int | None = None
    """Concurrent executions that the account reserves for the consumer, which has no more then; none when omitted. At
    least `max_concurrency`, since Lambda throttles further invocations."""

    min_pollers: int | None = None
    """The smallest number of pollers of provisioned mode, 2 to 200. When omitted with `max_pollers`, it is 2, and when
    both are omitted, the default mode polls. Provisioned mode scales faster, costs money for each hour of a poller, and
    excludes `max_concurrency`."""

    max_pollers: int | None = None
    """The largest number of pollers of provisioned mode, 2 to 10,000. When omitted with `min_pollers`, it is
    200."""

    threads: int = 1
    """The number of records of a batch that an invocation processes at the same time, 1 to `batch_size`; 1 when
    omitted. Use more than 1 for a thread-safe processor that mostly waits for I/O. Records of the same key never run at
    the same time. A processor that exceeds `processing_timeout` ends its process."""

    commit_together: bool = False
    """True to commit changes that were claimed together in one request, up to 25 at a time; a request for each change
    when omitted. It saves CPU time. A worker that stops before the commit repeats the effects of up to
    25 changes instead of one. It needs `threads=1`."""

    clock_skew: Duration = field(default_factory=lambda: Duration.minutes(2))
    """The largest expected difference between the clocks of two workers, 1 second to 1 hour; 2 minutes when omitted. A
    lease lasts this much longer than its invocation."""


@check_arguments
@dataclass(frozen=True, kw_only=True)
class NetworkOptions:
    """The VPC of the pipeline's functions."""

    vpc: ec2.IVpc
    """The VPC. It needs endpoints or a NAT gateway for S3, SQS and DynamoDB. The audit also calls CloudWatch, Lambda,
    KMS if the queue has a key, and EventBridge if it delivers the events."""

    vpc_subnets: ec2.SubnetSelection | None = None
    """Subnets of the `vpc`; its private subnets when omitted."""

    security_groups: Sequence[ec2.ISecurityGroup] | None = None
    """Security groups of all functions; each function gets a new one when omitted."""


class AlarmAction(Protocol):
    """An action of CloudWatch, such as `SnsAction`. Unlike in CDK's `IAlarmAction`, parameters have any names."""

    def bind(self, scope: Construct, alarm: cloudwatch.IAlarm, /) -> cloudwatch.AlarmActionConfig:
        """Return the action's ARN."""
        ...


@check_arguments
@dataclass(frozen=True, kw_only=True)
class MonitoringOptions:
    """Alarms, logs and the text of failures."""

    alarm_actions: Sequence[AlarmAction | sns.ITopic | sns.TopicBase] = ()
    """Actions of the composite alarms `NotWorking` and `NeedsAPerson`, and of alarms without a composite, or SNS topics
    that these notify; none when omitted."""

    alarms: Sequence[str] | None = None
    """Names of the alarms to make, such as `["DeadLetters", "AuditMissing"]`; the children of both composites when
    omitted. Others, such as `Retries`, are made only if named. With an empty list, there are none."""

    omit_alarms: Sequence[str] = ()
    """Names of alarms not to make; none when omitted."""

    thresholds: Mapping[str, float] = field(default_factory=dict)
    """Thresholds by the names of alarms, such as `{"Retries": 50}`, in the unit of the metric. docs/runbooks.md
    has the default of each alarm, which applies when omitted."""

    log_group: logs.ILogGroup | None = None
    """The log group of all functions. When omitted, each function has its own, which keeps two months."""

    tracing: bool = False
    """True if X-Ray traces the functions, for a price per trace; they are not traced when omitted."""

    reasons: Reasons = Reasons.TYPES
    """The text about a failed attempt in ledger rows, dead-letter messages and logs. When omitted, types of exceptions
    and positions in your code. `Reasons.FULL` adds the messages of exceptions, which may quote the content of objects.
    The text of an `Unprocessable` is always kept."""


@check_arguments
@dataclass(frozen=True, kw_only=True)
class RetryOptions:
    """The number of attempts and the waits between them.

    The ledger counts attempts for each state of each object. Only calls of the processor count. Throttled invocations,
    busy keys and a batch that another record stopped do not. The wait doubles with each attempt, with jitter.
    """

    max_attempts: int = 12
    """Attempts before the message is copied to the dead-letter queue and the row becomes REJECTED, 2 to 50; 12 when
    omitted."""

    min_backoff: Duration = field(default_factory=lambda: Duration.seconds(15))
    """The wait after the first failure, 1 second to 12 hours (SQS's limit for hiding a message); 15 seconds when
    omitted."""

    max_backoff: Duration = field(default_factory=lambda: Duration.minutes(30))
    """The longest wait, up to 12 hours; 30 minutes when omitted. Twelve attempts then cover an outage of more than an
    hour."""

    max_wait: Duration | None = None
    """The maximum time for which the processor may raise `NotYet` for a change before it is rejected. At least 1
    minute. Three quarters of the queue's retention, 3 of 4 days, when omitted. It may be longer than the retention,
    because a message that waits copies itself before its end. Messages of FIFO queues and streams do not: then it is
    at most three quarters of the retention."""


class Existing(Enum):
    """The treatment of objects that were in your bucket before the pipeline."""

    BASELINE = "BASELINE"
    """Ignore them until they are overwritten or removed."""
    BACKFILL = "BACKFILL"
    """Process each one once, at `AuditOptions.backfill_rate`."""


@check_arguments
@dataclass(frozen=True, kw_only=True)
class AuditOptions:
    """Schedule, limits and reports of the audit, which finds changes whose events were lost."""

    interval: Duration = field(default_factory=lambda: Duration.days(1))
    """The time between two runs, in whole minutes, up to 365 days; one day when omitted."""

    settle_time: Duration = field(default_factory=lambda: Duration.hours(1))
    """The minimum age of a change that the audit judges, since the event of a younger one may still arrive; one hour
    when omitted. Choose more than the longest backlog that you expect in the queue."""

    look_back: Duration = field(default_factory=lambda: Duration.days(14))
    """The maximum age of an object that is compared with the ledger; 14 days when omitted. A multipart upload has the
    date of its start, so choose more than the 7 days after which an unfinished one is removed. If the ledger has kept
    the row of every object since its first day, the audit compares all objects."""

    budget: int = 10_000
    """The maximum number of messages that a run sends; 10,000 when omitted. The next run sends the rest."""

    resubmit_rate: int | None = None
    """Messages per second that a run in parts sends, 1 to 5,000; 100 when omitted. It needs a `scale` of parts. After a
    large loss, raise it together with `budget`."""

    scale: AuditScale = field(default_factory=AuditScale.one)
    """The way a run reads the bucket. When omitted, one function lists it, for up to about ten million objects. Use
    `AuditScale.shards(...)` or `AuditScale.inventory(...)` for more."""

    existing: Existing = Existing.BASELINE
    """The treatment of objects that were in the bucket before the pipeline; they are ignored when omitted."""

    backfill_rate: int | None = None
    """Messages per second that `Existing.BACKFILL` sends, and only it, 1 to 5,000; 3 when omitted, which is 10,800 an
    hour. An audit in one function sends the messages of 15 minutes at once, minus the messages in the queue, and reads
    the bucket each time. The backfill must end within 0.9 of the ledger's retention."""

    report_bucket: s3.IBucket | None = None
    """The bucket for the report of each run, a JSON object whose key has the run's day and id. When omitted, reports
    are logged and returned. With a `report_prefix` only, they are written to the intake bucket."""

    report_prefix: str | None = None
    """The prefix of the reports' keys, before the pipeline's name; `audit/` when omitted. In the intake bucket, the
    filters must exclude it. Otherwise the pipeline would process its own reports."""

    def problems(self) -> Iterator[Problem]:
        """Reasons why the scale cannot work, and options without effect. The pipeline calls this method."""
        yield from self.scale.problems()
        if self.backfill_rate is not None and self.existing is not Existing.BACKFILL:
            yield BACKFILL_RATE_NEEDS_BACKFILL.problem()
        if self.resubmit_rate is not None and not self.scale.in_parts:
            yield RESUBMIT_RATE_NEEDS_PARTS.problem()
