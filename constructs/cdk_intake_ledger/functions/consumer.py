"""The consumer: the function behind the queue, its permissions and its event source."""

from aws_cdk import Duration
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from cdk_intake_ledger.functions.lambda_function import (
    FunctionCode,
    FunctionNetworking,
    intake_function,
    record_version,
)
from cdk_intake_ledger.functions.pipeline_resources import PipelineResources, in_seconds, in_text
from cdk_intake_ledger.functions.processor import Processor
from cdk_intake_ledger.options import ConcurrencyOptions, Reasons, RetryOptions, to_seconds
from cdk_intake_ledger.resources import IntakeQueue
from cdk_intake_ledger.validation.nag_suppressions import CONSUMER_DEAD_LETTERS, SOURCE_DESTINATION, suppress
from cdk_intake_ledger.validation.plan import QUEUE_RETENTION_DAYS, function_timeout
from intake_ledger.protocol import HOLD_SHARE

LATE_AFTER = 6 * 3_600
"""Seconds after which an event is late, so that the ledger looks at the object before it claims. The longest known gap
between two copies of an event is 22,162 seconds. A late event costs one more read, and never a wrong decision."""


class IntakeConsumer(Construct):
    """The consumer with its role, log group and event source."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        networking: FunctionNetworking,
        resources: PipelineResources,
        processor: Processor,
        processing_timeout: Duration,
        retry: RetryOptions,
        concurrency: ConcurrencyOptions,
        reasons: Reasons,
    ) -> None:
        super().__init__(scope, id)
        self.existing_function = processor.function
        self.executions = processor.executions
        self.resources = resources
        self.networking = networking
        self.sets: list[dict[str, object]] = []
        """Sets of files that the consumer wakes after the commits of their parts."""
        self.has_workers = False
        """True if workers outside of Lambda have a copy of the variables."""
        self.environment = (
            resources.environment
            | {
                "INTAKE_PROCESSING_TIMEOUT_SECONDS": in_seconds(processing_timeout),
                "INTAKE_REASONS": reasons.value,
            }
            | _of_queue(resources, held := hold_seconds(resources.queue))
            | _of_options(retry, concurrency, held)
            | processor.settings
        )
        """The variables of the function, and of workers outside of Lambda."""
        self.function, self.role = intake_function(
            self,
            FunctionCode(
                code=processor.code,
                handler=processor.handler,
                runtime=processor.runtime,
                architecture=processor.architecture,
                memory_size=processor.memory_size,
                ephemeral_storage=processor.ephemeral_storage,
                layers=processor.layers,
                capacity_provider=processor.capacity_provider,
                reserved_concurrency=concurrency.reserved_concurrency,
            ),
            networking=networking,
            description=f"Intake ledger, consumer of {resources.name}",
            timeout=Duration.seconds(
                function_timeout(to_seconds(processing_timeout), managed=processor.capacity_provider is not None)
            ),
            environment=self.environment,
            suppressions=(CONSUMER_DEAD_LETTERS,),
        )
        own_code = processor.function is None and processor.executions is None
        record_version(self.function, processor.processor_version, own_code=own_code)
        resources.allow(
            self.role,
            # Without them, S3 answers 403 for a missing version, as it does for a forbidden one.
            bucket=["s3:ListBucket", "s3:ListBucketVersions"],
            table=[
                "dynamodb:BatchGetItem",
                "dynamodb:DeleteItem",
                "dynamodb:GetItem",
                "dynamodb:PartiQLInsert",
                *(["dynamodb:PartiQLUpdate"] if concurrency.commit_together else []),
                "dynamodb:PutItem",
                "dynamodb:UpdateItem",
            ],
            queue=[
                "sqs:ChangeMessageVisibility",
                "sqs:DeleteMessage",
                "sqs:GetQueueAttributes",
                "sqs:ReceiveMessage",
                "sqs:SendMessage",  # an overtaken worker sends a message for its key
            ],
        )
        self.role.add_to_policy(iam.PolicyStatement(actions=["sqs:SendMessage"], resources=[resources.dead_letter_arn]))
        if processor.function is not None:
            self.role.add_to_policy(
                iam.PolicyStatement(actions=["lambda:InvokeFunction"], resources=[processor.function.function_arn])
            )
        if processor.executions is not None:
            processor.executions.connect(self, self.role, resources)
        self.source = lambda_.EventSourceMapping(
            self,
            "Source",
            target=self.function,
            event_source_arn=resources.queue.queue.queue_arn,
            batch_size=concurrency.batch_size,
            max_batching_window=concurrency.max_batching_window,
            max_concurrency=concurrency.max_concurrency,
            # Otherwise Lambda would delete all messages of a batch, also the failed messages.
            report_batch_item_failures=True,
        )
        suppress(self.source, SOURCE_DESTINATION)
        provision_pollers(self.source, concurrency.min_pollers, concurrency.max_pollers)


def provision_pollers(mapping: lambda_.EventSourceMapping, least: int | None, most: int | None) -> None:
    """Provision the pollers of a queue. Older CDKs have no pollers of SQS in their higher level.

    Args:
        mapping: the mapping of the queue.
        least: the minimum; None for Lambda's default, if there is a maximum.
        most: the maximum; likewise.

    """
    if least is None and most is None:
        return
    resource = mapping.node.default_child
    assert isinstance(resource, lambda_.CfnEventSourceMapping), mapping.node.path
    resource.provisioned_poller_config = lambda_.CfnEventSourceMapping.ProvisionedPollerConfigProperty(
        minimum_pollers=least, maximum_pollers=most
    )


def _of_queue(resources: PipelineResources, held: str) -> dict[str, str]:
    return {
        "INTAKE_DLQ_URL": resources.dead_letter_url,
        "INTAKE_MAX_RECEIVES": in_text(resources.queue.max_receives),
        "INTAKE_MAX_HOLD_SECONDS": held,
        "INTAKE_MAX_EVENT_AGE_SECONDS": in_text(LATE_AFTER),
    }


def _of_options(retry: RetryOptions, concurrency: ConcurrencyOptions, held: str) -> dict[str, str]:
    return {
        "INTAKE_MAX_ATTEMPTS": in_text(retry.max_attempts),
        "INTAKE_MIN_BACKOFF_SECONDS": in_seconds(retry.min_backoff),
        "INTAKE_MAX_BACKOFF_SECONDS": in_seconds(retry.max_backoff),
        "INTAKE_MAX_WAIT_SECONDS": in_seconds(retry.max_wait) if retry.max_wait else held,
        "INTAKE_CONCURRENCY": in_text(concurrency.threads),
        "INTAKE_COMMIT_TOGETHER": "true" if concurrency.commit_together else "false",
    }


def hold_seconds(queue: IntakeQueue) -> str:
    """Seconds that a message may wait in an outage. If the retention is unknown, SQS's default applies."""
    retention = queue.retention
    if retention is None or retention.is_unresolved():
        retention = Duration.days(QUEUE_RETENTION_DAYS)
    return str(int(retention.to_seconds() * HOLD_SHARE))
