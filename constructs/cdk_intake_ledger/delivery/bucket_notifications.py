"""Reads a bucket of the app: its resource, its owner, and the notifications that synthesis knows."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from aws_cdk import CfnResource, Resource, Stack
from aws_cdk import aws_s3 as s3
from constructs import IConstruct

from cdk_intake_ledger.checks.registry import Problem
from cdk_intake_ledger.checks.rules.bucket_rules import NOTIFICATIONS_OVERLAP
from cdk_intake_ledger.delivery.key_filters import KeyPattern
from cdk_intake_ledger.resources.cloudformation import properties_of

# `ObjectRemoved:*` does not contain deletions by lifecycle rules. The ledger needs removals even if they are not
# processed, to know that a state is over. After a restore, an archived object can be read that was rejected before.
EVENTS = {
    s3.EventType.OBJECT_CREATED: "s3:ObjectCreated:*",
    s3.EventType.OBJECT_REMOVED: "s3:ObjectRemoved:*",
    s3.EventType.LIFECYCLE_EXPIRATION: "s3:LifecycleExpiration:*",
    s3.EventType.OBJECT_RESTORE_COMPLETED: "s3:ObjectRestore:Completed",
}
"""The events that each pipeline requests, by CDK's type and by S3's name."""

NOTIFIED = "cdk-intake-ledger:notified"
"""Metadata of a bucket: the ARNs of the queues that CDK's notifications reach, in the order of the pipelines."""

CDK_NOTIFICATIONS = "Notifications"
"""CDK's ID for the construct with a bucket's notifications. They replace the whole configuration of the bucket."""


def owned_resource(bucket: s3.IBucket) -> s3.CfnBucket | None:
    """The resource of a bucket of this app, or None for an imported bucket."""
    resource = bucket.node.default_child
    return resource if isinstance(resource, s3.CfnBucket) and Resource.is_owned_resource(bucket) else None


def owner_of(bucket: s3.IBucket, resource: s3.CfnBucket | None, scope: IConstruct) -> str | None:
    """The account that owns the bucket, or None if it is not certain.

    CDK gives an imported bucket the account of its stack, even if it belongs to another account.
    """
    account = bucket.env.account
    return account if resource is not None or account != Stack.of(scope).account else None


def in_stack_of(resource: IConstruct, scope: IConstruct) -> bool:
    """True if both belong to one stack."""
    resource_stack, scope_stack = Stack.of(resource), Stack.of(scope)
    # jsii gives a new object for each call if the stack was not created in Python.
    return resource_stack is scope_stack or resource_stack.node.addr == scope_stack.node.addr


def has_cdk_notifications(bucket: s3.IBucket) -> bool:
    """True after a call of `add_event_notification` or `enable_event_bridge_notification`."""
    return bucket.node.try_find_child(CDK_NOTIFICATIONS) is not None


def cdk_configuration(bucket: s3.IBucket) -> dict[str, Any]:
    """The notification configuration of CDK's custom resource, empty if the bucket has none.

    Call it at synthesis only. Older CDKs keep the first result, and ignore notifications that are added later.
    """
    holder = bucket.node.try_find_child(CDK_NOTIFICATIONS)
    resource = holder.node.try_find_child("Resource") if holder is not None else None
    found = properties_of(resource).get("NotificationConfiguration") if isinstance(resource, CfnResource) else None
    return found if isinstance(found, dict) else {}


class BucketNotification(NamedTuple):
    """A notification of a bucket."""

    destination: str
    """The ARN, or the logical ID of a resource of the app."""
    event: str
    keys: KeyPattern | None
    """None if they are known only at deployment."""


def resource_notifications(resource: s3.CfnBucket | None) -> Iterator[BucketNotification]:
    """Find the notifications in a bucket's own resource."""
    if resource is None:
        return
    # Resolve this property only. Older CDKs keep the first result of others, such as the lifecycle rules.
    configuration = Stack.of(resource).resolve(resource.notification_configuration)
    for kind, destination in (("queue", "queue"), ("lambda", "function"), ("topic", "topic")):
        for entry in (configuration or {}).get(f"{kind}Configurations", ()):
            rules = entry.get("filter", {}).get("s3Key", {}).get("rules", ())
            ends = {rule["name"]: rule["value"] for rule in rules}
            yield BucketNotification(readable(entry[destination]), entry["event"], _filter_of(ends))


def cdk_notifications(bucket: s3.IBucket) -> Iterator[BucketNotification]:
    """Find the notifications in CDK's custom resource. Call it at synthesis only, as `cdk_configuration`."""
    configuration = cdk_configuration(bucket)
    for kind, destination in (("Queue", "QueueArn"), ("LambdaFunction", "LambdaFunctionArn"), ("Topic", "TopicArn")):
        for entry in configuration.get(f"{kind}Configurations", ()):
            rules = entry.get("Filter", {}).get("Key", {}).get("FilterRules", ())
            taken = _filter_of({rule["Name"]: rule["Value"] for rule in rules})
            for event in entry["Events"]:
                yield BucketNotification(readable(entry[destination]), event, taken)


def overlap_problems(
    notifications: Iterable[BucketNotification],
    filters: Sequence[KeyPattern],
    events: Iterable[str] = tuple(EVENTS.values()),
) -> Iterator[Problem]:
    """Find notifications about the same keys (F127).

    Args:
        notifications: those of other destinations.
        filters: the pipeline's.
        events: those that the pipeline requests.

    """
    others, wanted = dict.fromkeys(notifications), [*events]
    for item in filters:
        for destination, event, other in others:
            if other and item.is_known and _is_requested(event, wanted) and item.encoded().overlaps(other):
                yield NOTIFICATIONS_OVERLAP.problem(filter=item, destination=destination, event=event, other=other)


def _is_requested(event: str, wanted: Sequence[str]) -> bool:
    """True if one of the wanted events is this one, or if one of both stands for all events of its kind."""
    pairs = [pair for name in wanted for pair in ((event, name), (name, event))]
    return any(one == name or (name.endswith("*") and one.startswith(name[:-1])) for one, name in pairs)


def _filter_of(ends: Mapping[str, Any]) -> KeyPattern | None:
    if not all(isinstance(value, str) for value in ends.values()):
        return None
    return KeyPattern(**{name.lower(): value for name, value in ends.items()})


def readable(arn: Any) -> str:
    """An ARN, or the logical ID of a resource of the app."""
    match arn:
        case {"Fn::GetAtt": [name, *_]} | {"Ref": name}:
            return str(name)
    return arn if isinstance(arn, str) else json.dumps(arn)
