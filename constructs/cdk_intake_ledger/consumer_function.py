"""The consumer: the function behind the queue, its permissions and its event source."""

from collections.abc import Mapping
from dataclasses import fields
from types import MappingProxyType
from typing import Any, cast

from aws_cdk import Duration
from aws_cdk import aws_iam as iam
from constructs import Construct

from cdk_intake_ledger.checks.plan import QUEUE_RETENTION_DAYS, function_timeout
from cdk_intake_ledger.delivery.pipeline_resources import PipelineResources, grant_keys, in_seconds, in_text
from cdk_intake_ledger.functions.consumer_base import ConsumerFunction
from cdk_intake_ledger.functions.lambda_function import FunctionNetworking
from cdk_intake_ledger.functions.processor import Processor
from cdk_intake_ledger.options.durations import to_seconds
from cdk_intake_ledger.options.options import ConcurrencyOptions, Reasons, RetryOptions
from cdk_intake_ledger.queue import IntakeQueue
from cdk_intake_ledger.resources.key_access import QUEUE_KEY_ACTIONS
from intake_ledger.protocol.settings import HOLD_SHARE, ConsumerSettings, environment_of

LATE_AFTER = 6 * 3_600
"""Seconds after which an event is late, so that the ledger looks at the object before it claims. The longest known gap
between two copies of an event is 22,162 seconds. A late event costs one more read, and never a wrong decision."""


class IntakeConsumer(ConsumerFunction):
    """The consumer of objects or sets, with its role, log group and event source."""

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
        variables: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Make the function. `variables` are those of sets; the other arguments are as for a pipeline."""
        managed = processor.capacity_provider is not None
        held = hold_seconds(resources.queue)
        super().__init__(
            scope,
            id,
            networking=networking,
            processor=processor,
            description=f"Intake ledger, consumer of {resources.name}",
            timeout=function_timeout(to_seconds(processing_timeout), managed=managed),
            environment=resources.environment
            | environment_of(
                ConsumerSettings,
                processing_timeout_seconds=in_seconds(processing_timeout),
                reasons=reasons,
                dlq_url=resources.dead_letter_url,
                max_receives=in_text(resources.queue.max_receives),
                max_hold_seconds=held,
                max_event_age_seconds=in_text(LATE_AFTER),
            )
            | options_environment(retry, concurrency, held=held)
            | dict(variables),
            reserved_concurrency=concurrency.reserved_concurrency,
        )
        self.resources = resources
        self.sets: list[dict[str, object]] = []
        """Sets of files that the consumer wakes after the commits of their parts."""
        resources.allow(
            self.role,
            # Without them, S3 answers 403 for a missing version, as it does for a forbidden one.
            bucket=["s3:ListBucket", "s3:ListBucketVersions"],
            table=[
                "dynamodb:BatchGetItem",
                "dynamodb:DeleteItem",
                # A restored table lacks rows, so a removal without a row may be a change.
                *(["dynamodb:DescribeTable"] if resources.deletes else []),
                *(action for extra in resources.extras for action in extra.table_actions),
                "dynamodb:GetItem",
                "dynamodb:PartiQLInsert",
                *(["dynamodb:PartiQLUpdate"] if concurrency.commit_together or processor.max_per_call > 1 else []),
                "dynamodb:PutItem",
                *concurrency.table_actions,
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
        resources.allow_extras(self.role)
        self.role.add_to_policy(iam.PolicyStatement(actions=["sqs:SendMessage"], resources=[resources.dead_letter_arn]))
        grant_keys(self.role, [(resources.queue.second_key, QUEUE_KEY_ACTIONS)])
        self._use(processor)
        if processor.executions is not None:
            processor.executions.send_ends(self, resources.queue, resources.name)
        self._receive(resources.queue, concurrency)


def options_environment(*groups: object, held: str) -> dict[str, str]:
    """The variables of options: of each that has a setting with its name, or with its name and `_seconds`.

    Args:
        groups: groups of options, such as `RetryOptions`.
        held: the seconds that messages wait in an outage, which is also the longest wait for a prerequisite.

    """
    settings = {field.name for field in fields(ConsumerSettings)}
    values: dict[str, object] = {"max_wait_seconds": held}
    for group in groups:
        options = {field.name: getattr(group, field.name) for field in fields(cast("Any", group))}
        for name, value in options.items():
            for setting in settings & {name, f"{name}_seconds"} if value is not None else ():
                values[setting] = _text(value)
    return environment_of(ConsumerSettings, **values)


def _text(value: object) -> object:
    if isinstance(value, Duration):
        return in_seconds(value)
    return value if isinstance(value, bool) or not isinstance(value, int | float) else in_text(value)


def hold_seconds(queue: IntakeQueue) -> str:
    """Seconds that a message may wait in an outage. If the retention is unknown, SQS's default applies."""
    retention = queue.retention
    if retention is None or retention.is_unresolved():
        retention = Duration.days(QUEUE_RETENTION_DAYS)
    return str(int(retention.to_seconds() * HOLD_SHARE))
