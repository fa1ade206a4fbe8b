"""The option `bucket_props`: properties of the bucket that the pipeline makes."""

from typing import Any

import pytest
from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3

from cdk_intake_ledger import IntakePipeline
from tests.synth.build import Json, new_stack, only, processor, refused, resources, template_of

CORS = s3.CorsRule(allowed_methods=[s3.HttpMethods.PUT], allowed_origins=["https://example.com"])


def template_with(**options: Any) -> Json:
    stack = new_stack()
    IntakePipeline(stack, "Orders", processor=processor(), **options)
    return template_of(stack)


def test_the_bucket_has_the_given_properties_beside_those_of_the_pipeline() -> None:
    """Name, CORS, access logs and lifecycle rules. It stays versioned, private and encrypted."""
    stack = new_stack()
    props = s3.BucketProps(
        bucket_name="acme-orders",
        cors=[CORS],
        lifecycle_rules=[s3.LifecycleRule(expiration=Duration.days(365))],
        server_access_logs_bucket=s3.Bucket(stack, "Logs"),
        server_access_logs_prefix="orders/",
    )
    IntakePipeline(stack, "Orders", processor=processor(), bucket_props=props)
    found = only(template_of(stack), "AWS::S3::Bucket", "OrdersBucket")
    plain = only(template_with(), "AWS::S3::Bucket", "OrdersBucket")
    assert found["BucketName"] == "acme-orders"
    assert found["CorsConfiguration"]["CorsRules"][0]["AllowedOrigins"] == ["https://example.com"]
    assert found["LoggingConfiguration"]["LogFilePrefix"] == "orders/"
    rules = [rule for rule in found["LifecycleConfiguration"]["Rules"] if "ExpirationInDays" not in rule]
    assert [rule["ExpirationInDays"] for rule in found["LifecycleConfiguration"]["Rules"] if rule not in rules] == [365]
    assert rules == plain["LifecycleConfiguration"]["Rules"]
    for name in ("VersioningConfiguration", "PublicAccessBlockConfiguration", "BucketEncryption"):
        assert found[name] == plain[name]
    events = [entry["Event"] for entry in found["NotificationConfiguration"]["QueueConfigurations"]]
    assert events == [entry["Event"] for entry in plain["NotificationConfiguration"]["QueueConfigurations"]]


def test_event_bridge_stands_beside_the_notifications() -> None:
    """Both are in the bucket's resource. CDK's function for EventBridge would replace the notifications."""
    template = template_with(bucket_props=s3.BucketProps(event_bridge_enabled=True))
    found = only(template, "AWS::S3::Bucket")["NotificationConfiguration"]
    assert found["EventBridgeConfiguration"] == {"EventBridgeEnabled": True}
    assert len(found["QueueConfigurations"]) == 4
    assert resources(template, "Custom::S3BucketNotifications") == {}


def test_a_bucket_is_emptied_with_its_stack() -> None:
    """CDK's function deletes all versions."""
    props = s3.BucketProps(auto_delete_objects=True)
    template = template_with(bucket_props=props, removal_policy=RemovalPolicy.DESTROY)
    for kind in ("Custom::S3AutoDeleteObjects", "AWS::S3::Bucket"):
        (resource,) = resources(template, kind).values()
        assert resource["DeletionPolicy"] == "Delete"


@pytest.mark.failure_mode("F205")
@pytest.mark.parametrize(
    ("props", "rule", "text"),
    [
        ({"versioned": False}, "bucket-must-be-versioned", "VersioningConfiguration.Status none .* by their versions"),
        ({"encryption": s3.BucketEncryption.S3_MANAGED}, "bucket-props-beside-option", "Pass encryption_key to"),
        ({"removal_policy": RemovalPolicy.DESTROY}, "bucket-props-beside-option", "Pass removal_policy to"),
        ({"auto_delete_objects": True}, "bucket-props-refused", "without setting removal policy to 'DESTROY'"),
    ],
)
def test_a_property_that_breaks_the_pipeline_is_refused(props: dict[str, Any], rule: str, text: str) -> None:
    with refused(rule, text):
        template_with(bucket_props=s3.BucketProps(**props))


@pytest.mark.failure_mode("F205")
def test_the_key_of_the_bucket_is_the_pipelines() -> None:
    """The consumer's role gets the use of this key only."""
    stack = new_stack()
    props = s3.BucketProps(encryption_key=kms.Key(stack, "Key"))
    with refused("bucket-props-beside-option", "bucket_props has encryption_key"):
        IntakePipeline(stack, "Orders", processor=processor(), bucket_props=props)


@pytest.mark.failure_mode("F205")
def test_the_properties_of_an_existing_bucket_are_refused() -> None:
    """They would have no effect."""
    stack = new_stack()
    bucket = s3.Bucket(stack, "Files", versioned=True)
    with refused("bucket-props-of-existing", "together with the bucket Stack/Files"):
        IntakePipeline(stack, "Orders", processor=processor(), bucket=bucket, bucket_props=s3.BucketProps())


def test_a_lifecycle_rule_that_removes_versions_early_is_refused() -> None:
    """A message may wait longer than the version that it names."""
    rule = s3.LifecycleRule(noncurrent_version_expiration=Duration.days(1))
    with refused("versions-expire-early", "removes overwritten versions after 1 day"):
        template_with(bucket_props=s3.BucketProps(lifecycle_rules=[rule]))
