"""The function behind a queue or a stream, for each kind of work, and what its processor needs."""

from collections.abc import Mapping

from aws_cdk import Duration
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from cdk_intake_ledger.checks.final_template import expect
from cdk_intake_ledger.checks.nag_suppressions import CONSUMER_DEAD_LETTERS, SOURCE_DESTINATION, suppress
from cdk_intake_ledger.functions.lambda_function import (
    FunctionCode,
    FunctionNetworking,
    intake_function,
    record_version,
)
from cdk_intake_ledger.functions.processor import Processor
from cdk_intake_ledger.options.options import ConcurrencyOptions
from cdk_intake_ledger.queue import IntakeQueue

MAPPING = {"FunctionResponseTypes": ["ReportBatchItemFailures"], "Enabled": True, "FilterCriteria": None}
"""The planned values of an event source mapping, which the final template must have."""


class ConsumerFunction(Construct):
    """The function with its role and log group. A subclass grants the resources of its kind of work."""

    source: lambda_.EventSourceMapping
    """The mapping of the queue."""
    stream = ""
    """The source of an intake that reads a stream, as the runtime names it. Empty for others."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        networking: FunctionNetworking,
        processor: Processor,
        description: str,
        timeout: float,
        environment: Mapping[str, str],
        reserved_concurrency: int | None,
    ) -> None:
        """Make the function.

        Args:
            scope: the construct of the kind of work.
            id: the construct's id.
            networking: the function's network, layer and log group.
            processor: its code and its variables.
            description: of the function and of its role.
            timeout: of the function, in seconds.
            environment: the variables of the kind of work.
            reserved_concurrency: None for the account's unreserved concurrency.

        """
        super().__init__(scope, id)
        self.existing_function = processor.function
        self.executions = processor.executions
        self.processor = processor
        self.networking = networking
        self.has_workers = False
        """True if workers outside of Lambda have a copy of the variables."""
        self.environment = dict(environment) | processor.settings
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
                reserved_concurrency=reserved_concurrency,
            ),
            networking=networking,
            description=description,
            timeout=Duration.seconds(timeout),
            environment=self.environment,
            suppressions=(CONSUMER_DEAD_LETTERS,),
            kind="consumer",
        )
        record_version(self.function, processor.processor_version, own_code=not processor.is_elsewhere)

    def _use(self, processor: Processor) -> None:
        """Let the consumer invoke the existing function, or start executions."""
        if processor.elsewhere is not None:
            processor.elsewhere.allow(self, self.role)

    def _receive(self, queue: IntakeQueue, options: ConcurrencyOptions) -> None:
        """Let Lambda poll the queue."""
        self.source = lambda_.EventSourceMapping(
            self,
            "Source",
            target=self.function,
            event_source_arn=queue.queue.queue_arn,
            batch_size=options.batch_size,
            max_batching_window=options.max_batching_window,
            max_concurrency=options.max_concurrency,
            # Otherwise Lambda would delete all messages of a batch, also the failed messages.
            report_batch_item_failures=True,
        )
        suppress(self.source, SOURCE_DESTINATION)
        expect(self, "mapping", self.source, MAPPING)
        _provision_pollers(self.source, options.min_pollers, options.max_pollers)


def _provision_pollers(mapping: lambda_.EventSourceMapping, least: int | None, most: int | None) -> None:
    """Provision the pollers of a queue. Older CDKs have no pollers of SQS in their higher level. None: Lambda's own."""
    if least is None and most is None:
        return
    resource = mapping.node.default_child
    assert isinstance(resource, lambda_.CfnEventSourceMapping), mapping.node.path
    resource.provisioned_poller_config = lambda_.CfnEventSourceMapping.ProvisionedPollerConfigProperty(
        minimum_pollers=least, maximum_pollers=most
    )
