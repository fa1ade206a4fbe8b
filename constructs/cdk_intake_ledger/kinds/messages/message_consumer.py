"""The consumer of a message intake: its function, permissions and event source mappings."""

from dataclasses import dataclass, replace

from aws_cdk import Duration
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from cdk_intake_ledger.checks.final_template import expect
from cdk_intake_ledger.checks.nag_suppressions import STREAM_DESTINATION, suppress
from cdk_intake_ledger.checks.plan import Plan
from cdk_intake_ledger.consumer_function import LATE_AFTER, hold_seconds, options_environment
from cdk_intake_ledger.delivery.pipeline_resources import grant_keys, in_seconds, in_text, powertools_environment
from cdk_intake_ledger.functions.consumer_base import MAPPING, ConsumerFunction
from cdk_intake_ledger.functions.lambda_function import FunctionNetworking
from cdk_intake_ledger.functions.network_endpoints import OF_MESSAGES, warn_without_endpoints
from cdk_intake_ledger.functions.processor import Processor
from cdk_intake_ledger.kinds.messages.message_source import MessageSource
from cdk_intake_ledger.ledger_table import IntakeLedger
from cdk_intake_ledger.options.options import ConcurrencyOptions, Ordering, Reasons, RetryOptions
from cdk_intake_ledger.queue import IntakeQueue
from cdk_intake_ledger.resources.key_access import QUEUE_KEY_ACTIONS, TABLE_KEY_ACTIONS
from intake_ledger.messages.settings import MessageSettings
from intake_ledger.protocol.settings import HOLD_SHARE, ConsumerSettings, environment_of

TABLE_ACTIONS = (
    "dynamodb:BatchGetItem",
    "dynamodb:DeleteItem",
    "dynamodb:GetItem",
    "dynamodb:PutItem",
    "dynamodb:Query",  # the records of redrives
    "dynamodb:Scan",  # the check of rows
    "dynamodb:UpdateItem",
)
QUEUE_ACTIONS = (
    "sqs:ChangeMessageVisibility",
    "sqs:DeleteMessage",
    "sqs:GetQueueAttributes",
    "sqs:ReceiveMessage",
    "sqs:SendMessage",
)
FOR_EVER = -1
"""Lambda retries a batch of a stream until it succeeds or its records expire. The ledger ends the attempts."""


def source_name(name: str) -> str:
    """The name of the messages' source in the ledger. A pipeline has its bucket's name there."""
    return f"messages:{name}"


@dataclass(frozen=True, kw_only=True)
class MessageResources:
    """The resources and settings of the consumer of messages."""

    name: str
    """The intake's name, unique among pipelines and intakes that share a ledger."""
    source: MessageSource
    key: str
    identity: str
    fingerprint: str | None
    queue: IntakeQueue
    """The queue of the source, or of redriven records."""
    ledger: IntakeLedger
    plan: Plan
    retention: Duration
    """Retention of settled rows."""
    concurrency: ConcurrencyOptions
    retry: RetryOptions
    reasons: Reasons

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables of the function, without the processor's."""
        # A queue keeps a message for so long, and a stream loses it after its retention.
        hold = int(hold_seconds(self.queue))
        held = in_text(min(hold, HOLD_SHARE * self.plan.stream_retention) if self.source.is_stream else hold)
        consumer = environment_of(
            ConsumerSettings,
            pipeline=self.name,
            bucket=source_name(self.name),
            table=self.ledger.table.table_name,
            queue_url=self.queue.queue.queue_url,
            dlq_url=self.queue.dead_letter_queue.queue_url,
            # Each identity has its own row. A lock item excludes others of the same key.
            ordering=Ordering.EVERY_VERSION,
            deletes=False,
            retention_seconds=in_seconds(self.retention),
            processing_timeout_seconds=int(self.plan.processing_timeout),
            max_event_age_seconds=in_text(LATE_AFTER),
            max_receives=in_text(self.queue.max_receives),
            max_hold_seconds=held,
            reasons=self.reasons,
        )
        message = environment_of(
            MessageSettings,
            source=self.source.kind,
            key=self.key,
            identity=self.identity,
            unwrap_sns=self.source.unwrap_sns or None,
            fingerprint=self.fingerprint,
            # If it is not known, each later message about a rejected one is kept.
            letter_seconds="0" if (kept := self.queue.dead_letter_retention) is None else in_seconds(kept),
        )
        return (
            consumer
            | options_environment(self.retry, self.concurrency, held=held)
            | message
            | powertools_environment(self.name)
        )


class MessageConsumer(ConsumerFunction):
    """The function with its role, log group and event source mappings."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        networking: FunctionNetworking,
        resources: MessageResources,
        processor: Processor,
    ) -> None:
        super().__init__(
            scope,
            id,
            networking=networking,
            processor=processor,
            description=f"Intake ledger, consumer of messages of {resources.name}",
            timeout=resources.plan.function_timeout,
            environment=resources.environment,
            reserved_concurrency=resources.concurrency.reserved_concurrency,
        )
        warn_without_endpoints(self, networking.network, (*OF_MESSAGES, *processor.services))
        queue, ledger, source = resources.queue, resources.ledger, resources.source
        for actions, arn in (
            (TABLE_ACTIONS, ledger.table.table_arn),
            (QUEUE_ACTIONS, queue.queue.queue_arn),
            (("sqs:SendMessage",), queue.dead_letter_queue.queue_arn),
        ):
            self.role.add_to_policy(iam.PolicyStatement(actions=list(actions), resources=[arn]))
        keys = ((key, QUEUE_KEY_ACTIONS) for key in (queue.encryption_key, queue.dead_letter_key))
        grant_keys(self.role, (*keys, (ledger.encryption_key, TABLE_KEY_ACTIONS)))
        self._use(processor)
        self.stream = source.kind.value if source.is_stream else ""
        # The queue of a stream has redriven records only.
        waits = resources.concurrency
        self._receive(queue, replace(waits, max_batching_window=None) if source.is_stream else waits)
        if source.is_stream:
            self._read_stream(source)

    def _read_stream(self, source: MessageSource) -> None:
        arn = source.stream_arn
        assert arn is not None, "synthesis refused a table without a stream"
        if source.stream is not None:
            source.stream.grant_read(self.role)
        if source.table is not None:
            source.table.grant_stream_read(self.role)
        mapping = lambda_.EventSourceMapping(
            self,
            "Stream",
            target=self.function,
            event_source_arn=arn,
            starting_position=source.starting_position,
            batch_size=source.batch_size,
            max_batching_window=source.max_batching_window,
            parallelization_factor=source.parallelization_factor,
            report_batch_item_failures=True,
            # If the function ends without an answer, Lambda finds the record that stopped it.
            bisect_batch_on_error=True,
            retry_attempts=FOR_EVER,
        )
        suppress(mapping, STREAM_DESTINATION)
        expect(self, "stream", mapping, {**MAPPING, "MaximumRetryAttempts": FOR_EVER})
        # The grants are in the role's policy, and Lambda checks them when it makes the mapping.
        mapping.node.add_dependency(self.role)
