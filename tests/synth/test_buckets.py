"""The stack of a bucket decides its delivery mode. Each mode synthesises without a cycle."""

import json
from pathlib import Path

import pytest
from aws_cdk import App, Environment
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_s3_notifications as notifications
from aws_cdk import aws_sns as sns

from cdk_intake_ledger import IntakePipeline, IntakeQueue
from cdk_intake_ledger.resources.key_access import TABLE_KEY_ACTIONS
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

IN = [s3.NotificationKeyFilter(prefix="in/", suffix=".csv")]
NOTIFICATIONS = "Custom::S3BucketNotifications"


def allowed(template: Json, path: str, type_: str) -> list[Json]:
    return [one for one in statements(template, path, type_) if one["Effect"] == "Allow"]


@pytest.mark.failure_mode("F68")
def test_a_bucket_of_the_same_stack_is_notified_about_natively() -> None:
    """No custom resource and no cycle. The bucket depends on the queue's policy."""
    stack = new_stack()
    bucket = s3.Bucket(stack, "Ours", versioned=True)
    IntakePipeline(stack, "Orders", processor=processor(), bucket=bucket, filters=IN)
    template = template_of(stack)
    assert not resources(template, NOTIFICATIONS)
    (resource,) = resources(template, "AWS::S3::Bucket").values()
    entries = resource["Properties"]["NotificationConfiguration"]["QueueConfigurations"]
    assert [one["Event"] for one in entries] == [
        "s3:ObjectCreated:*",
        "s3:ObjectRemoved:*",
        "s3:LifecycleExpiration:*",
        "s3:ObjectRestore:Completed",
    ]
    assert variables(template, "OrdersConsumer")["INTAKE_BUCKET_OWNER"] == "reference"
    assert not warnings(stack)


def test_two_pipelines_watch_one_bucket() -> None:
    """Each pipeline adds its entries and keeps those of the other."""
    stack = new_stack()
    bucket = s3.Bucket(stack, "Ours", versioned=True)
    for name in ("Orders", "Invoices"):
        filters = [s3.NotificationKeyFilter(prefix=f"{name.lower()}/")]
        IntakePipeline(stack, name, processor=processor(), bucket=bucket, filters=filters)
    template = template_of(stack)
    entries = only(template, "AWS::S3::Bucket")["NotificationConfiguration"]["QueueConfigurations"]
    assert len(entries) == 8
    assert {one["Filter"]["S3Key"]["Rules"][0]["Value"] for one in entries} == {"orders/", "invoices/"}


def test_what_the_team_wrote_into_its_bucket_stays() -> None:
    """The pipeline keeps other notifications in the bucket's resource."""
    stack = new_stack()
    bucket = s3.Bucket(stack, "Ours", versioned=True)
    resource = bucket.node.default_child
    assert isinstance(resource, s3.CfnBucket)
    topic = s3.CfnBucket.TopicConfigurationProperty(event="s3:ObjectTagging:*", topic="arn:aws:sns:eu-central-1:1:t")
    resource.notification_configuration = s3.CfnBucket.NotificationConfigurationProperty(
        topic_configurations=[topic],
        event_bridge_configuration=s3.CfnBucket.EventBridgeConfigurationProperty(event_bridge_enabled=True),
    )
    IntakePipeline(stack, "Orders", processor=processor(), bucket=bucket, filters=IN)
    configuration = only(template_of(stack), "AWS::S3::Bucket")["NotificationConfiguration"]
    assert len(configuration["QueueConfigurations"]) == 4
    assert configuration["TopicConfigurations"]
    assert configuration["EventBridgeConfiguration"] == {"EventBridgeEnabled": True}


def test_two_pipelines_that_want_the_same_keys_are_refused() -> None:
    """S3 would refuse the second pipeline at deployment."""
    stack = new_stack()
    bucket = s3.Bucket(stack, "Ours", versioned=True)
    IntakePipeline(stack, "Orders", processor=processor(), bucket=bucket, filters=IN)
    with refused("notifications-overlap", "overlaps an existing notification of the bucket"):
        IntakePipeline(stack, "Invoices", processor=processor(), bucket=bucket)


def test_a_bucket_with_cdks_notifications_gets_ours_among_them() -> None:
    """CDK's notifications replace the configuration in the bucket's resource."""
    stack = new_stack()
    bucket = s3.Bucket(stack, "Ours", versioned=True)
    bucket.add_event_notification(s3.EventType.OBJECT_TAGGING_PUT, notifications.SnsDestination(sns.Topic(stack, "T")))
    IntakePipeline(stack, "Orders", processor=processor(), bucket=bucket, filters=IN)
    template = template_of(stack)
    assert "NotificationConfiguration" not in only(template, "AWS::S3::Bucket")
    configuration = only(template, NOTIFICATIONS)["NotificationConfiguration"]
    assert len(configuration["QueueConfigurations"]) == 4
    assert len(configuration["TopicConfigurations"]) == 1


@pytest.mark.failure_mode("F68")
def test_a_bucket_of_another_stack_tells_event_bridge() -> None:
    """An S3 notification would make a cycle. EventBridge is turned on without a custom resource."""
    app = new_app()
    theirs, ours = new_stack("Theirs", app), new_stack("Ours", app)
    bucket = s3.Bucket(theirs, "Bucket", versioned=True)
    IntakePipeline(ours, "Orders", processor=processor(), bucket=bucket, filters=IN)
    assert only(template_of(theirs), "AWS::S3::Bucket")["NotificationConfiguration"] == {
        "EventBridgeConfiguration": {"EventBridgeEnabled": True}
    }
    assert not resources(template_of(theirs), NOTIFICATIONS)
    template = template_of(ours)
    pattern = only(template, "AWS::Events::Rule")["EventPattern"]
    assert pattern["source"] == ["aws.s3"]
    assert pattern["detail-type"] == ["Object Created", "Object Deleted", "Object Restore Completed"]
    assert "Fn::ImportValue" in pattern["detail"]["bucket"]["name"][0]
    assert pattern["detail"]["object"] == {"key": [{"wildcard": "in/*.csv"}]}


def test_every_key_needs_no_pattern() -> None:
    """EventBridge refuses an empty alternative, so a filter that matches every key adds none."""
    app = new_app()
    theirs, ours = new_stack("Theirs", app), new_stack("Ours", app)
    IntakePipeline(ours, "Orders", processor=processor(), bucket=s3.Bucket(theirs, "Bucket", versioned=True))
    assert "object" not in only(template_of(ours), "AWS::Events::Rule")["EventPattern"]["detail"]


def test_what_event_bridge_gives_up_is_kept() -> None:
    """It goes to the dead-letter queue. Only this rule may send to both queues."""
    app = new_app()
    theirs, ours = new_stack("Theirs", app), new_stack("Ours", app)
    IntakePipeline(ours, "Orders", processor=processor(), bucket=s3.Bucket(theirs, "Bucket", versioned=True))
    template = template_of(ours)
    (rule,) = resources(template, "AWS::Events::Rule")
    (target,) = only(template, "AWS::Events::Rule")["Targets"]
    (dead_letters,) = resources(template, "AWS::SQS::Queue", "OrdersQueueDeadLetters")
    assert target["DeadLetterConfig"]["Arn"] == {"Fn::GetAtt": [dead_letters, "Arn"]}
    for path in ("OrdersQueueMessages", "OrdersQueueDeadLetters"):
        (statement,) = allowed(template, path, "AWS::SQS::QueuePolicy")
        assert statement["Principal"] == {"Service": "events.amazonaws.com"}
        assert statement["Condition"] == {
            "ArnEquals": {"aws:SourceArn": {"Fn::GetAtt": [rule, "Arn"]}},
            "StringEquals": {"aws:SourceAccount": {"Ref": "AWS::AccountId"}},
        }


def test_a_sibling_bucket_with_cdks_notifications_keeps_event_bridge() -> None:
    """CDK's handler replaces the configuration of the bucket, so it must have this setting."""
    app = new_app()
    theirs, ours = new_stack("Theirs", app), new_stack("Ours", app)
    bucket = s3.Bucket(theirs, "Bucket", versioned=True)
    bucket.add_event_notification(s3.EventType.OBJECT_TAGGING_PUT, notifications.SnsDestination(sns.Topic(theirs, "T")))
    IntakePipeline(ours, "Orders", processor=processor(), bucket=bucket)
    assert only(template_of(theirs), NOTIFICATIONS)["NotificationConfiguration"]["EventBridgeConfiguration"] == {}


def test_a_bucket_of_another_region_is_refused() -> None:
    """S3 sends events within one region."""
    app = new_app()
    theirs = new_stack("Theirs", app, Environment(account="111122223333", region="eu-west-1"))
    ours = new_stack("Ours", app, Environment(account="111122223333", region="eu-central-1"))
    with refused(
        "bucket-in-same-environment", "the bucket's region is eu-west-1 and the pipeline's region is eu-central-1"
    ):
        IntakePipeline(ours, "Orders", processor=processor(), bucket=s3.Bucket(theirs, "Bucket", versioned=True))


@pytest.mark.failure_mode("F68")
def test_an_imported_bucket_is_notified_about_by_cdk() -> None:
    """Existing notifications stay. The queue accepts messages of that bucket only."""
    stack = new_stack()
    bucket = s3.Bucket.from_bucket_name(stack, "Theirs", "partner-inbox")
    IntakePipeline(stack, "Orders", processor=processor(), bucket=bucket, filters=IN)
    template = template_of(stack)
    custom = only(template, NOTIFICATIONS)
    assert custom["Managed"] is False
    entries = custom["NotificationConfiguration"]["QueueConfigurations"]
    assert [one["Events"] for one in entries] == [
        ["s3:ObjectCreated:*"],
        ["s3:ObjectRemoved:*"],
        ["s3:LifecycleExpiration:*"],
        ["s3:ObjectRestore:Completed"],
    ]
    assert {rule["Name"]: rule["Value"] for rule in entries[0]["Filter"]["Key"]["FilterRules"]} == {
        "prefix": "in/",
        "suffix": ".csv",
    }
    (statement,) = allowed(template, "OrdersQueueMessages", "AWS::SQS::QueuePolicy")
    assert statement["Condition"]["StringEquals"] == {"aws:SourceAccount": {"Ref": "AWS::AccountId"}}
    assert "partner-inbox" in str(statement["Condition"]["ArnLike"])
    (policy,) = resources(template, "AWS::SQS::QueuePolicy", "OrdersQueueMessages")
    (notification,) = resources(template, NOTIFICATIONS).values()
    assert policy in notification["DependsOn"]
    assert "INTAKE_BUCKET_OWNER" not in variables(template, "OrdersConsumer"), "nobody knows whose it is"
    assert warned(stack, "bucket-versioning-unknown")


@pytest.mark.failure_mode("F29")
def test_the_stated_account_of_an_imported_bucket_is_its_owner() -> None:
    """If the owner is known, every call to S3 names the expected owner."""
    stack = new_stack()
    bucket = s3.Bucket.from_bucket_attributes(
        stack, "Theirs", bucket_name="partner-inbox", account="444455556666", region="eu-central-1"
    )
    IntakePipeline(stack, "Orders", processor=processor(), bucket=bucket)
    template = template_of(stack)
    assert variables(template, "OrdersConsumer")["INTAKE_BUCKET_OWNER"] == "444455556666"
    (statement,) = allowed(template, "OrdersQueueMessages", "AWS::SQS::QueuePolicy")
    assert statement["Condition"]["StringEquals"] == {"aws:SourceAccount": "444455556666"}


@pytest.mark.failure_mode("F68")
@pytest.mark.parametrize("env", [None, Environment(account="111122223333", region="eu-central-1")])
@pytest.mark.parametrize("whose", ["own", "same stack", "sibling", "imported", "sibling, by name"])
def test_one_key_for_everything(whose: str, env: Environment | None) -> None:
    """Bucket, queues and table share a key. No cycle, and every service and role may use it."""
    app = new_app()
    theirs, ours = new_stack("Theirs", app, env), new_stack("Ours", app, env)
    home = theirs if whose.startswith("sibling") else ours
    key = kms.Key(home, "Key")
    bucket: s3.IBucket | None = None
    match whose:
        case "same stack" | "sibling" | "sibling, by name":
            bucket = s3.Bucket(home, "Bucket", versioned=True, encryption_key=key)
        case "imported":
            bucket = s3.Bucket.from_bucket_attributes(ours, "In", bucket_name="partner-inbox", encryption_key=key)
    if whose == "sibling, by name" and bucket:
        bucket = s3.Bucket.from_bucket_attributes(
            ours, "In", bucket_name=bucket.bucket_name, encryption_key=bucket.encryption_key
        )
    IntakePipeline(ours, "Orders", processor=processor(), bucket=bucket, encryption_key=key, filters=IN)
    template = template_of(ours)
    policy = only(template_of(home), "AWS::KMS::Key")["KeyPolicy"]["Statement"]
    # tests/synth/test_log_encryption.py has the statement for log groups.
    services = [one for one in policy if "Service" in one["Principal"] and "kms:Decrypt*" not in one["Action"]]
    assert [actions(one) for one in services] == [["kms:Decrypt", "kms:GenerateDataKey"]]
    assert services[0]["Principal"]["Service"] == ("events.amazonaws.com" if whose == "sibling" else "s3.amazonaws.com")
    account = env.account if env else {"Ref": "AWS::AccountId"}
    assert services[0]["Condition"] == {"StringEquals": {"aws:SourceAccount": account}}
    # The audit also looks whether the key lets S3 in.
    for path, more in (("OrdersConsumer", []), ("OrdersAudit", [["kms:GetKeyPolicy"]])):
        keys = [one for one in statements(template, path) if actions(one)[0].startswith("kms:")]
        assert [actions(one) for one in keys] == [list(TABLE_KEY_ACTIONS), *more]


def test_the_policy_of_an_imported_key_is_told_to_the_team() -> None:
    """CDK cannot extend it. Without the statement, no message would arrive."""
    stack = new_stack()
    key = kms.Key.from_key_arn(stack, "Key", "arn:aws:kms:eu-central-1:111122223333:key/1234")
    IntakePipeline(stack, "Orders", processor=processor(), queue=IntakeQueue(stack, "Buffer", encryption_key=key))
    (warning,) = warned(stack, "key-policy-unknown")
    assert "s3.amazonaws.com" in warning
    assert "kms:GenerateDataKey" in warning


def test_a_queue_of_another_stack() -> None:
    """The queue is in another stack. Its policy names the account only, so it does not depend on the bucket."""
    app = new_app()
    theirs, ours = new_stack("Theirs", app), new_stack("Ours", app)
    IntakePipeline(ours, "Orders", processor=processor(), queue=IntakeQueue(theirs, "Buffer"))
    assert not resources(template_of(ours), "AWS::SQS::Queue")
    assert only(template_of(theirs), "AWS::SQS::Queue", "BufferMessages")["VisibilityTimeout"] == 280


def test_nothing_is_looked_up() -> None:
    """Synthesis needs no context, with or without an environment and in any partition."""
    app = App(builtin_cloud_formation_validation=False)
    for name, env in (("Agnostic", None), ("Fixed", Environment(account="111122223333", region="cn-north-1"))):
        IntakePipeline(new_stack(name, app, env), "Orders", processor=processor())
    manifest = json.loads((Path(app.synth().directory) / "manifest.json").read_text())
    assert "missing" not in manifest
