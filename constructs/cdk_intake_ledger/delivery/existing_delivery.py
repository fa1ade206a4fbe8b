"""Finds what sends the changes of a bucket to a queue with `Delivery.EXISTING`, among the resources of the app."""

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from aws_cdk import CfnElement, CfnOutput, CfnResource, Resource, Stack
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sqs as sqs
from constructs import Construct, IConstruct

from cdk_intake_ledger.checks.final_template import FinalTemplates
from cdk_intake_ledger.checks.registry import Problem
from cdk_intake_ledger.checks.reporting import warn
from cdk_intake_ledger.checks.rules.bucket_rules import (
    EXISTING_DELIVERY_PARTLY,
    EXISTING_DELIVERY_SENDS_NOTHING,
    EXISTING_DELIVERY_UNKNOWN,
    EXISTING_DELIVERY_WITHOUT_REMOVALS,
)
from cdk_intake_ledger.delivery.bucket_notifications import (
    cdk_configuration,
    cdk_notifications,
    readable,
    resource_notifications,
)
from cdk_intake_ledger.delivery.pipeline_resources import PipelineResources
from cdk_intake_ledger.resources.cloudformation import properties_of
from intake_ledger.delivery_check import sent_events

_SILENT = ("AWS::CloudWatch::", "AWS::Lambda::EventSourceMapping", "AWS::S3::Bucket", "Custom::S3BucketNotifications")
"""Types of resources that name a queue and send nothing. The notifications of the bucket are read by themselves."""


@dataclass
class _Senders:
    """Senders of the bucket's changes to the queue."""

    notifications: list[sent_events.Notification] = field(default_factory=list)
    rules: list[frozenset[str]] = field(default_factory=list)
    """The detail types of each rule of EventBridge for S3's events."""
    may_others: bool = False
    """True if a resource of the app may send, such as a function that may use the queue."""


def existing_delivery_problems(
    scope: Construct, resources: PipelineResources, events: Collection[str], templates: FinalTemplates
) -> Iterator[Problem]:
    """Check at synthesis that the app sends the bucket's changes to the queue. Warn where it cannot be known.

    Args:
        scope: the pipeline, which gets the warnings.
        resources: those of the pipeline.
        events: those that the pipeline needs, by S3's names.
        templates: of the app.

    """
    bucket, resource, queue = resources.bucket, resources.bucket_resource, resources.queue.queue
    names: dict[str, object] = {"bucket": bucket.node.path, "queue": queue.node.path}
    imported = resource is None or not Resource.is_owned_resource(queue)
    senders = _Senders(may_others=True) if imported else _senders(scope, bucket, resource, queue, templates)
    types = frozenset[str]()
    if senders.rules and _has_event_bridge(bucket, resource):
        types = types.union(*senders.rules)
    for keys in resources.filters:
        lacking = sent_events.lacking_events(keys.encoded(), senders.notifications, types, events=events)
        values = names | {"filter": keys}
        if senders.may_others and (lacking.whole or lacking.part):
            warn(scope, EXISTING_DELIVERY_UNKNOWN, **values)
        elif sent_events.CREATED in lacking.whole:
            why = f"{names['bucket']} does not send its events to EventBridge, and " if senders.rules else ""
            yield EXISTING_DELIVERY_SENDS_NOTHING.problem(why=why, **values)
        elif resources.deletes and {sent_events.REMOVED, sent_events.EXPIRED} <= {*lacking.whole}:
            yield EXISTING_DELIVERY_WITHOUT_REMOVALS.problem(**values)
        elif lacking.whole or lacking.part:
            gets = [
                *([f"no event {', '.join(lacking.whole)}"] if lacking.whole else ()),
                *([f"{', '.join(lacking.part)} for a part"] if lacking.part else ()),
            ]
            warn(scope, EXISTING_DELIVERY_PARTLY, gets=" and ".join(gets), **values)


def _senders(
    scope: Construct,
    bucket: s3.IBucket,
    resource: s3.CfnBucket | None,
    queue: sqs.IQueue,
    templates: FinalTemplates,
) -> _Senders:
    """Read the resources of the app that name the queue."""
    given = [*resource_notifications(resource), *cdk_notifications(bucket)]
    targets = {readable(Stack.of(bucket).resolve(queue.queue_arn))}
    senders, services = _Senders(), set[str]()
    policies = list[Mapping[str, Any]]()
    for kind, element, content in _naming(scope, queue, templates):
        match kind:
            case "AWS::SQS::QueuePolicy" | "AWS::IAM::Policy" | "AWS::IAM::ManagedPolicy":
                policies += content.get("policyDocument", {}).get("Statement", ())
            case "AWS::SNS::Subscription" if (topic := _topic(content, element, bucket)) in {
                one.destination for one in given
            }:
                targets.add(topic)
                services.add("sns.amazonaws.com")
            case "AWS::Events::Rule":
                services.add("events.amazonaws.com")
                if content.get("state") != "DISABLED":
                    types = _detail_types(content.get("eventPattern"))
                    senders.rules += [] if types is None else [types]
                    senders.may_others |= types is None
            case _:
                senders.may_others = True
    senders.notifications = [
        sent_events.Notification(one.event, one.keys) for one in given if one.destination in targets
    ]
    if senders.notifications:
        services.add("s3.amazonaws.com")
    senders.may_others |= any(_lets_others_send(statement, services) for statement in policies)
    return senders


def _naming(
    scope: Construct, queue: sqs.IQueue, templates: FinalTemplates
) -> Iterator[tuple[str, IConstruct, Mapping[str, Any]]]:
    """The resources and outputs outside of the pipeline that name the queue: type, construct and properties."""
    spellings: dict[str, list[str]] = {}
    for element in templates.constructs(CfnElement):
        path = element.node.path
        if not isinstance(element, CfnResource | CfnOutput) or path.startswith(f"{scope.node.path}/"):
            continue
        stack = Stack.of(element)
        if isinstance(element, CfnOutput):
            kind, content = "", {"value": stack.resolve(element.value)}
        else:
            kind = element.cfn_resource_type
            if kind.startswith(_SILENT) or path == f"{queue.node.path}/Resource":
                continue
            content = properties_of(element)
        if kind == "AWS::SQS::Queue":  # A dead-letter queue names the queues that may use it.
            content = {"redrivePolicy": content.get("redrivePolicy")}
        if stack.node.path not in spellings:
            names = stack.resolve([queue.queue_arn, queue.queue_url, queue.queue_name])
            spellings[stack.node.path] = [json.dumps(name, sort_keys=True) for name in names]
        text = json.dumps(content, sort_keys=True)
        if any(spelling in text for spelling in spellings[stack.node.path]):
            yield kind, element, content


def _topic(subscription: Mapping[str, Any], element: IConstruct, bucket: s3.IBucket) -> str:
    """The topic as the bucket's notifications name it. A topic of another stack has another name there."""
    same = Stack.of(element).node.path == Stack.of(bucket).node.path
    return readable(subscription.get("topicArn")) if same else ""


def _detail_types(pattern: Any) -> frozenset[str] | None:
    """The events of S3 that a pattern takes. None if it is for other events, or matches their type in another way."""
    if not isinstance(pattern, Mapping) or pattern.get("source") not in (None, ["aws.s3"]):
        return None
    types = pattern.get("detail-type")
    if types is None:
        return frozenset(sent_events.DETAIL_TYPES.values())
    return frozenset(types) if all(isinstance(one, str) for one in types) else None


def _lets_others_send(statement: Mapping[str, Any], services: set[str]) -> bool:
    """True if a statement lets a principal send that the app's notifications, topics and rules do not explain."""
    actions = statement.get("Action", ())
    sends = any(
        str(action).lower() in ("*", "sqs:*", "sqs:send*", "sqs:sendmessage")
        for action in (actions if isinstance(actions, list) else [actions])
    )
    principal = statement.get("Principal")
    service = principal.get("Service") if isinstance(principal, Mapping) else None
    return statement.get("Effect") == "Allow" and sends and service not in services


def _has_event_bridge(bucket: s3.IBucket, resource: s3.CfnBucket | None) -> bool:
    """True if the bucket sends its events to EventBridge."""
    if "EventBridgeConfiguration" in cdk_configuration(bucket):
        return True
    configuration = properties_of(resource).get("notificationConfiguration", {}) if resource is not None else {}
    return "eventBridgeConfiguration" in configuration or "EventBridgeConfiguration" in configuration
