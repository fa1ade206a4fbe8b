"""What can be seen only when the whole app is known: CDK asks these questions at synthesis.

Everything else is refused where the pipeline is made; here is what others may do to its bucket and role afterwards.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import jsii
from aws_cdk import Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sqs as sqs
from constructs import Construct, IValidation

from cdk_intake_ledger.delivery.event_delivery import CDK_NOTIFICATIONS, has_cdk_notifications
from cdk_intake_ledger.delivery.key_filters import KeyFilter
from cdk_intake_ledger.options import Delivery
from cdk_intake_ledger.resources.cloudformation import properties_of
from cdk_intake_ledger.validation.bucket_rules import (
    BUCKET_NOT_VERSIONED,
    EVENT_BRIDGE_SWITCHED_OFF,
    NOTIFICATIONS_REPLACED,
    PROCESSOR_CALLS_ITSELF,
    PROCESSOR_MAY_CALL_ITSELF,
    VERSIONS_EXPIRE_EARLY,
)
from cdk_intake_ledger.validation.plan import DAY, span
from cdk_intake_ledger.validation.queue_rules import QUEUE_HAS_OTHER_CONSUMER
from cdk_intake_ledger.validation.registry import Problem
from cdk_intake_ledger.validation.reporting import warn


@jsii.implements(IValidation)
class BucketValidation:
    """Looks at the bucket, at what the processor may write into it, and at a given queue."""

    def __init__(
        self,
        scope: Construct,
        *,
        bucket: s3.IBucket,
        resource: s3.CfnBucket | None,
        delivery: Delivery,
        filters: Sequence[KeyFilter],
        role: iam.Role,
        message_life: float,
        queue: sqs.IQueue | None,
        source: lambda_.EventSourceMapping,
    ) -> None:
        self._scope = scope
        self._bucket = bucket
        self._resource = resource
        self._delivery = delivery
        self._filters = filters
        self._role = role
        self._message_life = message_life
        self._queue = queue
        self._source = source
        self._began_with_cdk_notifications = has_cdk_notifications(bucket)

    def validate(self) -> list[str]:
        """Check the app.

        Returns:
            The messages. The CDK ends the synthesis if there are any.

        """
        return [str(problem) for problem in self._problems()]

    def _problems(self) -> Iterator[Problem]:
        yield from self._loops()
        yield from self._other_readers()
        if self._resource is not None:
            yield from self._replaced_notifications()
            yield from self._short_lives(properties_of(self._resource))

    def _other_readers(self) -> Iterator[Problem]:
        """Event source mappings of other functions on the queue that the pipeline was given (F128)."""
        if self._queue is None:
            return
        arn, ours = self._queue.queue_arn, f"{self._source.node.path}/Resource"
        for found in self._scope.node.root.node.find_all():
            if isinstance(found, lambda_.CfnEventSourceMapping) and found.event_source_arn == arn:
                path = found.node.path
                if path != ours and found.enabled is not False:
                    yield QUEUE_HAS_OTHER_CONSUMER.problem(mapping=path, path=self._queue.node.path)

    def _replaced_notifications(self) -> Iterator[Problem]:
        if self._began_with_cdk_notifications or not has_cdk_notifications(self._bucket):
            return
        path = self._bucket.node.path
        if self._delivery is Delivery.S3:
            yield NOTIFICATIONS_REPLACED.problem(bucket=path)
        elif self._delivery is Delivery.EVENTBRIDGE and not self._cdk_keeps_event_bridge():
            yield EVENT_BRIDGE_SWITCHED_OFF.problem(bucket=path)

    def _cdk_keeps_event_bridge(self) -> bool:
        notifications = self._bucket.node.find_child(CDK_NOTIFICATIONS).node.try_find_child("Resource")
        if notifications is None:
            return False
        properties: Any = properties_of(notifications)  # type: ignore[arg-type] # CDK's child of this name is a resource
        return "EventBridgeConfiguration" in properties.get("NotificationConfiguration", {})

    def _short_lives(self, properties: dict[str, Any]) -> Iterator[Problem]:
        versioning = properties.get("versioningConfiguration", {})
        if versioning.get("status") != "Enabled":
            warn(self._scope, BUCKET_NOT_VERSIONED, bucket=self._bucket.node.path)
        for rule in properties.get("lifecycleConfiguration", {}).get("rules", ()):
            days = rule.get("noncurrentVersionExpiration", {}).get("noncurrentDays")
            if isinstance(days, int) and rule.get("status") == "Enabled" and days * DAY < self._message_life:
                yield VERSIONS_EXPIRE_EARLY.problem(
                    bucket=self._bucket.node.path, expiry=span(days * DAY), message_life=span(self._message_life)
                )

    def _loops(self) -> Iterator[Problem]:
        """A processor that writes where it reads calls itself."""
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
                    if statement["Effect"] == "Allow" and any(
                        _puts(action) for action in _listed(statement.get("Action"))
                    ):
                        yield from _keys_in(_listed(statement.get("Resource")), arn)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _puts(action: Any) -> bool:
    return action in ("*", "s3:*", "s3:Put*", "s3:PutObject*", "s3:PutObject")


def _keys_in(resources: Sequence[Any], bucket_arn: Any) -> Iterator[str]:
    """The key patterns of those resources that are objects of the bucket."""
    beginning = f"{_text(bucket_arn)}/"
    for resource in map(_text, resources):
        if resource == "*":
            yield "*"
        elif resource.startswith(beginning):
            yield resource.removeprefix(beginning)


def _text(resolved: Any) -> str:
    """A resolved value as text that can be compared, whatever parts it was joined of."""
    match resolved:
        case str():
            return resolved
        case {"Fn::Join": ["", list(parts)]}:
            return "".join(map(_text, parts))
    return json.dumps(resolved, sort_keys=True)


def _always_matches(pattern: str, item: KeyFilter) -> bool:
    if not item.is_known:
        return False
    beginning, star, end = _ends(pattern)
    return beginning.startswith(item.prefix) and (end if star else beginning).endswith(item.suffix)


def _may_match(pattern: str, item: KeyFilter) -> bool:
    if not item.is_known:
        return False
    beginning, star, end = _ends(pattern)
    if not star:
        return beginning.startswith(item.prefix) and beginning.endswith(item.suffix)
    return (beginning.startswith(item.prefix) or item.prefix.startswith(beginning)) and (
        end.endswith(item.suffix) or item.suffix.endswith(end)
    )


def _ends(pattern: str) -> tuple[str, str, str]:
    """What a key pattern begins with, whether it has a wildcard, and what it ends with."""
    positions = [index for index, character in enumerate(pattern) if character in "*?"]
    if not positions:
        return pattern, "", ""
    return pattern[: positions[0]], "*", pattern[positions[-1] + 1 :]
