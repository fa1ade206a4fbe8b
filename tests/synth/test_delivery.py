"""The `delivery` option."""

import json
from typing import Any

import pytest
from aws_cdk import Duration, Environment, Stack
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_s3_notifications as notifications
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sqs as sqs

from cdk_intake_ledger import Delivery, IntakePipeline, IntakeQueue, ReadyTag, Tag
from tests.synth.build import (
    Json,
    actions,
    new_app,
    new_stack,
    only,
    processor,
    refused,
    resources,
    statements,
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
    looks = {action for statement in statements(template, "OrdersAudit") for action in actions(statement)}
    assert {"events:DescribeRule", "events:ListTargetsByRule", "sns:ListSubscriptionsByTopic"} <= looks
    unknown = ("bucket-versioning-unknown", "bucket-lifecycle-unknown", "existing-delivery-unknown")
    assert warnings(stack) == [text for rule in unknown for text in warned(stack, rule)]
    assert len(warnings(stack)) == len(unknown)


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


def of_other_account(delivery: Delivery) -> tuple[Stack, str, list[Json]]:
    """A pipeline on an imported bucket of another account: its stack, the warning, and the statements in it."""
    stack = new_stack(env=Environment(account="111122223333", region="eu-central-1"))
    theirs = s3.Bucket.from_bucket_attributes(stack, "Theirs", bucket_name="theirs", account="444455556666")
    filters = [s3.NotificationKeyFilter(prefix="in/")]
    queue = imported_queue(stack) if delivery is Delivery.EXISTING else None
    # All options that need actions on objects.
    tags: dict[str, Any] = {"ready_when": ReadyTag("scan", ["clean"]), "after_commit": Tag("intake", "done")}
    more = {"delivery": delivery, "filters": filters, "queue": queue} | tags
    IntakePipeline(stack, "Orders", processor=processor(), bucket=theirs, **more)
    (text,) = warned(stack, "bucket-of-other-account")
    return stack, text, json.loads(text[text.index(": [") + 2 : text.rindex("]", 0, text.rindex("[intake-ledger")) + 1])


@pytest.mark.failure_mode("F208")
@pytest.mark.parametrize("delivery", list(Delivery))
def test_a_bucket_of_another_account_is_told_what_its_policy_needs(delivery: Delivery) -> None:
    """S3 asks both accounts. The warning has each action on the bucket that the pipeline's roles have."""
    stack, text, told = of_other_account(delivery)
    assert "is in account 444455556666, and the pipeline is in account 111122223333" in text
    assert {one["Principal"]["AWS"] for one in told} == {"arn:aws:iam::111122223333:root"}
    template = template_of(stack)
    used: dict[str, set[str]] = {}
    for statement in [one for role in ("Consumer", "Audit") for one in statements(template, f"Orders{role}")]:
        for resource in statement["Resource"] if isinstance(statement["Resource"], list) else [statement["Resource"]]:
            where = json.dumps(resource).rpartition(":s3:::")[2]
            if ":s3:::" in json.dumps(resource):
                used.setdefault("objects" if "/" in where else "bucket", set()).update(actions(statement))
    by_place = {"objects" if "/" in one["Resource"] else "bucket": one for one in told}
    notified = {"s3:PutBucketNotification"} if delivery is Delivery.S3 else set[str]()
    assert set(by_place["bucket"]["Action"]) == used["bucket"] | notified
    assert set(by_place["objects"]["Action"]) == used["objects"]
    assert by_place["objects"]["Resource"] == "arn:aws:s3:::theirs/in/*"


@pytest.mark.failure_mode("F208")
def test_events_of_another_account_need_a_rule_there() -> None:
    """S3 sends events to the event bus of the bucket's account only."""
    stack, _, _ = of_other_account(Delivery.EVENTBRIDGE)
    (text,) = warned(stack, "events-of-other-account")
    assert "S3 sends them to the event bus of account 444455556666 only" in text
    assert '"name": ["theirs"]' in text
    for part in ('"events:PutEvents"', "arn:aws:iam::444455556666:root", "event-bus/default"):
        assert part in text
    stack, _, _ = of_other_account(Delivery.S3)
    assert warned(stack, "events-of-other-account") == []


def test_a_bucket_of_an_unknown_account_gets_no_warning() -> None:
    """Without an environment, CDK does not know whether the accounts differ."""
    stack = new_stack()
    theirs = s3.Bucket.from_bucket_attributes(stack, "Theirs", bucket_name="theirs", account="444455556666")
    IntakePipeline(stack, "Orders", processor=processor(), bucket=theirs)
    assert warned(stack, "bucket-of-other-account") == []
