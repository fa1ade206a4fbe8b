"""Checks the whole app at synthesis: changes of the bucket, the role and the queue after the pipeline was created.

All other checks run when the pipeline is created.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jsii
from aws_cdk import Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sqs as sqs
from constructs import Construct, IValidation

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
from cdk_intake_ledger.delivery.lifecycle_rules import LifecycleValidation
from cdk_intake_ledger.options.options import Delivery, Ordering
from cdk_intake_ledger.resources.event_sources import other_consumer_problems

OUTPUT_SID = "OutputsOfTheProcessor"
"""Begins the names of statements that `grant_output` adds. `cdk_intake_ledger.outputs` checks their prefixes."""


class ConsumedQueue(NamedTuple):
    """The queue, and the mapping that lets the consumer read it."""

    queue: sqs.IQueue
    source: lambda_.EventSourceMapping
    is_existing: bool
    """False if the pipeline created the queue."""


@jsii.implements(IValidation)
class BucketValidation:
    """Checks the bucket, the processor's permission to write into it, and an existing queue.

    Args:
        scope: the pipeline.
        bucket: the pipeline's.
        resource: its resource; None for an imported bucket.
        delivery: the delivery mode.
        filters: the pipeline's.
        ordering: the pipeline's.
        deletes: whether the pipeline processes removals.
        role: the processor's role.
        lifecycle: checks the bucket's lifecycle rules.
        consumed: the pipeline's queue.

    """

    def __init__(
        self,
        scope: Construct,
        *,
        bucket: s3.IBucket,
        resource: s3.CfnBucket | None,
        delivery: Delivery,
        filters: Sequence[KeyPattern],
        ordering: Ordering,
        deletes: bool,
        role: iam.Role,
        lifecycle: LifecycleValidation,
        consumed: ConsumedQueue,
    ) -> None:
        self._scope = scope
        self._bucket = bucket
        self._resource = resource
        self._delivery = delivery
        self._filters = filters
        self._ordering = ordering
        self._deletes = deletes
        self._role = role
        self._lifecycle = lifecycle
        self._queue = consumed.queue
        self._consumed = consumed
        self._began_with_cdk_notifications = has_cdk_notifications(bucket)

    def validate(self) -> list[str]:
        """Check the app.

        Returns:
            The messages. The CDK ends the synthesis if there are any.

        """
        return [str(problem) for problem in self._problems()]

    def _problems(self) -> Iterator[Problem]:
        templates = FinalTemplates(self, self._scope)
        yield from self._loops()
        yield from self._other_readers(templates)
        if self._delivery is Delivery.S3:
            yield from overlap_problems(self._other_notifications(), self._filters)
        elif self._delivery is Delivery.EXISTING:
            yield from existing_delivery_problems(
                self._scope,
                bucket=self._bucket,
                resource=self._resource,
                queue=self._queue,
                filters=self._filters,
                deletes=self._deletes,
            )
        if self._resource is not None:
            yield from self._replaced_notifications()
            yield from self._lifecycle.problems(templates.properties(self._resource))

    def _other_readers(self, templates: FinalTemplates) -> Iterator[Problem]:
        """Find event source mappings of other functions on an existing queue (F128)."""
        if self._consumed.is_existing:
            yield from other_consumer_problems(templates, self._consumed.queue, self._consumed.source)

    def _other_notifications(self) -> Iterator[BucketNotification]:
        """CDK's notifications of the bucket, without those of this pipeline and of later ones, which find this one."""
        stack = Stack.of(self._bucket)
        arns = [entry.data for entry in self._bucket.node.metadata if entry.type == NOTIFIED]
        if self._queue.queue_arn not in arns:
            return
        own_and_later = {readable(stack.resolve(arn)) for arn in arns[arns.index(self._queue.queue_arn) :]}
        for notification in cdk_notifications(self._bucket):
            if notification.destination not in own_and_later:
                yield notification

    def _replaced_notifications(self) -> Iterator[Problem]:
        if self._began_with_cdk_notifications or not has_cdk_notifications(self._bucket):
            return
        path = self._bucket.node.path
        if self._delivery is Delivery.S3:
            yield NOTIFICATIONS_REPLACED.problem(bucket=path)
        elif self._delivery is Delivery.EVENTBRIDGE and "EventBridgeConfiguration" not in cdk_configuration(
            self._bucket
        ):
            yield EVENT_BRIDGE_SWITCHED_OFF.problem(bucket=path)

    def _loops(self) -> Iterator[Problem]:
        """Find permissions of the processor to write keys that the pipeline processes."""
        for pattern in self._written_keys():
            for item in self._filters:
                values: dict[str, object] = {"pattern": pattern, "bucket": self._bucket.node.path, "filter": item}
                if _always_matches(pattern, item):
                    yield PROCESSOR_CALLS_ITSELF.problem(**values)
                elif _may_match(pattern, item):
                    warn(self._scope, PROCESSOR_MAY_CALL_ITSELF, **values)

    def _written_keys(self) -> Iterator[str]:
        stack = Stack.of(self._role)
        arn = stack.resolve(self._bucket.bucket_arn)
        for policy in self._role.node.find_all():
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
