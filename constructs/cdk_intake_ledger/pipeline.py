"""The construct of a pipeline."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from aws_cdk import Duration, RemovalPolicy, Stack
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from cdk_intake_ledger.audit.reports import report_problems
from cdk_intake_ledger.audit_function import IntakeAudit
from cdk_intake_ledger.bucket import bucket_props_problems, intake_bucket
from cdk_intake_ledger.checks.arguments.checking import check_arguments
from cdk_intake_ledger.checks.final_template import expect
from cdk_intake_ledger.checks.reporting import refuse
from cdk_intake_ledger.checks.rules.final_rules import BUCKET_KEY, KEPT, NONE
from cdk_intake_ledger.consumer_function import IntakeConsumer
from cdk_intake_ledger.delivery.bucket_notifications import owned_resource, owner_of
from cdk_intake_ledger.delivery.delivery_problems import default_delivery_mode
from cdk_intake_ledger.delivery.key_filters import parse_filters
from cdk_intake_ledger.delivery.pipeline_resources import PipelineResources, existing_resources
from cdk_intake_ledger.functions.lambda_function import FunctionNetworking
from cdk_intake_ledger.functions.processor import Processor
from cdk_intake_ledger.kinds.objects.pipeline_checks import (
    copy_problems,
    extra_problems,
    option_problems,
    plan_problems,
    ready_problems,
    resource_problems,
    stop_problems,
)
from cdk_intake_ledger.kinds.objects.pipeline_delivery import connect_bucket
from cdk_intake_ledger.kinds.objects.pipeline_grants import PipelineGrants
from cdk_intake_ledger.kinds.objects.pipeline_plan import plan_of
from cdk_intake_ledger.ledger_table import IntakeLedger
from cdk_intake_ledger.options.after_commit import Tag
from cdk_intake_ledger.options.exclude import Exclude
from cdk_intake_ledger.options.options import (
    AuditOptions,
    ConcurrencyOptions,
    Delivery,
    MonitoringOptions,
    NetworkOptions,
    Ordering,
    RetryOptions,
)
from cdk_intake_ledger.options.ready_when import ReadyTag
from cdk_intake_ledger.options.same_content import SameContent
from cdk_intake_ledger.outputs.places import Places
from cdk_intake_ledger.queue import IntakeQueue
from cdk_intake_ledger.resources.fixed_names import fix_names
from intake_ledger.contract import OBJECTS

if TYPE_CHECKING:
    from cdk_intake_ledger.options.extra import Extra


@check_arguments
class IntakePipeline(PipelineGrants):
    """Process the files of a bucket, with one commit for each state: bucket, queue, ledger, consumer, audit and alarms.

    The pipeline calls your processor for each change that the ledger admits. If the processor needs other resources,
    grant them to the pipeline: `table.grant_read_write_data(pipeline)`.
    """

    _kind = OBJECTS

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        processor: Processor,
        bucket: s3.IBucket | None = None,
        bucket_props: s3.BucketProps | None = None,
        filters: Sequence[s3.NotificationKeyFilter] | None = None,
        exclude: Sequence[str] | None = None,
        ordering: Ordering = Ordering.LATEST,
        deletes: bool = False,
        directory_markers: bool = False,
        processing_timeout: Duration | None = None,
        name: str | None = None,
        delivery: Delivery | None = None,
        queue: IntakeQueue | None = None,
        ledger: IntakeLedger | None = None,
        retry: RetryOptions | None = None,
        concurrency: ConcurrencyOptions | None = None,
        network: NetworkOptions | None = None,
        monitoring: MonitoringOptions | None = None,
        audit: AuditOptions | None = None,
        after_commit: Tag | None = None,
        ready_when: ReadyTag | None = None,
        same_content: SameContent | None = None,
        encryption_key: kms.IKey | kms.Key | None = None,
        removal_policy: RemovalPolicy = RemovalPolicy.RETAIN,
    ) -> None:
        """Make a pipeline.

        Args:
            scope: the stack, or a construct in it.
            id: the construct's id. Without a `name`, the names of bucket, ledger, queues and pipeline follow
                from `scope` and `id`. If you change either, CloudFormation replaces them by new, empty ones.
            processor: your function.
            bucket: where files arrive; a new versioned bucket when omitted. A bucket of the same stack uses S3
                notifications. A bucket of another stack uses EventBridge. An imported one uses CDK's notifications.
            bucket_props: more properties of the new bucket, such as its name, access logs, CORS, or lifecycle rules
                beside those of the pipeline; none when omitted.
            filters: prefixes and suffixes of the keys that the pipeline processes, as they are in the key, not
                percent-encoded; all keys when omitted.
            exclude: patterns of keys that the pipeline leaves out, such as `_*`, `*.filepart` or `_temporary/`, unless
                they have a row; none when omitted. See docs/options.md.
            ordering: `LATEST`, also when omitted, skips versions that a newer one has overtaken. `EVERY_VERSION`
                processes each version.
            deletes: whether the processor is called for removed objects too. The ledger then keeps the row of an object
                as long as the object. When omitted, a removal is recorded only.
            directory_markers: whether the processor is called for directory markers too: empty objects whose key ends
                with `/` or `_$folder$`. When omitted, those without a row are skipped.
            processing_timeout: the processor's time for one object, 1 to 890 seconds, or 5,390 with a
                `capacity_provider`; 1 minute when omitted. The function's timeout, the lease and the queue's visibility
                timeout follow from it.
            name: fixes the name in the ledger, logs and metrics, and all logical ids. You may then rename and
                move the construct within its stack. 1 to 64 letters, digits, `-` and `_`, first a letter, unique in
                the stack and on the ledger. When omitted, all of them follow from `scope` and `id`. Adding it to a
                deployed pipeline changes them. Your own `bucket`, `ledger` and key keep their ids. To go on after a
                rename, pass the former name, which is the tag `intake-ledger:pipeline`, and the retained bucket,
                ledger and queue.
            delivery: how events of the bucket reach the queue; as described at `bucket` when omitted. With
                `EVENTBRIDGE`, the owner of an imported bucket switches EventBridge on. With `EXISTING`, the pipeline
                sets up nothing, and `bucket` and `queue` must be your own.
            queue: your own queue, or a queue with options; a new queue when omitted.
            ledger: your own table, a ledger with options, or a shared ledger; a new ledger when omitted.
            retry: how often and how soon a failed change is repeated; 12 attempts, with waits of 15 seconds to 30
                minutes, when omitted.
            concurrency: batches, threads and the maximum number of invocations; batches of 10, one record after the
                other, when omitted.
            network: the VPC of all functions; they run outside of a VPC when omitted.
            monitoring: alarm actions, log group and the text of failures; alarms without actions, and a log group for
                each function, when omitted.
            audit: when and how the audit runs; daily, over changes of the last 14 days, when omitted.
            after_commit: the tag that S3 gives to a version after its commit, and lifecycle rules for it; none when
                omitted.
            ready_when: the tag without which no version is processed, such as the result of a scan; none is needed when
                omitted.
            same_content: how a copy in place, such as after a change of encryption, is known and not processed again;
                each version is processed when omitted.
            encryption_key: encrypts the bucket, queues, table and log groups that the pipeline makes; the services' own
                keys when omitted.
            removal_policy: of the bucket, ledger, queues and logs that the pipeline makes; they are retained when
                omitted. `DESTROY` also switches off the table's deletion protection. It does not empty the bucket.

        Raises:
            IntakeConfigurationError: the pipeline cannot work. It lists all problems.

        """
        super().__init__(scope, id)
        retry = retry or RetryOptions()
        concurrency = concurrency or ConcurrencyOptions()
        monitoring = monitoring or MonitoringOptions()
        audit = audit or AuditOptions()
        timeout = processing_timeout or Duration.minutes(1)
        keys = parse_filters(filters)
        plan = plan_of(
            processor=processor,
            processing_timeout=timeout,
            concurrency=concurrency,
            retry=retry,
            audit=audit,
            queue=queue,
            ledger=ledger,
        )
        of_resources = resource_problems(
            self,
            name=name,
            bucket=bucket,
            queue=queue,
            ledger=ledger,
            delivery=delivery,
            filters=keys,
        )
        of_options = option_problems(
            self,
            processor,
            plan,
            filters=keys,
            concurrency=concurrency,
            audit=audit,
            network=network,
            encryption_key=encryption_key,
        )
        argument = processor.argument_problems("ObjectChange")
        of_bucket = bucket_props_problems(bucket_props, bucket)
        every_version = "a pipeline with the ordering EVERY_VERSION"
        of_stops = stop_problems(self, processor, every_version) if ordering is Ordering.EVERY_VERSION else ()
        excluded = Exclude(exclude, ordering) if exclude is not None else None
        extras: list[Extra] = [one for one in (after_commit, ready_when, same_content, excluded) if one is not None]
        if problems := [
            *of_resources,
            *of_bucket,
            *extra_problems(extras, bucket, deletes=deletes, plan=plan),
            *ready_problems(ready_when, after_commit, bucket, processor, filters=keys, delivery=delivery),
            *(copy_problems(processor, ordering) if same_content is not None else ()),
            *of_options,
            *of_stops,
            *report_problems(audit, bucket, keys),
            *argument,
        ]:
            refuse(self.node.path, problems)

        self._filters = keys
        self._bucket = bucket or intake_bucket(
            self, "Bucket", props=bucket_props, encryption_key=encryption_key, removal_policy=removal_policy
        )
        self._places = Places(self, self._bucket, keys)
        self._begin(
            plan, name=name, queue=queue, ledger=ledger, encryption_key=encryption_key, removal_policy=removal_policy
        )
        networking = FunctionNetworking.of(
            self, network, monitoring, encryption_key=encryption_key, removal_policy=removal_policy
        )
        bucket_resource = owned_resource(self._bucket)
        resources = PipelineResources(
            name=self._name,
            bucket=self._bucket,
            bucket_resource=bucket_resource,
            bucket_is_own=bucket is None,
            bucket_owner=owner_of(self._bucket, bucket_resource, self),
            delivery=delivery or (default_delivery_mode(bucket, bucket_resource, self) if bucket else Delivery.S3),
            queue=self._queue,
            ledger=self._ledger,
            retention=self._ledger.retention or Duration.seconds(plan.remembered),
            ordering=ordering,
            deletes=deletes,
            directory_markers=directory_markers,
            extras=extras,
            clock_skew=concurrency.clock_skew,
            filters=keys,
            stack=Stack.of(self),
            existing=existing_resources(bucket, queue, ledger, self._queue.encryption_key),
        )
        self._consumer = IntakeConsumer(
            self,
            "Consumer",
            networking=networking,
            resources=resources,
            processor=processor,
            processing_timeout=timeout,
            retry=retry,
            concurrency=concurrency,
            reasons=monitoring.reasons,
        )
        self._audit = IntakeAudit(
            self, "Audit", networking=networking, resources=resources, options=audit, consumer=self._consumer
        )
        bucket_key, versions = self._bucket.encryption_key, {"VersioningConfiguration.Status": "Enabled"}
        needs_versions = bucket is None or ordering is Ordering.EVERY_VERSION
        wanted: dict[str, object] = {**versions, BUCKET_KEY: bucket_key.key_arn if bucket_key else NONE}
        if bucket is None and (bucket_props is None or bucket_props.object_ownership is None):
            wanted["OwnershipControls.Rules.0.ObjectOwnership"] = "BucketOwnerEnforced"
        if bucket is None and removal_policy == RemovalPolicy.RETAIN:
            wanted["DeletionPolicy"] = KEPT
        expect(self, "bucket" if needs_versions else "given-bucket", self._bucket, wanted)
        if ledger is not None:
            ledger.share(self._name, self._bucket, self._audit.function)
        self._watch(
            monitoring,
            plan,
            plan_problems,
            audit_interval=audit.interval,
            settle_time=audit.settle_time,
            bucket=self._bucket,
            extras=extras,
        )
        for extra in extras:
            extra.change_bucket(self._bucket, keys)
        connect_bucket(self, resources, self._consumer, message_life=plan.queue_retention + plan.dead_letter_retention)
        fix_names(self, name, table=self._ledger.table, queue=queue)

    @property
    def audit_function(self) -> lambda_.IFunction:
        """The function that finds lost events."""
        return self._audit.function

    @property
    def audit_state_machine(self) -> sfn.IStateMachine | None:
        """The state machine of an audit in parts; None if one function runs the audit. To run it now, start it with
        `{}`. With `{"dryRun": true}`, it sends no messages.
        """
        return self._audit.state_machine
