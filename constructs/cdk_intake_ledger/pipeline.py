"""The construct that a team writes."""

import math
from collections.abc import Iterator, Mapping, Sequence

import jsii
from aws_cdk import Annotations, Duration, Names, RemovalPolicy, Stack, Token
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sqs as sqs
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct, IConstruct

from cdk_intake_ledger.audit.intake_audit import IntakeAudit
from cdk_intake_ledger.audit.reports import report_problems
from cdk_intake_ledger.delivery.event_delivery import (
    add_notifications,
    bucket_problems,
    default_delivery_mode,
    delivery_problems,
    owned_resource,
    owner_of,
)
from cdk_intake_ledger.delivery.key_filters import filter_problems, key_filters, looks_encoded
from cdk_intake_ledger.errors import IntakeConfigurationError
from cdk_intake_ledger.functions.consumer import IntakeConsumer
from cdk_intake_ledger.functions.lambda_function import Placement, Wiring
from cdk_intake_ledger.functions.processor import Processor
from cdk_intake_ledger.functions.runtime_layer import runtime_layer
from cdk_intake_ledger.monitoring.intake_monitoring import IntakeMonitoring
from cdk_intake_ledger.monitoring.metrics import IntakeMetrics
from cdk_intake_ledger.options.options import AuditOptions, Delivery, Ordering, Reasons, RetryOptions
from cdk_intake_ledger.resources.bucket import intake_bucket
from cdk_intake_ledger.resources.fixed_names import MAX_NAME, FixedIds, pipeline_name_problems, register, tag
from cdk_intake_ledger.resources.ledger_table import IntakeLedger
from cdk_intake_ledger.resources.queue import IntakeQueue
from cdk_intake_ledger.validation.bucket_validation import BucketValidation
from cdk_intake_ledger.validation.nag_suppressions import Wildcards
from cdk_intake_ledger.validation.plan import (
    DAY,
    DEAD_LETTER_RETENTION_DAYS,
    LEDGER_RETENTION_DAYS,
    QUEUE_RETENTION_DAYS,
    UNKNOWN,
    Plan,
)
from cdk_intake_ledger.validation.rules import problems
from cdk_intake_ledger.validation.warnings import WARNING_PREFIX


@jsii.implements(iam.IGrantable)
class IntakePipeline(Construct, IntakeMetrics):
    """From uploads to exactly one effect each: bucket, queue, ledger, consumer, audit and alarms.

    The team's processor is called for each change that the ledger admits. Whatever it needs besides the object is
    granted to the pipeline itself: `table.grant_read_write_data(pipeline)`.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        processor: Processor,
        pipeline_name: str | None = None,
        ordering: Ordering = Ordering.LATEST,
        bucket: s3.IBucket | None = None,
        filters: Sequence[s3.NotificationKeyFilter] | None = None,
        deletes: bool = False,
        delivery: Delivery | None = None,
        queue: IntakeQueue | None = None,
        ledger: IntakeLedger | None = None,
        processing_timeout: Duration | None = None,
        clock_skew: Duration | None = None,
        retry: RetryOptions | None = None,
        batch_size: int = 10,
        max_batching_window: Duration | None = None,
        max_concurrency: int | None = None,
        concurrency: int = 1,
        commit_together: bool = False,
        reasons: Reasons = Reasons.TYPES,
        encryption_key: kms.IKey | None = None,
        vpc: ec2.IVpc | None = None,
        vpc_subnets: ec2.SubnetSelection | None = None,
        security_groups: Sequence[ec2.ISecurityGroup] | None = None,
        log_group: logs.ILogGroup | None = None,
        audit: AuditOptions | None = None,
        alarm_actions: Sequence[cloudwatch.IAlarmAction] | None = None,
        removal_policy: RemovalPolicy = RemovalPolicy.RETAIN,
    ) -> None:
        """Make a pipeline.

        Args:
            scope: the stack, or a construct in it, that it belongs to.
            id: its name there. Without a `pipeline_name`, bucket, ledger, queues and the pipeline's own name follow
                from both: changing either replaces them by new and empty ones.
            processor: the team's function.
            pipeline_name: fixes the pipeline's name in the ledger, logs and metrics, and all logical ids, so that the
                construct may be renamed and moved within its stack without a change of the template: 1 to 64 letters,
                digits, `-` and `_`, a letter first, unique in the stack and on the ledger. When omitted, name and
                logical ids follow from `id` and place; after a change `intake-ledger adopt` moves what was left.
                Introducing it in a deployed pipeline is such a change. A `bucket`, `ledger` or key that is given keeps
                an id of its own.
            ordering: whether an overtaken version is left out (`LATEST`, also when omitted) or each one is processed
                (`EVERY_VERSION`).
            bucket: where files arrive. When omitted, the pipeline makes a versioned one of its own. One of the same
                stack is notified about by S3, one of another stack by EventBridge, an imported one through CDK's
                notifications.
            filters: which keys are taken, by prefix and suffix, written as they are in the key (not percent-encoded).
                When omitted, all are.
            deletes: whether the processor is called for removed objects too; the ledger then keeps the row of an
                object as long as the object. When omitted, a removal is only recorded.
            delivery: how the bucket's changes reach the queue. When omitted, as said at `bucket`; with `EVENTBRIDGE` an
                imported bucket's owner switches EventBridge on there, with `EXISTING` nothing is made and both `bucket`
                and `queue` are the team's own.
            queue: a queue with options of its own. When omitted, the pipeline makes one.
            ledger: a ledger with options of its own, or one that several pipelines share. When omitted, the pipeline
                makes one.
            processing_timeout: how long the processor may take for one object, 1 to 890 seconds (Lambda's 900, less
                what the ledger needs); one minute when omitted. The function's timeout, the lease and the queue's
                visibility timeout follow from it.
            clock_skew: by how much the clocks of two workers may differ, 1 second to an hour; two minutes when omitted.
                A claim outlives its function by that much.
            retry: how often and how soon a failed change is tried again; 12 attempts, 15 seconds to 30 minutes apart,
                when omitted.
            batch_size: the number of messages that one call of the consumer gets at most, 1 to 10,000; 10 when omitted.
                More than 10 need a `max_batching_window`.
            max_batching_window: how long messages are collected for a batch, up to 5 minutes; not at all when omitted.
            max_concurrency: how many consumers run at the same time, 2 to 1,000 (the range of an SQS event source); as
                many as the account allows when omitted.
            concurrency: how many records of a batch one consumer processes at the same time, in threads, 1 to
                `batch_size`; 1 when omitted. More are for a processor that waits for something, and that several
                threads may run at once; records of one key are never together. One that overruns `processing_timeout`
                ends its process.
            commit_together: whether changes that were claimed together are committed together, in one request for up to
                25, which saves consumer CPU; each alone when omitted. A worker that dies then repeats the effects of
                up to 25 changes, in place of one. Not with `concurrency`.
            reasons: what ledger rows, dead-letter messages and logs say about a failed attempt. When omitted, exception
                types and positions in the team's code. With `Reasons.FULL` also the messages of exceptions, which may
                quote the content of objects. The text of an `Unprocessable` is always kept.
            encryption_key: encrypts the bucket, the queues and the table that the pipeline makes itself. When omitted,
                each has its service's own key.
            vpc: where the functions run; outside of any when omitted. It needs ways to S3, SQS and DynamoDB; the audit
                also asks CloudWatch, Lambda, KMS where the queue has a key, and EventBridge where that delivers.
            vpc_subnets: which subnets of the `vpc`; the private ones when omitted.
            security_groups: of both functions; one is made for each when omitted.
            log_group: where both functions log. When omitted, each has one of its own, which keeps two months.
            audit: when and how the audit runs; once a day over what is an hour to 14 days old, when omitted.
            alarm_actions: what happens when one of the `alarms` goes off; they are only shown when omitted.
            removal_policy: of bucket, ledger, queues and logs that the pipeline makes itself; they are kept when
                omitted. `DESTROY` also switches the table's protection from deletion off, and empties nothing.

        Raises:
            IntakeConfigurationError: something cannot work. It names everything that is wrong, at once.

        """
        super().__init__(scope, id)
        retry = retry or RetryOptions()
        audit = audit or AuditOptions()
        timeout = processing_timeout or Duration.minutes(1)
        skew = clock_skew or Duration.minutes(2)
        keys = key_filters(filters)
        plan = Plan(
            processing_timeout=_seconds(timeout),
            clock_skew=_seconds(skew),
            max_attempts=_number(retry.max_attempts),
            min_backoff=_seconds(retry.min_backoff),
            max_backoff=_seconds(retry.max_backoff),
            max_wait=_seconds(retry.max_wait),
            batch_size=_number(batch_size),
            max_batching_window=_seconds(max_batching_window) if max_batching_window else 0,
            max_concurrency=_number(max_concurrency),
            concurrency=_number(concurrency),
            commit_together=commit_together,
            visibility_timeout=_seconds(queue.visibility_timeout if queue else None),
            queue_retention=_seconds(queue.retention) if queue else QUEUE_RETENTION_DAYS * DAY,
            dead_letter_retention=_seconds(queue.dead_letter_retention) if queue else DEAD_LETTER_RETENTION_DAYS * DAY,
            ledger_retention=_seconds(ledger.retention) if ledger else LEDGER_RETENTION_DAYS * DAY,
            audit_interval=_seconds(audit.interval),
            settle_time=_seconds(audit.settle_time),
            look_back=_seconds(audit.look_back),
            audit_budget=_number(audit.budget),
            resubmit_rate=_number(audit.resubmit_rate),
            backfill_rate=_number(audit.backfill_rate),
            memory_size=_number(processor.memory_size),
            processor_timeout=_seconds(processor.function_timeout),
        )
        table = ledger.table if ledger else None
        self._pipeline_name = pipeline_name or Names.unique_resource_name(self, max_length=MAX_NAME, separator="-")
        found = [
            *(pipeline_name_problems(self, pipeline_name, table) if pipeline_name is not None else ()),
            *processor.problems,
            *_needed_at_synthesis(plan),
            *problems(plan),
            *filter_problems(keys),
            *(bucket_problems(bucket, self, keys, delivery) if bucket else ()),
            *delivery_problems(delivery, existing=bucket is not None and queue is not None and queue.is_existing),
            *(queue.problems(plan.max_attempts) if queue else ()),
            *(ledger.problems() if ledger else ()),
            *report_problems(audit, bucket, keys),
            *audit.scale.problems(),
        ]
        if found:
            raise IntakeConfigurationError(self.node.path, found)
        for end in looks_encoded(keys):
            Annotations.of(self).add_warning_v2(
                f"{WARNING_PREFIX}:filterLooksEncoded",
                f"the filter {end!r} looks percent-encoded: write it as it is in the key, it is encoded for S3 here",
            )

        self._bucket = bucket or intake_bucket(
            self, "Bucket", encryption_key=encryption_key, removal_policy=removal_policy
        )
        resource = owned_resource(self._bucket)
        delivery_mode = delivery or (default_delivery_mode(bucket, resource, self) if bucket else Delivery.S3)
        visibility = int(plan.least_visibility)
        self._queue = queue or IntakeQueue(
            self,
            "Queue",
            visibility_timeout=Duration.seconds(visibility),
            encryption_key=encryption_key,
            removal_policy=removal_policy,
        )
        self._queue.attach_to(self, visibility)
        self._ledger = ledger or IntakeLedger(
            self, "Ledger", encryption_key=encryption_key, removal_policy=removal_policy
        )
        for root in (self, queue):
            if root is not None:
                tag(root, self._pipeline_name)
        placement = Placement(
            layer=runtime_layer(self, "Runtime"),
            vpc=vpc,
            vpc_subnets=vpc_subnets,
            security_groups=security_groups,
            log_group=log_group,
            removal_policy=removal_policy,
        )
        wildcards = Wildcards(self)
        wiring = Wiring(
            name=self._pipeline_name,
            bucket=self._bucket,
            bucket_is_own=bucket is None,
            bucket_owner=owner_of(self._bucket, resource, self),
            delivery=delivery_mode,
            queue=self._queue,
            ledger=self._ledger,
            retention=self._ledger.retention or Duration.seconds(plan.remembered),
            ordering=ordering,
            deletes=deletes,
            clock_skew=skew,
            filters=keys,
            stack=Stack.of(self),
            wildcards=wildcards,
            given=dict(self._given(bucket, queue, ledger, encryption_key)),
        )
        self._consumer = IntakeConsumer(
            self,
            "Consumer",
            placement=placement,
            wiring=wiring,
            processor=processor,
            processing_timeout=timeout,
            retry=retry,
            batch_size=batch_size,
            max_batching_window=max_batching_window,
            max_concurrency=max_concurrency,
            concurrency=concurrency,
            commit_together=commit_together,
            reasons=reasons,
        )
        self._audit = IntakeAudit(
            self, "Audit", placement=placement, wiring=wiring, options=audit, consumer=self._consumer
        )
        if ledger is not None:
            ledger.share(self._pipeline_name, self._bucket, self._audit.function)
        self._monitoring = IntakeMonitoring(
            self,
            "Monitoring",
            pipeline_name=self._pipeline_name,
            queue=self._queue.queue,
            dead_letter_queue=self._queue.dead_letter_queue,
            consumer_function=self._consumer.function,
            audit_function=self._audit.function,
            settle_time=audit.settle_time,
            audit_interval=audit.interval,
            alarm_actions=alarm_actions,
        )
        self._filters = keys
        add_notifications(
            self,
            delivery_mode,
            pipeline_name=self._pipeline_name,
            bucket=self._bucket,
            own=bucket is None,
            resource=resource,
            queue=self._queue,
            filters=keys,
        )
        self.node.add_validation(wildcards)
        self.node.add_validation(
            BucketValidation(
                self,
                bucket=self._bucket,
                resource=resource,
                delivery=delivery_mode,
                filters=keys,
                role=self._consumer.role,
                message_life=plan.queue_retention + plan.dead_letter_retention,
                queue=queue.queue if queue else None,
                source=self._consumer.source,
            )
        )
        if pipeline_name is not None:
            register(self, pipeline_name, self._ledger.table)
            ids = FixedIds(pipeline_name)
            ids.fix(self)
            if queue is not None:
                # It is this pipeline's alone, wherever it was made.
                ids.fix(queue, "Queue")

    @property
    def pipeline_name(self) -> str:
        """How the ledger, logs and metrics call this pipeline; unique among those that share a ledger."""
        return self._pipeline_name

    @property
    def bucket(self) -> s3.IBucket:
        """Where files arrive."""
        return self._bucket

    @property
    def queue(self) -> sqs.IQueue:
        """What S3 notifies, and what the audit and people send to."""
        return self._queue.queue

    @property
    def dead_letter_queue(self) -> sqs.IQueue:
        """Where messages go that a person has to look at, each with its reason."""
        return self._queue.dead_letter_queue

    @property
    def table(self) -> dynamodb.ITable:
        """The ledger's table. To read it, use `grant_read_ledger`; nobody but the pipeline should write to it."""
        return self._ledger.table

    @property
    def consumer_function(self) -> lambda_.IFunction:
        """The function that runs the processor."""
        return self._consumer.function

    @property
    def audit_function(self) -> lambda_.IFunction:
        """The function that looks for what was lost."""
        return self._audit.function

    @property
    def audit_state_machine(self) -> sfn.IStateMachine | None:
        """What runs the audit in parts: start it with `{}` to run now, with `{"dryRun": true}` to look. None where one
        function is enough.
        """
        return self._audit.state_machine

    @property
    def monitoring(self) -> IntakeMonitoring:
        """The alarms, and widgets for a dashboard."""
        return self._monitoring

    @property
    def alarms(self) -> Mapping[str, cloudwatch.Alarm]:
        """By name, such as `DeadLetters`. docs/monitoring.md has all of them, with what to do when one goes off."""
        return self._monitoring.alarms

    @property
    def grant_principal(self) -> iam.IPrincipal:
        """The role that the processor runs with; it makes the pipeline itself a grantee."""
        return self._consumer.role

    def grant_put(self, grantee: iam.IGrantable) -> iam.Grant:
        """Let a principal upload what the pipeline takes: keys that pass its filters, in the bucket, and no others.

        Args:
            grantee: a role, a user, or anything that acts as one. Of another account it needs the same permission on
                its own side too, and the key's, where the bucket has one.

        """
        first, *rest = (self._bucket.grant_put(grantee, item.iam_pattern()) for item in self._filters)
        for grant in rest:
            first = first.combine(grant)
        return first

    def grant_read_ledger(self, grantee: iam.IGrantable) -> iam.Grant:
        """Let a principal look rows up, list those that need attention, and see which versions S3 has beside them.

        Args:
            grantee: gets reading actions on the table and its index, the use of the table's key for it, and the
                listing of the bucket's versions: names, sizes and dates, no content.

        """
        return self._ledger.grant_read(grantee).combine(self._grant_list(grantee, "s3:ListBucketVersions"))

    def grant_redrive(self, grantee: iam.IGrantable) -> iam.Grant:
        """Let a principal move messages from the dead-letter queue back to the queue.

        Args:
            grantee: may receive and delete there, send here, and use the queues' key for it.

        """
        taking = ("sqs:ChangeMessageVisibility", "sqs:DeleteMessage", "sqs:GetQueueAttributes", "sqs:ReceiveMessage")
        return self._with_queue_key(grantee, self.dead_letter_queue.grant(grantee, *taking)).combine(
            self._grant_send(grantee)
        )

    def grant_reprocess(self, grantee: iam.IGrantable) -> iam.Grant:
        """Let a principal ask for objects to be processed again, by their keys or by a prefix.

        Args:
            grantee: may send to the queue, use its key for it, and list the bucket. Such a request runs the processor
                on what S3 shows for the key; it cannot make anything up.

        """
        listing = self._grant_list(grantee, "s3:ListBucket", "s3:ListBucketVersions")
        return self._with_queue_key(grantee, self._grant_send(grantee)).combine(listing)

    @staticmethod
    def _given(
        bucket: s3.IBucket | None, queue: IntakeQueue | None, ledger: IntakeLedger | None, key: kms.IKey | None
    ) -> Iterator[tuple[str, IConstruct]]:
        if bucket is not None:
            yield "bucket", bucket
        if queue is not None:
            yield "queue", queue.queue
            yield "dead", queue.dead_letter_queue
            key = queue.encryption_key
        if ledger is not None:
            yield "table", ledger.table
        if key is not None:
            yield "key", key

    def _grant_list(self, grantee: iam.IGrantable, *actions: str) -> iam.Grant:
        return iam.Grant.add_to_principal(
            grantee=grantee, actions=list(actions), resource_arns=[self._bucket.bucket_arn]
        )

    def _grant_send(self, grantee: iam.IGrantable) -> iam.Grant:
        return self.queue.grant(grantee, "sqs:GetQueueAttributes", "sqs:SendMessage")

    def _with_queue_key(self, grantee: iam.IGrantable, grant: iam.Grant) -> iam.Grant:
        key = self._queue.encryption_key
        return grant.combine(key.grant(grantee, "kms:Decrypt", "kms:GenerateDataKey")) if key else grant


def _seconds(duration: Duration | None) -> float:
    """A duration's seconds; `UNKNOWN` where it was not given, or has a token in it."""
    if duration is None:
        return UNKNOWN
    try:
        seconds = duration.to_seconds(integral=False)
    except RuntimeError:  # CDK cannot convert a token, such as one of days
        return UNKNOWN
    # It is a negative number, which no duration may be.
    return UNKNOWN if seconds < 0 else float(seconds)


def _number(value: float | None) -> float:
    # A token is a negative number; to ask the CDK about every other one is a call to its process each.
    return UNKNOWN if value is None or (value < 0 and Token.is_unresolved(value)) else value


def _needed_at_synthesis(plan: Plan) -> list[str]:
    """Other numbers follow from these, and CDK cannot calculate with a number that it does not know yet."""
    names = ("processing_timeout", "clock_skew", "max_batching_window", "audit_interval")
    return [
        f"{name} is a token: its value is needed at synthesis, since others are calculated from it, give a plain one"
        for name in names
        if math.isnan(getattr(plan, name))
    ]
