"""The deployed settings as the audit compares them: one environment variable in JSON, read from the app at synthesis.

`intake_ledger.delivery_check.deployed` has the meaning of each. A setting that is a token, or of an imported resource,
is left out: the audit does not compare it.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import jsii
from aws_cdk import CfnResource, Duration, IStableStringProducer, Lazy, Resource, Stack

from cdk_intake_ledger.delivery import has_cdk_notifications
from cdk_intake_ledger.functions import IntakeConsumer, PipelineResources
from cdk_intake_ledger.options import Delivery, to_seconds

if TYPE_CHECKING:
    from constructs import IConstruct

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
        properties = self._properties()
        names = ("function", "mapping", "queue", "table")
        function, mapping, queue, table = (properties.get(name, {}) for name in names)
        stacks = dict(self._stacks())
        settings: dict[str, Any] = {
            "stack": stacks.pop(""),
            "stacks": {name: stack for name, stack in stacks.items() if stack != _SAME},
            "account": self._account(),
            "custom": self._notified_by_cdk() or None,
            "function": consumer.function.function_name,
            "timeout": _number(function.get("timeout")),
            "reserved": _number(function.get("reservedConcurrentExecutions", -1)),
            "mapping": consumer.source.event_source_mapping_id,
            "enabled": False if mapping.get("enabled") is False else None,
            "batch": _number(mapping.get("batchSize")),
            "window": _number(mapping.get("maximumBatchingWindowInSeconds", 0)),
            "concurrency": _number((mapping.get("scalingConfig") or {}).get("maximumConcurrency", 0)),
            "filtered": True if mapping.get("filterCriteria") else None,
            "visibility": _number(queue.get("visibilityTimeout")) or _seconds(resources.queue.visibility_timeout),
            "retention": _number(queue.get("messageRetentionPeriod")) or _seconds(resources.queue.retention),
            "receives": _receives(queue.get("redrivePolicy")) if queue else None,
            "least_receives": None if queue else resources.queue.max_receives,
            "dead": resources.dead_letter_url,
            "dead_arn": resources.dead_letter_arn if self._is_dead_letter_queue(queue) else None,
            "dead_retention": _seconds(resources.queue.dead_letter_retention),
            "pitr": "table" not in properties or _has_recovery(table),
        }
        known = {name: value for name, value in settings.items() if value not in (None, {})}
        return resources.stack.to_json_string(known)

    def _properties(self) -> dict[str, dict[str, Any]]:
        """Properties of the resources of this app, resolved together: each question to the CDK's process costs time."""
        resources, consumer, given = self._resources, self._consumer, self._resources.existing
        owners: dict[str, IConstruct] = {"function": consumer.function, "mapping": consumer.source}
        if "queue" not in given or Resource.is_owned_resource(resources.queue.queue):
            owners["queue"] = resources.queue.queue
        if "table" in given:
            owners["table"] = resources.table
        raw: dict[str, Any] = {}
        for name, owner in owners.items():
            resource = owner.node.default_child
            if isinstance(resource, CfnResource) and (name != "table" or Resource.is_owned_resource(owner)):
                raw[name] = resource._cfn_properties  # noqa: SLF001 - as in `properties_of`
            elif name == "table":
                raw[name] = {}
        return dict(resources.stack.resolve(raw))

    def _account(self) -> str | None:
        resources = self._resources
        if resources.delivery is not Delivery.S3:
            return None
        return resources.bucket_owner or resources.bucket.env.account

    def _stacks(self) -> Iterator[tuple[str, str]]:
        """The stacks of the given resources: an empty one if the app does not make it. The first is the pipeline's."""
        ours = _selector(self._resources.stack)
        yield "", ours
        for name, resource in self._resources.existing.items():
            theirs = _selector(Stack.of(resource)) if Resource.is_owned_resource(resource) else ""
            yield name, _SAME if theirs == ours else theirs

    def _notified_by_cdk(self) -> bool:
        resources = self._resources
        if resources.delivery is not Delivery.S3 or "bucket" not in resources.existing:
            return False
        return resources.bucket_resource is None or has_cdk_notifications(resources.bucket)

    def _is_dead_letter_queue(self, queue: dict[str, Any]) -> bool:
        if "queue" not in self._resources.existing or not queue:
            return True
        redrive = queue.get("redrivePolicy")
        if not isinstance(redrive, dict):
            return False
        theirs = self._resources.stack.resolve(self._resources.dead_letter_arn)
        return bool(redrive.get("deadLetterTargetArn") == theirs)


def _selector(stack: Stack) -> str:
    """The name that `cdk deploy` takes for a stack: the path of the outermost stack."""
    while (parent := stack.nested_stack_parent) is not None:
        stack = parent
    return stack.node.path or stack.stack_name


def _seconds(duration: Duration | None) -> int | None:
    return None if duration is None or duration.is_unresolved() else int(to_seconds(duration))


def _number(value: Any) -> int | None:
    return int(value) if isinstance(value, int | float) else None


def _receives(redrive: Any) -> int | None:
    return _number(redrive.get("maxReceiveCount")) if isinstance(redrive, dict) else 0


def _has_recovery(table: dict[str, Any]) -> bool:
    return (table.get("pointInTimeRecoverySpecification") or {}).get("pointInTimeRecoveryEnabled") is True
