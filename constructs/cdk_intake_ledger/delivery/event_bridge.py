"""Delivers the events of a bucket by a rule of EventBridge."""

from collections.abc import Iterable, Sequence
from typing import Any

from aws_cdk import Resource
from aws_cdk import aws_events as events
from aws_cdk import aws_s3 as s3
from constructs import Construct

from cdk_intake_ledger.bucket import EVENT_BRIDGE_ENABLED
from cdk_intake_ledger.checks.reporting import warn
from cdk_intake_ledger.checks.rules.bucket_rules import EVENT_BRIDGE_UNKNOWN
from cdk_intake_ledger.delivery.bucket_notifications import has_cdk_notifications, in_stack_of
from cdk_intake_ledger.delivery.key_filters import KeyPattern
from cdk_intake_ledger.delivery.queue_access import allow_rule, rule_target
from cdk_intake_ledger.queue import IntakeQueue
from intake_ledger.delivery_check.sent_events import DETAIL_TYPES


def switch_event_bridge_on(scope: Construct, bucket: s3.IBucket, resource: s3.CfnBucket | None) -> None:
    """Let the bucket send its events to EventBridge. For an imported bucket, warn that this must be done elsewhere."""
    if resource is None:
        warn(scope, EVENT_BRIDGE_UNKNOWN, bucket=bucket.node.path)
    elif has_cdk_notifications(bucket):
        bucket.enable_event_bridge_notification()
    else:
        # `enable_event_bridge_notification` would add a Lambda function for this one setting.
        resource.add_property_override(EVENT_BRIDGE_ENABLED, value=True)


def deliver_by_event_bridge(
    scope: Construct,
    name: str,
    bucket: s3.IBucket,
    queue: IntakeQueue,
    filters: Sequence[KeyPattern],
    *,
    names: Iterable[str],
) -> None:
    """Add a rule that sends the events of these keys to the queue. `names` are S3's for them."""
    types = list(dict.fromkeys(DETAIL_TYPES[event] for event in names))
    detail: dict[str, Any] = {"bucket": {"name": [bucket.bucket_name]}}
    patterns = [item.event_patterns() for item in filters]
    if all(patterns):
        detail["object"] = {"key": [alternative for pattern in patterns for alternative in pattern]}
    rule = events.CfnRule(
        scope,
        "Delivery",
        description=f"Intake ledger, changes for {name}",
        event_pattern={"source": ["aws.s3"], "detail-type": types, "detail": detail},
        targets=[rule_target(queue)],
    )
    # With the rule's ARN, the stack of the queue and the stack of the rule would depend on each other.
    is_near = in_stack_of(queue.queue, scope) or not Resource.is_owned_resource(queue.queue)
    allow_rule(scope, queue, rule.attr_arn if is_near else None)
