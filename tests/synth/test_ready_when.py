"""The tag before the start: events, permissions, and what synthesis refuses."""

from typing import Any

import pytest
from aws_cdk import Duration
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_s3_notifications as notifications
from aws_cdk import aws_sns as sns
from aws_cdk import aws_stepfunctions as sfn

from cdk_intake_ledger import Delivery, IntakePipeline, Processor, ReadyTag, RetryOptions, Tag
from tests.synth.build import Json, new_stack, only, processor, refused, statements, template_of, variables

CLEAN = ReadyTag("scan", ["clean"], refuse=["infected"])
PUT = "s3:ObjectTagging:Put"


def events_of(template: Json) -> list[str]:
    """The events of the bucket that reach a queue."""
    entries = only(template, "AWS::S3::Bucket")["NotificationConfiguration"]["QueueConfigurations"]
    return [one["Event"] for one in entries]


def test_the_events_of_tags_reach_the_queue_of_a_pipeline_that_waits_for_one() -> None:
    for ready_when in (CLEAN, None):
        stack = new_stack()
        IntakePipeline(stack, "Orders", processor=processor(), ready_when=ready_when)
        template = template_of(stack)
        assert events_of(template).count(PUT) == (ready_when is not None)
        actions = [one["Action"] for one in statements(template) if "Tagging" in str(one["Action"])]
        assert actions == (["s3:GetObjectVersionTagging"] if ready_when else [])
        for path in ("OrdersConsumer", "OrdersAudit"):
            known = variables(template, path).get("INTAKE_READY_WHEN")
            assert known == ('["scan", ["clean"], ["infected"]]' if ready_when else None)


def test_event_bridge_sends_them_too() -> None:
    stack = new_stack()
    IntakePipeline(stack, "Orders", processor=processor(), delivery=Delivery.EVENTBRIDGE, ready_when=CLEAN)
    rule = only(template_of(stack), "AWS::Events::Rule", "OrdersDelivery")
    assert rule["EventPattern"]["detail-type"] == [
        "Object Created", "Object Deleted", "Object Restore Completed", "Object Tags Added",
    ]  # fmt: skip


def test_cdks_notifications_send_them_too() -> None:
    stack = new_stack()
    bucket = s3.Bucket.from_bucket_name(stack, "Theirs", "theirs")
    IntakePipeline(stack, "Orders", processor=processor(), bucket=bucket, ready_when=CLEAN)
    configuration = only(template_of(stack), "Custom::S3BucketNotifications")["NotificationConfiguration"]
    assert [PUT] in [one["Events"] for one in configuration["QueueConfigurations"]]


@pytest.mark.parametrize("event", [PUT, "s3:ObjectTagging:*"])
def test_another_destination_of_the_same_event_is_refused(event: str) -> None:
    """S3 would refuse the configuration. A pipeline that waits for no tag has no such event."""
    stack = new_stack()
    bucket = s3.Bucket(stack, "Ours", versioned=True)
    resource = bucket.node.default_child
    assert isinstance(resource, s3.CfnBucket)
    topic = s3.CfnBucket.TopicConfigurationProperty(event=event, topic="arn:aws:sns:eu-central-1:1:t")
    resource.notification_configuration = s3.CfnBucket.NotificationConfigurationProperty(topic_configurations=[topic])
    with refused("notifications-overlap", event):
        IntakePipeline(stack, "Orders", processor=processor(), bucket=bucket, ready_when=CLEAN)
    IntakePipeline(stack, "Others", processor=processor(), bucket=bucket)


def test_a_later_destination_of_the_same_event_is_refused() -> None:
    stack = new_stack()
    bucket = s3.Bucket(stack, "Ours", versioned=True)
    bucket.add_event_notification(s3.EventType.OBJECT_TAGGING, notifications.SnsDestination(sns.Topic(stack, "T")))
    IntakePipeline(stack, "Orders", processor=processor(), bucket=bucket, ready_when=CLEAN)
    with refused("notifications-overlap", "s3:ObjectTagging:"):
        template_of(stack)


@pytest.mark.parametrize(
    ("options", "rule", "text"),
    [
        ({"ready_when": ReadyTag("aws:x", ["y"])}, "ready-when-tag", "AWS keeps the prefix"),
        ({"ready_when": ReadyTag("x", [])}, "ready-when-tag", "no value with which"),
        ({"ready_when": ReadyTag("x", ["y"], refuse=["y"])}, "ready-when-tag", "'y' is a value that lets"),
        ({"ready_when": CLEAN, "after_commit": Tag("scan", "done")}, "ready-when-after-commit", "the tag scan"),
        (
            {"ready_when": CLEAN, "retry": RetryOptions(max_wait=Duration.minutes(9))},
            "ready-when-max-wait",
            "Use at least 10 minutes",
        ),
    ],
)
def test_what_could_not_be_waited_for_is_refused(options: dict[str, Any], rule: str, text: str) -> None:
    with refused(rule, text):
        IntakePipeline(new_stack(), "Orders", processor=processor(), **options)


def test_a_bucket_of_the_app_without_versions_is_refused() -> None:
    stack = new_stack()
    with refused("ready-when-needs-versions", "keeps no versions"):
        IntakePipeline(stack, "Orders", processor=processor(), bucket=s3.Bucket(stack, "Theirs"), ready_when=CLEAN)


def test_executions_are_refused() -> None:
    stack = new_stack()
    machine = sfn.StateMachine(
        stack,
        "Machine",
        definition_body=sfn.DefinitionBody.from_chainable(sfn.Pass(stack, "Pass")),
        timeout=Duration.hours(1),
    )
    elsewhere = Processor.from_state_machine(machine, timeout=Duration.hours(1), longest_task=Duration.minutes(10))
    with refused("ready-when-executions", "Let the first step of the execution wait"):
        IntakePipeline(stack, "Orders", processor=elsewhere, ready_when=CLEAN)


def test_another_function_may_be_the_processor() -> None:
    stack = new_stack()
    function = lambda_.Function(
        stack,
        "Theirs",
        runtime=lambda_.Runtime.NODEJS_22_X,
        handler="index.handler",
        code=lambda_.Code.from_inline("exports.handler = async () => ({})"),
    )
    IntakePipeline(stack, "Orders", processor=Processor.from_function(function), ready_when=CLEAN)
    assert PUT in events_of(template_of(stack))
