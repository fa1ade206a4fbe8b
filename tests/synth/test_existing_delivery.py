"""`Delivery.EXISTING`: does anything in the app send the changes of the bucket to the queue?"""

from collections.abc import Callable
from typing import Any

import pytest
from aws_cdk import CfnOutput, CfnParameter, Duration, Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_s3_notifications as notifications
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from aws_cdk import aws_sqs as sqs

from cdk_intake_ledger import Delivery, IntakePipeline, IntakeQueue
from tests.synth.build import new_stack, processor, refused, template_of, warned

CREATED, REMOVED = s3.EventType.OBJECT_CREATED, s3.EventType.OBJECT_REMOVED
EXPIRED, RESTORED = s3.EventType.LIFECYCLE_EXPIRATION, s3.EventType.OBJECT_RESTORE_COMPLETED
ALL = (CREATED, REMOVED, EXPIRED, RESTORED)
KINDS = ["Object Created", "Object Deleted", "Object Restore Completed"]
NOTHING, NO_REMOVALS = "existing-delivery-sends-nothing", "existing-delivery-without-removals"
PARTLY, UNKNOWN = "existing-delivery-partly", "existing-delivery-unknown"
ARN = "arn:aws:sqs:eu-central-1:111122223333:{}"


class Owned:
    """A bucket, a queue and a dead-letter queue of the app. The pipeline comes last."""

    def __init__(self, **options: Any) -> None:
        self.stack = stack = new_stack()
        self.bucket = s3.Bucket(stack, "Drops", versioned=True, **options)
        self.dead = sqs.Queue(stack, "Dead", retention_period=Duration.days(14))
        self.queue = sqs.Queue(
            stack,
            "Waiting",
            visibility_timeout=Duration.minutes(31),
            enforce_ssl=True,
            dead_letter_queue=sqs.DeadLetterQueue(queue=self.dead, max_receive_count=1_000),
        )

    def notify(self, *kinds: s3.EventType, **keys: str) -> None:
        filters = [s3.NotificationKeyFilter(**keys)] if keys else []
        for kind in kinds:
            self.bucket.add_event_notification(kind, notifications.SqsDestination(self.queue), *filters)

    def rule(self, **pattern: Any) -> None:
        events.Rule(
            self.stack,
            "Rule",
            event_pattern=events.EventPattern(**pattern),
            targets=[targets.SqsQueue(self.queue)],
        )

    def pipeline(self, prefix: str = "", **options: Any) -> Stack:
        stack = self.stack
        IntakePipeline(
            stack,
            "Drop",
            processor=processor(),
            bucket=self.bucket,
            delivery=Delivery.EXISTING,
            queue=IntakeQueue(stack, "DropQueue", queue=self.queue, dead_letter_queue=self.dead),
            filters=[s3.NotificationKeyFilter(prefix=prefix)] if prefix else None,
            **options,
        )
        template_of(stack)
        return stack


@pytest.mark.failure_mode("F310")
def test_an_app_in_which_nothing_sends_is_refused() -> None:
    """An alarm of the queue, a policy that only denies, and a redrive policy send nothing."""
    owned = Owned()
    metric = owned.queue.metric_approximate_number_of_messages_visible()
    cloudwatch.Alarm(owned.stack, "Alarm", metric=metric, threshold=1, evaluation_periods=1)
    owned.bucket.add_event_notification(CREATED, notifications.SnsDestination(sns.Topic(owned.stack, "Others")))
    with refused(NOTHING, "nothing in the app sends the changes of every key of Stack/Drops to Stack/Waiting"):
        owned.pipeline()


@pytest.mark.failure_mode("F310")
def test_notifications_of_other_keys_send_nothing() -> None:
    owned = Owned()
    owned.notify(*ALL, prefix="in/")
    with refused(NOTHING, "the changes of prefix 'out/'"):
        owned.pipeline("out/")


@pytest.mark.failure_mode("F310")
def test_a_rule_sends_nothing_while_the_bucket_has_no_event_bridge() -> None:
    owned = Owned()
    owned.rule(source=["aws.s3"], detail_type=KINDS)
    with refused(NOTHING, "Stack/Drops does not send its events to EventBridge"):
        owned.pipeline()


@pytest.mark.failure_mode("F310")
@pytest.mark.parametrize("way", ["notification", "rule", "topic"])
def test_created_events_alone_are_refused_with_deletes(way: str) -> None:
    """Without `deletes` they are a warning: the ledger needs removals to know that a state is over."""
    for deletes in (True, False):
        owned = Owned(event_bridge_enabled=way == "rule")
        if way == "notification":
            owned.notify(CREATED, RESTORED)
        elif way == "rule":
            owned.rule(source=["aws.s3"], detail_type=["Object Created", "Object Restore Completed"])
        else:
            topic = sns.Topic(owned.stack, "Topic")
            topic.add_subscription(subscriptions.SqsSubscription(owned.queue))
            for kind in (CREATED, RESTORED):
                owned.bucket.add_event_notification(kind, notifications.SnsDestination(topic))
        if deletes:
            with refused(NO_REMOVALS, "s3:ObjectRemoved"):
                owned.pipeline(deletes=True)
        else:
            [text] = warned(owned.pipeline(), PARTLY)
            assert "gets no event s3:ObjectRemoved:*, s3:LifecycleExpiration:* of every key" in text


def two_prefixes(owned: Owned) -> None:
    for prefix in ("in/", "out/"):
        owned.notify(*ALL, prefix=prefix)


def token_prefix(owned: Owned) -> None:
    owned.notify(*ALL, prefix=CfnParameter(owned.stack, "Prefix").value_as_string)


RIGHT: dict[str, Callable[[Owned], None]] = {
    "all events": lambda owned: owned.notify(*ALL),
    "all events of a broader prefix": lambda owned: owned.notify(*ALL, prefix="i"),
    "two filters": two_prefixes,
    "each kind of its own": lambda owned: owned.notify(
        *(s3.EventType.OBJECT_CREATED_PUT, s3.EventType.OBJECT_CREATED_POST, s3.EventType.OBJECT_CREATED_COPY),
        *(s3.EventType.OBJECT_CREATED_COMPLETE_MULTIPART_UPLOAD, s3.EventType.OBJECT_REMOVED_DELETE),
        *(s3.EventType.OBJECT_REMOVED_DELETE_MARKER_CREATED, EXPIRED, RESTORED),
    ),
    "a prefix of the deployment": token_prefix,
}


@pytest.mark.parametrize("name", RIGHT)
def test_what_sends_all_events_of_the_keys_is_right(name: str) -> None:
    owned = Owned()
    RIGHT[name](owned)
    stack = owned.pipeline("in/", deletes=True)
    assert [rule for rule in (PARTLY, UNKNOWN) if warned(stack, rule)] == []


@pytest.mark.parametrize("pattern", [{"source": ["aws.s3"]}, {"source": ["aws.s3"], "detail_type": KINDS}])
def test_a_rule_for_all_events_is_right(pattern: dict[str, Any]) -> None:
    owned = Owned(event_bridge_enabled=True)
    owned.rule(**pattern)
    stack = owned.pipeline("in/", deletes=True)
    assert [rule for rule in (PARTLY, UNKNOWN) if warned(stack, rule)] == []


def test_a_notification_of_fewer_keys_is_warned_about() -> None:
    owned = Owned()
    owned.notify(*ALL, prefix="in/a/")
    [text] = warned(owned.pipeline("in/", deletes=True), PARTLY)
    assert "s3:ObjectRestore:Completed for a part of prefix 'in/'" in text


def may_send(owned: Owned) -> dict[str, Callable[[], object]]:
    stack, queue = owned.stack, owned.queue
    return {
        "a role": lambda: queue.grant_send_messages(iam.Role(stack, "R", assumed_by=iam.AccountRootPrincipal())),
        "another account": lambda: queue.grant_send_messages(iam.AccountPrincipal("444455556666")),
        "an output": lambda: CfnOutput(stack, "Url", value=queue.queue_url),
        "a topic of others": lambda: sns.Topic.from_topic_arn(
            stack, "T", ARN.format("t").replace("sqs", "sns")
        ).add_subscription(subscriptions.SqsSubscription(queue)),
        "a rule of other events": lambda: owned.rule(source=["shop"]),
    }


@pytest.mark.failure_mode("F310")
@pytest.mark.parametrize("name", sorted(may_send(Owned())))
def test_what_may_send_is_a_warning(name: str) -> None:
    """A function or another account may forward the events. Synthesis cannot see it."""
    owned = Owned()
    may_send(owned)[name]()
    [text] = warned(owned.pipeline("in/", deletes=True), UNKNOWN)
    assert "what sends the changes of prefix 'in/' of Stack/Drops to Stack/Waiting cannot be seen at synthesis" in text


@pytest.mark.failure_mode("F310")
@pytest.mark.parametrize("imported", ["bucket", "queue"])
def test_an_imported_bucket_or_queue_is_a_warning(imported: str) -> None:
    owned = Owned()
    if imported == "bucket":
        owned.bucket = s3.Bucket.from_bucket_name(owned.stack, "In", "terraforms-inbox")  # type: ignore[assignment]
    else:
        owned.queue = sqs.Queue.from_queue_arn(owned.stack, "Q", ARN.format("q"))  # type: ignore[assignment]
    assert len(warned(owned.pipeline(), UNKNOWN)) == 1


def test_a_notification_that_is_added_after_the_pipeline_counts() -> None:
    """The check runs at synthesis."""
    owned = Owned()
    IntakePipeline(
        owned.stack,
        "Drop",
        processor=processor(),
        bucket=owned.bucket,
        delivery=Delivery.EXISTING,
        queue=IntakeQueue(owned.stack, "DropQueue", queue=owned.queue, dead_letter_queue=owned.dead),
    )
    owned.notify(*ALL)
    template_of(owned.stack)
    assert not warned(owned.stack, PARTLY)
