"""Combinations of a pipeline with buckets and their notifications."""

from aws_cdk import App, Duration, NestedStack, RemovalPolicy, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda_event_sources as event_sources
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_s3_notifications as notifications

from cdk_intake_ledger import Delivery, IntakeQueue, Ordering
from tests.synth.combinations.combination import (
    ELSEWHERE,
    HERE,
    combination,
    node_function,
    prefix,
    topic,
    two_stacks,
    versioned,
)
from tests.synth.matrix import orders, queues


@combination("S3")
def bucket_of_the_stack(app: App) -> None:
    stack = Stack(app, "Stack")
    orders(stack, bucket=versioned(stack))


@combination("S3")
def bucket_with_a_key(app: App) -> None:
    stack = Stack(app, "Stack")
    orders(stack, bucket=versioned(stack, encryption_key=kms.Key(stack, "Key")))


@combination("EventBridge")
def bucket_with_a_key_of_a_sibling(app: App) -> None:
    theirs, ours = two_stacks(app)
    orders(ours, bucket=versioned(theirs, encryption=s3.BucketEncryption.KMS))


@combination("EventBridge")
def bucket_and_key_of_two_siblings(app: App) -> None:
    keys, theirs, ours = Stack(app, "Keys"), *two_stacks(app)
    key = kms.Key(keys, "Key")
    orders(ours, bucket=versioned(theirs, encryption_key=key), encryption_key=key)


@combination("EventBridge")
def bucket_with_a_fixed_name_of_a_sibling(app: App) -> None:
    theirs, ours = two_stacks(app, HERE)
    orders(ours, bucket=versioned(theirs, bucket_name="uploads-of-all"))


@combination("S3")
def bucket_that_is_emptied_and_destroyed(app: App) -> None:
    stack = Stack(app, "Stack")
    bucket = versioned(stack, auto_delete_objects=True, removal_policy=RemovalPolicy.DESTROY)
    orders(stack, bucket=bucket, removal_policy=RemovalPolicy.DESTROY)


@combination("CDK")
def bucket_with_event_bridge_enabled(app: App) -> None:
    stack = Stack(app, "Stack")
    orders(stack, bucket=versioned(stack, event_bridge_enabled=True))


@combination("EventBridge")
def bucket_with_event_bridge_enabled_and_a_rule(app: App) -> None:
    stack = Stack(app, "Stack")
    orders(stack, bucket=versioned(stack, event_bridge_enabled=True), delivery=Delivery.EVENTBRIDGE)


@combination("CDK")
def bucket_that_notifies_a_function_of_another_suffix(app: App) -> None:
    stack = Stack(app, "Stack")
    bucket = versioned(stack)
    destination = notifications.LambdaDestination(node_function(stack))
    bucket.add_object_created_notification(destination, s3.NotificationKeyFilter(suffix=".jpg"))
    orders(stack, bucket=bucket, filters=[s3.NotificationKeyFilter(suffix=".csv")])


@combination("CDK")
def bucket_that_notifies_a_topic_of_another_event(app: App) -> None:
    stack = Stack(app, "Stack")
    bucket = versioned(stack)
    bucket.add_event_notification(s3.EventType.OBJECT_TAGGING_PUT, notifications.SnsDestination(topic(stack)))
    orders(stack, bucket=bucket)


@combination("S3")
def bucket_with_notifications_in_its_resource(app: App) -> None:
    stack = Stack(app, "Stack")
    bucket, function = versioned(stack), node_function(stack)
    function.add_permission("S3", principal=iam.ServicePrincipal("s3.amazonaws.com"))
    resource = bucket.node.default_child
    assert isinstance(resource, s3.CfnBucket)
    rule = s3.CfnBucket.FilterRuleProperty(name="prefix", value="pictures/")
    resource.notification_configuration = s3.CfnBucket.NotificationConfigurationProperty(
        lambda_configurations=[
            s3.CfnBucket.LambdaConfigurationProperty(
                event="s3:ObjectCreated:*",
                function=function.function_arn,
                filter=s3.CfnBucket.NotificationFilterProperty(s3_key=s3.CfnBucket.S3KeyFilterProperty(rules=[rule])),
            )
        ]
    )
    orders(stack, bucket=bucket, filters=prefix("in/"))


@combination("S3", contains="NewerNoncurrentVersions")
def bucket_that_gets_a_lifecycle_rule_later(app: App) -> None:
    stack = Stack(app, "Stack")
    bucket = versioned(stack)
    orders(stack, bucket=bucket)
    bucket.add_lifecycle_rule(noncurrent_version_expiration=Duration.days(90), noncurrent_versions_to_retain=5)


@combination("CDK", contains="TopicConfigurations")
def bucket_that_notifies_a_topic_later(app: App) -> None:
    """CDK's notifications were there before the pipeline, so later ones join them."""
    stack = Stack(app, "Stack")
    bucket = versioned(stack, event_bridge_enabled=True)
    orders(stack, bucket=bucket)
    bucket.add_event_notification(s3.EventType.OBJECT_TAGGING_PUT, notifications.SnsDestination(topic(stack)))


@combination("S3", consumers=3)
def three_prefixes_of_a_bucket(app: App) -> None:
    stack = Stack(app, "Stack")
    bucket = versioned(stack)
    for name in ("Orders", "Returns", "Offers"):
        orders(stack, name, bucket=bucket, filters=prefix(f"{name}/"))


@combination("EventBridge", consumers=3)
def three_prefixes_of_a_bucket_in_three_stacks(app: App) -> None:
    bucket = versioned(Stack(app, "Theirs"))
    for name in ("Orders", "Returns", "Offers"):
        orders(Stack(app, name), name, bucket=bucket, filters=prefix(f"{name}/"))


@combination("CDK", consumers=2, warned="bucket-lifecycle-unknown bucket-versioning-unknown")
def two_prefixes_of_an_imported_bucket(app: App) -> None:
    stack = Stack(app, "Stack")
    bucket = s3.Bucket.from_bucket_name(stack, "Inbox", "partner-inbox")
    for name in ("Orders", "Returns"):
        orders(stack, name, bucket=bucket, filters=prefix(f"{name}/"))


@combination("EventBridge", consumers=2)
def two_pipelines_on_the_same_keys(app: App) -> None:
    stack = Stack(app, "Stack")
    bucket = versioned(stack)
    for name in ("Archive", "Search"):
        orders(stack, name, bucket=bucket, delivery=Delivery.EVENTBRIDGE)


@combination("S3", "EventBridge", consumers=2)
def both_deliveries_of_a_bucket(app: App) -> None:
    stack = Stack(app, "Stack")
    bucket = versioned(stack)
    orders(stack, bucket=bucket)
    orders(stack, "Search", bucket=bucket, delivery=Delivery.EVENTBRIDGE)


@combination("CDK", warned="bucket-lifecycle-unknown bucket-versioning-unknown")
def imported_bucket_with_a_key(app: App) -> None:
    stack = Stack(app, "Stack", env=HERE)
    key = kms.Key.from_key_arn(stack, "Key", f"arn:aws:kms:eu-central-1:{HERE.account}:key/1234")
    bucket = s3.Bucket.from_bucket_attributes(
        stack, "Inbox", bucket_arn="arn:aws:s3:::partner-inbox", encryption_key=key, region=HERE.region
    )
    orders(stack, bucket=bucket)


@combination("EventBridge", warned="bucket-lifecycle-unknown bucket-versioning-unknown event-bridge-unknown")
def imported_bucket_with_event_bridge(app: App) -> None:
    stack = Stack(app, "Stack")
    bucket = s3.Bucket.from_bucket_name(stack, "Inbox", "partner-inbox")
    orders(stack, bucket=bucket, delivery=Delivery.EVENTBRIDGE)


@combination("S3")
def bucket_of_a_resource(app: App) -> None:
    """A bucket of CDK's lower level, in its construct of the higher level."""
    stack = Stack(app, "Stack")
    resource = s3.CfnBucket(
        stack,
        "Raw",
        versioning_configuration=s3.CfnBucket.VersioningConfigurationProperty(status="Enabled"),
    )
    orders(stack, bucket=s3.Bucket.from_cfn_bucket(resource))


@combination("EventBridge")
def bucket_of_a_sibling_that_notifies_its_own_function(app: App) -> None:
    """The function reads the bucket, too."""
    theirs, ours = two_stacks(app)
    bucket, function = versioned(theirs), node_function(theirs)
    bucket.add_object_created_notification(notifications.LambdaDestination(function))
    bucket.grant_read(function)
    orders(ours, bucket=bucket)


@combination("EventBridge")
def bucket_of_another_nested_stack(app: App) -> None:
    host = Stack(app, "Host")
    orders(NestedStack(host, "Ours"), bucket=versioned(NestedStack(host, "Theirs")))


@combination("S3")
def function_of_a_sibling_reads_the_own_bucket(app: App) -> None:
    ours, readers = Stack(app, "Ours"), Stack(app, "Readers")
    pipeline = orders(ours)
    pipeline.bucket.grant_read(node_function(readers))


@combination("S3")
def function_of_a_sibling_uses_the_ledger_and_queues(app: App) -> None:
    ours, readers = Stack(app, "Ours"), Stack(app, "Readers")
    pipeline, function = orders(ours, encryption_key=kms.Key(ours, "Key")), node_function(readers)
    pipeline.grant_read_ledger(function)
    pipeline.grant_put(function)


def notifies(stack: Stack, *events: s3.EventType) -> tuple[s3.Bucket, IntakeQueue]:
    """A bucket that notifies a queue, and both queues."""
    bucket, queue = versioned(stack), queues(stack)
    for event in events:
        bucket.add_event_notification(event, notifications.SqsDestination(queue.queue))
    return bucket, queue


@combination("CDK")
def queue_that_the_bucket_notifies_already(app: App) -> None:
    stack = Stack(app, "Stack")
    bucket, queue = notifies(
        stack,
        s3.EventType.OBJECT_CREATED,
        s3.EventType.OBJECT_REMOVED,
        s3.EventType.LIFECYCLE_EXPIRATION,
        s3.EventType.OBJECT_RESTORE_COMPLETED,
    )
    orders(stack, bucket=bucket, queue=queue, delivery=Delivery.EXISTING, deletes=True)


@combination(refused="existing-delivery-without-removals")
def queue_that_the_bucket_notifies_of_created_objects(app: App) -> None:
    stack = Stack(app, "Stack")
    bucket, queue = notifies(stack, s3.EventType.OBJECT_CREATED)
    orders(stack, bucket=bucket, queue=queue, delivery=Delivery.EXISTING, deletes=True)


@combination(refused="notifications-overlap")
def bucket_that_notifies_a_function_of_the_same_suffix(app: App) -> None:
    stack = Stack(app, "Stack")
    bucket = versioned(stack)
    destination = notifications.LambdaDestination(node_function(stack))
    bucket.add_event_notification(s3.EventType.OBJECT_CREATED, destination, s3.NotificationKeyFilter(suffix=".csv"))
    orders(stack, bucket=bucket, filters=[s3.NotificationKeyFilter(suffix=".csv")])


@combination(refused="notifications-overlap")
def bucket_that_is_an_event_source_of_a_function(app: App) -> None:
    stack = Stack(app, "Stack")
    bucket, function = versioned(stack), node_function(stack)
    function.add_event_source(event_sources.S3EventSource(bucket, events=[s3.EventType.OBJECT_CREATED_PUT]))
    orders(stack, bucket=bucket)


@combination(refused="notifications-replaced")
def bucket_that_notifies_another_function_later(app: App) -> None:
    stack = Stack(app, "Stack")
    bucket = versioned(stack)
    orders(stack, bucket=bucket, filters=prefix("in/"))
    bucket.add_object_created_notification(
        notifications.LambdaDestination(node_function(stack)), s3.NotificationKeyFilter(prefix="pictures/")
    )


@combination(refused="bucket-must-be-versioned")
def every_version_of_a_bucket_without_versions(app: App) -> None:
    stack = Stack(app, "Stack")
    orders(stack, bucket=s3.Bucket(stack, "Uploads"), ordering=Ordering.EVERY_VERSION)


@combination(refused="bucket-in-same-environment")
def bucket_of_another_region(app: App) -> None:
    theirs, ours = Stack(app, "Theirs", env=ELSEWHERE), Stack(app, "Ours", env=HERE, cross_region_references=True)
    orders(ours, bucket=versioned(theirs, bucket_name="uploads-of-all"))


@combination(refused="bucket-imported-twice")
def two_imports_of_a_bucket(app: App) -> None:
    stack = Stack(app, "Stack")
    for name in ("Orders", "Returns"):
        bucket = s3.Bucket.from_bucket_name(stack, f"{name}Inbox", "partner-inbox")
        orders(stack, name, bucket=bucket, filters=prefix(f"{name}/"))


BUCKETS = [item for item in list(globals().values()) if type(item).__name__ == "Combination"]
