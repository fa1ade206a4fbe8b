"""Checks the whole app at synthesis: changes of the bucket, the role and the queue after the pipeline was created.

All other checks run when the pipeline is created.
"""

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from aws_cdk import Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from cdk_intake_ledger.checks.final_template import FinalTemplates
from cdk_intake_ledger.checks.registry import Problem
from cdk_intake_ledger.checks.reporting import warn
from cdk_intake_ledger.checks.rules.bucket_rules import (
    EVENT_BRIDGE_SWITCHED_OFF,
    NOTIFICATIONS_REPLACED,
    PROCESSOR_CALLS_ITSELF,
    PROCESSOR_MAY_CALL_ITSELF,
)
from cdk_intake_ledger.delivery.bucket_notifications import (
    NOTIFIED,
    BucketNotification,
    cdk_configuration,
    cdk_notifications,
    has_cdk_notifications,
    overlap_problems,
    readable,
)
from cdk_intake_ledger.delivery.existing_delivery import existing_delivery_problems
from cdk_intake_ledger.delivery.key_filters import KeyPattern
from cdk_intake_ledger.delivery.lifecycle_rules import lifecycle_problems
from cdk_intake_ledger.delivery.pipeline_resources import PipelineResources
from cdk_intake_ledger.options.options import Delivery
from cdk_intake_ledger.resources.event_sources import other_consumer_problems

OUTPUT_SID = "OutputsOfTheProcessor"
"""Begins the names of statements that `grant_output` adds. `cdk_intake_ledger.outputs` checks their prefixes."""


@dataclass(frozen=True, kw_only=True)
class BucketCheck:
    """The bucket, the processor's permission to write into it, and an existing queue."""

    scope: Construct
    """The pipeline. The other fields are its own."""
    resources: PipelineResources
    had_notifications: bool
    """True if the bucket had notifications of CDK when the pipeline was created."""
    events: Collection[str]
    """The events that the pipeline needs, by S3's names."""
    message_life: float
    """The longest time for which a message waits in both queues, in seconds."""
    role: iam.Role
    """The processor's."""
    source: lambda_.EventSourceMapping
    """The mapping that lets the consumer read the queue."""

    def problems(self, templates: FinalTemplates) -> Iterator[Problem]:
        """Check the complete app."""
        resources = self.resources
        yield from self._loops()
        if "queue" in resources.existing:
            yield from other_consumer_problems(templates, resources.queue.queue, self.source)
        if resources.delivery is Delivery.S3:
            yield from overlap_problems(self._other_notifications(), resources.filters, self.events)
        elif resources.delivery is Delivery.EXISTING:
            yield from existing_delivery_problems(self.scope, resources, self.events, templates)
        if resources.bucket_resource is not None:
            yield from self._replaced_notifications()
            yield from lifecycle_problems(
                self.scope,
                templates.properties(resources.bucket_resource),
                bucket=resources.bucket,
                filters=resources.filters,
                ordering=resources.ordering,
                message_life=self.message_life,
            )

    def _other_notifications(self) -> Iterator[BucketNotification]:
        """CDK's notifications of the bucket, without those of this pipeline and of later ones, which find this one."""
        bucket, queue_arn = self.resources.bucket, self.resources.queue.queue.queue_arn
        arns = [entry.data for entry in bucket.node.metadata if entry.type == NOTIFIED]
        if queue_arn not in arns:
            return
        own_and_later = {readable(Stack.of(bucket).resolve(arn)) for arn in arns[arns.index(queue_arn) :]}
        for notification in cdk_notifications(bucket):
            if notification.destination not in own_and_later:
                yield notification

    def _replaced_notifications(self) -> Iterator[Problem]:
        bucket, delivery = self.resources.bucket, self.resources.delivery
        if self.had_notifications or not has_cdk_notifications(bucket):
            return
        if delivery is Delivery.S3:
            yield NOTIFICATIONS_REPLACED.problem(bucket=bucket.node.path)
        elif delivery is Delivery.EVENTBRIDGE and "EventBridgeConfiguration" not in cdk_configuration(bucket):
            yield EVENT_BRIDGE_SWITCHED_OFF.problem(bucket=bucket.node.path)

    def _loops(self) -> Iterator[Problem]:
        """Find permissions of the processor to write keys that the pipeline processes."""
        path = self.resources.bucket.node.path
        for pattern in self._written_keys():
            for item in self.resources.filters:
                values: dict[str, object] = {"pattern": pattern, "bucket": path, "filter": item}
                if _always_matches(pattern, item):
                    yield PROCESSOR_CALLS_ITSELF.problem(**values)
                elif _may_match(pattern, item):
                    warn(self.scope, PROCESSOR_MAY_CALL_ITSELF, **values)

    def _written_keys(self) -> Iterator[str]:
        stack = Stack.of(self.role)
        arn = stack.resolve(self.resources.bucket.bucket_arn)
        for policy in self.role.node.find_all():
            if isinstance(policy, iam.Policy):
                for statement in stack.resolve(policy.document).get("Statement", ()):
                    if _lets_write(statement):
                        yield from _keys_in(_listed(statement.get("Resource")), arn)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _lets_write(statement: dict[str, Any]) -> bool:
    if statement["Effect"] != "Allow" or str(statement.get("Sid", "")).startswith(OUTPUT_SID):
        return False
    return any(_puts(action) for action in _listed(statement.get("Action")))


def _puts(action: Any) -> bool:
    return action in ("*", "s3:*", "s3:Put*", "s3:PutObject*", "s3:PutObject")


def _keys_in(resources: Sequence[Any], bucket_arn: Any) -> Iterator[str]:
    """The key patterns of the resources that are objects of the bucket."""
    beginning = f"{_text(bucket_arn)}/"
    for resource in map(_text, resources):
        if resource == "*":
            yield "*"
        elif resource.startswith(beginning):
            yield resource.removeprefix(beginning)


def _text(resolved: Any) -> str:
    """A resolved value as text, so that two values can be compared."""
    match resolved:
        case str():
            return resolved
        case {"Fn::Join": ["", list(parts)]}:
            return "".join(map(_text, parts))
    return json.dumps(resolved, sort_keys=True)


def _always_matches(pattern: str, item: KeyPattern) -> bool:
    if not item.is_known:
        return False
    beginning, star, end = _ends(pattern)
    return beginning.startswith(item.prefix) and (end if star else beginning).endswith(item.suffix)


def _may_match(pattern: str, item: KeyPattern) -> bool:
    if not item.is_known:
        return False
    beginning, star, end = _ends(pattern)
    if not star:
        return beginning.startswith(item.prefix) and beginning.endswith(item.suffix)
    return (beginning.startswith(item.prefix) or item.prefix.startswith(beginning)) and (
        end.endswith(item.suffix) or item.suffix.endswith(end)
    )


def _ends(pattern: str) -> tuple[str, str, str]:
    """The text of a key pattern before its first wildcard, a mark for a wildcard, and the text after the last one."""
    positions = [index for index, character in enumerate(pattern) if character in "*?"]
    if not positions:
        return pattern, "", ""
    return pattern[: positions[0]], "*", pattern[positions[-1] + 1 :]
