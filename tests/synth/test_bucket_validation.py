"""Checks of the whole app at synthesis: changes of the bucket, the role and the queue after the pipeline."""

import re
from datetime import UTC, datetime

import pytest
from aws_cdk import Aws, Duration, Stack
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_s3_notifications as notifications
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sqs as sqs

from cdk_intake_ledger import Delivery, FileSets, IntakePipeline, IntakeQueue, Ordering, SetForm
from tests.synth.build import (
    new_app,
    new_stack,
    processor,
    refused,
    resources,
    rules_in,
    template_of,
    warned,
    warnings,
)


def tagged(stack: Stack, bucket: s3.IBucket) -> None:
    topic = sns.Topic(stack, "Topic")
    bucket.add_event_notification(s3.EventType.OBJECT_TAGGING_PUT, notifications.SnsDestination(topic))


def test_a_later_notification_would_replace_the_pipelines() -> None:
    """CDK's handler replaces the whole configuration. The queue would receive no events, without an error."""
    stack = new_stack()
    pipeline = IntakePipeline(stack, "Orders", processor=processor())
    tagged(stack, pipeline.bucket)
    with refused(
        "notifications-replaced", "replace the bucket's whole configuration, including the pipeline's notifications"
    ):
        template_of(stack)


def test_an_earlier_notification_is_no_problem() -> None:
    """The pipeline then uses CDK's notifications too."""
    stack = new_stack()
    bucket = s3.Bucket(stack, "Ours", versioned=True)
    tagged(stack, bucket)
    IntakePipeline(stack, "Orders", processor=processor(), bucket=bucket)
    assert template_of(stack)


def test_a_later_notification_on_a_sibling_bucket_would_switch_event_bridge_off() -> None:
    """The same in the stack of the bucket. A call that turns EventBridge on fixes it."""
    for mended in (False, True):
        app = new_app()
        theirs, ours = new_stack("Theirs", app), new_stack("Ours", app)
        bucket = s3.Bucket(theirs, "Bucket", versioned=True)
        IntakePipeline(ours, "Orders", processor=processor(), bucket=bucket)
        tagged(theirs, bucket)
        if mended:
            bucket.enable_event_bridge_notification()
            assert template_of(ours)
        else:
            with refused("event-bridge-switched-off", "switch EventBridge off again"):
                template_of(ours)


@pytest.mark.parametrize(("days", "early"), [(17, True), (18, False)])
def test_a_bucket_that_forgets_versions_before_their_messages_is_refused(days: int, early: bool) -> None:
    """A message can wait for 4 days and then for 14 days. The bucket must keep its version for that time."""
    stack = new_stack()
    rule = s3.LifecycleRule(noncurrent_version_expiration=Duration.days(days))
    bucket = s3.Bucket(stack, "Ours", versioned=True, lifecycle_rules=[rule])
    IntakePipeline(stack, "Orders", processor=processor(), bucket=bucket)
    if early:
        with refused("versions-expire-early", r"removes overwritten versions after 17 days: .* for 18 days"):
            template_of(stack)
    else:
        assert template_of(stack)


@pytest.mark.parametrize(("prefix", "early"), [("in", True), ("in/new/", True), ("out/", False)])
def test_a_rule_for_other_keys_may_forget_versions(prefix: str, early: bool) -> None:
    """The rule's prefix decides whether it applies to objects that the pipeline processes."""
    stack = new_stack()
    rule = s3.LifecycleRule(noncurrent_version_expiration=Duration.days(1), prefix=prefix)
    bucket = s3.Bucket(stack, "Ours", versioned=True, lifecycle_rules=[rule])
    filters = [s3.NotificationKeyFilter(prefix="in/")]
    pipeline = IntakePipeline(stack, "Orders", processor=processor(), bucket=bucket, filters=filters)
    assert rules_in(" ".join(pipeline.node.validate())) == (["versions-expire-early"] if early else [])


def bucket_with(stack: Stack, rule: s3.LifecycleRule, *, versioned: bool = True) -> s3.Bucket:
    return s3.Bucket(stack, "Ours", versioned=versioned, lifecycle_rules=[rule])


ARCHIVE = s3.Transition(storage_class=s3.StorageClass.GLACIER, transition_after=Duration.days(1))
DATED = s3.LifecycleRule(expiration_date=datetime(2099, 1, 1, tzinfo=UTC))


@pytest.mark.failure_mode("F242")
@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (s3.LifecycleRule(expiration=Duration.days(17)), "removes objects after 17 days: .* for 18 days"),
        (s3.LifecycleRule(transitions=[ARCHIVE]), "archives objects after 1 day: .* for 18 days"),
        (DATED, "removes objects from a date on, and then each new object at once"),
        (s3.LifecycleRule(expiration=Duration.days(1), prefix="in/old/"), "removes objects after 1 day"),
        (s3.LifecycleRule(expiration=Duration.days(1), object_size_less_than=9), "removes objects after 1 day"),
        (s3.LifecycleRule(expiration=Duration.days(18)), ""),
        (s3.LifecycleRule(expiration=Duration.days(1), prefix="out/"), ""),
        (s3.LifecycleRule(expiration=Duration.days(1), enabled=False), ""),
        (s3.LifecycleRule(expiration=Duration.days(1), tag_filters={"intake-tombstone": "1"}), ""),
    ],
)
@pytest.mark.parametrize("versioned", [True, False])
def test_a_bucket_that_removes_or_archives_objects_before_their_messages_is_refused(
    rule: s3.LifecycleRule, text: str, versioned: bool
) -> None:
    stack = new_stack()
    bucket = bucket_with(stack, rule, versioned=versioned)
    filters = [s3.NotificationKeyFilter(prefix="in/")]
    pipeline = IntakePipeline(stack, "Orders", processor=processor(), bucket=bucket, filters=filters)
    found = " ".join(pipeline.node.validate())
    assert rules_in(found) == (["objects-expire-early"] if text else [])
    assert re.search(text, found)


@pytest.mark.failure_mode("F242")
def test_every_version_may_be_removed_and_not_archived() -> None:
    """A delete marker hides a version that can be read by its ID."""
    for rule, refusals in (
        (s3.LifecycleRule(expiration=Duration.days(1)), []),
        (s3.LifecycleRule(transitions=[ARCHIVE]), ["objects-expire-early"]),
    ):
        stack = new_stack()
        pipeline = IntakePipeline(
            stack, "Orders", processor=processor(), bucket=bucket_with(stack, rule), ordering=Ordering.EVERY_VERSION
        )
        assert rules_in(" ".join(pipeline.node.validate())) == refusals


@pytest.mark.failure_mode("F242")
def test_a_rule_for_tagged_objects_is_pointed_out() -> None:
    """The processor may tag an object when it is processed, and so may its sender before."""
    stack = new_stack()
    bucket = bucket_with(stack, s3.LifecycleRule(expiration=Duration.days(1), tag_filters={"state": "done"}))
    IntakePipeline(stack, "Orders", processor=processor(), bucket=bucket)
    template_of(stack)
    (text,) = warnings(stack)
    assert rules_in(text) == ["objects-may-expire-early"]
    assert "if they have the tag state=done" in text


@pytest.mark.failure_mode("F242")
def test_former_forms_of_cloudformation_are_judged_too() -> None:
    stack = new_stack()
    rule = s3.CfnBucket.RuleProperty(
        status="Enabled",
        transition=s3.CfnBucket.TransitionProperty(storage_class="GLACIER", transition_in_days=1),
        object_size_greater_than=5,
        noncurrent_version_expiration_in_days=1,
    )
    made = s3.CfnBucket(
        stack,
        "Ours",
        versioning_configuration=s3.CfnBucket.VersioningConfigurationProperty(status="Enabled"),
        lifecycle_configuration=s3.CfnBucket.LifecycleConfigurationProperty(rules=[rule]),
    )
    bucket = s3.Bucket.from_cfn_bucket(made)
    pipeline = IntakePipeline(stack, "Orders", processor=processor(), bucket=bucket)
    refusals = rules_in(" ".join(pipeline.node.validate()))
    assert refusals == ["versions-expire-early", "objects-expire-early"]


@pytest.mark.failure_mode("F242")
def test_a_rule_that_is_added_later_is_found_for_the_pipeline_and_its_sets() -> None:
    """The parts of a set must be readable while the message of their set waits."""
    stack = new_stack()
    day = Duration.days(1)
    queue = IntakeQueue(stack, "Short", retention=day, dead_letter_retention=day)
    pipeline = IntakePipeline(stack, "Orders", processor=processor(), queue=queue)
    form = SetForm.manifest("in/*/manifest.json")
    sets = FileSets(stack, "Loads", pipeline=pipeline, form=form, processor=processor())
    bucket = pipeline.bucket
    assert isinstance(bucket, s3.Bucket)
    bucket.add_lifecycle_rule(expiration=Duration.days(3))
    assert rules_in(" ".join(pipeline.node.validate())) == []
    assert rules_in(" ".join(sets.node.validate())) == ["objects-expire-early"]


@pytest.mark.failure_mode("F242")
def test_the_rules_of_an_imported_bucket_are_not_known() -> None:
    stack = new_stack()
    bucket = s3.Bucket.from_bucket_name(stack, "Theirs", "theirs")
    IntakePipeline(stack, "Orders", processor=processor(), bucket=bucket)
    texts = [text for text in warnings(stack) if rules_in(text) == ["bucket-lifecycle-unknown"]]
    assert len(texts) == 1
    assert "sooner than 18 days" in texts[0]


def test_a_bucket_without_versions_is_pointed_out() -> None:
    """It is allowed. The warning can be acknowledged by its ID."""
    stack = new_stack()
    IntakePipeline(stack, "Orders", processor=processor(), bucket=s3.Bucket(stack, "Ours"))
    template_of(stack)
    (text,) = warnings(stack)
    assert rules_in(text) == ["bucket-not-versioned"]
    assert "[ack: cdk-intake-ledger:bucketNotVersioned]" in text


@pytest.mark.failure_mode("F71")
@pytest.mark.parametrize(
    ("prefix", "suffix", "written", "outcome"),
    [
        ("in/", "", "out/*", "fine"),
        ("in/", "", "in/done/*", "refused"),
        ("in/", "", "*", "pointed out"),
        ("", "", "*", "refused"),
        ("in/", ".csv", "in/*", "pointed out"),
        ("in/", ".csv", "in/*.csv", "refused"),
        ("in/", ".csv", "in/*.json", "fine"),
        ("", ".csv", "out/*", "pointed out"),
        ("in/", "", "in/one", "refused"),
    ],
)
def test_a_processor_that_writes_where_it_reads(prefix: str, suffix: str, written: str, outcome: str) -> None:
    """An error if every write would call the processor again, a warning if some writes may."""
    stack = new_stack()
    filters = [s3.NotificationKeyFilter(prefix=prefix or None, suffix=suffix or None)]
    pipeline = IntakePipeline(stack, "Orders", processor=processor(), filters=filters)
    pipeline.bucket.grant_put(pipeline, written)
    if outcome == "refused":
        with refused("processor-calls-itself"):
            template_of(stack)
    else:
        template_of(stack)
        assert bool(warned(stack, "processor-may-call-itself")) is (outcome == "pointed out")


@pytest.mark.failure_mode("F71")
def test_another_bucket_is_no_loop() -> None:
    """A processor may write into other buckets."""
    stack = new_stack()
    pipeline = IntakePipeline(stack, "Orders", processor=processor())
    s3.Bucket(stack, "Results").grant_put(pipeline)
    assert template_of(stack)
    assert not warned(stack, "processor-may-call-itself")


@pytest.mark.failure_mode("F71")
def test_a_bucket_known_by_name() -> None:
    """The ARN of an imported bucket is a text, which can be compared."""
    stack = new_stack()
    bucket = s3.Bucket.from_bucket_name(stack, "Theirs", "partner-inbox")
    pipeline = IntakePipeline(stack, "Orders", processor=processor(), bucket=bucket)
    bucket.grant_put(pipeline)
    with refused("processor-calls-itself"):
        template_of(stack)


def test_a_hand_encoded_filter_is_pointed_out() -> None:
    """It would match no key, because the pipeline encodes it again."""
    stack = new_stack()
    filters = [s3.NotificationKeyFilter(prefix="in%20put/")]
    IntakePipeline(stack, "Orders", processor=processor(), filters=filters)
    template_of(stack)
    assert warned(stack, "key-looks-encoded")


class TestReaders:
    """F128: another function that reads an existing queue of the pipeline."""

    @staticmethod
    def read(stack: Stack, arn: str, *, enabled: bool = True) -> None:
        code = lambda_.Code.from_inline("def handler(event, context): ...")
        other = lambda_.Function(
            stack, "Other", runtime=lambda_.Runtime.PYTHON_3_13, handler="index.handler", code=code
        )
        other.add_event_source_mapping("Reads", event_source_arn=arn, enabled=enabled)

    @staticmethod
    def brought(stack: Stack, arn: str) -> IntakeQueue:
        return IntakeQueue(
            stack,
            "Queue",
            queue=sqs.Queue.from_queue_arn(stack, "Messages", arn),
            dead_letter_queue=sqs.Queue.from_queue_arn(stack, "Dead", f"{arn}-dead"),
        )

    @pytest.mark.failure_mode("F128")
    @pytest.mark.parametrize("first", [True, False])
    def test_a_second_mapping_on_the_queue_is_refused(self, first: bool) -> None:
        """In any stack of the app, before or after the pipeline."""
        app = new_app()
        theirs, ours = new_stack("Theirs", app), new_stack("Ours", app)
        queue = IntakeQueue(theirs, "Queue")
        if first:
            self.read(theirs, queue.queue.queue_arn)
        IntakePipeline(ours, "Orders", processor=processor(), queue=queue)
        if not first:
            self.read(theirs, queue.queue.queue_arn)
        with refused(
            "queue-has-other-consumer", r"Theirs/Other/Reads/Resource also takes messages of Theirs/Queue/Messages"
        ):
            template_of(ours)

    @pytest.mark.failure_mode("F128")
    def test_an_imported_queue_is_known_by_its_arn(self) -> None:
        """Another import of the queue has the same ARN."""
        stack, arn = new_stack(), "arn:aws:sqs:eu-central-1:111122223333:messages"
        IntakePipeline(stack, "Orders", processor=processor(), queue=self.brought(stack, arn))
        self.read(stack, arn)
        with refused("queue-has-other-consumer", r"Other/Reads/Resource also takes messages of Stack/Messages"):
            template_of(stack)

    @pytest.mark.failure_mode("F128")
    @pytest.mark.parametrize(("read", "enabled"), [("others", True), ("messages", False)])
    def test_another_queue_or_a_disabled_mapping_is_no_problem(self, read: str, enabled: bool) -> None:
        """No message is lost."""
        stack, arn = new_stack(), "arn:aws:sqs:eu-central-1:111122223333:{}"
        IntakePipeline(stack, "Orders", processor=processor(), queue=self.brought(stack, arn.format("messages")))
        self.read(stack, arn.format(read), enabled=enabled)
        assert template_of(stack)


class TestOverlaps:
    """F127: the bucket has another notification, and S3 refuses two notifications about the same keys."""

    @staticmethod
    def notify(stack: Stack, bucket: s3.IBucket, event: s3.EventType, **filters: str) -> None:
        """A Lambda function as destination, as in most published examples."""
        code = lambda_.Code.from_inline("def handler(event, context): ...")
        function = lambda_.Function(
            stack, "Theirs", runtime=lambda_.Runtime.PYTHON_3_13, handler="index.handler", code=code
        )
        keys = [s3.NotificationKeyFilter(**filters)] if filters else []
        bucket.add_event_notification(event, notifications.LambdaDestination(function), *keys)

    @staticmethod
    def bucket(stack: Stack, *, imported: bool) -> s3.IBucket:
        if imported:
            return s3.Bucket.from_bucket_name(stack, "Bucket", "inbox")
        return s3.Bucket(stack, "Bucket", versioned=True)

    def notified(self, event: s3.EventType, *, imported: bool, **filters: str) -> Stack:
        """A pipeline of the keys below `in/`, and another notification of its bucket."""
        stack = new_stack()
        bucket = self.bucket(stack, imported=imported)
        self.notify(stack, bucket, event, **filters)
        wanted = [s3.NotificationKeyFilter(prefix="in/")]
        IntakePipeline(stack, "Orders", processor=processor(), bucket=bucket, filters=wanted)
        return stack

    @pytest.mark.failure_mode("F127")
    @pytest.mark.parametrize("imported", [False, True])
    @pytest.mark.parametrize("event", [s3.EventType.OBJECT_CREATED, s3.EventType.OBJECT_CREATED_PUT])
    def test_the_same_keys_are_refused(self, imported: bool, event: s3.EventType) -> None:
        """For one event or for all events, with the fix."""
        stack = self.notified(event, imported=imported, prefix="in/a")
        with refused("notifications-overlap", r"s3:ObjectCreated.* to Theirs\w+: .*Delivery.EVENTBRIDGE"):
            template_of(stack)

    @pytest.mark.failure_mode("F127")
    @pytest.mark.parametrize("imported", [False, True])
    @pytest.mark.parametrize(
        ("event", "filters"),
        [(s3.EventType.OBJECT_CREATED, {"prefix": "out/"}), (s3.EventType.OBJECT_TAGGING_PUT, {})],
    )
    def test_other_keys_or_events_are_no_problem(
        self, imported: bool, event: s3.EventType, filters: dict[str, str]
    ) -> None:
        """S3 accepts both."""
        assert template_of(self.notified(event, imported=imported, **filters))

    @pytest.mark.parametrize("imported", [False, True])
    def test_keys_that_come_with_the_deployment_are_not_compared(self, imported: bool) -> None:
        assert template_of(self.notified(s3.EventType.OBJECT_CREATED, imported=imported, prefix=Aws.ACCOUNT_ID))

    @pytest.mark.failure_mode("F127")
    @pytest.mark.parametrize("later", [False, True])
    @pytest.mark.parametrize("method", ["add_object_created_notification", "add_object_removed_notification"])
    def test_each_method_of_cdk_is_seen(self, method: str, later: bool) -> None:
        """They are short forms of `add_event_notification`, and are refused in either order."""
        stack = new_stack()
        bucket = self.bucket(stack, imported=True)

        def notify() -> None:
            destination = notifications.SnsDestination(sns.Topic(stack, "Theirs"))
            getattr(bucket, method)(destination, s3.NotificationKeyFilter(prefix="in/a"))

        if not later:
            notify()
        self.pipeline(stack, bucket)
        if later:
            notify()
        event = method.split("_")[2].capitalize()
        with refused("notifications-overlap", rf"sends s3:Object{event}:\* for .*in/a.* to Theirs\w+"):
            template_of(stack)

    @staticmethod
    def pipeline(stack: Stack, bucket: s3.IBucket) -> None:
        filters = [s3.NotificationKeyFilter(prefix="in/")]
        IntakePipeline(stack, "Orders", processor=processor(), bucket=bucket, filters=filters)

    @pytest.mark.failure_mode("F200")
    def test_event_bridge_and_notifications_of_other_keys_stay_beside_the_pipelines(self) -> None:
        """Before the pipeline, and after it."""
        stack = new_stack()
        bucket = s3.Bucket(stack, "Bucket", versioned=True, event_bridge_enabled=True)
        destination = notifications.SnsDestination(sns.Topic(stack, "Topic"))
        bucket.add_object_created_notification(destination, s3.NotificationKeyFilter(prefix="pictures/"))
        self.pipeline(stack, bucket)
        bucket.add_object_removed_notification(destination, s3.NotificationKeyFilter(prefix="films/"))
        (custom,) = resources(template_of(stack), "Custom::S3BucketNotifications").values()
        configuration = custom["Properties"]["NotificationConfiguration"]
        assert configuration.keys() == {"EventBridgeConfiguration", "QueueConfigurations", "TopicConfigurations"}
        prefixes = {
            kind: [entry["Filter"]["Key"]["FilterRules"][0]["Value"] for entry in configuration[kind]]
            for kind in ("QueueConfigurations", "TopicConfigurations")
        }
        assert prefixes == {"QueueConfigurations": ["in/"] * 4, "TopicConfigurations": ["pictures/", "films/"]}

    @pytest.mark.parametrize("event_bridge", [False, True])
    def test_the_bucket_of_a_pipeline_gets_no_further_notifications(self, event_bridge: bool) -> None:
        """They would replace the pipeline's. The message says how to have both."""
        stack = new_stack()
        bucket = IntakePipeline(stack, "Orders", processor=processor()).bucket
        if event_bridge:
            bucket.enable_event_bridge_notification()
        else:
            topic = sns.Topic(stack, "Topic")
            bucket.add_object_created_notification(notifications.SnsDestination(topic))
        with refused("notifications-replaced", "Create the bucket, .* and then pass the bucket to the pipeline"):
            template_of(stack)

    @pytest.mark.failure_mode("F127")
    def test_by_eventbridge_both_get_them(self) -> None:
        """The alternative in the message."""
        stack = new_stack()
        bucket = self.bucket(stack, imported=False)
        self.notify(stack, bucket, s3.EventType.OBJECT_CREATED)
        IntakePipeline(stack, "Orders", processor=processor(), bucket=bucket, delivery=Delivery.EVENTBRIDGE)
        assert template_of(stack)

    @pytest.mark.failure_mode("F127")
    def test_a_function_in_the_buckets_own_property_is_seen_too(self) -> None:
        """A notification in the bucket's resource."""
        stack = new_stack()
        bucket = s3.Bucket(stack, "Bucket", versioned=True)
        resource = bucket.node.default_child
        assert isinstance(resource, s3.CfnBucket)
        theirs = s3.CfnBucket.LambdaConfigurationProperty(event="s3:ObjectCreated:*", function="arn:theirs")
        resource.notification_configuration = s3.CfnBucket.NotificationConfigurationProperty(
            lambda_configurations=[theirs]
        )
        with refused("notifications-overlap", r"s3:ObjectCreated.* to arn:theirs"):
            IntakePipeline(stack, "Orders", processor=processor(), bucket=bucket)

    @pytest.mark.failure_mode("F200")
    def test_a_notification_that_is_added_later_is_kept(self) -> None:
        """A pipeline that reads the notifications early freezes them: older CDKs keep the first result."""
        stack = new_stack()
        bucket = self.bucket(stack, imported=False)
        tagged(stack, bucket)
        IntakePipeline(stack, "Orders", processor=processor(), bucket=bucket)
        self.notify(stack, bucket, s3.EventType.OBJECT_TAGGING_DELETE)
        (custom,) = resources(template_of(stack), "Custom::S3BucketNotifications").values()
        assert set(custom["Properties"]["NotificationConfiguration"]) == {
            "LambdaFunctionConfigurations",
            "QueueConfigurations",
            "TopicConfigurations",
        }

    @pytest.mark.failure_mode("F127")
    def test_a_later_notification_about_the_same_keys_is_refused(self) -> None:
        """In either order."""
        stack = new_stack()
        bucket = self.bucket(stack, imported=True)
        IntakePipeline(stack, "Orders", processor=processor(), bucket=bucket)
        self.notify(stack, bucket, s3.EventType.OBJECT_CREATED, suffix=".csv")
        with refused("notifications-overlap", "to Theirs"):
            template_of(stack)
