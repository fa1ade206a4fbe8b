"""The construct of a message intake."""

from functools import partial

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from constructs import Construct

from cdk_intake_ledger.audit_function import TICK_MINUTES
from cdk_intake_ledger.checks.arguments.checking import check_arguments
from cdk_intake_ledger.checks.reporting import refuse
from cdk_intake_ledger.functions.lambda_function import FunctionNetworking
from cdk_intake_ledger.functions.processor import Processor
from cdk_intake_ledger.kinds.intake import Intake
from cdk_intake_ledger.kinds.messages.expressions import reads_sns_envelope, warn_about_identity, warn_about_records
from cdk_intake_ledger.kinds.messages.message_consumer import MessageConsumer, MessageResources, source_name
from cdk_intake_ledger.kinds.messages.message_delivery import (
    check_app,
    check_delivery,
    deliver_events,
)
from cdk_intake_ledger.kinds.messages.message_plan import message_plan, message_problems, number_problems, remembered
from cdk_intake_ledger.kinds.messages.message_source import MessageSource
from cdk_intake_ledger.ledger_table import IntakeLedger
from cdk_intake_ledger.options.options import ConcurrencyOptions, MonitoringOptions, NetworkOptions, RetryOptions
from cdk_intake_ledger.queue import IntakeQueue
from cdk_intake_ledger.resources.fixed_names import fix_names
from intake_ledger.contract import MESSAGES
from intake_ledger.messages.settings import MessageSourceType

CHECK_INTERVAL = Duration.hours(6)
"""The time between two checks of the rows."""


@check_arguments
class MessageIntake(Intake):
    """Process keyed messages of a queue, a stream or a bus, with one commit for each identity and one attempt at a
    time for each key.

    The intake calls your function `process(message)` for each message that the ledger admits. If it needs other
    resources, grant them to the intake: `table.grant_read_write_data(intake)`.
    """

    _kind = MESSAGES
    _consumer: MessageConsumer

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        source: MessageSource,
        key: str,
        identity: str,
        processor: Processor,
        fingerprint: str | None = None,
        processing_timeout: Duration | None = None,
        name: str | None = None,
        ledger: IntakeLedger | None = None,
        retry: RetryOptions | None = None,
        clock_skew: Duration | None = None,
        reserved_concurrency: int | None = None,
        max_rate: float | None = None,
        max_burst: int | None = None,
        network: NetworkOptions | None = None,
        monitoring: MonitoringOptions | None = None,
        encryption_key: kms.IKey | kms.Key | None = None,
        removal_policy: RemovalPolicy = RemovalPolicy.RETAIN,
    ) -> None:
        """Make an intake.

        Args:
            scope: the stack, or a construct in it.
            id: the construct's id. Without a `name`, the names of ledger, queues and intake follow from `scope`
                and `id`.
            source: where the messages come from.
            key: a JMESPath expression for the key in the message's JSON, such as `detail.order_id`. Two messages of a
                key are never processed at the same time.
            identity: a JMESPath expression for the identity, such as `detail.event_id`. Two messages with the same key
                and identity are duplicates, of which one is processed.
            fingerprint: a JMESPath expression for the content that copies of a message have in common, such as
                `[amount, currency]`. A copy with another value goes to the dead-letter queue; it is acknowledged and
                counted when omitted.
            processor: your function, or an existing function, state machine or durable function. The last two need the
                source `sqs` or `event_bridge`.
            processing_timeout: the processor's time for one message, 1 to 890 seconds; 1 minute when omitted.
            name: fixes the name in the ledger, logs and metrics, and all logical ids, as `name` of a
                pipeline does. When omitted, all of them follow from `scope` and `id`.
            ledger: your own table, a ledger with options, or a ledger that pipelines share; a new ledger when omitted.
            retry: how often and how soon a failed message is repeated; 12 attempts, with waits of 15 seconds to 30
                minutes, when omitted. A stream has no waits.
            clock_skew: the largest expected difference between the clocks of two workers, 1 second to 1 hour; 2 minutes
                when omitted. A lease lasts this much longer than its invocation.
            reserved_concurrency: concurrent executions that the account reserves for the function, which has no more
                then; none when omitted. At least the source's `max_concurrency`. A stream needs one for each shard,
                times `parallelization_factor`.
            max_rate: the maximum number of starts of the processor per second, over all invocations, 1/3600 to 400; no
                limit when omitted. FIFO queues and shards keep their order while a message waits for its start.
            max_burst: the starts that may come at once after a time without any; those of five seconds, and at least 2,
                when omitted.
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
        timeout = processing_timeout or Duration.minutes(1)
        concurrency = ConcurrencyOptions(
            batch_size=10 if source.is_stream else source.batch_size,
            max_batching_window=source.max_batching_window,
            max_concurrency=source.max_concurrency,
            reserved_concurrency=reserved_concurrency,
            min_pollers=source.min_pollers,
            max_pollers=source.max_pollers,
            max_rate=max_rate,
            max_burst=max_burst,
            clock_skew=clock_skew or Duration.minutes(2),
        )
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
            concurrency=concurrency,
            retry=retry,
            queue=queue,
        )
        expressions = {"key": key, "identity": identity} | ({} if fingerprint is None else {"fingerprint": fingerprint})
        problems = message_problems(
            self,
            source,
            name=name,
            expressions=expressions,
            processor=processor,
            plan=plan,
            queue=queue,
            ledger=ledger,
        )
        refuse(self.node.path, problems)
        warn_about_identity(self, source, key=key, identity=identity)
        warn_about_records(self, source, expressions)

        self._begin(
            plan,
            name=name,
            queue=queue,
            ledger=ledger,
            encryption_key=encryption_key,
            removal_policy=removal_policy,
            fifo=source.kind is MessageSourceType.FIFO,
        )
        self._consumer = MessageConsumer(
            self,
            "Consumer",
            networking=FunctionNetworking.of(
                self, network, monitoring, encryption_key=encryption_key, removal_policy=removal_policy
            ),
            resources=MessageResources(
                name=self._name,
                source=source,
                key=key,
                identity=identity,
                fingerprint=fingerprint,
                queue=self._queue,
                ledger=self._ledger,
                plan=plan,
                retention=self._ledger.retention or Duration.seconds(remembered(plan)),
                concurrency=concurrency,
                retry=retry,
                reasons=monitoring.reasons,
            ),
            processor=processor,
        )
        numbers = partial(number_problems, ledger=ledger)
        self._watch(monitoring, plan, numbers, audit_interval=CHECK_INTERVAL, reads_stream=source.is_stream)
        rule = deliver_events(self, source, self._queue) if source.event_pattern is not None else None
        check_delivery(self._consumer, source, self._queue, rule)
        # A message that was lost must not leave its row without a sign.
        self._check_regularly(
            "CheckSchedule",
            description=f"Intake ledger, check of the delivery and the rows of {self._name}",
            interval=Duration.minutes(TICK_MINUTES),
            content={"checkRows": True, "everySeconds": int(CHECK_INTERVAL.to_seconds())},
        )
        envelopes = not source.is_stream and not source.unwrap_sns and not reads_sns_envelope(key, identity)
        check_app(self, self._queue.queue, self._consumer.source, warns_of_envelopes=envelopes)
        fix_names(self, name, table=self._ledger.table)

    def grant_send(self, grantee: iam.IGrantable) -> iam.Grant:
        """Allow a principal to send messages to the intake's queue.

        Args:
            grantee: may send to the queue, and use its key.

        Returns:
            the grant.

        """
        return self._with_queue_key(grantee, self._queue.queue.grant(grantee, "sqs:SendMessage"))

    def _place_of_rows(self) -> str:
        return source_name(self._name)
