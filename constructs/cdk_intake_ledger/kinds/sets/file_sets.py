"""The construct of sets of files: a function that processes files together when all of them are committed."""

import json
import math
from dataclasses import replace

from aws_cdk import Duration, RemovalPolicy, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from constructs import Construct

from cdk_intake_ledger.checks.arguments.checking import check_arguments
from cdk_intake_ledger.checks.final_template import at_synthesis
from cdk_intake_ledger.checks.reporting import refuse
from cdk_intake_ledger.consumer_function import IntakeConsumer
from cdk_intake_ledger.delivery.lifecycle_rules import lifecycle_problems
from cdk_intake_ledger.functions.processor import Processor
from cdk_intake_ledger.kinds.objects.pipeline_checks import option_problems, plan_problems, stop_problems
from cdk_intake_ledger.kinds.objects.pipeline_grants import FileIntake
from cdk_intake_ledger.kinds.objects.pipeline_plan import plan_of
from cdk_intake_ledger.kinds.sets.part_lists import PREFIX, allow_storing, part_lists, place_of
from cdk_intake_ledger.kinds.sets.set_form import SetForm
from cdk_intake_ledger.kinds.sets.set_problems import set_problems, warn_of_expiry, with_waits
from cdk_intake_ledger.options.options import (
    AuditOptions,
    ConcurrencyOptions,
    MonitoringOptions,
    Ordering,
    RetryOptions,
)
from cdk_intake_ledger.outputs.places import Places
from cdk_intake_ledger.pipeline import IntakePipeline
from cdk_intake_ledger.queue import IntakeQueue
from cdk_intake_ledger.resources.fixed_names import fix_names, pipeline_name_problems
from cdk_intake_ledger.resources.key_access import QUEUE_KEY_ACTIONS, grant_key
from intake_ledger.contract import SETS
from intake_ledger.protocol.row import REVIEW_INDEX
from intake_ledger.protocol.settings import PART_LISTS, SET_FORM, SET_PARTS_PIPELINE, ConsumerSettings, variable_of

AUDIT_INTERVAL = Duration.hours(1)
"""The time between two audits of sets."""


@check_arguments
class FileSets(FileIntake):
    """Process files of a pipeline together, when the pipeline has committed all of them.

    The files of a set are its parts. A part that is replaced later makes a new version of the set. A missing part is a
    row that waits, with its reason, until the deadline. Grant resources that the processor needs to this construct:
    `table.grant_read_write_data(sets)`.
    """

    _kind = SETS

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        pipeline: IntakePipeline,
        form: SetForm,
        processor: Processor,
        deadline: Duration | None = None,
        alarm_after: Duration | None = None,
        processing_timeout: Duration | None = None,
        name: str | None = None,
        queue: IntakeQueue | None = None,
        retry: RetryOptions | None = None,
        concurrency: ConcurrencyOptions | None = None,
        monitoring: MonitoringOptions | None = None,
        removal_policy: RemovalPolicy = RemovalPolicy.RETAIN,
    ) -> None:
        """Make a queue, a dead-letter queue and a function for the sets. Bucket and ledger are the pipeline's.

        Args:
            scope: the stack of the pipeline, or a construct in it.
            id: the construct's id. Without a `name`, the names of queues and sets follow from `scope` and `id`.
            pipeline: the pipeline of the parts. Its processor is called for each part, and not for manifests and
                markers.
            form: what names the parts of a set.
            processor: your function `process(files: FileSet)`, or an existing function or state machine. These get the
                parts as a list in a separate bucket, which `grant_read` lets them read: see docs/file-sets.md.
            deadline: the time for which a set waits for missing parts, from the arrival of its manifest or marker. It
                is then rejected, until the missing part arrives. Three quarters of the queue's retention, 3 days, when
                omitted.
            alarm_after: the time for which a set waits until the alarm `LongWaits` goes into ALARM, at least 1
                minute and less than the deadline. Half of the deadline when omitted, so that half of it is left to
                provide the missing part.
            processing_timeout: the processor's time for one set, 1 to 890 seconds; 1 minute when omitted.
            name: fixes the name in the ledger, logs and metrics, and all logical ids, as `name` of a
                pipeline. When omitted, all of them follow from `scope` and `id`.
            queue: a queue with options, or your own queue; a new queue when omitted.
            retry: attempts of the processor and the waits between them, without `max_wait`; 12 attempts when omitted.
            concurrency: batches, threads and the maximum number of invocations; batches of 10, one set after the other,
                when omitted.
            monitoring: alarm actions, log group and the text of failures; alarms without actions, and a log group, when
                omitted.
            removal_policy: of queues and logs; they are retained when omitted.

        Raises:
            IntakeConfigurationError: the sets cannot work. It lists all problems.

        """
        super().__init__(scope, id)
        consumer = pipeline._consumer  # noqa: SLF001 - not public, since it is a part of the pipeline
        parts, networking = consumer.resources, consumer.networking
        retry, concurrency = retry or RetryOptions(), concurrency or ConcurrencyOptions()
        monitoring = monitoring or MonitoringOptions()
        timeout = processing_timeout or Duration.minutes(1)
        plan = with_waits(
            plan_of(
                processor=processor,
                processing_timeout=timeout,
                concurrency=concurrency,
                retry=replace(retry, max_wait=None),
                audit=AuditOptions(),
                queue=queue,
                ledger=parts.ledger,
            ),
            form,
            deadline=deadline,
            alarm_after=alarm_after,
        )
        refuse(
            self.node.path,
            [
                *(pipeline_name_problems(self, name, parts.table) if name is not None else ()),
                *(queue.problems() if queue else ()),
                *option_problems(
                    self,
                    processor,
                    plan,
                    filters=(),
                    concurrency=concurrency,
                    audit=AuditOptions(),
                    network=networking.network,
                ),
                *set_problems(self, consumer, form=form, processor=processor, retry=retry),
                *stop_problems(self, processor, "for sets of files"),
            ],
        )
        warn_of_expiry(self, consumer)
        form.warn(self)
        self._bucket = parts.bucket
        # The filters of the pipeline are its own places.
        self._places = Places(self, parts.bucket, ())
        self._begin(
            plan,
            name=name,
            queue=queue,
            ledger=parts.ledger,
            encryption_key=parts.queue.encryption_key,
            removal_policy=removal_policy,
        )
        self._pipeline = pipeline
        self._part_lists = (
            part_lists(self, "PartLists", encryption_key=self._queue.encryption_key, removal_policy=removal_policy)
            if processor.is_elsewhere
            else None
        )
        self._consumer = IntakeConsumer(
            self,
            "Consumer",
            networking=replace(
                networking,
                log_group=monitoring.log_group,
                removal_policy=removal_policy,
                tracing=monitoring.tracing,
            ),
            resources=replace(
                parts,
                name=self._name,
                queue=self._queue,
                ordering=Ordering.LATEST,
                deletes=False,
                extras=[one for one in parts.extras if one.is_of_parts],
            ),
            processor=processor,
            variables={
                SET_FORM: json.dumps(form.settings),
                SET_PARTS_PIPELINE: parts.name,
                **({PART_LISTS: place_of(self._part_lists)} if self._part_lists else {}),
            },
            processing_timeout=timeout,
            retry=replace(retry, max_wait=deadline),
            concurrency=concurrency,
            reasons=monitoring.reasons,
        )
        if self._part_lists is not None:
            allow_storing(self._consumer.role, self._part_lists)
        # The audit finds the set that has waited the longest in the index of the ledger's table, and the records of
        # requests in the table.
        table = parts.table.table_arn
        audited = [f"{table}/index/{REVIEW_INDEX}", table]
        self._consumer.role.add_to_policy(iam.PolicyStatement(actions=["dynamodb:Query"], resources=audited))
        if alarm_after is not None:
            _set(self._consumer, "alarm_after_seconds", str(math.ceil(alarm_after.to_seconds())))
        if form.kind == "manifest":
            # The set records its parts, and the consumer of the parts finds their manifests.
            for role, action in ((self._consumer.role, "dynamodb:BatchWriteItem"), (consumer.role, "dynamodb:Query")):
                role.add_to_policy(iam.PolicyStatement(actions=[action], resources=[parts.table.table_arn]))
        # The parts must be readable for as long as the message of their set waits.
        if (bucket := parts.bucket_resource) is not None:
            at_synthesis(
                self,
                lambda templates: lifecycle_problems(
                    self,
                    templates.properties(bucket),
                    bucket=parts.bucket,
                    filters=parts.filters,
                    ordering=parts.ordering,
                    message_life=plan.queue_retention + plan.dead_letter_retention,
                ),
            )
        self._wake_from(consumer, form)
        # A lost message loses no set.
        self._check_regularly(
            "AuditSchedule",
            description=f"Intake ledger, audit of the sets {self._name}",
            interval=AUDIT_INTERVAL,
            content={"auditSets": True},
        )
        # The pipeline's audit must not take the rows of the sets for rows of a former name.
        parts.ledger.share(parts.name, parts.bucket, pipeline._audit.function)  # noqa: SLF001 - as the consumer
        parts.ledger.share(self._name, parts.bucket, None)
        self._watch(
            monitoring,
            plan,
            plan_problems,
            audit_interval=AUDIT_INTERVAL,
            bucket=pipeline._bucket,  # noqa: SLF001 - of the parts
        )
        fix_names(self, name, table=parts.table, queue=queue)

    @property
    def part_lists(self) -> s3.IBucket | None:
        """The bucket with the lists of parts, for a processor that is an existing function or state machine. None for
        other processors.
        """
        return self._part_lists

    def grant_read(self, grantee: iam.IGrantable) -> iam.Grant:
        """Allow a principal to read the lists of parts that requests about sets name, and the parts.

        Args:
            grantee: the existing function that is the processor, or the role of a task of the state machine. It gets
                what `grant_read` of the pipeline gives, and the lists of these sets.

        Returns:
            the grant.

        """
        grant, lists = self._pipeline.grant_read(grantee), self._part_lists
        if lists is None:
            return grant
        reader, _ = self._pipeline._in_own_stack(grantee)  # noqa: SLF001 - as the pipeline does for its objects
        objects = [lists.arn_for_objects(f"{PREFIX}*")]
        grant = grant.combine(
            iam.Grant.add_to_principal(grantee=reader, actions=["s3:GetObject"], resource_arns=objects)
        )
        if lists.encryption_key is not None:
            grant = grant.combine(grant_key(lists.encryption_key, reader, "kms:Decrypt"))
        return grant

    def _wake_from(self, consumer: IntakeConsumer, form: SetForm) -> None:
        """Let the consumer of the parts wake the sets."""
        queue = self._queue
        queue.queue.grant(consumer.role, "sqs:SendMessage")
        if queue.encryption_key is not None:
            grant_key(queue.encryption_key, consumer.role, *QUEUE_KEY_ACTIONS)
        consumer.sets.append({"name": self._name, **form.settings, "queueUrl": queue.queue.queue_url})
        described = Stack.of(self).to_json_string(consumer.sets)
        _set(consumer, "sets", described)


def _set(consumer: IntakeConsumer, setting: str, value: str) -> None:
    """Give a setting to the function, and to workers outside of Lambda."""
    name = variable_of(ConsumerSettings, setting)
    consumer.environment[name] = value
    consumer.function.add_environment(name, value)
