"""The `delivery` option."""

import pytest
from aws_cdk import Duration, Stack
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_s3_notifications as notifications
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sqs as sqs

from cdk_intake_ledger import Delivery, IntakePipeline, IntakeQueue
from tests.synth.build import (
    Json,
    new_app,
    new_stack,
    only,
    processor,
    refused,
    resources,
    template_of,
    variables,
    warned,
    warnings,
)

ARN = "arn:aws:sqs:eu-central-1:111122223333:{}"


def imported_queue(stack: Stack) -> IntakeQueue:
    return IntakeQueue(
        stack,
        "Queue",
        queue=sqs.Queue.from_queue_arn(stack, "Messages", ARN.format("messages")),
        dead_letter_queue=sqs.Queue.from_queue_arn(stack, "DeadLetters", ARN.format("dead-letters")),
        visibility_timeout=Duration.minutes(20),
        retention=Duration.days(4),
        dead_letter_retention=Duration.days(14),
    )


def imported_bucket(stack: Stack) -> s3.IBucket:
    return s3.Bucket.from_bucket_name(stack, "In", "terraforms-inbox")


def audited_way(template: Json) -> str:
    return str(variables(template, "OrdersAudit")["INTAKE_DELIVERY_MODE"])


def test_what_exists_is_left_alone() -> None:
    """The pipeline adds no notification, rule, policy or function of CDK, so Terraform can manage them."""
    stack = new_stack()
    IntakePipeline(
        stack,
        "Orders",
        processor=processor(),
        bucket=imported_bucket(stack),
        queue=imported_queue(stack),
        delivery=Delivery.EXISTING,
    )
    template = template_of(stack)
    for type_ in ("AWS::Events::Rule", "Custom::S3BucketNotifications", "AWS::SQS::QueuePolicy", "AWS::SQS::Queue"):
        assert not resources(template, type_)
    assert len(resources(template, "AWS::Lambda::Function")) == 2
    assert audited_way(template) == "EXISTING"
    # The delivery adds no warning, versioning adds one.
    assert warnings(stack) == warned(stack, "bucket-versioning-unknown") != []


@pytest.mark.parametrize("brought", ["bucket", "queue", None])
def test_nothing_exists_without_bucket_and_queue(brought: str | None) -> None:
    """A new queue would receive no events."""
    stack = new_stack()
    options = {"bucket": imported_bucket, "queue": imported_queue}
    given = {brought: options[brought](stack)} if brought else {}
    with refused("existing-delivery-needs-both", "delivery is EXISTING without an existing bucket"):
        IntakePipeline(stack, "Orders", processor=processor(), delivery=Delivery.EXISTING, **given)  # type: ignore[arg-type]


def test_an_imported_bucket_by_event_bridge() -> None:
    """The pipeline adds a rule, and does not change the notifications of the bucket."""
    stack = new_stack()
    IntakePipeline(stack, "Orders", processor=processor(), bucket=imported_bucket(stack), delivery=Delivery.EVENTBRIDGE)
    template = template_of(stack)
    assert only(template, "AWS::Events::Rule")["EventPattern"]["detail"] == {"bucket": {"name": ["terraforms-inbox"]}}
    assert not resources(template, "Custom::S3BucketNotifications")
    assert audited_way(template) == "EVENTBRIDGE"
    assert warned(stack, "event-bridge-unknown")


@pytest.mark.parametrize("made_here", [True, False])
def test_a_bucket_of_the_same_stack_by_event_bridge(made_here: bool) -> None:
    """The bucket sends events to EventBridge and keeps its other notifications."""
    stack = new_stack()
    bucket = None if made_here else s3.Bucket(stack, "Mine", versioned=True)
    IntakePipeline(stack, "Orders", processor=processor(), bucket=bucket, delivery=Delivery.EVENTBRIDGE)
    template = template_of(stack)
    (properties,) = (one["Properties"] for one in resources(template, "AWS::S3::Bucket").values())
    assert properties["NotificationConfiguration"] == {"EventBridgeConfiguration": {"EventBridgeEnabled": True}}
    assert only(template, "AWS::Events::Rule")["Targets"]


def test_s3_cannot_notify_across_stacks() -> None:
    """CDK would report the cycle only at the end of the synthesis."""
    app = new_app()
    bucket = s3.Bucket(new_stack("Other", app), "Bucket", versioned=True)
    with refused("s3-delivery-in-same-stack", "two stacks depend on each other. Omit delivery"):
        IntakePipeline(new_stack("Stack", app), "Orders", processor=processor(), bucket=bucket, delivery=Delivery.S3)


def test_a_later_notification_switches_event_bridge_off() -> None:
    """The bucket validation knows the delivery mode."""
    stack = new_stack()
    bucket = s3.Bucket(stack, "Mine", versioned=True)
    IntakePipeline(stack, "Orders", processor=processor(), bucket=bucket, delivery=Delivery.EVENTBRIDGE)
    bucket.add_event_notification(s3.EventType.OBJECT_CREATED, notifications.SnsDestination(sns.Topic(stack, "Topic")))
    with refused("event-bridge-switched-off", "switch EventBridge off again"):
        template_of(stack)
