"""The members that each kind of work has: a queue, a ledger, a function, alarms, and grants for operators."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import jsii
from aws_cdk import Duration, Names, RemovalPolicy, Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from cdk_intake_ledger.audit.schedule import schedule as make_schedule
from cdk_intake_ledger.checks.arguments.checking import check_arguments
from cdk_intake_ledger.checks.final_check import check_final_template
from cdk_intake_ledger.checks.final_warnings import Needs, warn_about_app
from cdk_intake_ledger.checks.limits import MAX_NAME
from cdk_intake_ledger.checks.nag_suppressions import AUDIT_DESTINATION, suppress
from cdk_intake_ledger.checks.plan import Plan
from cdk_intake_ledger.checks.registry import Problem
from cdk_intake_ledger.functions.consumer_base import ConsumerFunction
from cdk_intake_ledger.functions.layer import runtime_layer
from cdk_intake_ledger.ledger_table import IntakeLedger
from cdk_intake_ledger.monitoring.intake_monitoring import IntakeMonitoring
from cdk_intake_ledger.monitoring.metrics import IntakeMetrics
from cdk_intake_ledger.options.extra import Extra
from cdk_intake_ledger.options.options import MonitoringOptions
from cdk_intake_ledger.queue import IntakeQueue
from cdk_intake_ledger.resources.fixed_names import tag
from cdk_intake_ledger.resources.key_access import QUEUE_KEY_ACTIONS, grant_key
from intake_ledger.contract import MESSAGES, OBJECTS


@check_arguments
@jsii.implements(iam.IGrantable)
class Intake(Construct, IntakeMetrics):
    """The base of `IntakePipeline`, `MessageIntake` and `FileSets`. Use it as a type for any of them."""

    _name: str
    _queue: IntakeQueue
    _ledger: IntakeLedger
    _consumer: ConsumerFunction
    _monitoring: IntakeMonitoring

    @property
    def name(self) -> str:
        """The name in the ledger, logs and metrics. Unique on its ledger. The command takes it as `--pipeline`."""
        return self._name

    @property
    def queue(self) -> sqs.IQueue:
        """The queue of the consumer: events of S3, messages, or wake-ups of sets, and messages of audits and operators.
        If messages come from a stream, only redriven ones are in it.
        """
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
    def function(self) -> lambda_.IFunction:
        """The function that runs the processor."""
        return self._consumer.function

    @property
    def runtime_layer(self) -> lambda_.ILayerVersion:
        """The layer with the package `intake_ledger`, for another function of the stack that imports it, such as a
        durable function: `fn.add_layers(pipeline.runtime_layer)`.
        """
        return runtime_layer(Stack.of(self))

    @property
    def audit_function(self) -> lambda_.IFunction:
        """The function that finds lost work. Sets and messages have it in the function that runs the processor."""
        return self._consumer.function

    @property
    def monitoring(self) -> IntakeMonitoring:
        """The alarms, and widgets for a dashboard."""
        return self._monitoring

    @property
    def alarms(self) -> Mapping[str, cloudwatch.Alarm]:
        """Alarms by name, such as `DeadLetters`. docs/runbooks.md has the repair of each."""
        return self._monitoring.alarms

    @property
    def grant_principal(self) -> iam.IPrincipal:
        """The role of the processor. It makes the construct a grantee."""
        return self._consumer.role

    def grant_read_ledger(self, grantee: iam.IGrantable) -> iam.Grant:
        """Allow a principal to read rows, and to list rows that need review.

        Args:
            grantee: gets the reading actions on the table and its index, and use of the table's key for them. For
                objects and sets also the listing of the bucket's versions: names, sizes and dates, but no content.

        Returns:
            the grant.

        """
        return self._ledger.grant_read(grantee)

    def grant_redrive(self, grantee: iam.IGrantable) -> iam.Grant:
        """Allow a principal to move messages from the dead-letter queue back to the queue.

        Args:
            grantee: may receive and delete dead-letter messages, see redrives of SQS, send to the queue, and use the
                queues' key. It may also write records of operations into the ledger's table, and no rows, and lines
                into the consumer's log group.

        Returns:
            the grant.

        """
        reads = ("GetQueueAttributes", "ListMessageMoveTasks", "ReceiveMessage")
        receive = [f"sqs:{name}" for name in ("ChangeMessageVisibility", "DeleteMessage", *reads)]
        grant = self._with_queue_key(grantee, self._queue.dead_letter_queue.grant(grantee, *receive))
        if (key := self._queue.second_key) is not None:
            grant = grant.combine(grant_key(key, grantee, *QUEUE_KEY_ACTIONS))
        return grant.combine(self._grant_requests(grantee)).combine(self._grant_record(grantee))

    def grant_operate(self, grantee: iam.IGrantable) -> iam.Grant:
        """Allow a principal to read the ledger, redrive, retry at once, and if the kind of work has it, reprocess and
        dismiss.

        Args:
            grantee: gets `grant_read_ledger`, `grant_redrive` and, except for messages, `grant_reprocess`. It may also
                update rows, and the marks of the circuit breaker and of a pause in the ledger's table, and for objects
                and sets send to the dead-letter queue. It can change rows: give it to people whom you trust with the
                ledger.

        Returns:
            the grant.

        """
        grant = self.grant_read_ledger(grantee).combine(self.grant_redrive(grantee))
        rows, marks = f"{self._place_of_rows()}/*", f"{self._name}#downstream"
        return grant.combine(self._ledger.grant_update(grantee, rows=rows, marks=marks))

    def _place_of_rows(self) -> str:
        """The beginning of the keys of the rows: the name of the bucket, or of the source of messages."""
        raise NotImplementedError

    def _grant_record(self, grantee: iam.IGrantable) -> iam.Grant:
        """Who did what is in the table and in the log."""
        record = self._ledger.grant_record(grantee, self._name)
        return record.combine(self._consumer.function.log_group.grant_write(grantee))

    def _grant_requests(self, grantee: iam.IGrantable) -> iam.Grant:
        return self._queue.queue.grant(grantee, "sqs:GetQueueAttributes", "sqs:SendMessage")

    def _with_queue_key(self, grantee: iam.IGrantable, grant: iam.Grant) -> iam.Grant:
        key = self._queue.encryption_key
        return grant.combine(grant_key(key, grantee, *QUEUE_KEY_ACTIONS)) if key else grant

    def _begin(
        self,
        plan: Plan,
        *,
        name: str | None,
        queue: IntakeQueue | None,
        ledger: IntakeLedger | None,
        encryption_key: kms.IKey | None,
        removal_policy: RemovalPolicy,
        fifo: bool = False,
    ) -> None:
        """Set the name, the queue and the ledger. Make those that do not exist."""
        self._name = name or Names.unique_resource_name(self, max_length=MAX_NAME, separator="-")
        visibility = int(plan.least_visibility)
        self._queue = queue or IntakeQueue(
            self,
            "Queue",
            visibility_timeout=Duration.seconds(visibility),
            encryption_key=encryption_key,
            fifo=fifo,
            removal_policy=removal_policy,
        )
        self._queue.attach_to(self, plan, for_events=self._kind != MESSAGES)
        self._ledger = ledger or IntakeLedger(
            self, "Ledger", encryption_key=encryption_key, removal_policy=removal_policy
        )
        self._ledger.attach_to(self)
        for root in filter(None, (self, queue)):
            tag(root, self._name)

    def _check_regularly(self, id: str, *, description: str, interval: Duration, content: Mapping[str, object]) -> None:
        """Let the consumer's function look at the work regularly, so that a lost message loses no work."""
        function = self._consumer.function
        make_schedule(
            self,
            id,
            description=description,
            minutes=int(interval.to_minutes()),
            target=function.function_arn,
            action="lambda:InvokeFunction",
            content=content,
        )
        function.configure_async_invoke(retry_attempts=0)
        suppress(function.node.find_child("EventInvokeConfig"), AUDIT_DESTINATION)

    def _watch(
        self,
        options: MonitoringOptions,
        plan: Plan,
        numbers: Callable[[Plan], Iterator[Problem]],
        *,
        audit_interval: Duration,
        settle_time: Duration | None = None,
        bucket: s3.IBucket | None = None,
        reads_stream: bool = False,
        extras: Sequence[Extra] = (),
    ) -> None:
        """Make the alarms, and check the final template. `numbers` compares the numbers of a plan again. `bucket` is
        the one whose objects are processed.
        """
        executions = self._consumer.executions
        self._monitoring = IntakeMonitoring(
            self,
            "Monitoring",
            kind=self._kind,
            name=self._name,
            queue=self._queue.queue,
            dead_letter_queue=self._queue.dead_letter_queue,
            function=self._consumer.function,
            audit_function=self.audit_function,
            audit_interval=audit_interval,
            settle_time=settle_time,
            longest_claim=Duration.seconds(math.ceil(plan.lease) + (executions.longest_seconds if executions else 0)),
            starts_executions=executions is not None,
            reads_stream=reads_stream,
            needs=[extra.need for extra in extras],
            options=options,
        )
        queue, ledger = self._queue, self._ledger
        needs: list[Needs] = [
            (queue.queue, queue.encryption_key),
            (queue.dead_letter_queue, queue.dead_letter_key),
            (ledger.table, ledger.encryption_key),
        ]
        if bucket is not None and self._kind == OBJECTS:
            needs += [(bucket, bucket.encryption_key), (bucket, ledger.table), (ledger.table, bucket)]
        check_final_template(self, plan, numbers)
        warn_about_app(
            self,
            needs=needs,
            alarms=[*self._monitoring.calls.values(), *self.alarms.values()],
            function=self._consumer.existing_function,
            bucket=bucket,
        )
