"""Delivers the events of a bucket to the queue, in one of three ways.

| bucket | default |
| --- | --- |
| created by the pipeline, or in the same stack | S3 notifications in the bucket's resource, without a Lambda function |
| in another stack of the app | a rule of EventBridge. A notification would make the stacks depend on each other. |
| imported | CDK's notifications, which keep the existing notifications of the bucket |

With `Delivery.EVENTBRIDGE`, any bucket gets a rule. With `Delivery.EXISTING`, nothing is added.

A bucket of the same stack that has CDK's notifications gets CDK's notifications too. They replace the configuration in
the bucket's resource.
"""

from collections.abc import Iterable, Mapping, Sequence

import jsii
from aws_cdk import Stack
from aws_cdk import aws_s3 as s3
from constructs import Construct

from cdk_intake_ledger.checks.nag_suppressions import INLINE_POLICIES, NOTIFICATIONS_HANDLER, suppress
from cdk_intake_ledger.checks.reporting import warn
from cdk_intake_ledger.checks.rules.bucket_rules import BUCKET_VERSIONING_UNKNOWN
from cdk_intake_ledger.delivery.bucket_notifications import NOTIFIED, has_cdk_notifications
from cdk_intake_ledger.delivery.event_bridge import deliver_by_event_bridge, switch_event_bridge_on
from cdk_intake_ledger.delivery.key_filters import KeyPattern
from cdk_intake_ledger.delivery.other_account import warn_of_other_account
from cdk_intake_ledger.delivery.pipeline_resources import PipelineResources
from cdk_intake_ledger.delivery.queue_access import allow_service
from cdk_intake_ledger.options.options import Delivery
from cdk_intake_ledger.queue import IntakeQueue

CDK_NOTIFICATIONS = "Notifications"
"""The ID that CDK gives to its custom resource below an imported bucket."""
CDK_HANDLER = "BucketNotificationsHandler050a0587b7544547bf325f094a3db834"
"""CDK's ID for the function behind its notifications, one for each stack."""

LOGS_POLICY = "arn:<AWS::Partition>:iam::aws:policy/service-role/AWSLambdaBasicExecutionRole"
"""The managed policy of that function, as cdk-nag names it."""


def add_notifications(scope: Construct, resources: PipelineResources, events: Mapping[s3.EventType, str]) -> None:
    """Send the events of these keys to the queue.

    Args:
        scope: the pipeline.
        resources: those of the pipeline.
        events: those that the pipeline needs, by CDK's type and by S3's name.

    """
    bucket, resource, queue, filters = resources.bucket, resources.bucket_resource, resources.queue, resources.filters
    if resource is None:
        warn(scope, BUCKET_VERSIONING_UNKNOWN, bucket=bucket.node.path)
        object_actions = [action for extra in resources.extras for action in extra.actions]
        warn_of_other_account(scope, bucket, resources.delivery, filters, object_actions)
    if resources.delivery is Delivery.EXISTING:
        return
    if resources.delivery is Delivery.EVENTBRIDGE:
        switch_event_bridge_on(scope, bucket, resource)
        deliver_by_event_bridge(scope, resources.name, bucket, queue, filters, names=events.values())
    elif resource is None:
        _notify_by_cdk(
            scope, bucket, queue, filters, events=events, conditions={"ArnLike": {"aws:SourceArn": bucket.bucket_arn}}
        )
    elif not resources.bucket_is_own and has_cdk_notifications(bucket):
        _notify_by_cdk(scope, bucket, queue, filters, events=events, conditions={})
    else:
        _notify_natively(scope, bucket, resource, queue, filters, events=events.values())


def _notify_natively(
    scope: Construct,
    bucket: s3.IBucket,
    resource: s3.CfnBucket,
    queue: IntakeQueue,
    filters: Sequence[KeyPattern],
    *,
    events: Iterable[str],
) -> None:
    _allow_s3(scope, bucket, queue, {})
    configuration = s3.CfnBucket.NotificationConfigurationProperty
    before = resource.notification_configuration
    known = before if isinstance(before, configuration) else configuration()
    existing, arn = known.queue_configurations, queue.queue.queue_arn
    resource.notification_configuration = configuration(
        event_bridge_configuration=known.event_bridge_configuration,
        lambda_configurations=known.lambda_configurations,
        topic_configurations=known.topic_configurations,
        # CloudFormation takes one event per entry.
        queue_configurations=[
            *(existing if isinstance(existing, list) else ()),
            *(
                s3.CfnBucket.QueueConfigurationProperty(event=event, queue=arn, filter=_key_filter(item.encoded()))
                for item in filters
                for event in events
            ),
        ],
    )
    # S3 sends a test message to the queue when it gets the configuration.
    if (policy := queue.cfn_policy) is not None:
        resource.node.add_dependency(policy)


def _key_filter(item: KeyPattern) -> s3.CfnBucket.NotificationFilterProperty | None:
    rules = [s3.CfnBucket.FilterRuleProperty(name=name, value=value) for name, value in item.parts()]
    if not rules:
        return None
    return s3.CfnBucket.NotificationFilterProperty(s3_key=s3.CfnBucket.S3KeyFilterProperty(rules=rules))


def _notify_by_cdk(
    scope: Construct,
    bucket: s3.IBucket,
    queue: IntakeQueue,
    filters: Sequence[KeyPattern],
    *,
    events: Iterable[s3.EventType],
    conditions: Mapping[str, dict[str, str]],
) -> None:
    _allow_s3(scope, bucket, queue, conditions)
    bucket.node.add_metadata(NOTIFIED, queue.queue.queue_arn)
    destination = _QueueDestination(queue)
    stack = Stack.of(bucket)
    had_handler = stack.node.try_find_child(CDK_HANDLER) is not None
    had_notifications = bucket.node.try_find_child(CDK_NOTIFICATIONS) is not None
    for item in filters:
        keys = [s3.NotificationKeyFilter(**dict(item.encoded().parts()))] if list(item.parts()) else []
        for event in events:
            bucket.add_event_notification(event, destination, *keys)
    notifications = bucket.node.try_find_child(CDK_NOTIFICATIONS)
    if notifications is not None and not had_notifications:
        suppress(notifications, INLINE_POLICIES)
    handler = stack.node.try_find_child(CDK_HANDLER)
    if handler is not None and not had_handler:
        suppress(handler.node.find_child("Role"), NOTIFICATIONS_HANDLER, of=f"[Policy::{LOGS_POLICY}]")


@jsii.implements(s3.IBucketNotificationDestination)
class _QueueDestination:
    """The queue as a destination of CDK's notifications, without CDK's policies: with one key, they make a cycle."""

    def __init__(self, queue: IntakeQueue) -> None:
        self._queue = queue

    def bind(self, scope: Construct, bucket: object) -> s3.BucketNotificationDestinationConfig:  # noqa: ARG002
        return s3.BucketNotificationDestinationConfig(
            arn=self._queue.queue.queue_arn,
            type=s3.BucketNotificationDestinationType.QUEUE,
            dependencies=[policy] if (policy := self._queue.cfn_policy) else [],
        )


def _allow_s3(
    scope: Construct, bucket: s3.IBucket, queue: IntakeQueue, conditions: Mapping[str, dict[str, str]]
) -> None:
    # If the bucket depends on this policy, the condition has only the account: the bucket's ARN would make a cycle. The
    # consumer therefore rejects messages about other buckets.
    account = {"StringEquals": {"aws:SourceAccount": bucket.env.account}}
    allow_service(scope, queue, "s3.amazonaws.com", account | dict(conditions), key_conditions=account)
