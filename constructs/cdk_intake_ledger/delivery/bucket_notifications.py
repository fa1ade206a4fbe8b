"""Reads a bucket of the app: its resource, its owner, and the notifications that synthesis knows."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from aws_cdk import CfnResource, Resource, Stack
from aws_cdk import aws_s3 as s3
from constructs import IConstruct

from cdk_intake_ledger.delivery.key_filters import KeyPattern
from cdk_intake_ledger.resources import properties_of

# `ObjectRemoved:*` does not contain deletions by lifecycle rules. The ledger needs removals even if they are not
# processed, to know that a state is over. After a restore, an archived object can be read that was rejected before.
EVENTS = {
    s3.EventType.OBJECT_CREATED: "s3:ObjectCreated:*",
    s3.EventType.OBJECT_REMOVED: "s3:ObjectRemoved:*",
    s3.EventType.LIFECYCLE_EXPIRATION: "s3:LifecycleExpiration:*",
    s3.EventType.OBJECT_RESTORE_COMPLETED: "s3:ObjectRestore:Completed",
}
"""The events that the pipeline requests, by CDK's type and by S3's name."""

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


def in_stack_of(bucket: s3.IBucket, scope: IConstruct) -> bool:
    """True if both belong to one stack."""
    bucket_stack, scope_stack = Stack.of(bucket), Stack.of(scope)
    # jsii gives a new object for each call if the stack was not created in Python.
    return bucket_stack is scope_stack or bucket_stack.node.addr == scope_stack.node.addr


def has_cdk_notifications(bucket: s3.IBucket) -> bool:
    """True after a call of `add_event_notification` or `enable_event_bridge_notification`."""
    return bucket.node.try_find_child(CDK_NOTIFICATIONS) is not None


def cdk_configuration(bucket: s3.IBucket) -> dict[str, Any]:
    """The notification configuration of CDK's custom resource, empty if the bucket has none."""
    holder = bucket.node.try_find_child(CDK_NOTIFICATIONS)
    resource = holder.node.try_find_child("Resource") if holder is not None else None
    found = properties_of(resource).get("NotificationConfiguration") if isinstance(resource, CfnResource) else None
    return found if isinstance(found, dict) else {}


def notifications_of(bucket: s3.IBucket, resource: s3.CfnBucket | None) -> Iterator[tuple[str, str, KeyPattern]]:
    """Find the notifications of a bucket, in its resource and in CDK's custom resource.

    Yields:
        Destination, event and filter of each notification.

    """
    for kind, destination in (("queue", "queue"), ("lambda", "function"), ("topic", "topic")):
        for entry in _configuration_of(resource).get(f"{kind}Configurations", ()):
            rules = entry.get("filter", {}).get("s3Key", {}).get("rules", ())
            ends = {rule["name"]: rule["value"] for rule in rules}
            yield _readable(entry[destination]), entry["event"], _filter_of(ends)
    for kind, destination in (("Queue", "QueueArn"), ("LambdaFunction", "LambdaFunctionArn"), ("Topic", "TopicArn")):
        for entry in cdk_configuration(bucket).get(f"{kind}Configurations", ()):
            rules = entry.get("Filter", {}).get("Key", {}).get("FilterRules", ())
            taken = _filter_of({rule["Name"]: rule["Value"] for rule in rules})
            for event in entry["Events"]:
                yield _readable(entry[destination]), event, taken


def _configuration_of(resource: s3.CfnBucket | None) -> dict[str, Any]:
    """The notification configuration in a bucket's resource."""
    found = properties_of(resource).get("notificationConfiguration") if resource is not None else None
    return found if isinstance(found, dict) else {}


def _filter_of(ends: Mapping[str, str]) -> KeyPattern:
    return KeyPattern(**{name.lower(): value for name, value in ends.items()})


def _readable(arn: Any) -> str:
    """An ARN, or the logical ID of a resource of the app."""
    match arn:
        case {"Fn::GetAtt": [name, *_]} | {"Ref": name}:
            return str(name)
    return arn if isinstance(arn, str) else json.dumps(arn)
