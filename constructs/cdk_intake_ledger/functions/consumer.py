"""The function that S3's messages wake up."""

from aws_cdk import Duration
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from cdk_intake_ledger.functions.lambda_function import Placement, Wiring, in_seconds, in_text, intake_function
from cdk_intake_ledger.functions.processor import Processor
from cdk_intake_ledger.options.options import Reasons, RetryOptions
from cdk_intake_ledger.resources.queue import IntakeQueue
from cdk_intake_ledger.validation.nag_suppressions import CONSUMER_DEAD_LETTERS, SOURCE_DESTINATION, suppress
from cdk_intake_ledger.validation.plan import HOLD_SHARE, QUEUE_RETENTION_DAYS, function_timeout

LATE_AFTER = 6 * 3_600
"""Seconds after which an event counts as late, and the ledger looks before it claims. The longest gap between two
copies of one event that was ever reported is 22,162 seconds; a late event costs a read more, never a wrong decision."""


class IntakeConsumer(Construct):
    """The consumer with its role, log group and event source."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        placement: Placement,
        wiring: Wiring,
        processor: Processor,
        processing_timeout: Duration,
        retry: RetryOptions,
        batch_size: int,
        max_batching_window: Duration | None,
        max_concurrency: int | None,
        concurrency: int,
        commit_together: bool,
        reasons: Reasons,
    ) -> None:
        super().__init__(scope, id)
        self.function, self.role = intake_function(
            self,
            placement=placement,
            description=f"Intake ledger, consumer of {wiring.name}",
            code=processor.code,
            handler=processor.handler,
            runtime=processor.runtime,
            architecture=processor.architecture,
            memory_size=processor.memory_size,
            ephemeral_storage=processor.ephemeral_storage,
            timeout=Duration.seconds(function_timeout(processing_timeout.to_seconds())),
            environment=wiring.environment
            | {
                "INTAKE_DLQ_URL": wiring.dead_letter_url,
                "INTAKE_PROCESSING_TIMEOUT_SECONDS": in_seconds(processing_timeout),
                "INTAKE_MAX_ATTEMPTS": in_text(retry.max_attempts),
                "INTAKE_MIN_BACKOFF_SECONDS": in_seconds(retry.min_backoff),
                "INTAKE_MAX_BACKOFF_SECONDS": in_seconds(retry.max_backoff),
                "INTAKE_MAX_RECEIVES": in_text(wiring.queue.max_receives),
                "INTAKE_MAX_WAIT_SECONDS": in_seconds(retry.max_wait)
                if retry.max_wait
                else _hold_seconds(wiring.queue),
                "INTAKE_MAX_HOLD_SECONDS": _hold_seconds(wiring.queue),
                "INTAKE_MAX_EVENT_AGE_SECONDS": in_text(LATE_AFTER),
                "INTAKE_CONCURRENCY": in_text(concurrency),
                "INTAKE_COMMIT_TOGETHER": "true" if commit_together else "false",
                "INTAKE_REASONS": reasons.value,
            }
            | processor.settings,
            layers=processor.layers,
            suppression=CONSUMER_DEAD_LETTERS,
        )
        wiring.allow(
            self.role,
            # Without them S3 answers 403 for what is missing, and a vanished version could not be told from a refusal.
            bucket=["s3:ListBucket", "s3:ListBucketVersions"],
            table=[
                "dynamodb:BatchGetItem",
                "dynamodb:DeleteItem",
                "dynamodb:GetItem",
                "dynamodb:PartiQLInsert",
                *(["dynamodb:PartiQLUpdate"] if commit_together else []),
                "dynamodb:PutItem",
                "dynamodb:UpdateItem",
            ],
            queue=[
                "sqs:ChangeMessageVisibility",
                "sqs:DeleteMessage",
                "sqs:GetQueueAttributes",
                "sqs:ReceiveMessage",
                "sqs:SendMessage",  # a worker that was overtaken wakes its key
            ],
        )
        self.role.add_to_policy(iam.PolicyStatement(actions=["sqs:SendMessage"], resources=[wiring.dead_letter_arn]))
        if processor.function is not None:
            self.role.add_to_policy(
                iam.PolicyStatement(actions=["lambda:InvokeFunction"], resources=[processor.function.function_arn])
            )
        self.source = lambda_.EventSourceMapping(
            self,
            "Source",
            target=self.function,
            event_source_arn=wiring.queue.queue.queue_arn,
            batch_size=batch_size,
            max_batching_window=max_batching_window,
            max_concurrency=max_concurrency,
            # Without it Lambda takes whatever the consumer answers for success, and deletes the messages.
            report_batch_item_failures=True,
        )
        suppress(self.source, SOURCE_DESTINATION)


def _hold_seconds(queue: IntakeQueue) -> str:
    """How long a message may wait for a downstream that is out. SQS's default counts where the retention is unknown."""
    retention = queue.retention
    if retention is None or retention.is_unresolved():
        retention = Duration.days(QUEUE_RETENTION_DAYS)
    return str(int(retention.to_seconds() * HOLD_SHARE))
