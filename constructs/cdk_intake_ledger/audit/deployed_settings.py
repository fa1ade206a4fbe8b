"""The planned settings as the audit compares them: one environment variable in JSON.

`intake_ledger.delivery_check.deployed` has the meaning of each. A setting that is a token, or not known of an imported
resource, is left out: the audit does not compare it.
"""

from collections.abc import Iterator
from typing import Any

import jsii
from aws_cdk import CfnResource, Duration, IStableStringProducer, Lazy, Resource, Stack

from cdk_intake_ledger.checks.final_template import expected_in
from cdk_intake_ledger.consumer_function import IntakeConsumer
from cdk_intake_ledger.delivery.bucket_notifications import has_cdk_notifications
from cdk_intake_ledger.delivery.pipeline_resources import PipelineResources
from cdk_intake_ledger.options.durations import to_seconds
from cdk_intake_ledger.options.options import Delivery
from cdk_intake_ledger.resources.cloudformation import outermost, properties_of

_SAME = "the pipeline's own"


def deployed_settings(resources: PipelineResources, consumer: IntakeConsumer) -> str:
    """A token that becomes the settings when the app is synthesised, so that later changes of the team count too.

    Args:
        resources: the pipeline's resources.
        consumer: the pipeline's.

    """
    return Lazy.string(_Settings(resources, consumer))


@jsii.implements(IStableStringProducer)
class _Settings:
    def __init__(self, resources: PipelineResources, consumer: IntakeConsumer) -> None:
        self._resources = resources
        self._consumer = consumer

    def produce(self) -> str:
        """The settings in JSON, with the references that CloudFormation replaces."""
        resources, consumer = self._resources, self._consumer
        planned = {one.kind: one.wanted for one in expected_in(consumer.node.scope or consumer)}
        function, queue = planned.get("consumer", {}), planned.get("queue", {})
        stated = resources.queue.visibility_timeout
        source = consumer.source.node.default_child
        mapping = properties_of(source) if isinstance(source, CfnResource) else {}
        stacks = dict(self._stacks())
        settings: dict[str, Any] = {
            "stack": stacks.pop(""),
            "stacks": {name: stack for name, stack in stacks.items() if stack != _SAME},
            "account": self._account(),
            "custom": self._notified_by_cdk() or None,
            "function": consumer.function.function_name,
            "timeout": _number(function.get("Timeout")),
            "mapping": consumer.source.event_source_mapping_id,
            # Synthesis warns about both, so the template may have them.
            "enabled": False if mapping.get("enabled") is False else None,
            "filtered": True if mapping.get("filterCriteria") else None,
            "visibility": _number(queue.get("VisibilityTimeout")) or _seconds(stated),
            "retention": _number(queue.get("MessageRetentionPeriod")),
            "receives": _number(queue.get("RedrivePolicy.maxReceiveCount")),
            "dead": resources.dead_letter_url,
            "dead_arn": resources.dead_letter_arn,
            "dead_retention": _seconds(resources.queue.dead_letter_retention),
        }
        known = {name: value for name, value in settings.items() if value not in (None, {})}
        return resources.stack.to_json_string(known)

    def _account(self) -> str | None:
        resources = self._resources
        if resources.delivery is not Delivery.S3:
            return None
        return resources.bucket_owner or resources.bucket.env.account

    def _stacks(self) -> Iterator[tuple[str, str]]:
        """The stacks of the given resources: an empty one if the app does not make it. The first is the pipeline's."""
        ours = stack_selector(self._resources.stack)
        yield "", ours
        for name, resource in self._resources.existing.items():
            theirs = stack_selector(Stack.of(resource)) if Resource.is_owned_resource(resource) else ""
            yield name, _SAME if theirs == ours else theirs

    def _notified_by_cdk(self) -> bool:
        resources = self._resources
        if resources.delivery is not Delivery.S3 or "bucket" not in resources.existing:
            return False
        return resources.bucket_resource is None or has_cdk_notifications(resources.bucket)


def stack_selector(stack: Stack) -> str:
    """The name that `cdk deploy` takes for a stack: the path of the outermost stack."""
    outer = outermost(stack)
    return outer.node.path or outer.stack_name


def _seconds(duration: Duration | None) -> int | None:
    return None if duration is None or duration.is_unresolved() else int(to_seconds(duration))


def _number(value: Any) -> int | None:
    return int(value) if isinstance(value, int | float) else None
