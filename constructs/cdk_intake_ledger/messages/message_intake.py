"""The construct of a message intake."""

from collections.abc import Mapping

import jsii
from aws_cdk import Aspects, Duration, Names, RemovalPolicy
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from cdk_intake_ledger.arguments import check_arguments
from cdk_intake_ledger.audit import make_schedule
from cdk_intake_ledger.functions import FunctionNetworking, Processor
from cdk_intake_ledger.messages.expressions import reads_sns_envelope, warn_about_identity
from cdk_intake_ledger.messages.message_consumer import MessageConsumer, MessageResources
from cdk_intake_ledger.messages.message_delivery import OneConsumer, SnsEnvelopes, deliver_events
from cdk_intake_ledger.messages.message_grants import MessageGrants
from cdk_intake_ledger.messages.message_plan import message_plan, message_problems, remembered
from cdk_intake_ledger.messages.message_source import MessageSource, SourceKind
from cdk_intake_ledger.monitoring import IntakeMetrics, IntakeMonitoring
from cdk_intake_ledger.options import MonitoringOptions, NetworkOptions, RetryOptions
from cdk_intake_ledger.resources import (
    MAX_NAME,
    IntakeLedger,
    IntakeQueue,
    fix_names,
    tag,
)
from cdk_intake_ledger.validation.nag_suppressions import AUDIT_DESTINATION, Wildcards, suppress
from cdk_intake_ledger.validation.reporting import refuse
from intake_ledger.contract import MESSAGES

CHECK_MINUTES = 360
"""Minutes between two checks of the rows."""


@check_arguments
@jsii.implements(iam.IGrantable)
class MessageIntake(Construct, IntakeMetrics, MessageGrants):
    """Process keyed messages of a queue, a stream or a bus, with one commit for each identity and one attempt at a
    time for each key.

    The intake calls your function `process(message)` for each message that the ledger admits. If it needs other
    resources, grant them to the intake: `table.grant_read_write_data(intake)`.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        source: MessageSource,
        key: str,
        identity: str,
        processor: Processor,
        processing_timeout: Duration | None = None,
        intake_name: str | None = None,
        ledger: IntakeLedger | None = None,
        retry: RetryOptions | None = None,
        clock_skew: Duration | None = None,
        reserved_concurrency: int | None = None,
        network: NetworkOptions | None = None,
        monitoring: MonitoringOptions | None = None,
        encryption_key: kms.IKey | None = None,
        removal_policy: RemovalPolicy = RemovalPolicy.RETAIN,
    ) -> None:
        """Make an intake.

        Args:
            scope: the stack, or a construct in it.
            id: the construct's id. Without an `intake_name`, the names of ledger, queues and intake follow from `scope`
                and `id`.
            source: where the messages come from.
            key: a JMESPath expression for the key in the message's JSON, such as `detail.order_id`. Two messages of a
                key are never processed at the same time.
            identity: a JMESPath expression for the identity, such as `detail.event_id`. Two messages with the same key
                and identity are duplicates, of which one is processed.
            processor: your function, or an existing function or state machine. A state machine needs the source
                `sqs` or `event_bridge`.
            processing_timeout: the processor's time for one message, 1 to 890 seconds; 1 minute when omitted.
            intake_name: fixes the name in the ledger, logs and metrics, and all logical ids, as `pipeline_name` of a
                pipeline does. When omitted, all of them follow from `scope` and `id`.
            ledger: your own table, a ledger with options, or a ledger that pipelines share; a new ledger when omitted.
            retry: how often and how soon a failed message is repeated; 12 attempts, with waits of 15 seconds to 30
                minutes, when omitted. A stream has no waits.
            clock_skew: the largest expected difference between the clocks of two workers, 1 second to 1 hour; 2 minutes
                when omitted. A lease lasts this much longer than its invocation.
            reserved_concurrency: concurrent executions that the account reserves for the function, which has no more
                then; none when omitted. At least the source's `max_concurrency`. A stream needs one for each shard,
                times `parallelization_factor`.
            network: the VPC of the function; it runs outside of a VPC when omitted.
            monitoring: alarm actions, log group and the text of failures; alarms without actions, and a new log group,
                when omitted.
            encryption_key: encrypts the queues, table and log group that the intake makes; the services' own keys when
                omitted.
            removal_policy: of the ledger, queues and logs that the intake makes; they are retained when omitted.

        Raises:
            IntakeConfigurationError: the intake cannot work. It lists all problems.

        """
        super().__init__(scope, id)
        retry = retry or RetryOptions()
        monitoring = monitoring or MonitoringOptions()
        timeout, skew = processing_timeout or Duration.minutes(1), clock_skew or Duration.minutes(2)
        existing = source.existing
        dead_letters = existing.dead_letters
        queue = (
            IntakeQueue(
                self,
                "Queue",
                queue=existing.queue,
                dead_letter_queue=dead_letters,
                visibility_timeout=existing.visibility_timeout,
            )
            if existing.queue is not None and dead_letters is not None
            else None
        )
        plan = message_plan(
            source,
            processor=processor,
            processing_timeout=timeout,
            clock_skew=skew,
            retry=retry,
            reserved_concurrency=reserved_concurrency,
            queue=queue,
        )
        problems = message_problems(
            self,
            source,
            name=intake_name,
            expressions={"key": key, "identity": identity},
            processor=processor,
            plan=plan,
            queue=queue,
            ledger=ledger,
        )
        refuse(self.node.path, problems)
        warn_about_identity(self, source, key=key, identity=identity)

        self._pipeline_name = intake_name or Names.unique_resource_name(self, max_length=MAX_NAME, separator="-")
        visibility = int(plan.least_visibility)
        self._queue = queue or IntakeQueue(
            self,
            "Queue",
            visibility_timeout=Duration.seconds(visibility),
            encryption_key=encryption_key,
            fifo=source.kind is SourceKind.FIFO,
            removal_policy=removal_policy,
        )
        self._queue.attach_to(self, visibility)
        self._ledger = ledger or IntakeLedger(
            self, "Ledger", encryption_key=encryption_key, removal_policy=removal_policy
        )
        tag(self, self._pipeline_name)
        wildcards = Wildcards(self)
        self._consumer = MessageConsumer(
            self,
            "Consumer",
            networking=FunctionNetworking.of(
                self, network, monitoring, encryption_key=encryption_key, removal_policy=removal_policy
            ),
            resources=MessageResources(
                name=self._pipeline_name,
                source=source,
                key=key,
                identity=identity,
                queue=self._queue,
                ledger=self._ledger,
                plan=plan,
                retention=self._ledger.retention or Duration.seconds(remembered(plan, source)),
                clock_skew=skew,
                retry=retry,
                reasons=monitoring.reasons,
                reserved_concurrency=reserved_concurrency,
            ),
            processor=processor,
            wildcards=wildcards,
        )
        self._monitoring = IntakeMonitoring(
            self,
            "Monitoring",
            kind=MESSAGES,
            pipeline_name=self._pipeline_name,
            queue=self._queue.queue,
            dead_letter_queue=self._queue.dead_letter_queue,
            consumer_function=self._consumer.function,
            reads_stream=source.is_stream,
            audit_interval=Duration.minutes(CHECK_MINUTES),
            starts_executions=processor.executions is not None,
            options=monitoring,
        )
        if source.event_pattern is not None:
            deliver_events(self, source, self._queue)
        self._check_rows()
        self.node.add_validation(wildcards)
        self.node.add_validation(OneConsumer(self._queue.queue, self._consumer.source))
        if not source.is_stream and not source.unwrap_sns and not reads_sns_envelope(key, identity):
            Aspects.of(self).add(SnsEnvelopes(self, self._queue.queue))
        fix_names(self, intake_name, table=self._ledger.table)

    @property
    def pipeline_name(self) -> str:
        """The intake's name in the ledger, logs and metrics."""
        return self._pipeline_name

    @property
    def queue(self) -> sqs.IQueue:
        """The queue of the source. For a stream, the queue of records that an operator redrives."""
        return self._queue.queue

    @property
    def dead_letter_queue(self) -> sqs.IQueue:
        """The queue of messages that need an operator, each with its reason."""
        return self._queue.dead_letter_queue

    @property
    def table(self) -> dynamodb.ITable:
        """The ledger's table. To read it, use `grant_read_ledger`. Do not write to it."""
        return self._ledger.table

    @property
    def consumer_function(self) -> lambda_.IFunction:
        """The function that runs the processor."""
        return self._consumer.function

    @property
    def monitoring(self) -> IntakeMonitoring:
        """The alarms, and widgets for a dashboard."""
        return self._monitoring

    @property
    def alarms(self) -> Mapping[str, cloudwatch.Alarm]:
        """Alarms by name, such as `DeadLetters`."""
        return self._monitoring.alarms

    @property
    def grant_principal(self) -> iam.IPrincipal:
        """The role of the processor. It makes the intake a grantee."""
        return self._consumer.role

    def _check_rows(self) -> None:
        """Look at the rows regularly, so that a message that was lost does not leave its row without a sign."""
        function = self._consumer.function
        make_schedule(
            self,
            "CheckSchedule",
            description=f"Intake ledger, check of the rows of {self._pipeline_name}",
            minutes=CHECK_MINUTES,
            target=function.function_arn,
            action="lambda:InvokeFunction",
            content={"checkRows": True},
        )
        function.configure_async_invoke(retry_attempts=0)
        suppress(function.node.find_child("EventInvokeConfig"), AUDIT_DESTINATION)
