"""How the bucket's changes reach the queue: three ways, chosen by whose bucket it is, unless the team chooses.

| bucket | way |
| --- | --- |
| the pipeline's own, or of the same stack | S3's notification, in the bucket's own resource: no hidden Lambda |
| of another stack of the app | an EventBridge rule here: a notification would tie both stacks in a circle |
| imported | CDK's notification, which adds ours to those that are there |

A choice of EventBridge makes a rule here, whosever the bucket is; of what exists already, nothing is made.

A bucket of the same stack that already has notifications of CDK's own kind gets the third way too: those own its whole
configuration, and would replace what is written into the resource.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jsii
from aws_cdk import CfnResource, Resource, Stack, Token
from aws_cdk import aws_events as events
from aws_cdk import aws_s3 as s3
from constructs import Construct, IConstruct

from cdk_intake_ledger.delivery.key_filters import KeyFilter, overlap
from cdk_intake_ledger.options import Delivery
from cdk_intake_ledger.resources.cloudformation import properties_of
from cdk_intake_ledger.resources.queue import IntakeQueue, Missing
from cdk_intake_ledger.validation.bucket_rules import (
    BUCKET_IN_SAME_ENVIRONMENT,
    BUCKET_VERSIONING_UNKNOWN,
    EVENT_BRIDGE_UNKNOWN,
    EXISTING_DELIVERY_NEEDS_BOTH,
    KEY_POLICY_UNKNOWN,
    NOTIFICATIONS_OVERLAP,
    QUEUE_POLICY_UNKNOWN,
    S3_DELIVERY_IN_SAME_STACK,
)
from cdk_intake_ledger.validation.nag_suppressions import NOTIFICATIONS_HANDLER, suppress
from cdk_intake_ledger.validation.registry import Problem
from cdk_intake_ledger.validation.reporting import warn

# Lifecycle deletions are not among `ObjectRemoved:*`. Removals are asked for even where they are not processed: the
# ledger has to know that a state is over. A restore makes an archived object readable that was rejected before.
EVENTS = {
    s3.EventType.OBJECT_CREATED: "s3:ObjectCreated:*",
    s3.EventType.OBJECT_REMOVED: "s3:ObjectRemoved:*",
    s3.EventType.LIFECYCLE_EXPIRATION: "s3:LifecycleExpiration:*",
    s3.EventType.OBJECT_RESTORE_COMPLETED: "s3:ObjectRestore:Completed",
}

DETAIL_TYPES = ["Object Created", "Object Deleted", "Object Restore Completed"]

# CDK's id for the construct that holds a bucket's notifications, and replaces the bucket's whole configuration by them.
CDK_NOTIFICATIONS = "Notifications"

CDK_HANDLER = "BucketNotificationsHandler050a0587b7544547bf325f094a3db834"
"""CDK's id for the function behind them, one for a stack."""
LOGS_POLICY = "arn:<AWS::Partition>:iam::aws:policy/service-role/AWSLambdaBasicExecutionRole"
"""What CDK gives that function, as cdk-nag names it."""


def owned_resource(bucket: s3.IBucket) -> s3.CfnBucket | None:
    """The resource behind a bucket of this app; `None` for an imported one."""
    resource = bucket.node.default_child
    return resource if isinstance(resource, s3.CfnBucket) and Resource.is_owned_resource(bucket) else None


def owner_of(bucket: s3.IBucket, resource: s3.CfnBucket | None, scope: IConstruct) -> str | None:
    """The account that owns the bucket, where that is certain: an imported bucket claims to be the stack's own."""
    theirs = bucket.env.account
    return theirs if resource is not None or theirs != Stack.of(scope).account else None


def in_stack_of(bucket: s3.IBucket, scope: IConstruct) -> bool:
    """Whether both belong to one stack."""
    one, other = Stack.of(bucket), Stack.of(scope)
    # A stack that was not made in Python is another object each time that one asks.
    return one is other or one.node.addr == other.node.addr


def has_cdk_notifications(bucket: s3.IBucket) -> bool:
    """Whether somebody called `add_event_notification` or `enable_event_bridge_notification`."""
    return bucket.node.try_find_child(CDK_NOTIFICATIONS) is not None


def default_delivery_mode(bucket: s3.IBucket, resource: s3.CfnBucket | None, scope: IConstruct) -> Delivery:
    """The way that works for this bucket, where nobody has chosen one."""
    sibling = resource is not None and not in_stack_of(bucket, scope)
    return Delivery.EVENTBRIDGE if sibling else Delivery.S3


def delivery_problems(delivery: Delivery | None, *, existing: bool) -> Iterator[Problem]:
    """What a choice of delivery needs, and does not have."""
    if delivery is Delivery.EXISTING and not existing:
        yield EXISTING_DELIVERY_NEEDS_BOTH.problem()


def bucket_problems(
    bucket: s3.IBucket, scope: Construct, filters: Sequence[KeyFilter], delivery: Delivery | None
) -> Iterator[Problem]:
    """What keeps a bucket from being delivered from."""
    resource = owned_resource(bucket)
    if delivery is Delivery.EXISTING:
        return
    if delivery is not Delivery.EVENTBRIDGE and (resource is None or in_stack_of(bucket, scope)):
        yield from _overlaps(bucket, resource, filters)
    if resource is None:
        return
    for name in ("account", "region"):
        theirs, ours = (str(getattr(Stack.of(item), name)) for item in (bucket, scope))
        if theirs != ours and not Token.is_unresolved(theirs) and not Token.is_unresolved(ours):
            yield BUCKET_IN_SAME_ENVIRONMENT.problem(name=name, theirs=theirs, ours=ours)
    if delivery is Delivery.S3 and not in_stack_of(bucket, scope):
        yield S3_DELIVERY_IN_SAME_STACK.problem()


def _overlaps(bucket: s3.IBucket, resource: s3.CfnBucket | None, filters: Sequence[KeyFilter]) -> Iterator[Problem]:
    """Notifications of the team's about the same keys (F127), in the bucket's property and in CDK's custom resource."""
    theirs = dict.fromkeys(_notifications_of(bucket, resource))
    for item in filters:
        for destination, event, taken in theirs:
            if item.is_known and _is_ours(event) and overlap(item.encoded(), taken):
                yield NOTIFICATIONS_OVERLAP.problem(filter=item, destination=destination, event=event, other=taken)


def _is_ours(event: str) -> bool:
    """Whether the pipeline asks S3 for this event too, or for all of its kind."""
    return any(event == one or (one.endswith("*") and event.startswith(one[:-1])) for one in EVENTS.values())


def add_notifications(
    scope: Construct,
    delivery_mode: Delivery,
    *,
    pipeline_name: str,
    bucket: s3.IBucket,
    own: bool,
    resource: s3.CfnBucket | None,
    queue: IntakeQueue,
    filters: Sequence[KeyFilter],
) -> None:
    """Have the changes of these keys sent to the queue. `own`: the pipeline has just made the bucket."""
    if resource is None:
        _warn_about_versioning(scope, bucket)
    if delivery_mode is Delivery.EXISTING:
        return
    if delivery_mode is Delivery.EVENTBRIDGE:
        _switch_event_bridge_on(scope, bucket, resource)
        _deliver_by_event_bridge(scope, pipeline_name, bucket, queue, filters)
    elif resource is None:
        _notify_by_cdk(scope, bucket, queue, filters, {"ArnLike": {"aws:SourceArn": bucket.bucket_arn}})
    elif not own and has_cdk_notifications(bucket):
        _notify_by_cdk(scope, bucket, queue, filters, {})
    else:
        _notify_natively(scope, bucket, resource, queue, filters)


def _notify_natively(
    scope: Construct, bucket: s3.IBucket, resource: s3.CfnBucket, queue: IntakeQueue, filters: Sequence[KeyFilter]
) -> None:
    _allow_s3(scope, bucket, queue, {})
    configuration = s3.CfnBucket.NotificationConfigurationProperty
    before = resource.notification_configuration
    known = before if isinstance(before, configuration) else configuration()
    theirs = known.queue_configurations
    resource.notification_configuration = configuration(
        event_bridge_configuration=known.event_bridge_configuration,
        lambda_configurations=known.lambda_configurations,
        topic_configurations=known.topic_configurations,
        # CloudFormation takes one event for an entry.
        queue_configurations=[
            *(theirs if isinstance(theirs, list) else ()),
            *(
                s3.CfnBucket.QueueConfigurationProperty(
                    event=event, queue=queue.queue.queue_arn, filter=_key_filter(item.encoded())
                )
                for item in filters
                for event in EVENTS.values()
            ),
        ],
    )
    # S3 tries the queue when it is told of it.
    if (policy := queue.cfn_policy) is not None:
        resource.node.add_dependency(policy)


def _key_filter(item: KeyFilter) -> s3.CfnBucket.NotificationFilterProperty | None:
    rules = [s3.CfnBucket.FilterRuleProperty(name=name, value=value) for name, value in item.parts()]
    if not rules:
        return None
    return s3.CfnBucket.NotificationFilterProperty(s3_key=s3.CfnBucket.S3KeyFilterProperty(rules=rules))


def _notify_by_cdk(
    scope: Construct,
    bucket: s3.IBucket,
    queue: IntakeQueue,
    filters: Sequence[KeyFilter],
    conditions: Mapping[str, dict[str, str]],
) -> None:
    _allow_s3(scope, bucket, queue, conditions)
    destination = _QueueDestination(queue)
    stack = Stack.of(bucket)
    handler_is_theirs = stack.node.try_find_child(CDK_HANDLER) is not None
    for item in filters:
        keys = [s3.NotificationKeyFilter(**dict(item.encoded().parts()))] if list(item.parts()) else []
        for event in EVENTS:
            bucket.add_event_notification(event, destination, *keys)
    handler = stack.node.try_find_child(CDK_HANDLER)
    if handler is not None and not handler_is_theirs:
        suppress(handler.node.find_child("Role"), NOTIFICATIONS_HANDLER, of=f"[Policy::{LOGS_POLICY}]")


@jsii.implements(s3.IBucketNotificationDestination)
class _QueueDestination:
    """The queue as CDK's notifications want it, less CDK's own policies: those tie one key in a circle."""

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
    # The account alone where the bucket depends on this policy: its ARN would close a circle. The consumer refuses
    # foreign buckets for that reason.
    account = {"StringEquals": {"aws:SourceAccount": bucket.env.account}}
    missing = queue.allow_service("s3.amazonaws.com", account | dict(conditions), key_conditions=account)
    _warn_about_policies(scope, missing)


def _switch_event_bridge_on(scope: Construct, bucket: s3.IBucket, resource: s3.CfnBucket | None) -> None:
    if resource is None:
        warn(scope, EVENT_BRIDGE_UNKNOWN, bucket=bucket.node.path)
    elif has_cdk_notifications(bucket):
        bucket.enable_event_bridge_notification()
    else:
        # Not by `enable_event_bridge_notification`, which needs a Lambda to say one word to S3.
        resource.add_property_override(
            "NotificationConfiguration.EventBridgeConfiguration.EventBridgeEnabled", value=True
        )


def _deliver_by_event_bridge(
    scope: Construct, pipeline_name: str, bucket: s3.IBucket, queue: IntakeQueue, filters: Sequence[KeyFilter]
) -> None:
    detail: dict[str, Any] = {"bucket": {"name": [bucket.bucket_name]}}
    patterns = [item.event_patterns() for item in filters]
    if all(patterns):
        detail["object"] = {"key": [alternative for pattern in patterns for alternative in pattern]}
    rule = events.CfnRule(
        scope,
        "Delivery",
        description=f"Intake ledger, changes for {pipeline_name}",
        event_pattern={"source": ["aws.s3"], "detail-type": DETAIL_TYPES, "detail": detail},
        targets=[
            events.CfnRule.TargetProperty(
                id="Queue",
                arn=queue.queue.queue_arn,
                # What EventBridge gives up after a day would be gone without a trace.
                dead_letter_config=events.CfnRule.DeadLetterConfigProperty(arn=queue.dead_letter_queue.queue_arn),
            )
        ],
    )
    account = {"StringEquals": {"aws:SourceAccount": Stack.of(scope).account}}
    missing = queue.allow_service(
        "events.amazonaws.com",
        account | {"ArnEquals": {"aws:SourceArn": rule.attr_arn}},
        # The rule's ARN here would tie key, queue and rule in a circle.
        key_conditions=account,
        dead_letters=True,
    )
    _warn_about_policies(scope, missing)


def _notifications_of(bucket: s3.IBucket, resource: s3.CfnBucket | None) -> Iterator[tuple[str, str, KeyFilter]]:
    """Destination, event and filter of each notification that synthesis knows of the bucket."""
    for kind, destination in (("queue", "queue"), ("lambda", "function"), ("topic", "topic")):
        for entry in configuration_of(resource).get(f"{kind}Configurations", ()) if resource is not None else ():
            rules = entry.get("filter", {}).get("s3Key", {}).get("rules", ())
            yield _spelt(entry[destination]), entry["event"], _filter_of({one["name"]: one["value"] for one in rules})
    for kind, destination in (("Queue", "QueueArn"), ("LambdaFunction", "LambdaFunctionArn"), ("Topic", "TopicArn")):
        for entry in _rendered(bucket).get(f"{kind}Configurations", ()):
            rules = entry.get("Filter", {}).get("Key", {}).get("FilterRules", ())
            taken = _filter_of({one["Name"]: one["Value"] for one in rules})
            for event in entry["Events"]:
                yield _spelt(entry[destination]), event, taken


def _filter_of(ends: Mapping[str, str]) -> KeyFilter:
    return KeyFilter(**{name.lower(): value for name, value in ends.items()})


def _rendered(bucket: s3.IBucket) -> dict[str, Any]:
    """The configuration in CDK's custom resource, if somebody called `add_event_notification`."""
    holder = bucket.node.try_find_child(CDK_NOTIFICATIONS)
    resource = holder.node.try_find_child("Resource") if holder is not None else None
    found = properties_of(resource).get("NotificationConfiguration") if isinstance(resource, CfnResource) else None
    return found if isinstance(found, dict) else {}


def _spelt(arn: Any) -> str:
    """An ARN for people: of a resource of the app its logical id."""
    match arn:
        case {"Fn::GetAtt": [name, *_]} | {"Ref": name}:
            return str(name)
    return arn if isinstance(arn, str) else json.dumps(arn)


def configuration_of(resource: s3.CfnBucket) -> dict[str, Any]:
    """The notification configuration that is written into a bucket's resource, resolved."""
    found = properties_of(resource).get("notificationConfiguration")
    return found if isinstance(found, dict) else {}


def _warn_about_versioning(scope: Construct, bucket: s3.IBucket) -> None:
    warn(scope, BUCKET_VERSIONING_UNKNOWN, bucket=bucket.node.path)


def _warn_about_policies(scope: Construct, missing: Sequence[Missing]) -> None:
    for one in missing:
        statement = json.dumps(Stack.of(scope).resolve(one.statement.to_statement_json()))
        rule = QUEUE_POLICY_UNKNOWN if one.kind == "queue" else KEY_POLICY_UNKNOWN
        warn(scope, rule, path=one.policy_of, statement=statement)
